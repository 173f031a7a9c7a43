"""Parameters: what each paper's runs may set, and the check before anything loads.

A paper's class, in its folder's arms.py, lists every key with its type and range;
`stages` has what papers share. `params/<profile>/<paper>.yaml` gives the values; a
notebook's parameters cell shows those it uses. A variant, `<paper>-<variant>.yaml`,
holds only what differs: another setting or model. Each file names itself by `profile`,
`variant` and a key of its own, `file_<profile>_<name>`: papermill merges the files it
is given into one cell, where these keys tell which files there were, and in what order.
"""

import difflib
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from factkit.run.arms import find_papers
from factkit.run.params.fields import ROOT
from factkit.run.params.reading import (
    ParamError,
    read_cells,
    read_yaml,
    refuse_unclear_arguments,
)
from factkit.run.params.stages import PROFILES as PROFILES
from factkit.run.params.stages import Corpus, RunParams, Start, Verifiers

MARK = "file_"  # begins the key that a parameter file alone has
MOST_LINES = 8  # of a refusal
OPTIONS = "the command line"  # source of values that have options of their own

# parameters whose wrong value may hold a key or a password, and what is shown of it
SECRETS = ("judge_key", "judge_headers", "judge_extra", "other_judges")
HIDDEN = "(not shown)"


@functools.cache
def find_classes() -> dict[str, type[RunParams]]:
    """Name → the class of all parameters of its notebooks: of each paper, and of the
    notebooks before them."""
    papers = {name: paper.parameters for name, paper in find_papers().items()}
    return {"start": Start, "corpus": Corpus, "verifiers": Verifiers, **papers}


# ---- the files


def load(
    paper: str,
    profile: str,
    overrides: Mapping[str, Any] | None = None,
    variant: str = "",
) -> Any:
    """The checked parameters of a profile's YAML files with overrides."""
    if paper not in (names := find_classes()):
        raise ParamError(f"paper={paper!r}: there are {', '.join(names)}")
    own = defaults(paper, profile, variant)
    p = validate(paper, own, str(yaml_path(paper, profile, variant)))
    return validate(paper, own | dict(overrides), "--set") if overrides else p


def defaults(paper: str, profile: str, variant: str = "") -> dict[str, Any]:
    """The values of `<paper>.yaml` under those of `<paper>-<variant>.yaml`, if any.

    Raises ParamError if a file does not name itself.
    """
    values: dict[str, Any] = {}
    for path in files_of(paper, profile, variant):
        mark = MARK + re.sub(r"\W", "_", f"{profile}_{path.stem}")
        identity = {"profile": profile, "variant": path.stem[len(paper) + 1 :]}
        own = read_yaml(path)
        for key, value in (identity | {mark: _relative(path)}).items():
            if own.get(key) != value:
                raise ParamError(f"{path}: needs the line {key}: '{value}'")
        values |= {key: value for key, value in own.items() if key != mark}
    return values


def files_of(paper: str, profile: str, variant: str = "") -> list[Path]:
    """The main file of a profile, then that of the variant, if there is one."""
    return [yaml_path(paper, profile, name) for name in dict.fromkeys(("", variant))]


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def yaml_path(paper: str, profile: str, variant: str = "") -> Path:
    """The parameter file of a paper, profile and variant.

    Raises ParamError if there is none, naming those there are.
    """
    name = f"{paper}-{variant}" if variant else paper
    path = ROOT / "params" / profile / f"{name}.yaml"
    if not path.is_file():
        variants = sorted(path.parent.glob(f"{paper}-*.yaml")) if variant else []
        files = variants or sorted(ROOT.glob(f"params/*/{paper}.yaml"))
        known = ", ".join(map(_relative, files))
        raise ParamError(f"{path}: no such file; there are: {known}")
    return path


def variants(paper: str, profile: str) -> list[str]:
    """The variants of a paper at a profile, for which there are files."""
    files = (ROOT / "params" / profile).glob(f"{paper}-*.yaml")
    return sorted(path.stem.removeprefix(f"{paper}-") for path in files)


def other_worlds(paper: str, profile: str, variant: str = "") -> list[str]:
    """The variants with the values of `variant` in other fact worlds, or with other
    splits."""
    return [name for name in variants(paper, profile) if is_world_of(name, variant)]


def is_world_of(name: str, variant: str = "") -> bool:
    """Whether a variant is `world1`, `split1` … of another one, such as
    `retrieval-split1` of `retrieval`, or of the main one."""
    prefix = variant and re.escape(f"{variant}-")
    return bool(re.fullmatch(rf"{prefix}(world|split)\d+", name))


def papermill_files(paper: str, profile: str, variant: str = "") -> str:
    """The arguments by which papermill takes a profile's values."""
    return " ".join(f"-f {_relative(f)}" for f in files_of(paper, profile, variant))


