"""How values are read: YAML files, texts of a command line, a notebook's cells."""

import ast
import contextlib
import inspect
import re
import symtable
from collections.abc import Iterable, Mapping
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

    Nothing is composed, so that nesting is refused however deep it is. Raises
    ParamError on bad syntax, nesting, tags, references, double keys and odd names.
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
    raise ValueError(
        f"{text!r} is ambiguous in YAML; write a number as 10 or 1.0e-5, a flag as "
        "true or false, a text in quotes"
    )


def refuse_unclear_arguments() -> None:
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
    for text in given.params["parameters_yaml"]:
        read_mapping(text, "papermill -y")
    for file in given.params["parameters_file"]:
        if (folder / file).is_file():
            read_yaml(folder / file)


# ---- a notebook's cells


def read_cells(
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
    return {key: values[key] for key in injected}, cell, changed - (objects - cell)


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
