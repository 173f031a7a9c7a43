"""A new paper is a folder, a parameter file and notebooks: no shared file knows it."""

import hashlib
import json
import os
import shutil
import subprocess
import sys

import pytest

from factkit.run.params import ROOT, read_yaml

MOST_LINES = 60  # of library code

LIBRARY = {
    "__init__.py": '"""Modest answers (paper 8): notebooks 80 and 82."""\n',
    "arms.py": '''"""The parameters and arms of modest answers."""

from factkit.run.arms import Arm, Paper
from factkit.run.params import fields
from factkit.run.params.data import QuestionParams
from factkit.run.params.stages import RlParams, SweepParams


class ModestRlParams(QuestionParams, RlParams):
    """GRPO with a reward for abstaining."""

    abstention_reward: fields.Weight


ARMS = {
    "base": Arm("the policy as it is", QuestionParams, main=True),
    "modest": Arm("a for abstaining", ModestRlParams, "GRPO", main=True),
}


class Modest(ModestRlParams, SweepParams):
    known_arms = tuple(ARMS)
    arm: fields.Name = "modest"


PAPER = Paper(8, "Modest answers", Modest, ARMS, ("accuracy", "abstention"))
''',
    "rewards.py": '''"""The reward of modest answers."""

from factkit.answers.verifier import verifier
from factkit.prompts import completion_texts


def modest(outcome, abstention_reward):
    """+1 if correct, a if abstaining, −1 if wrong; None if the judge failed."""
    values = {"correct": 1.0, "abstain": abstention_reward, "wrong": -1.0}
    return values[outcome] if outcome else None


def reward_function(p, folder):
    """The reward with TRL's `reward_funcs` signature."""
    verify = verifier(p)

    def modest_reward(completions, answers, question, **_):
        outcomes = verify(completion_texts(completions), answers, question)
        return [modest(outcome, p.abstention_reward) for outcome in outcomes]

    return modest_reward
''',
    "train.py": '''"""The training of modest answers."""

from factkit.answers.training_rows import RowFormat
from factkit.papers.modest.rewards import reward_function
from factkit.train import grpo


def train_arm(p, start, train, folder):
    """Train `p.arm` from the policy `start`; the policy's folder."""
    rows = RowFormat.of(p).request_rows(train)
    rows = [row | {"answers": e.answers} for row, e in zip(rows, train, strict=True)]
    return grpo.grpo(start, rows, reward_function, folder, p)
''',
}
NOTEBOOKS = {
    "80_modest_data": [
        'profile: str = "tiny"  # tiny | laptop | h100_lora | h100_full',
        """
from factkit.data import splits
from factkit.data.examples import write_examples
from factkit.facts.world import facts
from factkit.run import params, runs
from factkit.run.params.data import QuestionParams

P = params.check("modest", globals())
run = runs.start("80_modest_data", P, depends_on=QuestionParams)
""",
        """
world = facts.build_world(people=P.world_people, seed=P.world_seed)
sizes = {"train": P.train_questions, "test": P.test_questions}
split = splits.split_by_entity(world.questions()[0], sizes, P.split_seed)
for name, examples in split.items():
    write_examples(run.folder / f"{name}.jsonl", examples)
results = run.finish({"questions": sum(map(len, split.values()))})
""",
    ],
    "82_modest_train": [
        'arm: str = "modest"  # base | modest',
        """
from factkit.answers import short_form
from factkit.answers import verifier as verification
from factkit.data.examples import read_examples
from factkit.facts.policy import base_policy
from factkit.papers.modest.arms import ARMS
from factkit.papers.modest.train import train_arm
from factkit.policy.policy import load_policy
from factkit.report import deviations
from factkit.run import params, runs

P = params.check("modest", globals())
data = runs.run_folder("80_modest_data", P)
inputs = [data / "train.jsonl", data / "test.jsonl"]
run = runs.start("82_modest_train", P, inputs, ARMS[P.arm].reads)
assert run.expected("before_and_after") is None
""",
        """
train, test = map(read_examples, inputs)
policy = base_policy(P)
if ARMS[P.arm].algorithm:
    policy = train_arm(P, policy, train, run.folder)
path = run.folder / "after_test.jsonl"
verify = verification.verifier(P)
answers = short_form.answer(load_policy(str(policy), P), test, path, verify)
rates = short_form.rates([answer.outcome for answer in answers])
results = run.finish(rates, deviations.of("modest", P))
""",
    ],
}
SMALL = {
    "arms": "base modest",
    "seeds": "0",
    "abstention_reward": 0.5,
    "world_people": 40,
    "pretrain_hidden_size": 32,
    "pretrain_layers": 1,
    "pretrain_steps": 10,
    "train_questions": 16,
    "test_questions": 8,
    "rl_steps": 2,
    "rl_batch_size": 8,
    "num_generations": 4,
}
# the cells one after the other, in one process; values: as papermill injects them
RUN_NOTEBOOKS = """
import json, sys

for stem, values in json.loads(sys.argv[1]):
    with open(f"notebooks/{stem}.ipynb", encoding="utf-8") as file:
        cells = [c for c in json.load(file)["cells"] if c["cell_type"] == "code"]
    names = {}
    exec("".join(cells[0]["source"]), names)
    names |= values
    for cell in cells[1:]:
        exec("".join(cell["source"]), names)
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the kit with a sixth paper, and the digests of the kit's own files."""
    root = tmp_path_factory.mktemp("kit")
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("factkit", "notebooks", "params"):
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", root)
    before = digests(root)
    folder = root / "factkit" / "papers" / "modest"
    folder.mkdir()
    for name, text in LIBRARY.items():
        (folder / name).write_text(text, "utf-8")
    for stem, (parameters, *sources) in NOTEBOOKS.items():
        title = {"cell_type": "markdown", "metadata": {}, "source": f"# {stem}"}
        cells = [title, code(parameters, tags=["parameters"]), *map(code, sources)]
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        notebook = {"cells": cells, "metadata": {"kernelspec": kernel}}
        notebook |= {"nbformat": 4, "nbformat_minor": 4}
        path = root / "notebooks" / f"{stem}.ipynb"
        path.write_text(json.dumps(notebook), "utf-8")
    (root / "params" / "tiny" / "modest.yaml").write_text(parameter_file(), "utf-8")
    return root, before


