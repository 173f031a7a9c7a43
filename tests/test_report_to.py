"""Training reports to a tracker only where a run asks for it."""

import importlib.util
import sys
import types

import pytest

from factkit.run import folders, params
from factkit.run.params import stages
from factkit.train import setup


def test_nothing_is_reported_by_default(tmp_path):
    p = params.load("truthrl", "tiny")
    arguments = setup.trainer_arguments(p, tmp_path / "checkpoint", p.rl_batch_size)
    assert arguments["report_to"] == "none"


def test_a_tracker_that_is_not_installed_is_refused_with_the_command(monkeypatch):
    monkeypatch.setattr(stages, "find_spec", lambda name: None)
    with pytest.raises(params.ParamError, match="pip install trackio"):
        params.load("truthrl", "tiny", {"report_to": "trackio"})
    with pytest.raises(params.ParamError, match="report_to"):
        params.load("truthrl", "tiny", {"report_to": "all"})


def test_the_tracker_reaches_the_trainer_and_is_no_part_of_the_run(
    tmp_path, monkeypatch
):
    tracker = types.ModuleType("mlflow")
    tracker.__spec__ = importlib.util.spec_from_loader("mlflow", None)
    monkeypatch.setitem(sys.modules, "mlflow", tracker)
    p = params.load("truthrl", "tiny", {"report_to": "mlflow"})
    checkpoint = tmp_path / "tiny" / "12_truthrl_train" / "ternary-s0" / "checkpoint"
    arguments = setup.trainer_arguments(p, checkpoint, p.rl_batch_size)
    assert arguments["report_to"] == "mlflow"
    assert arguments["run_name"] == "tiny/12_truthrl_train/ternary-s0"
    assert "report_to" in folders.NON_IDENTITY_KEYS
