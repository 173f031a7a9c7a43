"""Untrained rules for long answers, to compare trained policies with.

A policy that learns only to say less gains precision without a better answer. A rule
needs no training for this: it changes the base policy's answers.

| rule | of each answer it keeps |
|---|---|
| relation_rule | the claims of relations that the base policy mostly gets right |
| first_claim | the first claim |
| century_rule | the claims that can be read, years of birth and death as a century |
| consistency_rule | the claims that more than half of the policy's samples agree with |

The relations are judged by answers to training requests, never by the test answers.
The third rule is for Wikipedia leads alone. It was written after RLFH had been seen to
replace years by centuries, and shows what this is worth without training. The last one
costs several samples a request instead of one.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, compress

import pandas as pd

from factkit.answers import long_form, split_gain
from factkit.answers.engine import ClaimEngine, ExactEngine
from factkit.answers.items import Items
from factkit.answers.long_form import CheckedResponse
from factkit.answers.sampling import ScoredSamples
from factkit.facts.leads import facts as leads
from factkit.facts.leads.reader import LeadReader
from factkit.facts.source import FactReader
from factkit.run.statistics import means
from factkit.verify.claims import Claim
from factkit.verify.outcome import Support

MOST = 0.5  # a claim is kept if more than this share of the samples agree
THRESHOLDS = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of the curve
CURVE = (
    "correct_claims_per_question",
    "incorrect_claims_per_question",
    "response_rate",
)


def first_claim(rows: Sequence[CheckedResponse]) -> list[CheckedResponse]:
    """The answers, each cut to its first claim."""
    return [_select(row, [True]) for row in rows]


def relation_rule(
    rows: Sequence[CheckedResponse], relations: Collection[str], facts: FactReader
) -> list[CheckedResponse]:
    """The answers with their claims of these relations alone."""
    return [
        _select(row, [_relation_of(c, facts) in relations for c in row.claims or ()])
        for row in rows
    ]


def century_rule(
    rows: Sequence[CheckedResponse], reader: LeadReader
) -> list[CheckedResponse]:
    """The answers with the century in place of a year of birth or death.

    Of several centuries the first stays, and of equal claims one. Claims that the
    reader can't parse are left out.
    """
    return [_state_century(row, reader) for row in rows]


def consistency_rule(
    rows: Sequence[CheckedResponse],
    agreement: Sequence[Sequence[float]],
    threshold: float = MOST,
) -> list[CheckedResponse]:
    """The answers with only those claims whose agreement is above a threshold.

    agreement: of each answer's claims, from `measure_agreement`.
    """
    return [
        _select(row, [share > threshold for share in shares])
        for row, shares in zip(rows, agreement, strict=True)
    ]


def measure_agreement(
    rows: Sequence[CheckedResponse],
    samples: Sequence[ScoredSamples],
    engine: ExactEngine,
) -> list[list[float]]:
    """How far a policy's samples agree with each claim of its answers, in [0, 1].

    Of the samples that state an object of the claim's subject and relation, the share
    that states the same one; 0 if none does, or if the reader can't parse the claim.
    SelfCheckGPT (arXiv 2303.08896) asks a model where facts are compared here.

    samples: of the same requests, in any order. Raises KeyError for a row without.
    """
    drawn = {row.id: row.responses for row in samples}
    return [_agreement(row, drawn[row.id], engine) for row in rows]


def relations_mostly_right(
    engine: ExactEngine, responses: Iterable[tuple[str, str]]
) -> set[str]:
    """The relations of which more than half of the claims are supported.

    responses: (request id, response); short questions are skipped. Claims that the
    reader can't parse form a relation of their own, "".
    """
    supported: dict[str, list[bool]] = {}
    for request, text in responses:
        is_short = engine.examples[request].relation
        for claim in () if is_short else engine.claims(request, text):
            rows = supported.setdefault(_relation_of(claim, engine.facts), [])
            rows.append(engine.facts.verify(claim.text) == "supported")
    return {name for name, rows in supported.items() if 2 * sum(rows) > len(rows)}


def score_rules(
    base: Sequence[CheckedResponse],
    engine: ExactEngine | ClaimEngine | None = None,
    responses: Iterable[tuple[str, str]] = (),
    items_of: Callable[[Sequence[CheckedResponse]], Items] = long_form.items,
) -> dict[str, dict[str, float]]:
    """Rule → the metrics of the base policy's answers after it, means of their items,
    and `long_form.same_answered`.

    base: answers to test requests. responses: (request id, response) of the base policy
    to training requests, for relation_rule, which only an exact engine has.
    """
    by_rule = {}
    if isinstance(engine, ExactEngine):
        relations = relations_mostly_right(engine, responses)
        by_rule["relation_rule"] = relation_rule(base, relations, engine.facts)
    by_rule["first_claim"] = first_claim(base)
    return {rule: score_rule(base, rows, items_of) for rule, rows in by_rule.items()}


def score_rule(
    base: Sequence[CheckedResponse],
    rows: Sequence[CheckedResponse],
    items_of: Callable[[Sequence[CheckedResponse]], Items] = long_form.items,
) -> dict[str, float]:
    """The metrics of the base policy's answers after a rule."""
    shared = long_form.same_answered(base, rows, items_of)
    return means(items_of(rows).values()) | shared


