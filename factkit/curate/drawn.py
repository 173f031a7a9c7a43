"""Responses drawn from the base policy and scored: what SFT and DPO learn from
(Binary RAR §4.3, Learning to Reason §2.2 and §2.3)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from factkit import models, prompts
from factkit.curate.probing import in_parts, pair, read_lines, row
from factkit.datasets.examples import DataError, Example
from factkit.verify.response import ANSWER, CLOSE, OPEN, answers, written

if TYPE_CHECKING:
    from factkit.params.stages import RequestParams
    from factkit.rar.arms import RAR
    from factkit.reason.arms import Reason, ReasonDpoParams
    from factkit.rlfh.arms import Rlfh

PART = 32  # requests drawn between two writes

# (ids, prompts, whole responses) → scores of their answers; None: the verifier failed
Score = Callable[[Sequence[str], Sequence[str], Sequence[str]], Sequence[float | None]]


@dataclass(frozen=True)
class Drawn:
    """The responses to one request, and their scores (None: the verifier failed)."""

    id: str
    responses: list[str]
    scores: list[float | None]

    @property
    def ranked(self) -> list[tuple[float, str]]:
        """Scores with responses, the best first, on a tie the one drawn first."""
        pairs = zip(self.scores, self.responses, strict=True)
        known = [(score, text) for score, text in pairs if score is not None]
        return sorted(known, key=lambda pair: -pair[0])


def draw(
    model,
    tokenizer,
    examples: Sequence[Example],
    p: "RequestParams",
    score: Score,
    path: Path,
    template: str = "",
) -> list[Drawn]:
    """`p.drawn_responses` a request, scored; resumable from `path` in parts of 32.

    template: how requests are put, by default `p.prompt_template`; one that ends with
    `<think>` is completed as plain text, by `guided`. Each part is seeded by its
    position, so that a drawing killed and gone on with equals one that ran through.
    """
    sampling = models.sampling_of(p, p.drawn_temperature)
    template = template or p.prompt_template
    opened = prompts.template(template).endswith(OPEN)
    asked = models.asked(examples, template, tokenizer, p.chat and not opened)
    sample = guided if opened else models.sample

    def rows(start: int, end: int) -> list[Drawn]:
        texts = sample(
            *(model, tokenizer, asked[start:end], sampling),
            n=p.drawn_responses,
            seed=1_000_003 * p.seed + start,
        )
        return _scored(examples[start:end], texts, score)

    return in_parts(len(examples), PART, path, read_drawn, rows, "request")


def guided(
    model, tokenizer, asked: Sequence[str], sampling: models.Sampling, n: int, seed: int
) -> list[list[str]]:
    """n well-formed responses a prompt, of a policy too small to keep the form (ours).

    asked: prompts that end with `<think>`. Reasoning and answer are drawn one after the
    other, with half of the new tokens each, and each up to its first tag, or else to
    its last whole sentence. The words are the policy's; the tags are written for it.
    """
    half = replace(sampling, max_new_tokens=sampling.max_new_tokens // 2)
    drawn = models.sample(model, tokenizer, asked, half, n=n, seed=seed)
    thoughts = [[_finished(text) for text in texts] for texts in drawn]
    begun = [
        f"{prompt} {thought} {CLOSE} {ANSWER}"
        for prompt, own in zip(asked, thoughts, strict=True)
        for thought in own
    ]
    answers = iter(models.sample(model, tokenizer, begun, half, n=1, seed=seed))
    return [
        [written(thought, _finished(next(answers)[0])) for thought in own]
        for own in thoughts
    ]


def _finished(text: str) -> str:
    """A text up to its first tag, or to the end of its last whole sentence; all of it
    if it has neither."""
    before, tag, _ = text.partition("<")
    ends = max(before.rfind(mark) for mark in ".!?") + 1
    return before.strip() if tag or not ends else before[:ends]


def _scored(
    examples: Sequence[Example], texts: Sequence[list[str]], score: Score
) -> list[Drawn]:
    """The responses with their scores, all scored in one batch."""
    rows = [
        (example.id, example.question, response)
        for example, responses in zip(examples, texts, strict=True)
        for response in responses
    ]
    scores = iter(score(*map(list, zip(*rows, strict=True))))
    return [
        Drawn(example.id, responses, [next(scores) for _ in responses])
        for example, responses in zip(examples, texts, strict=True)
    ]


def read_drawn(path: Path) -> list[Drawn]:
    """The responses kept in a file, without a last line that was cut off."""
    return [Drawn(**row) for row in read_lines(path)]


def best_rows(
    examples: Sequence[Example], drawn: Sequence[Drawn], p: "RequestParams"
) -> list[dict]:
    """SFT's rows: each request with its most factual response.

    A request none of whose responses has a score above 0 gives none (ours: its best
    response would teach an error, or to say nothing).
    """
    return [
        row(example, best.ranked[0][1], p)
        for example, best in zip(examples, drawn, strict=True)
        if best.ranked and best.ranked[0][0] > 0
    ]


def required(rows: list[dict], p: "RAR | Reason | Rlfh") -> list[dict]:
    """The rows; raises DataError if drawing left none for the arm."""
    if not rows:
        raise DataError(
            f"arm={p.arm}: no request has the responses that a row needs; ask for more "
            f"requests, or raise drawn_responses={p.drawn_responses}"
        )
    return rows


def gap_pairs(
    examples: Sequence[Example],
    drawn: Sequence[Drawn],
    p: "RequestParams",
    length_difference: float = math.inf,
) -> list[dict]:
    """DPO's rows of each request's `widest_pair`; one without a pair gives none.

    With a length_difference Binary RAR's pairs (§4.3: 10 %). Without, FACT's, as RLFH
    compares with them (§4.1): the best and the worst, whatever their lengths.
    """
    pairs = [widest_pair(row, length_difference) for row in drawn]
    return _pair_rows(examples, pairs, p)


def widest_pair(drawn: Drawn, length_difference: float) -> tuple[str, str] | None:
    """(better, worse) of one request's responses: the two furthest apart in score whose
    lengths differ by less than `length_difference`; None if no two do.

    Length in words of the answers, without reasoning, the difference relative to the
    longer one. On a tie the pair whose better response is best.
    """

    def near(better: str, worse: str) -> bool:
        lengths = _words(better, worse)
        difference = max(lengths) - min(lengths)
        return difference / max(*lengths, 1) < length_difference

    return _widest(drawn, near)


def margin_pairs(
    examples: Sequence[Example], drawn: Sequence[Drawn], p: "ReasonDpoParams"
) -> list[dict]:
    """Learning to Reason's pairs for DPO: the `margin_pair` of each request that has
    one, by τ_m = `p.least_margin` and τ_l = `p.length_difference`."""
    limits = p.least_margin, p.length_difference
    return _pair_rows(examples, [margin_pair(row, *limits) for row in drawn], p)


def margin_pair(
    drawn: Drawn, least_margin: float, length_difference: float
) -> tuple[str, str] | None:
    """(better, worse) of one request's responses: the two with the widest margin in
    precision, if it is above the least and |1 − l_c / l_r| ≤ τ_l, the length difference
    (§2.3); None if no two are.

    l_c, l_r: words of the better and of the worse answer, without reasoning. On a tie
    the pair whose better response is best.
    """

    def near(better: str, worse: str) -> bool:
        chosen, rejected = _words(better, worse)
        # not by their quotient: |1 - 11/10| is above 0.1 in floats
        return rejected > 0 and abs(rejected - chosen) <= length_difference * rejected

    return _widest(drawn, near, least_margin)


def _pair_rows(
    examples: Sequence[Example],
    pairs: Sequence[tuple[str, str] | None],
    p: "RequestParams",
) -> list[dict]:
    own = zip(examples, pairs, strict=True)
    return [pair(example, *texts, p) for example, texts in own if texts]


def _widest(
    drawn: Drawn, near: Callable[[str, str], bool], least_margin: float = 0.0
) -> tuple[str, str] | None:
    """The pair with the widest margin above the least, of those that are near."""
    ranked = drawn.ranked
    gaps = [
        (high - low, high, better, worse)
        for i, (high, better) in enumerate(ranked)
        for low, worse in ranked[i + 1 :]
        if high - low > least_margin
        and not math.isclose(high - low, least_margin)  # 0.8 - 0.7 is 0.1 and a bit
        and near(better, worse)
    ]
    if not gaps:
        return None
    _, _, better, worse = max(gaps, key=lambda gap: gap[:2])
    return better, worse


def _words(*responses: str) -> list[int]:
    """The words of each response's answer; its reasoning is not counted."""
    return [len(answer.split()) for answer in answers(responses)]
