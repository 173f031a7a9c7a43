"""Every notebook: static rules, then its cells at the smallest size.

The short run has the cells in this process, and one arm an algorithm to the end. `slow`
are the comparison, the reference figures drawn again, killed sweeps, and every arm by
papermill.
"""

import ast
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import types

import matplotlib
import matplotlib.pyplot as plt
import pytest

from factkit.report import book
from factkit.report import pages as report
from factkit.run import arms, params, past_runs
from factkit.run.params import ROOT
from factkit.run.runs import REFERENCE, RunError, read_results

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
        "temperature": 1.4,  # unlike responses, or RL's groups have no spread
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


def assigned(node):
    """The names that code sets, but for those within functions and comprehensions."""
    inner = (ast.FunctionDef, ast.Lambda, ast.DictComp, ast.ListComp, ast.GeneratorExp)
    if isinstance(node, inner):
        return set()
    own = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    children = (assigned(child) for child in ast.iter_child_nodes(node))
    return set().union({node.id} if own else (), *children)


def faults(path):
    """What a notebook has against the rules: no outputs, parameters, short cells."""
    notebook = json.loads(path.read_text("utf-8"))
    code = [c for c in notebook["cells"] if c["cell_type"] == "code"]
    prose = [c for c in notebook["cells"] if c["cell_type"] == "markdown"]
    if any(c["outputs"] or c["execution_count"] for c in code):
        yield "has outputs"
    if any({"papermill", "widgets"} & c["metadata"].keys() for c in notebook["cells"]):
        yield "has been run"
    if notebook["metadata"]["kernelspec"]["name"] != "python3":
        yield "another kernel"
    tagged = [c for c in code if "parameters" in c["metadata"].get("tags", [])]
    if len(tagged) != 1:
        yield f"{len(tagged)} parameters cells"
    parameters = "".join(tagged[0]["source"])
    if not all(isinstance(s, ast.AnnAssign) for s in ast.parse(parameters).body):
        yield "untyped parameters"
    if not all("  # " in line for line in parameters.splitlines()):
        yield "a parameter without a comment"
    yield from ("".join(c["source"]) for c in code if len(c["source"]) > 25)
    named = assigned(ast.parse(parameters))
    for cell in code:  # run again, the check of the parameters would take that value
        again = assigned(ast.parse("".join(cell["source"]))) & named
        if cell is not tagged[0] and again:
            yield f"sets parameters anew: {again}"
    text = "\n".join("".join(c["source"]) for c in prose)
    titles = [line for line in text.splitlines() if line.startswith("# ")]
    if len(titles) != 1 or text.count("\n## ") < 2:
        yield f"titles: {titles}, sections: {text.count('## ')}"
    links = re.findall(r"\]\(([\w/.]+\.(?:ipynb|md))\)", text)
    yield from (link for link in links if not (path.parent / link).exists())


def test_notebooks_are_source_with_parameters_short_cells_and_a_story():
    offenders = {path.stem: [*faults(path)] for path in NOTEBOOKS}
    assert {stem: said for stem, said in offenders.items() if said} == {}


MINUTES = r"\d+\.\d(?:–\d+\.\d)?"  # an arm's least and most, of a train notebook


def test_a_notebook_says_at_its_end_its_minutes_and_what_comes_next():
    """Those of the reference results, where there are any of it."""
    offenders, taken = {}, report.minutes()["tiny"]
    for path, after in zip(NOTEBOOKS, [*NOTEBOOKS[1:], None], strict=True):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        last = "".join(cells[-1]["source"])
        said = re.search(rf"\*Minutes at `\w+` on two cores: ({MINUTES})\b", last)
        minutes = taken.get(path.stem, said and said[1])
        title = "".join(
            json.loads((after or path).read_text("utf-8"))["cells"][0]["source"]
        )
        title = title.partition("\n")[0].removeprefix("# ")
        wanted = f"Next: [{title}]({after.name})" if after else "[contents](README.md)"
        if not said or said[1] != minutes or not last.endswith(wanted):
            offenders[path.stem] = (minutes, wanted)
    assert offenders == {}


