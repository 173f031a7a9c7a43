"""A few GRPO updates with an engine beside the trainer: whose the rollouts were.

Each process writes its last rollout to rollout-<rank>.json in the run's folder: tokens
with the engine's log-probabilities, and the GPU's memory in use before and after the
engine went to sleep. The policies between updates are kept and loaded afterwards, so
that TRL and Unsloth are not asked which weights the engine had.
"""

import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from factkit.policy import models
from factkit.run.params.stages import RlParams

ROWS, TOKENS = 16, 256  # of a rollout that are written down
NEAR = 0.1  # nats a token: bfloat16 alone makes some hundredths
CLEAR = 3  # times as far is the policy before the update
# of the engine's share of the GPU: Unsloth's keeps its weights, which are the trainer's
GIVEN_BACK = {"peft": 0.5, "unsloth": 0.25}


def prove(p: RlParams, folder: Path, large: bool = True) -> dict[str, float]:
    """Train p.rl_steps ≥ 2 updates, all kept; figures of the last rollout and of sleep.

    large: the updates are, so that the policy before the last one can be told apart.
    Raises AssertionError if the rollouts were another policy's, a weight is missing, or
    the engine kept the GPU's memory.
    """
    from factkit.facts.policy import base_policy
    from factkit.train import grpo

    base = base_policy(p)
    texts = [f"Where was number {n} born?\nAnswer:" for n in range(256)]
    rows = [
        {"prompt": [{"role": "user", "content": text}] if p.chat else text}
        for text in texts
    ]
    model = grpo.grpo(base, rows, make_reward, folder, p)
    if not p.lora_rank:
        assert shapes(model) == shapes(Path(base)), "weights are missing in the model"
    kept = [str(folder / f"model-{step}") for step in p.kept_steps[:-1]]
    before, own = [base, *kept][-2:]
    rollouts = read(folder)
    assert len(rollouts) == p.num_processes, "a process sampled nothing"
    figures = {"off_policy": max(distances(own, rollouts, p))}
    figures |= asleep(rollouts, p)
    if large:
        figures["off_policy_before"] = min(distances(before, rollouts, p))
    refuse(figures, p.lora_backend)
    return figures


def refuse(figures: dict[str, float], lora_backend: str) -> None:
    """Raises AssertionError if the figures say that something is not as it should."""
    own = figures["off_policy"]
    assert own < NEAR, f"rollouts are {own:.3f} nats a token off the updated policy"
    before = figures.get("off_policy_before", CLEAR * own)
    told = f"the policy before the update is only {before:.3f} off, this one {own:.3f}"
    assert before >= CLEAR * own, told
    if "freed_gb" in figures:
        least = GIVEN_BACK[lora_backend] * figures["engine_gb"]
        freed = figures["freed_gb"]
        assert freed >= least, f"asleep, the engine freed {freed:.1f} GB of {least:.1f}"


def make_reward(p: RlParams, folder: Path) -> Callable[..., list[float]]:
    """A reward that differs and costs nothing; from now on rollouts are noted."""
    from trl.generation.vllm_generation import VLLMGeneration

    generate = VLLMGeneration.generate

    @functools.wraps(generate)  # with Unsloth's mark, if it bears that
    def note(self: VLLMGeneration, *args: Any, **kwargs: Any) -> tuple:
        memory, sleep = [], self.llm.sleep

        def measured(*levels: Any, **options: Any) -> None:
            memory.append(used_gb())
            sleep(*levels, **options)
            memory.append(used_gb())

        self.llm.sleep = measured
        try:
            rollout = generate(self, *args, **kwargs)
        finally:
            self.llm.sleep = sleep
        assert len(memory) == 2, "the engine did not go to sleep after the rollout"
        prompts, completions, logps, _ = rollout
        rows = [
            (prompt, tokens[:TOKENS], [row[0] for row in own[:TOKENS]])
            for prompt, tokens, own in zip(prompts, completions, logps, strict=True)
        ]
        noted = json.dumps({"rows": rows[:ROWS], "memory": memory})
        path = folder / f"rollout-{self.accelerator.process_index}.json"
        path.write_text(noted, "utf-8")  # the last one stays
        return rollout

    def varied(completions: list[Any], **_: Any) -> list[float]:
        return [len(str(text)) % 5 / 4 for text in completions]

    VLLMGeneration.generate = note
    return varied


def used_gb() -> float:
    """Of this process's GPU, by whichever process; 0 without one."""
    import torch

    if not torch.cuda.is_available():
        return 0.0
    free, total = torch.cuda.mem_get_info()
    return (total - free) / 1e9


def read(folder: Path) -> list[dict[str, Any]]:
    """The last rollout of each process."""
    paths = sorted(folder.glob("rollout-*.json"))
    return [json.loads(path.read_text("utf-8")) for path in paths]


def asleep(rollouts: list[dict[str, Any]], p: RlParams) -> dict[str, float]:
    """GB that sleep freed, at least, and the engine's share; nothing without a GPU."""
    import torch

    if not torch.cuda.is_available():
        return {}
    engine = p.vllm_memory * torch.cuda.mem_get_info()[1] / 1e9
    freed = min(awake - asleep for awake, asleep in (r["memory"] for r in rollouts))
    return {"engine_gb": engine, "freed_gb": freed}


def distances(policy: str, rollouts: list[dict[str, Any]], p: RlParams) -> list[float]:
    """Mean |engine's log π − policy's| a token, of each process's rollout."""
    import torch

    model = models.load_model(policy, p.dtype)
    means = []
    for rollout in rollouts:
        deltas = []
        for prompt, tokens, engines in rollout["rows"]:
            ids = torch.tensor([prompt + tokens], device=model.device)
            with torch.inference_mode():
                logits = model(ids).logits[0, len(prompt) - 1 : -1].float()  # (T, V)
            logps = (logits / p.temperature).log_softmax(-1)
            own = logps.gather(1, ids[0, len(prompt) :, None])[:, 0]
            known = [math.nan if x is None else x for x in engines]  # TRL's for NaN
            deltas.append((own.cpu() - torch.tensor(known)).abs())
        means.append(torch.cat(deltas).mean().item())
    return means


def shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Name and shape of each weight in a model's folder."""
    from safetensors.torch import load_file

    files = [load_file(path) for path in folder.glob("*.safetensors")]
    return {
        name: tuple(weight.shape) for file in files for name, weight in file.items()
    }
