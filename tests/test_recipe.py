"""A model folder says what made it, and is never gone on with as anything else."""

import json
import shutil
from functools import partial

import pytest
import torch

from factkit.papers.truthrl import rewards as truthrl
from factkit.run import params
from factkit.train import launch
from factkit.train.launch import RecipeError, function_identity

ROWS = [{"prompt": "a"}, {"prompt": "b"}]


@launch.made_once
def trainer(start, rows, make_reward, folder, p):
    model = folder / "model"
    model.mkdir()  # which would fail the second time
    shutil.copy(folder / launch.RECIPE, model)
    (model / "weights").write_text(make_reward.__name__, "utf-8")
    return model


made = partial(trainer, p=params.load("truthrl", "tiny"))


def make_reward(p, folder):
    return lambda completions, **_: [0.0 for _ in completions]


def other_reward(p, folder):
    return lambda completions, **_: [1.0 for _ in completions]


@launch.made_once
def needs_gradients(folder, p):
    torch.nn.Linear(2, 1)(torch.ones(2)).backward()
    return folder


@pytest.mark.parametrize("left_open", [torch.no_grad, torch.inference_mode])
def test_training_records_gradients_where_an_interrupt_left_them_off(
    left_open, tmp_path
):
    with left_open():
        needs_gradients(tmp_path, params.load("truthrl", "tiny"))


def test_the_same_recipe_goes_on_and_another_is_refused_with_what_differs(tmp_path):
    model = made("base", ROWS, make_reward, tmp_path)
    assert made("base", ROWS, make_reward, tmp_path) == model
    recipe = json.loads((model / launch.RECIPE).read_text("utf-8"))["trainer"]
    assert recipe["start"] == "base"
    assert recipe["make_reward"].startswith("make_reward ")
    for start, rows, reward, differs in (
        ("base", ROWS, other_reward, "make_reward"),
        ("other", ROWS, make_reward, "start"),
        ("base", ROWS[:1], make_reward, "rows"),
    ):
        with pytest.raises(RecipeError, match=f"{differs}=.*now.*output_dir"):
            made(start, rows, reward, tmp_path)
    assert (model / "weights").read_text("utf-8") == "make_reward"


def test_a_model_of_which_nothing_is_known_is_refused(tmp_path):
    (tmp_path / "model").mkdir()
    with pytest.raises(RecipeError, match="nothing says what made it"):
        made("base", ROWS, make_reward, tmp_path)


def test_a_damaged_recipe_is_refused_by_name(tmp_path):
    for content in (b"", b"{", b"[]", b'{"trainer": 1}', b"[" * 99_999, b"\xff"):
        (tmp_path / "recipe.json").write_bytes(content)
        with pytest.raises(RecipeError, match="recipe.json can't be read .*: move"):
            made("base", ROWS, make_reward, tmp_path)


def test_a_start_is_known_by_its_own_recipe(tmp_path):
    """RL from an SFT model that was made anew otherwise is another RL."""
    start = made("base", ROWS, make_reward, tmp_path / "sft-1")
    again = made("base", ROWS, other_reward, tmp_path / "sft-2")
    made(str(start), ROWS, make_reward, tmp_path / "rl")
    with pytest.raises(RecipeError, match="start="):
        made(str(again), ROWS, make_reward, tmp_path / "rl")


def half(outcome, out_of_knowledge):
    return 0.5


def test_a_reward_of_one_s_own_is_known_by_its_source(tmp_path):
    """`train_arm(…, reward=half)`: the same name with another source is another run."""

    def identity(reward):
        return function_identity(partial(truthrl.reward_function, own=reward))

    own = identity(half)
    assert own.startswith(f"{function_identity(truthrl.reward_function)}, own=half ")
    source = "def half(outcome, out_of_knowledge):\n    return -0.5\n"
    names = {}
    exec(compile(source, "cell", "exec"), names)
    assert identity(names["half"]) != own == identity(half)
    with pytest.raises(ValueError, match="must be defined in a module"):
        launch.write_job(
            launch.made_once,
            {"make": partial(make_reward, own=lambda o, u: 0)},
            tmp_path / "job.json",
        )


def record_call(start, rows, make_reward, folder, p):
    """A train function that only notes what it was given."""
    CALLS.append((start, rows, make_reward, folder, p))


CALLS = []


def test_a_job_holds_the_arguments_of_the_call_and_no_pickle(tmp_path, monkeypatch):
    monkeypatch.setattr(launch.child, "end_with_parent", lambda: None)
    p = params.load("truthrl", "tiny").model_copy(update={"rl_steps": 7})
    reward = partial(truthrl.reward_function, own=half)
    call = {"start": "base", "rows": ROWS, "make_reward": reward}
    call |= {"folder": tmp_path, "p": p}
    job = tmp_path / "launch" / "job.json"
    launch.write_job(record_call, call, job)
    assert [path.suffix for path in job.parent.iterdir()] == [".json"]
    launch.main(job)
    ((start, rows, made, folder, values),) = CALLS
    assert (start, rows, folder, values) == ("base", ROWS, tmp_path, p)
    assert (made.func, made.keywords) == (reward.func, reward.keywords)
    for unknown in (ROWS[0].get, partial(make_reward, own=made_of(half))):
        with pytest.raises(ValueError, match="must be defined in a module"):
            launch.write_job(record_call, call | {"make_reward": unknown}, job)


def made_of(function):
    return lambda *arguments: function(*arguments)


def test_a_reward_put_into_the_kit_s_module_is_another_reward(monkeypatch):
    """As a teacher does it: `truthrl.ternary = mine`."""
    before = function_identity(truthrl.reward_function)
    assert before.startswith("factkit.truthrl.rewards.reward_function of factkit ")
    assert "with" not in before
    monkeypatch.setattr(truthrl, "ternary", lambda outcome: 0.5)
    mine = function_identity(truthrl.reward_function)
    assert mine.startswith(f"{before}, with ternary ")
    monkeypatch.setattr(truthrl, "ternary", lambda outcome: -0.5)
    assert function_identity(truthrl.reward_function) != mine
