"""The claims on RLFH: of arms and metrics that there are, with the paper's numbers."""

import re

import pytest

from factkit.answers.engine import ExactEngine
from factkit.answers.exposure import stated_by_exposure
from factkit.answers.long_form import CheckedResponse
from factkit.data.examples import Example
from factkit.facts.world.facts import build_world
from factkit.papers.rlfh import evaluate as statements
from factkit.papers.rlfh.arms import ARMS
from factkit.papers.rlfh.feedback import Sentence
from factkit.report import claims, published
from factkit.run.statistics import means
from factkit.verify.claims import Claim, Support

RLFH_ARMS = tuple(ARMS)

WORLD = build_world(people=20, exposure="fact")
CLAIMS = claims.read_claims("rlfh")
MEASURED = [c for c in CLAIMS if c.metric]
SETS = {"HotpotQA": "hotpotqa", "SQuADv2": "squad_v2", "Biography": "biography"}
COLUMNS = {
    "factual_precision": ["precision"],
    "factscore_response_rate": ["response_rate"],
    "correct_claims": ["correct"],
    "incorrect_claims": ["incorrect"],
    "total_claims": ["correct", "incorrect"],
}


def test_a_claim_is_of_arms_and_of_a_metric_that_a_run_stores_by_item():
    def row(*supports, **meta):
        claims = [Claim("It is.", "It is.")] * len(supports)
        return CheckedResponse(str(meta), "p", "It is.", claims, list(supports), meta)

    of_set = [{"set": name} for name in SETS.values()]
    before = [row(Support.CONTRADICTED, **m) for m in of_set]
    before += [row(Support.SUPPORTED, set="open")]
    examples = {
        person: Example(id=person, question="p", answers=[], entity=person)
        for person in WORLD.people
    }
    silent = [CheckedResponse(i, "p", "It is.", [], []) for i in examples]
    stated = stated_by_exposure(silent, ExactEngine(WORLD, examples))
    stored = set(means(stated.values()))
    for support in (Support.SUPPORTED, Support.CONTRADICTED):
        after = [row(support, **of.meta) for of in before]
        said = [[Sentence("It is.", ())]] * len(after)
        stored |= means(statements.items(before, after, said).values()).keys()
    for claim in MEASURED:
        assert {arm for _, arm, _ in claim.arms} <= set(RLFH_ARMS)
        assert {metric for _, _, metric in claim.arms} <= stored


def printed(table, name, of):
    """What a table prints of an arm or a model, on a set."""
    rows = published.read_table(table, "rlfh")
    if table == 1 and of in RLFH_ARMS + ("iti", "dola"):
        rows = rows[rows.model == "Vicuna-7B"]
    keys = [key for key in ("arm", "model") if key in rows]
    (row,) = rows[(rows[keys] == of).any(axis=1)].to_dict("records")
    return {k.removeprefix(f"{SETS[name]}_"): v for k, v in row.items()}


def test_the_numbers_are_the_differences_that_the_tables_print():
    """And each is of the sign that the claim says, but for what Fig 6c says."""
    checked = 0
    for claim in CLAIMS:
        found = re.match(r"Table ([12])(?: \((\w+)\))?(,|$)", claim.where)
        if not found:
            continue
        table, name = int(found[1]), found[2] or "HotpotQA"
        metric = claim.metric.removeprefix(f"{SETS[name]}_") or "factual_precision"
        other = re.search(r"than (\S+) on", claim.claim)
        sides = [claim.more, claim.less]
        if not claim.metric:
            known = {"ITI": "iti", "DoLa": "dola"}
            sides = ["statement", known.get(other[1], other[1])]
        more, less = (
            sum(printed(table, name, of)[c] for c in COLUMNS[metric]) for of in sides
        )
        assert float(claim.paper) == pytest.approx(more - less, abs=0.051), claim.claim
        assert claim.paper.startswith("+")
        checked += 1
    assert checked == 4 + 2 + 15 + 3 + 2 + 4 + 11
