"""Untrained rules for long answers, to compare trained policies with.

A policy that learns only to say less can have a higher precision without a better
answer. A rule needs no training for this: it leaves out claims of the base policy's
answers.

| rule | of each answer it keeps |
|---|---|
| relation_rule | the claims of relations that the base policy mostly gets right |
| first_claim | the first claim |

The relations are judged by answers to training requests, never by the test answers.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from factkit.answers import long_form
from factkit.answers.engine import ClaimEngine, ExactEngine
from factkit.answers.items import Items
from factkit.answers.long_form import CheckedResponse
from factkit.facts.source import FactReader
from factkit.run.statistics import means
from factkit.verify.claims import Claim

if TYPE_CHECKING:
    import pandas as pd

# rule → its name in tables; truthrl has a relation_rule of short answers
RULES = {
    "relation_rule": "relation rule (untrained)",
    "first_claim": "first claim (untrained)",
}


def first_claim(rows: Sequence[CheckedResponse]) -> list[CheckedResponse]:
    """The answers, each cut to its first claim."""
    return [_keep(row, range(len(row.supports))[:1]) for row in rows]


def relation_rule(
    rows: Sequence[CheckedResponse], relations: Collection[str], facts: FactReader
) -> list[CheckedResponse]:
    """The answers with their claims of these relations alone."""

    def places(claims: Sequence[Claim]) -> list[int]:
        return [i for i, c in enumerate(claims) if _relation_of(c, facts) in relations]

    return [_keep(row, places(row.claims or ())) for row in rows]


def relations_mostly_right(
    engine: ExactEngine, responses: Iterable[tuple[str, str]]
) -> set[str]:
    """The relations of which more than half of the claims are supported.

    responses: (request id, response) of long requests; short questions are skipped.
    Claims that the reader can't parse form a relation of their own, "".
    """
    supported: dict[str, list[bool]] = {}
    for request, text in responses:
        if not engine.examples[request].relation:
            for claim in engine.claims(request, text):
                is_right = engine.facts.verify(claim.text) == "supported"
                relation = _relation_of(claim, engine.facts)
                supported.setdefault(relation, []).append(is_right)
    return {name for name, rows in supported.items() if 2 * sum(rows) > len(rows)}


def score_rules(
    base: Sequence[CheckedResponse],
    engine: ExactEngine | ClaimEngine | None = None,
    responses: Iterable[tuple[str, str]] = (),
    items_of: Callable[[Sequence[CheckedResponse]], Items] = long_form.items,
) -> dict[str, dict[str, float]]:
    """Rule → the metrics of the base policy's answers after the rule: the means of
    their items, and `long_form.same_answered`.

    base: answers to test requests. responses: (request id, response) of the base policy
    to training requests, for relation_rule, which only an exact engine has.
    """
    kept = {"first_claim": first_claim(base)}
    if isinstance(engine, ExactEngine):
        relations = relations_mostly_right(engine, responses)
        kept["relation_rule"] = relation_rule(base, relations, engine.facts)
    return {
        rule: means(items_of(kept[rule]).values())
        | long_form.same_answered(base, kept[rule], items_of)
        for rule in RULES
        if rule in kept
    }


def gain_table(
    after: Mapping[str, float],
    rules: Mapping[str, Mapping[str, float]],
    before: Mapping[str, float],
    name: str,
) -> "pd.DataFrame":
    """A mean over answers, in per cent, after training and after each rule, and its
    change in points in two parts (`long_form.split_gain`).

    after: with `long_form.same_answered`. rules: of `score_rules`.
    """
    import pandas as pd

    policies = {"after training": after} | {RULES[r]: m for r, m in rules.items()}
    rows = {
        policy: {name: metrics.get(name, float("nan"))}
        | long_form.split_gain(metrics, before, name)
        for policy, metrics in policies.items()
    }
    return pd.DataFrame(rows, dtype=float).T.mul(100).round(1)


def _relation_of(claim: Claim, facts: FactReader) -> str:
    parsed = facts.parse(claim.text)
    return parsed[0].relation if parsed else ""


def _keep(row: CheckedResponse, places: Sequence[int]) -> CheckedResponse:
    """The row with the claims at these places; its response are their sentences."""
    if not row.claims or len(places) == len(row.claims):
        return row
    claims, supports = (
        [row.claims[i] for i in places],
        [row.supports[i] for i in places],
    )
    sentences = dict.fromkeys(claim.sentence for claim in claims)
    return replace(row, response=" ".join(sentences), claims=claims, supports=supports)
