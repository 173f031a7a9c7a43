"""The parameter files: params/<profile>/<paper>.yaml, and a variant's beside it."""

from pathlib import Path
from typing import Any

import yaml

from factkit.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


class ParamError(UserError):
    """A parameter is wrong; the message names where, key, value and fix."""


def defaults(paper: str, profile: str, variant: str = "") -> dict[str, Any]:
    """The values of `<paper>.yaml` under those of `<paper>-<variant>.yaml`, if any."""
    values = read_yaml(yaml_path(paper, profile))
    if variant:
        values |= read_yaml(yaml_path(paper, profile, variant))
    return values


def yaml_path(paper: str, profile: str, variant: str = "") -> Path:
    """The parameter file of a paper, profile and variant.

    Raises ParamError if there is none, naming those there are.
    """
    name = f"{paper}-{variant}" if variant else paper
    path = ROOT / "params" / profile / f"{name}.yaml"
    if not path.is_file():
        known = sorted(
            str(p.relative_to(ROOT)) for p in ROOT.glob(f"params/*/{paper}*.yaml")
        )
        raise ParamError(f"{path}: no such file; there are: {', '.join(known)}")
    return path


def read_yaml(path: Path) -> dict[str, Any]:
    """A flat YAML mapping; raises ParamError on bad syntax, nesting or double keys."""
    try:
        text = path.read_text(encoding="utf-8")
        node, values = yaml.compose(text), yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ParamError(f"{path}: not valid YAML: {error}") from None
    except RecursionError:
        raise ParamError(f"{path}: nested too deeply; write `key: value`") from None
    if not isinstance(values, dict):
        raise ParamError(f"{path}: must hold lines of `key: value`")
    if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
        raise ParamError(f"{path}: has an alias (*name); write each value out")
    keys = [key.value for key, _ in node.value]
    for key, value in values.items():
        if keys.count(key) > 1:
            raise ParamError(f"{path}: {key} is set twice; keep one")
        if isinstance(value, dict | list):
            raise ParamError(
                f"{path}: {key} must be a scalar: papermill merges files shallowly"
            )
    return values
