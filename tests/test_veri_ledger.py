"""The claims on Veri-R1: of arms and metrics that there are; the paper's own numbers in
them are those of its tables."""

import re

import pytest

from factkit import ledger, params, published
from factkit.veri.arms import ARMS
from factkit.veri.evaluate import COMPARED, OF_A_SET
from factkit.veri.rewards import AT

VERI_ARMS = tuple(ARMS)

CLAIMS = ledger.claims("veri")
MEASURED = [c for c in CLAIMS if not c.not_here]
SETS = ("feverous", "exfever", "fever", "scifact", "hover")
THREE = SETS[:4]  # with three labels
FAMILIES = {
    "": ("Qwen2.5-3B-Instruct", "Qwen2.5-7B-Instruct"),
    "llama3.2-3b": ("Llama3.2-3B-Instruct", "Llama3.1-8B-Instruct"),
}
ROLLOUTS = {
    f"rollout_{name}{when}"
    for name in ("evidence_score", "verification_accuracy", "evidence_cover")
    for when in ("", *(f"_{when}" for when in AT))
}


def test_claims_are_of_arms_settings_and_metrics_that_there_are():
    of_sets = {f"{of}_{name}" for of in SETS for name in OF_A_SET}
    variants = {path.stem for path in (params.ROOT / "params").glob("*/veri-*.yaml")}
    for claim in MEASURED:
        assert claim.where and claim.paper, claim
        for setting, arm, metric in claim.arms:
            assert arm in VERI_ARMS, claim
            assert metric in {*COMPARED, *ROLLOUTS, *of_sets}, claim
            assert not setting or f"veri-{setting}" in variants, claim


def printed(number, setting):
    rows = published.table(number, "veri")
    return rows[rows.model.isin(FAMILIES[setting])].set_index("arm")


def of_the_paper(setting, arm, metric):
    """What Tables 1 to 3 print of a metric: of one set, or the mean over the sets."""
    own = next((of for of in SETS if metric.startswith(f"{of}_")), "")
    if metric.endswith("evidence_score"):
        values = printed(3, setting).loc[arm]
        return values[own] if own else values[list(SETS)].mean()
    if metric.startswith(("support_", "refute_", "nei_")):
        label, _, name = metric.partition("_")
        assert name == "joint_accuracy"
        return printed(2, setting).loc[arm, [f"{of}_{label}" for of in THREE]].mean()
    values = printed(1, setting).loc[arm]
    return values[metric] if own else values[[f"{of}_{metric}" for of in SETS]].mean()


def test_the_papers_numbers_are_those_of_its_tables():
    checked = 0
    for claim in MEASURED:
        if "Table" not in claim.where or re.search("Table [578]", claim.where):
            continue
        more, less = (of_the_paper(*arm) for arm in claim.arms)
        assert float(claim.paper) == pytest.approx(more - less, abs=0.051), claim
        assert more > less  # what the paper says is so in what it prints
        checked += 1
    assert checked > 40
