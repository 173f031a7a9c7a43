"""Evaluation of short answers: truthfulness, accuracy, hallucination, abstention."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit.answers import stored_meta
from factkit.answers.items import Items
from factkit.answers.stage import Stage
from factkit.data.examples import Example, read_rows
from factkit.data.spelling import plain
from factkit.policy.models import decode_with_offsets
from factkit.policy.policy import Policy
from factkit.policy.vllm_engine import Sampled
from factkit.verify.failures import check_failures
from factkit.verify.outcome import Outcome, abstains
from factkit.verify.response import extract_answer, split_box, split_confidence

if TYPE_CHECKING:
    from factkit.answers.verifier import ReasoningJudge, Verifier

RATES = ("truthfulness", "accuracy", "hallucination", "abstention")


@dataclass(frozen=True)
class ScoredAnswer:
    """A question with the policy's greedy response; outcome None: the judge failed.

    confidence: in [0, 1], as the function `confidence` defines it. reasoning: quality
    in [0, 1], None where it isn't judged. meta: the example's (exposure …).
    """

    id: str
    question: str
    answers: list[str]
    relation: str
    response: str
    outcome: Outcome | None
    confidence: float | None = 0.0
    reasoning: float | None = None
    meta: dict[str, Any] = field(default_factory=dict)


def answer(
    policy: Policy,
    examples: Sequence[Example],
    path: Path,
    verify: "Verifier",
    judge_reasoning: "ReasoningJudge | None" = None,
    template: str = "",
) -> list[ScoredAnswer]:
    """The policy's greedy responses (Appendix C), verified; kept in `path`.

    Responses that a judge failed on are judged again by the next call. Raises
    ValueError where a judge failed on more than 5 %.
    """

    def compute(start: int, stop: int) -> list[ScoredAnswer]:
        greedy = replace(policy.greedy, logprobs=True)
        prompts = policy.format_prompts(examples, template)
        samples = policy.generate_tokens(prompts, greedy, progress=path.stem)
        completions = [completion for (completion,) in samples]
        texts = policy.decode([ids for ids, _ in completions], greedy)
        return [
            ScoredAnswer(
                id=e.id,
                question=e.question,
                answers=e.answers,
                relation=e.relation,
                response=text,
                outcome=None,
                confidence=confidence(text, completion, policy),
                meta=stored_meta(e),
            )
            for e, text, completion in zip(examples, texts, completions, strict=True)
        ]

    def score(rows: list[ScoredAnswer]) -> list[ScoredAnswer]:
        texts, answers = [r.response for r in rows], [r.answers for r in rows]
        questions, quality = [r.question for r in rows], [r.reasoning for r in rows]
        outcomes = verify(texts, answers, questions)
        if judge_reasoning:
            ids = [r.id for r in rows]
            quality = judge_reasoning(texts, ids, answers, questions)
        return [
            replace(row, outcome=outcome, reasoning=reasoning)
            for row, outcome, reasoning in zip(rows, outcomes, quality, strict=True)
        ]

    def is_scored(row: ScoredAnswer) -> bool:
        reasons = row.reasoning is not None or not judge_reasoning
        return row.outcome is not None and reasons

    stage = Stage(path, ScoredAnswer, score, is_scored)
    rows = stage.run(len(examples), len(examples), compute)
    check_failures([r.outcome for r in rows], f"judge failures of {path.stem}")
    if judge_reasoning:
        name = f"judge failures of the reasoning of {path.stem}"
        check_failures([r.reasoning for r in rows], name)
    return rows


def confidence(text: str, completion: Sampled, policy: Policy) -> float | None:
    r"""The confidence of a response, in [0, 1].

    Of a policy that states its confidence, the stated one; None if it is missing. Else
    the geometric mean probability of the response's answer tokens (Fig 6).

    The answer is the whole response, or, of a response that reasons, the content of
    its last `\boxed{}`. Its tokens are those sampled that have a character of it; the
    token that ends a response has none. 0 for an empty answer.
    """
    if policy.states_confidence:
        return split_confidence(text)[1]
    ids, logps = completion
    whole, offsets = decode_with_offsets(ids, policy.tokenizer)
    head, tail = ("", text) if policy.greedy.one_line else split_box(text)
    space = not head and not policy.chat  # the space before a plain answer counts
    start = whole.find(text) + len(head)
    end = start + len(tail)
    spans = zip(logps, offsets, strict=True)
    answer_logps = [logp for logp, (a, b) in spans if a < end and b > start - space]
    if not (tail and answer_logps):
        return 0.0
    return math.exp(sum(answer_logps) / len(answer_logps))


def read_answers(path: Path) -> list[ScoredAnswer]:
    """Read the answers that `answer` wrote."""
    return read_rows(path, ScoredAnswer)


def rates(results: Sequence[Outcome | None]) -> dict[str, float]:
    """Truthfulness, accuracy, hallucination and abstention of the outcomes judged.

    T = w1·Acc + w2·Unc − w3·Hall with w = (1, 0, 1) (TruthRL §2.1, §4.1), in [−1, 1].
    A None (the judge failed) is left out. Raises ValueError without outcomes.
    """
    judged = [r for r in results if r is not None]
    if not judged:
        raise ValueError("no outcomes to score")
    accuracy = judged.count(Outcome.CORRECT) / len(judged)
    hallucination = judged.count(Outcome.WRONG) / len(judged)
    return {
        "truthfulness": accuracy - hallucination,
        "accuracy": accuracy,
        "hallucination": hallucination,
        "abstention": judged.count(Outcome.ABSTAIN) / len(judged),
    }


def rates_by(
    answers: Sequence[ScoredAnswer], key: Callable[[ScoredAnswer], Any]
) -> dict[Any, dict[str, float]]:
    """`rates` for each value of a key, with the number of questions as `n`."""
    groups: dict[Any, list[Outcome]] = {}
    for row in answers:
        if row.outcome is not None:
            groups.setdefault(key(row), []).append(row.outcome)
    return {k: rates(v) | {"n": len(v)} for k, v in sorted(groups.items())}


def precision_items(ids: Sequence[str], outcomes: Sequence[Outcome | None]) -> Items:
    """Question id → its precision: 1 for a correct answer, 0 for a wrong one; none
    where the policy abstained or the judge failed."""
    given = (Outcome.CORRECT, Outcome.WRONG)
    return {
        i: {"precision": float(outcome is Outcome.CORRECT)} if outcome in given else {}
        for i, outcome in zip(ids, outcomes, strict=True)
    }


def majority(
    samples: Sequence[str], outcomes: Sequence[Outcome | None], boxed: bool = False
) -> Outcome | None:
    """The outcome of the commonest answer among k samples (majority@k, Fig 2).

    Answers are compared normalised, without a confidence that is stated at their end.
    All abstentions are one answer, and so are all samples without an answer; on a tie
    the first one wins.
    """
    texts = [split_confidence(s)[0] for s in samples]
    answers = [plain(extract_answer(text, boxed)).casefold() for text in texts]
    votes = ["abstention" if abstains(a) else f"answer {a}" for a in answers]
    winner = Counter(votes).most_common(1)[0][0]
    return outcomes[votes.index(winner)]