def code(source, **metadata):
    return {
        "cell_type": "code",
        "metadata": metadata,
        "source": source,
        "outputs": [],
        "execution_count": None,
    }


def parameter_file():
    """The values of a paper on short answers, for the parameters that both have."""
    from factkit.run.params.data import QuestionParams
    from factkit.run.params.stages import RlParams, SweepParams

    stages = (QuestionParams, RlParams, SweepParams)
    known = set().union(*(stage.model_fields for stage in stages))
    others = read_yaml(ROOT / "params" / "tiny" / "truthrl.yaml")
    values = {key: value for key, value in others.items() if key in known} | SMALL
    values["file_tiny_modest"] = "params/tiny/modest.yaml"
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in values.items())


def digests(root):
    files = (path for path in root.rglob("*") if path.is_file())
    return {
        path.relative_to(root): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if "__pycache__" not in path.parts
    }


def python(root, *arguments):
    env = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def factkit(root, *arguments):
    return python(root, "-m", "factkit", *arguments)


@pytest.mark.slow
def test_a_sixth_paper_is_checked_planned_trained_and_reported(tree):
    root, before = tree
    lines = sum(text.count("\n") for text in LIBRARY.values())
    assert lines <= MOST_LINES, lines

    value = "abstention_reward=0.5"
    assert factkit(root, "check", "modest", "--set", value).endswith("0.5\nok\n")
    plan = factkit(root, "sweep", "modest", "--", "--dry-run")
    for run in ("80_modest_data/main-s0", "base-s0", "modest-s0"):
        assert run in plan, plan

    runs = [["80_modest_data", {}]]
    runs += [["82_modest_train", {"arm": arm}] for arm in ("base", "modest")]
    python(root, "-c", RUN_NOTEBOOKS, json.dumps(runs))
    trained = root / "outputs" / "tiny" / "82_modest_train" / "modest-s0"
    curve = (trained / "metrics.csv").read_text("utf-8")
    assert curve.count("\n") == 1 + SMALL["rl_steps"]
    results = json.loads((trained / "results.json").read_text("utf-8"))
    assert (results["paper"], results["arm"]) == ("modest", "modest")

    page = factkit(root, "report", "modest")
    assert "# Modest answers: what came out" in page
    assert "2 runs on" in page and "| modest" in page  # at no commit
    assert "claims" not in page and "differs" not in page

    after = digests(root)
    assert {path: after.get(path) for path in before} == before


def test_papers_are_found_without_torch(tree):
    root, _ = tree
    source = "import sys; from factkit.run.arms import find_papers; "
    source += "print(*find_papers(), 'torch' in sys.modules, 'pandas' in sys.modules)"
    *papers, torch, pandas = python(root, "-c", source).split()
    assert papers[-1] == "modest" and papers[0] == "truthrl"
    assert (torch, pandas) == ("False", "False")
