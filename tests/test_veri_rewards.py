"""Veri-R1's reward: its equations by hand, its properties, TRL's signature."""

import itertools
from types import SimpleNamespace

import pytest

from factkit.papers.veri import rewards as veri
from factkit.papers.veri.rewards import reward, validity
from factkit.verify.trajectory import LABELS, Answer

SUPPORT, REFUTE, NEI = LABELS
SWITCHES = ("evidence_reward", "validity_weight", "format_reward", "validity_at_half")


def cites(evidence, label=SUPPORT):
    """An answer that cites the letters of `evidence`."""
    return Answer(label, tuple(evidence))


# ---- the equations


def test_validity_is_that_of_the_paper_or_of_its_code():
    for label in (SUPPORT, REFUTE):
        for evidence, strict, at_half in (
            ("", 0, 0),
            ("a", 0, 0),
            ("ab", 0, 0.5),  # where the paper and its public code differ
            ("abc", 0.5, 0.5),
            ("abcd", 1, 1),
            ("abcdxyz", 1, 1),
            ("xyz", 0, 0),
        ):
            assert validity(cites(evidence), label, "abcd") == strict
            half = validity(cites(evidence), label, "abcd", at_half=True)
            assert half == at_half
    for answer, gold in itertools.product(LABELS, ("", "ab")):
        assert validity(cites("", answer), NEI, gold) == 1
    assert validity(cites("", NEI), SUPPORT, "ab") == 0  # by the claim's label


def test_the_reward_is_the_sum_of_its_terms():
    for answer, formed, label, gold, by_hand in (
        (cites("ab"), True, SUPPORT, "ab", 2 * 1 + 1 + 1),
        (cites("ab"), False, SUPPORT, "ab", 2 * 1 + 1 + 0),
        (cites("abc"), True, SUPPORT, "ab", 2 * 1 + 2 / 3 + 1),
        (cites("a"), True, SUPPORT, "ab", 2 * 0 + 1 / 2 + 1),
        (cites("abx"), True, SUPPORT, "abc", 2 * 0.5 + 2 / 4 + 1),
        (cites("ab"), True, REFUTE, "ab", 0 + 1 + 1),
        (cites("", NEI), True, NEI, "ab", 2 * 1 + 0 + 1),
        (cites("a", NEI), True, SUPPORT, "ab", 0 + 1 / 2 + 1),
        (cites("", None), False, SUPPORT, "ab", 0),
    ):
        assert reward(answer, formed, label, gold) == pytest.approx(by_hand)


def test_a_claim_without_gold_evidence_or_with_another_label_is_refused():
    for label in (SUPPORT, REFUTE):
        with pytest.raises(ValueError, match="no gold evidence"):
            reward(cites("a"), True, label, [])
    for label in ("SUPPORTS", "support", "NEI", ""):
        with pytest.raises(ValueError, match="not one of SUPPORT, REFUTE, NOT ENOUGH"):
            reward(cites("a"), True, label, "a")


# ---- TRL

SETTING = {
    "arm": "online_rl",
    "evidence_reward": True,
    "validity_weight": True,
    "format_reward": True,
    "validity_at_half": False,
    "online": True,
    "max_searches": 3,
}
RIGHT = "<answer>\nLabel: SUPPORT\nEvidence: [[a]], [[b]]\n</answer>"
UNSURE = "<answer>\nLabel: NOT ENOUGH INFO\nEvidence:\n</answer>"


def searched(answer, searches=1):
    """A trajectory with searches, as its JSON."""
    look = [
        ["<search>q</search>", True],
        ["<information>[[a]]: i</information>", False],
        ["<think>t</think>", True],
    ]
    return [["<plan>p</plan>", True], *look * searches, [answer, True]]


def text_of(trajectory):
    return "".join(text for text, _ in trajectory)


def function(tmp_path, **setting):
    return veri.reward_function(SimpleNamespace(**SETTING | setting), tmp_path)


def call(function, trajectories, y=SUPPORT, gold=("a", "b"), **more):
    """The rewards of trajectories to one and the same claim, as TRL asks for them."""
    n = len(trajectories)
    rows = {
        "prompts": ["formatted"] * n,
        "completions": [text_of(of) for of in trajectories],
        "completion_ids": [[1] * 3] * n,
        "trajectory": trajectories,
        "label": [y] * n,
        "evidence": [list(gold)] * n,
    }
    return function(**rows | more)


