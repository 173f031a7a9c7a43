"""Veri-R1's published tables are whole. They are entered as they stand; what cannot be
right in them is told here: Table 1 and the numbers of claims tell it.

Table 3 prints fractions; here they are in per cent.
"""

from factkit import published

SETS = ["feverous", "exfever", "fever", "scifact", "hover"]
THREE = SETS[:4]  # the sets with three labels
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
    return published.table(number, "veri").set_index(["model", "arm"])


def names(of):
    """The columns of a set in the label-wise tables."""
    labels = (
        ("support", "refute", "nei") if of in THREE else ("support", "not_supported")
    )
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


# What they hold


def test_the_tables_have_every_row_and_column_in_order():
    overall = [f"{of}_{measure}" for of in SETS for measure in MEASURES]
    by_label = [name for of in SETS for name in names(of)]
    columns = {1: overall, 2: by_label, 3: SETS, 7: by_label, 8: by_label}
    for number, expected in columns.items():
        rows = table(number)
        assert list(rows.columns) == expected
        assert list(rows.index) == ALL
        assert rows.stack().between(0, 100).all() and rows.notna().all(axis=None)


# What cannot be right


def test_table_2_agrees_with_table_1():
    assert off(2) == set()


def test_table_8_has_columns_and_rows_exchanged():
    """As printed, FEVEROUS's and EX-FEVER's per cents are of the other's claims."""
    trained = {(row, of) for row in QWEN + LLAMA for of in ("feverous", "exfever")}
    rows = {(row, "fever") for of in (QWEN, LLAMA) for row in of[3:]}
    assert off(8) == trained | rows
