"""The published tables are whole; they agree with themselves, each other, the prose."""

from importlib.resources import files

import pandas as pd
import pytest

from factkit import arms, ledger
from factkit.figures import tables
from factkit.figures.tables import PAPER_DEFAULT
from factkit.reason.arms import ARMS as REASON_ARMS
from factkit.reason.rewards import WEIGHTS

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
VALUES = {1: ["T", "H", "A"], 2: ["T", "H", "U"], 6: ["T", "H", "reasoning_score"]}
POINTS, SHARE = 0.051, 0.6  # what rounding may add: of points, of whole per cents


def published(name):
    return pd.read_csv(str(files("factkit") / "published" / f"{name}.csv"))


def table(number, paper="truthrl"):
    """A table of a paper, in per cent."""
    return published(f"{paper}_table{number}")


def prose(paper, what, arm):
    """The number that a paper's text states of an arm."""
    return published(f"{paper}_text").set_index(["what", "arm"]).value[what, arm]


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


def gain(column, baseline, *where):
    return cell("ternary", column, *where) - cell(baseline, column, *where)


def test_truthrl_s_text_says_the_numbers_of_its_tables():
    """The conclusion's averages are those against SFT with retrieval."""
    on_crag = "on CRAG with retrieval in per cent"
    up_to = "average points of {} a baseline: up to"
    hard = "{} on difficult questions in per cent"
    ternary = {
        f"truthfulness {on_crag}": cell("ternary", "T"),
        f"hallucination {on_crag}": cell("ternary", "H"),
        "points of truthfulness above prompting": gain("T", "prompting"),
        "points of hallucination below prompting": -gain("H", "prompting"),
        up_to.format("truthfulness above"): gain("T", "sft", "Average"),
        up_to.format("hallucination below"): -gain("H", "sft", "Average"),
        hard.format("hallucination"): 100
        - prose("truthrl", hard.format("abstention"), "ternary"),
    }
    prompting = {
        f"truthfulness {on_crag}": cell("prompting", "T"),
        f"hallucination {on_crag}": cell("prompting", "H"),
        "reasoning score in per cent": table(6).reasoning_score[0],
    }
    for arm, stated in (("ternary", ternary), ("prompting", prompting)):
        for what, value in stated.items():
            assert prose("truthrl", what, arm) == pytest.approx(value), what
    made = sum(
        cell("prompting", column)
        * prose("truthrl", f"reasoning score of {kind} responses in per cent", arm)
        for kind, column in (("correct", "A"), ("wrong", "H"))
    )
    assert abs(made / 100 - stated["reasoning score in per cent"]) < 0.06


def fits(n, values):
    """Whether per cents, as printed, can all be of n questions."""
    return all(f"{100 * round(v * n / 100) / n:.1f}" == f"{v:.1f}" for v in values)


def test_the_printed_per_cents_tell_how_many_questions_there_were():
    of_crag = table(1).query("dataset == 'CRAG'")[["H", "A"]].stack()
    of_crag = pd.concat([of_crag, table(8).H, table(5).query("judge != 'Average'").H])
    assert [n for n in range(50, 900) if fits(n, of_crag)] == [643, 881]
    offered = table(2)[["H", "U"]].stack()
    assert [n for n in range(20, 200) if fits(n, offered)] == [103]


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
    for claim in ledger.claims("truthrl"):
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


def test_every_test_set_of_every_paper_says_how_many_items_and_why():
    for paper in arms.PAPERS:
        rows = tables.test_sets(paper)
        assert len(rows) >= 3 and rows.index.is_unique
        assert (rows["where"] != "").all()
        differs = rows["the paper's"] != rows["ours, whole"]
        unexplained = differs & (rows["the paper's"] == "")
        assert (rows["why they differ"][unexplained] != "").all()


# ---- Learning to Reason for Factuality: Table 1 is cut after Biography in the scan

SETS = ["longfact", "fava", "alpaca_fact", "biography"]


def reason(number):
    """The rows of the paper's own arms, by arm."""
    rows = table(number, "reason")
    return rows[rows.model.isin(PAPER_DEFAULT["model"])].set_index("arm")


def columns(measure):
    return [f"{name}_{measure}" for name in SETS]


