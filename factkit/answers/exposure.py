"""What long answers state of the facts that the policy read often, rarely or never.

Only the fact world knows how often that was (`Fact.exposure`).
"""

from collections.abc import Sequence

from factkit.answers import exposure_bin
from factkit.answers.engine import ClaimEngine, ExactEngine
from factkit.answers.items import Items
from factkit.answers.long_form import CheckedResponse
from factkit.verify.outcome import Support


def stated_by_exposure(
    rows: Sequence[CheckedResponse], engine: ExactEngine | ClaimEngine
) -> Items:
    """Id → of the subject's facts in each bin of exposure, the shares in [0, 1] that
    the answer states right, wrong, and at all.

    They are exposure_<lower edge>_stated_right, …_stated_wrong and …_stated. A policy
    that leaves out what it does not know states fewer facts of exposure 0, and as many
    of the others. Empty outside of the fact world.
    """
    if not isinstance(engine, ExactEngine):
        return {}
    table: Items = {}
    for row in rows:
        subject = engine.examples[row.id].entity
        facts = engine.facts.facts_of(subject)
        if not row.judged or not any(fact.exposure for fact in facts):
            continue
        said: dict[str, bool] = {}  # relation → whether what is stated of it is right
        for claim, support in zip(row.claims or (), row.supports, strict=True):
            parsed = engine.facts.parse(claim.text)
            if parsed and parsed[0].subject == subject:
                said[parsed[0].relation] = support is Support.SUPPORTED
        bins: dict[int, list[str]] = {}
        for fact in facts:
            bins.setdefault(exposure_bin(fact.exposure), []).append(fact.relation)
        item: dict[str, float] = {}
        for edge, relations in sorted(bins.items()):
            right = sum(said.get(relation, False) for relation in relations)
            stated = sum(relation in said for relation in relations)
            name, n = f"exposure_{edge}_stated", len(relations)
            item |= {
                name: stated / n,
                f"{name}_right": right / n,
                f"{name}_wrong": (stated - right) / n,
            }
        table[row.id] = item
    return table
