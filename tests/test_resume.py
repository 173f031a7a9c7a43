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
from factkit.train import setup

TRAIN = """
import sys
from pathlib import Path
from factkit import params
from factkit.world import facts, texts
from factkit.train import grpo
from factkit.world.policy import base_policy

p = params.load("truthrl", "tiny", dict(
    world_people=60, pretrain_steps=3, rl_steps=8, rl_batch_size=8,
    num_generations=4, checkpoint_steps=2))
questions = facts.questions(facts.build_world(people=60, seed=p.world_seed))[:40]
rows = [{"prompt": texts.exchange(e.question, "")} for e in questions]
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


def test_a_checkpoint_with_a_file_cut_off_gives_way_to_the_one_before(tmp_path):
    import torch
    from safetensors.torch import save_file

    before, newest = tmp_path / "checkpoint-8", tmp_path / "checkpoint-16"
    for folder in (before, newest):
        folder.mkdir()
        save_file({"w": torch.zeros(50)}, folder / "adapter_model.safetensors")
        torch.save({"w": torch.zeros(50)}, folder / "optimizer.pt")
        (folder / "trainer_state.json").write_text('{"global_step": 1}')
    assert setup.last_whole(tmp_path) == str(newest)
    for path in list(newest.iterdir()):
        content = path.read_bytes()
        for length in (0, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:length])
            assert setup.last_whole(tmp_path) == str(before), (path, length)
        path.write_bytes(content)
