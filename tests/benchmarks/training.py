"""Training updates and greedy decoding by TRL and transformers alone, and by the kit.

Each run is a process of its own. Its first step warms up, its last one is profiled, and
the median of the steps between counts.
"""

import functools
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
from measuring import ROUNDS, Figures, run_in_turn, stopwatch
from operators import profile_step

from factkit.papers.truthrl.arms import TruthRL
from factkit.run import params

TITLE = "Training and decoding"
TEXT = """\
TruthRL's questions and parameters, with 16 completions per GRPO update at `laptop`, and
random rewards. *TRL* is its trainer without any of the kit's code, with the same
configuration and dtype; for decoding it is transformers' `generate`. No library here is
tuned for CPUs: the comparison says nothing about GPUs. *Unpatched* is the kit without
`cpu.share_prompts`, which replaces private methods of TRL. FLOPs and shares are those
of the operators of a profiled step; FLOPs count matrix products only, and attention
includes its backward pass."""

TRL, UNPATCHED, KIT = "TRL", "kit, unpatched", "kit"
WAYS = (TRL, UNPATCHED, KIT)


@dataclass(frozen=True)
class Task:
    """kind: GRPO | SFT | decoding; steps: of a run; long: bare questions as prompts;
    profiled: the last step is profiled and not timed."""

    kind: str
    profile: str
    steps: int = 3
    long: bool = False
    profiled: bool = True
    values: dict[str, Any] = field(default_factory=dict)

    def params(self) -> TruthRL:
        """The profile's parameters with as many steps, and no checkpoint."""
        values = {"rl_steps": self.steps, "sft_epochs": 1, "checkpoint_steps": 1000}
        return params.load("truthrl", self.profile, values | self.values)


SMALL = {"rl_batch_size": 16}  # more needs 10 GB with TRL alone
TASKS = {
    "GRPO, `laptop`": Task("GRPO", "laptop", values=SMALL),
    "GRPO, `laptop`, 32 tokens after short prompts": Task(
        "GRPO", "laptop", long=True, values=SMALL | {"max_completion_length": 32}
    ),
    "SFT, `laptop`": Task("SFT", "laptop"),
    "64 prompts decoded, `laptop`": Task("decoding", "laptop"),
    "GRPO, `tiny`": Task("GRPO", "tiny", steps=6),
}
BASELINES = dict.fromkeys(TASKS, TRL)


def measure(quick: bool) -> Iterator[pd.DataFrame]:
    """A table per task, one row per run. quick: one round at `tiny`."""
    for name, task in TASKS.items():
        task = replace(task, profile="tiny") if quick else task
        ways = WAYS if task.kind == "GRPO" else (TRL, KIT)
        with tempfile.TemporaryDirectory() as folder:
            inputs = Path(folder) / "inputs.json"
            inputs.write_text(json.dumps(prepare(task)), "utf-8")
            runs = {way: functools.partial(run_process, way, inputs) for way in ways}
            yield run_in_turn(name, runs, 1 if quick else ROUNDS)


def prepare(task: Task) -> dict[str, Any]:
    """A task with its start policy's folder and its prompts."""
    from factkit.answers.sampling import Probe
    from factkit.answers.training_rows import RowFormat
    from factkit.facts.policy import base_policy
    from factkit.papers.truthrl.data import open_questions
    from factkit.papers.truthrl.train import ProbedQuestions, prompt_rows

    p = task.params()
    examples = open_questions(p).load()[0][:256]
    if task.long:
        prompts = [example.question for example in examples]
    else:
        probes = [Probe(example.id, []) for example in examples]
        probed = ProbedQuestions(examples, probes, p.known_share)
        prompts = [row["prompt"] for row in prompt_rows(probed, RowFormat.of(p))]
    return {"task": asdict(task), "start": base_policy(p), "prompts": prompts}


