"""The sizes of the rehearsal over the shipped parameters of a profile."""

from pathlib import Path
from typing import Any

import yaml

from factkit.run import params

FILE = Path(__file__).with_name("sizes.yaml")
PAPERS = ("truthrl", "rar", "reason", "rlfh", "veri")


def sizes(paper: str, profile: str, variant: str = "") -> dict[str, Any]:
    """The keys to override in a paper's run: those of all, the profile's, its own; none
    above what the variant's file ships."""
    parts = yaml.safe_load(FILE.read_text("utf-8"))
    chosen = parts["all"] | parts[profile] | parts[paper]
    if not variant:
        return chosen
    own = params.read_yaml(params.yaml_path(paper, profile, variant))
    return {key: min(value, own.get(key, value)) for key, value in chosen.items()}
