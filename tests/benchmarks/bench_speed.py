"""A step of profile laptop in the kit, and without its measures for a CPU.

A GRPO step on short answers after a passage, one on longer answers to a short request,
an SFT step, and greedy decoding. Each goes by the libraries' own way ("libraries", of
which only the head's contiguous input and the kept memory are the kit's) and by the
kit's, in processes of their own, one after the other. The last step is timed.

    python tests/benchmarks/bench_speed.py [grpo_short grpo_long sft sampling]
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from factkit import params

BATCH, STEPS = 16, 3  # completions a GRPO step (more take 10 GB); steps of a run
KINDS = ("grpo_short", "grpo_long", "sft", "sampling")


def take_the_libraries_way() -> None:
    """Switch off what `factkit.cpu` does beyond the libraries."""
    from factkit import cpu
    from factkit.train import sft

    def tune(model):
        cpu.keep_freed_memory()
        cpu.make_lm_head_input_contiguous(model)

    config = sft.sft_config
    cpu.tune = tune
    cpu.keep_activations_dtype = lambda model: None
    cpu.share_prompts = lambda trainer: None
    sft.sft_config = lambda *args: with_loss(config(*args), "nll")


def with_loss(config, loss: str):
    config.loss_type = loss
    return config


def requests(kind: str, n: int) -> list[str]:
    """Prompts of 55 to 110 tokens with a passage, or of about 25 ("grpo_long")."""
    from factkit.corpus import load_leads

    rng = random.Random(0)
    leads = [d.text.split() for d in load_leads()[:2000]]
    if kind == "grpo_long":
        return [f"Tell me about {' '.join(rng.choice(leads)[:15])}." for _ in range(n)]
    return [
        f"References:\n{' '.join(rng.choice(leads)[: rng.randint(30, 50)])}\n"
        "Question: In which year was the person born?\nAnswer:"
        for _ in range(n)
    ]


def seconds() -> tuple[float, float]:
    """Now, by the clock and by the processor's time."""
    return time.perf_counter(), time.process_time()


def passed(start: tuple[float, float]) -> dict[str, float]:
    """Seconds since `start`."""
    wall, cpu = (now - then for now, then in zip(seconds(), start, strict=True))
    return {"seconds": round(wall, 2), "cpu_seconds": round(cpu, 2)}


def train(kind: str, folder: Path) -> dict[str, float]:
    """Steps of the kit's own GRPO or SFT, timed."""
    from transformers import TrainerCallback

    from factkit.train import grpo, setup, sft
    from factkit.world import policy as starts

    class Timer(TrainerCallback):
        def on_step_begin(self, args, state, control, **_):
            self.start = seconds()

        def on_step_end(self, args, state, control, **_):
            self.step = passed(self.start)

    timer, run = Timer(), setup.train_and_keep

    def timed(trainer, *given, **named):
        trainer.add_callback(timer)
        return run(trainer, *given, **named)

    setup.train_and_keep = timed
    length = 32 if kind == "grpo_long" else 12
    settings = {"rl_steps": STEPS, "rl_batch_size": BATCH, "sft_epochs": 1}
    settings |= {"checkpoint_steps": 1000, "max_completion_length": length}
    p = params.load("truthrl", "laptop", settings)
    start = starts.base_policy(p)
    asked = requests(kind, STEPS * p.sft_batch_size)
    if kind == "sft":
        rows = [{"prompt": a, "completion": " 14 March 1879"} for a in asked]
        sft.sft(start, rows, folder, p)
    else:
        rng = random.Random(0)

        def reward(completions, **_):
            return [rng.random() for _ in completions]

        rows = [{"prompt": a} for a in asked]
        grpo.grpo(start, rows, lambda p, folder: reward, folder, p)
    return timer.step


def decode() -> dict[str, float]:
    """64 prompts decoded greedily, as an evaluation does."""
    from factkit import models
    from factkit.world import policy as starts

    p = params.load("truthrl", "laptop", {"max_completion_length": 12})
    model, tokenizer = models.load_policy(starts.base_policy(p), p.dtype)
    asked = requests("sampling", 64)
    for _ in range(STEPS):
        start = seconds()
        models.sample(model, tokenizer, asked, models.sampling_of(p))
    return passed(start)


def measure(way: str, kind: str) -> dict[str, float]:
    """One way's figures, from a process of its own."""
    command = [sys.executable, __file__, way, kind]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main(kinds: list[str]) -> None:
    """Print each kind's figures as JSON, the two ways and their ratio."""
    for kind in kinds:
        ways = {way: measure(way, kind) for way in ("libraries", "kit")}
        for way, found in ways.items():
            print(f"{kind}, {way}: {json.dumps(found)}", flush=True)
        old, new = ways["libraries"], ways["kit"]
        print(
            f"{kind}: {old['seconds'] / new['seconds']:.2f} × as fast, "
            f"{old['cpu_seconds'] / new['cpu_seconds']:.2f} × by CPU time",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1:2] in (["libraries"], ["kit"]):
        if sys.argv[1] == "libraries":
            take_the_libraries_way()
        os.environ["TQDM_DISABLE"] = "1"
        with tempfile.TemporaryDirectory() as folder:
            kind = sys.argv[2]
            found = decode() if kind == "sampling" else train(kind, Path(folder) / "r")
        print(json.dumps(found))
    else:
        main(sys.argv[1:] or list(KINDS))
