"""Parameters: what each paper's runs may set, and the check before anything loads.

A paper's class, in its room's arms.py, lists every key with its type and range;
`stages` has what papers share. `params/<profile>/<paper>.yaml` gives the values; a
notebook's parameters cell shows those it uses. A variant, `<paper>-<variant>.yaml`,
holds only what differs: another setting or model.
"""

import difflib
import pkgutil
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from factkit import UserError
from factkit.params.stages import PROFILES, RunParams

ROOT = Path(__file__).resolve().parents[2]
FAST = yaml.CSafeLoader  # ten times as fast as SafeLoader
ASSIGNED = re.compile(r"^(\w+)(?: *:[^=\n]+)? *=(?!=)", re.MULTILINE)  # in a cell

# notebooks' parameters → their class
CLASSES = {
    "start": "factkit.params.stages:Start",
    "corpus": "factkit.params.stages:Corpus",
    "verifiers": "factkit.params.stages:Verifiers",
    "truthrl": "factkit.truthrl.arms:TruthRL",
    "rar": "factkit.rar.arms:RAR",
    "reason": "factkit.reason.arms:Reason",
    "rlfh": "factkit.rlfh.arms:Rlfh",
    "veri": "factkit.veri.arms:Veri",
    "compare": "factkit.compare.arms:Compare",
}


class ParamError(UserError):
    """A parameter is wrong; the message names where, key, value and fix."""


def class_of(paper: str) -> type[RunParams]:
    """The class with all parameters of a paper's notebooks."""
    return pkgutil.resolve_name(CLASSES[paper])


# ---- the files


def load(
    paper: str,
    profile: str,
    overrides: Mapping[str, Any] | None = None,
    variant: str = "",
) -> Any:
    """The checked parameters of a profile's YAML files with overrides."""
    if paper not in CLASSES:
        raise ParamError(f"paper={paper!r}: there are {', '.join(CLASSES)}")
    own = defaults(paper, profile, variant)
    p = validate(paper, own, str(yaml_path(paper, profile, variant)))
    return validate(paper, own | dict(overrides), "--set") if overrides else p


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
        variants = sorted(path.parent.glob(f"{paper}-*.yaml")) if variant else []
        files = variants or sorted(ROOT.glob(f"params/*/{paper}.yaml"))
        known = ", ".join(str(file.relative_to(ROOT)) for file in files)
        raise ParamError(f"{path}: no such file; there are: {known}")
    return path


def papermill_files(paper: str, profile: str, variant: str = "") -> str:
    """The arguments by which papermill takes a profile's values."""
    names = [paper, f"{paper}-{variant}"] if variant else [paper]
    return " ".join(f"-f params/{profile}/{name}.yaml" for name in names)


def read_yaml(path: Path) -> dict[str, Any]:
    """A flat YAML mapping; raises ParamError on bad syntax, nesting or double keys."""
    try:
        text = path.read_text(encoding="utf-8")
        node, values = yaml.compose(text, FAST), yaml.load(text, FAST)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ParamError(f"{path}: not valid YAML: {error}") from None
    if not isinstance(values, dict):
        raise ParamError(f"{path}: must hold lines of `key: value`")
    keys = [key.value for key, _ in node.value]
    for key, value in values.items():
        if keys.count(key) > 1:
            raise ParamError(f"{path}: {key} is set twice; keep one")
        if isinstance(value, dict | list):
            raise ParamError(
                f"{path}: {key} must be a scalar: papermill merges files shallowly"
            )
    return values


# ---- a notebook


def check(paper: str, values: Mapping[str, Any], **meant: Any) -> Any:
    """The parameters of a notebook, checked; call it as `check(paper, globals())`.

    The parameters cell shows profile tiny's values. At another profile its own come
    from its YAML file, by papermill's `-f`; a line of the cell that was left at tiny's
    value is refused, for nobody can tell whether it is meant: delete the line for the
    profile's own value, or give it in `meant`, as `check(paper, globals(), beta=0.1)`.
    Returns the paper's parameter class; raises ParamError.
    """
    injected, cell, typed = _given(values)
    profile, variant = values.get("profile", "tiny"), values.get("variant", "")
    own = defaults(paper, profile, variant)
    _refuse_other_files(paper, injected, profile, variant)
    fields = class_of(paper).model_fields
    shown = {key: values[key] for key in cell if key not in injected}
    for key in shown.keys() - fields.keys():
        raise ParamError(_unknown(paper, "the parameters cell", key, shown[key]))
    default = {k: f.default for k, f in fields.items() if not f.is_required()}
    tiny = default | read_yaml(yaml_path(paper, "tiny"))
    unclear = {k: v for k, v in shown.items() if v == tiny[k] != (default | own)[k]}
    # what the profile's file does not name is not asked there: the fact world's sizes
    if left := (unclear.keys() & own.keys()) - meant.keys() - {"profile"}:
        lines = ", ".join(f"{k}={unclear[k]!r} ({profile}: {own[k]!r})" for k in left)
        raise ParamError(
            f"the parameters cell: these lines have profile tiny's values: {lines}. "
            "Delete them, and the profile's own are taken; or give its file, papermill "
            f"-f params/{profile}/{paper}.yaml"
        )
    mine = (fields.keys() & typed) - injected.keys() - unclear.keys()
    changed = {k: values[k] for k in mine}
    given = own | changed | injected | meant
    return validate(paper, given, "the notebook's parameters")


