"""Checks of this machine and of services against the needs of a profile."""

import importlib.metadata
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import psutil

from factkit import Check
from factkit.answers.verifier import has_judge
from factkit.data import assets
from factkit.gpu import memory as gpu_memory
from factkit.gpu import services
from factkit.run import child, files, params
from factkit.run.arms import find_papers, get_paper

GPQA = "Idavidrein/gpqa"
GPU_PACKAGES = ("vllm", "unsloth", "deepspeed")
# number of GPUs, and memory of each in GB (an 80 GB card shows 79 to 85)
GPUS_NEEDED = {"h100_lora": (1, 75), "h100_full": (8, 75)}
NETWORK = ("nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "9p", "fuse.sshfs")


def examine(paper: str = "", profile: str = "laptop", variant: str = "") -> list[Check]:
    """Checks (what, found, whether that is fine, remedy). paper: default the first."""
    paper = paper or next(iter(find_papers()))
    p = params.load(paper, profile, variant=variant)
    checks = [*_machine(), _pins()]
    for name in assets.ASSETS:
        try:
            assets.verified(name)
            checks.append((name, "verified", True, ""))
        except assets.AssetError as error:
            checks.append((name, "missing or changed", False, str(error)))
    if profile in GPUS_NEEDED:
        checks += _gpus(profile) + examine_services(p) + _room(p)
    return checks


def _room(p: Any) -> list[Check]:
    """Whether a run fits GPU, host and disk, for policies in `SHAPES`."""
    checks = [_cache()]
    if p.deepspeed == "zero3_offload":
        missing = [name for name in ("g++", "ninja") if not shutil.which(name)]
        found = f"no {', '.join(missing)}" if missing else "g++, ninja"
        remedy = "DeepSpeed compiles its Adam: install g++, and pip install ninja"
        checks.append(("C++ compiler", found, not missing, remedy))
    if p.policy not in gpu_memory.SHAPES:
        how = f"python -m accelerate estimate-memory {p.policy}"
        return [*checks, ("memory a GPU", f"unknown: {how}", True, "")]

    host, disk = psutil.virtual_memory().total, shutil.disk_usage(params.ROOT).free
    most = max(gpu_memory.peaks(p).values())
    stored = sum(gpu_memory.disk(p).values())
    lower = "lower micro_batch_size, max_completion_length or vllm_memory"
    larger = "take a machine with more, or more GPUs and deepspeed: zero3"
    room = f"put {p.output_dir} and HF_HOME where there is room; fewer arms"
    for what, here, needed, remedy in (
        ("memory a GPU", gpu_memory.GPU_GB, most, lower),
        ("host memory", host / 1e9, gpu_memory.host_memory(p), larger),
        ("disk of the runs", disk / 1e9, stored, room),
    ):
        found = f"{here:.0f} GB, {needed:.0f} GB estimated"
        checks.append((what, found, here > needed, remedy))
    return checks


def examine_services(p: Any) -> list[Check]:
    """Checks of the services, gated repositories and files that parameters name."""
    checks = services.needed(p)
    checks += get_paper(p).needs(p).services()
    if has_judge(p):
        others = [other.split("@") for other in getattr(p, "second_judges", ())]
        checks += [services.judge(p, model, url) for model, url in others]
    sets = f"{getattr(p, 'test_sets', '')} {getattr(p, 'utility_benchmarks', '')}"
    checks += repository(p.policy, "model")
    return checks + (repository(GPQA, "dataset") if "gpqa" in sets else [])


def repository(name: str, kind: str) -> list[Check]:
    """Whether this machine may download a repository; no check for a local folder."""
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError

    what = f"{kind} {name}"
    if name.count("/") != 1 or Path(assets.policy_path(name)).is_dir():
        return []
    if constants.is_offline_mode():
        return [(what, "not asked: HF_HUB_OFFLINE is set", True, "")]
    try:
        HfApi().auth_check(name, repo_type=kind)
    except HfHubHTTPError as error:
        remedy = f"accept the terms of {name} on huggingface.co, then: hf auth login"
        return [(what, type(error).__name__, False, remedy)]
    except Exception as error:  # whatever a proxy or a cut line makes of it
        return [(what, type(error).__name__, False, "see to the network")]
    return [(what, "the hub gives it", True, "")]


def _cache() -> Check:
    folder = files.cache_dir().resolve()
    mounts = psutil.disk_partitions(all=True)
    above = [m for m in mounts if folder.is_relative_to(m.mountpoint)]
    kind = max(above, key=lambda m: len(m.mountpoint)).fstype if above else "unknown"
    remedy = "SQLite needs locks that hold: export FACTKIT_CACHE=… on a local disk"
    return ("cache", f"{folder} ({kind})", not kind.startswith(NETWORK), remedy)


def _machine() -> list[Check]:
    python = platform.python_version()
    cores = child.cores()
    memory = psutil.virtual_memory().total / 2**30
    disk = shutil.disk_usage(Path(__file__)).free / 2**30
    return [
        ("Python", python, sys.version_info >= (3, 11), "use Python 3.11 or newer"),
        ("CPU cores", str(cores), cores >= 2, "with one core, expect twice the time"),
        ("memory", f"{memory:.0f} GiB", memory >= 6, "laptop needs about 6 GiB"),
        ("free disk", f"{disk:.0f} GiB", disk >= 5, "free 5 GiB for runs and cache"),
    ]


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def _pins() -> Check:
    pins = [r.partition("==") for r in importlib.metadata.requires("factkit") or []]
    wrong = [
        f"{name} {_version(name)}, pinned {pin.strip()}"
        for name, _, pin in pins
        if "extra" not in pin and _version(name).split("+")[0] != pin.strip()
    ]
    found = "; ".join(wrong) or "as pinned"
    return ("packages", found, not wrong, "pip install -e . (or make reproduce)")


def _gpus(profile: str) -> list[Check]:
    import torch

    number, gigabytes = GPUS_NEEDED[profile]
    cards = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    sizes = [card.total_memory / 1e9 for card in cards]
    enough = sum(size >= gigabytes for size in sizes) >= number
    cards_here = ", ".join(f"{size:.0f} GB" for size in sizes) or "none"
    needs = f"needs {number} GPU(s) of {gigabytes} GB or more"
    versions = {name: _version(name) for name in GPU_PACKAGES}
    return [("GPUs", cards_here, enough, needs)] + [
        (name, version, version != "missing", "pip install -e '.[gpu]'")
        for name, version in versions.items()
    ]
