"""A step of token-level PPO against a plain GRPO step of TRL on equal rollouts.

Both start from one untrained policy of the tiny profile's size, with the same seed and
a learning rate that moves nothing, so that both sample the same 64 × 96 tokens. Each
round runs them in turn, in processes of their own; the median step of all rounds
counts, without the first two steps, by the time of the processor, which other work on
the machine hardly changes. About three minutes.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from factkit import params
from factkit.params.stages import TokenLevelParams
from factkit.world import facts as world
from factkit.world import texts as world_text

ROUNDS = 3
SETTINGS = {
    "rl_steps": 8,
    "max_completion_length": 96,
    "rl_batch_size": 64,
    "rl_learning_rate": 1e-12,
    "value_learning_rate": 1e-12,
    "checkpoint_steps": 1000,
    "method": "ppo",
    "gamma": 1.0,
    "gae_lambda": 0.95,
    "whiten": True,
    "eos_penalty": 0.0,
    "ppo_epochs": 1,
    "minibatches": 1,
    "value_clip": 0.2,
    "value_coefficient": 0.1,
}


def settings() -> TokenLevelParams:
    """Profile tiny's, but for SETTINGS."""
    tiny = params.read_yaml(params.yaml_path("truthrl", "tiny"))
    tiny = {k: v for k, v in tiny.items() if k in TokenLevelParams.model_fields}
    return TokenLevelParams(**(tiny | SETTINGS))


def untrained(folder: Path) -> str:
    """A policy with the words of the tiny world, 128 wide, 4 layers, and prompts."""
    import torch

    from factkit.world.policy import build_policy

    tokenizer = world_text.build_tokenizer(world.build_world())
    torch.manual_seed(0)
    build_policy(tokenizer, hidden_size=128, layers=4).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def rows() -> list[dict]:
    asked = world.questions(world.build_world())[:256]
    return [{"prompt": world_text.exchange(e.question, "")} for e in asked]


def token_reward(p: TokenLevelParams, folder: Path):
    """A reward at each token that takes no time; it writes down when it is asked."""

    def odd(completion_ids, **_):
        with (folder / "steps.jsonl").open("a") as f:
            now = [time.process_time(), sum(map(len, completion_ids))]
            f.write(json.dumps(now) + "\n")
        return [[i % 2 for i in ids] for ids in completion_ids]

    return odd


def ppo_steps(start: str, folder: Path, p: TokenLevelParams) -> None:
    from factkit.rlfh import token_trainer

    token_trainer.token_level(start, rows(), token_reward, folder, p)


def grpo_steps(start: str, folder: Path, p: TokenLevelParams) -> None:
    """TRL alone, with the sum of the rewards."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOTrainer

    from factkit.rlfh import token_trainer

    reward = token_reward(p, folder)
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(start),
        processing_class=AutoTokenizer.from_pretrained(start, padding_side="left"),
        train_dataset=Dataset.from_list(rows()),
        reward_funcs=lambda **columns: [sum(r) for r in reward(**columns)],
        args=token_trainer.token_level_config(p, folder / "checkpoint"),
    )
    trainer.train()


def steps(which: str, start: str) -> tuple[list[float], list[int]]:
    """Of a process of its own: seconds of each step from the third on; the tokens of
    each rollout."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, which, start, folder]
        subprocess.run(command, check=True, capture_output=True)
        lines = (Path(folder) / "steps.jsonl").read_text().splitlines()
    clock, tokens = zip(*map(json.loads, lines), strict=True)
    return [b - a for a, b in pairwise(clock)][2:], list(tokens)


def compare(start: str) -> dict[str, float]:
    """Median seconds a step of both, and their ratio.

    Raises RuntimeError if the rollouts differ.
    """
    times: dict[str, list[float]] = {"ppo": [], "grpo": []}
    rollouts = []
    for _ in range(ROUNDS):
        for which, known in times.items():
            took, tokens = steps(which, start)
            known += took
            rollouts.append(tokens)
    if any(tokens != rollouts[0] for tokens in rollouts):
        raise RuntimeError(f"the rollouts differ: {rollouts} tokens")
    ppo, grpo = map(statistics.median, times.values())
    return {"ppo_s": ppo, "grpo_s": grpo, "ratio": round(ppo / grpo, 3)}


def main() -> None:
    """Print the comparison as a line of JSON."""
    with tempfile.TemporaryDirectory() as folder:
        found = compare(untrained(Path(folder)))
    print(f"PPO step against GRPO step, 64 × 96 tokens: {json.dumps(found)}")


if __name__ == "__main__":
    if len(sys.argv) == 4:
        which, start, folder = sys.argv[1:]
        train = {"ppo": ppo_steps, "grpo": grpo_steps}[which]
        train(start, Path(folder), settings())
    else:
        main()
