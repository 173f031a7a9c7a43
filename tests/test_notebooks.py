"""Every notebook: static rules, then a run through papermill at the smallest size."""

import ast
import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import pytest

from factkit import arms, params
from factkit.params.files import ROOT
from factkit.runs import REFERENCE, read_results

DRAWN = [  # where reference results are
    (paper, profile)
    for paper in arms.PAPERS
    for profile in ("tiny", "laptop")
    if profile == "tiny" or any((REFERENCE / profile).glob(f"?4_{paper}_figures"))
]
DATA = ROOT.parent / "shared" / "data"  # benchmarks, where they are at hand
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)

# The smallest sizes that still run every line; nothing is learned at them.
SMOKE = {
    "world_people": 120,
    "pretrain_steps": 100,
    "train_questions": 48,
    "dev_questions": 24,
    "test_questions": 24,
    "probe_samples": 4,
    "majority_samples": 2,
    "rft_samples": 16,
    "dpo_iterations": 2,
    "rl_steps": 2,
    "rl_batch_size": 16,
    "num_generations": 4,
    "checkpoint_steps": 1,
    "bootstrap_resamples": 100,
}


SMOKE_RAR = {
    "world_people": 120,
    "pretrain_steps": 200,
    "train_requests": 32,
    "dev_requests": 8,
    "test_requests": 8,
    "drawn_responses": 4,
    "drawn_temperature": 1.5,
    "max_completion_length": 32,
    "length_difference": 1.0,
    "rl_steps": 2,
    "kept_policies": 2,
    "rl_batch_size": 16,
    "num_generations": 4,
    "checkpoint_steps": 1,
    "bootstrap_resamples": 100,
}
SMOKE_REASON = {
    "world_people": 120,
    "pretrain_steps": 200,
    "sft_requests": 16,
    "train_requests": 32,
    "dev_requests": 8,
    "test_requests": 8,
    "drawn_responses": 4,
    "drawn_temperature": 1.5,
    "max_completion_length": 64,
    "length_difference": 1.0,
    "rl_steps": 2,
    "rl_batch_size": 16,
    "num_generations": 4,
    "checkpoint_steps": 1,
    "bootstrap_resamples": 100,
}
SMOKE_RLFH = {
    "world_people": 120,
    "pretrain_steps": 200,
    "train_requests": 32,
    "dev_requests": 8,
    "test_requests": 8,
    "drawn_responses": 4,
    "drawn_temperature": 1.5,
    "max_completion_length": 64,
    "rl_steps": 2,
    "rl_batch_size": 16,
    "num_generations": 4,
    "checkpoint_steps": 1,
    "bootstrap_resamples": 100,
}


SMOKE_VERI = {
    "world_people": 120,
    "pretrain_steps": 60,
    "larger_hidden_size": 160,
    "train_claims": 48,
    "dev_claims": 12,
    "test_claims": 24,
    "sft_trajectories": 32,
    "rl_steps": 2,
    "rl_batch_size": 16,
    "num_generations": 4,
    "checkpoint_steps": 1,
    "bootstrap_resamples": 100,
}


def cells(path, kind):
    return [c for c in nbformat.read(path, 4).cells if c.cell_type == kind]


@each
def test_a_notebook_is_source_only(path):
    notebook = json.loads(path.read_text())
    code = [c for c in notebook["cells"] if c["cell_type"] == "code"]
    assert not any(c["outputs"] or c["execution_count"] for c in code)
    assert not any("papermill" in c["metadata"] for c in notebook["cells"])
    assert not {"papermill", "widgets"} & set(notebook["metadata"])


@each
def test_a_notebook_names_the_kernel_python3(path):
    assert nbformat.read(path, 4).metadata.kernelspec.name == "python3"


@each
def test_a_notebook_has_one_cell_of_typed_and_commented_parameters(path):
    tagged = [
        c for c in cells(path, "code") if "parameters" in c.metadata.get("tags", [])
    ]
    assert len(tagged) == 1
    assert all(isinstance(s, ast.AnnAssign) for s in ast.parse(tagged[0].source).body)
    lines = tagged[0].source.splitlines()
    assert [line for line in lines if "  # " not in line] == []


@each
def test_code_cells_are_short(path):
    code = [c for c in cells(path, "code") if "tags" not in c.metadata]
    assert [c.source for c in code if len(c.source.splitlines()) > 20] == []


@each
def test_a_notebook_tells_a_story(path):
    prose = "\n".join(c.source for c in cells(path, "markdown"))
    assert sum(line.startswith("# ") for line in prose.splitlines()) == 1
    assert prose.count("\n## ") >= 2


