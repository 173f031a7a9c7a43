"""Hallucination against utility of a policy (Binary RAR §4.1), on one set of requests.

| | of | metric |
|---|---|---|
| hallucination | long answers | hallucination_rate, claim by claim |
| | short answers with leave to abstain | short_hallucination |
| utility | short answers without | best_guess_accuracy |
| | answers of a wanted number of sentences | format_following |
| | preference to the base policy's answers | win_rate |
| | other text | perplexity |

`benchmarks` has the public ones.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit.answers import long_form
from factkit.answers.engine import ExactEngine
from factkit.answers.items import (
    Items,
    compare_answers,
    merge_items,
    select_metrics,
    win_items,
)
from factkit.answers.long_form import CheckedResponse, Evaluation
from factkit.answers.short_form import rates
from factkit.answers.stage import compute_once
from factkit.answers.verifier import Verifier, verifier
from factkit.data.evidence import EvidenceCache, query_of
from factkit.data.examples import BEST_GUESS, COUNTED, MAY_ABSTAIN, OPEN, Example
from factkit.facts.source import FactSource
from factkit.papers.rar import benchmarks
from factkit.papers.rar.arms import RarParams
from factkit.policy.policy import Policy, load_policy
from factkit.run import statistics
from factkit.verify.failures import check_failures
from factkit.verify.outcome import Outcome, abstains
from factkit.verify.response import extract_answers

if TYPE_CHECKING:
    from factkit.answers.sampling import ScoredSamples
    from factkit.papers.rar.rewards import Engine

# metrics stored for each request
COMPARED = """
    hallucination_rate factual_precision precision_at_1 claim_precision
    total_claims words win_rate
    correct_claims_per_question total_claims_per_question short_accuracy
    short_hallucination short_abstention short_truthfulness best_guess_accuracy
    format_following
""".split()
# fact world: how often the policy must have read of a person for utility to count a
# request about them; utility is about what a policy can do, not what it can know
FAMILIAR = 10

OPTION, LETTER = re.compile(r"\(([A-D])\)"), re.compile(r"\b([A-D])\b")


@dataclass(frozen=True)
class Answers:
    """A policy's greedy answers by request id, and its perplexity on other text."""

    texts: Mapping[str, str]
    perplexity: float


def answer(
    policy: Policy, examples: Sequence[Example], held_out: Sequence[str], path: Path
) -> Answers:
    """The policy's greedy answers; kept in `path`.

    held_out: texts for the perplexity, which no arm trains on.
    """

    def compute() -> dict[str, Any]:
        texts: dict[str, str] = {}
        # by kind: in one batch short answers would wait for long ones
        for kind in dict.fromkeys(e.meta["kind"] for e in examples):
            rows = [e for e in examples if e.meta["kind"] == kind]
            prompts, label = policy.format_prompts(rows), f"{path.stem}, {kind}"
            replies = policy.generate(prompts, policy.greedy, progress=label)
            texts |= {e.id: text for e, (text,) in zip(rows, replies, strict=True)}
        return asdict(Answers(texts, policy.perplexity(held_out)))

    return Answers(**compute_once(path, compute))


@dataclass(frozen=True)
class Evaluator:
    """Evaluates policies on requests, with the length of an answer in evaluation.

    held_out: texts for the perplexity.
    """

    p: RarParams
    engine: "Engine"
    held_out: Sequence[str]

    def evaluate(
        self, policy: str, examples: Sequence[Example], stem: Path, base_stem: Path
    ) -> Evaluation:
        """`measure` a policy's greedy answers; the metrics include those of the public
        benchmarks in `p.utility_benchmarks`.

        Answers and claims are kept in `<stem>.json` and `<stem>_claims.jsonl`.
        base_stem: of the base policy, whose answers are compared with; its own is stem.
        """
        loaded = load_policy(policy, self.p.for_evaluation)
        answers = answer(loaded, examples, self.held_out, Path(f"{stem}.json"))
        base = Answers(**json.loads(Path(f"{base_stem}.json").read_text("utf-8")))
        long = [e for e in examples if e.meta["kind"] == OPEN]
        texts = [answers.texts[e.id] for e in long]
        path = Path(f"{stem}_claims.jsonl")
        reader, k = self.engine.reader, self.p.test_chunks
        checked = long_form.evaluate(long, texts, reader, path, k)
        verify = verifier(self.p)  # of short answers: the judge (App. B.2), or rules
        evaluation = measure(examples, answers, base, self.engine, verify, checked)
        settings = benchmarks.model_settings(policy, self.p)
        folder = stem.parent / "benchmarks" / Path(policy).name
        names = self.p.benchmark_names
        evaluation.metrics.update(benchmarks.run(names, settings, folder))
        return evaluation


