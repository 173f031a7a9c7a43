"""Read values from YAML files, command lines and a notebook's cells."""

import ast
import contextlib
import inspect
import re
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from factkit.run.failures import UserError

LONGEST = 100_000  # characters of a parameter file


class ParamError(UserError):
    """A parameter is wrong; the message names where, key, value and fix."""


# ---- files and command lines


def read_yaml(path: Path) -> dict[str, Any]:
    """A file's flat YAML mapping; raises ParamError as `read_mapping` does."""
    try:
        return read_mapping(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise ParamError(f"{path}: not valid YAML: {error}") from None


def read_mapping(text: str, source: str) -> dict[str, Any]:
    """A flat YAML mapping of names to plain values, as `read_value` reads them.

    Raises ParamError on bad syntax, nesting, tags, references, double keys and odd
    names. YAML's events are read one by one, so that deep nesting can't overflow.
    """
    try:
        if len(text) > LONGEST or text.startswith("\ufeff"):
            raise ValueError("too long, or with a byte order mark")
        events, depth = [], 0
        for event in yaml.parse(text, yaml.CSafeLoader):
            events.append(event)
            depth += isinstance(event, yaml.CollectionStartEvent)
            if depth > 2:
                break
    except (yaml.YAMLError, ValueError) as error:
        problem = " ".join(str(error).split())
        raise ParamError(f"{source}: not valid YAML: {problem}") from None
    nodes = [event for event in events if isinstance(event, yaml.NodeEvent)]
    documents = [e for e in events if isinstance(e, yaml.DocumentStartEvent)]
    if len(documents) != 1 or not isinstance(nodes[0], yaml.MappingStartEvent):
        raise ParamError(f"{source}: must hold lines of `key: value`")
    values: dict[str, Any] = {}
    for key, value in zip(nodes[1::2], nodes[2::2], strict=False):
        where = f"{source}, line {key.start_mark.line + 1}"
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
    """A number, true, false or a text, where YAML and papermill's `-p` agree.

    Raises ValueError where they differ: 010 is 8 in a file and 10 by `-p`; in a file,
    1e-5 is a text and `no` is false.
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
    raise ValueError(
        f"{text!r} is ambiguous in YAML; write a number as 10 or 1.0e-5, a flag as "
        "true or false, a text in quotes"
    )


def refuse_unclear_arguments() -> None:
    """Raises ParamError if an argument of papermill, the process that started this
    kernel, is read differently by -p and -f."""
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
    for text in given.params["parameters_yaml"]:
        read_mapping(text, "papermill -y")
    for file in given.params["parameters_file"]:
        if (folder / file).is_file():
            read_yaml(folder / file)


# ---- a notebook's cells


def read_cells(
    values: Mapping[str, Any], fields: Iterable[str]
) -> tuple[dict[str, Any], set[str], set[str]]:
    """Where a notebook's parameters come from: the values that papermill injected, in
    order; the names in the parameters cell; the fields set in that cell or after it.

    values: the notebook's globals; `In` holds the cells that were run. The parameters
    cell is the last one that sets `profile`, except papermill's own. Without `In`, all
    fields among the globals are set.

    Raises ParamError if the parameters cell has anything but `name = value` lines.
    """
    fields = {*fields} & values.keys()
    sources = values.get("In", ())
    names = [_assigned_names(source) for source in sources]
    by_papermill = [source.startswith("# Parameters\n") for source in sources]
    starts = [
        i
        for i, assigned in enumerate(names)
        if "profile" in assigned and not by_papermill[i]
    ]
    start = starts[-1] if starts else 0
    cell = _read_parameters(sources[start]) if starts else set()
    cells = zip(names[start:], by_papermill[start:], strict=True)
    injected = dict.fromkeys(chain.from_iterable(own for own, by in cells if by))
    if "profile" in fields - cell - injected.keys() and sources:
        raise ParamError("the parameters cell must set profile, in a line of its own")
    if deleted := (cell | injected.keys()) - values.keys():
        raise ParamError(f"{', '.join(deleted)}: deleted after the parameters cell")
    # at a second Run All, names that earlier cells assigned are no parameters; a name
    # that no cell assigns was set by exec, globals() or a star import
    earlier = set().union(*names[:start]) - set().union(*names[start:])
    objects = {k for k in fields if callable(v := values[k]) or inspect.ismodule(v)}
    changed = fields - earlier - (objects - cell)
    return {name: values[name] for name in injected}, cell, changed


def _assigned_names(source: str) -> dict[str, None]:
    """The names that a cell assigns, in the order of its lines."""
    try:
        nodes = ast.walk(ast.parse(source))
    except (SyntaxError, ValueError):  # it did not run
        return {}
    names = (node for node in nodes if isinstance(node, ast.Name))
    return {name.id: None for name in names if isinstance(name.ctx, ast.Store)}


def _read_parameters(source: str) -> set[str]:
    """The names in a parameters cell. Raises ParamError if it has other lines than
    `name = value`."""
    names = set()
    for statement in ast.parse(source).body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if name not in names and _is_plain(value):
                names.add(name)
            case _:
                line = source.splitlines()[statement.lineno - 1].strip()
                raise ParamError(
                    f"the parameters cell, line {statement.lineno}: {line[:80]}: write "
                    "one parameter a line, name = value, each once, the value a "
                    "number, a text in quotes, True or False"
                )
    return names


def _is_plain(value: ast.expr) -> bool:
    with contextlib.suppress(ValueError, TypeError):
        return isinstance(ast.literal_eval(value), str | int | float | bool)
    return False
