"""Veri-R1's published tables are whole. They are entered as they stand; what cannot be
right in them is told here: Table 1 and the numbers of claims tell it.

Table 3 prints fractions; here they are in per cent.
"""

from importlib.resources import files

import pandas as pd

from factkit.figures.tables import published

CLAIMS = {  # of each label in the test sets
    "feverous": 294,
    "exfever": 263,
    "fever": 300,
    "scifact": 237,
    "hover": 500,
}
THREE = list(CLAIMS)[:4]  # the sets with three labels
MEASURES = ["joint_accuracy", "verification_accuracy", "label_accuracy"]
TABLE_OF = dict(zip((2, 7, 8), MEASURES, strict=True))  # label-wise tables
ARMS = ["instruct", "sft", "offline_rl", "larger", "online_rl"]  # in the paper's order
SMALL = ["Qwen2.5-3B-Instruct", "Llama3.2-3B-Instruct"]
LARGE = ["Qwen2.5-7B-Instruct", "Llama3.1-8B-Instruct"]
ROUNDED = 0.0101  # per cents have two digits; GPT-4o's are cut off, not rounded
PROMPTED = ("GPT-4o", "instruct")


QWEN, LLAMA = (
    [((LARGE if arm == "larger" else SMALL)[i], arm) for arm in ARMS] for i in (0, 1)
)
ALL = [PROMPTED, *QWEN, *LLAMA]


def table(number):
    return published(number, "veri").set_index(["model", "arm"])


def names(of):
    """The columns of a set in the label-wise tables."""
    labels = (
        ("support", "refute", "nei") if of in THREE else ("support", "not_supported")
    )
    return [f"{of}_{label}" for label in labels]


def prose(what, arm="online_rl"):
    path = str(files("factkit") / "published" / "veri_text.csv")
    return pd.read_csv(path, index_col=["what", "arm"]).value[what, arm]


def off(number):
    """The (row, set) whose mean over labels is not what table 1 says."""
    by_label, overall = table(number), table(1)
    return {
        (row, of)
        for row in ALL
        for of in CLAIMS
        if abs(
            by_label.loc[row, names(of)].mean()
            - overall.loc[row, f"{of}_{TABLE_OF[number]}"]
        )
        > ROUNDED
    }


def whole(value, n):
    """Whether a per cent, as printed, is of a whole number of n claims."""
    return abs(value - 100 * round(value * n / 100) / n) < ROUNDED


def broken(rows, n_of):
    """The (row, column) that are of no whole number of claims."""
    return {
        (row, c)
        for row in rows.index
        for c in rows
        if not whole(rows.at[row, c], n_of(c))
    }


def set_of(column):
    return next(of for of in CLAIMS if column.startswith(f"{of}_"))


# What they hold


def test_the_tables_have_every_row_and_column_in_order():
    overall = [f"{of}_{measure}" for of in CLAIMS for measure in MEASURES]
    by_label = [name for of in CLAIMS for name in names(of)]
    columns = {1: overall, 2: by_label, 3: list(CLAIMS), 7: by_label, 8: by_label}
    for number, expected in columns.items():
        rows = table(number)
        assert list(rows.columns) == expected
        assert list(rows.index) == ALL
        assert rows.stack().between(0, 100).all() and rows.notna().all(axis=None)


def test_table_5_repeats_table_1_beside_two_baselines():
    rows, overall = table(5), table(1)
    assert list(rows.columns) == list(CLAIMS)
    assert [arm for _, arm in rows.index][1:3] == ["program_fc", "bidev"]
    shared = [row for row in rows.index if row in ALL]
    assert shared == [PROMPTED, QWEN[-1], LLAMA[-1]]
    expected = overall.loc[shared, [f"{of}_label_accuracy" for of in CLAIMS]]
    assert (rows.loc[shared].to_numpy() == expected.to_numpy()).all()


def test_no_accuracy_is_above_a_looser_one():
    overall = table(1)
    for of in CLAIMS:
        joint, verification, label = (overall[f"{of}_{m}"] for m in MEASURES)
        assert (joint <= verification).all() and (verification <= label).all()
    assert (table(2) <= table(7)).all(axis=None)


def test_shares_are_of_whole_numbers_of_claims():
    labels = {of: 3 if of in THREE else 2 for of in CLAIMS}
    found = broken(table(1), lambda c: labels[set_of(c)] * CLAIMS[set_of(c)])
    assert found == set()
    for number in (2, 7):
        assert broken(table(number), lambda c: CLAIMS[set_of(c)]) == set()


def test_hover_has_500_claims_a_label_and_not_the_448_that_the_appendix_says():
    printed = table(2)[names("hover")]
    assert prose("HoVer's test claims a label") == 448
    assert len(broken(printed, lambda c: 448)) > len(printed)
    assert broken(printed, lambda c: 500) == set()


def test_a_claim_that_hover_does_not_support_needs_no_evidence():
    """As of NOT ENOUGH INFO, its three accuracies are one."""
    for column in ("hover_not_supported", "feverous_nei", "exfever_nei"):
        assert (table(2)[column] == table(7)[column]).all()
    assert (table(8).hover_not_supported == table(2).hover_not_supported).all()


# What cannot be right


def test_table_2_agrees_with_table_1():
    assert off(2) == set()


def test_table_8_has_columns_and_rows_exchanged():
    """As printed, FEVEROUS's and EX-FEVER's per cents are of the other's claims."""
    trained = {(row, of) for row in QWEN + LLAMA for of in ("feverous", "exfever")}
    rows = {(row, "fever") for of in (QWEN, LLAMA) for row in of[3:]}
    assert off(8) == trained | rows
    found = broken(table(8), lambda c: CLAIMS[set_of(c)])
    assert {(row, set_of(column)) for row, column in found} == trained
    assert not any(row == PROMPTED for row, _ in found)


def test_gpt_4o_has_a_lower_joint_accuracy_than_the_prose_says():
    rows = table(1).loc[PROMPTED, [f"{of}_joint_accuracy" for of in CLAIMS]]
    stated = "GPT-4o's joint accuracy in per cent: {} of five sets"
    assert rows.max() == prose(stated.format("highest"), "instruct")
    assert rows.min() == 24.71 < prose(stated.format("lowest"), "instruct")