def test_every_equation_is_drawn_in_the_book_and_no_dollar_is_left():
    """latex2mathml passes on, with its backslash, a command that it does not know."""
    drawn, offenders = {}, {}
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text("utf-8"))["cells"]
        texts = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
        prose = [part for text in texts for part in book.CODE.split(text)[::2]]
        found = [m[1] or m[2] for part in prose for m in book.MATH.finditer(part)]
        drawn[path.stem[:2]] = len(found)
        unknown = [tex for tex in found if "\\" in book.mathml(tex)]
        loose = [part for part in prose if "$" in book.MATH.sub("", part)]
        if unknown or loose:
            offenders[path.stem] = unknown + loose
    assert offenders == {}
    without = {number for number, n in drawn.items() if not n}
    assert without <= {"00", "02"}  # which state none


# ---- the cells, in this process


def solutions(path):
    """The page with a notebook's solutions, if it has exercises."""
    return path.parent / "solutions" / f"{path.stem}.md"


def solved(path):
    """Cells of exercises → their source with what the solutions put for the dots."""
    block = re.compile(r"^## (\w)\n.*?^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
    code = {
        f"exercise-{a}": text
        for a, text in block.findall(solutions(path).read_text("utf-8"))
    }
    task = re.compile(r"def (?:.(?!\ndef ))*?return \.\.\.\n", re.DOTALL)
    cells = [c for c in json.loads(path.read_text("utf-8"))["cells"] if tag(c)]
    assert {tag(c) for c in cells} == code.keys()
    return {
        source: code[tag(c)] + "\n\n" + task.sub("", source, count=1)
        for c in cells
        for source in ["".join(c["source"])]
    }


def tag(cell):
    tags = cell["metadata"].get("tags", [])
    return next((tag for tag in tags if tag.startswith("exercise")), "")


def cells(path, outputs, **values):
    """The sources of a notebook's code cells, with these parameters."""
    from papermill.iorw import load_notebook_node
    from papermill.parameterize import parameterize_notebook

    given = values | {"output_dir": str(outputs)}
    made = parameterize_notebook(
        load_notebook_node(str(path)), given, kernel_name="python3", language="python"
    )
    return [c.source for c in made.cells if c.cell_type == "code"]


def run_here(stem, outputs, **values):
    """Run a notebook as papermill would, in this process in place of a kernel.

    Where there are exercises they are solved, and each solution has to be right.
    """
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    (path,) = ROOT.glob(f"notebooks/{stem}.ipynb")
    answered = solved(path) if solutions(path).exists() else {}
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(
        user_module=types.ModuleType("notebook"),
        config=Config({"HistoryManager": {"enabled": False}}),
    )
    for source in cells(path, outputs, **values):
        text = answered.get(source, source)
        shell.run_cell(text, store_history=True).raise_error()
        if "exercises.check(" in text:
            assert shell.user_ns["checked"], f"{path.name}:\n{text}"
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


def faults_of_runs(folder, paper, named):
    """What a paper's run folders below a profile's lack of the contract's files."""
    names = [f"{stage}/main-s0" for stage in STAGES if "train" not in stage]
    names += [f"2_{{}}_train/{arm}-s0" for arm in named]
    faults = []
    for name in names:
        (run,) = folder.glob(f"?{name.format(paper)}")
        if read_results(run)["status"] != "done":
            faults.append(f"{run} is not done")
        if "train" not in name:
            continue
        rows = (run / "samples.jsonl").read_text("utf-8").count("\n")
        if rows != SAMPLES[paper]:
            faults.append(f"{run}: {rows} samples")
        arm = arms.find_papers()[paper].arms[run.name.removesuffix("-s0")]
        if arm.algorithm in ("GRPO", "PPO"):
            steps = (run / "metrics.csv").read_text("utf-8").count("\n") - 1
            if steps != SMALL["rl_steps"]:
                faults.append(f"{run}: a curve of {steps} steps")
    return faults


# the untrained arm, and those that between them run every algorithm: SFT, DPO, a reward
# model, GRPO, stated confidences, token-level PPO, GRPO of rollouts that search; the
# slow tests run every arm
TO_THE_END = {
    "truthrl": "prompting r_tuning iterative_dpo rlkf ternary rlcr",
    "rar": "base binary_rar",
    "reason": "base fact_detail_relevance",
    "rlfh": "base statement",
    "veri": "instruct online_rl",
}


@pytest.mark.notebook
@pytest.mark.assets
@pytest.mark.parametrize("paper", TO_THE_END)
def test_a_paper_s_notebooks_run_one_after_the_other(paper, tmp_path):
    values, ended = smallest(paper), TO_THE_END[paper].split()
    run_here(f"?0_{paper}_data", tmp_path, **values)
    run_here(f"?1_{paper}_rewards", tmp_path, **values)
    for arm in ended:
        run_here(f"?2_{paper}_train", tmp_path, **values | {"arm": arm})
    ran = {"arms": TO_THE_END[paper], "seeds": "0"}
    run_here(f"?3_{paper}_ablations", tmp_path, **values | ran)
    run_here(f"?4_{paper}_figures", tmp_path, **values)
    assert faults_of_runs(tmp_path / "tiny", paper, ended) == []
    if paper == "truthrl":
        run_here("90_workshop_reward", tmp_path, **values)
        board = tmp_path / "tiny" / "90_workshop_reward"
        results = read_results(board / "own" / "generous-s0")
        assert results["arm"] == results["params"]["arm"] == "own/generous"
        assert set(results["inputs"]["reward"]) <= set("0123456789abcdef")


@pytest.mark.slow
@pytest.mark.notebook
@pytest.mark.assets
def test_the_papers_are_compared(tmp_path):
    values = params.read_yaml(params.yaml_path("compare", "tiny")) | SMALL
    values |= {"pretrain_steps": 200, "train_requests": 32, "test_requests": 8}
    values |= {"test_questions": 8, "probe_samples": 2, "kept_policies": 2}
    run_here("60_compare_setup", tmp_path, **values)
    for arm in ("base", "ternary", "fact_relevance", "statement"):
        run_here("61_compare_train", tmp_path, **values | {"arm": arm})
    run_here("62_compare_figures", tmp_path, **values)
    folder = tmp_path / "tiny"
    curve = folder / "61_compare_train" / "statement-s0" / "metrics.csv"
    assert curve.read_text("utf-8").count("\n") - 1 == SMALL["rl_steps"]
    metrics = read_results(folder / "62_compare_figures" / "main-s0")["metrics"]
    assert metrics["calls_ternary"] <= metrics["calls_statement"]


@pytest.mark.notebook
@pytest.mark.assets
@pytest.mark.parametrize(
    ("notebook", "values"),
    [
        ("00_start_here", {"n_questions": 20}),
        pytest.param(
            "01_corpus_and_retrieval",
            {"n_questions": 20},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "02_verifiers",
            {"rows": 60, "benchmarks": str(DATA)},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_notebook_before_the_papers_runs(notebook, values, tmp_path):
    run_here(notebook, tmp_path, **values)
    metrics = read_results(tmp_path / "tiny" / notebook / "main-s0")["metrics"]
    assert metrics
    benchmark = notebook == "02_verifiers" and DATA.exists()
    assert ("FEVER-Symmetric" in " ".join(metrics)) == benchmark


DRAWN = [  # where reference results are
    (paper, profile)
    for paper in arms.find_papers()
    for profile in ("tiny", "laptop")
    if profile == "tiny" or any((REFERENCE / profile).glob(f"*_{paper}_figures"))
]


@pytest.mark.slow
@pytest.mark.notebook
@pytest.mark.parametrize(("paper", "profile"), DRAWN)
def test_the_reference_figures_are_drawn_again_from_what_is_committed(
    paper, profile, tmp_path, monkeypatch
):
    """Pixel by pixel, as from own runs: what a figure needs is in the clone."""
    for source in REFERENCE.glob(f"{profile}*/*_{paper}_*"):
        if not source.name.endswith(("_rewards", "_figures")):
            shutil.copytree(source, tmp_path / source.relative_to(REFERENCE))
    read = past_runs._read_variants
    monkeypatch.setattr(
        past_runs, "_read_variants", lambda *a: {} if REFERENCE in a else read(*a)
    )
    values = params.read_yaml(params.yaml_path(paper, profile))
    run_here(f"*_{paper}_figures", tmp_path, **values)
    drawn, kept = (
        {path.name: path for path in folder.glob(f"*_{paper}_figures/*/figures/*.png")}
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


def stderr(path):
    """What the cells of an executed notebook wrote in red; bars are off in a sweep."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    outputs = [o for c in cells for o in c.get("outputs", ())]
    return "".join("".join(o["text"]) for o in outputs if o.get("name") == "stderr")


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


@pytest.mark.slow
@pytest.mark.notebook
@pytest.mark.assets
def test_a_sweep_killed_in_training_goes_on_and_is_done_once(tmp_path):
    command = sweep(tmp_path, "truthrl", "random_abstention ternary")
    start, rl = (
        tmp_path / f"tiny/12_truthrl_train/{a}-s0"
        for a in ("random_abstention", "ternary")
    )
    state = rl / "checkpoint/checkpoint-1/trainer_state.json"
    assert kill_when(command, state.exists)
    finished(command)
    model = "model/model.safetensors"
    assert (start / model).read_bytes() != (rl / model).read_bytes()  # RL moved it
    results = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("results.json")}
    finished(command)
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("results.json")} == results


def swept(outputs, paper, variant=""):
    """A sweep over every arm leaves the files of the run contract."""
    named = params.load(paper, "tiny", variant=variant).arms
    assert named.split()[-1] in finished(sweep(outputs, paper, named, variant))
    folder = outputs / (f"tiny-{variant}" if variant else "tiny")
    assert faults_of_runs(folder, paper, named.split()) == []
    for results in folder.rglob("results.json"):
        assert stderr(results.parent / "notebook.ipynb") == ""
    assert not [*folder.rglob("notebook.partial.ipynb")]


@pytest.mark.slow
@pytest.mark.notebook
@pytest.mark.assets
@pytest.mark.parametrize(
    ("paper", "variant"),
    [(paper, "") for paper in SMALLEST if paper != "truthrl"]
    + [("truthrl", "reasoning"), ("truthrl", "retrieval")],
)
def test_a_sweep_over_every_arm_leaves_the_run_contract_s_files(
    paper, variant, tmp_path
):
    swept(tmp_path, paper, variant)


@pytest.mark.slow
@pytest.mark.notebook
@pytest.mark.assets
def test_a_sweep_killed_at_random_moments_ends_with_the_results_of_a_whole_one(
    tmp_path,
):
    outputs, whole = tmp_path / "killed", tmp_path / "whole"
    swept(whole, "truthrl")
    named = "prompting r_tuning iterative_dpo rlkf ternary"
    kills = 0
    while kills < 5:
        end = time.monotonic() + random.uniform(6, 25)
        moment = lambda end=end: time.monotonic() > end  # noqa: E731
        if not kill_when(sweep(outputs, "truthrl", named, jobs=1), moment):
            break  # done before it could be killed
        kills += 1
    assert kills
    finished(sweep(outputs, "truthrl", named))
    for arm in named.split():
        run = f"tiny/12_truthrl_train/{arm}-s0"
        killed, through = (read_results(f / run)["metrics"] for f in (outputs, whole))
        assert killed == pytest.approx(through, abs=1e-6), arm
        assert stderr(outputs / run / "notebook.ipynb") == ""
