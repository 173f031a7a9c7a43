"""Time the ways to do one task in turn, and tabulate the medians of the rounds."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pandas as pd

from factkit.run import machine

ROUNDS = 5
PRODUCT = 2048  # rows and columns of the matrices of `matrix_peak`
SPEED_UP = "speed-up"

Figures = dict[str, float]  # of one run; `seconds` among them


def matrix_peak() -> float:
    """GFLOP/s of the best of two large matrix products, in the dtype that the kit
    computes in on this processor."""
    import torch

    dtype = getattr(torch, machine.dtype("bfloat16"))
    matrix = torch.randn(PRODUCT, PRODUCT, dtype=dtype)
    best = float("inf")
    for _ in range(2):
        start = time.perf_counter()
        torch.nn.functional.linear(matrix, matrix)
        best = min(best, time.perf_counter() - start)
    return 2 * PRODUCT**3 / best / 1e9


@contextmanager
def stopwatch() -> Iterator[Figures]:
    """Fill a dict with the seconds and CPU seconds of the block, and with the peak of
    the machine: the mean of `matrix_peak` just before and just after the block."""
    figures: Figures = {}
    before = matrix_peak()
    wall, cpu = time.perf_counter(), time.process_time()
    yield figures
    figures["seconds"] = time.perf_counter() - wall
    figures["CPU seconds"] = time.process_time() - cpu
    figures["peak, GFLOP/s"] = (before + matrix_peak()) / 2


def run_in_turn(
    task: str, ways: Mapping[str, Callable[[], Figures]], rounds: int
) -> pd.DataFrame:
    """Run each way once per round; return one row per run.

    Every second round runs them in reverse order, so that a machine that becomes slower
    or faster favours none.
    """
    rows = []
    for number in range(rounds):
        for way in list(ways)[:: -1 if number % 2 else 1]:
            figures = ways[way]()
            print(f"    {task}, {way}: {figures['seconds']:.2f} s", flush=True)
            rows.append({"task": task, "way": way, "round": number} | figures)
    return pd.DataFrame(rows)


def medians(runs: pd.DataFrame, baselines: Mapping[str, str]) -> pd.DataFrame:
    """One row per task and way with the medians over the rounds, and the speed-up: the
    median over the rounds of the baseline's seconds / the way's of the same round.

    baselines: task → the way that the others are compared with.
    """
    seconds = runs.set_index(["task", "round", "way"])["seconds"]
    keys = [
        (task, n, baselines[task])
        for task, n in zip(runs["task"], runs["round"], strict=True)
    ]
    ratios = seconds.loc[keys].to_numpy() / runs["seconds"]
    table = runs.assign(**{SPEED_UP: ratios}).drop(columns="round")
    return table.groupby(["task", "way"], sort=False).median()
