"""Hallucination against utility of a policy (Binary RAR §4.1), on one set of requests.

Hallucination in long answers, claim by claim, and in short ones where abstaining is
allowed; utility where it is not, in answers that must have a form, in what a judge of
quality prefers, and in how well the policy still predicts text.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from factkit import models
from factkit.assets import write_atomically
from factkit.datasets.examples import Example
from factkit.datasets.world_prompts import BEST_GUESS, COUNTED, MAY_ABSTAIN, OPEN
from factkit.evaluate import long_form, short_form
from factkit.rar import suites, utility
from factkit.verify import response
from factkit.verify.outcome import Outcome
from factkit.verify.response import CLOSE
from factkit.verify.verifier import verifier

if TYPE_CHECKING:
    from factkit.rar.arms import RarParams
    from factkit.rar.whole_response import Engine

# the metrics that are kept of each item, for intervals over items
COMPARED = (
    *("hallucination_rate", "claim_precision", "total_claims", "words", "win_rate"),
    *("correct_claims_per_question", "total_claims_per_question"),
    *("short_accuracy", "short_hallucination", "short_abstention"),
    *("short_truthfulness", "best_guess_accuracy", "format_following"),
)
# kind of a short question → metric → the outcome that it is the share of
SHORT = {
    MAY_ABSTAIN: {
        "short_accuracy": Outcome.CORRECT,
        "short_hallucination": Outcome.WRONG,
        "short_abstention": Outcome.ABSTAIN,
    },
    BEST_GUESS: {"best_guess_accuracy": Outcome.CORRECT},
}
# times that the policy read of a person whom utility asks for (fact world): as in the
# paper's suites, it is to be about what a policy can do, not about what it can't know
FAMILIAR = 10


@dataclass(frozen=True)
class Answers:
    """A policy's greedy answers, by the request's id; its perplexity on other text."""

    texts: Mapping[str, str]
    perplexity: float


@dataclass(frozen=True)
class Measured:
    """Metrics of a policy's answers, and what each request adds to those of COMPARED,
    absent where it does not count."""

    metrics: dict[str, float]
    items: dict[str, dict[str, float]]


def answer(
    policy: str,
    examples: Sequence[Example],
    held_out: Sequence[str],
    p: "RarParams",
    path: Path,
) -> Answers:
    """The greedy answers of the policy in the folder `policy`; kept in `path`.

    Under a judge also to `utility.FORM_PROMPTS`. held_out: texts, none of them
    trained on by an arm, for the perplexity.
    """
    if path.exists():
        return Answers(**json.loads(path.read_text(encoding="utf-8")))
    model, tokenizer = models.load_policy(policy, p.dtype)
    if p.verifier == "judge":
        examples = [
            *examples,
            *(
                Example(id=form.id, question=form.prompt, answers=[""], entity=form.id)
                for form in utility.FORM_PROMPTS
            ),
        ]
    prompts = models.asked(examples, p.prompt_template, tokenizer, p.chat)
    greedy = models.sampling_of(p)
    replies = models.sample(model, tokenizer, prompts, greedy, progress=path.stem)
    texts = {e.id: text for e, (text,) in zip(examples, replies, strict=True)}
    perplexity = utility.perplexity(model, tokenizer, held_out, p.eval_batch_size)
    answers = Answers(texts, perplexity)
    write_atomically(path, json.dumps(asdict(answers), ensure_ascii=False))
    return answers


def measure(
    examples: Sequence[Example],
    answers: Answers,
    base: Answers,
    engine: "Engine",
    p: "RarParams",
    path: Path,
) -> Measured:
    """Metrics of the answers without their reasoning, with their claims kept in `path`.

    Long answers: those of `long_form.scores`, and claim_precision, the share of all
    answers' claims that are correct. Short ones with leave to abstain:
    short_accuracy, short_abstention, short_hallucination, and short_truthfulness, the
    first less the last. Utility: best_guess_accuracy of short ones without;
    format_following; win_rate over `base` in the engine's judgement of quality (a tie
    is half a win), where it has one; perplexity. In the fact world form and preference
    are measured on people whom the policy read of `FAMILIAR` times or more.
    Raises ValueError above 5 % of failed extractions, verifications or outcomes.
    """
    by_kind = {
        kind: [e for e in examples if e.meta["kind"] == kind]
        for kind in (OPEN, MAY_ABSTAIN, BEST_GUESS, COUNTED)
    }
    long = by_kind[OPEN]
    texts = [answers.texts[e.id] for e in long]
    checked = long_form.evaluate(long, texts, *engine.reader, path, p.test_chunks)
    items = long_form.items(checked)
    for item in items.values():
        if "total_claims" in item:  # by which it is weighted
            item["claim_precision"] = item["factual_precision"]
    for i, win in wins([*filter(_familiar, long)], answers, base, engine).items():
        items.setdefault(i, {})["win_rate"] = win
    failures = long_form.failures(checked)
    for kind, names in SHORT.items():
        outcomes = _outcomes(by_kind[kind], answers, p)
        failures[f"{kind}_failures"] = short_form.judge_failures(outcomes)
        items |= {
            e.id: {name: float(outcome is wanted) for name, wanted in names.items()}
            for e, outcome in zip(by_kind[kind], outcomes, strict=True)
            if outcome is not None
        }
    for item in items.values():
        if "short_accuracy" in item:
            gain = item["short_accuracy"] - item["short_hallucination"]
            item["short_truthfulness"] = gain
    if p.verifier == "judge":
        forms = list(utility.FORM_PROMPTS)
    else:
        counted = filter(_familiar, by_kind[COUNTED])
        forms = [_counted(e, engine.facts.sentences) for e in counted]
    formed = utility.keeps_form(forms, _texts(forms, answers))
    for form, has in zip(forms, formed, strict=True):
        items[form.id] = {"format_following": float(has)}
    metrics = _means(items) | failures | {"perplexity": answers.perplexity}
    compared = {
        i: {name: item[name] for name in COMPARED if name in item}
        for i, item in items.items()
    }
    return Measured(metrics, compared)


def wins(
    examples: Sequence[Example], answers: Answers, base: Answers, engine: "Engine"
) -> dict[str, float]:
    """Id → 1 if the answer is of better quality than the base policy's, ½ if as good,
    else 0; without those that the judge failed on: all, if the engine has none."""
    ids, prompts = [e.id for e in examples], [e.question for e in examples]
    ours, theirs = (
        engine.quality(ids, prompts, _texts(examples, side)) for side in (answers, base)
    )
    return {
        i: (a > b) + 0.5 * (a == b)
        for i, a, b in zip(ids, ours, theirs, strict=True)
        if None not in (a, b)
    }


def _means(items: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The mean of each column over the items that have it; claim_precision weighted by
    total_claims."""
    columns: dict[str, list[tuple[float, float]]] = {}
    for item in items.values():
        for name, value in item.items():
            weight = item["total_claims"] if name == "claim_precision" else 1.0
            columns.setdefault(name, []).append((value, weight))
    return {
        name: sum(v * w for v, w in terms) / sum(w for _, w in terms)
        for name, terms in columns.items()
    }