def run_process(way: str, inputs: Path, threads: int = 2) -> Figures:
    """The figures of a task done one way, in a process of its own. inputs: a file with
    what `prepare` returns."""
    command = [sys.executable, __file__, way, str(inputs)]
    env = os.environ | {"TQDM_DISABLE": "1", "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=env)
    return json.loads(done.stdout.splitlines()[-1])


# ---- in the process


class Steps:
    """Times the steps of a run, and profiles the last one."""

    def __init__(self, task: Task):
        self.total, self.profiled, self.done = task.steps, task.profiled, 0
        self.timed: list[Figures] = []
        self.lengths: list[float] = []  # mean tokens of a completion, per step

    @contextmanager
    def step(self, vocabulary: int):
        """Around one step of a model with so many words."""
        self.done += 1
        if self.profiled and self.done == self.total:
            with profile_step(vocabulary) as self.operators:
                yield
            return
        with stopwatch() as figures:
            yield
        if self.done > 1:
            self.timed.append(figures)

    def figures(self) -> Figures:
        """The medians of the timed steps, and the profiled step's operators."""
        figures = {key: median(f[key] for f in self.timed) for key in self.timed[0]}
        if self.lengths:
            figures["tokens per completion"] = median(self.lengths[1:-1])
        if not self.profiled:
            return figures
        gflop = self.operators.pop("GFLOP")
        rate = gflop / figures["seconds"]
        reached = {"GFLOP": gflop, "share of peak": rate / figures["peak, GFLOP/s"]}
        return figures | reached | self.operators


def timer(steps: Steps):
    """A callback of a trainer that records its steps."""
    from transformers import TrainerCallback

    class Timer(TrainerCallback):
        def on_step_begin(self, args, state, control, model=None, **_):
            if state.global_step < steps.total:
                self.running = steps.step(model.config.vocab_size)
                self.running.__enter__()

        def on_step_end(self, args, state, control, **_):
            self.running.__exit__(None, None, None)
            control.should_training_stop = state.global_step == steps.total

        def on_log(self, args, state, control, logs, **_):
            if "completions/mean_length" in logs:
                steps.lengths.append(logs["completions/mean_length"])

    return Timer()


def random_reward(seed: int = 0) -> Callable[..., list[float]]:
    rng = random.Random(seed)

    def reward(completions, **_):
        return [rng.random() for _ in completions]

    return reward


def training_rows(task: Task, prompts: Sequence[str]) -> list[dict[str, str]]:
    if task.kind == "GRPO":
        return [{"prompt": prompt} for prompt in prompts]
    return [{"prompt": prompt, "completion": " Oslo"} for prompt in prompts]


def load_bare(start: str, p: TruthRL):
    """Model and tokenizer as transformers loads them, in the kit's dtype."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from factkit.run import machine

    dtype = machine.dtype(p.dtype) if p.lora_rank else "float32"
    model = AutoModelForCausalLM.from_pretrained(start, dtype=getattr(torch, dtype))
    tokenizer = AutoTokenizer.from_pretrained(start, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return model, tokenizer


def train_by_trl(task: Task, start: str, rows: list[dict], steps: Steps, folder: Path):
    """Train with TRL alone."""
    from datasets import Dataset
    from trl import GRPOTrainer, SFTTrainer

    from factkit.train import grpo, offline, setup

    p = task.params()
    make, config = SFTTrainer, offline.sft_config
    if task.kind == "GRPO":
        make = functools.partial(GRPOTrainer, reward_funcs=random_reward())
        config = grpo.grpo_config
    model, tokenizer = load_bare(start, p)
    trainer = make(
        model=model,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(rows),
        peft_config=setup.lora(p.lora_rank, p.lora_alpha),
        args=config(p, folder),
        callbacks=[timer(steps)],
    )
    trainer.train()


def train_by_kit(task: Task, start: str, rows: list[dict], steps: Steps, folder: Path):
    """Train with the kit."""
    from factkit.train import grpo, offline, setup

    train_and_keep = setup.train_and_keep

    def timed(trainer, *args, **kwargs):
        trainer.add_callback(timer(steps))
        return train_and_keep(trainer, *args, **kwargs)

    setup.train_and_keep = timed
    if task.kind == "GRPO":
        make_reward = lambda p, folder: random_reward()  # noqa: E731
        grpo.grpo(start, rows, make_reward, folder, task.params())
    else:
        offline.sft(start, rows, folder, task.params())


def decode(task: Task, way: str, start: str, prompts: Sequence[str], steps: Steps):
    """Decode one batch greedily, until the end of sequence or the limit."""
    from factkit.policy.policy import load_policy

    p, prompts = task.params(), prompts[:64]
    policy = load_policy(start, p)
    greedy = replace(policy.greedy, one_line=False)
    run = functools.partial(policy.generate, prompts, greedy)
    if way == TRL:
        policy.model, policy.tokenizer = load_bare(start, p)

        def run():
            inputs = policy.tokenizer(prompts, padding=True, return_tensors="pt")
            output = policy.model.generate(
                **inputs, max_new_tokens=p.max_completion_length, do_sample=False
            )
            policy.tokenizer.batch_decode(output, skip_special_tokens=True)

    for _ in range(steps.total):
        with steps.step(policy.model.config.vocab_size):
            run()


def main(way: str, inputs: str) -> None:
    """Do a task one way and print its figures as JSON."""
    from factkit.policy import cpu

    values = json.loads(Path(inputs).read_text("utf-8"))
    task, start, prompts = Task(**values["task"]), values["start"], values["prompts"]
    steps = Steps(task)
    rows = training_rows(task, prompts)
    if way == UNPATCHED:
        cpu.share_prompts = lambda trainer: None
    with tempfile.TemporaryDirectory() as folder:
        if task.kind == "decoding":
            decode(task, way, start, prompts, steps)
        else:
            train = train_by_trl if way == TRL else train_by_kit
            train(task, start, rows, steps, Path(folder) / "run")
    print(json.dumps(steps.figures()))


if __name__ == "__main__":
    main(*sys.argv[1:])
