"""The claims on RLFH: of arms and metrics that there are, and the paper's own tables
have them hold."""

import pytest

from factkit import ledger
from factkit.evaluate.long_form import Checked, scores
from factkit.figures.tables import beside_paper, published
from factkit.params import RLFH_ARMS
from factkit.verify.claims import Claim, Support

# Of prompts by the accuracy of the base policy's response: the share refused after
# training in the lowest bin, less that in the highest. Of the base policy it is 0,
# since a response that has an accuracy is no refusal.
MORE_METRICS = {"refusal_low_minus_high"}
CLAIMS = ledger.claims("rlfh")


def names(claims):
    return [f"{c.metric} {c.more} over {c.less}" for c in claims]


@pytest.mark.parametrize("claim", CLAIMS, ids=names(CLAIMS))
def test_a_claim_is_of_two_arms_and_a_metric(claim):
    row = Checked("i", "p", "It is.", [Claim("It is.", "It is.")], [Support.SUPPORTED])
    assert {claim.more, claim.less} <= set(RLFH_ARMS)
    assert claim.more != claim.less
    assert claim.metric in scores([row]).keys() | MORE_METRICS


def test_no_claim_is_made_twice():
    assert len(set(names(CLAIMS))) == len(CLAIMS)


def test_the_command_line_knows_the_paper():
    assert "rlfh" in ledger.PAPERS


def of_the_paper(table):
    """Results with the numbers that a table prints of Vicuna, a mean over its sets."""
    rows = published(table, "rlfh")
    rows = rows[rows["model"] == "Vicuna-7B"].set_index("arm")

    def mean(row, name):
        return row[[c for c in rows if f"_{c}".endswith(f"_{name}")]].mean()

    return [
        {
            "arm": arm,
            "seed": 0,
            "metrics": {
                "factual_precision": mean(row, "precision") / 100,
                "response_rate": mean(row, "response_rate") / 100,
                "correct_claims": mean(row, "correct"),
                "incorrect_claims": mean(row, "incorrect"),
                "total_claims": mean(row, "correct") + mean(row, "incorrect"),
            },
        }
        for arm, row in rows.drop(columns="model").iterrows()
    ]


@pytest.mark.parametrize("table", [1, 2])
def test_each_claim_on_a_table_holds_of_what_the_paper_prints(table):
    claims = [c for c in CLAIMS if c.where == f"Table {table}"]
    once = of_the_paper(table)
    twice = [r | {"seed": seed} for seed in (0, 1) for r in once]
    found = ledger.check(claims, twice)
    assert list(found["claim"]) == [c.text for c in claims] != []
    assert set(found["verdict"]) == {"holds"}


def test_a_base_without_refusals_of_its_own_is_what_fig_8_is_held_against():
    (claim,) = (c for c in CLAIMS if c.metric == "refusal_low_minus_high")
    values = {("base", 0): 0.0, ("base", 1): 0.0}
    values |= {("statement", 0): 0.2, ("statement", 1): 0.22}
    results = [
        {"arm": arm, "seed": seed, "metrics": {claim.metric: value}}
        for (arm, seed), value in values.items()
    ]
    (row,) = ledger.check([claim], results).to_dict("records")
    assert (row["ours (points)"][:5], row["verdict"]) == ("+21.0", "holds")


def test_ours_are_drawn_beside_each_of_the_papers_arms():
    runs = [
        {"arm": arm, "seed": 0, "metrics": {"factual_precision": 0.5}}
        for arm in ("base", "dpo", "statement", "statement_group")
    ]
    first = {"hotpotqa_precision": "factual_precision"}
    shown = beside_paper(runs, 1, first, "rlfh")
    assert list(shown.index) == ["base", "dpo", "statement"]
    assert list(shown["paper", "hotpotqa_precision"]) == [56.9, 64.7, 65.5]
    shown = beside_paper(runs, 2, {"precision": "factual_precision"}, "rlfh")
    assert list(shown["paper", "precision"]) == [65.5]
