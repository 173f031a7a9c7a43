"""Parameters: what each paper's runs may set, and the check before anything loads.

A paper's class, in its room's arms.py, lists every key with its type and range;
`stages` has what papers share. `params/<profile>/<paper>.yaml` gives the values; a
notebook's parameters cell shows those it uses. A variant, `<paper>-<variant>.yaml`,
holds only what differs: another setting or model. Each file names itself by `profile`,
`variant` and a key of its own, `file_<profile>_<name>`: papermill merges the files it
is given into one cell, where these keys tell which files there were, and in what order.
"""

import ast
import contextlib
import difflib
import inspect
import math
import pkgutil
import re
import reprlib
import symtable
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from factkit import UserError
from factkit.params.stages import PROFILES as PROFILES
from factkit.params.stages import ROOT, RunParams

MARK = "file_"  # begins the key that a parameter file alone has
LONGEST = 100_000  # characters of a parameter file
MOST_LINES = 8  # of a refusal
OPTIONS = "the command line"  # source of values that have options of their own

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
    """The values of `<paper>.yaml` under those of `<paper>-<variant>.yaml`, if any.

    Raises ParamError if a file does not name itself.
    """
    values = {}
    for name in dict.fromkeys(("", variant)):
        path = yaml_path(paper, profile, name)
        own, identity = read_yaml(path), {"profile": profile, "variant": name}
        identity[_mark(path)] = _relative(path)
        for key, value in identity.items():
            if own.pop(key, None) != value:
                raise ParamError(f"{path}: needs the line {key}: '{value}'")
        values |= own | {"profile": profile, "variant": name}
    return values


def _mark(path: Path) -> str:
    """The key that a parameter file alone has."""
    return MARK + re.sub(r"\W", "_", f"{path.parent.name}_{path.stem}")


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def yaml_path(paper: str, profile: str, variant: str = "") -> Path:
    """The parameter file of a paper, profile and variant.

    Raises ParamError if there is none, naming those there are.
    """
    name = f"{paper}-{variant}" if variant else paper
    path = ROOT / "params" / profile / f"{name}.yaml"
    if not path.is_file():
        files = sorted(ROOT.glob(f"params/*/{paper}*.yaml"))
        known = ", ".join(map(_relative, files))
        raise ParamError(f"{path}: no such file; there are: {known}")
    return path


def papermill_files(paper: str, profile: str, variant: str = "") -> str:
    """The arguments by which papermill takes a profile's values."""
    names = [paper, f"{paper}-{variant}"] if variant else [paper]
    return " ".join(f"-f params/{profile}/{name}.yaml" for name in names)


def read_yaml(path: Path) -> dict[str, Any]:
    """A flat YAML mapping of names to plain values, as `read_value` reads them.

    Nothing is composed, so that a nested file is refused however deep it is. Raises
    ParamError on bad syntax, nesting, tags, references, double keys and odd names.
    """
    try:
        text = path.read_text(encoding="utf-8")
        if len(text) > LONGEST or text.startswith("\ufeff"):
            raise ValueError("too long, or with a byte order mark")
        events, depth = [], 0
        for event in yaml.parse(text, yaml.CSafeLoader):
            events.append(event)
            depth += isinstance(event, yaml.CollectionStartEvent)
            if depth > 2:
                break
    except (yaml.YAMLError, ValueError) as error:
        raise ParamError(f"{path}: not valid YAML: {_one_line(error)}") from None
    nodes = [event for event in events if isinstance(event, yaml.NodeEvent)]
    documents = [e for e in events if isinstance(e, yaml.DocumentStartEvent)]
    if len(documents) != 1 or not isinstance(nodes[0], yaml.MappingStartEvent):
        raise ParamError(f"{path}: must hold lines of `key: value`")
    values: dict[str, Any] = {}
    for key, value in zip(nodes[1::2], nodes[2::2], strict=False):
        where = f"{path}, line {key.start_mark.line + 1}"
        name = getattr(key, "value", "")
        for node in (key, value):
            if not isinstance(node, yaml.ScalarEvent) or node.anchor or node.tag:
                raise ParamError(
                    f"{where}: {name} must be a scalar, without tag or reference: "
                    "papermill merges files shallowly"
                )
        if not name.isidentifier():
            raise ParamError(f"{where}: {name!r} is no parameter's name")
        if name in values:
            raise ParamError(f"{where}: {name} is set twice; keep one")
        try:
            values[name] = read_value(value.value) if value.implicit[0] else value.value
        except ValueError as error:
            raise ParamError(f"{where}: {name}: {error}") from None
    return values


