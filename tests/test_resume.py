"""A training run killed with SIGKILL goes on and ends as one that ran through."""

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from factkit.params import ROOT
from factkit.train import checkpoint

TRAIN = """
import sys
from pathlib import Path
from factkit import params
from factkit.world import facts as world
from factkit.world import texts as world_text
from factkit.train import grpo
from factkit.train.start import base_policy

p = params.load("truthrl", "tiny", dict(
    world_people=60, pretrain_steps=3, rl_steps=8, rl_batch_size=8,
    num_generations=4, checkpoint_steps=2))
made = world.build_world(people=p.world_people, seed=p.world_seed)
some = world.questions(made)[:40]
rows = [{"prompt": world_text.exchange(e.question, "")} for e in some]
# a reward that varies within a group even for an untrained policy
def varied(completions, **columns):
    return [len(c) % 5 / 4 for c in completions]
def make_reward(p, folder):
    return varied
grpo.grpo(base_policy(p), rows, make_reward, Path(sys.argv[1]), p)
"""


def start(folder: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", TRAIN, str(folder)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )


def curve(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open() as f:
        return list(csv.DictReader(f))


def test_a_killed_run_goes_on_to_the_same_curve(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    _, errors = start(whole).communicate()
    assert (whole / "model").exists(), errors.decode()[-2000:]

    process = start(killed)
    wanted = killed / "checkpoint" / "checkpoint-4" / "trainer_state.json"
    while not wanted.exists() and process.poll() is None:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (killed / "model").exists()

    _, errors = start(killed).communicate()
    assert (killed / "model").exists(), errors.decode()[-2000:]
    pairs = list(zip(curve(whole), curve(killed), strict=True))
    assert len(pairs) == 8
    for a, b in pairs:
        for column in ("step", "loss", "reward", "kl", "grad_norm"):
            assert float(a[column]) == pytest.approx(float(b[column]), abs=1e-6)


def saved(folder: Path, step: int) -> Path:
    """A checkpoint with the files that a trainer writes."""
    import torch
    from safetensors.torch import save_file

    made = folder / f"checkpoint-{step}"
    made.mkdir()
    save_file({"w": torch.zeros(50)}, made / "adapter_model.safetensors")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        torch.save({"w": torch.zeros(50)}, made / name)
    (made / "trainer_state.json").write_text('{"global_step": 1}')
    return made


def test_a_checkpoint_with_a_file_cut_off_gives_way_to_the_one_before(tmp_path, capsys):
    before, newest = saved(tmp_path, 8), saved(tmp_path, 16)
    assert checkpoint.last_whole(tmp_path) == str(newest)
    for path in list(newest.iterdir()):
        content = path.read_bytes()
        for length in (0, 1, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:length])
            assert checkpoint.last_whole(tmp_path) == str(before), (path, length)
        wanted = f"{newest} is not gone on from: {path.name}: cut off"
        assert wanted in capsys.readouterr().out
        path.write_bytes(content)
    assert checkpoint.last_whole(tmp_path) == str(newest)


def test_a_checkpoint_without_weights_optimizer_or_state_is_none(tmp_path):
    for step, name in enumerate(
        ("adapter_model.safetensors", "optimizer.pt", "trainer_state.json")
    ):
        (saved(tmp_path, step) / name).unlink()
        assert checkpoint.last_whole(tmp_path) is None
