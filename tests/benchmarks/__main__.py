"""Measure speed: python tests/benchmarks [--quick] [name …], by default all.

Stores the runs in outputs/reference/speed/<name>.csv after each task, and writes the
page outputs/reference/speed.md from all stored runs. --quick: each benchmark once at
its smallest size (`tiny` in place of `laptop`); prints tables and stores nothing.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import judged_rewards
import pandas as pd
import threads
import training
from measuring import medians

from factkit.run import machine
from factkit.run.runs import REFERENCE

BENCHMARKS: Mapping[str, ModuleType] = {
    "training": training,
    "threads": threads,
    "judged_rewards": judged_rewards,
}
STORED = REFERENCE / "speed"
HEAD = """\
# Speed

Made by `make bench`. In each round all ways to do a task run one after the other; every
figure is a median over the rounds. *Speed-up* is the median over the rounds of the
baseline's time, divided by the way's time in the same round; the baseline has 1. *Peak*
is what a large matrix product reached just before and after the measured time: where it
differs between rows, something else used the machine.
"""


def page(stored: Path = STORED) -> str:
    """The results page in Markdown, of the runs stored in a folder."""
    parts = [HEAD]
    for name, benchmark in BENCHMARKS.items():
        if (stored / f"{name}.csv").exists():
            runs = pd.read_csv(stored / f"{name}.csv")
            parts.append(section(benchmark, runs))
    return "\n".join(parts)


def section(benchmark: ModuleType, runs: pd.DataFrame) -> str:
    """A benchmark's part of the page: what it compares, on which machine, the table."""
    machines = "; ".join(dict.fromkeys(runs["device"] + ", commit " + runs["commit"]))
    rounds = runs["round"].nunique()
    table = medians(runs.drop(columns=["device", "commit"]), benchmark.BASELINES)
    cells = table.map(format_number).reset_index().to_markdown(index=False)
    where = f"{machines}; medians of {rounds}."
    return f"## {benchmark.TITLE}\n\n{benchmark.TEXT}\n\n{where}\n\n{cells}\n"


def format_number(x: float) -> str:
    if pd.isna(x):
        return "–"
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.2f}"


def main() -> None:
    """Run the benchmarks that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *BENCHMARKS], default=[])
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    for name in options.names or BENCHMARKS:
        print(f"== {name} ==", flush=True)
        where = {"device": machine.device(), "commit": machine.git_commit()}
        runs = pd.DataFrame()
        for table in BENCHMARKS[name].measure(options.quick):
            runs = pd.concat([runs, table.assign(**where)])
            if not options.quick:
                STORED.mkdir(exist_ok=True)
                runs.to_csv(STORED / f"{name}.csv", index=False)
                (REFERENCE / "speed.md").write_text(page(), "utf-8")
        print(section(BENCHMARKS[name], runs))


if __name__ == "__main__":
    main()
