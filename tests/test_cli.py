"""The command line: exit codes, clear messages, and byte-equal data."""

import os
import re
import subprocess
import sys

import pytest

from factkit.__main__ import main
from factkit.report import claims
from factkit.run.arms import find_papers
from factkit.run.params import ROOT
from factkit.run.sweeps import Sweep

COUNTS = """sft_epochs dpo_epochs reward_epochs seed minibatches kept_policies
dpo_iterations retrieved_chunks checkpoint_steps"""


@pytest.fixture
def factkit(monkeypatch, capsys):
    """Runs a command line in this process: its exit code, output and errors."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["factkit", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code or 0, *capsys.readouterr()

    return run


def test_every_command_has_help(factkit, monkeypatch):
    commands = "reproduce sweep check report fetch serve-search "
    for command in (commands + "verl adopt assets doctor wheelhouse book").split():
        for columns in (40, 80):
            monkeypatch.setenv("COLUMNS", str(columns))
            code, page, _ = factkit(command, "--help")
            assert code == 0, command
            assert len(page.splitlines()) > 5, command
            # Click's narrowest page; nothing is cut off in it
            assert max(map(len, page.splitlines())) <= max(columns, 50), page
            if command in ("sweep", "reproduce", "doctor"):
                assert "--variant <str>" in page
    _, page, _ = factkit("--help")
    assert (
        "..." not in page.partition("Commands:")[2]
    )  # each command's purpose fits into its line


def test_a_sweep_of_all_papers_is_checked_whole_before_its_first_run(
    factkit, monkeypatch
):
    begun = []
    monkeypatch.setattr(Sweep, "run", lambda sweep, **_: begun.append(sweep.paper))
    assert factkit("sweep", "all", "--arms", "ternary")[0] == 2  # others have none
    assert begun == []
    dry = ("sweep", "all", "--seeds", "1", "--", "--dry-run")
    assert factkit(*dry)[0] == 0
    assert begun == list(find_papers())


def test_a_sweep_of_three_worlds_runs_the_variants_that_differ_in_the_world_alone(
    factkit, monkeypatch
):
    begun = []
    monkeypatch.setattr(Sweep, "run", lambda sweep, **_: begun.append(sweep.params))
    assert factkit("sweep", "all", "--worlds", "9")[0] == 2
    assert begun == []
    assert factkit("sweep", "rlfh", "--worlds", "3", "--", "--dry-run")[0] == 0
    main, *others = begun
    assert [p.variant for p in begun] == ["", "world1", "world2"]
    assert [p.world_seed for p in begun] == [0, 1, 2]
    for p in others:
        differ = {k for k, v in p.model_dump().items() if v != getattr(main, k)}
        assert differ <= {"variant", "world_seed", "arms", "seeds"}
    begun.clear()
    assert factkit("sweep", "all", "--worlds", "3", "--", "--dry-run")[0] == 0
    assert len(begun) == 5 * 3 + 1  # the comparison has one world


def test_a_sweep_of_all_variants_leaves_out_a_user_s_own_data(factkit, monkeypatch):
    begun = []
    monkeypatch.setattr(Sweep, "run", lambda sweep, **_: begun.append(sweep.params))
    every = ("sweep", "truthrl", "--profile", "laptop", "--variant", "all")
    assert factkit(*every)[0] == 0
    assert [p.variant for p in begun] == [
        *("closedbook", "split1", "split2", "withheld"),
        "",  # the figures of the last one show the others, too
    ]
    assert factkit(*every, "--worlds", "3")[0] == 2


def test_a_user_s_mistake_exits_with_2_and_names_it(factkit):
    for command, named in (
        ("sweep rlfh --worlds 9", "has files for 3 of rlfh"),
        ("sweep compare --worlds 3", "has files for 1 of compare"),
        ("check truthrl --set beta=-1", "beta=-1"),
        ("check truthrl --set beta", "key=value"),
        ("check truthrl --set beta=[1", "beta='[1'"),
        ("check truthrl --set beta=2020-13-45", "beta"),
        ("check truthrl --set beta=!!python/name:os", "beta"),
        (f"check truthrl --set beta={'[' * 3000}", "beta='[["),
        ("reproduce rlhf", "'rlhf' is not one of"),
        ("doctor --paper rlhf", "'rlhf' is not one of"),
        ("reproduce truthrl --profile cloud", "cloud"),
        ("reproduce truthrl --set rl_learning_rate=1e-5", "1.0e-5"),
        ("sweep truthrl --arms magic", "magic"),
        ("sweep truthrl --arms ternary_reason_additive", "variant=reasoning"),
        ("sweep truthrl --arms rlcr --set cold_start=false", "cold_start=true"),
        ("sweep truthrl --seeds one", "--seeds='one'"),
        ("sweep truthrl --seeds -1", "--seeds='-1'"),
        ("check truthRL", "there are start, corpus, verifiers, truthrl, rar"),
        ("check truthrl --set policy=smollm", "policy='smollm'"),
        ("check truthrl --set beta=.inf", "--set: beta=inf"),
        ("report truthrl --profile h100_full", "no finished run"),
        ("check truthrl --set seed=010", "--set seed: '010' is ambiguous in YAML"),
        ("check truthrl --set beta=1e-3", "write a number as 10 or 1.0e-5"),
        (f"check truthrl --set seed={'[' * 90_000}", "--set: seed='[[["),
        ("check truthrl --set judge_extra={'a':[[}", "--set: judge_extra="),
        ("check truthrl --set seed=*x", "--set: seed='*x'"),
        ("check truthrl --set seed=!!python/name:os.system", "--set: seed='!!python"),
        ("check truthrl --set seed=1 --set seed=2", "each key once"),
        ("check truthrl --set variant=small", "give --variant"),
        ("check truthrl --set profile=laptop", "give --profile"),
        ("check truthrl --profile ./tiny", "needs the line profile: './tiny'"),
        ("check truthrl --set output_dir=params", "output_dir='params'"),
        ("sweep truthrl --output-dir params", "output_dir='params'"),
        ("sweep truthrl --seeds 0,1,2", "--seeds='0,1,2'"),
        ("sweep truthrl --seeds 5000000000", "--seeds='5000000000'"),
        ("sweep truthrl --arms ../x", "--arms='../x'"),
        ("sweep truthrl --set train_questions=8", "a rollout takes 16 prompts"),
    ):
        code, _, errors = factkit(*command.split())
        assert code == 2, command
        assert named in errors
        assert sum(1 + len(line) // 80 for line in errors.splitlines()) <= 10, errors


def test_a_value_of_set_is_a_number_a_flag_or_a_text_as_it_is_for_papermill(factkit):
    values = "beta=0.5", "chat=False", "judge_model='1e5'", 'judge_extra={"top_k": 1}'
    code, page, _ = factkit("check", *(f"--set={value}" for value in values))
    assert code == 0
    lines = page.splitlines()
    assert {"beta: 0.5", "chat: False", "judge_model: 1e5"} <= {*lines}
    assert 'judge_extra: {"top_k": 1}' in lines


def test_check_ends_with_ok_in_ten_lines(factkit):
    for values in ((), [f"--set={key}=1" for key in COUNTS.split()]):
        code, page, _ = factkit("check", "truthrl", "--variant", "retrieval", *values)
        lines = page.splitlines()
        assert code == 0 and len(lines) <= 10 and lines[-1] == "ok", page
        assert "params/tiny/truthrl-retrieval.yaml" in lines[0]
    assert "and 2 more of --set" in lines


def test_the_report_on_a_paper_is_its_whole_ledger(factkit):
    code, page, _ = factkit("report", "veri", "--output-dir", "nowhere")
    assert code == 0
    assert "reference results" in page
    assert all(claim.claim in page for claim in claims.read_claims("veri"))
    reasons = {claim.not_here for claim in claims.read_claims("veri")}
    assert any(f"tiny: {reason}:" in page for reason in reasons - {""})


@pytest.mark.assets
def test_assets_are_shown_with_licence_and_size(factkit):
    code, page, _ = factkit("assets")
    assert code == 0
    for word in ("CC BY-SA 4.0", "Apache-2.0", "MB", "verified"):
        assert word in page


@pytest.mark.assets
def test_doctor_says_what_a_profile_takes_and_what_the_machine_lacks(factkit):
    import torch

    if torch.cuda.device_count() >= 8:
        pytest.skip("this machine has the GPUs")
    for paper, taken in (
        ("rlfh", r"\nstatement +1 +312 +1,357,824 "),
        ("veri", r"\ntotal .*GPU-hour \(default ours\)"),
    ):
        code, page, _ = factkit("doctor", "--paper", paper, "--profile", "h100_full")
        assert code == 1
        assert re.search(taken, page, re.S)
        assert "NO  GPUs:" in page and "needs 8 GPU(s)" in page
        assert "ok  memory a GPU:" in page


WRITE = """
import sys
from pathlib import Path
from factkit.run import params
from factkit.papers.veri import data as claim_data
from factkit.facts.world import claims as world_claims
from factkit.data.splits import split_by_entity
from factkit.papers.truthrl import data
from factkit.facts.world import facts
p = params.load("truthrl", sys.argv[1])
made, _ = data.open_questions(p).load()
split = split_by_entity(made, {"train": 300, "test": 200})
p = params.load("veri", sys.argv[1])
sets, entries, dropped = claim_data.claim_sets(p)
made = [split["train"], split["test"], sets, entries[:5000], dropped]
if sys.argv[1] == "tiny":
    few = facts.build_world(people=60, seed=0)
    made.append(world_claims.pretraining_texts(few, 0, 300))
Path(sys.argv[2]).write_text(repr(made))
"""


@pytest.mark.assets
@pytest.mark.parametrize(
    "profile", ["tiny", pytest.param("laptop", marks=pytest.mark.slow)]
)
def test_the_same_parameters_give_byte_equal_data(profile, tmp_path):
    written = []
    for hash_seed in ("1", "2"):
        path = tmp_path / hash_seed
        command = [sys.executable, "-c", WRITE, profile, str(path)]
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        subprocess.run(command, check=True, cwd=ROOT, env=environment)
        written.append(path.read_bytes())
    assert written[0] == written[1] != b""
