"""This machine in words, and the kit's commit: what results.json records."""

import os
import platform
import re
import subprocess
from pathlib import Path

from factkit.run.params import ROOT


def dtype(name: str) -> str:
    """What weights of this dtype are computed in on this processor: float32 in place of
    bfloat16 where it has no instructions for that, as x86-64 without AVX-512: there
    a product in bfloat16 takes six to nine times as long."""
    import torch

    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return name
    return "float32"


def device() -> str:
    """The hardware in words: GPU names, or the number of CPU threads torch uses, and
    whether the processor takes float32 in place of bfloat16."""
    import torch

    if torch.cuda.is_available():
        n = torch.cuda.device_count()
        return f"{n} × {torch.cuda.get_device_name(0)}"
    words = f"CPU, {torch.get_num_threads()} threads, {platform.machine()}"
    lacks = dtype("bfloat16") != "bfloat16"
    return f"{words} without bfloat16 (float32 in its place)" if lacks else words


def git_commit() -> str:
    """The commit of the kit's working tree, with a + if it has changes; without one,
    "none" and the reason, as "none: not a git repository"."""
    # of another owner's tree, too: who runs its code may read its history
    git = ["git", "-C", str(ROOT), "-c", "safe.directory=*"]
    own = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    own["LC_ALL"] = "C"
    how = {"capture_output": True, "encoding": "utf-8", "env": own}
    try:
        top = subprocess.run([*git, "rev-parse", "--show-toplevel"], **how)
    except OSError:
        return "none: git is not installed"
    if top.returncode:  # fatal: not a git repository (or any …
        reason = top.stderr.partition("fatal: ")[2] or "git failed"
        return f"none: {re.split(r' [(]| at |$', reason, flags=re.M)[0]}"
    if Path(top.stdout.strip()).resolve() != ROOT:
        return "none: inside another git repository"
    describe = [*git, "describe", "--always", "--dirty=+", "--abbrev=12"]
    commit = subprocess.run(describe, **how).stdout.strip()
    return commit or "none: no commit yet"
