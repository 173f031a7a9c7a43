"""The doctor's checks of a machine, and its command."""

import subprocess
import sys

import pytest

from factkit import doctor, params
from factkit.params.files import ROOT


def run_doctor(*arguments):
    command = [sys.executable, "-m", "factkit", "doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.assets
def test_doctor_says_what_a_gpu_profile_lacks():
    import torch

    if torch.cuda.device_count() >= 8:
        pytest.skip("this machine has the GPUs")
    checks = doctor.examine("truthrl", "h100_full", "qwen2.5-32b")
    found = {what: rest for what, *rest in checks}
    assert found["GPUs"][1] is False
    assert "needs 8 GPU(s)" in found["GPUs"][2]
    assert found["memory a GPU"][1] is True


def test_an_unknown_variant_is_refused_by_name():
    with pytest.raises(params.ParamError, match="truthrl-nothing"):
        doctor.examine("truthrl", "h100_full", "nothing")


@pytest.mark.parametrize(
    ("paper", "said"),
    [
        ("truthrl", "probing tokens"),
        ("rar", "web pages: 87,000"),
        ("reason", "7,200 synthetic prompts"),
        ("rlfh", "judge calls training statement: 1,357,824"),
        ("veri", "judge calls shared: 45,500"),
    ],
)
def test_doctor_exits_with_1_where_something_lacks(paper, said):
    import torch

    if torch.cuda.device_count() >= 8:
        pytest.skip("this machine has the GPUs")
    done = run_doctor("--paper", paper, "--profile", "h100_full")
    assert done.returncode == 1, done.stderr
    assert said in done.stdout
    assert "needs 8 GPU(s)" in done.stdout


@pytest.mark.assets
@pytest.mark.parametrize("profile", ["tiny", "laptop"])
def test_doctor_asks_no_gpu_of_a_small_profile(profile):
    found = {what for what, *_ in doctor.examine("veri", profile)}
    assert not found & {"GPUs", "memory a GPU", *doctor.GPU_PACKAGES}


@pytest.mark.assets
@pytest.mark.parametrize(
    ("profile", "variant"),
    [("h100_lora", ""), ("h100_full", ""), ("h100_full", "llama3.2-3b")],
)
def test_doctor_finds_that_veri_s_training_fits_a_gpu(profile, variant):
    checks = doctor.examine("veri", profile, variant)
    found = {what: rest for what, *rest in checks}
    assert found["memory a GPU"][1] is True


def test_an_unknown_paper_is_refused_by_name():
    done = run_doctor("--paper", "rlhf")
    assert done.returncode == 2
    assert "paper='rlhf'" in done.stderr
