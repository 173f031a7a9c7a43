"""Every notebook: static rules, then its cells at the smallest size.

The short run has the cells in this process, one arm an algorithm to the end, and one
sweep in kernels that is killed; `slow` are the sweeps over every arm by papermill.
"""

import ast
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import types

import matplotlib
import matplotlib.pyplot as plt
import nbformat
import pytest

from factkit import arms, params
from factkit.params import ROOT
from factkit.runs import REFERENCE, RunError, read_results

matplotlib.use("agg")  # as where there is no screen
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
DATA = ROOT.parent / "shared" / "data"  # benchmarks, where they are at hand

# The smallest sizes that still run every line; nothing is learned at them.
SMALL = {
    "world_people": 120,
    "rl_steps": 2,
    "rl_batch_size": 16,
    "num_generations": 4,
    "checkpoint_steps": 1,
    "bootstrap_resamples": 100,
}
SMALL_LONG_FORM = SMALL | {
    "pretrain_steps": 200,
    "train_requests": 32,
    "dev_requests": 8,
    "test_requests": 8,
    "drawn_responses": 4,
    "drawn_temperature": 1.5,
    "max_completion_length": 64,
}
SMALLEST = {
    "truthrl": SMALL
    | {
        "pretrain_steps": 100,
        "train_questions": 48,
        "dev_questions": 24,
        "test_questions": 24,
        "probe_samples": 4,
        "majority_samples": 2,
        "rft_samples": 16,
        "dpo_iterations": 2,
    },
    "rar": SMALL_LONG_FORM
    | {"max_completion_length": 32, "length_difference": 1.0, "kept_policies": 2},
    "reason": SMALL_LONG_FORM | {"sft_requests": 16, "length_difference": 1.0},
    "rlfh": SMALL_LONG_FORM,
    "veri": SMALL
    | {
        "pretrain_steps": 60,
        "larger_hidden_size": 160,
        "train_claims": 48,
        "dev_claims": 12,
        "test_claims": 24,
        "sft_trajectories": 32,
    },
}
STAGES = ["0_{}_data", "1_{}_rewards", "2_{}_train", "3_{}_ablations", "4_{}_figures"]
SAMPLES = {"truthrl": 24, "rar": 8, "reason": 2 * 8, "rlfh": 2 * 8, "veri": 24}


def cells(path, kind):
    return [c for c in nbformat.read(path, 4).cells if c.cell_type == kind]


def offenders(fault):
    """The notebooks with what `fault` says of each, where it says anything."""
    return {path.stem: said for path in NOTEBOOKS if (said := fault(path))}


def test_notebooks_are_source_only_for_the_kernel_python3():
    def fault(path):
        notebook = json.loads(path.read_text())
        code = [c for c in notebook["cells"] if c["cell_type"] == "code"]
        tools = {"papermill", "widgets"}.intersection
        return (
            [c["source"] for c in code if c["outputs"] or c["execution_count"]]
            or [c for c in notebook["cells"] if tools(c["metadata"])]
            or tools(notebook["metadata"])
            or notebook["metadata"]["kernelspec"]["name"] != "python3"
        )

    assert offenders(fault) == {}


def test_notebooks_have_one_cell_of_typed_and_commented_parameters():
    def fault(path):
        tagged = [
            c for c in cells(path, "code") if "parameters" in c.metadata.get("tags", [])
        ]
        if len(tagged) != 1:
            return f"{len(tagged)} cells"
        untyped = [
            ast.unparse(statement)
            for statement in ast.parse(tagged[0].source).body
            if not isinstance(statement, ast.AnnAssign)
        ]
        lines = tagged[0].source.splitlines()
        return untyped + [line for line in lines if "  # " not in line]

    assert offenders(fault) == {}


def test_code_cells_are_short():
    def fault(path):
        code = [c.source for c in cells(path, "code")]
        return [source for source in code if len(source.splitlines()) > 25]

    assert offenders(fault) == {}


