"""Hallucination against utility of a policy (Binary RAR §4.1), on one set of requests.

Hallucination in long answers, claim by claim, and in short ones where abstaining is
allowed; utility where it is not, in answers that must have a form, in what a judge of
quality prefers, and in how well the policy still predicts text. `benchmarks` has the
public ones.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from factkit.answers import long_form
from factkit.answers.engine import ExactEngine
from factkit.answers.short_form import rates
from factkit.answers.verifier import verifier
from factkit.data.examples import BEST_GUESS, COUNTED, MAY_ABSTAIN, OPEN, Example
from factkit.papers.rar.arms import RarParams
from factkit.policy import models
from factkit.policy.vllm_engine import VllmEngine
from factkit.run import statistics
from factkit.run.files import write_atomically
from factkit.verify.judge import failed_share
from factkit.verify.outcome import Outcome, abstains
from factkit.verify.response import answers as final_answers

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from factkit.papers.rar.rewards import Engine

# the metrics that are kept of each item, for intervals over items
COMPARED = """
    hallucination_rate claim_precision total_claims words win_rate
    correct_claims_per_question total_claims_per_question short_accuracy
    short_hallucination short_abstention short_truthfulness best_guess_accuracy
    format_following
""".split()
# times that the policy read of a person whom utility asks for (fact world): it is to
# be about what a policy can do, not about what it can't know
FAMILIAR = 10

OPTION, LETTER = re.compile(r"\(([A-D])\)"), re.compile(r"\b([A-D])\b")


@dataclass(frozen=True)
class Answers:
    """A policy's greedy answers, by the request's id; its perplexity on other text."""

    texts: Mapping[str, str]
    perplexity: float

    def to(self, ids: Iterable[str]) -> list[str]:
        """The answers to requests, without reasoning."""
        return final_answers(self.texts[i] for i in ids)


@dataclass(frozen=True)
class Measured:
    """Metrics of answers, and what each request adds to those of COMPARED."""

    metrics: dict[str, float]
    items: dict[str, dict[str, float]]


def answer(
    policy: str,
    examples: Sequence[Example],
    held_out: Sequence[str],
    p: RarParams,
    path: Path,
) -> Answers:
    """The greedy answers of the policy in the folder `policy`; kept in `path`.
    held_out: texts for the perplexity, none of them trained on by an arm."""
    if path.exists():
        return Answers(**json.loads(path.read_text(encoding="utf-8")))
    model, tokenizer = models.policy(policy, p.for_evaluation)
    greedy, texts = models.sampling_of(p.for_evaluation), {}
    # kinds apart: a short answer would wait for the long ones of its batch
    for kind in dict.fromkeys(e.meta["kind"] for e in examples):
        alike = [e for e in examples if e.meta["kind"] == kind]
        prompts = models.asked(alike, p.prompt_template, tokenizer, p.chat)
        label = f"{path.stem}, {kind}"
        replies = models.sample(model, tokenizer, prompts, greedy, progress=label)
        texts |= {e.id: text for e, (text,) in zip(alike, replies, strict=True)}
    answers = Answers(texts, perplexity(model, tokenizer, held_out))
    write_atomically(path, json.dumps(asdict(answers), ensure_ascii=False))
    return answers


def perplexity(
    model: "PreTrainedModel | VllmEngine",
    tokenizer: "PreTrainedTokenizerBase",
    texts: Sequence[str],
    batch_size: int = 8,
    max_tokens: int = 512,
) -> float:
    """exp of the mean negative log-likelihood a token, over all texts' tokens but the
    first of each. Each text is read alone, its first `max_tokens` tokens."""
    import torch

    ids = tokenizer(list(texts), truncation=True, max_length=max_tokens)["input_ids"]
    ids = sorted((row for row in ids if len(row) > 1), key=len)
    if isinstance(model, VllmEngine):
        logps = [logp for row in model.logps(ids) for logp in row]
        return math.exp(-sum(logps) / len(logps))
    total, tokens = 0.0, 0
    for start in range(0, len(ids), batch_size):
        batch = ids[start : start + batch_size]
        longest = len(batch[-1])
        # padded on the right: under causal attention no token sees the padding
        padded = torch.tensor([row + [row[-1]] * (longest - len(row)) for row in batch])
        lengths = torch.tensor([len(row) for row in batch])
        padded, lengths = padded.to(model.device), lengths.to(model.device)
        with torch.inference_mode():
            logits = model(input_ids=padded).logits[:, :-1].float()  # (B, T-1, V)
        logp = logits.log_softmax(-1).gather(-1, padded[:, 1:, None])[..., 0]
        counted = torch.arange(1, longest, device=model.device) < lengths[:, None]
        total -= logp[counted].double().sum().item()
        tokens += int(counted.sum())
    return math.exp(total / tokens)


def measure(
    examples: Sequence[Example],
    answers: Answers,
    base: Answers,
    engine: "Engine",
    p: RarParams,
    path: Path,
) -> Measured:
    """Metrics of the answers without their reasoning, with their claims kept in `path`.

    Long answers: those of `long_form.scores`, and claim_precision, the share of all
    answers' claims that are correct. Short ones with leave to abstain: short_accuracy,
    short_abstention, short_hallucination; short_truthfulness, the first less the last.
    Utility: best_guess_accuracy of short ones without; format_following; win_rate over
    `base` in the engine's judgement of quality, where it has one; perplexity. In the
    fact world form and win rate are of people that the policy read of `FAMILIAR` times.
    What a request of p.test_sets adds stands under its set's name, as
    biography_hallucination_rate; a win rate is of none of them.
    Raises ValueError above 5 % of failed extractions, verifications or outcomes.
    """
    kinds = OPEN, MAY_ABSTAIN, BEST_GUESS, COUNTED
    by_kind = {k: [e for e in examples if e.meta["kind"] == k] for k in kinds}
    sets = {e.id: f"{e.meta['set']}_" for e in examples if "set" in e.meta}
    told_of, counted = (
        [e for e in by_kind[k] if e.meta.get("exposure", FAMILIAR) >= FAMILIAR]
        for k in (OPEN, COUNTED)
    )
    long = by_kind[OPEN]
    texts = [answers.texts[e.id] for e in long]
    checked = long_form.evaluate(long, texts, *engine.reader, path, p.test_chunks)
    items, failures = long_form.items(checked), long_form.failures(checked)
    for item in items.values():
        if "total_claims" in item:  # by which it is weighted
            item["claim_precision"] = item["factual_precision"]
    told_of = [e for e in told_of if e.id not in sets]
    for i, win in wins(told_of, answers, base, engine).items():
        items.setdefault(i, {})["win_rate"] = win
    for e in by_kind[MAY_ABSTAIN]:
        if e.id in sets:
            (text,) = answers.to([e.id])
            items[e.id] = _short(MAY_ABSTAIN, option_outcome(text, e.answers[0]))
    verify = verifier(p)  # App. B.2
    for kind in (MAY_ABSTAIN, BEST_GUESS):
        short = [e for e in by_kind[kind] if e.id not in sets]
        texts = answers.to(e.id for e in short)
        columns = [e.answers for e in short], [e.question for e in short]
        outcomes = verify(texts, *columns)
        failures[f"{kind}_failures"] = failed_share(outcomes, f"{kind}_failures")
        for example, outcome in zip(short, outcomes, strict=True):
            if outcome is not None:
                items[example.id] = _short(kind, outcome)
    for e in counted if isinstance(engine, ExactEngine) else ():
        # as many sentences as facts are wanted; an empty answer has none
        (text,) = answers.to([e.id])
        kept = text and len(engine.facts.sentences(text, e.entity)) == e.meta["wanted"]
        items[e.id] = {"format_following": float(bool(kept))}
    metrics = statistics.means(_under_sets(items, sets).values())
    answered = [
        item for i, item in items.items() if "claim_precision" in item and i not in sets
    ]
    if answered:
        correct = sum(r["claim_precision"] * r["total_claims"] for r in answered)
        total = sum(r["total_claims"] for r in answered)
        metrics["claim_precision"] = correct / total
    compared = {
        i: {name: item[name] for name in COMPARED if name in item}
        for i, item in items.items()
    }
    metrics |= failures | {"perplexity": answers.perplexity}
    return Measured(metrics, _under_sets(compared, sets))


def _under_sets(
    items: Mapping[str, Mapping[str, float]], sets: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    """The items, of those in a set each metric under its prefix."""
    return {
        i: {sets.get(i, "") + name: value for name, value in item.items()}
        for i, item in items.items()
    }


def option_outcome(response: str, letter: str) -> Outcome:
    """The outcome of an answer to a question with options: of the first letter in
    brackets, or else the first that stands alone (App. B.1 takes any that is right)."""
    told = OPTION.search(response) or LETTER.search(response)
    if told is None and abstains(response):
        return Outcome.ABSTAIN
    return Outcome.CORRECT if told and told[1] == letter else Outcome.WRONG


def wins(
    examples: Sequence[Example], answers: Answers, base: Answers, engine: "Engine"
) -> dict[str, float]:
    """Id → 1 if the answer is of better quality than the base policy's, ½ if as good,
    else 0; without those that the judge failed on, if they are not over 5 %."""
    ids, prompts = [e.id for e in examples], [e.question for e in examples]
    ours, theirs = (engine.quality(ids, prompts, a.to(ids)) for a in (answers, base))
    won = [
        None if None in (a, b) else (a > b) + 0.5 * (a == b)
        for a, b in zip(ours, theirs, strict=True)
    ]
    failed_share(won, "comparison_failures")
    return {i: win for i, win in zip(ids, won, strict=True) if win is not None}


def _short(kind: str, outcome: Outcome) -> dict[str, float]:
    """What the outcome of a short question adds to the metrics."""
    own = rates([outcome])
    if kind == BEST_GUESS:
        return {"best_guess_accuracy": own["accuracy"]}
    return {f"short_{name}": value for name, value in own.items()}
