"""The hardware and the kit's commit, as results.json records them."""

import os
import platform
import re
import subprocess
from functools import partial
from pathlib import Path

from factkit.run.params import ROOT


def dtype(name: str) -> str:
    """The dtype in which this processor computes: float32 instead of bfloat16 where it
    has no instructions for bfloat16, which is then six to nine times slower."""
    import torch

    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return name
    return "float32"


def device() -> str:
    """The GPUs, or torch's CPU threads and whether float32 replaces bfloat16."""
    import torch

    if torch.cuda.is_available():
        return f"{torch.cuda.device_count()} × {torch.cuda.get_device_name(0)}"
    cpu = f"CPU, {torch.get_num_threads()} threads, {platform.machine()}"
    if dtype("bfloat16") == "bfloat16":
        return cpu
    return f"{cpu} without bfloat16 (float32 in its place)"


def git_commit() -> str:
    """The commit of the kit's working tree, with a + if it has changes; "none: " and
    the reason without one."""
    # also another owner's tree
    git = ["git", "-C", str(ROOT), "-c", "safe.directory=*"]
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    env["LC_ALL"] = "C"
    run = partial(subprocess.run, capture_output=True, encoding="utf-8", env=env)
    try:
        top = run([*git, "rev-parse", "--show-toplevel"])
    except OSError:
        return "none: git is not installed"
    if top.returncode:  # fatal: not a git repository (or any …
        reason = top.stderr.partition("fatal: ")[2] or "git failed"
        return f"none: {re.split(r' [(]| at |$', reason, flags=re.M)[0]}"
    if Path(top.stdout.strip()).resolve() != ROOT:
        return "none: inside another git repository"
    describe = [*git, "describe", "--always", "--dirty=+", "--abbrev=12"]
    commit = run(describe).stdout.strip()
    return commit or "none: no commit yet"
