"""A GRPO update with one thread and with two, alone and beside a busy program; and as
two processes, each with half of the batch."""

import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
from measuring import ROUNDS, Figures, run_in_turn
from training import KIT, Task, prepare, run_process

TITLE = "Threads"
TEXT = """\
A GRPO update of TruthRL's main job with 16 completions, on two cores. The busy program
is one endless loop. *Two processes* have a thread and 8 completions each and exchange
no gradients: the most that data parallelism inside a run could reach."""

ONE, TWO, PROCESSES = "1 thread", "2 threads", "2 processes, 1 thread each"
ALONE, BESIDE = "GRPO alone", "GRPO beside a busy program"
BASELINES = {ALONE: TWO, BESIDE: TWO}


def measure(quick: bool) -> Iterator[pd.DataFrame]:
    """Two tables, one row per run. quick: one round at `tiny`."""
    profile, rounds = ("tiny", 1) if quick else ("laptop", ROUNDS)
    with tempfile.TemporaryDirectory() as folder:
        whole, half = Path(folder) / "whole.json", Path(folder) / "half.json"
        for inputs, batch in ((whole, 16), (half, 8)):
            values = {"rl_batch_size": batch}
            task = Task("GRPO", profile, profiled=False, values=values)
            inputs.write_text(json.dumps(prepare(task)), "utf-8")
        ways = {
            ONE: functools.partial(run_process, KIT, whole, threads=1),
            TWO: functools.partial(run_process, KIT, whole, threads=2),
            PROCESSES: functools.partial(run_two, half),
        }
        yield run_in_turn(ALONE, ways, rounds)
        with busy_program():
            yield run_in_turn(BESIDE, ways, rounds)


def run_two(inputs: Path) -> Figures:
    """The figures of the slower of two processes that run at the same time."""
    run = functools.partial(run_process, KIT, inputs, threads=1)
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(run) for _ in range(2)]
        return max((run.result() for run in both), key=lambda f: f["seconds"])


@contextmanager
def busy_program() -> Iterator[None]:
    """A process that uses one core as long as the block runs."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()
