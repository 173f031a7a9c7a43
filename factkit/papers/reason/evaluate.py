"""Precision, detail and relevance of a policy that reasons (Learning to Reason §4.1),
and the strategies of its reasoning (§5.2, Fig 4, App. H).

Claims are those of the answer; reasoning is not held against evidence.
"""

import functools
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import field_validator

from factkit.answers import long_form
from factkit.answers.engine import ExactEngine
from factkit.answers.items import Items, compare_answers, merge_items, win_items
from factkit.answers.long_form import CheckedResponse
from factkit.answers.verifier import facts_of, judge_llm, judge_of
from factkit.data.examples import Example
from factkit.facts.source import FactReader
from factkit.papers.reason.arms import ReasonParams
from factkit.run.statistics import means
from factkit.verify import judge
from factkit.verify.failures import check_failures
from factkit.verify.llm import LLM
from factkit.verify.outcome import Support
from factkit.verify.replies import Form, limit_integer, limit_items, limit_text
from factkit.verify.response import ResponseParts, split_response, split_sentences

if TYPE_CHECKING:
    from factkit.papers.reason.rewards import Engine

# (examples, ours, theirs) → 1.0 ours is preferred, 0.5 a tie, 0.0 theirs; None: failed
Comparison = Callable[..., Sequence[float | None]]
# (examples, responses) → the strategies of each response; None: the annotator failed
Tagger = Callable[..., Sequence[Collection[str] | None]]
DETAIL = "correct_claims_per_question"
# metrics stored for each request: of published/claims.csv and of the ledger
COMPARED = [
    "factual_precision",
    "precision_at_1",
    "win_rate",
    "malformed",
    DETAIL,
    "incorrect_claims_per_question",
    "reasoning_words",
    "answer_words",
]


def comparison(p: ReasonParams, engine: "Engine") -> Comparison:
    """Who decides win rates: a judge that sees both orders (§4.1, as AlpacaEval), or,
    without a judge, the engine's `quality`."""
    if isinstance(engine, ExactEngine):
        return functools.partial(compare_answers, engine)
    llm = judge_llm(p, p.judge_model, p.judge_url)
    return lambda examples, ours, theirs: judge.compare_responses(
        llm, [e.question for e in examples], ours, theirs
    )


def measure(
    checked: Sequence[CheckedResponse], wins: Sequence[float | None]
) -> tuple[dict[str, float], Items]:
    """Metrics of the responses to the evaluation sets, and the items of their means.

    wins: one per response, from a `Comparison` with the base policy's. The metrics are
    those of `long_form.scores` (factual_precision F / T, correct_claims_per_question F,
    0 of a refusal …), win_rate, malformed, and of well-formed responses the words of
    reasoning and answer (Fig 2): for every set, as `<set>_factual_precision` …, and
    their mean over the sets, whatever their sizes (the averages of Tables 1 and 2).
    Raises ValueError above 5 % of failed extractions, verifications or comparisons;
    their shares are in `…_failures`.
    """
    failed = check_failures(wins, "comparison_failures")
    failures = long_form.failures(checked) | {"comparison_failures": failed}
    merged = merge_items(
        long_form.items(checked),
        win_items([row.id for row in checked], wins),
        {row.id: form_metrics(row.response) for row in checked},
    )
    by_set: dict[str, Items] = {}
    for row in checked:
        by_set.setdefault(row.meta["set"], {})[row.id] = merged[row.id]
    metrics, items = over_sets(by_set)
    set_metrics = {
        f"{name}_{metric}": value
        for name, rows in by_set.items()
        for metric, value in means(rows.values()).items()
    }
    return metrics | failures | set_metrics, items


def set_items(rows: Sequence[CheckedResponse]) -> Items:
    """`long_form.items` as shares in the mean over sets (`over_sets`)."""
    items, by_set = long_form.items(rows), dict[str, Items]()
    for row in rows:
        by_set.setdefault(row.meta["set"], {})[row.id] = items.get(row.id, {})
    return over_sets(by_set)[1]


def form_metrics(response: str) -> dict[str, float]:
    """Whether a response is malformed; if not, the words of its two parts, and whether
    the answer copies the reasoning."""
    split = split_response(response)
    if not split:
        return {"malformed": 1.0}
    return {
        "malformed": 0.0,
        "reasoning_words": float(len(split.reasoning.split())),
        "answer_words": float(len(split.answer.split())),
        "copied": float(split.reasoning == split.answer),
    }


