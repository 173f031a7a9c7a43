"""What a notebook was given: by papermill, and in its parameters cell."""

import ast
from collections.abc import Mapping
from typing import Any

from factkit.params.files import ROOT, defaults, read_yaml, yaml_path
from factkit.params.stages import PROFILES


def given(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What papermill injected, and the names that the parameters cell assigns to.

    values: the notebook's globals; `In` holds the cells that were run. The parameters
    cell is the last one run that sets `profile`, papermill's own left out.
    """
    injected: dict[str, Any] = {}
    cell: list[str] = []
    for source in values.get("In", []):
        names = _assigned(source)
        if source.startswith("# Parameters\n"):
            injected |= {name: values[name] for name in names}
        elif "profile" in names:
            cell = names
    return injected, cell


def mixed_files(
    paper: str, injected: Mapping[str, Any], profile: str, variant: str
) -> str:
    """Why the parameter files that papermill was given don't fit; nothing if they do.

    The main file may have come after its variant's, which it then overwrites; or a
    file may be another profile's.
    """
    if variant:
        main, file = defaults(paper, profile), yaml_path(paper, profile, variant)
        differs = {
            k: v for k, v in read_yaml(file).items() if k in main and v != main[k]
        }
        if differs and all(injected.get(k, v) == main[k] for k, v in differs.items()):
            key, value = next(iter(differs.items()))
            return (
                f"variant={variant}: {key}={main[key]!r} and all else that "
                f"{file.relative_to(ROOT)} changes ({value!r}) has the main file's "
                f"value: give the main file first, -f params/{profile}/{paper}.yaml "
                f"-f params/{profile}/{file.name}"
            )
    own = defaults(paper, profile, variant)
    for other in PROFILES:
        file = ROOT / "params" / other / f"{paper}.yaml"
        if other == profile or not file.is_file():
            continue
        theirs = read_yaml(file)
        if theirs.keys() <= injected.keys() and _distance(injected, theirs) < _distance(
            injected, own
        ):
            return (
                f"profile={profile!r}, but the values are those of params/{other}/"
                f"{paper}.yaml: give -f params/{profile}/{paper}.yaml, or leave "
                f"profile={other!r}"
            )
    return ""


def _distance(values: Mapping[str, Any], file: Mapping[str, Any]) -> int:
    """How many of a file's values are others, the profile's name left out."""
    return sum(values.get(k, v) != v for k, v in file.items() if k != "profile")


def _assigned(cell: str) -> list[str]:
    """The names that a cell assigns to at its top level."""
    try:
        statements = ast.parse(cell).body
    except SyntaxError:  # a magic
        return []
    targets = [
        target
        for statement in statements
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for target in getattr(statement, "targets", None) or [statement.target]
    ]
    return [target.id for target in targets if isinstance(target, ast.Name)]
