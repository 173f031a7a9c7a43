"""The command line: exit codes, clear messages, and byte-equal data."""

import os
import subprocess
import sys

import pytest

from factkit import arms, ledger
from factkit.params.files import ROOT


def factkit(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "factkit", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | environment,
    )


@pytest.mark.parametrize(
    "command",
    "reproduce sweep check report serve-rewards index-entries serve-search assets "
    "doctor".split(),
)
def test_every_command_has_help(command):
    done = factkit(command, "--help")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) > 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "truthrl", "--set", "beta=-1"], "beta=-1"),
        (["check", "truthrl", "--set", "beta"], "key=value"),
        (["reproduce", "rlhf"], "paper='rlhf'"),
        (["reproduce", "truthrl", "--profile", "cloud"], "cloud"),
        (["reproduce", "truthrl", "--set", "rl_learning_rate=1e-5"], "1.0e-5"),
        (["sweep", "truthrl", "--arms", "ternary magic"], "magic"),
        (["sweep", "truthrl", "--seeds", "one"], "--seeds='one'"),
        (["sweep", "truthrl", "--seeds", "-1"], "--seeds='-1'"),
        (["check", "truthRL"], "there are start, corpus, verifiers, truthrl, rar"),
        (["check", "truthrl", "--set", "policy=smollm"], "policy='smollm'"),
        (["check", "truthrl", "--set", "beta=.inf"], "--set: beta=inf"),
        (["report", "truthrl", "--profile", "h100_full"], "no finished run"),
    ],
)
def test_a_user_s_mistake_exits_with_2_and_names_it(arguments, said):
    done = factkit(*arguments)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_report_is_one_page_over_all_papers_or_a_paper_s_whole_ledger():
    every = factkit("report", "--output-dir", "nowhere")
    assert every.returncode == 0, every.stderr
    assert all(paper in every.stdout for paper in arms.PAPERS)
    one = factkit("report", "veri", "--output-dir", "nowhere")
    assert one.returncode == 0, one.stderr
    assert "reference results" in one.stdout
    assert all(claim.claim in one.stdout for claim in ledger.claims("veri"))


def test_a_dry_run_lists_the_runs_and_runs_none(tmp_path):
    out = str(tmp_path)
    done = factkit(
        *("sweep", "truthrl", "--profile", "tiny", "--arms", "prompting ternary"),
        *("--seeds", "4", "--output-dir", out, "--", "--dry-run"),
    )
    assert done.returncode == 0, done.stderr
    assert "ternary-s4" in done.stdout + done.stderr
    assert "r_tuning-s4" in done.stdout + done.stderr  # what ternary starts from
    assert not list(tmp_path.rglob("results.json"))


@pytest.mark.assets
def test_assets_are_shown_with_licence_and_size():
    done = factkit("assets")
    assert done.returncode == 0, done.stderr
    for word in ("CC BY-SA 4.0", "Apache-2.0", "MB", "verified"):
        assert word in done.stdout


WRITE = """
import sys
from pathlib import Path
from factkit import params
from factkit.curate.splits import split_by_entity
from factkit.datasets import sources
from factkit.datasets.examples import write_examples
p = params.load("truthrl", sys.argv[1])
made, _ = sources.questions(p)
split = split_by_entity(made, {"train": 300, "test": 200})
write_examples(Path(sys.argv[2]), split["train"] + split["test"])
"""


WRITE_CLAIMS = """
import sys
from pathlib import Path
from factkit import params
from factkit.world import facts as world
from factkit.curate import claim_sets, world_trajectories
p = params.load("veri", sys.argv[1])
sets, entries, dropped = claim_sets.claim_sets(p)
made = repr((sets, entries[:5000], dropped))
if p.claims == "world":
    some = world.build_world(people=60, seed=0)
    made += repr(world_trajectories.pretraining_texts(some, 0, 300))
Path(sys.argv[2]).write_text(made)
"""


@pytest.mark.assets
@pytest.mark.parametrize("profile", ["tiny", "laptop"])
@pytest.mark.parametrize("write", [WRITE, WRITE_CLAIMS])
def test_the_same_parameters_give_byte_equal_data(write, profile, tmp_path):
    written = []
    for hash_seed in ("1", "2"):
        path = tmp_path / hash_seed
        command = [sys.executable, "-c", write, profile, str(path)]
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        subprocess.run(command, check=True, cwd=ROOT, env=environment)
        written.append(path.read_bytes())
    assert written[0] == written[1] != b""
