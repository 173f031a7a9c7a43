"""`make gpu-check` at the smallest sizes, with vLLM's CPU build, PEFT for Unsloth and
SmolLM2 in the place of Qwen3-8B; two processes stand for two GPUs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from factkit.run.params import ROOT

sys.path.append(str(ROOT / "tests"))
from test_notebooks import SMALLEST  # noqa: E402

CHECK = ROOT / "tests" / "gpu" / "check.py"
SHORT = {"max_completion_length": 12, "rl_batch_size": 8, "num_generations": 4}
WORLD = {"world_people": 60, "pretrain_steps": 30}
SIZES = {
    "all": {"rl_steps": 2},
    "sleep": SHORT | WORLD,
    "lora": SHORT | WORLD,
    "zero3": SHORT | WORLD | {"dtype": "float32"},
    "zero3_tp2": SHORT | WORLD | {"dtype": "float32"},
    "shipped": SHORT | {"max_context_length": 256},
}
# an Unsloth whose engine has the base policy's weights, whatever the adapter
FORGETFUL = """
exec(open(%r).read())

def of_base(self):
    for name, weight in self.model.named_parameters():
        if self.model.prefix not in name:
            name = name.removeprefix("base_model.model.").replace(".base_layer", "")
            yield name, weight.data

VLLMGeneration._iter_named_params = of_base
"""


@pytest.fixture
def check(modules, smollm, tmp_path, monkeypatch):
    """Run parts of the check at the smallest sizes; (exit status, jobs)."""
    overlay = yaml.safe_load(CHECK.with_name("overlay.yaml").read_text("utf-8"))
    for part, values in (SMALLEST | SIZES).items():
        overlay[part] = overlay.get(part, {}) | values
    (tmp_path / "sizes.yaml").write_text(yaml.safe_dump(overlay), "utf-8")
    (tmp_path / "hub" / "Qwen").mkdir(parents=True)
    (tmp_path / "hub" / "Qwen" / "Qwen3-8B").symlink_to(smollm)
    monkeypatch.setenv("FACTKIT_HUB", str(tmp_path / "hub"))
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    command = [sys.executable, str(CHECK), "--profile", "tiny", "--minutes", "600"]
    command += ["--overlay", str(tmp_path / "sizes.yaml")]
    command += ["--out", str(tmp_path / "out"), "--parts"]

    def run(*parts):
        code = subprocess.run([*command, *parts]).returncode
        summary = (tmp_path / "out" / "summary.json").read_text("utf-8")
        return code, json.loads(summary)["jobs"]

    return run


def test_rollouts_follow_the_policy_with_each_way_to_train(check):
    code, jobs = check("sleep", "lora", "zero3", "shipped")
    assert {job["status"] for job in jobs.values()} == {"tried without a GPU"}, jobs
    assert code == 0 and len(jobs) == 5
    assert all(job["off_policy"] < 0.1 for job in jobs.values())


def test_rollouts_of_the_base_policy_are_no_proof(check, modules):
    site = Path(__file__).parents[1] / "site" / "unsloth.py"
    (modules / "unsloth.py").write_text(FORGETFUL % str(site), "utf-8")
    code, jobs = check("lora")
    (lora,) = jobs.values()
    assert code == 1 and lora["status"] == "failed"
    assert "off the updated policy" in lora["error"]


def test_each_paper_trains_beside_an_engine(check, tmp_path):
    code, jobs = check("papers", "evaluate")
    assert {job["status"] for job in jobs.values()} == {"tried without a GPU"}, jobs
    assert code == 0 and len(jobs) == 5 + 6 + 1
    curves = list((tmp_path / "out").glob("tiny/*_train/*/metrics.csv"))
    before = {path: path.stat().st_mtime_ns for path in curves}
    assert len(list((tmp_path / "out").glob("tiny/*_train/*/results.json"))) == 1
    check("papers")  # all is there
    assert {path: path.stat().st_mtime_ns for path in curves} == before
