"""Parameters: what each paper's runs may set, and the check before anything loads.

A paper's class, in its room's params.py and arms.py, lists every key with its type and
range; `stages` and `long_form` have what papers share. `params/<profile>/<paper>.yaml`
gives their values; a notebook's parameters cell shows those it uses. A variant,
`<paper>-<variant>.yaml`, holds only what differs: another setting or model.
"""

import difflib
import pkgutil
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from factkit import prompts
from factkit.params import notebook
from factkit.params.files import ROOT as ROOT
from factkit.params.files import ParamError, defaults, read_yaml, yaml_path
from factkit.params.stages import RunParams

POLICIES = ("tiny-world", "smollm2-135m-instruct", "smollm2-135m-leads")

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
}


def class_of(paper: str) -> type[RunParams]:
    """The class with all parameters of a paper's notebooks."""
    return pkgutil.resolve_name(CLASSES[paper])


def check(paper: str, values: Mapping[str, Any], **meant: Any) -> Any:
    """The parameters of a notebook, checked; call it as `check(paper, globals())`.

    The parameters cell shows profile tiny's values. At another profile its own come
    from its YAML file, by papermill's `-f`; a line of the cell that was left at tiny's
    value is refused, for nobody can tell whether it is meant: delete the line for the
    profile's own value, or give it in `meant`, as `check(paper, globals(), beta=0.1)`.
    Returns the paper's parameter class; raises ParamError.
    """
    injected, cell = notebook.given(values)
    profile, variant = values.get("profile", "tiny"), values.get("variant", "")
    own = defaults(paper, profile, variant)
    fields = class_of(paper).model_fields
    if mixed := notebook.mixed_files(paper, injected, profile, variant):
        raise ParamError(mixed)
    shown = {key: values[key] for key in cell if key not in injected}
    for key in shown.keys() - fields.keys():
        raise ParamError(_unknown(paper, "the parameters cell", key, shown[key]))
    default = {k: f.default for k, f in fields.items() if not f.is_required()}
    tiny = default | read_yaml(yaml_path(paper, "tiny"))
    unclear = {k: v for k, v in shown.items() if v == tiny[k] != (default | own)[k]}
    # what the profile's file does not name is not asked there: the fact world's sizes
    if left := (unclear.keys() & own.keys()) - meant.keys() - {"profile"}:
        name = f"{profile} {variant}".strip()
        lines = ", ".join(f"{k}={unclear[k]!r} ({name}: {own[k]!r})" for k in left)
        raise ParamError(
            f"the parameters cell: these lines have profile tiny's values: {lines}. "
            "Delete them, and the profile's own are taken; or give its file, papermill "
            f"-f params/{profile}/{paper}.yaml"
        )
    mine = fields.keys() - injected.keys() - unclear.keys()
    changed = {k: v for k, v in values.items() if k in mine}
    return validate(
        paper, own | changed | injected | meant, "the notebook's parameters"
    )


def validate(paper: str, values: Mapping[str, Any], source: str) -> Any:
    """The paper's parameter class made of `values`; its ParamError names `source`."""
    fields = class_of(paper).model_fields
    unknown = [key for key in values if key not in fields]
    for other in CLASSES:
        theirs = class_of(other).model_fields.keys()
        if len(unknown) > 2 and theirs >= set(unknown):
            raise ParamError(
                f"{source}: these are parameters of {other}, not of {paper}: "
                f"{', '.join(unknown)}; give a file params/*/{paper}.yaml"
            )
    try:
        p = class_of(paper).model_validate(dict(values))
    except ValidationError as error:
        lines = [_explain(paper, source, e) for e in error.errors()]
        raise ParamError("\n".join(lines)) from None
    if missing := _missing(p):
        raise ParamError(f"{source}: {missing}")
    return p


def load(
    paper: str,
    profile: str,
    overrides: Mapping[str, Any] | None = None,
    variant: str = "",
) -> Any:
    """The checked parameters of a profile's YAML files with overrides."""
    if paper not in CLASSES:
        raise ParamError(f"paper={paper!r}: there are {', '.join(CLASSES)}")
    own, given = defaults(paper, profile, variant), dict(overrides or {})
    source = str(yaml_path(paper, profile, variant))
    if given:  # the file alone may be at fault
        validate(paper, own, source)
        source = "--set"
    return validate(paper, own | given, source)


def _explain(paper: str, source: str, error: Mapping[str, Any]) -> str:
    """One line for one pydantic error: source, key, value, problem, fix."""
    if not error["loc"]:
        return f"{source}: {error['msg'].removeprefix('Value error, ')}"
    key, value = str(error["loc"][0]), error["input"]
    if error["type"] == "extra_forbidden":
        return _unknown(paper, source, key, value)
    fix = ""
    if error["type"] == "float_type" and isinstance(value, str):
        fix = f"; YAML reads {value} as a string, write it with a point, as in 1.0e-5"
    return f"{source}: {key}={value!r}: {error['msg'].lower()}{fix}"


def _unknown(paper: str, source: str, key: str, value: Any) -> str:
    close = difflib.get_close_matches(key, class_of(paper).model_fields, n=1)
    fix = f"did you mean {close[0]}?" if close else "remove it"
    return f"{source}: {key}={value!r}: no such parameter of {paper}; {fix}"


def _missing(p: RunParams) -> str:
    """What a parameter names that does not exist: a template or a policy; or nothing.

    A policy of the form owner/name may be on the hub and is not looked for there.
    """
    for key, value in p:
        if key.endswith("_template"):
            try:
                prompts.template(value)
            except FileNotFoundError as error:
                return f"{key}={value!r}: {error}"
        if key in ("policy", "larger_policy"):
            on_hub = re.fullmatch(r"[\w.-]+/[\w.-]+", value)
            if value not in POLICIES and not on_hub and not Path(value).is_dir():
                known = ", ".join(POLICIES)
                return (
                    f"{key}={value!r}: neither one of {known}, nor a folder, nor "
                    "a name on the hub (owner/name)"
                )
    return ""
