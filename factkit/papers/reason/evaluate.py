"""Precision, detail and relevance of a policy that reasons (Learning to Reason §4.1),
and which strategies its reasoning uses (§5.2, Fig 4, App. H).

Claims are those of the answer; reasoning is not held against evidence.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import field_validator

from factkit.answers import long_form
from factkit.answers.verifier import facts_of, judge_of
from factkit.data.examples import Example
from factkit.run.statistics import means
from factkit.verify import judge
from factkit.verify.judge import Form, failed_share, free, up_to, whole
from factkit.verify.response import answers, parts, sentences

if TYPE_CHECKING:
    from factkit.facts.source import FactReader
    from factkit.papers.reason.arms import ReasonParams
    from factkit.papers.reason.rewards import Engine
    from factkit.verify.llm import LLM

# (ids, prompts, ours, theirs) → 1.0 ours preferred, 0.5 a tie, 0.0 theirs; None: failed
Compare = Callable[
    [Sequence[str], Sequence[str], Sequence[str], Sequence[str]], list[float | None]
]
# request id → metric → its value, absent where the response does not count
Items = dict[str, dict[str, float]]
DETAIL = "correct_claims_per_question"
# metrics that published/claims.csv compares, stored for each request
CLAIMED = (
    *("factual_precision", "win_rate", "malformed", DETAIL),
    *("incorrect_claims_per_question", "reasoning_words", "answer_words"),
)


def compare(p: "ReasonParams", engine: "Engine") -> Compare:
    """Who decides win rates: a judge in both orders (§4.1: AlpacaEval's way), or, where
    there is none, the stand-in for relevance."""

    if llm := judge_of(p):
        return lambda ids, *texts: judge.compare(llm, *texts)

    def by_relevance(ids, prompts, ours, theirs) -> list[float | None]:
        sides = (engine.relevance(ids, prompts, answers(s)) for s in (ours, theirs))
        return [(a > b) + 0.5 * (a == b) for a, b in zip(*sides, strict=True)]

    return by_relevance


def measure(
    examples: Sequence[Example],
    responses: Mapping[str, str],
    base: Mapping[str, str],
    engine: "Engine",
    decide: Compare,
    p: "ReasonParams",
    path: Path,
) -> tuple[dict[str, float], Items]:
    """Metrics of the responses (request id → text), and the items that they are means
    of; the responses' claims go to `path`.

    Those of `long_form.scores` (factual_precision F/T, detail F, which counts 0 of a
    refusal, as correct_claims_per_question …), win_rate over the base policy's
    responses, malformed (the share not of the form), and of the others the words of
    reasoning and answer (Fig 2). Each for every evaluation set, as
    `<set>_factual_precision` …, and their mean over the sets, whatever their sizes: the
    averages of Tables 1 and 2. Raises ValueError above 5 % of failed extractions,
    verifications or comparisons; the shares are in `…_failures`.
    """
    ids, prompts = [e.id for e in examples], [e.question for e in examples]
    texts = [responses[i] for i in ids]
    checked = long_form.evaluate(examples, texts, *engine.reader, path, p.test_chunks)
    wins = decide(ids, prompts, texts, [base[i] for i in ids])
    failed = failed_share(wins, "comparison_failures")
    failures = long_form.failures(checked) | {"comparison_failures": failed}
    terms = long_form.items(checked)
    by_set: dict[str, Items] = {}
    for e, text, win in zip(examples, texts, wins, strict=True):
        won = {} if win is None else {"win_rate": win}
        item = terms.get(e.id, {}) | won | _form(text)
        by_set.setdefault(e.meta["set"], {})[e.id] = item
    metrics, items = over_sets(by_set)
    set_metrics = {
        f"{name}_{metric}": value
        for name, rows in by_set.items()
        for metric, value in means(rows.values()).items()
    }
    return metrics | failures | set_metrics, items


def _form(text: str) -> dict[str, float]:
    """Whether a response is malformed, and if not the words of its two parts."""
    split = parts(text)
    if not split:
        return {"malformed": 1.0}
    return {
        "malformed": 0.0,
        "reasoning_words": float(len(split.reasoning.split())),
        "answer_words": float(len(split.answer.split())),
    }


def over_sets(by_set: Mapping[str, Items]) -> tuple[dict[str, float], Items]:
    """Metric → the mean over sets of each set's mean M, and each item's share in it.

    An item's share of its value x is M + w (x − M), where w = N / (K n): N items count
    in the metric, n of them in the item's set, one of K sets. So the shares' mean is M,
    and with sets of one size a share is the value itself.
    """
    set_means = {name: means(rows.values()) for name, rows in by_set.items()}
    metrics: dict[str, float] = {}
    shares: Items = {i: {} for rows in by_set.values() for i in rows}
    for metric in dict.fromkeys(name for row in set_means.values() for name in row):
        counted = {
            name: {i: row[metric] for i, row in rows.items() if metric in row}
            for name, rows in by_set.items()
            if metric in set_means[name]
        }
        mean = sum(set_means[name][metric] for name in counted) / len(counted)
        total = sum(len(values) for values in counted.values())
        metrics[metric] = mean
        for values in counted.values():
            weight = total / (len(counted) * len(values))
            for i, x in values.items():
                shares[i][metric] = mean + weight * (x - mean)
    return metrics, shares


# ---- Strategies of reasoning, told by a language model, or by rules without any. The
# two name strategies alike where they mean the same, but count differently: a model
# reads what the reasoning does, a rule how it is worded. Compare arms by one of them.


def strategies_used(
    examples: Sequence[Example], responses: Mapping[str, str], p: "ReasonParams"
) -> dict[str, float]:
    """The share of well-formed responses with each strategy of reasoning (Fig 4), the
    most frequent first: by an annotator where there is a judge, else by rules on what
    its sentences state."""
    split = [(e, parts(responses[e.id])) for e in examples]
    formed = [(e, two.reasoning, two.answer) for e, two in split if two]
    if llm := judge_of(p):
        return shares(annotate(llm, [(e.question, *two) for e, *two in formed]))
    facts = facts_of(p)
    return shares([tag(*two, stated(facts, e.entity)) for e, *two in formed])


def shares(tags: Sequence[Collection[str] | None]) -> dict[str, float]:
    """The share of responses with each strategy, the most frequent first, equals by
    name.

    tags: of each response, from `tag` or `annotate`; None, where the annotator failed,
    is left out.
    """
    known = [set(names) for names in tags if names is not None]
    counted = Counter(name for names in known for name in names)
    ordered = sorted(counted, key=lambda name: (-counted[name], name))
    return {name: counted[name] / len(known) for name in ordered}


class Step(Form):
    """What a reasoning did, and by which strategies."""

    step: free(160)
    strategies: up_to(3, free(32))

    @field_validator("strategies")
    @classmethod
    def _normalised(cls, names: list[str]) -> list[str]:
        """In lower case, words joined by "_": Self-verification is
        self_verification."""
        plain = ["_".join(re.findall(r"[^\W_]+", name.lower())) for name in names]
        if not all(plain):
            raise ValueError("a strategy has no name")
        return plain


class Steps(Form):
    """The form of an annotator's reply. helpfulness: the paper's annotator gave 9
    nearly always (App. H)."""

    steps: up_to(12, Step)
    helpfulness: whole(range(11))


def annotate(
    llm: "LLM", rows: Sequence[tuple[str, str, str]]
) -> list[list[str] | None]:
    """The strategies of each reasoning by an annotator, each once, in the order of
    first use; None where it failed. One request a row, all in one batch.

    rows: (question, reasoning, answer). The paper shows Llama-3.1-70B-Instruct question
    and response (Fig 10). Nothing is cut.
    """
    names = ("question", "reasoning", "answer")
    fields = [dict(zip(names, row, strict=True)) for row in rows]
    template, tokens = "annotate_strategies", 2048
    annotations = judge.ask(llm, template, fields, Steps, tokens, "annotating")
    return [
        steps
        and list(dict.fromkeys(name for s in steps.steps for name in s.strategies))
        for steps in annotations
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


def stated(reader: "FactReader", about: str) -> Callable[[str], Hashable]:
    """The key of `tag` where the facts are known: those that a sentence states of the
    subject `about`, in whichever wording, hedged or not; of a sentence that states
    none, its words."""

    def key(sentence: str) -> Hashable:
        parsed = map(reader.parse, reader.statements(sentence, about))
        return tuple(fact for fact, _ in filter(None, parsed)) or words(sentence)

    return key


def tag(
    reasoning: str, answer: str, key: Callable[[str], Hashable] = words
) -> list[str]:
    """The strategies of RULES that the reasoning is worded by, and those that its
    sentences and the answer's show, each once, in that order.

    left_out: the answer lacks a sentence of the reasoning; added: the reasoning lacks a
    sentence of the answer; repeated: one of the two has a sentence twice. key: what
    makes two sentences one, by default their words without hedges.

    What this can't see: a strategy without its words (a silent correction, doubt by
    tone), whether words do what they say ("let me check" checks nothing by itself),
    languages other than English, and sense: two wordings are two sentences unless `key`
    knows better, so that free prose is nearly always left_out and added.
    """
    plain, flags = reasoning.replace("’", "'"), re.IGNORECASE
    worded = [name for name, rule in RULES.items() if re.search(rule, plain, flags)]
    thought, told = ([key(s) for s in sentences(text)] for text in (reasoning, answer))
    shown = {
        "left_out": not set(thought) <= set(told),
        "added": not set(told) <= set(thought),
        "repeated": any(len(set(keys)) < len(keys) for keys in (thought, told)),
    }
    return worded + [name for name, is_shown in shown.items() if is_shown]
