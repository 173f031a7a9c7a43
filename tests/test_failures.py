"""What users see of errors, and that surroundings of all kinds end no command."""

import errno
import json
import os
import sqlite3
import subprocess
import sys
import textwrap

import matplotlib
import pytest
from IPython.core.interactiveshell import InteractiveShell
from safetensors import SafetensorError

from factkit.data import assets
from factkit.report import figures
from factkit.run import failures, files, machine, runs, sweeps
from factkit.run.params import ROOT


def height(text, width=80):
    """Lines that a text takes in a terminal."""
    return sum(max(1, -(-len(line) // width)) for line in text.splitlines())


def test_a_message_takes_ten_lines_at_most_and_begins_with_the_first_cause():
    checks = [(f"key{i}", "bad", False, f"mend {i}") for i in range(30)]
    with pytest.raises(failures.UserError) as error:
        failures.require(checks)
    assert str(error.value).startswith("key0: bad; mend 0\n")
    assert str(error.value).endswith(
        "\n…\nkey27: bad; mend 27\nkey28: bad; mend 28\nkey29: bad; mend 29"
    )
    for text in ("word " * 5000, "first\n" + "x" * 9000, "\n".join("ab" * 500)):
        for kind in (failures.UserError, failures.RunFailure, assets.AssetError):
            message = str(kind(text))
            assert message[:5] == text[:5]
            assert height(f"factkit: {message}") <= 10
    assert str(failures.UserError("short\n\nand whole")) == "short\n\nand whole"


def storage_errors(path):
    for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        yield OSError(code, os.strerror(code)), "the disk is full"
    for code in (errno.EROFS, errno.EACCES, errno.EPERM):
        yield OSError(code, os.strerror(code), str(path)), "no access ("
    full = "Error while serializing: I/O error: No space left on device (os error 28)"
    yield SafetensorError(full), "the disk is full"
    yield RuntimeError("PytorchStreamWriter failed writing file data/0"), "is full"
    yield sqlite3.OperationalError("database or disk is full"), "the disk is full"
    readonly = "attempt to write a readonly database"
    yield sqlite3.OperationalError(readonly), "no access ("


def test_the_error_of_one_of_several_processes_is_named():
    log = """[rank1]: RuntimeError: cut off
    Sending process 7 closing signal SIGTERM
    torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
    ======"""
    assert failures.last_error(textwrap.dedent(log)) == "RuntimeError: cut off"
    assert failures.last_error("warned\nkilled\n") == "killed"


def test_what_can_t_be_written_is_named_with_the_fix(tmp_path, monkeypatch):
    monkeypatch.setenv("FACTKIT_CACHE", str(tmp_path / "cache"))
    for folder, fix in (("cache", "FACTKIT_CACHE"), ("outputs", "another folder")):
        path = tmp_path / folder / "results.json"
        for error, words in storage_errors(path):
            with pytest.raises(type(error)) as raised, failures.writing(path):
                raise error
            message = failures.explain_storage(raised.value)
            assert message.startswith(f"{path}: ")
            assert words in message and fix in message
    for other in (ValueError("x"), PermissionError(13, "a port"), KeyError("disk")):
        assert failures.explain_storage(other) == ""


def test_a_full_disk_leaves_the_old_file_and_nothing_half_written(
    tmp_path, monkeypatch
):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "items.csv"
    files.write_atomically(path, "old")
    monkeypatch.setattr(os, "fsync", full)
    for content in ("new", b"new"):
        with pytest.raises(OSError) as error:
            files.write_atomically(path, content)
        assert str(path) in failures.explain_storage(error.value)
    for own in ((lambda _: None), full):  # what is filled may fail, or its renaming
        with pytest.raises(OSError), files.whole_folder(tmp_path / "model") as partial:
            (partial / "weights").write_bytes(b"0" * 9)
            own(partial)
    assert [path] == [*tmp_path.iterdir()] and path.read_text("utf-8") == "old"


def test_a_prepared_model_in_a_read_only_cache_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("FACTKIT_CACHE", str(tmp_path))
    model = tmp_path / "smollm2-135m-instruct"
    model.mkdir()
    (model / "config.json").write_text("{}", "utf-8")
    assert assets.policy_path("smollm2-135m-instruct") == str(model)
    assert [model] == [*tmp_path.iterdir()]  # no lock beside it
    monkeypatch.setenv("FACTKIT_CACHE", str(model / "config.json"))
    with pytest.raises(failures.RunFailure, match="can't be created.*FACTKIT_CACHE"):
        files.cache_dir()


def test_a_notebook_shows_a_full_disk_in_a_line_and_other_errors_whole(capsys):
    shell = InteractiveShell()
    failures.explain_in_notebooks(shell)
    shell.run_cell("with open('/dev/full', 'w') as f: f.write('x')")
    shown = capsys.readouterr().out
    assert shown.startswith("OSError: ") and height(shown) <= 4
    assert "the disk is full; free some space" in shown
    shell.run_cell("1 / 0")
    shown = capsys.readouterr().out
    assert "ZeroDivisionError" in shown and height(shown) > 4


def test_runs_have_none_of_a_user_s_settings_of_jupyter_snakemake_and_matplotlib(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("FACTKIT_CACHE", str(tmp_path))
    personal = """SNAKEMAKE_PROFILE SNAKEMAKE_OUTPUT_CACHE IPYTHONDIR JUPYTER_PATH
    JUPYTER_CONFIG_DIR JUPYTER_RUNTIME_DIR MPLBACKEND MPLCONFIGDIR MATPLOTLIBRC
    PYTHONSTARTUP PYTHONIOENCODING""".split()
    for name in personal:
        monkeypatch.setenv(name, "/nowhere")
    for name in ("HF_HOME", "CUDA_VISIBLE_DEVICES", "PYTHONPATH"):
        monkeypatch.setenv(name, "kept")
    own = sweeps.environment()
    assert {name: own[name] for name in personal if own.get(name) == "/nowhere"} == {}
    assert {own[k] for k in ("IPYTHONDIR", "JUPYTER_DATA_DIR", "MPLCONFIGDIR")} == {
        str(tmp_path / name) for name in ("ipython", "jupyter", "matplotlib")
    }
    assert own["PYTHONUTF8"] == "1" and "XDG_CACHE_HOME" not in own
    assert own["HF_HOME"] == own["CUDA_VISIBLE_DEVICES"] == own["PYTHONPATH"] == "kept"
    monkeypatch.delenv("HF_HOME")
    monkeypatch.setattr(os, "access", lambda *_: False)  # a home on a read-only disk
    own = sweeps.environment()
    assert own["XDG_CACHE_HOME"] == str(tmp_path)
    assert own["HF_HOME"] == os.path.expanduser("~/.cache/huggingface")
    monkeypatch.setenv("XDG_CACHE_HOME", "kept")
    own = sweeps.environment()
    assert own["XDG_CACHE_HOME"] == "kept" and "HF_HOME" not in own


def drawn():
    figure, axes = figures.new_figure(3, 2, columns=2)
    axes[0].plot([0, 1], [1, 0], label="precision ± 95 %")
    axes[0].set(xlabel="step", title="1_000 $")
    axes[1].bar([0, 1], [2, 1])
    axes[0].legend(**figures.LEGEND)
    return figure


def test_figures_are_the_same_whatever_matplotlibrc_says(tmp_path, monkeypatch):
    def picture(name):
        run = runs.Run("x", None, tmp_path, {}, "", None)
        run.figure(drawn(), name)
        return (tmp_path / "figures" / f"{name}.png").read_bytes()

    plain = picture("plain")
    matplotlib.rcParams.update(
        {"text.usetex": True, "figure.autolayout": True, "axes.spines.left": False}
        | {"axes.prop_cycle": matplotlib.cycler(color="k"), "lines.linewidth": 9}
        | {
            "font.family": "NoSuchFont",
            "axes.unicode_minus": False,
            "interactive": True,
        }
        | {"savefig.format": "pdf", "savefig.transparent": True, "savefig.dpi": 9}
        | {"figure.facecolor": "black", "path.sketch": (9, 9, 9)}
    )
    # a window system that is not there
    monkeypatch.setitem(matplotlib.rcParams, "backend", "TkAgg")
    assert picture("own") == plain


def git(folder, *words):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.example")
    subprocess.run(["git", "-C", folder, *identity, *words], check=True)


def test_the_commit_is_of_the_kit_s_own_repository_or_the_reason_is_recorded(
    tmp_path, monkeypatch
):
    for name, value in (("GIT_DIR", "/nowhere"), ("LANGUAGE", "de")):
        monkeypatch.setenv(name, value)  # as within a hook of git's
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    assert machine.git_commit() == "none: not a git repository"
    monkeypatch.delenv("GIT_DIR")
    git(tmp_path, "init", "--quiet")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert machine.git_commit() == "none: no commit yet"
    monkeypatch.delenv("GIT_DIR")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", "One")
    assert len(machine.git_commit()) == 12
    (tmp_path / "kit").mkdir()
    (tmp_path / "kit" / "file").write_text("a", "utf-8")
    git(tmp_path, "add", ".")
    assert machine.git_commit().endswith("+")
    if os.getuid() == 0:  # who else may give a file away
        os.chown(tmp_path, 1234, 1234)
        os.chown(tmp_path / ".git", 1234, 1234)
        assert len(machine.git_commit()) == 13
    monkeypatch.setattr(machine, "ROOT", tmp_path / "kit")  # an archive unpacked there
    assert machine.git_commit() == "none: inside another git repository"
    monkeypatch.setenv("PATH", "")
    assert machine.git_commit() == "none: git is not installed"


def failed_run(folder, name, *error):
    path = folder / "10_x" / name / "notebook.partial.ipynb"
    path.parent.mkdir(parents=True)
    output = {"output_type": "error"} | dict(
        zip(("ename", "evalue", "traceback"), error, strict=True)
    )
    cells = [{"cell_type": "markdown"}, {"cell_type": "code", "outputs": [output]}]
    path.write_text(json.dumps({"cells": cells}), "utf-8")


def test_a_failed_sweep_names_its_runs_and_their_errors_without_stacks(tmp_path):
    frames = [f"frame {i}" for i in range(60)]
    failed_run(tmp_path, "a-s0", "RunError", "raw", ["RunError: x is missing: run 10"])
    failed_run(tmp_path, "b-s0", "KeyError", "'rows'", frames)
    one, two = sweeps._failed_runs(tmp_path, 0)
    assert one.endswith("10_x/a-s0: RunError: x is missing: run 10")
    assert two.endswith("10_x/b-s0: KeyError: 'rows'")
    path = tmp_path / "10_x" / "b-s0" / "notebook.partial.ipynb"
    path.write_text(path.read_text("utf-8")[:50], "utf-8")  # cut off by a full disk
    assert sweeps._failed_runs(tmp_path, 0) == [one]
    assert sweeps._failed_runs(tmp_path, os.stat(path).st_mtime + 9) == []
    stack = "Traceback (most recent call last):\n  File x\n"
    for output, words in (
        ("nbclient.exceptions.DeadKernelError: Kernel died\n\nRule", "memory ran out"),
        ("OSError: [Errno 28] No space left on device\n", "/out: the disk is full"),
        ("ValueError: first\nx\n  y\nKeyError: 'last'\nRuleException:\n", "KeyError"),
        ("Error: no such profile: slurm", "Error: no such profile: slurm"),
        ("", ""),
    ):
        message = sweeps._explain(stack * bool(output) + output, "/out")
        assert words in message and "Traceback" not in message


def test_no_command_needs_a_terminal_that_shows_more_than_ascii():
    ascii_only = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    code = "import sys; sys.argv = ['factkit', *sys.argv[1:]]; "
    code += "from factkit.__main__ import main; main()"
    environment = os.environ | ascii_only | {"PYTHONPATH": str(ROOT)}
    for words in (["sweep", "--help"], ["export", "--help"]):  # the first has a ×
        command = [sys.executable, "-c", code, *words]
        done = subprocess.run(command, capture_output=True, cwd=ROOT, env=environment)
        assert done.returncode == 0 and len(done.stdout) > 300, done.stderr
