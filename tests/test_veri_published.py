"""Veri-R1's published tables are whole. They are entered as they stand; what cannot be
right in them is told here: Table 1 and the numbers of claims tell it.

Table 3 prints fractions; here they are in per cent.
"""

from importlib.resources import files

import pandas as pd
import pytest

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


def test_table_7_repeats_table_2_on_scifacts_contradicted_claims():
    """Of all but GPT-4o. What belongs there is known from table 1: a whole number of
    claims, of which some have more than the gold evidence."""
    trained = QWEN + LLAMA
    joint, printed = table(2).scifact_refute, table(7).scifact_refute
    assert (joint[trained] == printed[trained]).all()
    assert joint[PROMPTED] < printed[PROMPTED]
    assert {row for row, of in off(7) if of == "scifact"} == set(trained)
    others = table(7)[["scifact_support", "scifact_nei"]].sum(axis=1)
    should = 3 * table(1).scifact_verification_accuracy - others
    assert (should[trained] > printed[trained]).all()
    assert (should[trained] < table(8).scifact_refute[trained]).all()
    claims = should * CLAIMS["scifact"] / 100
    assert (claims[trained] - claims[trained].round()).abs().max() < 0.06


def test_tables_1_and_7_exchange_two_rows_of_llama_on_fever():
    """Which of them is wrong is not known: NEI, as in table 2, is in its place."""
    larger, online = LLAMA[3:]
    assert {pair for pair in off(7) if pair[1] != "scifact"} == {
        (larger, "fever"),
        (online, "fever"),
    }
    means = table(7)[names("fever")].mean(axis=1)
    overall = table(1).fever_verification_accuracy
    for row, other in ((larger, online), (online, larger)):
        assert abs(means[row] - overall[other]) < ROUNDED
        assert table(7).fever_nei[row] == table(2).fever_nei[row]


def repaired():
    """Table 8 with FEVEROUS and EX-FEVER exchanged, of all but GPT-4o, and FEVER of the
    larger models exchanged with online RL's."""
    rows = table(8)
    first, second, fever = (names(of) for of in THREE[:3])
    for row in QWEN + LLAMA:
        printed = rows.loc[row].copy()
        rows.loc[row, first] = printed[second].to_numpy()
        rows.loc[row, second] = printed[first].to_numpy()
    for larger, online in (QWEN[3:], LLAMA[3:]):
        exchanged = rows.loc[[online, larger], fever].to_numpy()
        rows.loc[[larger, online], fever] = exchanged
    return rows


def test_table_8_has_columns_and_rows_exchanged():
    """As printed, FEVEROUS's and EX-FEVER's per cents are of the other's claims."""
    trained = {(row, of) for row in QWEN + LLAMA for of in ("feverous", "exfever")}
    rows = {(row, "fever") for of in (QWEN, LLAMA) for row in of[3:]}
    assert off(8) == trained | rows
    found = broken(table(8), lambda c: CLAIMS[set_of(c)])
    assert {(row, set_of(column)) for row, column in found} == trained
    assert not any(row == PROMPTED for row, _ in found)


def test_exchanged_back_table_8_agrees_with_the_others_but_for_one_cell():
    """30.68 of 294 claims cannot be; 50.68 is 149 of them, and makes the mean."""
    rows, odd = repaired(), (QWEN[2], "feverous_refute")
    assert broken(rows, lambda c: CLAIMS[set_of(c)]) == {odd}
    assert rows.at[odd] == 30.68
    rows.loc[odd] = 50.68
    assert whole(50.68, CLAIMS["feverous"])
    for of in CLAIMS:
        stated = table(1)[f"{of}_label_accuracy"]
        assert ((rows[names(of)].mean(axis=1) - stated).abs() < ROUNDED).all()
    for of in THREE:
        assert (rows[f"{of}_nei"] == table(2)[f"{of}_nei"]).all()
    known = [c for c in rows if c != "scifact_refute"]
    assert (table(7)[known] <= rows[known]).all(axis=None)


# What the prose says


def most(measure):
    """Online RL's largest gain over the instruct model, of either family."""
    rows = table(1)[[f"{of}_{measure}" for of in CLAIMS]]
    gains = [rows.loc[of[-1]] - rows.loc[of[0]] for of in (QWEN, LLAMA)]
    return max(gain.max() for gain in gains)


@pytest.mark.parametrize(
    ("measure", "printed"),
    [("joint", 30.11), ("label", 22.06), ("verification", 19.55)],
)
def test_the_largest_gains_are_those_of_the_prose_but_for_verification(
    measure, printed
):
    """The introduction says 23 points of verification accuracy; no set has 20."""
    stated = prose(f"points of {measure} accuracy above the instruct model's: at most")
    assert most(f"{measure}_accuracy") == pytest.approx(printed)
    assert (abs(printed - stated) < 0.6) == (measure != "verification")


def test_the_evidence_score_gains_what_the_prose_says():
    rows = table(3)
    gains = [rows.loc[of[-1]] / rows.loc[of[0]] - 1 for of in (QWEN, LLAMA)]
    stated = prose("evidence score above the instruct model's in per cent: at most")
    assert stated <= 100 * max(gain.max() for gain in gains) < stated + 5


def test_gpt_4o_has_a_lower_joint_accuracy_than_the_prose_says():
    rows = table(1).loc[PROMPTED, [f"{of}_joint_accuracy" for of in CLAIMS]]
    stated = "GPT-4o's joint accuracy in per cent: {} of five sets"
    assert rows.max() == prose(stated.format("highest"), "instruct")
    assert rows.min() == 24.71 < prose(stated.format("lowest"), "instruct")


def test_llamas_larger_model_finds_more_nei_than_the_smaller_against_the_prose():
    """§4.3 says of both families that the larger finds less."""
    rows = table(2)[[f"{of}_nei" for of in THREE]]
    assert (rows.loc[QWEN[3]] < rows.loc[QWEN[0]]).all()
    assert (rows.loc[LLAMA[3]] > rows.loc[LLAMA[0]]).all()