# ---- a notebook


def check(paper: str, values: Mapping[str, Any], **meant: Any) -> Any:
    """The parameters of a notebook, checked; call it as `check(paper, globals())`.

    The parameters cell shows profile tiny's values, one a line. At another profile its
    own come from its YAML file, by papermill's `-f`; a line of the cell that was left
    at tiny's value is refused, for nobody can tell whether it is meant: delete the line
    for the profile's own value, or give it in `meant`, as `check(paper, globals(),
    beta=0.1)`. Returns the paper's parameter class; raises ParamError.
    """
    fields = find_classes()[paper].model_fields
    injected, cell, changed = read_cells(values, fields.keys())
    profile, variant = values.get("profile", "tiny"), values.get("variant", "")
    own = defaults(paper, profile, variant)
    _refuse_other_files(paper, injected, profile, variant)
    if injected:
        refuse_unclear_arguments()
    shown = {key: values[key] for key in cell - injected.keys()}
    for key in shown.keys() - fields.keys():
        raise ParamError(_unknown(paper, "the parameters cell", key, shown[key]))
    default = {k: f.default for k, f in fields.items() if not f.is_required()}
    tiny = default | defaults(paper, "tiny")
    unclear = {k: v for k, v in shown.items() if v == tiny[k] != (default | own)[k]}
    # what the profile's file does not name is not asked there: the fact world's sizes
    if left := (unclear.keys() & own.keys()) - meant.keys() - {"profile"}:
        lines = ", ".join(f"{k}={unclear[k]!r} ({profile}: {own[k]!r})" for k in left)
        raise ParamError(
            f"the parameters cell: these lines have profile tiny's values: {lines}. "
            "Delete them, and the profile's own are taken; or give its file, papermill "
            f"-f params/{profile}/{paper}.yaml"
        )
    mine = {k: values[k] for k in changed - injected.keys() - unclear.keys()}
    given = own | mine | injected | meant
    return validate(paper, given, "the notebook's parameters")


def _refuse_other_files(
    paper: str, injected: Mapping[str, Any], profile: str, variant: str
) -> None:
    """Raises ParamError unless papermill was given the files of this paper, profile and
    variant alone, the variant's last."""
    given = [value for key, value in injected.items() if key.startswith(MARK)]
    own = [_relative(path) for path in files_of(paper, profile, variant)]
    others = [file for file in given if file not in own]
    if not others and given[-1:] in ([], own[-1:]):
        return
    file = Path(*others[:1] or given[-1:])
    files = papermill_files(paper, profile, variant)
    other = file.stem.partition("-")[0]
    if other != paper:
        raise ParamError(
            f"{file}: these are parameters of {other}, not of {paper}: give {files}"
        )
    raise ParamError(
        f"profile={profile!r}, variant={variant!r}, but the values are those of "
        f"{file.as_posix()}: give {files}, in this order"
    )


# ---- what is wrong


def validate(paper: str, values: Mapping[str, Any], source: str) -> Any:
    """The paper's parameter class made of `values`; its ParamError names `source`."""
    values = {k: v for k, v in values.items() if not k.startswith(MARK)}
    classes = find_classes()
    unknown = values.keys() - classes[paper].model_fields.keys()
    for other, parameters in classes.items():
        if len(unknown) > 2 and unknown <= parameters.model_fields.keys():
            raise ParamError(
                f"{source}: these are parameters of {other}, not of {paper}: "
                f"{', '.join(unknown)}; give a file params/*/{paper}.yaml"
            )
    try:
        return classes[paper].model_validate(values)
    except ValidationError as error:
        lines = [_explain(paper, source, e) for e in error.errors()]
        if more := lines[MOST_LINES:]:
            lines[MOST_LINES:] = [f"and {len(more)} more"]
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
    if error["type"] == "string_type":
        message += "; put it in quotes, or give papermill -r in place of -p"
    place = "--" if source == OPTIONS else f"{source}: "
    shown = HIDDEN if key in SECRETS or key.endswith("_url") else _short(value)
    return f"{place}{key}={shown}: {message}"


def _short(value: Any) -> str:
    """A value in a line of a message, whatever its length."""
    text = repr(value)
    return text if len(text) < 200 else f"{text[:100]} … {text[-60:]}"


def _unknown(paper: str, source: str, key: str, value: Any) -> str:
    close = difflib.get_close_matches(key, find_classes()[paper].model_fields, n=1)
    fix = f"did you mean {close[0]}?" if close else "remove it"
    shown = HIDDEN if isinstance(value, str) else _short(value)
    return f"{source}: {key}={shown}: no such parameter of {paper}; {fix}"
