"""A step of token-level PPO against a plain GRPO step of TRL on equal rollouts.

Both start from one untrained policy of the tiny profile's size, with the same seed and
a learning rate that moves nothing, so that both sample the same 64 × 96 tokens. Each
round runs them in turn, in processes of their own; what counts is the median step by
the processor's time, without the first two. About three minutes.
"""

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from factkit.facts.world import facts as world
from factkit.facts.world import texts as world_text
from factkit.run import params
from factkit.run.params.stages import TokenLevelParams

ROUNDS = 3
SETTINGS = {
    "rl_steps": 8,
    "max_completion_length": 96,
    "rl_batch_size": 64,
    "rl_learning_rate": 1e-12,
    "value_learning_rate": 1e-12,
    "checkpoint_steps": 1000,
    "ppo_epochs": 1,
    "minibatches": 1,
}


def untrained(folder: str) -> None:
    """Write a policy with the words of the tiny world, 128 wide, 4 layers."""
    import torch

    from factkit.train.pretraining import build_policy

    tokenizer = world_text.build_tokenizer(world.build_world())
    torch.manual_seed(0)
    build_policy(tokenizer, hidden_size=128, layers=4).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def rows() -> list[dict]:
    asked = world.build_world().questions()[0][:256]
    return [{"prompt": world_text.exchange(e.question, "")} for e in asked]


def token_reward(p: TokenLevelParams, folder: Path):
    """A reward at each token that takes no time; it writes down when it is asked."""

    count = itertools.count()

    def odd(completion_ids, **_):
        now = [time.process_time(), sum(map(len, completion_ids))]
        (folder / f"step-{next(count):04}.json").write_text(json.dumps(now), "utf-8")
        return [[i % 2 for i in ids] for ids in completion_ids]

    return odd


def ppo_steps(start: str, folder: Path, p: TokenLevelParams) -> None:
    from factkit.papers.rlfh import token_trainer

    token_trainer.token_level(start, rows(), token_reward, folder, p)


def grpo_steps(start: str, folder: Path, p: TokenLevelParams) -> None:
    """TRL alone, with the sum of the rewards."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOTrainer

    from factkit.papers.rlfh import token_trainer

    reward = token_reward(p, folder)
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(start),
        processing_class=AutoTokenizer.from_pretrained(start, padding_side="left"),
        train_dataset=Dataset.from_list(rows()),
        reward_funcs=lambda **columns: [sum(r) for r in reward(**columns)],
        args=token_trainer.token_level_config(p, folder / "checkpoint"),
    )
    trainer.train()


def steps(method: str, start: str) -> tuple[float, list[int]]:
    """Of a process of its own: the median seconds of its steps from the third on, and
    the tokens of each rollout."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, method, start, folder]
        subprocess.run(command, check=True, capture_output=True)
        steps = [f.read_text("utf-8") for f in sorted(Path(folder).glob("step-*.json"))]
    times, tokens = zip(*map(json.loads, steps), strict=True)
    return statistics.median([b - a for a, b in pairwise(times)][2:]), list(tokens)


def main() -> None:
    """Print both medians and their ratio.

    Raises RuntimeError if the rollouts differ.
    """
    seconds: dict[str, list[float]] = {"ppo": [], "grpo": []}
    rollouts = []
    with tempfile.TemporaryDirectory() as start:
        untrained(start)
        for _ in range(ROUNDS):
            for method, known in seconds.items():
                median, tokens = steps(method, start)
                known.append(median)
                rollouts.append(tokens)
    if any(tokens != rollouts[0] for tokens in rollouts):
        raise RuntimeError(f"the rollouts differ: {rollouts} tokens")
    ppo, grpo = (statistics.median(seconds[method]) for method in ("ppo", "grpo"))
    print(f"PPO {ppo:.3f} s, GRPO {grpo:.3f} s a step: ratio {ppo / grpo:.3f}")


if __name__ == "__main__":
    if len(sys.argv) == 4:
        method, start, folder = sys.argv[1:]
        train = {"ppo": ppo_steps, "grpo": grpo_steps}[method]
        train(start, Path(folder), params.load("rlfh", "tiny", SETTINGS))
    else:
        main()