@each
def test_links_between_notebooks_lead_somewhere(path):
    prose = "\n".join(c.source for c in cells(path, "markdown"))
    linked = re.findall(r"\]\(([\w/.]+\.ipynb)\)", prose)
    assert [link for link in linked if not (path.parent / link).exists()] == []


def factkit(*arguments, **more):
    command = [sys.executable, "-m", "factkit", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, **more)


SETS = [f"--set={key}={value}" for key, value in SMOKE.items()]
MAIN = params.load("truthrl", "tiny").arms
VARIANTS = {
    "": MAIN,
    "reasoning": params.load("truthrl", "tiny", variant="reasoning").arms,
    "retrieval": "prompting r_tuning ternary",
}
RUNS = [
    (variant, name)
    for variant, arms in VARIANTS.items()
    for name in (
        "10_truthrl_data/main-s0",
        "11_truthrl_rewards/main-s0",
        *(f"12_truthrl_train/{arm}-s0" for arm in arms.split()),
        "13_truthrl_ablations/main-s0",
        "14_truthrl_figures/main-s0",
    )
]


def sweep(outputs, variant, arms, *more):
    return factkit(
        *("sweep", "truthrl", "--profile", "tiny", "--variant", variant),
        *("--arms", arms, "--seeds", "0", "--jobs", "2", *SETS),
        *("--output-dir", str(outputs), *more),
    )


@pytest.fixture(scope="session")
def swept(tmp_path_factory):
    """The outputs folder of sweeps over every arm at the smallest size."""
    outputs = tmp_path_factory.mktemp("outputs")
    for variant, named in VARIANTS.items():
        done = sweep(outputs, variant, named)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
        assert arms.split()[-1] in done.stdout
    return outputs


def folder_of(outputs, variant, name):
    return outputs / (f"tiny-{variant}" if variant else "tiny") / name


@pytest.mark.notebook
@pytest.mark.assets
@pytest.mark.parametrize(("variant", "name"), RUNS)
def test_a_sweep_leaves_the_run_contract_s_files(swept, variant, name):
    folder = folder_of(swept, variant, name)
    assert read_results(folder)["status"] == "done"
    assert (folder / "notebook.ipynb").exists()
    assert not (folder / "notebook.partial.ipynb").exists()
    if "ternary" in name or "binary" in name or "/rl" in name:
        assert (folder / "metrics.csv").read_text().count("\n") == SMOKE["rl_steps"] + 1
    if "train" in name:
        rows = (folder / "samples.jsonl").read_text().splitlines()
        assert len(rows) == SMOKE["test_questions"]


# of the papers after the first: arms that between them run every line
SMOKES = {
    "rar": SMOKE_RAR,
    "reason": SMOKE_REASON,
    "rlfh": SMOKE_RLFH,
    "veri": SMOKE_VERI,
}
LATER_ARMS = {
    "rar": "base dpo veriscore_plus_judge binary_rar",
    "reason": "base sft_dpo fact_detail_relevance",
    "rlfh": "base dpo paragraph statement statement_group",
    "veri": "instruct sft offline_rl online_rl without_evidence larger",
}
LATER_RUNS = [
    (paper, f"{digit}{name}")
    for digit, (paper, arms) in enumerate(LATER_ARMS.items(), start=2)
    for name in (
        f"0_{paper}_data/main-s0",
        f"1_{paper}_rewards/main-s0",
        *(f"2_{paper}_train/{arm}-s0" for arm in arms.split()),
        f"3_{paper}_ablations/main-s0",
        f"4_{paper}_figures/main-s0",
    )
]