def test_the_reason_tables_have_every_column_and_arm_and_the_trained_weights():
    measures = ["precision", "detail", "win_rate"]
    first, second = table(1, "reason"), table(2, "reason")
    of_sets = [f"{name}_{measure}" for name in SETS for measure in measures]
    assert list(first.columns) == ["model", "arm", *of_sets]
    assert list(reason(1).index) == ["base", "sft", "sft_dpo", "fact_relevance"]
    assert list(reason(2).index) == ["base", *WEIGHTS]
    assert set(reason(1).index) | set(reason(2).index) == set(REASON_ARMS)
    for column in columns("win_rate"):  # only base models lack it
        assert list(first[column].isna()) == list(first.arm == "base")
    assert not first.drop(columns=columns("win_rate")).isna().any(axis=None)
    assert not second.drop(columns=["lambda", "mu"]).isna().any(axis=None)
    weights = reason(2).drop(index="base")[["lambda", "mu"]]
    assert {row.Index: tuple(row[1:]) for row in weights.itertuples()} == WEIGHTS


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


def test_averages_leave_the_two_sets_that_are_cut_a_value_like_the_others():
    """Within a point of the range of the four: a row that is shifted falls out."""
    base, best = reason(2).loc["base"], reason(2).loc["fact_relevance"]
    above = "points of precision above the base model"
    averages = {
        ("precision", "base"): base.precision,
        ("precision", "fact_relevance"): best.precision,
        ("precision", "sft"): base.precision + prose("reason", above, "sft"),
        ("precision", "sft_dpo"): base.precision + prose("reason", above, "sft_dpo"),
        ("detail", "base"): base.supported,
        ("detail", "fact_relevance"): best.supported,
        ("win_rate", "fact_relevance"): best.win_rate,
        ("win_rate", "sft_dpo"): prose(
            "reason", "average win rate in per cent", "sft_dpo"
        ),
    }
    for (measure, arm), average in averages.items():
        read = reason(1).loc[arm, columns(measure)]
        cut = (6 * average - read.sum()) / 2  # the mean of the two
        assert read.min() - 1 < cut < read.max() + 1, (measure, arm)


# ---- RLFH: its tables print rates as fractions; here they are in per cent

PROMPTS = {"hotpotqa": 256, "squad_v2": 191, "biography": 182}
COUNTED = ["correct", "incorrect", "response_rate", "precision"]


def rlfh(number):
    """The rows of Vicuna-7B, by arm, or by annotator where there is one arm."""
    rows = table(number, "rlfh")
    key = "annotator" if number == 3 else "arm"
    return rows[rows.model == "Vicuna-7B"].set_index(key)


def test_the_rlfh_tables_have_every_column_and_arm_and_repeat_a_row():
    of_sets = [f"{name}_{column}" for name in PROMPTS for column in COUNTED]
    assert list(table(1, "rlfh").columns) == ["model", "arm", *of_sets]
    assert list(table(2, "rlfh").columns) == ["model", "arm", *COUNTED]
    assert list(rlfh(1).index) == ["base", "iti", "dola", "dpo", "statement"]
    assert list(rlfh(2).index) == ["paragraph", "sentence", "statement"]
    assert set(rlfh(3).arm) == {"statement"} and len(rlfh(3)) == 6
    assert not any(table(n, "rlfh").isna().any(axis=None) for n in (1, 2, 3, 8))
    row = rlfh(1).loc["statement", of_sets[:4]].set_axis(COUNTED)
    assert (rlfh(2).loc["statement", COUNTED] == row).all()
    assert (rlfh(3).loc["Mixtral-8x7B", COUNTED] == row).all()


def test_response_rates_are_of_a_whole_number_of_prompts():
    """Of 182 biographies, not FActScore's 183; one rate of table 3 is of none."""
    for name, n in PROMPTS.items():
        shares = {round(100 * k / n, 1) for k in range(n + 1)}
        assert table(1, "rlfh")[f"{name}_response_rate"].isin(shares).all(), name
        if name == "hotpotqa":
            rates = rlfh(3).response_rate
            assert list(rates.index[~rates.isin(shares)]) == ["Vicuna-7B"]
            assert rlfh(2).response_rate.isin(shares).all()


def test_rlfh_s_gains_are_those_of_the_prose_and_its_example_rewards_rise():
    """Gains: the mean over the data sets of each one's relative gain."""
    whose = {"base": "the base model's", "dpo": "earlier learning-based methods'"}
    for arm, name in whose.items():
        precision = rlfh(1)[[f"{of}_precision" for of in PROMPTS]]
        gains = 100 * precision.loc["statement"] / precision.loc[arm] - 100
        stated = prose("rlfh", f"FactScore above {name} in per cent", "statement")
        assert abs(gains.mean() - stated) < POINTS, arm
    rows = table(8, "rlfh")
    assert list(rows.groupby("prompt", sort=False).size()) == [3, 3]
    for _, examples in rows.groupby("prompt"):
        assert examples.reward.is_monotonic_increasing
    assert list(rows.reward[rows.response == "refuses"]) == [0]
