"""The claims on Veri-R1: of arms and metrics that there are, and the paper's own tables
have them hold."""

import pytest

from factkit import ledger
from factkit.figures import tables
from factkit.figures.veri import METRICS
from factkit.params import VERI_ARMS

SHORT = ("support", "refute", "nei")
BY_LABEL = {
    f"{label}_{measure}"
    for label in SHORT
    for measure in ("joint_accuracy", "recall", "confidence_gap")
}
CLAIMS = ledger.claims("veri")
FAMILIES = {
    "Qwen": ("Qwen2.5-3B-Instruct", "Qwen2.5-7B-Instruct"),
    "Llama": ("Llama3.2-3B-Instruct", "Llama3.1-8B-Instruct"),
}


def names(claims):
    return [f"{c.metric} {c.more or 0} over {c.less or 0}" for c in claims]


@pytest.mark.parametrize("claim", CLAIMS, ids=names(CLAIMS))
def test_a_claim_is_of_two_arms_or_a_difference_in_one(claim):
    arms = {claim.more, claim.less} - {""}
    assert arms <= set(VERI_ARMS)
    assert len(arms) == (1 if claim.metric.endswith("_gap") else 2)
    assert claim.metric in METRICS.keys() | BY_LABEL


def test_no_claim_is_made_twice():
    assert len(set(names(CLAIMS))) == len(CLAIMS)


def test_the_command_line_knows_the_paper():
    assert "veri" in ledger.PAPERS
    assert set(tables.SHOWN["veri"]) == set(METRICS)


def printed(number, family):
    rows = tables.published(number, "veri")
    return rows[rows.model.isin(FAMILIES[family])].set_index("arm")


def of_the_paper(family):
    """Results with the numbers that Tables 1 to 3 print, means over their sets."""
    first, second, third = (printed(n, family) for n in (1, 2, 3))
    ends = {name: (first, f"_{name}") for name in list(METRICS)[:3]}
    ends |= {f"{label}_joint_accuracy": (second, f"_{label}") for label in SHORT}
    ends |= {"nei_recall": (second, "_nei")}
    metrics = {
        name: rows[[c for c in rows if c.endswith(end)]].mean(axis=1) / 100
        for name, (rows, end) in ends.items()
    }
    metrics["evidence_score"] = third.drop(columns="model").mean(axis=1) / 100
    return [
        {
            "arm": arm,
            "seed": seed,
            "metrics": {name: of[arm] for name, of in metrics.items()},
        }
        for arm in first.index
        for seed in (0, 1)
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_each_claim_on_a_table_holds_of_what_the_paper_prints(family):
    """For Llama, two do not: SFT gains there, and the larger model finds more NEI."""
    claims = [c for c in CLAIMS if "Table" in c.where]
    found = ledger.check(claims, of_the_paper(family))
    assert list(found["claim"]) == [c.text for c in claims] != []
    failing = found[found["verdict"] != "holds"]
    assert all("of Qwen alone" in where for where in failing["where"])
    assert len(failing) == (0 if family == "Qwen" else 2)


def gaps(label, *values):
    name = f"{label}_confidence_gap"
    return [
        {"arm": "online_rl", "seed": seed, "metrics": {name: value}}
        for seed, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("label", "values", "stated", "verdict"),
    [
        ("support", (0.2, 0.22), "+21.0", "holds"),
        ("refute", (-0.2, -0.22), "-21.0", "fails"),
        ("refute", (0.2, -0.1), "+5.0 ", "undecided"),
        ("nei", (-0.2, -0.22), "+21.0", "holds"),
        ("nei", (0.2, 0.22), "-21.0", "fails"),
    ],
)
def test_a_claim_of_one_arm_is_on_the_sign_of_its_metric(
    label, values, stated, verdict
):
    """High less low confidence's accuracy: above 0, but of NEI below."""
    (row,) = ledger.check(CLAIMS, gaps(label, *values)).to_dict("records")
    assert (row["ours (points)"][:5], row["verdict"]) == (stated, verdict)
    expected = "0 − online_rl" if label == "nei" else "online_rl − 0"
    assert row["difference"] == f"{label}_confidence_gap: {expected}"


def test_an_arm_without_the_difference_says_nothing_of_it():
    results = [{"arm": "online_rl", "seed": 0, "metrics": {"joint_accuracy": 0.5}}]
    assert ledger.check(CLAIMS, results).empty


def test_ours_are_drawn_beside_each_of_the_papers_arms():
    metrics = {"fever_joint_accuracy": 0.5, "fever_evidence_score": 0.5}
    runs = [{"arm": arm, "seed": 0, "metrics": metrics} for arm in VERI_ARMS]
    shown = tables.beside_paper(
        runs, 1, {"fever_joint_accuracy": "fever_joint_accuracy"}, "veri"
    )
    assert shown["paper", "fever_joint_accuracy"].to_dict() == {
        "instruct": 19.00,
        "sft": 19.89,
        "offline_rl": 30.11,
        "larger": 26.00,
        "online_rl": 49.11,
    }
    shown = tables.beside_paper(runs, 3, {"fever": "fever_evidence_score"}, "veri")
    assert list(shown["ours", "fever"]) == ["50.0"] * 5