def test_notebooks_tell_a_story_whose_links_lead_somewhere():
    def fault(path):
        prose = "\n".join(c.source for c in cells(path, "markdown"))
        titles = [line for line in prose.splitlines() if line.startswith("# ")]
        if len(titles) != 1 or prose.count("\n## ") < 2:
            return f"titles: {titles}, sections: {prose.count('## ')}"
        linked = re.findall(r"\]\(([\w/.]+\.ipynb)\)", prose)
        return [link for link in linked if not (path.parent / link).exists()]

    assert offenders(fault) == {}


# ---- the cells, in this process


def run_here(stem, outputs, until="", **values):
    """Run a notebook as papermill would, in this process in place of a kernel.

    until: what the last cell to be run holds; without it, all are run.
    """
    from IPython.core.interactiveshell import InteractiveShell
    from papermill.iorw import load_notebook_node
    from papermill.parameterize import parameterize_notebook
    from traitlets.config import Config

    (path,) = ROOT.glob(f"notebooks/{stem}.ipynb")
    given = values | {"output_dir": str(outputs)}
    notebook = parameterize_notebook(
        load_notebook_node(str(path)), given, kernel_name="python3", language="python"
    )
    code = [c.source for c in notebook.cells if c.cell_type == "code"]
    if until:
        last = next(i for i, source in enumerate(code) if until in source)
        code = code[: last + 1]
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(
        user_module=types.ModuleType("notebook"),
        config=Config({"HistoryManager": {"enabled": False}}),
    )
    for source in code:
        shell.run_cell(source, store_history=True).raise_error()
    plt.close("all")


@pytest.fixture(autouse=True)
def in_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def smallest(paper, variant=""):
    """What papermill injects: the profile's file, the variant's, the smallest sizes."""
    values = params.read_yaml(params.yaml_path(paper, "tiny"))
    if variant:
        values |= params.read_yaml(params.yaml_path(paper, "tiny", variant))
    return values | SMALLEST[paper]


def faults_of_runs(folder, paper, named, stages=STAGES):
    """What a paper's run folders below a profile's lack of the contract's files."""
    names = [f"{stage}/main-s0" for stage in stages if "train" not in stage]
    names += [f"2_{{}}_train/{arm}-s0" for arm in named]
    faults = []
    for name in names:
        (run,) = folder.glob(f"?{name.format(paper)}")
        if read_results(run)["status"] != "done":
            faults.append(f"{run} is not done")
        if "train" not in name:
            continue
        rows = (run / "samples.jsonl").read_text().count("\n")
        if rows != SAMPLES[paper]:
            faults.append(f"{run}: {rows} samples")
        arm = arms.table(paper)[run.name.removesuffix("-s0")]
        if arm.algorithm in ("GRPO", "PPO"):
            steps = (run / "metrics.csv").read_text().count("\n") - 1
            if steps != SMALL["rl_steps"]:
                faults.append(f"{run}: a curve of {steps} steps")
    return faults


# the untrained arm, and those that between them run every algorithm and every line:
# SFT, DPO, GRPO, token-level PPO, GRPO of rollouts that search
TO_THE_END = {
    "truthrl": "prompting r_tuning ternary",
    "rar": "base dpo veriscore_plus_judge binary_rar",
    "reason": "base sft_dpo fact_detail_relevance",
    "rlfh": "base dpo statement statement_group",
    "veri": "instruct sft offline_rl online_rl",
}


@pytest.mark.notebook
@pytest.mark.assets
@pytest.mark.parametrize("paper", TO_THE_END)
def test_a_paper_s_notebooks_run_one_after_the_other(paper, tmp_path):
    """And every other arm from its start through its training."""
    values, ended = smallest(paper), TO_THE_END[paper].split()
    run_here(f"?0_{paper}_data", tmp_path, **values)
    run_here(f"?1_{paper}_rewards", tmp_path, **values)
    for arm in ended:
        run_here(f"?2_{paper}_train", tmp_path, **values | {"arm": arm})
    ran = {"arms": TO_THE_END[paper], "seeds": "0"}
    run_here(f"?3_{paper}_ablations", tmp_path, **values | ran)
    run_here(f"?4_{paper}_figures", tmp_path, **values)
    assert faults_of_runs(tmp_path / "tiny", paper, ended) == []
    for arm in params.load(paper, "tiny").arms.split():
        if arm in ended or not arms.table(paper)[arm].algorithm:
            continue
        one = values | {"arm": arm}
        run_here(f"?2_{paper}_train", tmp_path, until=".train_arm(", **one)
        (folder,) = (tmp_path / "tiny").glob(f"?2_{paper}_train/{arm}-s0")
        assert [*folder.rglob("*.safetensors")], arm


