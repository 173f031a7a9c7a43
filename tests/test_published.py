"""The published tables are whole and agree with themselves and each other."""

from importlib.resources import files

import pandas as pd
import pytest

DATASETS = ["CRAG", "NQ", "HotpotQA", "MuSiQue", "Average"]
JUDGES = ["Llama3.3-70B-Inst", "Qwen2.5-72B-Inst", "Gemma3-27B-Inst", "Average"]
MODELS = ["Qwen2.5-7B-Inst", "Llama3.1-8B-Inst"]
SCALES = ["Llama3.2-3B-Inst", "Qwen2.5-3B-Inst", *MODELS, "Qwen2.5-32B-Inst"]
REASON = [f"ternary_reason_{how}" for how in ("multiplicative", "additive")]
ARMS = {
    1: "prompting sft rft r_tuning rlhf rlkf binary ternary".split(),
    2: "prompting sft rft r_tuning ternary".split(),
    3: "binary binary_knowledge ternary ternary_knowledge".split(),
    4: ["dpo", *(f"iterative_dpo_{k}" for k in range(1, 5)), "ternary"],
    5: "prompting sft rft r_tuning ternary".split(),
    6: ["prompting", "ternary", *REASON, "ternary_reason_conditional"],
    7: ["ternary_strict_match", "ternary"],
    8: ["prompting", "ternary"],
}
KEYS = {
    1: {
        "setting": ["without retrieval", "with retrieval"],
        "model": MODELS,
        "arm": ARMS[1],
        "dataset": DATASETS,
    },
    2: {"arm": ARMS[2]},
    3: {"arm": ARMS[3], "dataset": DATASETS},
    4: {"arm": ARMS[4], "dataset": DATASETS},
    5: {"arm": ARMS[5], "judge": JUDGES},
    6: {"arm": ARMS[6]},
    7: {"arm": ARMS[7]},
    8: {"arm": ARMS[8], "model": SCALES},
}
VALUES = {1: ["T", "H", "A"], 2: ["T", "H", "U"], 6: ["T", "H", "reasoning_score"]}


def table(number):
    """A table of the paper, in per cent."""
    folder = files("factkit") / "published"
    return pd.read_csv(str(folder / f"truthrl_table{number}.csv"))


def values(number):
    return VALUES.get(number, ["T", "H"])


@pytest.mark.parametrize("number", KEYS)
def test_a_table_has_every_row_and_column_once_and_in_order(number):
    whole = pd.MultiIndex.from_product(KEYS[number].values(), names=KEYS[number])
    rows = table(number)
    assert list(rows.columns) == [*KEYS[number], *values(number)]
    assert pd.MultiIndex.from_frame(rows[list(KEYS[number])]).equals(whole)


@pytest.mark.parametrize("number", KEYS)
def test_values_are_percentages(number):
    rows = table(number)[values(number)]
    assert rows.notna().all(axis=None)
    assert rows["T"].between(-100, 100).all()
    assert rows.drop(columns="T").stack().between(0, 100).all()


def test_truthfulness_is_accuracy_less_hallucination_in_table_1():
    rows = table(1)
    assert ((rows.A - rows.H - rows["T"]).abs() < 0.11).all()
    assert (rows.A + rows.H <= 100).all()


def test_accuracy_hallucination_and_uncertainty_fill_table_2():
    rows = table(2)
    accuracy = rows["T"] + rows.H
    assert ((accuracy + rows.H + rows.U - 100).abs() < 0.11).all()


@pytest.mark.parametrize("number", [1, 3, 4, 5])
def test_averages_are_the_means_of_their_rows(number):
    rows = table(number)
    *groups, averaged = KEYS[number]
    is_average = rows[averaged] == "Average"
    means = rows[~is_average].groupby(groups)[values(number)].mean()
    stated = rows[is_average].set_index(groups)[values(number)]
    assert ((means - stated).abs() < 0.06).all(axis=None)


@pytest.mark.parametrize("number", [3, 4, 5, 6, 7, 8])
def test_tables_repeat_the_numbers_of_table_1(number):
    """An arm on CRAG with retrieval, of Llama unless the table says another model."""
    rows = table(number)
    for key, only in (("dataset", "CRAG"), ("judge", "Llama3.3-70B-Inst")):
        if key in rows:
            rows = rows[rows[key] == only]
    if "model" not in rows:
        rows = rows.assign(model="Llama3.1-8B-Inst")
    main = table(1).query("setting == 'with retrieval' and dataset == 'CRAG'")
    both = rows.merge(main, on=["arm", "model"], suffixes=("", "_1"))
    assert len(both) >= 1
    assert (both[["T", "H"]].to_numpy() == both[["T_1", "H_1"]].to_numpy()).all()
