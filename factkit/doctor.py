"""What this machine has, and what a profile lacks on it."""

import importlib.metadata
import os
import platform
import shutil
import sys
from pathlib import Path

from factkit import assets, costs, params
from factkit.workload import Paper

GPU_PACKAGES = ("vllm", "unsloth", "deepspeed")
# number of GPUs, and memory of each in GB (an 80 GB card shows 79 to 85)
GPUS_NEEDED = {"h100_lora": (1, 75), "h100_full": (8, 75)}

Check = tuple[str, str, bool, str]


def examine(
    paper: str = "truthrl", profile: str = "laptop", variant: str = ""
) -> list[Check]:
    """Checks as (what, found, whether that is fine, what to do if not).

    Raises ParamError if there is no such profile or variant of the paper.
    """
    p = params.load(paper, profile, variant=variant)
    checks = [*_machine(), *_pins(), *_assets()]
    if profile in GPUS_NEEDED:
        checks += [*_gpus(profile), _fits(p)]
    return checks


def _fits(p: Paper) -> Check:
    """Whether a training GPU holds what it must, by the estimate."""
    shape = costs.shape_of(p)
    if shape is None:
        return ("memory a GPU", "unknown", True, "")
    needed = sum(gb for _, gb, _ in costs.memory(p, shape))
    found = f"{needed:.0f} of {costs.GPU_GB} GB"
    remedy = "lower micro_batch_size, max_completion_length or vllm_memory"
    return ("memory a GPU", found, needed < costs.GPU_GB, remedy)


def _machine() -> list[Check]:
    python = platform.python_version()
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    disk = shutil.disk_usage(Path(__file__)).free / 2**30
    return [
        ("Python", python, sys.version_info >= (3, 11), "use Python 3.11 or newer"),
        ("CPU cores", str(cores), cores >= 2, "with one core, expect twice the time"),
        ("memory", f"{memory:.0f} GiB", memory >= 6, "laptop needs about 6 GiB"),
        ("free disk", f"{disk:.0f} GiB", disk >= 5, "free 5 GiB for runs and cache"),
    ]


def _pins() -> list[Check]:
    """Whether the installed packages are the pinned ones, in one line."""
    wrong = []
    for requirement in importlib.metadata.requires("factkit") or []:
        name, _, rest = requirement.partition("==")
        if "extra" in rest:
            continue
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found = "missing"
        if found.split("+")[0] != rest.strip():
            wrong.append(f"{name} {found}, pinned {rest.strip()}")
    found = "; ".join(wrong) or "as pinned"
    return [("packages", found, not wrong, "pip install -e . (or make reproduce)")]


def _assets() -> list[Check]:
    checks: list[Check] = []
    for name in assets.ASSETS:
        try:
            assets.verified(name)
            checks.append((name, "verified", True, ""))
        except assets.AssetError as error:
            checks.append((name, "missing or changed", False, str(error)))
    return checks


def _gpus(profile: str) -> list[Check]:
    import torch

    number, gigabytes = GPUS_NEEDED[profile]
    have = torch.cuda.device_count()
    cards = [torch.cuda.get_device_properties(i) for i in range(have)]
    sizes = [card.total_memory / 1e9 for card in cards]
    enough = sum(size >= gigabytes for size in sizes) >= number
    found = ", ".join(f"{size:.0f} GB" for size in sizes) or "none"
    wanted = f"needs {number} GPU(s) of {gigabytes} GB or more"
    checks: list[Check] = [("GPUs", found, enough, wanted)]
    for package in GPU_PACKAGES:
        try:
            version = importlib.metadata.version(package)
            checks.append((package, version, True, ""))
        except importlib.metadata.PackageNotFoundError:
            checks.append((package, "missing", False, "pip install -e '.[gpu]'"))
    return checks