def measure(
    examples: Sequence[Example],
    answers: Answers,
    base: Answers,
    engine: "Engine",
    verify: Verifier,
    checked: Sequence[CheckedResponse],
) -> Evaluation:
    """Metrics of the answers, without their reasoning, and the items of COMPARED.

    verify: of short answers; checked: the claims of the answers to the open requests,
    from `long_form.evaluate`. The metrics are

    - those of `long_form.scores`, and claim_precision, the share of all answers' claims
      that are correct;
    - with leave to abstain short_accuracy, short_abstention, short_hallucination, and
      short_truthfulness, the first less the last; without leave best_guess_accuracy;
    - win_rate over `base` by the engine's judgement of quality, and format_following,
      without a judge: in the fact world of people read of `FAMILIAR` times;
    - those of public test sets under the set's name, as biography_hallucination_rate.

    Raises ValueError above 5 % of failed extractions, verifications, comparisons or
    outcomes.
    """
    texts = extract_answers(answers.texts.values())
    final = dict(zip(answers.texts, texts, strict=True))
    sets = {e.id: f"{e.meta['set']}_" for e in examples if "set" in e.meta}
    familiar = [e for e in examples if e.meta.get("exposure", FAMILIAR) >= FAMILIAR]
    compared = [e for e in familiar if e.meta["kind"] == OPEN and e.id not in sets]
    ours, theirs = ([a.texts[e.id] for e in compared] for a in (answers, base))
    wins = compare_answers(engine, compared, ours, theirs)
    check_failures(wins, "comparison_failures")
    claims = long_form.items(checked)
    for item in claims.values():
        if "total_claims" in item:  # the weight of claim_precision
            item["claim_precision"] = item["factual_precision"]
    short, failures = short_items(examples, final, verify)
    items = merge_items(
        claims,
        win_items([e.id for e in compared], wins),
        short,
        format_items(familiar, final, engine),
    )
    metrics = statistics.means(_add_prefixes(items, sets).values())
    answered = [x for i, x in claims.items() if "total_claims" in x and i not in sets]
    if answered:  # a ratio of sums
        correct = sum(x["claim_precision"] * x["total_claims"] for x in answered)
        metrics["claim_precision"] = correct / sum(x["total_claims"] for x in answered)
    metrics |= long_form.failures(checked) | failures
    metrics["perplexity"] = answers.perplexity
    compared_items = _add_prefixes(select_metrics(items, COMPARED), sets)
    return Evaluation(metrics, compared_items, checked)


def _add_prefixes(items: Items, prefixes: Mapping[str, str]) -> Items:
    return {
        i: {prefixes.get(i, "") + name: value for name, value in item.items()}
        for i, item in items.items()
    }


def short_items(
    examples: Sequence[Example], answers: Mapping[str, str], verify: Verifier
) -> tuple[Items, dict[str, float]]:
    """The items of short answers, and the shares that the verifier failed on. Questions
    of public sets have options, and need no verifier."""
    items: Items = {}
    failures = {}
    for kind in (MAY_ABSTAIN, BEST_GUESS):
        rows = [e for e in examples if e.meta["kind"] == kind]
        options = [e for e in rows if "set" in e.meta]
        letters = [option_outcome(answers[e.id], e.answers[0]) for e in options]
        rows = [e for e in rows if "set" not in e.meta]
        texts, references = [answers[e.id] for e in rows], [e.answers for e in rows]
        outcomes = verify(texts, references, [e.question for e in rows])
        failures[f"{kind}_failures"] = check_failures(outcomes, f"{kind}_failures")
        for e, outcome in zip(options + rows, letters + outcomes, strict=True):
            if outcome is not None:
                metrics = rates([outcome])
                items[e.id] = (
                    {"best_guess_accuracy": metrics["accuracy"]}
                    if kind == BEST_GUESS
                    else {f"short_{name}": value for name, value in metrics.items()}
                )
    return items, failures


def option_outcome(response: str, letter: str) -> Outcome:
    """The outcome of an answer to a question with options: of the first letter in
    brackets, or else the first that stands alone (App. B.1 takes any that is right)."""
    match = OPTION.search(response) or LETTER.search(response)
    if match is None and abstains(response):
        return Outcome.ABSTAIN
    return Outcome.CORRECT if match and match[1] == letter else Outcome.WRONG


def format_items(
    examples: Sequence[Example], answers: Mapping[str, str], engine: "Engine"
) -> Items:
    """Whether an answer has as many sentences as facts are wanted; none by a judge."""
    if not isinstance(engine, ExactEngine):
        return {}
    items = {}
    for e in examples:
        if e.meta["kind"] == COUNTED:
            n = len(engine.facts.sentences(answers[e.id], e.entity))
            items[e.id] = {"format_following": float(n == e.meta["wanted"])}
    return items


# ---- retrieval: whether the evidence of an error is found (A.3)


@dataclass(frozen=True)
class WrongResponse:
    """A response with errors. errors: the ids of the documents that contradict it, one
    set per error."""

    example: Example
    text: str
    errors: list[set[str]]


def find_errors(
    examples: Sequence[Example],
    samples: "Sequence[ScoredSamples]",
    engine: ExactEngine,
    source: FactSource,
) -> list[WrongResponse]:
    """The responses with an error, where all documents that contradict it are known."""
    wrong = []
    for example, sample in zip(examples, samples, strict=True):
        for text in extract_answers(sample.responses):
            claims = [claim.text for claim in engine.claims(example.id, text)]
            errors = list(filter(None, map(source.contradicting_documents, claims)))
            if errors:
                wrong.append(WrongResponse(example, text, errors))
    return wrong


def coverage(
    wrong: Sequence[WrongResponse], cache: EvidenceCache, most: int, with_prompt: bool
) -> list[float]:
    """The share of wrong responses with an error whose evidence is among the k chunks
    retrieved, for k = 1 … most.

    with_prompt: whether the prompt is searched for, too. All documents of one error are
    enough: one contradiction that the verifier sees makes the reward 0.
    """
    covered = [0] * most
    for response in wrong:
        example = response.example
        query = query_of(example.question, response.text, with_prompt)
        hits = cache.search(example.id, query, most)
        for k in range(1, most + 1):
            retrieved = {hit.chunk.doc_id for hit in hits[:k]}
            covered[k - 1] += any(ids <= retrieved for ids in response.errors)
    return [n / len(wrong) for n in covered]
