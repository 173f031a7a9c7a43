"""The claims on Learning to Reason: of arms and metrics that there are, and with the
paper's own numbers."""

import re
from importlib.resources import files

import pandas as pd
import pytest

from factkit import ledger, params
from factkit.datasets import world_prompts as wp
from factkit.figures.tables import published
from factkit.reason import evaluate as reasoned
from factkit.reason.arms import ARMS
from factkit.verify.exact import ExactEngine, WorldReader
from factkit.verify.response import written
from factkit.world import facts as w

REASON_ARMS = tuple(ARMS)

CLAIMS = ledger.claims("reason")
MEASURED = [c for c in CLAIMS if not c.not_here]
# our metric → Table 1's and Table 2's column, and what the text adds to Table 2
PRINTED = {
    "factual_precision": ("precision", "precision"),
    "correct_claims_per_question": ("detail", "supported"),
    "incorrect_claims_per_question": ("", "unsupported"),
    "win_rate": ("win_rate", "win_rate"),
}
SETS = ("longfact", "fava", "alpaca_fact", "biography")  # that the scan shows


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """What the train notebook measures of one response in the fact world."""
    world = w.build_world(3, people=30)
    person = world.people[0]
    (example, *_) = wp.requests(world, [person], wp.OPEN)
    example = example.model_copy(update={"meta": example.meta | {"set": wp.OPEN}})
    said = {example.id: written("t", w.biography(world, person))}
    p, engine = (
        params.load("reason", "tiny"),
        ExactEngine(WorldReader(world), {example.id: example}),
    )
    path = tmp_path_factory.mktemp("claims") / "claims.jsonl"
    decide = reasoned.compare(p, engine)
    rows = [example], said, said, engine, decide, p, path
    found, _ = reasoned.measure(*rows)
    curve = pd.DataFrame({"reasoning_words": [1.0, 2.0], "answer_words": [1.0, 2.0]})
    return found | reasoned.over_base(found, found, [wp.OPEN]) | reasoned.growth(curve)


def test_each_claim_is_of_arms_and_metrics_that_are_measured(measured):
    for claim in MEASURED:
        for setting, arm, metric in claim.arms:
            assert (setting, arm) == ("", arm), claim.claim
            assert arm in REASON_ARMS, claim.claim
            assert metric in measured, claim.claim


def test_each_claim_has_its_words_and_stands_once_or_says_why_it_is_not_measured():
    assert all(c.claim and c.where and c.paper for c in CLAIMS)
    assert len({c.claim for c in CLAIMS}) == len(CLAIMS)
    assert all(bool(c.not_here) != bool(c.metric) for c in CLAIMS)
    asked = [(c.arms, c.least, c.most) for c in MEASURED]
    assert all(asked.count(one) == 1 for one in asked)


def test_what_claims_compare_item_by_item_is_stored_by_item():
    compared = {m for c in MEASURED for _, _, m in c.arms if m in PRINTED}
    assert compared <= set(reasoned.CLAIMED)


def average(arm, metric):
    """The paper's average over six data sets: Table 2's, or as its text says."""
    table = published(2, "reason").set_index("arm")
    if arm in table.index:
        return table.loc[arm, PRINTED[metric][1]]
    said = pd.read_csv(str(files("factkit") / "published" / "reason_text.csv"))
    said = said.set_index(["what", "arm"]).value
    if metric == "factual_precision":
        gain = said["points of precision above the base model", arm]
        return table.loc["base", "precision"] + gain
    return said["average win rate in per cent", arm]


def on_sets(arm, metric):
    """The numbers of the four data sets of Table 1 that can be read."""
    rows = published(1, "reason")
    row = rows[rows["model"] == "Llama3.1-8B-Inst"].set_index("arm").loc[arm]
    return [float(row[f"{name}_{PRINTED[metric][0]}"]) for name in SETS]


def papers_own(claim):
    """The difference that the paper's tables have, None if they have none."""
    metric = claim.metric.removeprefix("least_gain_").removeprefix("least_")
    if metric != claim.metric:
        own = on_sets(claim.more, metric)
        if claim.metric == "least_win_rate":
            return min(own)
        less = on_sets("base", metric)
        return min(a - b for a, b in zip(own, less, strict=True))
    if metric not in PRINTED:
        return None
    if "four sets" in claim.paper:
        more, less = (on_sets(arm, metric) for arm in (claim.more, claim.less))
        return sum(more) / 4 - sum(less) / 4
    if not re.search(r"\d\.\d", claim.paper):
        return None
    return average(claim.more, metric) - average(claim.less, metric)


def test_the_paper_s_numbers_are_those_of_its_tables_and_its_claims_hold_of_them():
    checked = 0
    for claim in MEASURED:
        value = papers_own(claim)
        if value is None:
            continue
        checked += 1
        stated = float(re.match(r"[-+]?[\d.]+", claim.paper)[0])
        assert stated == pytest.approx(value, abs=0.06), claim.claim
        if "contrary" in claim.paper:  # the abstract against Table 2
            assert value < 0
            continue
        base = 1.0
        if "%" in claim.least:
            base = average(claim.less, claim.metric) / 100
        least = float(claim.least.removesuffix("%") or 0) * base
        assert value > least, claim.claim
    assert checked >= 34
