"""A GRPO step of the kit against bare TRL with the same configuration, side by side.

Each round runs both, in processes of their own, in turn; the median step of all rounds
counts, without the first two steps. `laptop` takes a few minutes: BENCH_LAPTOP=0 skips.
"""

import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from factkit.data import assets
from factkit.papers.truthrl.arms import TruthRL
from factkit.papers.truthrl.rewards import reward_function
from factkit.run import params

SETTINGS = {
    "tiny": {"rl_steps": 22, "checkpoint_steps": 1000},
    "laptop": {"rl_steps": 5, "checkpoint_steps": 1000},
}
ROUNDS = {"tiny": 3, "laptop": 2}


def rows(p: TruthRL) -> list[dict]:
    """Prompts of the profile; what is answered is of no account here."""
    from factkit.answers.sampling import Probe
    from factkit.answers.training_rows import RowFormat
    from factkit.papers.truthrl.data import open_questions
    from factkit.papers.truthrl.train import ProbedQuestions, prompt_rows

    asked = open_questions(p).load()[0][:256]
    probes = [Probe(e.id, []) for e in asked]
    return prompt_rows(ProbedQuestions(asked, probes, p.known_share), RowFormat.of(p))


def kit_steps(p: TruthRL, folder: Path) -> None:
    """Train with factkit, from its base policy."""
    from factkit.facts.policy import base_policy
    from factkit.train import grpo

    grpo.grpo(base_policy(p), rows(p), reward_function, folder, p)


def bare_steps(p: TruthRL, folder: Path) -> None:
    """Train with TRL alone: same configuration, same reward, nothing of the kit's."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOTrainer

    from factkit.facts.policy import base_policy
    from factkit.train import grpo, setup

    path = base_policy(p)
    dtype = getattr(torch, p.dtype) if p.lora_rank else torch.float32
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(path, dtype=dtype),
        processing_class=AutoTokenizer.from_pretrained(path, padding_side="left"),
        train_dataset=Dataset.from_list(rows(p)),
        reward_funcs=reward_function(p, folder),
        peft_config=setup.lora(p.lora_rank, p.lora_alpha),
        args=grpo.grpo_config(p, folder / "checkpoint"),
    )
    trainer.train()
    setup.write_curve(trainer.state.log_history, folder / "metrics.csv")


def step_times(which: str, profile: str) -> list[float]:
    """Seconds of each step, from the third on, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, which, profile, folder]
        subprocess.run(command, check=True, capture_output=True)
        with (Path(folder) / "metrics.csv").open(encoding="utf-8") as f:
            return [float(row["step_time"]) for row in csv.DictReader(f)][2:]


def compare(profile: str) -> dict[str, float]:
    """Median seconds a step of both, and their ratio."""
    times: dict[str, list[float]] = {"kit": [], "bare": []}
    for _ in range(ROUNDS[profile]):
        for which in times:
            times[which] += step_times(which, profile)
    kit, bare = (statistics.median(times[which]) for which in ("kit", "bare"))
    return {"kit_s": round(kit, 3), "bare_s": round(bare, 3), "ratio": kit / bare}


def main() -> None:
    """Print the comparison of each profile as a line of JSON."""
    assets.policy_path("smollm2-135m-instruct")
    profiles = ["tiny"] + ["laptop"] * (os.environ.get("BENCH_LAPTOP") != "0")
    for profile in profiles:
        p = params.load("truthrl", profile)
        found = compare(profile)
        batch = f"{p.rl_batch_size} completions × {p.max_completion_length} tokens"
        print(f"GRPO step, {profile}, {batch}: {json.dumps(found)}")


if __name__ == "__main__":
    if len(sys.argv) == 4:
        which, profile, folder = sys.argv[1:]
        settings = params.load("truthrl", profile, SETTINGS[profile])
        {"kit": kit_steps, "bare": bare_steps}[which](settings, Path(folder))
    else:
        main()