def _given(values: Mapping[str, Any]) -> tuple[dict[str, Any], set[str], set[str]]:
    """What papermill injected, the names that the parameters cell assigns to, and those
    that it or a cell after it does.

    values: the notebook's globals; `In` holds the cells that were run. The parameters
    cell is the last one run that sets `profile`, papermill's own left out: at a second
    Run All, what a later cell named like a parameter is none. Without `In`, all are.
    """
    injected: dict[str, Any] = {}
    cell: set[str] = set()
    typed = set() if "In" in values else set(values)
    for source in values.get("In", []):
        names = set(ASSIGNED.findall(source))
        if source.startswith("# Parameters\n"):
            injected |= {name: values[name] for name in names}
        elif "profile" in names:
            cell = typed = names
        else:
            typed = typed | (names & values.keys())
    return injected, cell, typed


def _refuse_other_files(
    paper: str, injected: Mapping[str, Any], profile: str, variant: str
) -> None:
    """Raises ParamError if papermill was given another profile's file, or the main file
    after its variant's: where it differs from the run's own, no value is the run's."""
    own = defaults(paper, profile, variant)
    for path in (ROOT / "params" / other / f"{paper}.yaml" for other in PROFILES):
        theirs = read_yaml(path) if path.is_file() else {}
        shared = (theirs.keys() & own.keys()) - {"profile", "variant"}
        values = [
            (injected.get(key), theirs[key], own[key])
            for key in shared
            if theirs[key] != own[key]
        ]
        taken = any(value == of_file for value, of_file, _ in values)
        kept = any(value == ours for value, _, ours in values)
        if theirs.keys() <= injected.keys() and taken and not kept:
            files = papermill_files(paper, profile, variant)
            raise ParamError(
                f"profile={profile!r}, variant={variant!r}, but the values are those "
                f"of {path.relative_to(ROOT)}: give {files}, in this order"
            )


# ---- what is wrong


def validate(paper: str, values: Mapping[str, Any], source: str) -> Any:
    """The paper's parameter class made of `values`; its ParamError names `source`."""
    unknown = values.keys() - class_of(paper).model_fields.keys()
    for other in CLASSES:
        if len(unknown) > 2 and unknown <= class_of(other).model_fields.keys():
            raise ParamError(
                f"{source}: these are parameters of {other}, not of {paper}: "
                f"{', '.join(unknown)}; give a file params/*/{paper}.yaml"
            )
    try:
        return class_of(paper).model_validate(dict(values))
    except ValidationError as error:
        lines = [_explain(paper, source, e) for e in error.errors()]
        raise ParamError("\n".join(lines)) from None


def _explain(paper: str, source: str, error: Mapping[str, Any]) -> str:
    """One line for one pydantic error: source, key, value, problem, fix."""
    message = error["msg"].removeprefix("Value error, ")
    if not error["loc"]:
        return f"{source}: {message}"
    key, value = str(error["loc"][0]), error["input"]
    if error["type"] == "extra_forbidden":
        return _unknown(paper, source, key, value)
    if error["type"] == "float_type" and isinstance(value, str):
        message += f"; YAML reads {value} as a string, write it with a point: 1.0e-5"
    return f"{source}: {key}={value!r}: {message}"


def _unknown(paper: str, source: str, key: str, value: Any) -> str:
    close = difflib.get_close_matches(key, class_of(paper).model_fields, n=1)
    fix = f"did you mean {close[0]}?" if close else "remove it"
    return f"{source}: {key}={value!r}: no such parameter of {paper}; {fix}"
