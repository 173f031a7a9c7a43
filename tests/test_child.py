"""Processes that end with their parent, were it killed; and what they leave alone."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from retriever import until

from factkit.run.params import ROOT

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="reads /proc"
)

# starts a process, writes both numbers, and would sleep for ten minutes; like
# Snakemake, and papermill while it starts a kernel, it goes on when asked to end
FAMILY = """
import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: None)
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
folder = pathlib.Path({folder!r})
(folder / "new").write_text(f"{{os.getpid()}} {{other.pid}}")
(folder / "new").rename(folder / "family")
time.sleep(600)
"""

PARENTS = {
    "training": """
from factkit.train import launch
launch.run_job([sys.executable, str(folder / "vllm.py")], folder / "log")
""",
    "a vLLM engine": """
from factkit.policy.vllm_engine import VllmEngine
VllmEngine({}).generate([[1]], [{}])
""",
}


def alive(pid):
    try:
        state = (
            Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
        )
    except OSError:
        return False
    return state != "Z"


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Starts a parent; it, and the numbers of the processes it has started."""
    (tmp_path / "vllm.py").write_text(FAMILY.format(folder=str(tmp_path)), "utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")  # its vllm is that file

    def run(parent):
        head = f"import sys, pathlib; folder = pathlib.Path({str(tmp_path)!r})\n"
        command = [sys.executable, "-c", head + PARENTS[parent]]
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        until((tmp_path / "family").exists)
        return process, [
            int(n) for n in (tmp_path / "family").read_text("utf-8").split()
        ]

    return run


ENDS = [(parent, signal.SIGKILL) for parent in PARENTS]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parent", "ended_by"), [*ENDS, ("a vLLM engine", signal.SIGINT)]
)
def test_what_a_process_started_ends_with_it(start, parent, ended_by):
    process, family = start(parent)
    assert all(map(alive, family))
    process.send_signal(ended_by)
    process.wait(60)
    until(lambda: not any(map(alive, family)))


def test_what_a_process_started_ends_when_its_group_is_killed(start):
    process, family = start("training")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    until(lambda: not any(map(alive, family)))
