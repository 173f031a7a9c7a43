"""A model folder says what made it, and is never gone on with as anything else."""

import functools
import json

import pytest

from factkit.train import recipe
from factkit.train.recipe import RecipeError, function_identity
from factkit.truthrl import rewards as truthrl

ROWS = [{"prompt": "a"}, {"prompt": "b"}]


@recipe.held_to
def trainer(start, rows, make_reward, folder):
    """Skips a model that is there, as the kit's trainers do."""
    model = folder / "model"
    if not model.exists():
        model.mkdir()
        recipe.tell(folder, model)
        (model / "weights").write_text(make_reward.__name__)
    return model


def make_reward(p, folder):
    return lambda completions, **_: [0.0 for _ in completions]


def other_reward(p, folder):
    return lambda completions, **_: [1.0 for _ in completions]


def test_the_same_recipe_goes_on_with_what_is_there(tmp_path):
    first = trainer("base", ROWS, make_reward, tmp_path)
    assert trainer("base", ROWS, make_reward, tmp_path) == first
    made = json.loads((first / recipe.FILE).read_text())["trainer"]
    assert made["start"] == "base"
    assert made["make_reward"].startswith("make_reward ")


def test_another_recipe_is_refused_with_what_differs_and_the_way_out(tmp_path):
    trainer("base", ROWS, make_reward, tmp_path)
    for start, rows, reward, differs in (
        ("base", ROWS, other_reward, "make_reward"),
        ("other", ROWS, make_reward, "start"),
        ("base", ROWS[:1], make_reward, "rows"),
    ):
        with pytest.raises(RecipeError, match=f"{differs}=.*now.*output_dir"):
            trainer(start, rows, reward, tmp_path)
    assert (tmp_path / "model" / "weights").read_text() == "make_reward"


def test_a_killed_training_is_not_gone_on_with_by_another_reward(tmp_path):
    recipe.check("trainer", {"make_reward": make_reward, "folder": tmp_path})
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(RecipeError):
        recipe.check("trainer", {"make_reward": other_reward, "folder": tmp_path})


def test_a_model_of_which_nothing_is_known_is_refused(tmp_path):
    (tmp_path / "model").mkdir()
    with pytest.raises(RecipeError, match="nothing says what made it"):
        trainer("base", ROWS, make_reward, tmp_path)


def test_a_start_is_known_by_its_own_recipe(tmp_path):
    """RL from an SFT model that was made anew otherwise is another RL."""
    start = trainer("base", ROWS, make_reward, tmp_path / "sft-1")
    again = trainer("base", ROWS, other_reward, tmp_path / "sft-2")
    trainer(str(start), ROWS, make_reward, tmp_path / "rl")
    with pytest.raises(RecipeError, match="start="):
        trainer(str(again), ROWS, make_reward, tmp_path / "rl")


def test_the_kit_s_own_reward_is_known_by_name_and_version():
    identity = function_identity(truthrl.reward_function)
    assert identity.startswith("factkit.truthrl.rewards.reward_function of factkit ")
    assert "with" not in identity


def test_a_reward_put_into_the_kit_s_module_is_another_reward(monkeypatch):
    """As a teacher does it: `truthrl.ternary = mine`."""
    before = function_identity(truthrl.reward_function)
    monkeypatch.setattr(truthrl, "ternary", lambda outcome: 0.5)
    mine = function_identity(truthrl.reward_function)
    assert mine.startswith(f"{before}, with ternary ")
    monkeypatch.setattr(truthrl, "ternary", lambda outcome: -0.5)
    assert function_identity(truthrl.reward_function) != mine


def test_what_a_reward_closes_over_or_is_given_is_part_of_it():
    def weighted(weight):
        def make(p, folder):
            return weight

        return make

    assert function_identity(weighted(1)) != function_identity(weighted(2))
    assert function_identity(weighted(1)) == function_identity(weighted(1))
    halves = [functools.partial(make_reward, folder=x) for x in ("a", "b")]
    assert function_identity(halves[0]) != function_identity(halves[1])