def score_consistency(
    base: Sequence[CheckedResponse],
    samples: Sequence[ScoredSamples],
    engine: ExactEngine,
    items_of: Callable[[Sequence[CheckedResponse]], Items] = long_form.items,
) -> dict[str, float]:
    """The metrics of `consistency_rule` as consistency_rule_<name>, and those in CURVE
    at other thresholds as consistency_<threshold>_<name>."""
    agreement = measure_agreement(base, samples, engine)
    rule = score_rule(base, consistency_rule(base, agreement), items_of)
    metrics = {f"consistency_rule_{name}": value for name, value in rule.items()}
    for threshold in THRESHOLDS:
        kept = means(items_of(consistency_rule(base, agreement, threshold)).values())
        metrics |= {f"consistency_{threshold}_{name}": kept[name] for name in CURVE}
    return metrics


def gain_table(
    after: Mapping[str, float],
    rules: Mapping[str, Mapping[str, float]],
    before: Mapping[str, float],
    name: str,
) -> pd.DataFrame:
    """A mean over answers after training and after each rule, in per cent, and its
    change in points in two parts (`split_gain`).

    after, rules: with the metrics of `long_form.same_answered`. before: of the
    untrained policy.
    """
    rows = {
        policy: {name: metrics.get(name, float("nan"))}
        | split_gain(metrics, before, name)
        for policy, metrics in {"after training": after, **rules}.items()
    }
    return pd.DataFrame(rows, dtype=float).T.mul(100).round(1)


def _state_century(row: CheckedResponse, reader: LeadReader) -> CheckedResponse:
    if row.claims is None:
        return row
    sentences = dict.fromkeys(claim.sentence for claim in row.claims)
    statements = chain.from_iterable(map(reader.statements, sentences))
    parsed = filter(None, map(reader.parse, statements))
    facts = leads.in_centuries(fact for fact, _ in parsed)
    texts = [leads.statement(fact) for fact in facts]
    return replace(
        row,
        response=" ".join(texts),
        claims=[Claim(text, text) for text in texts],
        supports=[Support(reader.verify(text)) for text in texts],
    )


def _agreement(
    row: CheckedResponse, responses: Sequence[str], engine: ExactEngine
) -> list[float]:
    stated = [
        {fact for c in engine.claims(row.id, text) if (fact := _fact(c, engine.facts))}
        for text in responses
    ]
    same = Counter(chain.from_iterable(stated))
    on_point = Counter(point for facts in stated for point in {f[:2] for f in facts})
    claimed = [_fact(claim, engine.facts) for claim in row.claims or ()]
    return [same[f] / on_point[f[:2]] if f and f in same else 0.0 for f in claimed]


def _fact(claim: Claim, facts: FactReader) -> tuple[str, str, str] | None:
    parsed = facts.parse(claim.text)
    return parsed and (parsed[0].subject, parsed[0].relation, parsed[0].object)


def _relation_of(claim: Claim, facts: FactReader) -> str:
    parsed = facts.parse(claim.text)
    return parsed[0].relation if parsed else ""


def _select(row: CheckedResponse, keep: Sequence[bool]) -> CheckedResponse:
    """The row with some of its claims; its response are their sentences."""
    if not row.claims:
        return row
    claims, supports = [*compress(row.claims, keep)], [*compress(row.supports, keep)]
    response = " ".join(dict.fromkeys(claim.sentence for claim in claims))
    return replace(row, response=response, claims=claims, supports=supports)
