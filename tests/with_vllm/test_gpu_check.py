"""`make gpu-check` at the smallest sizes, with vLLM's CPU build, all but Unsloth.

What is measured says nothing here; that each part ends with its figures does.
"""

import json
import subprocess
import sys

import pytest
import yaml

from factkit.params import ROOT

sys.path.append(str(ROOT / "tests"))
from test_notebooks import SMALLEST  # noqa: E402

CHECK = ROOT / "tests" / "gpu" / "check.py"
SHORT = {"max_completion_length": 8, "max_context_length": 256, "rl_batch_size": 8}
SIZES = {
    "speed": SHORT,
    "memory": SHORT | {"lora_rank": 8, "micro_batch_size": 4, "num_generations": 4},
}


@pytest.fixture
def check(modules, tmp_path):
    """Run the check on the fact world with two updates each; (exit status, summary)."""
    overlay = yaml.safe_load(CHECK.with_name("overlay.yaml").read_text("utf-8"))
    for part, values in (SMALLEST | SIZES).items():
        overlay[part] = overlay.get(part, {}) | values
    (tmp_path / "sizes.yaml").write_text(yaml.safe_dump(overlay), "utf-8")
    out = tmp_path / "out"
    sizes = ["--profile", "tiny", "--steps", "2", "--minutes", "600"]
    sizes += ["--overlay", str(tmp_path / "sizes.yaml"), "--out", str(out)]

    def run(*arguments):
        command = [sys.executable, str(CHECK), *sizes, *arguments]
        code = subprocess.run(command).returncode
        return code, json.loads((out / "summary.json").read_text("utf-8"))["jobs"], out

    return run


def test_speed_and_memory_have_their_figures(check):
    code, jobs, out = check("--parts", "speed", "memory")
    assert code == 0, jobs
    speed, memory = jobs.values()
    assert speed["step_ratio"] > 0 and speed["rollout_ratio"] > 0
    assert memory["doctor_gb"] > 0 and memory["torch_gb"] == 0  # no GPU
    assert (out / "summary.png").stat().st_size > 0


def test_each_paper_trains_beside_an_engine(check):
    code, jobs, out = check("--parts", "grpo", "lora")
    statuses = {name: job["status"] for name, job in jobs.items()}
    assert statuses.pop("lora truthrl ternary").startswith("needs a GPU")
    assert set(statuses.values()) == {"done"}, jobs
    assert code == 1
    trained = [job for name, job in jobs.items() if name.startswith("grpo")]
    assert [job["steps"] for job in trained] == [2] * 6
    curves = list(out.glob("tiny/*_train/*/metrics.csv"))
    before = {path: path.stat().st_mtime_ns for path in curves}
    check("--parts", "grpo")  # all is there
    assert {path: path.stat().st_mtime_ns for path in curves} == before
