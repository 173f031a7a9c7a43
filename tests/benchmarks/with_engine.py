"""A GRPO step and rollouts with an engine beside the trainer: the kit, bare TRL, vLLM.

Each run has a folder; a rollout adds a line to its rollouts.jsonl: when it began, its
seconds and tokens, and the most GB that torch had allocated in its process by then.
`tests/gpu/check.py` drives this on a GPU.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import bench_grpo
import pandas as pd

from factkit import child, gpu_memory, params
from factkit.truthrl.arms import TruthRL

ROUNDS = ("kit-0", "bare-0", "kit-1", "bare-1", "raw")  # one after the other


def measure(p: TruthRL, folder: Path, runs: Sequence[str] = ROUNDS) -> None:
    """Make the runs that are not done, each in a process of its own: kit and bare
    train, raw is `vllm.LLM.generate` alone."""
    for own in (folder / name for name in runs):
        if (own / "done").exists():
            continue
        own.mkdir(parents=True, exist_ok=True)
        (own / "rollouts.jsonl").unlink(missing_ok=True)
        (own / "params.json").write_text(p.model_dump_json(), "utf-8")
        which = own.name.partition("-")[0]
        if which == "kit":
            bench_grpo.kit_steps(p, own, make_reward)
        else:
            command = child.command(sys.executable, __file__, which, str(own))
            subprocess.run(command, check=True)
        (own / "done").touch()


def medians(folder: Path) -> dict[str, float]:
    """Tokens a second and seconds a step of what was measured there, and the ratios."""
    found: dict[str, float] = {}
    for which in ("raw", "bare", "kit"):
        paths = sorted(folder.glob(f"{which}*/rollouts.jsonl"))
        if not paths:
            continue
        rounds = [pd.read_json(path, lines=True) for path in paths]
        rollouts = pd.concat(rounds)
        found[f"{which}_tokens_s"] = (rollouts.tokens / rollouts.seconds).median()
        if which != "raw":  # from a rollout to the next
            steps = pd.concat([rows.start.diff() for rows in rounds])
            found[f"{which}_step_s"] = steps.median()
        found["torch_gb"] = float(rollouts.torch_gb.max())
    if "raw_tokens_s" in found and "kit_step_s" in found:
        found["step_ratio"] = found["kit_step_s"] / found["bare_step_s"]
        found["rollout_ratio"] = found["kit_tokens_s"] / found["raw_tokens_s"]
    return found


def make_reward(p: TruthRL, folder: Path) -> Callable[..., list[float]]:
    """A reward that differs and costs nothing; from now on rollouts are timed."""
    from trl.generation.vllm_generation import VLLMGeneration

    generate = VLLMGeneration.generate

    def timed(self: VLLMGeneration, *args: Any, **kwargs: Any) -> tuple:
        start = time.perf_counter()
        rollout = generate(self, *args, **kwargs)
        _note(folder, start, rollout[1])
        return rollout

    def varied(completions: list[str], **_: Any) -> list[float]:
        return [len(text) % 5 / 4 for text in completions]

    VLLMGeneration.generate = timed
    return varied


def raw(p: TruthRL, folder: Path) -> None:
    """A run's rollouts by `vllm.LLM.generate` alone, with the engine that TRL makes."""
    from vllm import LLM, SamplingParams

    from factkit.world.policy import base_policy

    engine = LLM(
        base_policy(p),
        gpu_memory_utilization=p.vllm_memory,
        max_model_len=p.max_context_length,
        max_num_batched_tokens=4096,
        max_num_seqs=p.rl_batch_size,
        logprobs_mode="processed_logprobs",
    )
    sizes = {"max_tokens": p.max_completion_length, "logprobs": 0}
    how = SamplingParams(temperature=p.temperature, top_p=p.top_p, **sizes)
    prompts, groups = bench_grpo.rows(p), p.rl_batch_size // p.num_generations
    for step in range(p.rl_steps):
        asked = [prompts[(step * groups + i) % len(prompts)] for i in range(groups)]
        batch = [row["prompt"] for row in asked for _ in range(p.num_generations)]
        start = time.perf_counter()
        outputs = engine.generate(batch, how, use_tqdm=False)
        _note(folder, start, [output.outputs[0].token_ids for output in outputs])
    engine.llm_engine.engine_core.shutdown()


def _note(folder: Path, start: float, completions: list) -> None:
    import torch

    seconds = time.perf_counter() - start
    used = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    line = {"start": start, "seconds": seconds, "tokens": sum(map(len, completions))}
    with (folder / "rollouts.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line | {"torch_gb": used / 1e9}) + "\n")


def untrained(shape: gpu_memory.Shape, like: str, folder: Path) -> None:
    """Write a model of that size with random weights, which ends no response, and the
    tokenizer of `like`."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    sizes = {"hidden_size": shape.hidden, "intermediate_size": shape.ffn}
    sizes |= {"num_hidden_layers": shape.layers, "head_dim": 128}
    heads = {"num_attention_heads": shape.hidden, "num_key_value_heads": shape.kv}
    sizes |= {name: width // 128 for name, width in heads.items()}
    config = AutoConfig.from_pretrained(like, **sizes)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(like).save_pretrained(folder)


if __name__ == "__main__":
    own = Path(sys.argv[2])
    given = (own / "params.json").read_text("utf-8")
    p = params.class_of("truthrl").model_validate_json(given)
    if sys.argv[1] == "raw":
        raw(p, own)
    else:
        bench_grpo.bare_steps(p, own, make_reward)
