"""Evaluation of short answers: truthfulness, accuracy, hallucination, abstention."""

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from factkit import models, prompts
from factkit.assets import write_atomically
from factkit.datasets.examples import Example
from factkit.verify.outcome import Outcome, outcome


@dataclass(frozen=True)
class Answered:
    """A question with the policy's response and its outcome."""

    id: str
    question: str
    answers: list[str]
    relation: str
    response: str
    outcome: Outcome


def answer(
    model,
    tokenizer,
    examples: Sequence[Example],
    template: str,
    sampling: models.Sampling,
    path: Path,
) -> list[Answered]:
    """The policy's responses to the examples, verified; kept in `path` (JSON lines)."""
    if not path.exists():
        text = prompts.template(template)
        asked = [prompts.fill(text, question=e.question) for e in examples]
        said = models.sample(model, tokenizer, asked, sampling, progress=path.stem)
        rows = [
            Answered(
                e.id,
                e.question,
                e.answers,
                e.relation,
                response,
                outcome(response, e.answers, e.question),
            )
            for e, (response,) in zip(examples, said, strict=True)
        ]
        lines = (json.dumps(asdict(r), ensure_ascii=False) + "\n" for r in rows)
        write_atomically(path, "".join(lines))
    return read_answers(path)


def read_answers(path: Path) -> list[Answered]:
    """The answers kept in a samples file."""
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [Answered(**row | {"outcome": Outcome(row["outcome"])}) for row in rows]


def rates(results: Sequence[Outcome]) -> dict[str, float]:
    """Truthfulness, accuracy, hallucination and abstention of n outcomes.

    T = w1·Acc + w2·Unc − w3·Hall with w = (1, 0, 1) (TruthRL §2.1, §4.1), in [−1, 1].
    Raises ValueError without outcomes.
    """
    if not results:
        raise ValueError("no outcomes to score")
    accuracy, abstention, hallucination = (
        results.count(kind) / len(results)
        for kind in (Outcome.CORRECT, Outcome.ABSTAIN, Outcome.WRONG)
    )
    return {
        "truthfulness": accuracy - hallucination,
        "accuracy": accuracy,
        "hallucination": hallucination,
        "abstention": abstention,
    }


def bootstrap(
    results: Sequence[Outcome], resamples: int, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """95 % percentile intervals of `rates` over resampled questions."""
    rng = random.Random(seed)
    draws = [rates(rng.choices(results, k=len(results))) for _ in range(resamples)]
    low, high = int(0.025 * resamples), int(0.975 * resamples) - 1
    return {
        name: (ordered[low], ordered[high])
        for name in draws[0]
        for ordered in [sorted(draw[name] for draw in draws)]
    }


def rates_by_relation(answered: Sequence[Answered]) -> dict[str, dict[str, float]]:
    """`rates` for each relation, with the number of questions as `n`."""
    groups: dict[str, list[Outcome]] = {}
    for row in answered:
        groups.setdefault(row.relation, []).append(row.outcome)
    return {k: rates(v) | {"n": len(v)} for k, v in sorted(groups.items())}
