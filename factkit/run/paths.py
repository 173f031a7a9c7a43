"""The project's folder and the cache folder."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def from_root(path: str) -> str:
    """A parameter's path, which is relative to the project's root; "" stays ""."""
    return str(ROOT / path) if path else ""


def cache_path() -> Path:
    """The cache folder: `$FACTKIT_CACHE`, else `~/.cache/factkit`."""
    default = Path(os.path.expanduser("~"), ".cache", "factkit")
    return Path(os.environ.get("FACTKIT_CACHE") or default)
