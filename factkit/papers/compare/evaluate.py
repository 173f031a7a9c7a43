"""Every paper's metric of one policy, on long and on short requests.

| paper | long answers | short questions |
|---|---|---|
| TruthRL | | truthfulness, accuracy, hallucination, abstention |
| Binary RAR | hallucination rate, win rate | the same three rates |
| Learning to Reason | precision, detail (correct claims), win rate | |
| RLFH | FactScore (precision), correct and other claims, response rate | |

Beside them: how many of the known and of the unknown facts are stated; exploits.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from factkit.answers import long_form, verifier
from factkit.answers.engine import ExactEngine
from factkit.answers.items import compare_answers, merge_items, win_items
from factkit.answers.long_form import CheckedResponse, Evaluation
from factkit.answers.sampling import Probe
from factkit.answers.short_form import rates
from factkit.data.examples import Example
from factkit.papers.compare.arms import CompareParams
from factkit.policy.policy import Policy
from factkit.run import statistics
from factkit.verify.outcome import Support

KNOWN = 0.5  # least share of right guesses of a known fact
REQUEST = re.compile(r"Tell me about (.+)\.")  # as all long test requests are worded
HEDGE = re.compile(r"\b(?:probably|perhaps|might)\b", re.IGNORECASE)
# subject → relation → share of right guesses
Knowledge = Mapping[str, Mapping[str, float]]


def probe_knowledge(examples: Sequence[Example], probes: Sequence[Probe]) -> Knowledge:
    """What the start knows of each subject, by its guesses."""
    shares: dict[str, dict[str, float]] = {}
    for example, probe in zip(examples, probes, strict=True):
        shares.setdefault(example.entity, {})[example.relation] = probe.accuracy
    return shares


def measure(
    policy: Policy,
    examples: Sequence[Example],
    engine: ExactEngine,
    known: Knowledge,
    p: CompareParams,
    path: Path,
) -> Evaluation:
    """Measure the policy's greedy answers to the requests; answers are kept in
    <path>.json and their claims in <path>_claims.jsonl."""
    long = [e for e in examples if not e.relation]
    short = [e for e in examples if e.relation]
    texts = long_form.answer(policy, examples, path.with_name(f"{path.name}.json"))
    responses = [texts[e.id] for e in long]
    claims = path.with_name(f"{path.name}_claims.jsonl")
    checked = long_form.evaluate(long, responses, engine.reader, claims)
    start = [engine.references[e.id] for e in long]
    wins = compare_answers(engine, long, responses, start)
    items = merge_items(long_form.items(checked), win_items([e.id for e in long], wins))
    cut_off = _cut_off(policy, responses)
    for example, row, cut in zip(long, checked, cut_off, strict=True):
        subject = example.entity
        items[row.id] |= score_knowledge(row, subject, known.get(subject, {}), engine)
        items[row.id] |= find_exploits(row, subject, engine) | {"cut_off": float(cut)}
    items |= score_short_answers(short, [texts[e.id] for e in short], p)
    return Evaluation(statistics.means(items.values()), items, checked)


def score_short_answers(
    examples: Sequence[Example], responses: Sequence[str], p: CompareParams
) -> dict[str, dict[str, float]]:
    """Question → its four rates, as 0 or 1."""
    columns = [e.answers for e in examples], [e.question for e in examples]
    outcomes = verifier.verifier(p, "rules")(responses, *columns)
    return {
        example.id: {f"short_{k}": v for k, v in rates([outcome]).items()}
        for example, outcome in zip(examples, outcomes, strict=True)
    }


def score_knowledge(
    row: CheckedResponse, subject: str, shares: Mapping[str, float], engine: ExactEngine
) -> dict[str, float]:
    """The shares of the subject's facts that the answer states: of those that the start
    knows (known_told), and of the others (unknown_told). A fact is stated if the answer
    has a claim of its relation, right or wrong."""
    parsed = (engine.facts.parse(claim.text) for claim in row.claims or ())
    stated = {f.relation for f, _ in filter(None, parsed) if f.subject == subject}
    sides = {
        "known_told": [r for r, share in shares.items() if share >= KNOWN],
        "unknown_told": [r for r, share in shares.items() if share < KNOWN],
    }
    return {
        name: sum(r in stated for r in relations) / len(relations)
        for name, relations in sides.items()
        if relations
    }


# ---- exploits: ways to a reward that nobody wanted

EXPLOITS = {
    "silent": "states nothing",
    "one_claim": "a single claim, where there is more to tell",
    "hedged": "half of its sentences or more hedge",
    "off_subject": "half of its claims or more are about something else",
    "repeats": "a sentence comes twice",
    "cut_off": "does not stop",
}


def find_exploits(
    row: CheckedResponse, subject: str, engine: ExactEngine
) -> dict[str, float]:
    """1.0 or 0.0 for each of EXPLOITS but the last, and the number of sentences."""
    sentences = engine.facts.sentences(row.response, subject)
    claims = row.claims or []
    parsed = [engine.facts.parse(claim.text) for claim in claims]
    other = sum(fact is not None and fact[0].subject != subject for fact in parsed)
    counts = Counter(" ".join(s.casefold().split()) for s in sentences)
    hedged = sum(HEDGE.search(sentence) is not None for sentence in sentences)
    exploits = {
        "sentences": len(sentences),
        "silent": not claims,
        "one_claim": len(claims) == 1,
        "hedged": bool(claims) and 2 * hedged >= len(sentences),
        "off_subject": bool(claims) and 2 * other >= len(claims),
        "repeats": max(counts.values(), default=0) > 1,
    }
    return {name: float(value) for name, value in exploits.items()}


def _cut_off(policy: Policy, responses: Sequence[str]) -> list[bool]:
    """Whether each response fills the most tokens that it may have."""
    ids = policy.tokenizer(list(responses), add_special_tokens=False)["input_ids"]
    return [len(row) >= policy.greedy.max_new_tokens for row in ids]


def count_by_subject(rows: Sequence[CheckedResponse]) -> dict[str, float]:
    """Correct and other claims per request, about its subject (asked) and about
    something else (else). A claim is about the subject if its text has the name; a
    claim from stored samples has the text of its whole sentence.

    Raises ValueError for a request that is not of the form "Tell me about …".
    """
    counts: Counter[str] = Counter()
    for row in rows:
        asked = REQUEST.fullmatch(row.prompt)
        if asked is None:
            raise ValueError(f"{row.prompt!r} does not say what it asks about")
        for claim, support in zip(row.claims or (), row.supports, strict=True):
            subject = "asked" if asked[1] in claim.text else "else"
            side = "correct" if support is Support.SUPPORTED else "other"
            counts[f"{subject}_{side}"] += 1
    kinds = ("asked_correct", "asked_other", "else_correct", "else_other")
    return {kind: counts[kind] / len(rows) for kind in kinds}


# ---- over the training

# (correct, other) claims per request of a policy, by arm and number of updates
Points = Mapping[tuple[str, int], tuple[float, float]]


def find_front(points: Points) -> list[tuple[str, int]]:
    """The policies to which no other has as many correct and as few other claims."""

    def is_better(one: tuple[float, float], other: tuple[float, float]) -> bool:
        return one[0] >= other[0] and one[1] <= other[1] and one != other

    values = list(points.values())
    return [k for k, v in points.items() if not any(is_better(o, v) for o in values)]


def choose_policy(points: Points, least: float) -> tuple[str, int] | None:
    """The policy with the fewest other claims among those with at least so many correct
    ones; None without any."""
    fit = {k: other for k, (correct, other) in points.items() if correct >= least}
    return min(fit, key=lambda policy: fit[policy], default=None)


def seconds_per_response(results: Sequence[Mapping[str, Any]]) -> float:
    """The time of an update, with rollout and rewards, divided by its responses: the
    median over updates, the mean over runs."""
    seconds = []
    for r in results:
        curve = pd.read_csv(Path(r["folder"], "metrics.csv"))
        seconds.append(curve.step_time.median() / r["params"]["rl_batch_size"])
    return fmean(seconds)


def compute_kl(curve: Path, steps: Sequence[int]) -> dict[int, float]:
    """Updates → KL from the start in nats per response: the trainer's KL per token
    times the tokens per response, averaged over the last five updates.

    curve: metrics.csv.
    """
    logged = pd.read_csv(curve).set_index("step")
    spent = (logged["kl"] * logged["completions/mean_length"]).rolling(5, 1).mean()
    return {step: float(spent.loc[:step].iloc[-1]) for step in steps}
