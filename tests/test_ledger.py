"""The ledger: each claim's verdict by one rule, and what is said without one."""

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from factkit.report import claims, ledger
from factkit.report.claims import Claim
from factkit.report.figures import tables
from factkit.run import params, past_runs, statistics
from factkit.run.results import write_results

N = 40
RESULT = {
    "schema": 1,
    "notebook": "12_truthrl_train",
    "paper": "truthrl",
    "profile": "tiny",
    "variant": "",
    "status": "done",
    **dict.fromkeys(("params", "inputs", "versions"), {}),
    **dict.fromkeys(("started", "device", "git"), ""),
    "wall_s": 1.0,
    "deviations": [],
}


def result(arm, seed, metrics, folder=None):
    found = {"arm": arm, "seed": seed, "metrics": metrics}
    return found | ({"folder": str(folder)} if folder else {})


def with_items(folder, arm, seed, values, metric="accuracy", question="q"):
    """A result whose items.csv holds `values` of one metric."""
    folder = folder / f"tiny/12_truthrl_train/{arm}-s{seed}"
    folder.mkdir(parents=True)
    with (folder / "items.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["item", "arm", "seed", metric])
        written = ["" if v != v else v for v in values]
        rows.writerows([f"{question}{i}", arm, seed, v] for i, v in enumerate(written))
    content = RESULT | {"arm": arm, "seed": seed}
    return write_results(
        folder, content | {"metrics": {metric: float(np.nanmean(values))}}
    ) | {"folder": str(folder)}


def claim(**changes):
    """A claim that arm a is more accurate than arm b."""
    row = {"claim": "c", "where": "T", "metric": "accuracy", "more": "a", "less": "b"}
    return Claim(**row | changes)


def seeds(arm, values, metric="accuracy"):
    return [result(arm, s, {metric: v}) for s, v in enumerate(values)]


def curves(folder, arm, values):
    """Runs with items, of which `accuracy` is none: a value of the training curve."""
    return [
        with_items(folder, arm, seed, [1, 0] * 20, "reward")
        | {"metrics": {"accuracy": value}}
        for seed, value in enumerate(values)
    ]


def word(of, results):
    return claims.judge(of, {"": results}).word


def test_an_effect_within_the_items_noise_is_not_decided(tmp_path):
    """Three seeds that agree by chance, on 40 questions: the old rule held it."""
    base = np.array([1] * 20 + [0] * 20)
    flip, other = base.copy(), base
    flip[[0, 1]], flip[[20, 21, 22, 23]] = 0, 1  # six answers change, two more right
    results = [with_items(tmp_path, "a", s, flip) for s in range(3)]
    results += [with_items(tmp_path, "b", s, other) for s in range(3)]
    found = claims.judge(claim(), {"": results})
    assert (found.estimate.seeds, found.estimate.items) == (3, N)
    assert found.word == "undecided"
    without = [{**r, "folder": str(tmp_path)} for r in results]
    unstored = claims.judge(claim(), {"": without})
    assert unstored.word == "not measurable" and "no items" in unstored.why


def test_one_policy_stands_for_every_seed_and_has_no_variance_over_them(tmp_path):
    rng = np.random.default_rng(1)
    prompting = [with_items(tmp_path, "prompting", 0, rng.integers(0, 2, N))]
    trained = [with_items(tmp_path, "a", s, np.ones(N)) for s in range(3)]
    found = claims.judge(claim(less="prompting"), {"": prompting + trained})
    assert (found.word, found.estimate.seeds) == ("holds", 3)
    base = [with_items(tmp_path, "base", s, np.zeros(N)) for s in range(3)]
    both = claim(more="prompting", less="base")
    assert claims.judge(both, {"": prompting + base}).estimate.df == N - 1


def test_what_cannot_be_told_is_named(tmp_path):
    b = seeds("b", [0.5, 0.5, 0.5])
    assert word(claim(), seeds("a", [0.9]) + b) == "one seed"
    assert word(claim(), seeds("a", [0.9, 0.8]) + b) == "not measurable"
    assert word(claim(), b) == "not run"
    assert word(claim(metric="other"), seeds("a", [0.9]) + b) == "not run"
    assert word(claim(not_here="no GPU"), b) == claims.NOT_HERE
    there = curves(tmp_path / "curves", "a", [0.9, 0.8, 0.9])
    there += curves(tmp_path / "curves", "b", [0.5] * 3)
    found = claims.judge(claim(not_here="no GPU"), {"": there})
    assert found.word == "holds" and "over seeds alone" in found.why
    equal = [
        with_items(tmp_path, arm, s, [1, 0] * 20) for arm in "cd" for s in range(3)
    ]
    found = claims.judge(claim(more="c", less="d"), {"": equal})
    assert found.word == "not measurable" and "no variance" in found.why
    few = [with_items(tmp_path, arm, s, [1, 0] * 5) for arm in "ab" for s in range(3)]
    found = claims.judge(claim(), {"": few})
    assert (found.word, found.why) == ("not measurable", "only 10 items; 20 are needed")


def test_bounds_are_of_the_difference_or_a_share_of_the_other_arm(tmp_path):
    b = curves(tmp_path, "b", [0.50, 0.51, 0.52])
    a = curves(tmp_path, "a", [0.480, 0.491, 0.500])
    assert word(claim(), a + b) == "fails"
    assert word(claim(least="-10%"), a + b) == "holds"
    assert word(claim(least="-3"), a + b) == "holds"
    higher = curves(tmp_path / "higher", "a", [0.600, 0.611, 0.620])
    assert word(claim(most="5"), higher + b) == "fails"
    assert word(claim(least="5", most="15"), higher + b) == "holds"


def test_many_claims_are_adjusted_together(tmp_path):
    """A claim barely decided is not, beside nineteen that show nothing."""
    values = {"a": [0.60, 0.65, 0.70], "b": [0.50] * 3}
    values |= {"c": [0.5, 0.4, 0.6], "d": [0.4, 0.6, 0.5]}
    runs = [
        run for arm, three in values.items() for run in curves(tmp_path, arm, three)
    ]
    many = [claim(), *[claim(more="c", less="d")] * 19]
    table = ledger.check(many, {"": runs})
    assert table.verdict[0] == "holds"
    assert table["all together"][0] == "undecided"
    assert ledger.by_chance(list(table.verdict)) == pytest.approx(20 * 0.025)


def test_arms_of_two_settings_are_compared_on_the_questions_that_both_have(tmp_path):
    """One setting has twenty further questions, which it answers badly."""
    few = [with_items(tmp_path / "few", "a", s, [1, 1, 0] * 10) for s in range(3)]
    rows = [1, 0, 0] * 10 + [0] * 20
    many = [with_items(tmp_path / "many", "a", s, rows) for s in range(3)]
    across = claim(more="a@retrieval", less="a")
    found = claims.judge(across, {"retrieval": few, "": many})
    assert found.estimate.value == pytest.approx(100 / 3)
    assert found.estimate.items == 30
    others = [
        with_items(tmp_path / "c", "c", s, [1, 0] * 20, question="r") for s in range(3)
    ]
    apart = claims.judge(
        claim(more="a@retrieval", less="c"), {"retrieval": few, "": others}
    )
    assert (apart.word, apart.why) == (
        "not measurable",
        "the arms have no test item in common",
    )


def test_a_verdict_against_an_untrained_policy_that_is_never_right_says_so(tmp_path):
    never = [with_items(tmp_path, "prompting", 0, np.zeros(N))]
    trained = [with_items(tmp_path, "a", s, [1, 1, 1, 0] * 10) for s in range(3)]
    found = claims.judge(claim(less="prompting"), {"": never + trained})
    assert (found.word, found.why) == ("holds", "the untrained prompting scores 0")


def test_main_runs_that_retrieve_are_judged_in_the_paper_s_setting_retrieval():
    reads = {"params": {"retriever": "bm25"}}
    results = {
        name: [
            r | reads for r in seeds("a", [0.6 + i / 50] * 3) + seeds("b", [0.5] * 3)
        ]
        for i, name in enumerate(("", "split1", "split2"))
    }
    results["closedbook"] = seeds("a", [0.4] * 3) + seeds("b", [0.5] * 3)
    claims = [claim(setting="retrieval"), claim()]
    table = ledger.check(claims, results)
    reading, memory = table.to_dict("records")
    assert (reading["ours"][:5], memory["ours"][:5]) == ("+10.0", "-10.0")
    mean, half = statistics.t_interval([10, 12, 14])
    assert reading["three worlds"] == f"{mean:+.1f} ± {half:.1f}, holds"
    assert memory["three worlds"] == ""
    assert ledger.over_worlds(table) == (0, 0)  # without items there is no verdict
    assert ledger.over_worlds(table.assign(verdict="holds")) == (1, 1)
    assert ledger.over_worlds(table.assign(verdict="fails")) == (1, 0)


def trained(arm, seed, value, reward=None, **changes):
    """A training run's results at profile tiny with some parameters changed."""
    p = params.load("truthrl", "tiny", {"arm": arm, "seed": seed} | changes)
    made = {"paper": "truthrl", "profile": "tiny", "params": p.model_dump()}
    recipe = {"recipe": {"grpo": {"make_reward": reward}}} if reward else {}
    return result(arm, seed, {"accuracy": value}) | made | recipe


def test_runs_made_in_another_way_are_never_averaged():
    """With other parameters, data or reward; what the arm does not read is no other."""
    usual = [trained("ternary", s, 0.5, "kit") for s in range(3)]
    usual = [r | {"inputs": {"a/x.jsonl": "1" * 64}} for r in usual]
    slow = trained("ternary", 3, 0.9, "kit", rl_learning_rate=1e-5)
    slow |= {"inputs": {"a/x.jsonl": "1" * 64}}
    mine = usual[0] | {"seed": 4, "recipe": {"grpo": {"make_reward": "mine 12"}}}
    data = usual[0] | {"seed": 5, "inputs": {"a/x.jsonl": "2" * 64}}
    table = tables.results_table([*usual, slow, mine, data], ["accuracy"])
    assert dict(table["seeds"]) == {
        "ternary": 3,
        "ternary (input x.jsonl=22222222)": 1,
        "ternary (make_reward=mine 12)": 1,
        "ternary (rl_learning_rate=1e-05)": 1,
    }
    alike = [trained("sft", 0, 0.5), trained("sft", 1, 0.5, rl_steps=7)]
    assert {r["arm"] for r in past_runs.separate_settings(alike)} == {"sft"}


# ---- means over answers


def long_form(folder, arm, seed, precisions):
    """A run whose items have a precision where the request was answered."""
    made = with_items(folder, arm, seed, precisions, "factual_precision")
    made["metrics"]["response_rate"] = float(np.isfinite(precisions).mean())
    return made


def test_a_gain_that_is_all_silence_is_none_on_the_same_answers(tmp_path):
    """Arm a answers the well answered half of b's requests, and no better."""
    good, bad, silent = [0.9, 0.8] * 15, [0.1, 0.2] * 15, [float("nan")] * 30
    results = [long_form(tmp_path, "a", s, good + silent) for s in range(3)]
    results += [long_form(tmp_path, "b", s, good + bad) for s in range(3)]
    of_answers = claim(metric="factual_precision")
    table = ledger.check([of_answers], {"": results})
    row = table.iloc[0]
    assert (row.verdict, row.ours[:5]) == ("holds", "+35.0")
    assert row["same answered"] == "+0.0 ± 0.0, not measurable"
    assert "Of 1 claims" in ledger.count_checks(table)
    both = ledger.check([of_answers, claim()], {"": results})
    assert list(both["same answered"])[1] == "–"
    assert "same answered" not in ledger.check([claim()], {"": results})


def test_training_that_only_silences_changes_nothing_on_the_same_answers(tmp_path):
    good, bad, silent = [0.9, 0.8] * 15, [0.1, 0.2] * 15, [float("nan")] * 30
    results = [long_form(tmp_path, "statement", s, good + silent) for s in range(3)]
    results += [long_form(tmp_path, "base", s, good + bad) for s in range(3)]
    row = ledger.same_answered("rlfh", results, "factual_precision").loc["statement"]
    assert row["change"].startswith("+35.0 ± ")
    assert row["same answered"] == "+0.0 ± 0.0"
    assert row["by silence"] == "+35.0"
    assert (row["answered before"], row["answered after"]) == ("100", "50")


def test_an_answer_is_compared_with_the_first_claim_of_the_start_where_both_answer(
    tmp_path,
):
    """After training 0.8 and 0.9 where the first claims are right in one of two."""
    after, first = [0.8, 0.9] * 15 + [float("nan")] * 30, [1.0, 0.0] * 15 + [0.0] * 30
    results = [long_form(tmp_path, "statement", s, after) for s in range(3)]
    base = long_form(tmp_path, "base", 0, [0.3, 0.5] * 30)
    folder = Path(base.pop("folder"))
    table = pd.read_csv(folder / "items.csv").assign(precision_at_1=first)
    table.to_csv(folder / "items.csv", index=False)
    base["metrics"]["precision_at_1"] = 0.25
    base = write_results(folder, base) | {"folder": str(folder)}
    table = ledger.same_answered("rlfh", [*results, base], "factual_precision")
    assert table.loc["statement"]["over first claims"].startswith("+35.0 ± ")


def test_a_claim_says_whose_results_it_was_judged_by():
    mine, shipped = seeds("a", [0.5, 0.6, 0.7]), seeds("b", [0.1, 0.2, 0.3])
    shipped = [r | {"reference": True} for r in shipped]
    table = ledger.check([claim()], {"": mine + shipped})
    assert list(table["results"]) == ["own − reference"]
    assert "results" not in ledger.check([claim()], {"": mine})
