"""Where a step of profile laptop spends its time, in the kit and without its measures.

A GRPO step on short answers after a passage, one on longer answers to a short request,
an SFT step, and greedy decoding. Each goes by the libraries' own way and by the kit's,
in processes of their own, one after the other. The second step is timed, the third
profiled. `peak` is what a large matrix product reaches on this machine, in bfloat16 or,
on processors without that, in float32, as the kit computes.

    python tests/benchmarks/bench_speed.py [grpo_short grpo_long sft sampling]
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

from factkit.run import machine, params

BATCH, STEPS = 16, 3  # completions a GRPO step (more take 10 GB); steps of a run
MATMULS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")
KINDS = ("grpo_short", "grpo_long", "sft", "sampling")


def take_the_libraries_way() -> None:
    """Switch off what `policy.cpu` does beyond the libraries; the dtype stays."""
    from factkit.policy import cpu
    from factkit.train import offline

    config = offline.sft_config
    cpu.tune = lambda model: None
    cpu.keep_activations_dtype = lambda model: None
    cpu.share_prompts = lambda trainer: None
    offline.sft_config = lambda *args: with_loss(config(*args), "nll")


def with_loss(config, loss: str):
    config.loss_type = loss
    return config


def requests(kind: str, n: int) -> list[str]:
    """Prompts of 55 to 110 tokens with a passage, or of about 25 ("grpo_long")."""
    from factkit.data.corpus import load_leads

    rng = random.Random(0)
    leads = [d.text.split() for d in load_leads()[:2000]]
    if kind == "grpo_long":
        return [f"Tell me about {' '.join(rng.choice(leads)[:15])}." for _ in range(n)]
    return [
        f"References:\n{' '.join(rng.choice(leads)[: rng.randint(30, 50)])}\n"
        "Question: In which year was the person born?\nAnswer:"
        for _ in range(n)
    ]


class Profile:
    """Times steps; profiles the last of them."""

    def __init__(self, vocabulary: int):
        self.vocabulary = vocabulary
        self.steps: list[dict[str, float]] = []

    @contextmanager
    def step(self, last: bool):
        from torch.profiler import profile

        if last:
            with profile(record_shapes=True, with_flops=True) as found:
                start = time.perf_counter()
                yield
                wall = time.perf_counter() - start
            self.shares = self._shares(found, wall)
            return
        start, cpu = time.perf_counter(), time.process_time()
        yield
        self.steps.append(
            {
                "seconds": time.perf_counter() - start,
                "cpu_seconds": time.process_time() - cpu,
            }
        )

    def _shares(self, found, wall: float) -> dict[str, float]:
        """Shares of the wall time by kind of operator; `python`: in no operator."""
        seconds: Counter[str] = Counter()
        self.flops = 0
        for event in found.key_averages(group_by_input_shape=True):
            own = event.self_cpu_time_total / 1e6
            if "Optimizer.step" in event.key:
                seconds["optimizer"] += event.cpu_time_total / 1e6
            if not event.key.startswith("aten::"):
                continue
            kind = "others"
            if event.key in MATMULS:
                self.flops += event.flops
                sizes = {n for shape in event.input_shapes for n in shape}
                kind = "lm_head" if self.vocabulary in sizes else "matmul"
            elif "attention" in event.key:
                kind = "attention"
            elif event.key in ("aten::copy_", "aten::cat", "aten::index"):
                kind = "copies"
            seconds[kind] += own
        seconds["python"] = wall - sum(
            s for k, s in seconds.items() if k != "optimizer"
        )
        return {k: round(s / wall, 3) for k, s in seconds.items()}

    def result(self) -> dict[str, object]:
        step = self.steps[-1]
        found = {k: round(s, 2) for k, s in step.items()}
        rate = round(self.flops / step["seconds"] / 1e9)
        return (
            found
            | {"gflop": round(self.flops / 1e9), "gflop_per_s": rate}
            | {"shares": self.shares}
        )


def train(kind: str, folder: Path) -> dict[str, object]:
    """Steps of the kit's own GRPO or SFT, timed."""
    from transformers import TrainerCallback

    from factkit.facts import policy as starts
    from factkit.train import grpo, offline, setup

    class Timer(TrainerCallback):
        def on_step_begin(self, args, state, control, model=None, **_):
            if state.global_step == 0:
                self.seen = Profile(model.config.vocab_size)
            self.running = self.seen.step(last=state.global_step == STEPS - 1)
            self.running.__enter__()

        def on_step_end(self, args, state, control, **_):
            self.running.__exit__(None, None, None)

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
        offline.sft(start, rows, folder, p)
    else:
        rng = random.Random(0)

        def reward(completions, **_):
            return [rng.random() for _ in completions]

        rows = [{"prompt": a} for a in asked]
        grpo.grpo(start, rows, lambda p, folder: reward, folder, p)
    return timer.seen.result()


def decode() -> dict[str, object]:
    """64 prompts decoded greedily, as an evaluation does."""
    from factkit.facts import policy as starts
    from factkit.policy.policy import load_policy

    p = params.load("truthrl", "laptop", {"max_completion_length": 12})
    policy = load_policy(starts.base_policy(p), p)
    seen, asked = Profile(policy.model.config.vocab_size), requests("sampling", 64)
    for step in range(STEPS):
        with seen.step(last=step == STEPS - 1):
            policy.generate(asked, policy.greedy)
    return seen.result()


def peak() -> float:
    """GFLOP/s of the best of five large products, in the dtype that the kit takes."""
    import torch

    a = torch.randn(2048, 2048, dtype=getattr(torch, machine.dtype("bfloat16")))
    best = 1e9
    for _ in range(5):
        start = time.perf_counter()
        torch.nn.functional.linear(a, a)
        best = min(best, time.perf_counter() - start)
    return 2 * 2048**3 / best / 1e9


def measure(way: str, kind: str) -> dict[str, object]:
    """One way's figures, from a process of its own."""
    command = [sys.executable, __file__, way, kind]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main(kinds: list[str]) -> None:
    """Print each kind's figures as JSON, the two ways and their ratio."""
    reached = peak()
    print(f"peak of a product: {reached:.0f} GFLOP/s")
    for kind in kinds:
        ways = {way: measure(way, kind) for way in ("libraries", "kit")}
        for way, found in ways.items():
            found["achieved_of_peak"] = round(found["gflop_per_s"] / reached, 2)
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