def _familiar(example: Example) -> bool:
    return example.meta.get("exposure", FAMILIAR) >= FAMILIAR


def _counted(
    example: Example, sentences: Callable[[str, str], list[str]]
) -> utility.FormPrompt:
    """As many sentences as the request wants facts."""
    wanted, about = example.meta["wanted"], example.entity
    return utility.FormPrompt(
        example.id, example.question, lambda text: len(sentences(text, about)) == wanted
    )


def _texts(
    prompts: Iterable[Example | utility.FormPrompt], answers: Answers
) -> list[str]:
    """The answers to the prompts, without reasoning."""
    return response.answers(answers.texts[prompt.id] for prompt in prompts)


def _outcomes(
    examples: Sequence[Example], answers: Answers, p: "RarParams"
) -> list[Outcome | None]:
    """By the judge where there is one (App. B.2), else by rules."""
    verify = verifier(p, "judge" if p.verifier == "judge" else "rules")
    texts = [answers.texts[e.id] for e in examples]
    return verify(texts, [e.answers for e in examples], [e.question for e in examples])


# ---- When training stops


def benchmarks(policy: str, p: "RarParams", folder: Path) -> dict[str, float]:
    """Scores of the public benchmarks in `p.utility_benchmarks`, each in [0, 1], by
    lm-eval on the policy in its folder; its results are kept in `folder`."""
    names = [name for name in p.utility_benchmarks.split() if name in suites.SUITES]
    if not names:
        return {}
    scores = suites.run(
        policy,
        names,
        folder,
        backend="hf" if p.rollouts == "transformers" else "vllm",
        model_args={"think_end_token": CLOSE, "max_length": p.max_context_length},
        gen_kwargs={"max_gen_toks": p.max_completion_length},
        allow_code=p.allow_code,
    )
    return {name: scores[name] for name in names}


def stopped_at(
    before: Mapping[str, float],
    trajectory: Mapping[int, Mapping[str, float]],
    p: "RarParams",
) -> int:
    """The step to keep: the last one before one of `p.utility_benchmarks` had dropped
    by more than `p.utility_drop` of what it was before (App. C), the first if that was
    already too far. A stand-in that was not measured before stops nothing.

    trajectory: step → metrics, in the order of training.
    """
    wanted = {n: before[n] for n in p.utility_benchmarks.split() if n in before}
    kept = next(iter(trajectory))
    for step, metrics in trajectory.items():
        if utility.stops(wanted, {n: metrics[n] for n in wanted}, p.utility_drop):
            break
        kept = step
    return kept


def halves(before: Measured, trajectory: Mapping[int, Measured]) -> Measured:
    """Hallucination and win rate (Fig 5) of the base policy (dev_base_…), of the policy
    after half of the training (halfway_…) and at its end (end_…), on the dev requests.

    trajectory: step → what was measured, in the order of training; nothing of one step.
    """
    if len(trajectory) < 2:
        return Measured({}, {})
    first, *_, last = trajectory
    half = max(step for step in trajectory if step == first or 2 * step <= last)
    points = {"dev_base": before, "halfway": trajectory[half], "end": trajectory[last]}
    halves = Measured({}, {})
    for when, measured in points.items():
        for name in ("hallucination_rate", "win_rate"):
            if name in measured.metrics:
                halves.metrics[f"{when}_{name}"] = measured.metrics[name]
            for i, item in measured.items.items():
                if name in item:
                    halves.items.setdefault(i, {})[f"{when}_{name}"] = item[name]
    return halves


def by_exposure(rows: Sequence[long_form.Checked]) -> dict[int, dict[str, float]]:
    """`long_form.scores` by how often the policy read of the person (fact world): the
    lower edge of its bin → metrics, and the number of requests as `n`."""
    groups: dict[int, list[long_form.Checked]] = {}
    for row in rows:
        groups.setdefault(short_form.exposure_bin(row), []).append(row)
    return {
        edge: long_form.scores(group) | {"n": len(group)}
        for edge, group in sorted(groups.items())
    }
