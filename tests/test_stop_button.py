"""The stop button of JupyterLab: what was interrupted goes on at the next Run All."""

import re
import threading
import time

import pytest
from jupyter_client.manager import start_new_kernel

from factkit.run.params import ROOT
from factkit.run.runs import read_results
from tests.test_notebooks import cells, run_here, smallest

BAR = re.compile(r"[\w -]+: +\d+%\|.*\| \d+/\d+ \[.*\]")


def run_all(client, sources):
    """Run cells up to the first that fails, as Lab does: its error, or "", and all that
    was written to stderr."""
    red = []

    def hook(message):
        if message["content"].get("name") == "stderr":
            red.append(message["content"]["text"])

    for source in sources:
        reply = client.execute_interactive(source, output_hook=hook, timeout=300)
        if reply["content"]["status"] == "error":
            error = reply["content"]
            return f"{error['ename']}: {error['evalue']}", "".join(red)
    return "", "".join(red)


def interrupt_when(manager, moment):
    """A thread that presses the stop button at a moment."""

    def wait():
        while not moment():
            time.sleep(0.01)
        manager.interrupt_kernel()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


@pytest.mark.slow
@pytest.mark.notebook
@pytest.mark.assets
@pytest.mark.parametrize(
    ("paper", "arm", "bar"),
    [
        ("truthrl", "ternary", "GRPO ternary-s0"),
        ("rlfh", "statement", "ppo statement-s0"),
    ],
)
def test_a_training_that_was_stopped_goes_on_from_its_checkpoint(
    paper, arm, bar, tmp_path
):
    """Its red output is bars, and its metrics are those of a run that was not."""
    steps = 12
    values = smallest(paper) | {"arm": arm, "rl_steps": steps}
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    for folder in (stopped, whole):
        run_here(f"?0_{paper}_data", folder, **values)
    run_here(f"?2_{paper}_train", whole, **values)
    (notebook,) = ROOT.glob(f"notebooks/?2_{paper}_train.ipynb")
    run = stopped / "tiny" / notebook.stem / f"{arm}-s0"
    state = run / "checkpoint/checkpoint-3/manifest.json"
    sources = cells(notebook, stopped, **values)
    manager, client = start_new_kernel(cwd=ROOT)
    try:
        pressed = interrupt_when(manager, state.exists)
        error, _ = run_all(client, sources)
        pressed.join()
        assert error.startswith("KeyboardInterrupt")
        assert read_results(run) is None
        error, red = run_all(client, sources)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert error == ""
    first = re.search(rf"{bar}: .*? (\d+)/{steps} ", red)
    assert int(first[1]) >= 3  # it did not begin anew
    lines = [line for line in re.split(r"[\r\n]+", red) if line.strip()]
    assert [line for line in lines if not BAR.fullmatch(line.strip())] == []
    through, killed = (
        read_results(folder / run.relative_to(stopped)) for folder in (whole, stopped)
    )
    assert killed["metrics"] == pytest.approx(through["metrics"], abs=1e-6)
