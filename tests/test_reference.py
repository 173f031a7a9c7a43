"""The committed reference results are whole and say where they come from."""

import csv
import json

import pytest

from factkit import arms, params
from factkit.params.files import ROOT

REFERENCE = ROOT / "outputs" / "reference"
TRAIN = {
    "truthrl": "12_truthrl_train",
    "rar": "22_rar_train",
    "reason": "32_reason_train",
    "rlfh": "42_rlfh_train",
    "veri": "52_veri_train",
}
OWN = {"seed", "output_dir", "claims_path"}  # where a user's files are
RESULTS = sorted(REFERENCE.glob("*/*/*/results.json"))
RUNS = [p for p in RESULTS if p.parts[-3] in TRAIN.values()]
SEEDS = {
    ("truthrl", "tiny", ""): "0 1 2",
    ("truthrl", "tiny", "reasoning"): "0 1 2",
    ("truthrl", "tiny", "retrieval"): "0 1 2",
    ("truthrl", "tiny", "small"): "0 1 2",
    ("truthrl", "tiny", "large"): "0 1 2",
    ("truthrl", "laptop", ""): "0",
    ("rar", "tiny", ""): "0 1 2",
    ("rar", "tiny", "beta0.001"): "0",
    ("rar", "tiny", "beta0.01"): "0",
    ("rar", "tiny", "beta1"): "0",
    ("reason", "tiny", ""): "0 1 2",
    ("rlfh", "tiny", ""): "0 1 2",
    ("veri", "tiny", ""): "0 1 2",
}


def read(path):
    return json.loads(path.read_text())


@pytest.mark.parametrize("path", RESULTS, ids=lambda p: "/".join(p.parts[-4:-1]))
def test_a_reference_result_names_hardware_time_and_commit(path):
    results = read(path)
    assert results["status"] == "done"
    assert results["device"] and results["wall_s"] > 0 and results["git"]


@pytest.mark.parametrize("path", RESULTS, ids=lambda p: "/".join(p.parts[-4:-1]))
def test_a_reference_result_names_no_path_of_its_machine(path):
    values = read(path)["params"].values()
    assert not [v for v in values if isinstance(v, str) and v.startswith("/")]


@pytest.mark.parametrize(("paper", "profile", "variant"), SEEDS)
def test_every_arm_and_seed_of_a_profile_has_a_reference(paper, profile, variant):
    seeds = SEEDS[paper, profile, variant].split()
    folder = REFERENCE / (f"{profile}-{variant}" if variant else profile) / TRAIN[paper]
    arms = params.load(paper, profile, variant=variant).arms.split()
    wanted = {f"{arm}-s{seed}" for arm in arms for seed in seeds}
    assert {p.parent.name for p in folder.glob("*/results.json")} >= wanted


@pytest.mark.parametrize("path", RUNS, ids=lambda p: "/".join(p.parts[-4:-1]))
def test_a_reference_run_has_its_profile_s_present_parameters(path):
    result = read(path)
    found = result["params"]
    p = params.load(result["paper"], found["profile"], variant=found["variant"])
    keys = set(arms.table(result["paper"])[result["arm"]].reads.model_fields)
    now = p.model_dump(include=keys - OWN)
    # what came later has the value that left things as they were
    later = {k: f.default for k, f in type(p).model_fields.items()}
    assert {k: found.get(k, later[k]) for k in now} == now


def test_the_curves_of_reference_runs_are_whole():
    online = [
        name
        for paper in arms.PAPERS
        for name, arm in arms.table(paper).items()
        if arm.algorithm in ("GRPO", "PPO")
    ]
    for path in RUNS:
        found = read(path)
        curve = path.parent / "metrics.csv"
        if found["arm"] in online:
            with curve.open() as f:
                assert len(list(csv.DictReader(f))) == found["params"]["rl_steps"]
