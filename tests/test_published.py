"""The published tables agree with themselves, each other, the claims and the prose."""

from importlib.resources import files

import pandas as pd
import pytest

from factkit.report import claims
from factkit.report import published as papers

CRAG, LLAMA = "CRAG", "Llama3.1-8B-Inst"
DATASETS = [CRAG, "NQ", "HotpotQA", "MuSiQue", "Average"]
JUDGES = ["Llama3.3-70B-Inst", "Qwen2.5-72B-Inst", "Gemma3-27B-Inst", "Average"]
MODELS = ["Qwen2.5-7B-Inst", LLAMA]
SCALES = ["Llama3.2-3B-Inst", "Qwen2.5-3B-Inst", *MODELS, "Qwen2.5-32B-Inst"]
SETTINGS = ["without retrieval", "with retrieval"]
MAIN = "prompting sft rft r_tuning rlhf rlkf binary ternary".split()
FEW = "prompting sft rft r_tuning ternary".split()
KNOWLEDGE = "binary binary_knowledge ternary ternary_knowledge".split()
DPO = ["dpo", *(f"iterative_dpo_{k}" for k in range(1, 5)), "ternary"]
REASON = [
    f"ternary_reason_{how}" for how in ("multiplicative", "additive", "conditional")
]
# TruthRL's table → the values of its key columns
KEYS = {
    1: {"setting": SETTINGS, "model": MODELS, "arm": MAIN, "dataset": DATASETS},
    2: {"arm": FEW},
    3: {"arm": KNOWLEDGE, "dataset": DATASETS},
    4: {"arm": DPO, "dataset": DATASETS},
    5: {"arm": FEW, "judge": JUDGES},
    6: {"arm": ["prompting", "ternary", *REASON]},
    7: {"arm": ["ternary_strict_match", "ternary"]},
    8: {"arm": ["prompting", "ternary"], "model": SCALES},
}
POINTS, SHARE = 0.051, 0.6  # what rounding may add: of points, of whole per cents
VALUES = {1: ["T", "H", "A"], 2: ["T", "H", "U"], 6: ["T", "H", "reasoning_score"]}


def published(paper, name):
    path = files("factkit") / "papers" / paper / "published" / f"{name}.csv"
    return pd.read_csv(str(path))


def table(number, paper="truthrl"):
    """A table of a paper, in per cent."""
    return published(paper, f"table{number}")


def prose(paper, what, arm):
    """The number that a paper's text states of an arm."""
    return published(paper, "text").set_index(["what", "arm"]).value[what, arm]


def values(number):
    return VALUES.get(number, ["T", "H"])


# ---- TruthRL


def test_truthrl_s_tables_have_every_row_once_and_in_order_in_per_cent():
    for number, keys in KEYS.items():
        whole = pd.MultiIndex.from_product(keys.values(), names=keys)
        rows = table(number)
        assert list(rows.columns) == [*keys, *values(number)], number
        assert pd.MultiIndex.from_frame(rows[list(keys)]).equals(whole), number
        numbers = rows[values(number)]
        assert numbers.notna().all(axis=None), number
        assert numbers["T"].between(-100, 100).all(), number
        assert numbers.drop(columns="T").stack().between(0, 100).all(), number


def test_rates_add_up_averages_are_means_and_tables_repeat_table_1():
    """An arm on CRAG with retrieval, of Llama unless the table says another model."""
    first, second = table(1), table(2)
    assert ((first.A - first.H - first["T"]).abs() < 0.11).all()
    assert ((second["T"] + 2 * second.H + second.U - 100).abs() < 0.11).all()
    for number in (1, 3, 4, 5):
        rows = table(number)
        *groups, averaged = KEYS[number]
        is_average = rows[averaged] == "Average"
        means = rows[~is_average].groupby(groups)[values(number)].mean()
        stated = rows[is_average].set_index(groups)[values(number)]
        assert ((means - stated).abs() < 0.06).all(axis=None), number
    first = first.query("setting == 'with retrieval' and dataset == 'CRAG'")
    for number in (3, 4, 5, 6, 7, 8):
        rows = table(number)
        for key, only in (("dataset", CRAG), ("judge", JUDGES[0])):
            rows = rows[rows[key] == only] if key in rows else rows
        rows = rows if "model" in rows else rows.assign(model=LLAMA)
        both = rows.merge(first, on=["arm", "model"], suffixes=("", "_1"))
        assert len(both) >= 1, number
        assert (both[["T", "H"]].to_numpy() == both[["T_1", "H_1"]].to_numpy()).all()


