"""The sizes of the rehearsal over the shipped parameters of a profile."""

from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).with_name("sizes.yaml")
PAPERS = ("truthrl", "rar", "reason", "rlfh", "veri")


def sizes(paper: str, profile: str) -> dict[str, Any]:
    """The keys to override in a paper's run: those of all, the profile's, its own."""
    parts = yaml.safe_load(FILE.read_text("utf-8"))
    return parts["all"] | parts[profile] | parts[paper]
