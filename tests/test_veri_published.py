"""Veri-R1's published tables are whole, and its claims are of arms and metrics that
there are, with those tables' numbers.

The tables are entered as they stand; what cannot be right in them is told here: Table 1
and the numbers of claims tell it. Table 3 prints fractions; here they are in per cent.
"""

import re

import pytest

from factkit.papers.veri.arms import ARMS
from factkit.papers.veri.evaluate import COMPARED, OF_A_SET
from factkit.papers.veri.rewards import TIMES
from factkit.report import claims, published
from factkit.run import params

SETS = ["feverous", "exfever", "fever", "scifact", "hover"]
THREE = SETS[:4]  # the sets with three labels
MEASURES = ["joint_accuracy", "verification_accuracy", "label_accuracy"]
TABLE_OF = dict(zip((2, 7, 8), MEASURES, strict=True))  # label-wise tables
PRINTED = ["instruct", "sft", "offline_rl", "larger", "online_rl"]  # in their order
FAMILIES = {  # a setting's small model and its larger one
    "": ("Qwen2.5-3B-Instruct", "Qwen2.5-7B-Instruct"),
    "llama3.2-3b": ("Llama3.2-3B-Instruct", "Llama3.1-8B-Instruct"),
}
ROUNDED = 0.0101  # per cents have two digits; GPT-4o's are cut off, not rounded
QWEN, LLAMA = (
    [(models[arm == "larger"], arm) for arm in PRINTED] for models in FAMILIES.values()
)
ALL = [("GPT-4o", "instruct"), *QWEN, *LLAMA]
MEASURED = [claim for claim in claims.read_claims("veri") if not claim.not_here]
ROLLOUTS = {
    f"rollout_{name}{when}"
    for name in ("evidence_score", "verification_accuracy", "evidence_cover")
    for when in ("", *(f"_{when}" for when in TIMES))
}


def table(number):
    return published.read_table(number, "veri").set_index(["model", "arm"])


def names(of):
    """The columns of a set in the label-wise tables."""
    labels = ("support", "refute", "nei")
    if of not in THREE:
        labels = ("support", "not_supported")
    return [f"{of}_{label}" for label in labels]


def off(number):
    """The (row, set) whose mean over labels is not what table 1 says."""
    by_label, overall = table(number), table(1)
    return {
        (row, of)
        for row in ALL
        for of in SETS
        if abs(
            by_label.loc[row, names(of)].mean()
            - overall.loc[row, f"{of}_{TABLE_OF[number]}"]
        )
        > ROUNDED
    }


# ---- what the tables hold


def test_the_tables_have_every_row_and_column_in_order():
    overall = [f"{of}_{measure}" for of in SETS for measure in MEASURES]
    by_label = [name for of in SETS for name in names(of)]
    columns = {1: overall, 2: by_label, 3: SETS, 7: by_label, 8: by_label}
    for number, expected in columns.items():
        rows = table(number)
        assert list(rows.columns) == expected
        assert list(rows.index) == ALL
        assert rows.stack().between(0, 100).all() and rows.notna().all(axis=None)


def test_table_2_agrees_with_table_1_and_table_8_has_columns_and_rows_exchanged():
    """As printed, FEVEROUS's and EX-FEVER's per cents are of the other's claims."""
    assert off(2) == set()
    trained = {(row, of) for row in QWEN + LLAMA for of in ("feverous", "exfever")}
    rows = {(row, "fever") for of in (QWEN, LLAMA) for row in of[3:]}
    assert off(8) == trained | rows


# ---- the claims


def test_claims_are_of_arms_settings_and_metrics_that_there_are():
    of_sets = {f"{of}_{name}" for of in SETS for name in OF_A_SET}
    variants = {path.stem for path in (params.ROOT / "params").glob("*/veri-*.yaml")}
    for claim in MEASURED:
        assert claim.where and claim.paper, claim
        for setting, arm, metric in claim.arms:
            assert arm in ARMS, claim
            assert metric in {*COMPARED, *ROLLOUTS, *of_sets}, claim
            assert not setting or f"veri-{setting}" in variants, claim


def of_the_paper(setting, arm, metric):
    """What Tables 1 to 3 print of a metric: of one set, or the mean over the sets."""
    row = (FAMILIES[setting][arm == "larger"], arm)
    own = next((of for of in SETS if metric.startswith(f"{of}_")), "")
    if metric.endswith("evidence_score"):
        values = table(3).loc[row]
        return values[own] if own else values[SETS].mean()
    if metric.startswith(("support_", "refute_", "nei_")):
        label, _, name = metric.partition("_")
        assert name == "joint_accuracy"
        return table(2).loc[row, [f"{of}_{label}" for of in THREE]].mean()
    values = table(1).loc[row]
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