def cell(arm, column, dataset=CRAG, setting="with retrieval"):
    """A cell of table 1, of Llama3.1-8B."""
    rows = table(1).set_index(["setting", "model", "arm", "dataset"])
    return rows[column][setting, LLAMA, arm, dataset]


def printed(setting, arm, metric):
    """The paper's value of a claim's arm, in per cent; None where no table has it."""
    of = {"truthfulness": "T", "hallucination": "H", "accuracy": "A"}
    if metric == "abstention":
        rest = [printed(setting, arm, m) for m in ("accuracy", "hallucination")]
        return None if None in rest else 100 - sum(rest)
    if metric not in of:
        return None
    if arm in MAIN:
        return cell(arm, of[metric], setting=SETTINGS[bool(setting)])
    if metric == "accuracy":
        rest = [printed(setting, arm, m) for m in ("truthfulness", "hallucination")]
        return sum(rest)
    for number in (3, 4, 6, 7):
        rows = table(number)
        rows = rows[rows.dataset == CRAG] if "dataset" in rows else rows
        if arm in set(rows.arm):
            return rows.set_index("arm")[of[metric]][arm]
    return None


def test_the_papers_number_of_a_claim_is_that_of_its_tables():
    checked = 0
    for claim in claims.read_claims("truthrl"):
        number, _, added = claim.paper.partition(" with retrieval")
        both = "retrieval" if claim.paper.endswith("with retrieval") else ""
        if claim.setting not in ("", "retrieval", "reasoning"):
            continue
        numbers = [printed(s or both, arm, m) for s, arm, m in claim.arms]
        if None in numbers or added or "judge" in claim.claim:
            continue
        expected = numbers[0] - (numbers[1] if len(numbers) > 1 else 0)
        assert float(number) == pytest.approx(expected, abs=POINTS), claim
        checked += 1
    assert checked > 100


# ---- the other papers


def reason(number):
    """The rows of Learning to Reason's own arms, by arm."""
    return papers.select_rows(number, "reason").set_index("arm")


def test_gains_and_averages_of_table_2_are_those_of_the_prose():
    rows = reason(2)
    above, more = "points of precision above {}", "detail above {} in per cent"
    model, best, detailed = "the base model", "fact_relevance", "fact_detail_relevance"
    for what, arm, other in (
        (above.format(model), "fact", "base"),
        (above.format(model), best, "base"),
        (above.format(model), "fact_detail10_relevance", "base"),
        (above.format(best), detailed, best),
        (more.format(f"{model}'s"), best, "base"),
        (more.format(f"{model}'s"), "fact_detail10_relevance", "base"),
        (more.format(f"{best}'s"), detailed, best),
    ):
        gained = rows.precision[arm] - rows.precision[other]
        if what.startswith("detail"):
            gained = 100 * rows.supported[arm] / rows.supported[other] - 100
        tolerance = SHARE if what.startswith("detail") else POINTS
        assert abs(gained - prose("reason", what, arm)) < tolerance, (what, arm)
    for arm in ("fact", "fact_detail", "fact_relevance", "fact_detail10_relevance"):
        stated = prose("reason", "average win rate in per cent", arm)
        assert rows.win_rate[arm] == stated


RLFH_PROMPTS = {"hotpotqa": 256, "squad_v2": 191, "biography": 182}


def test_rlfh_s_response_rates_are_of_a_whole_number_of_prompts():
    """Of 182 biographies, not FActScore's 183."""
    for name, n in RLFH_PROMPTS.items():
        shares = {round(100 * k / n, 1) for k in range(n + 1)}
        assert table(1, "rlfh")[f"{name}_response_rate"].isin(shares).all(), name
