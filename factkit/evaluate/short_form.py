"""Evaluation of short answers: truthfulness, accuracy, hallucination, abstention."""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit import models
from factkit.datasets.examples import Example, read_rows, write_rows
from factkit.evaluate import shown
from factkit.verify.outcome import Outcome, abstains, normalise
from factkit.verify.response import final_answer, split_box
from factkit.verify.verifier import failed_share
from factkit.vllm_engine import Sampled, VllmEngine

if TYPE_CHECKING:
    from factkit.curate.drawn import Probe
    from factkit.truthrl.arms import QuestionParams
    from factkit.verify.verifier import ReasoningJudge, Verifier

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

    Where the judge failed, the response is kept and judged again at the next call.
    """
    if path.exists():
        return _judged_again(read_answers(path), path, verify)
    asked = models.asked(examples, template, tokenizer, p.chat)
    greedy = models.sampling_of(p)
    if isinstance(model, VllmEngine):
        own = models.sample_tokens(model, tokenizer, asked, greedy, logprobs=0)
        rows = [row for (row,) in own]
        texts = models.texts_of([ids for ids, _ in rows], tokenizer, greedy)
        both = zip(texts, rows, strict=True)
        sure = [sampled_confidence(*pair, tokenizer, p) for pair in both]
    else:
        drawn = models.sample(model, tokenizer, asked, greedy, progress=path.stem)
        texts = [text for (text,) in drawn]
        sure = confidence(model, tokenizer, asked, texts, p)
    known = [(e.id, e.answers, e.question) for e in examples]
    ids, answers, questions = zip(*known, strict=True)
    quality: Sequence[float | None] = [None] * len(texts)
    if judge_reasoning:
        quality = judge_reasoning(texts, ids, answers, questions)
    columns = (texts, verify(texts, answers, questions), sure, quality)
    answered = [
        Answered(e.id, e.question, e.answers, e.relation, *values, shown(e.meta))
        for e, *values in zip(examples, *columns, strict=True)
    ]
    write_rows(path, map(asdict, answered))
    return answered


def _judged_again(
    answered: list[Answered], path: Path, verify: "Verifier"
) -> list[Answered]:
    failed = {i: a for i, a in enumerate(answered) if a.outcome is None}
    if not failed:
        return answered
    rows = [(a.response, a.answers, a.question) for a in failed.values()]
    outcomes = verify(*map(list, zip(*rows, strict=True)))
    for (i, one), outcome in zip(failed.items(), outcomes, strict=True):
        answered[i] = replace(one, outcome=outcome)
    write_rows(path, map(asdict, answered))
    return answered


def confidence(
    model, tokenizer, asked: Sequence[str], texts: Sequence[str], p: "QuestionParams"
) -> list[float]:
    r"""The geometric mean probability of each response's answer tokens (Fig 6), in
    [0, 1]: of all, or of the last `\boxed{}`'s content, given the prompt and what comes
    before. The token that ends a response is left out; an empty answer has 0."""
    space = "" if p.chat else " "
    heads, tails, join = list(asked), list(texts), space
    if p.answer_format != "plain":
        parts = [split_box(text) for text in texts]
        heads = [f"{a}{space}{head}" for a, (head, _) in zip(asked, parts, strict=True)]
        tails, join = [tail for _, tail in parts], ""
    own = [
        tokenizer(join + tail if tail else "", add_special_tokens=False)["input_ids"]
        for tail in tails
    ]
    ids = tokenizer(heads)["input_ids"]
    logps = models.token_logps(model, tokenizer, ids, own, p.eval_batch_size)
    return [float(row.mean().exp()) if len(row) else 0.0 for row in logps]


def sampled_confidence(
    text: str, sampled: Sampled, tokenizer, p: "QuestionParams"
) -> float:
    """`confidence` of a response by the log-probabilities of its T tokens as they were
    sampled: of those that have a character of the answer."""
    ids, logps = sampled
    whole, offsets = models.offsets_of(ids, tokenizer)
    head, tail = ("", text) if p.answer_format == "plain" else split_box(text)
    space = not head and not p.chat  # before a plain answer: `confidence` has it, too
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


def judge_failures(results: Sequence[Outcome | None]) -> float:
    """The share of responses without a verdict. Raises ValueError above 5 %."""
    return failed_share(results, "judge_failures")


def rates_by(
    answered: Sequence[Answered], key: Callable[[Answered], Any]
) -> dict[Any, dict[str, float]]:
    """`rates` for each value of a key, with the number of questions as `n`."""
    groups: dict[Any, list[Outcome]] = {}
    for row in answered:
        if row.outcome is not None:
            groups.setdefault(key(row), []).append(row.outcome)
    return {k: rates(v) | {"n": len(v)} for k, v in sorted(groups.items())}


def confidence_bin(answered: Answered) -> float:
    """The lower edge of an answer's confidence bin: 0, 0.2, 0.4, 0.6, 0.8 (Fig 6)."""
    return min(int(answered.confidence * 5), 4) / 5


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


