"""Parameters: what each paper's runs may set, and the check before anything loads.

A paper's class, in the module of its name, lists every key with its type and range;
`stages` and `long_form` have what papers share. `params/<profile>/<paper>.yaml` gives
their values; a notebook's parameters cell shows those it uses. A variant,
`<paper>-<variant>.yaml`, holds only what differs: another setting or model.
"""

import ast
import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from factkit.params.long_form import RequestParams
from factkit.params.rar import (
    RAR,
    RAR_ARMS,
    RAR_RL_ARMS,
    RarDpoParams,
    RarParams,
    RarRlParams,
    RarSftParams,
)
from factkit.params.reason import (
    REASON_ARMS,
    REASON_RL_ARMS,
    Reason,
    ReasonDpoParams,
    ReasonParams,
    ReasonRlParams,
    ReasonSftParams,
)
from factkit.params.rlfh import (
    RLFH_ARMS,
    RLFH_RL_ARMS,
    Rlfh,
    RlfhDpoParams,
    RlfhParams,
    RlfhRlParams,
)
from factkit.params.stages import (
    PROFILES,
    Corpus,
    DpoParams,
    HardwareParams,
    JudgeParams,
    PolicyParams,
    RewardModelParams,
    RlParams,
    RunParams,
    SftParams,
    Start,
    TokenLevelParams,
    TrainParams,
    Verifiers,
)
from factkit.params.truthrl import (
    TRUTHRL_ARMS,
    QuestionDpoParams,
    QuestionParams,
    QuestionRlParams,
    QuestionSftParams,
    TruthRL,
)
from factkit.params.veri import (
    VERI_ARMS,
    VERI_ONLINE_ARMS,
    Veri,
    VeriLargerParams,
    VeriParams,
    VeriRlParams,
    VeriSftParams,
)

__all__ = [
    "Corpus",
    "DpoParams",
    "HardwareParams",
    "JudgeParams",
    "PAPERS",
    "PROFILES",
    "ParamError",
    "PolicyParams",
    "QuestionDpoParams",
    "QuestionParams",
    "QuestionRlParams",
    "QuestionSftParams",
    "RAR",
    "RAR_ARMS",
    "RAR_RL_ARMS",
    "REASON_ARMS",
    "REASON_RL_ARMS",
    "ROOT",
    "RarDpoParams",
    "RarParams",
    "RarRlParams",
    "RarSftParams",
    "Reason",
    "ReasonDpoParams",
    "ReasonParams",
    "ReasonRlParams",
    "ReasonSftParams",
    "RLFH_ARMS",
    "RLFH_RL_ARMS",
    "RequestParams",
    "RewardModelParams",
    "RlParams",
    "Rlfh",
    "RlfhDpoParams",
    "RlfhParams",
    "RlfhRlParams",
    "RunParams",
    "SftParams",
    "Start",
    "TRUTHRL_ARMS",
    "TokenLevelParams",
    "TrainParams",
    "TruthRL",
    "VERI_ARMS",
    "VERI_ONLINE_ARMS",
    "Verifiers",
    "Veri",
    "VeriLargerParams",
    "VeriParams",
    "VeriRlParams",
    "VeriSftParams",
    "check",
    "defaults",
    "load",
    "read_yaml",
    "validate",
    "yaml_path",
]

ROOT = Path(__file__).resolve().parents[2]


class ParamError(ValueError):
    """A parameter is wrong; the message names where, key, value and fix."""


PAPERS: dict[str, type[RunParams]] = {
    "start": Start,
    "corpus": Corpus,
    "verifiers": Verifiers,
    "truthrl": TruthRL,
    "rar": RAR,
    "reason": Reason,
    "rlfh": Rlfh,
    "veri": Veri,
}


def check(paper: str, values: Mapping[str, Any]) -> Any:
    """The parameters of a notebook, checked; call it as `check(paper, globals())`.

    What papermill injected counts, and what the parameters cell changes; all else is
    the profile's own, from its YAML file. (The cell shows profile tiny's values.) A key
    that papermill injected and that the paper does not know is refused.
    Returns the paper's parameter class; raises ParamError.
    """
    injected = {
        name: values[name]
        for cell in values.get("In", [])
        if cell.startswith("# Parameters\n")
        for name in _assigned(cell)
    }
    fields = PAPERS[paper].model_fields
    shown = {k: f.default for k, f in fields.items() if not f.is_required()}
    shown |= read_yaml(yaml_path(paper, "tiny"))
    changed = {
        key: values[key]
        for key in fields
        if key in values and values[key] != shown.get(key)
    }
    profile, variant = values.get("profile", "tiny"), values.get("variant", "")
    own = defaults(paper, profile, variant)
    taken = [
        f"{key}={value}"
        for key, value in own.items()
        if key in values and key not in injected | changed and value != values[key]
    ]
    if taken:
        print(f"profile {profile} {variant} sets {', '.join(taken)}")
    return validate(paper, own | changed | injected, "the notebook's parameters")


def validate(paper: str, values: Mapping[str, Any], source: str) -> Any:
    """The paper's parameter class made of `values`; its ParamError names `source`."""
    try:
        return PAPERS[paper].model_validate(dict(values))
    except ValidationError as error:
        lines = [_explain(paper, source, e) for e in error.errors()]
        raise ParamError("\n".join(lines)) from None


def load(
    paper: str,
    profile: str,
    overrides: Mapping[str, Any] | None = None,
    variant: str = "",
) -> Any:
    """The checked parameters of a profile's YAML files with overrides."""
    values = defaults(paper, profile, variant) | dict(overrides or {})
    return validate(paper, values, source=str(yaml_path(paper, profile, variant)))


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
        node = yaml.compose(path.read_text(encoding="utf-8"))
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
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


def _assigned(cell: str) -> list[str]:
    """The names that a cell assigns to at its top level."""
    return [
        target.id
        for statement in ast.parse(cell).body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    ]


def _explain(paper: str, source: str, error: Mapping[str, Any]) -> str:
    """One line for one pydantic error: source, key, value, problem, fix."""
    if not error["loc"]:
        return f"{source}: {error['msg'].removeprefix('Value error, ')}"
    key, value = str(error["loc"][0]), error["input"]
    if error["type"] == "extra_forbidden":
        close = difflib.get_close_matches(key, PAPERS[paper].model_fields, n=1)
        fix = f"did you mean {close[0]}?" if close else "remove it"
        return f"{source}: {key}={value!r}: no such parameter of {paper}; {fix}"
    fix = ""
    if error["type"] == "float_type" and isinstance(value, str):
        fix = f"; YAML reads {value} as a string, write it with a point, as in 1.0e-5"
    return f"{source}: {key}={value!r}: {error['msg'].lower()}{fix}"