def read_value(text: str) -> Any:
    """A number, true, false or a text, as YAML and papermill's `-p` read it alike.

    Raises ValueError where they differ: 010 is 8 in a file and 10 by `-p`, 1e-5 is a
    text in a file, `no` is false.
    """
    tag = yaml.SafeLoader("").resolve(yaml.ScalarNode, text, (True, False))
    kind = tag.rpartition(":")[2]
    if text in ("true", "false", "True", "False"):
        return text in ("true", "True")
    if text.lstrip("-+").casefold() in (".inf", ".nan"):
        return float(text.replace(".", ""))
    number = None
    for reader in (float, int):
        with contextlib.suppress(ValueError):
            number = reader(text)
    plain = re.fullmatch(r"[-+]?(0|[1-9]\d*|\d*\.\d*(e[-+]\d+)?)", text, re.A | re.I)
    if kind in ("int", "float") and plain and number is not None:
        return number
    if kind in ("str", "timestamp") and number is None and text != "None":
        return text
    fix = "true or false" if kind == "bool" else "a text in quotes"
    if number is not None and math.isfinite(number):
        fix = f"{_with_point(number)}, or {fix}"
    raise ValueError(f"{text!r} is read in several ways; write {fix}")


def _with_point(number: float) -> str:
    """A number as YAML takes it: 1.0e-5 for 1e-05."""
    mantissa, exponential, exponent = repr(number).partition("e")
    return f"{float(mantissa)}e{int(exponent):+}" if exponential else mantissa


# ---- a notebook


def check(paper: str, values: Mapping[str, Any], **meant: Any) -> Any:
    """The parameters of a notebook, checked; call it as `check(paper, globals())`.

    The parameters cell shows profile tiny's values, one a line. At another profile its
    own come from its YAML file, by papermill's `-f`; a line of the cell that was left
    at tiny's value is refused, for nobody can tell whether it is meant: delete the line
    for the profile's own value, or give it in `meant`, as `check(paper, globals(),
    beta=0.1)`. Returns the paper's parameter class; raises ParamError.
    """
    fields = class_of(paper).model_fields
    injected, cell, changed = _read_cells(values, fields.keys())
    profile, variant = values.get("profile", "tiny"), values.get("variant", "")
    own = defaults(paper, profile, variant)
    _refuse_other_files(paper, injected, profile, variant)
    if injected:
        _refuse_unclear_arguments()
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


def _read_cells(
    values: Mapping[str, Any], fields: Iterable[str]
) -> tuple[dict[str, Any], set[str], set[str]]:
    """What papermill injected, in its order; the names in the parameters cell; and the
    fields that the cell or anything after it set.

    values: the notebook's globals; `In` holds the cells that were run. The parameters
    cell is the last one run that sets `profile`, papermill's own left out: at a second
    Run All, what a later cell named like a parameter is none. Without `In`, all are.

    Raises ParamError on a parameters cell with anything but `name = value` lines.
    """
    fields = {*fields} & values.keys()
    if "In" not in values:
        return {}, set(), fields
    text, injected = "", {}
    cell, before, after = set(), set(), set()
    for source in values["In"]:
        names = _bound_names(source)
        if source.startswith("# Parameters\n"):
            injected |= dict.fromkeys(names)
        elif "profile" in names:
            before |= cell | after | injected.keys()
            text, injected, cell, after = source, {}, {*names}, set()
        else:
            after |= names.keys()
    _refuse_statements(text)
    if "profile" in fields - cell - injected.keys():
        raise ParamError("the parameters cell must set profile, in a line of its own")
    if gone := (cell | injected.keys()) - values.keys():
        raise ParamError(f"{', '.join(gone)}: deleted after the parameters cell")
    # what no cell's syntax shows was set, too: by a star import, exec, globals()
    changed = fields & (after | cell) | fields - before
    objects = {k for k in changed if callable(v := values[k]) or inspect.ismodule(v)}
    return {key: values[key] for key in injected}, cell, changed - objects


