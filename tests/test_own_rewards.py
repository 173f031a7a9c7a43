"""A user's own reward is known by all that it uses, in every process."""

import functools

import pytest

from factkit import UserError
from factkit.papers.truthrl import rewards
from factkit.run import identity, params, past_runs, runs
from factkit.train.launch import function_identity


def test_a_lambda_is_refused_for_no_run_can_be_named_after_it(tmp_path):
    p = params.load("truthrl", "tiny", {"output_dir": str(tmp_path)})
    with pytest.raises(UserError, match="define it by `def`"):
        runs.start("90_workshop_reward", p, reward=lambda outcome, unknown: 0.0)


def ternary(outcome, unknown):
    return 0.5


def test_a_reward_named_like_an_arm_leaves_the_arm_alone(tmp_path, capsys):
    p = params.load("truthrl", "tiny", {"output_dir": str(tmp_path), "arm": "ternary"})
    with runs.start("12_truthrl_train", p) as run:
        run.finish({"accuracy": 0.5})
    with runs.start("12_truthrl_train", p, reward=ternary) as own:
        own.finish({"accuracy": 0.9})
    assert (own.arm, own.folder.parent.name) == ("own/ternary", "own")
    assert runs.read_results(run.folder)["metrics"] == {"accuracy": 0.5}
    results = past_runs.stored("truthrl", "tiny", tmp_path)[""]
    assert [(r["arm"], r["metrics"]["accuracy"]) for r in results] == [("ternary", 0.5)]
    assert "moved" not in capsys.readouterr().out


def test_a_changed_reward_moves_its_run_aside_and_is_shown(tmp_path, capsys):
    p = params.load("truthrl", "tiny", {"output_dir": str(tmp_path)})

    def start(source):
        path = tmp_path / "cell.py"
        path.write_text(source, "utf-8")
        names = {"__name__": "__main__"}
        exec(compile(source, str(path), "exec"), names)
        return runs.start("90_workshop_reward", p, reward=names["mine"])

    cell = "def mine(outcome, unknown):\n    return {}\n"
    with start(cell.format("0.5")) as run:
        run.finish({"accuracy": 0.5})
    with start(cell.format("0.5")):
        assert runs.read_results(run.folder)
    with start(cell.format("-0.5")):
        assert runs.read_results(run.folder) is None
    shown = capsys.readouterr().out
    assert "-    return 0.5\n+    return -0.5" in shown
    assert "moved to mine-s0.stale-1" in shown
    assert len(shown.splitlines()) <= 10


def test_partial_and_callable_rewards_are_named_and_trained_with(tmp_path):
    def mine(outcome, unknown, price):
        return price

    half, none = (functools.partial(mine, price=price) for price in (0.5, 0.0))
    identities = [
        function_identity(functools.partial(rewards.reward_function, own=reward))
        for reward in (half, none)
    ]
    assert identities[0] != identities[1] and "own=mine " in identities[0]
    assert identity.callable_name(half) == "mine"
    p = params.load("truthrl", "tiny", {"arm": "ternary"})
    assert rewards.reward_function(p, tmp_path, own=half).__name__ == "mine"


def test_a_wrapper_of_the_kit_s_reward_is_a_reward_of_its_own():
    @functools.wraps(rewards.ternary)
    def mine(*arguments):
        return -rewards.ternary(*arguments)

    assert "of factkit" not in function_identity(mine)
