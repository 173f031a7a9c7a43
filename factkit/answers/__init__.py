"""Evaluation of short and of long answers: what both count."""

from collections.abc import Mapping
from typing import Any

EXPOSURE_EDGES = (0, 1, 4, 10, 40)  # times; a bin reaches to below the next


def shown(meta: dict[str, Any]) -> dict[str, Any]:
    """What a result keeps of an example's meta: not its texts."""
    return {k: v for k, v in meta.items() if k not in ("references", "reasoning")}


def exposure_bin(row: Any) -> int:
    """The lower edge of the bin of how often the policy read what was asked about (fact
    world)."""
    return max(e for e in EXPOSURE_EDGES if e <= row.meta["exposure"])


def flat(by: Mapping[str, Mapping[Any, Mapping[str, float]]]) -> dict[str, float]:
    """{"exposure_10_abstention": …} from {"exposure": {10: {"abstention": …}}}.

    `n` becomes the share of all questions.
    """
    metrics = {}
    for kind, groups in by.items():
        total = sum(group.get("n", 0) for group in groups.values())
        for key, group in groups.items():
            shares = {k: v / total if k == "n" else v for k, v in group.items()}
            metrics |= {f"{kind}_{key}_{k}": v for k, v in shares.items()}
    return metrics
