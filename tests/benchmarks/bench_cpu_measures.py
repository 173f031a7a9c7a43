"""What each of the kit's two CPU measures is worth in a GRPO step, at profile laptop.

Contiguous hidden states before `lm_head`, and glibc told to keep freed memory: with
both, without the one, without the other, in processes of their own, twice in turn.
"""

import csv
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_grpo import kit_steps

from factkit import cpu, params

VARIANTS = ("both", "without_contiguous", "without_kept_memory")


def run(variant: str, folder: Path) -> None:
    """Train a few steps with one of the measures switched off."""
    if variant == "without_contiguous":
        cpu.make_lm_head_input_contiguous = lambda model: None
    if variant == "without_kept_memory":
        cpu.keep_freed_memory = lambda: None
    settings = {"rl_steps": 5, "checkpoint_steps": 1000}
    kit_steps(params.load("truthrl", "laptop", settings), folder)


def main() -> None:
    """Print the median seconds a step of each variant."""
    times: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for _ in range(2):
        for variant, seen in times.items():
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, __file__, variant, folder]
                subprocess.run(command, check=True, capture_output=True)
                with (Path(folder) / "metrics.csv").open() as f:
                    seen += [float(r["step_time"]) for r in csv.DictReader(f)][2:]
    medians = {v: round(statistics.median(seen), 2) for v, seen in times.items()}
    print(f"GRPO step, laptop, seconds: {json.dumps(medians)}")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        run(sys.argv[1], Path(sys.argv[2]))
    else:
        main()