def majority_curve(
    probes: Sequence["Probe"], boxed: bool = False, draws: int = 20, seed: int = 0
) -> dict[int, dict[str, float]]:
    """`rates` of majority@k for k = 1, 2, 4 … up to all stored samples of a question.

    For each k, the mean over `draws` random subsets of k of the same stored samples.
    """
    stored = len(probes[0].samples)
    curve = {}
    for k in (2**i for i in range(stored.bit_length())):
        rng = random.Random(f"majority {k} {seed}")
        drawn = []
        for _ in range(draws if k < stored else 1):
            chosen = sorted(rng.sample(range(stored), k))
            parts = [
                ([p.samples[i] for i in chosen], [p.outcomes[i] for i in chosen])
                for p in probes
            ]
            drawn.append(rates([majority(*part, boxed) for part in parts]))
        curve[k] = {name: sum(d[name] for d in drawn) / len(drawn) for name in RATES}
    return curve


def relation_rule(
    seen: Sequence[tuple[str, Outcome | None]], answered: Sequence[Answered]
) -> list[Outcome | None]:
    """Outcomes of an untrained rule: answer the relations that prompting mostly knows.

    seen: relation and outcome of prompting on other questions than those answered;
    answered: prompting's answers to the test questions. The rule gives them where more
    than half of the relation's answers seen (abstentions apart) were right, and else
    abstains. It knows templates and no facts: what a trained policy gains over it, it
    knows of questions (ours).
    """
    given = [(relation, o) for relation, o in seen if o and o is not Outcome.ABSTAIN]
    answers = Counter(relation for relation, _ in given)
    right = Counter(relation for relation, o in given if o is Outcome.CORRECT)
    return [
        a.outcome if 2 * right[a.relation] > answers[a.relation] else Outcome.ABSTAIN
        for a in answered
    ]


def within_relation_auc(
    before: Sequence[Answered], after: Sequence[Answered]
) -> tuple[float | None, int]:
    """Whether a policy abstains by the question and not by its relation, and n pairs.

    With a_i = 1 where `after` answers question i and 0 where it abstains, r_i = 1 where
    `before` (prompting) is right and so would be right if it answered, over the pairs
    P = {(i, j) of one relation: r_i = 1, r_j = 0}:

        AUC = Σ_P ([a_i > a_j] + ½ [a_i = a_j]) / |P|

    1/2: within a relation, answering says nothing of what is known. None without pairs.
    """
    rows = [
        (b.relation, b.outcome is Outcome.CORRECT, a.outcome is not Outcome.ABSTAIN)
        for b, a in zip(before, after, strict=True)
        if b.outcome and a.outcome
    ]
    terms = [
        (1 + a_i - a_j) / 2
        for relation, r_i, a_i in rows
        for other, r_j, a_j in rows
        if other == relation and r_i and not r_j
    ]
    return (sum(terms) / len(terms) if terms else None), len(terms)
