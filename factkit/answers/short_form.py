"""Evaluation of short answers: truthfulness, accuracy, hallucination, abstention."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit.answers import shown
from factkit.data.examples import Example, read_rows, write_rows
from factkit.policy import models
from factkit.policy.vllm_engine import Sampled
from factkit.verify.judge import failed_share
from factkit.verify.outcome import Outcome, abstains, normalise
from factkit.verify.response import final_answer, split_box

if TYPE_CHECKING:
    from factkit.answers.verifier import ReasoningJudge, Verifier
    from factkit.run.params.stages import QuestionParams

RATES = ("truthfulness", "accuracy", "hallucination", "abstention")


@dataclass(frozen=True)
class Answered:
    """A question with the policy's greedy response; outcome None: the judge failed.

    confidence: geometric mean probability of the answer's tokens, in [0, 1]. reasoning:
    quality in [0, 1], None where it isn't judged. meta: the example's (exposure …).
    """

    id: str
    question: str
    answers: list[str]
    relation: str
    response: str
    outcome: Outcome | None
    confidence: float = 0.0
    reasoning: float | None = None
    meta: dict[str, Any] = field(default_factory=dict)


def answer(
    model,
    tokenizer,
    examples: Sequence[Example],
    template: str,
    p: "QuestionParams",
    path: Path,
    verify: "Verifier",
    judge_reasoning: "ReasoningJudge | None" = None,
) -> list[Answered]:
    """The policy's greedy responses (Appendix C), verified; kept in `path`.

    Where a judge failed, the response is kept and judged again at the next call.
    Raises ValueError where one failed on more than 5 %.
    """
    if path.exists():
        return _judged(read_answers(path), path, verify, judge_reasoning)
    asked = models.asked(examples, template, tokenizer, p.chat)
    greedy = models.sampling_of(p)
    drawn = models.sample_tokens(
        model, tokenizer, asked, greedy, logps=True, progress=path.stem
    )
    rows = [row for (row,) in drawn]
    texts = models.texts_of([ids for ids, _ in rows], tokenizer, greedy)
    both = zip(texts, rows, strict=True)
    sure = [confidence(text, row, tokenizer, p) for text, row in both]
    answered = [
        Answered(
            *(e.id, e.question, e.answers, e.relation, text),
            *(None, confidence, None, shown(e.meta)),
        )
        for e, text, confidence in zip(examples, texts, sure, strict=True)
    ]
    return _judged(answered, path, verify, judge_reasoning)


def _judged(
    answered: list[Answered],
    path: Path,
    verify: "Verifier",
    judge_reasoning: "ReasoningJudge | None",
) -> list[Answered]:
    """The answers with the verdicts that they lack, and kept with them."""
    lacking = [
        i
        for i, a in enumerate(answered)
        if a.outcome is None or (judge_reasoning and a.reasoning is None)
    ]
    if lacking:
        rows = [answered[i] for i in lacking]
        texts, answers = [a.response for a in rows], [a.answers for a in rows]
        questions, quality = [a.question for a in rows], [a.reasoning for a in rows]
        outcomes = verify(texts, answers, questions)
        if judge_reasoning:
            ids = [a.id for a in rows]
            quality = judge_reasoning(texts, ids, answers, questions)
        verdicts = zip(lacking, outcomes, quality, strict=True)
        for i, outcome, reasoning in verdicts:
            answered[i] = replace(answered[i], outcome=outcome, reasoning=reasoning)
        write_rows(path, map(asdict, answered))
    failed_share([a.outcome for a in answered], f"judge failures of {path.stem}")
    if judge_reasoning:
        name = f"judge failures of the reasoning of {path.stem}"
        failed_share([a.reasoning for a in answered], name)
    return answered


def confidence(text: str, sampled: Sampled, tokenizer, p: "QuestionParams") -> float:
    r"""The geometric mean probability of a response's answer tokens (Fig 6), in [0, 1]:
    of all, or of the last `\boxed{}`'s content, given the prompt and what comes before.

    Of the T tokens as they were sampled, those that have a character of the answer;
    what ends a response has none, and an empty answer has 0.
    """
    ids, logps = sampled
    whole, offsets = models.offsets_of(ids, tokenizer)
    head, tail = ("", text) if p.answer_format == "plain" else split_box(text)
    space = not head and not p.chat  # before a plain answer: its token's own
    start = whole.find(text) + len(head)
    end, steps = start + len(tail), zip(logps, offsets, strict=True)
    own = [logp for logp, (a, b) in steps if a < end and b > start - space]
    return math.exp(sum(own) / len(own)) if tail and own else 0.0


def read_answers(path: Path) -> list[Answered]:
    """The answers kept in a samples file."""
    return read_rows(path, Answered)


def rates(results: Sequence[Outcome | None]) -> dict[str, float]:
    """Truthfulness, accuracy, hallucination and abstention of the outcomes judged.

    T = w1·Acc + w2·Unc − w3·Hall with w = (1, 0, 1) (TruthRL §2.1, §4.1), in [−1, 1].
    A None (the judge failed) is left out. Raises ValueError without outcomes.
    """
    judged = [r for r in results if r is not None]
    if not judged:
        raise ValueError("no outcomes to score")
    kinds = (Outcome.CORRECT, Outcome.WRONG, Outcome.ABSTAIN)
    accuracy, *others = (judged.count(kind) / len(judged) for kind in kinds)
    values = (accuracy - others[0], accuracy, *others)
    return dict(zip(RATES, values, strict=True))


def rates_by(
    answered: Sequence[Answered], key: Callable[[Answered], Any]
) -> dict[Any, dict[str, float]]:
    """`rates` for each value of a key, with the number of questions as `n`."""
    groups: dict[Any, list[Outcome]] = {}
    for row in answered:
        if row.outcome is not None:
            groups.setdefault(key(row), []).append(row.outcome)
    return {k: rates(v) | {"n": len(v)} for k, v in sorted(groups.items())}


def majority(
    samples: Sequence[str], outcomes: Sequence[Outcome | None], boxed: bool = False
) -> Outcome | None:
    """The outcome of the commonest answer among k samples (majority@k, Fig 2).

    Answers are compared normalised; all abstentions are one answer, and so are all
    samples without an answer; on a tie, the one drawn first.
    """
    answers = [normalise(final_answer(s, boxed)) for s in samples]
    votes = ["abstention" if abstains(a) else f"answer {a}" for a in answers]
    winner = Counter(votes).most_common(1)[0][0]
    return outcomes[votes.index(winner)]
