"""Token-level PPO beside a vLLM engine, and sharded over two processes by ZeRO-3."""

import csv
import importlib
import os
import subprocess
import sys

import pytest
from test_grpo import REWARD
from test_zero3 import assert_whole

from factkit.facts.policy import base_policy
from factkit.papers.rlfh import token_trainer
from factkit.run import params
from factkit.run.params.stages import TokenLevelParams
from factkit.train.launch import LaunchError

TOKEN_REWARD = """
from torch import distributed


def make_reward(p, folder):
    def odd(completion_ids, **columns):
        return [[i % 2 for i in ids] for ids in completion_ids]
    return odd


def make_cut_off(p, folder):
    '''Fails at the second rollout, once in each process.'''
    rollouts, flag = [], folder / f"cut-{distributed.get_rank()}"
    def odd(completion_ids, **columns):
        rollouts.append(1)
        if len(rollouts) == 2 and not flag.exists():
            flag.touch()
            raise RuntimeError("cut off")
        return make_reward(p, folder)(completion_ids)
    return odd
"""
ZERO3 = {
    "deepspeed": "zero3",
    "num_processes": 2,
    "micro_batch_size": 2,
    "checkpoint_steps": 2,
    "world_people": 60,
    "pretrain_steps": 3,
}
SETTINGS = {
    "rl_batch_size": 8,
    "num_generations": 4,
    "rl_steps": 4,
    "beta": 0.01,
    "gamma": 1.0,
    "gae_lambda": 0.95,
    "ppo_epochs": 2,
    "minibatches": 1,
    "value_clip": 0.2,
    "value_coefficient": 0.1,
    "value_learning_rate": 1e-2,
}


def settings(profile, **values):
    shared = params.read_yaml(params.yaml_path("truthrl", profile))
    known = {k: v for k, v in shared.items() if k in TokenLevelParams.model_fields}
    return TokenLevelParams(**(known | SETTINGS | values))


def curve(folder):
    with (folder / "metrics.csv").open(encoding="utf-8") as f:
        return list(csv.DictReader(f))


@pytest.fixture
def sharded(modules, monkeypatch, tmp_path):
    """A run of a method in two processes, by ZeRO-3 on the CPU; its curve."""
    (modules / "a_token_reward.py").write_text(TOKEN_REWARD, "utf-8")
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    rewards = importlib.import_module("a_token_reward")
    rows = [{"prompt": f"Where was {n} born?\nAnswer:"} for n in range(16)]

    def run(folder, method, make_reward="make_reward"):
        p = settings("tiny", method=method, **ZERO3)
        base, make = base_policy(p), getattr(rewards, make_reward)
        model = token_trainer.token_level(base, rows, make, tmp_path / folder, p)
        assert_whole(model, base)
        return curve(tmp_path / folder)

    return run


def test_ppo_under_zero3_goes_on_with_its_value_head(sharded):
    whole = sharded("whole", "ppo")
    with pytest.raises(LaunchError, match="cut off"):
        sharded("cut", "ppo", "make_cut_off")
    resumed = sharded("cut", "ppo", "make_cut_off")
    assert len(whole) == 4
    for a, b in zip(whole, resumed, strict=True):
        assert float(a["value_loss"]) == pytest.approx(float(b["value_loss"]), rel=1e-3)
        assert float(a["loss"]) == pytest.approx(float(b["loss"]), abs=1e-4)


HEAD_UNDER_ZERO3 = """
import deepspeed
import torch
from transformers import AutoModelForCausalLM
from transformers.integrations import HfDeepSpeedConfig

from factkit.run import params
from factkit.papers.rlfh.token_trainer import ValueHead
from factkit.facts.policy import base_policy

base = base_policy(params.load("truthrl", "tiny", %r))
deepspeed.init_distributed("gloo")
config = {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}
config |= {"train_micro_batch_size_per_gpu": 1, "zero_allow_untested_optimizer": True}
alive = HfDeepSpeedConfig(config)
model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
model.add_module("value_head", ValueHead(model.config.hidden_size).to(%s))
adam = torch.optim.AdamW(model.parameters(), lr=1e-3)
engine, *_ = deepspeed.initialize(model=model, optimizer=adam, config=config)
hidden = torch.ones(1, 2, model.config.hidden_size, dtype=torch.bfloat16)
assert engine.module.value_head(hidden).dtype == torch.float32
"""


def test_zero3_in_bfloat16_takes_a_head_of_the_policy_s_dtype_alone():
    world = {"world_people": 60, "pretrain_steps": 3}
    one = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "DS_ACCELERATOR": "cpu"}
    port = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    ends = {}
    for dtype in ("model.dtype", "torch.float32"):
        code = [sys.executable, "-c", HEAD_UNDER_ZERO3 % (world, dtype)]
        ends[dtype] = subprocess.run(
            code, env=os.environ | one | port, capture_output=True, text=True
        )
    assert ends["model.dtype"].returncode == 0, ends["model.dtype"].stderr[-3000:]
    assert "AssertionError" in ends["torch.float32"].stderr


@pytest.mark.parametrize("rank", [0, 8])
def test_the_engine_gets_the_policy_s_weights_and_not_the_head(
    rank, smollm, modules, tmp_path
):
    (modules / "a_token_reward.py").write_text(
        REWARD.partition("def make_reward")[0] + TOKEN_REWARD, "utf-8"
    )
    make_reward = importlib.import_module("a_token_reward").make_reward
    p = settings(
        "laptop",
        dtype="float32",
        rollouts="vllm_colocate",
        lora_rank=rank,
        micro_batch_size=4,
        max_completion_length=12,
        max_context_length=256,
        rl_learning_rate=2e-3 if rank else 1e-4,
    )
    rows = [{"prompt": f"Question: What is {n} + 1?\nAnswer:"} for n in range(16)]
    token_trainer.token_level(smollm, rows, make_reward, tmp_path, p)
    found = curve(tmp_path)
    assert len(found) == 4
    # against an engine with the old weights the difference would be 1 and more
    for row in found:
        if row["reward"]:
            assert float(row["sampling/sampling_logp_difference/mean"]) < 1e-3
    assert abs(float(found[2]["kl"])) > 0.01