def over_sets(by_set: Mapping[str, Items]) -> tuple[dict[str, float], Items]:
    """Metric → the mean M over sets of each set's mean, and each item's share in it.

    The share of an item's value x is M + w (x − M) with w = N / (K n): N items count in
    the metric, n of them in the item's set, one of K sets. The mean of the shares is M;
    with sets of one size a share is the value itself.
    """
    set_means = {name: means(rows.values()) for name, rows in by_set.items()}
    metrics: dict[str, float] = {}
    shares: Items = {i: {} for rows in by_set.values() for i in rows}
    for metric in dict.fromkeys(name for row in set_means.values() for name in row):
        sets = [name for name in by_set if metric in set_means[name]]
        columns = [
            {i: row[metric] for i, row in by_set[name].items() if metric in row}
            for name in sets
        ]
        mean = sum(set_means[name][metric] for name in sets) / len(sets)
        total = sum(map(len, columns))
        metrics[metric] = mean
        for column in columns:
            weight = total / (len(sets) * len(column))
            for i, x in column.items():
                shares[i][metric] = mean + weight * (x - mean)
    return metrics, shares


# ---- metrics of one run that the paper's claims are on


def growth(words: Sequence[float], name: str) -> dict[str, float]:
    """The means of a length over the first, the middle and the last tenth of the
    updates, and how much it grows early and late (Fig 2); empty without values."""
    if not words:
        return {}
    n = max(1, len(words) // 10)
    starts = (0, (len(words) - n) // 2, len(words) - n)
    first, middle, last = (sum(words[i : i + n]) / n for i in starts)
    means_of = {f"first_{name}": first, f"middle_{name}": middle, f"last_{name}": last}
    means_of[f"early_growth_{name}"] = middle - first
    means_of[f"late_growth_{name}"] = last - middle
    return means_of


def gains_by_set(
    before: Mapping[str, float], after: Mapping[str, float], sets: Sequence[str]
) -> dict[str, float]:
    """The least gain over the base policy of an evaluation set in precision and detail,
    the least win rate, and the share of sets that keep their detail (Table 1).

    before, after: from `measure`. Raises ValueError if no set has a win rate.
    """
    gains = {
        metric: [
            after[f"{name}_{metric}"] - before[f"{name}_{metric}"]
            for name in sets
            if f"{name}_{metric}" in after and f"{name}_{metric}" in before
        ]
        for metric in ("factual_precision", DETAIL)
    }
    least = {f"least_gain_{k}": min(values) for k, values in gains.items() if values}
    wins = [after[f"{name}_win_rate"] for name in sets if f"{name}_win_rate" in after]
    keeps = [gain >= 0 for gain in gains[DETAIL]]
    share = sum(keeps) / len(keeps)
    return least | {"least_win_rate": min(wins), "sets_with_detail_kept": share}


def reasoning_precision(
    engine: "Engine", examples: Sequence[Example], responses: Mapping[str, str]
) -> dict[str, float]:
    """`reasoning_precision`: the supported share of the claims in the reasoning, a mean
    over the well-formed responses (request id → text) that state any.

    Empty if none does, or if a judge verifies: evaluation asks it about answers alone.
    """
    if not isinstance(engine, ExactEngine):
        return {}
    shares = []
    for example in examples:
        if split := split_response(responses[example.id]):
            supports = engine.supports(example.id, example.question, split.reasoning)
            if supports:
                shares.append(supports.count(Support.SUPPORTED) / len(supports))
    return {"reasoning_precision": sum(shares) / len(shares)} if shares else {}


# ---- Strategies of reasoning, by an annotator (a language model) or by rules. Both use
# the same names, but count differently: a model reads what the reasoning does, a rule
# how it is worded. Compare arms by one of them.


def strategy_tagger(p: ReasonParams) -> Tagger:
    """The annotator, where there is a judge; else rules on what the sentences state."""
    if llm := judge_of(p):
        return functools.partial(annotate, llm)
    facts = facts_of(p)
    return lambda examples, responses: [
        tag(split.reasoning, split.answer, fact_key(facts, e.entity))
        for e, split in zip(examples, responses, strict=True)
    ]


def strategies_used(
    examples: Sequence[Example], responses: Mapping[str, str], tagger: Tagger
) -> dict[str, float]:
    """The share of well-formed responses (request id → text) with each strategy of
    reasoning, the most frequent first (Fig 4)."""
    all_parts = [(e, split_response(responses[e.id])) for e in examples]
    formed = [(e, split) for e, split in all_parts if split]
    return tag_shares(tagger([e for e, _ in formed], [split for _, split in formed]))


def tag_shares(tags: Sequence[Collection[str] | None]) -> dict[str, float]:
    """The share of responses with each tag, the most frequent first, equals by name;
    without those on which the annotator failed (None)."""
    known = [set(names) for names in tags if names is not None]
    counted = Counter(name for names in known for name in names)
    ordered = sorted(counted, key=lambda name: (-counted[name], name))
    return {name: counted[name] / len(known) for name in ordered}


class Step(Form):
    """What a reasoning did, and by which strategies."""

    step: Annotated[str, limit_text(160)]
    strategies: Annotated[list[Annotated[str, limit_text(32)]], limit_items(3)]

    @field_validator("strategies")
    @classmethod
    def _normalise(cls, names: list[str]) -> list[str]:
        """In lower case, words joined by "_"."""
        plain = ["_".join(re.findall(r"[^\W_]+", name.lower())) for name in names]
        if not all(plain):
            raise ValueError("a strategy has no name")
        return plain


class Steps(Form):
    """The form of an annotator's reply. helpfulness: the paper's annotator gave 9
    nearly always (App. H)."""

    steps: Annotated[list[Step], limit_items(12)]
    helpfulness: Annotated[int, limit_integer(range(11))]


def annotate(
    llm: LLM, examples: Sequence[Example], responses: Sequence[ResponseParts]
) -> list[list[str] | None]:
    """The strategies of each reasoning by an annotator, each once, in the order of
    first use; None where it failed. One request per response, all in one batch.

    The paper shows Llama-3.1-70B-Instruct question and response (Fig 10). Nothing is
    cut.
    """
    fields = [
        {"question": e.question, "reasoning": split.reasoning, "answer": split.answer}
        for e, split in zip(examples, responses, strict=True)
    ]
    replies = judge.ask_all(
        llm, "annotate_strategies", fields, Steps, 2048, "annotating"
    )
    return [
        None
        if reply is None
        else list(dict.fromkeys(name for s in reply.steps for name in s.strategies))
        for reply in replies
    ]


# Rules, for texts with straight apostrophes. Where no judge is asked, policies reason
# in rows of plain statements, which hardly show another strategy than doubt.

WILL = (
    r"\b(?:let me|let's|i'll|i will|i should|i need to)(?: (?!not\b|never\b)\w+){0,3}?"
)
RULES = {
    "recall": rf"{WILL} (?:recall|remember)\b|\bi (?:recall|remember)\b",
    "self_verification": rf"{WILL} (?:check|verify|confirm|make sure)\b"
    r"|\bdouble[- ]?check|\bis (?:that|this|it) (?:right|correct)\?",
    "doubt": r"\b(?:perhaps|maybe|probably|possibly|presumably)\b"
    r"|\b(?:might|unsure|uncertain)\b"
    r"|\b(?:not|isn't) (?:\w+ ){0,2}?(?:sure|certain)\b"
    r"|\bi (?:think|believe|guess)\b"
    r"|\bi (?:can't|cannot|don't|do not) (?:recall|remember|know)\b",
    "backtracking": r"\bbut wait,|\bon second thoughts?\b"
    rf"|{WILL} (?:reconsider|rethink)\b",
    "leaving_out": r"\b(?:leave|leaving) (?:\w+ ){0,3}?out\b"
    r"|\bi (?:won't|will not|shouldn't) (?:mention|include|name|state)\b",
}
HEDGES = frozenset("perhaps maybe probably possibly presumably".split())


def words(sentence: str) -> Hashable:
    """A sentence as its words in order, without hedges, letter case and punctuation."""
    plain = re.findall(r"\w+", sentence.lower())
    return tuple(word for word in plain if word not in HEDGES)


def fact_key(reader: FactReader, subject: str) -> Callable[[str], Hashable]:
    """The key of `tag` where the facts are known: the facts that a sentence states of
    the subject, in any wording, hedged or not; its words if it states none."""

    def key(sentence: str) -> Hashable:
        parsed = map(reader.parse, reader.statements(sentence, subject))
        return tuple(fact for fact, _ in filter(None, parsed)) or words(sentence)

    return key


def tag(
    reasoning: str, answer: str, key: Callable[[str], Hashable] = words
) -> list[str]:
    """The strategies in whose RULES the reasoning is worded, then those that the
    sentences of both parts show, each once.

    left_out: the answer lacks a sentence of the reasoning; added: the reasoning lacks a
    sentence of the answer; repeated: one of the two has a sentence twice. key: what
    makes two sentences equal.

    Not found are strategies without their usual words (a silent correction), languages
    other than English, and equal sense in other words unless `key` knows it: free prose
    is nearly always left_out and added. "Let me check" counts whether or not a check
    follows.
    """
    plain, flags = reasoning.replace("’", "'"), re.IGNORECASE
    worded = [name for name, rule in RULES.items() if re.search(rule, plain, flags)]
    first, second = (
        [key(s) for s in split_sentences(text)] for text in (reasoning, answer)
    )
    structure = {
        "left_out": not set(first) <= set(second),
        "added": not set(second) <= set(first),
        "repeated": any(len(set(keys)) < len(keys) for keys in (first, second)),
    }
    return worded + [name for name, shown in structure.items() if shown]