def _bound_names(source: str) -> dict[str, None]:
    """The names that a cell binds, in any way that Python's syntax shows, in order."""
    try:
        tables = [symtable.symtable(source, "<cell>", "exec")]
    except (SyntaxError, ValueError):  # it did not run
        return {}
    names = {}
    for table in tables:  # which grows: a function may bind a global name
        tables += table.get_children()
        names |= {
            symbol.get_name(): None
            for symbol in table.get_symbols()
            if (symbol.is_assigned() or symbol.is_imported())
            and (table is tables[0] or symbol.is_global())
        }
    return names


def _refuse_statements(source: str) -> None:
    """Raises ParamError on a parameters cell with more than `name = value` lines."""
    names = set()
    for statement in ast.parse(source).body:
        name, value = "", None
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ):
                pass
        with contextlib.suppress(ValueError, TypeError):
            plain = isinstance(ast.literal_eval(value), str | int | float | bool)
            if plain and name not in names:
                names.add(name)
                continue
        line = source.splitlines()[statement.lineno - 1].strip()
        raise ParamError(
            f"the parameters cell, line {statement.lineno}: {line[:80]}: write one "
            "parameter a line, name = value, each once, the value a number, a text in "
            "quotes, True or False"
        )


def _refuse_other_files(
    paper: str, injected: Mapping[str, Any], profile: str, variant: str
) -> None:
    """Raises ParamError unless papermill was given the files of this paper, profile and
    variant alone, the variant's last."""
    given = [value for key, value in injected.items() if key.startswith(MARK)]
    names = dict.fromkeys(("", variant))
    own = [_relative(yaml_path(paper, profile, name)) for name in names]
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


def _refuse_unclear_arguments() -> None:
    """Raises ParamError if papermill's -p and -f read one of its arguments in several
    ways. They are those of the process that started this kernel."""
    import psutil

    try:
        parent = psutil.Process().parent()
        words, folder = parent.cmdline(), Path(parent.cwd())
    except (psutil.Error, AttributeError):  # of another user, or ended
        return
    program = [i for i, word in enumerate(words[:3]) if Path(word).stem == "papermill"]
    if not program:
        return
    from papermill.cli import papermill

    arguments = words[program[0] + 1 :]
    given = papermill.make_context("papermill", arguments, resilient_parsing=True)
    for key, text in given.params["parameters"]:
        try:
            read_value(text)
        except ValueError as error:
            raise ParamError(f"papermill -p {key}: {error}") from None
    for file in given.params["parameters_file"]:
        if (folder / file).is_file():
            read_yaml(folder / file)


# ---- what is wrong


def validate(paper: str, values: Mapping[str, Any], source: str) -> Any:
    """The paper's parameter class made of `values`; its ParamError names `source`."""
    values = {k: v for k, v in values.items() if not k.startswith(MARK)}
    unknown = values.keys() - class_of(paper).model_fields.keys()
    for other in CLASSES:
        if len(unknown) > 2 and unknown <= class_of(other).model_fields.keys():
            raise ParamError(
                f"{source}: these are parameters of {other}, not of {paper}: "
                f"{', '.join(unknown)}; give a file params/*/{paper}.yaml"
            )
    try:
        return class_of(paper).model_validate(values)
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
    return f"{place}{key}={_short(value)}: {message}"


def _short(value: Any) -> str:
    """A value in a line of a message, whatever its length."""
    text = repr(value) if isinstance(value, str | int | float) else reprlib.repr(value)
    return text if len(text) < 200 else f"{text[:100]} … {text[-60:]}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _unknown(paper: str, source: str, key: str, value: Any) -> str:
    close = difflib.get_close_matches(key, class_of(paper).model_fields, n=1)
    fix = f"did you mean {close[0]}?" if close else "remove it"
    return f"{source}: {key}={_short(value)}: no such parameter of {paper}; {fix}"
