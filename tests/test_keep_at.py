"""Policies kept while training: complete, loadable, and no burden to the training."""

import csv
import math
import shutil
from types import SimpleNamespace

import pytest
from accelerate import Accelerator

from factkit.facts.world import facts as world
from factkit.facts.world import texts as world_text
from factkit.policy import models
from factkit.run import params
from factkit.train import checkpoints, grpo, rewards
from factkit.train.pretraining import build_policy

VALUES = {
    "rl_steps": 4,
    "kept_policies": 4,
    "checkpoint_steps": 2,
    "rl_batch_size": 4,
    "num_generations": 2,
    "max_completion_length": 6,
    "rl_learning_rate": 1.0e-2,
}


WORLD = world.build_world(people=8)
QUESTIONS = WORLD.questions()[0][:8]


class Killed(Exception):
    """In place of what ends a process."""


@pytest.fixture(scope="module")
def p():
    return params.load("rar", "tiny", VALUES)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """An untrained Llama of one layer with a small world's words."""
    import torch

    tokenizer = world_text.build_tokenizer(WORLD, "long")
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("start")
    build_policy(tokenizer, hidden_size=32, layers=1).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


class State(dict):
    """What happens to a run; no part of what its reward is."""

    def __reduce__(self):
        return State, ()


FAULTS = State()


def make_reward(p, folder):
    return varied


def varied(completions, trainer_state, **_):
    """Differs within a group."""
    step = trainer_state.global_step + 1
    FAULTS["calls"].append(step)
    if step == FAULTS["killed_in"]:
        raise Killed
    if step == FAULTS["silent_in"]:
        return [None] * len(completions)
    return [len(c) % 5 / 4 for c in completions]


def train(start, folder, p, killed_in=None, silent_in=None):
    """A run; the steps that it is killed in, and that have no reward, as when the judge
    does not answer. The steps that asked for rewards."""
    rows = [{"prompt": world_text.exchange(e.question, "")} for e in QUESTIONS]
    FAULTS.update(killed_in=killed_in, silent_in=silent_in, calls=[])
    grpo.grpo(start, rows, make_reward, folder, p)
    return FAULTS["calls"]


@pytest.fixture(scope="module")
def whole(start, p, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    train(start, folder, p)
    return folder


def weights(folder):
    model = models.load_model(str(folder))
    return model.state_dict()


def same(a, b):
    a, b = weights(a), weights(b)
    return all(a[name].equal(b[name]) for name in a)


# A run that goes through


def test_a_run_keeps_the_policies_of_its_steps_and_no_pickle(start, whole):
    assert sorted(path.name for path in whole.iterdir()) == [
        "metrics.csv",
        "model",
        "model-1",
        "model-2",
        "model-3",
        "recipe.json",
    ]
    folders = [start, *(whole / f"model-{step}" for step in (1, 2, 3)), whole / "model"]
    for i, a in enumerate(folders):
        assert not [b for b in folders[:i] if same(a, b)]
    suffixes = {file.suffix for path in whole.glob("model*") for file in path.iterdir()}
    assert suffixes == {".json", ".safetensors"}


# A run that is killed and goes on


def curve(folder):
    with (folder / "metrics.csv").open(encoding="utf-8") as f:
        return list(csv.DictReader(f))


def test_a_resumed_run_has_the_policies_of_one_that_ran_through(
    start, whole, p, tmp_path
):
    """Killed one step further than that after its checkpoint."""
    with pytest.raises(Killed):
        train(start, tmp_path, p, killed_in=4)
    assert all((tmp_path / f"model-{i}").exists() for i in (1, 2, 3))
    cut_off = tmp_path / "model-3.partial"  # as if killed while it was written
    (tmp_path / "model-3").rename(cut_off)
    (cut_off / "half").touch()
    assert min(train(start, tmp_path, p)) == 3  # the steps up to 2 are not run again
    for name in ("model-1", "model-2", "model-3", "model"):
        assert same(tmp_path / name, whole / name)
    assert not (tmp_path / "model-3" / "half").exists()
    for ours, theirs in zip(curve(tmp_path), curve(whole), strict=True):
        for column in ("step", "loss", "reward", "kl", "grad_norm"):
            assert float(ours[column]) == pytest.approx(float(theirs[column]), abs=1e-6)


def damages(content):
    """What may have become of a file: nothing left of it, cut off, a bit flipped."""
    middle = len(content) // 2
    flipped = bytes([content[middle] ^ 1])
    yield from (None, b"", content[:middle], content[:-1])
    yield content[:middle] + flipped + content[middle + 1 :]
    yield content + b"\0"


def test_a_checkpoint_of_which_any_file_is_damaged_gives_way_to_the_one_before(
    start, whole, p, tmp_path, capsys
):
    """So that the result is that of a run that went through."""
    with pytest.raises(Killed):
        few = p.model_copy(update={"checkpoint_steps": 1})
        train(start, tmp_path / "run", few, killed_in=3)
    folder, saved = tmp_path / "run/checkpoint", tmp_path / "saved"
    folder.rename(saved)
    names = {path.name for path in (saved / "checkpoint-2").iterdir()}
    assert {"model.safetensors", "optimizer.pt", "scheduler.pt"} <= names
    assert {"rng_state.pth", "trainer_state.json", "manifest.json"} <= names
    trainer = SimpleNamespace(
        args=SimpleNamespace(output_dir=str(folder)), accelerator=Accelerator()
    )
    for name in sorted(names):
        for content in damages((saved / "checkpoint-2" / name).read_bytes()):
            shutil.copytree(saved, folder)
            (folder / "checkpoint-2" / name).unlink()
            if content is not None:
                (folder / "checkpoint-2" / name).write_bytes(content)
            newest = checkpoints.newest(trainer)
            assert newest == str(folder / "checkpoint-1"), (name, content)
            assert f"checkpoint-2 is damaged: {name}" in capsys.readouterr().out or (
                name == "manifest.json"
            )
            assert (folder / "damaged-2").is_dir()
            shutil.rmtree(folder)
    shutil.copytree(saved, folder)
    assert checkpoints.newest(trainer) == str(folder / "checkpoint-2")
    (folder / "checkpoint-2/optimizer.pt").unlink()
    assert min(train(start, tmp_path / "run", p)) == 2
    assert same(tmp_path / "run/model", whole / "model")


def test_with_lora_a_kept_adapter_loads_on_its_base(start, p, tmp_path):
    update = {"lora_rank": 2, "rl_steps": 2, "kept_policies": 2}
    train(start, tmp_path, p.model_copy(update=update))
    assert models.adapter_config(str(tmp_path / "model-1"))["r"] == 2
    assert not same(tmp_path / "model-1", start)
    assert not same(tmp_path / "model-1", tmp_path / "model")


def test_a_batch_without_any_reward_does_not_end_the_training(
    start, p, tmp_path, monkeypatch
):
    monkeypatch.setattr(rewards, "MOST_JUDGE_FAILURES", 0.5)
    few = p.model_copy(update={"rl_steps": 3, "kept_policies": 1})
    train(start, tmp_path, few, silent_in=1)
    rows = curve(tmp_path)
    assert [row["step"] for row in rows] == ["1", "2", "3"]
    assert not any(math.isnan(float(row["grad_norm"])) for row in rows)