def test_the_adapter_scores_trajectories(tmp_path):
    half = RIGHT.replace(", [[b]]", "")
    said = [searched(RIGHT, 3), searched(half), searched(UNSURE), searched(RIGHT, 4)]
    assert call(function(tmp_path), said) == [4, 0.5 + 1, 1, 3]
    assert call(function(tmp_path), said, NEI, ()) == [1, 1, 3, 0]
    assert function(tmp_path).__name__ == "veri_online_rl"  # in metrics' names


def test_the_adapter_obeys_the_runs_switches(tmp_path):
    half = [searched(RIGHT.replace(", [[b]]", ""))]
    expected = {
        "evidence_reward": 1,
        "validity_weight": 3.5,
        "format_reward": 0.5,
    }
    for name, value in expected.items():
        assert call(function(tmp_path, **{name: False}), half) == [value]
    assert call(function(tmp_path, validity_at_half=True), half) == [2.5]
    only = function(tmp_path, **dict.fromkeys(SWITCHES[:3], False))
    assert call(only, [*half, [["", True]]]) == [2, 0]
    assert call(function(tmp_path, max_searches=0), half) == [0.5]


def test_information_that_the_model_wrote_has_no_reward_for_form(tmp_path):
    """The same text, once with the system's information and once with the model's."""
    honest = searched(RIGHT)
    lie = [[text, True] for text, _ in honest]
    assert text_of(honest) == text_of(lie)
    assert call(function(tmp_path), [honest, lie]) == [4, 3]


def test_without_search_the_completion_is_the_trajectory(tmp_path):
    offline = function(tmp_path, arm="offline_rl", online=False)
    thought = "<think>t</think>"
    said = [thought + RIGHT, RIGHT, thought + UNSURE, ""]
    rows = {"label": [SUPPORT] * 4, "evidence": [["a", "b"]] * 4}
    assert offline(completions=said, **rows) == [4, 3, 1, 0]
    chat = [[{"role": "assistant", "content": text}] for text in said]
    assert offline(completions=chat, **rows) == [4, 3, 1, 0]


def test_the_adapter_logs_a_batchs_means(tmp_path):
    half = RIGHT.replace(", [[b]]", "")
    said = [searched(RIGHT, 3), searched(half, 0), searched(UNSURE), [["x", True]]]
    logged = {}
    call(function(tmp_path), said, log_metric=logged.__setitem__)
    assert logged == {
        "evidence_score": (1 + 1 / 2 + 0 + 0) / 4,
        "checkable_evidence_score": (1 + 1 / 2 + 0 + 0) / 4,
        "verification_accuracy": 1 / 4,
        "label_accuracy": 2 / 4,
        "evidence_cover": 1 / 4,
        "format_share": 3 / 4,
        "searches": (3 + 0 + 1 + 0) / 4,
    }
    logged.clear()
    call(function(tmp_path), said, NEI, (), log_metric=logged.__setitem__)
    assert not {"evidence_cover", "checkable_evidence_score"} & set(logged)


def test_a_curve_is_told_by_what_it_is_at_parts_of_the_training():
    import pandas as pd

    steps = list(range(1, 101))
    columns = {"step": steps, "evidence_score": steps, "evidence_cover": [0.5] * 100}
    found = veri.course(pd.DataFrame(columns))
    name = "rollout_evidence_score"
    assert found[name] == 50.5
    assert [found[f"{name}_{when}"] for when in veri.TIMES] == [
        5.5,
        40.5,
        60.5,
        80.5,
        95.5,
    ]
    assert found["rollout_evidence_cover_60"] == 0.5
    assert "rollout_verification_accuracy" not in found


def test_a_rollout_of_several_updates_is_told_by_its_first_and_never_by_nan():
    import pandas as pd

    nan = float("nan")
    columns = {"step": [1, 2, 3, 4], "evidence_score": [0.2, nan, 0.4, nan]}
    found = veri.course(pd.DataFrame(columns))
    assert found["rollout_evidence_score"] == pytest.approx(0.3)
    assert all(value == value for value in found.values())