@pytest.fixture(scope="session")
def swept_later(tmp_path_factory):
    """The outputs folder of a sweep over some arms of each, at the smallest size."""
    outputs = tmp_path_factory.mktemp("outputs")
    for paper, named in LATER_ARMS.items():
        done = factkit(
            *("sweep", paper, "--profile", "tiny", "--arms", named, "--seeds", "0"),
            *("--jobs", "2", "--output-dir", str(outputs)),
            *(f"--set={key}={value}" for key, value in SMOKES[paper].items()),
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return outputs / "tiny"


@pytest.mark.notebook
@pytest.mark.parametrize(("paper", "name"), LATER_RUNS)
def test_a_sweep_over_a_later_paper_leaves_its_files(swept_later, paper, name):
    folder = swept_later / name
    assert read_results(folder)["status"] == "done"
    assert (folder / "notebook.ipynb").exists()
    if "train" in name:
        rows = (folder / "samples.jsonl").read_text().splitlines()
        sets = {"rar": 1, "reason": 2, "rlfh": 2, "veri": 1}[paper]  # to test on
        of_each = SMOKES[paper]["test_claims" if paper == "veri" else "test_requests"]
        assert len(rows) == sets * of_each


@pytest.mark.notebook
@pytest.mark.assets
def test_a_sweep_that_is_done_runs_nothing(swept):
    before = {p: p.stat().st_mtime_ns for p in swept.rglob("results.json")}
    assert sweep(swept, "", MAIN).returncode == 0
    assert {p: p.stat().st_mtime_ns for p in swept.rglob("results.json")} == before


@pytest.mark.notebook
@pytest.mark.assets
def test_a_sweep_killed_at_random_moments_ends_with_the_same_results(swept, tmp_path):
    arms = "prompting r_tuning iterative_dpo rlkf ternary"
    rng, killed = random.Random(), 0
    while killed < 5:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "factkit", "sweep", "truthrl"),
                *(
                    "--arms",
                    arms,
                    "--seeds",
                    "0",
                    *SETS,
                    "--output-dir",
                    str(tmp_path),
                ),
            ],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.wait(rng.uniform(6, 25))
            break  # done before it could be killed
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # Snakemake, papermill, kernel
            process.wait()
            killed += 1
    assert killed
    done = sweep(tmp_path, "", arms)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    for arm in arms.split():
        name = f"12_truthrl_train/{arm}-s0"
        whole, again = (
            read_results(folder_of(outputs, "", name))["metrics"]
            for outputs in (swept, tmp_path)
        )
        assert again == pytest.approx(whole, abs=1e-6), arm


@pytest.mark.notebook
@pytest.mark.assets
@pytest.mark.parametrize("stem", ["00_start_here", "01_corpus_and_retrieval"])
def test_the_notebooks_before_the_papers_run(stem, tmp_path):
    done = papermill(stem, tmp_path, "-p", "n_questions", "20")
    assert done.returncode == 0, done.stderr[-4000:]
    assert read_results(tmp_path / "tiny" / stem / "main-s0")["metrics"]


@pytest.mark.notebook
@pytest.mark.assets
@pytest.mark.parametrize("benchmarks", [DATA, "nowhere"])
def test_verifiers_are_measured_on_what_is_at_hand(benchmarks, tmp_path):
    small = f"-p rows 120 -p benchmarks {benchmarks}".split()
    done = papermill("02_verifiers", tmp_path, *small)
    assert done.returncode == 0, done.stderr[-4000:]
    metrics = read_results(tmp_path / "tiny" / "02_verifiers" / "main-s0")["metrics"]
    here = [name for name in metrics if name.startswith("FEVER-Symmetric")]
    assert bool(here) == (benchmarks == DATA and DATA.exists())


@pytest.mark.notebook
@pytest.mark.parametrize(("paper", "profile"), DRAWN)
def test_the_reference_figures_are_drawn_again_from_what_is_committed(
    paper, profile, tmp_path
):
    """Pixel by pixel, where nothing was run: what a figure needs is in the clone."""
    (path,) = ROOT.glob(f"notebooks/*4_{paper}_figures.ipynb")
    file = str(params.yaml_path(paper, profile))
    done = papermill(path.stem, tmp_path, "-f", file)
    assert done.returncode == 0, done.stderr[-3000:]
    folder = Path(profile) / path.stem / "main-s0" / "figures"
    drawn = {p.name: p for p in (tmp_path / folder).glob("*.png")}
    kept = {p.name: p for p in (REFERENCE / folder).glob("*.png")}
    assert drawn.keys() == kept.keys()
    assert [n for n in kept if not same_picture(kept[n], drawn[n])] == []


def same_picture(one, other):
    """Whether two pictures are one, but for rounding."""
    a, b = (plt.imread(path) for path in (one, other))
    return a.shape == b.shape and abs(a - b).mean() < 1e-3


@pytest.mark.notebook
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-p", "learning_rate", "0.1"], "learning_rate=0.1: no such parameter"),
        (["-p", "beta", "-1"], "beta=-1"),
        (["-p", "num_generations", "7"], "must divide"),
    ],
)
def test_a_bare_papermill_call_is_guarded(arguments, said, tmp_path):
    done = papermill("12_truthrl_train", tmp_path, *arguments)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.notebook
def test_training_without_data_says_what_to_run_first(tmp_path):
    done = papermill("12_truthrl_train", tmp_path)
    assert done.returncode != 0
    assert "10_truthrl_data" in done.stderr


def papermill(stem, outputs, *arguments):
    command = [
        *(sys.executable, "-m", "papermill", f"notebooks/{stem}.ipynb"),
        *(str(outputs / "out.ipynb"), "-p", "output_dir", str(outputs)),
        *("--no-progress-bar", *arguments),
    ]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