@pytest.mark.notebook
@pytest.mark.assets
@pytest.mark.parametrize(
    ("variant", "arm"),
    [("reasoning", "ternary_reason_multiplicative"), ("retrieval", "ternary")],
)
def test_an_arm_of_a_variant_is_trained(variant, arm, tmp_path):
    values = smallest("truthrl", variant)
    run_here("10_truthrl_data", tmp_path, **values)
    run_here("12_truthrl_train", tmp_path, **values | {"arm": arm})
    folder = tmp_path / f"tiny-{variant}"
    assert faults_of_runs(folder, "truthrl", [arm], STAGES[:1]) == []


@pytest.mark.notebook
@pytest.mark.assets
def test_the_notebooks_before_the_papers_run(tmp_path):
    few = {"n_questions": 20}
    run_here("00_start_here", tmp_path, **few)
    run_here("01_corpus_and_retrieval", tmp_path, **few)
    for stem in ("00_start_here", "01_corpus_and_retrieval"):
        assert read_results(tmp_path / "tiny" / stem / "main-s0")["metrics"]


@pytest.mark.notebook
@pytest.mark.assets
def test_verifiers_are_measured_on_what_is_at_hand(tmp_path):
    for name, benchmarks in (("some", DATA), ("none", "nowhere")):
        outputs = tmp_path / name
        run_here("02_verifiers", outputs, rows=120, benchmarks=str(benchmarks))
        folder = outputs / "tiny" / "02_verifiers" / "main-s0"
        measured = " ".join(read_results(folder)["metrics"])
        at_hand = benchmarks == DATA and DATA.exists()
        assert ("FEVER-Symmetric" in measured) == at_hand


DRAWN = [  # where reference results are
    (paper, profile)
    for paper in arms.PAPERS
    for profile in ("tiny", "laptop")
    if profile == "tiny" or any((REFERENCE / profile).glob(f"?4_{paper}_figures"))
]


@pytest.mark.notebook
@pytest.mark.parametrize(("paper", "profile"), DRAWN)
def test_the_reference_figures_are_drawn_again_from_what_is_committed(
    paper, profile, tmp_path
):
    """Pixel by pixel, where nothing was run: what a figure needs is in the clone."""
    values = params.read_yaml(params.yaml_path(paper, profile))
    run_here(f"?4_{paper}_figures", tmp_path, **values)
    drawn, kept = (
        {path.name: path for path in folder.glob(f"?4_{paper}_figures/*/figures/*.png")}
        for folder in (tmp_path / profile, REFERENCE / profile)
    )
    assert drawn.keys() == kept.keys()
    assert [n for n in kept if not same_picture(kept[n], drawn[n])] == []


def same_picture(one, other):
    """Whether two pictures are one, but for rounding."""
    a, b = (plt.imread(path) for path in (one, other))
    return a.shape == b.shape and abs(a - b).mean() < 1e-3


@pytest.mark.notebook
def test_a_wrong_parameter_or_missing_data_is_told_before_anything_runs(tmp_path):
    for values, message in (
        ({"learning_rate": 0.1}, "learning_rate=0.1: no such parameter"),
        ({"beta": -1}, "beta=-1"),
        ({"num_generations": 7}, "must divide"),
    ):
        with pytest.raises(params.ParamError, match=message):
            run_here("12_truthrl_train", tmp_path, **values)
    with pytest.raises(RunError, match="run 10_truthrl_data first"):
        run_here("12_truthrl_train", tmp_path)


# ---- papermill and Snakemake, in kernels


