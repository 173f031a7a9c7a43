"""ZeRO-3 with real DeepSpeed: two processes on the CPU, talking by gloo."""

import csv
import importlib
import os
import subprocess
import sys

import pytest

from factkit.facts.policy import base_policy
from factkit.run import params
from factkit.train import grpo, offline

REWARD = """
def make_reward(p, folder):
    def varied(completions, **columns):
        return [len(c) % 5 / 4 for c in completions]
    return varied
"""
ROTARY = """
import deepspeed
import torch
from transformers import AutoModelForCausalLM
from transformers.integrations import HfDeepSpeedConfig

from factkit.run import params
from factkit.train import precision
from factkit.facts.policy import base_policy

base = base_policy(params.load("truthrl", "tiny", %r))
exact = AutoModelForCausalLM.from_pretrained(base).model.rotary_emb.inv_freq
deepspeed.init_distributed("gloo")
config = {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}
config["train_micro_batch_size_per_gpu"] = 1
alive = HfDeepSpeedConfig(config)
model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
assert not torch.equal(model.model.rotary_emb.inv_freq.float(), exact), "mended there"
precision.exact_rotary(model)
engine, *_ = deepspeed.initialize(model=model, config=config)
assert torch.equal(engine.module.model.rotary_emb.inv_freq, exact)
"""


@pytest.fixture
def on_cpu(modules, monkeypatch):
    """Processes started here run DeepSpeed on the CPU."""
    (modules / "a_reward.py").write_text(REWARD, "utf-8")
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


WORLD = {"world_people": 60, "pretrain_steps": 3}


def load(**values):
    values = {"num_processes": 2, "micro_batch_size": 2, "checkpoint_steps": 1} | values
    return params.load("truthrl", "tiny", WORLD | values)


def rows(p) -> list[dict]:
    return [
        {"prompt": f"Where was {n} born?\nAnswer:", "completion": " in Paris"}
        for n in range(16)
    ]


def weights(folder):
    from safetensors.torch import load_file

    return load_file(os.path.join(folder, "model.safetensors"))


def assert_whole(model, base, moved_by_at_least=0.0) -> None:
    """Every weight is there, in its full shape, and has been trained."""
    found, before = weights(model), weights(base)
    assert found.keys() == before.keys()
    assert all(found[k].shape == before[k].shape for k in before)
    moved = max(float((found[k] - before[k]).abs().max()) for k in before)
    assert moved > moved_by_at_least


@pytest.mark.parametrize("deepspeed", ["zero3", "zero3_offload"])
def test_grpo_under_zero3_saves_the_whole_model(deepspeed, on_cpu, tmp_path):
    make_reward = importlib.import_module("a_reward").make_reward
    p = load(deepspeed=deepspeed, rl_steps=2, rl_batch_size=8, num_generations=4)
    base = base_policy(p)
    model = grpo.grpo(base, rows(p), make_reward, tmp_path, p)
    assert_whole(model, base)
    with (tmp_path / "metrics.csv").open(encoding="utf-8") as f:
        assert len(list(csv.DictReader(f))) == 2


def test_lora_under_zero3_is_merged_into_the_whole_model(on_cpu, tmp_path):
    p = load(deepspeed="zero3", lora_rank=4, sft_batch_size=8, sft_epochs=1)
    base = base_policy(p)
    model = offline.sft(base, rows(p), tmp_path, p)
    assert not (model / "adapter_config.json").exists()
    assert_whole(model, base)


def test_rotary_frequencies_are_exact_under_zero3_in_bfloat16():
    """DeepSpeed's loading rounds them; its engine leaves alone what is mended."""
    one = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "DS_ACCELERATOR": "cpu"}
    port = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    code = [sys.executable, "-c", ROTARY % WORLD]
    done = subprocess.run(
        code, env=os.environ | one | port, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
