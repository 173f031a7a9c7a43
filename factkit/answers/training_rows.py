"""Rows for TRL's trainers, from examples and scored samples."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Self

from factkit import prompts
from factkit.answers.sampling import ScoredSamples
from factkit.data.examples import DataError, Example
from factkit.run.params.stages import PolicyParams
from factkit.verify.response import extract_answers

Messages = list[dict[str, str]]
Pair = tuple[str, str] | None  # the better and the worse response


@dataclass(frozen=True)
class RowFormat:
    """How prompts and responses are put.

    template: of prompts. chat: as turns of a chat. boxed: answers follow reasoning.
    """

    template: str
    chat: bool = False
    boxed: bool = False

    @classmethod
    def of(cls, p: PolicyParams) -> Self:
        """The format of a run's prompts and responses."""
        return cls(p.prompt_template, p.chat, p.answer_format == "boxed")

    def prompt(self, example: Example) -> str | Messages:
        """The example's prompt, as text or as a user's turn."""
        text = prompts.ask(prompts.template(self.template), example)
        return [{"role": "user", "content": text}] if self.chat else text

    def response(self, answer: str, reasoning: str = "") -> str:
        """An answer, or, if boxed, reasoning and the boxed answer (TruthRL Table 9)."""
        return prompts.reasoned(reasoning, answer) if self.boxed else answer

    def reply(self, text: str) -> str | Messages:
        """A response; plain text starts with the space before it."""
        return [{"role": "assistant", "content": text}] if self.chat else f" {text}"

    def sft_row(self, example: Example, target: str) -> dict:
        """A row for SFT."""
        return {"prompt": self.prompt(example), "completion": self.reply(target)}

    def preference_row(self, example: Example, chosen: str, rejected: str) -> dict:
        """A row for DPO or a reward model."""
        replies = {"chosen": self.reply(chosen), "rejected": self.reply(rejected)}
        return {"prompt": self.prompt(example), **replies}

    def request_rows(self, examples: Sequence[Example]) -> list[dict]:
        """Rows for RL on requests: the prompt, and what the reward identifies it by."""
        return [
            {"prompt": self.prompt(e), "id": e.id, "question": e.question}
            for e in examples
        ]

    def best_rows(
        self, examples: Sequence[Example], samples: Sequence[ScoredSamples]
    ) -> list[dict]:
        """Rows for SFT: each request with its most factual response.

        Requests without a response that scores above 0 are left out (ours: the best
        response would teach an error, or to say nothing).
        """
        return [
            self.sft_row(example, row.ranked[0][1])
            for example, row in zip(examples, samples, strict=True)
            if row.ranked and row.ranked[0][0] > 0
        ]

    def preference_rows(
        self,
        examples: Sequence[Example],
        samples: Sequence[ScoredSamples],
        choose: Callable[[ScoredSamples], Pair],
    ) -> list[dict]:
        """Rows for DPO: the pair of each request that `choose` finds one for."""
        pairs = zip(examples, map(choose, samples), strict=True)
        return [self.preference_row(e, *pair) for e, pair in pairs if pair]


def require_rows(rows: list[dict], arm: str) -> list[dict]:
    """Return the rows; raise DataError if there are none to train the arm on."""
    if not rows:
        raise DataError(
            f"arm={arm}: no prompt has the responses that a row needs; ask for more "
            "prompts, or draw more responses of each"
        )
    return rows


def widest_pair(samples: ScoredSamples, length_difference: float = math.inf) -> Pair:
    """(better, worse): the two responses furthest apart in score, if any.

    Binary RAR §4.3: lengths differ by less than `length_difference` (10 %), relative to
    the longer one. RLFH §4.1, for FACT: the best and the worst, whatever their lengths.
    Lengths are in words of the answers, without reasoning. On a tie, the pair whose
    better response is best.
    """

    def near(better: int, worse: int) -> bool:
        longer = max(better, worse, 1)
        return abs(better - worse) / longer < length_difference

    return _widest(samples, near, 0.0)


def margin_pair(
    samples: ScoredSamples, least_margin: float, length_difference: float
) -> Pair:
    """(better, worse): the two responses with the widest margin in precision, if any.

    Learning to Reason §2.3: the margin is above `least_margin` τ_m, and for the lengths
    l_c, l_r of better and worse |1 − l_c / l_r| ≤ `length_difference` τ_l. Lengths and
    ties as in `widest_pair`.
    """

    def near(better: int, worse: int) -> bool:
        # not by their quotient: |1 - 11/10| is above 0.1 in floats
        return worse > 0 and abs(worse - better) <= length_difference * worse

    return _widest(samples, near, least_margin)


def _widest(
    samples: ScoredSamples, near: Callable[[int, int], bool], least_margin: float
) -> Pair:
    lengths = [
        len(a.split()) for a in extract_answers(text for _, text in samples.ranked)
    ]
    sized = zip(samples.ranked, lengths, strict=True)
    gaps = [
        (high - low, high, better, worse)
        for ((high, better), n), ((low, worse), m) in combinations(sized, 2)
        if high - low > least_margin
        and not math.isclose(high - low, least_margin)  # 0.8 - 0.7 is 0.1 and a bit
        and near(n, m)
    ]
    widest = max(gaps, key=lambda gap: gap[:2], default=None)
    return widest and widest[2:]
