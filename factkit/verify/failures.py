"""A run stops when its judge or verifier fails on too many responses."""

from collections.abc import Sequence
from dataclasses import dataclass

MOST_JUDGE_FAILURES = 0.05  # of the responses; more, and a run fails
FEWEST_RESPONSES = 200  # before the share of failures can fail a run


def failed_share(values: Sequence[object], name: str) -> float:
    """The share of None among an evaluation's values. Raises ValueError above 5 %."""
    share = list(values).count(None) / max(len(values), 1)
    if share > MOST_JUDGE_FAILURES:
        raise ValueError(
            f"{name}: {share:.1%} of {len(values)}, at most {MOST_JUDGE_FAILURES:.0%} "
            "may fail: see to the judge's endpoint and run again"
        )
    return share


@dataclass
class Failures:
    """Counts the responses of a run that a judge failed on."""

    arm: str
    seen: int = 0
    failed: int = 0

    def count(
        self, rewards: Sequence[float | None], fewest: int = FEWEST_RESPONSES
    ) -> None:
        """Add a batch. Raises RuntimeError above 5 % of at least `fewest` responses."""
        self.seen += len(rewards)
        self.failed += list(rewards).count(None)
        share = self.failed / max(self.seen, 1)
        if self.seen >= fewest and share > MOST_JUDGE_FAILURES:
            raise RuntimeError(
                f"arm={self.arm}: no reward for {self.failed} of {self.seen} responses "
                f"({share:.1%}): see to the verifier's endpoint and run again"
            )