def sweep(outputs, paper, named, variant="", jobs=2):
    """The command line of a sweep at the smallest size."""
    return [
        *(sys.executable, "-m", "factkit", "sweep", paper, "--profile", "tiny"),
        *("--variant", variant, "--arms", named, "--seeds", "0", "--jobs", str(jobs)),
        *(f"--set={key}={value}" for key, value in SMALLEST[paper].items()),
        *("--output-dir", str(outputs)),
    ]


def finished(command):
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout


def kill_when(command, moment):
    """Run a command and kill all its processes at a moment; False if it was over."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while process.poll() is None and not moment():
        time.sleep(0.02)
    over = process.poll() is not None
    if not over:
        os.killpg(process.pid, signal.SIGKILL)  # Snakemake, papermill, kernel
        process.wait()
    return not over


def goes_on_to_the_results_of(outputs, named, whole):
    """Whether a killed sweep ends with the metrics of runs that were not killed."""
    assert named.split()[-1] in finished(sweep(outputs, "truthrl", named))
    run_here("10_truthrl_data", whole, **smallest("truthrl"))
    for arm in named.split():
        run_here("12_truthrl_train", whole, **smallest("truthrl") | {"arm": arm})
        killed, through = (
            read_results(folder / f"tiny/12_truthrl_train/{arm}-s0")["metrics"]
            for folder in (outputs, whole)
        )
        assert killed == pytest.approx(through, abs=1e-6), arm


@pytest.mark.notebook
@pytest.mark.assets
def test_a_sweep_killed_in_training_goes_on_and_is_done_once(tmp_path):
    outputs, named = tmp_path / "killed", "r_tuning ternary"
    command = sweep(outputs, "truthrl", named)
    state = outputs / "tiny/12_truthrl_train/ternary-s0/checkpoint/checkpoint-1"
    assert kill_when(command, (state / "trainer_state.json").exists)
    goes_on_to_the_results_of(outputs, named, tmp_path / "whole")
    results = {p: p.stat().st_mtime_ns for p in outputs.rglob("results.json")}
    finished(command)
    assert {p: p.stat().st_mtime_ns for p in outputs.rglob("results.json")} == results


@pytest.mark.slow
@pytest.mark.notebook
@pytest.mark.assets
def test_a_sweep_killed_at_random_moments_ends_with_the_same_results(tmp_path):
    outputs, named = (
        tmp_path / "killed",
        "prompting r_tuning iterative_dpo rlkf ternary",
    )
    kills = 0
    while kills < 5:
        end = time.monotonic() + random.uniform(6, 25)
        moment = lambda end=end: time.monotonic() > end  # noqa: E731
        if not kill_when(sweep(outputs, "truthrl", named, jobs=1), moment):
            break  # done before it could be killed
        kills += 1
    assert kills
    goes_on_to_the_results_of(outputs, named, tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.notebook
@pytest.mark.assets
@pytest.mark.parametrize(
    ("paper", "variant"),
    [(paper, "") for paper in SMALLEST]
    + [("truthrl", "reasoning"), ("truthrl", "retrieval")],
)
def test_a_sweep_over_every_arm_leaves_the_run_contract_s_files(
    paper, variant, tmp_path
):
    named = params.load(paper, "tiny", variant=variant).arms
    assert named.split()[-1] in finished(sweep(tmp_path, paper, named, variant))
    folder = tmp_path / (f"tiny-{variant}" if variant else "tiny")
    assert faults_of_runs(folder, paper, named.split()) == []
    for results in folder.rglob("results.json"):
        assert (results.parent / "notebook.ipynb").exists()
    assert not [*folder.rglob("notebook.partial.ipynb")]


@pytest.mark.slow
@pytest.mark.notebook
def test_a_bare_papermill_call_fails_with_the_reason(tmp_path):
    command = [
        *(sys.executable, "-m", "papermill", "notebooks/12_truthrl_train.ipynb"),
        *(str(tmp_path / "out.ipynb"), "-p", "output_dir", str(tmp_path)),
        *("-p", "learning_rate", "0.1", "--no-progress-bar"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode != 0
    assert "learning_rate=0.1: no such parameter" in done.stderr
