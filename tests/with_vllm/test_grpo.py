"""GRPO with rollouts from a vLLM engine beside the trainer, through our own `grpo`."""

import csv
import importlib

import pytest

from factkit.run import params
from factkit.train import grpo

# Trainer and engine compute in float32 here, so that the engine's log π is exact; in
# bfloat16, as on a GPU, it would be off by what rounding takes from an update. TRL
# tells how far it is from the trainer's only where it weighs by it.
REWARD = """
import functools

from trl.generation import vllm_generation

from factkit.train import grpo

plain = grpo.grpo_config


def measured(*given):
    config = plain(*given)
    config.vllm_importance_sampling_correction = True
    return config


grpo.grpo_config = measured
vllm_generation.LLM = functools.partial(vllm_generation.LLM, dtype="float32")


def make_reward(p, folder):
    def short(completions, **columns):
        return [-len(c) / 100 for c in completions]
    return short
"""


@pytest.mark.parametrize(("rank", "learning_rate"), [(0, 1e-4), (8, 2e-3)])
def test_two_steps_with_the_engine_kept_in_sync(
    rank, learning_rate, smollm, modules, tmp_path
):
    (modules / "a_reward.py").write_text(REWARD, "utf-8")
    make_reward = importlib.import_module("a_reward").make_reward
    p = params.load(
        "truthrl",
        "laptop",
        {
            "dtype": "float32",
            "rollouts": "vllm_colocate",
            "lora_rank": rank,
            "rl_steps": 2,
            "rl_batch_size": 8,
            "num_generations": 4,
            "micro_batch_size": 4,
            "max_completion_length": 12,
            "max_context_length": 256,
            "rl_learning_rate": learning_rate,
        },
    )
    rows = [{"prompt": f"Question: What is {n} + 1?\nAnswer:"} for n in range(16)]
    model = grpo.grpo(smollm, rows, make_reward, tmp_path, p)
    assert {f.suffix for f in model.iterdir()} >= {".safetensors", ".json"}
    with (tmp_path / "metrics.csv").open(encoding="utf-8") as f:
        curve = list(csv.DictReader(f))
    assert len(curve) == 2
    # The engine's log-probabilities against the trainer's. The update is large enough
    # (kl) for an engine with the old weights to be far off: 1 and more.
    assert float(curve[1]["kl"]) > 0.3
    for row in curve:
        assert float(row["sampling/sampling_logp_difference/mean"]) < 1e-3
