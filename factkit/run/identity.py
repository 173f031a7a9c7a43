"""A digest of a function and of all that it uses, to tell whether it has changed.

The user's own functions (code, defaults, closures, globals), classes and objects count
by value, and modules of the user's own also by their file. Whatever is installed, and
the kit, counts by name. Line numbers, file names, comments and the order of sets do not
count, so that the digest is the same in every process.

The digest depends on Python's version, which compiles the code. An attribute of a
module that is looked up by a string is not seen.
"""

import contextlib
import copyreg
import dis
import functools
import hashlib
import importlib
import inspect
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CellType, CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any

from factkit.run.failures import UserError

INSTALLED = {
    sysconfig.get_path("stdlib"),
    sysconfig.get_path("purelib"),
    sysconfig.get_path("platlib"),
    str(Path(__file__).parents[1]),
}.union(site.getsitepackages(), [site.getusersitepackages()])
# functions and attributes whose result can't be known before they are called
LOOKUPS = {"eval", "exec", "globals", "open", "__import__", "input"}
LOOKUP_ATTRIBUTES = set(
    """environ getenv import_module read_text read_bytes read_csv read_json
    read_parquet open load modules""".split()
)
# what Python itself stores in a class
CLASS_INTERNALS = set(
    """__dict__ __weakref__ __doc__ _abc_impl __firstlineno__ __static_attributes__
    __annotations_cache__ __slotnames__""".split()
)
PLAIN = (type(None), bool, int, float, complex, str, type(...))
# objects that can't be pickled → what stands for them
PARTS: dict[type, Callable[[Any], Any]] = {
    property: lambda value: (value.fget, value.fset, value.fdel),
    classmethod: lambda value: value.__func__,
    staticmethod: lambda value: value.__func__,
    functools.cached_property: lambda value: value.func,
    functools._lru_cache_wrapper: lambda value: (
        value.__wrapped__,
        value.cache_parameters(),
    ),
    MappingProxyType: dict,
    CellType: lambda value: value.cell_contents,
    CodeType: lambda code: (
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount),
        (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars),
        (code.co_code, code.co_consts, code.co_flags, code.co_exceptiontable),
    ),
}


class UnidentifiableError(UserError):
    """Nothing tells whether a function will be the same the next time."""


def source_digest(function: Callable) -> str:
    """Twelve hexadecimal digits of a function, or any callable, and all that it uses.

    Raises UnidentifiableError, naming the part, if it uses something that changes by
    itself or can't be written down.
    """
    return describe_source(function)[0]


def describe_source(function: Callable) -> tuple[str, str]:
    """The digest of a function, and the source of its parts that are the user's own,
    with the values that they use, to look at. Raises as `source_digest`."""
    writers = [_Writer(), _Writer()]
    try:
        for writer in writers:
            writer.add(function)
        if writers[0].hash.digest() != writers[1].hash.digest():
            raise ValueError("it is not the same when looked at twice")
    except Exception as error:
        raise UnidentifiableError(
            f"{callable_name(function)} can't be identified ({writer.part}: {error}), "
            "so a change of it would go unnoticed: use functions, numbers, texts and "
            "tables alone, and read files and settings into a variable first"
        ) from error
    return writer.hash.hexdigest()[:12], "\n".join(writer.source) + "\n"


def callable_name(function: Callable) -> str:
    """The name of a function, a partial function's, or a callable object's class."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def is_installed(module: str | None) -> bool:
    """Whether a module is the kit's, Python's or a package's, not the user's own."""
    loaded = sys.modules.get(module or "")
    if loaded is None or module == "__main__":
        return False
    path = getattr(loaded, "__file__", None)
    if path is None:
        return getattr(loaded, "__spec__", None) is not None
    return any(Path(path).is_relative_to(folder) for folder in INSTALLED)


def _is_own(value: FunctionType | type) -> bool:
    """Whether a function or class counts by value: it is the user's own, or can't be
    imported by its name."""
    found: Any = sys.modules.get(value.__module__ or "")
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    builtin = value.__module__ == "builtins"  # some are found under no name
    return not builtin and (found is not value or not is_installed(value.__module__))


def _module_digest(name: str | None) -> str:
    """The digest of the file of a module of the user's own; "" of any other."""
    path = getattr(sys.modules.get(name or ""), "__file__", None)
    if name == "__main__" or path is None or is_installed(name):
        return ""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _all_codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of all that is defined inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _all_codes(constant)


def _used_globals(function: FunctionType) -> dict[str, Any]:
    """Name → value of the globals and modules that a function uses, and of the
    attributes of these modules that are named in its code."""
    space, codes = function.__globals__, list(_all_codes(function.__code__))
    used = {}
    for code in codes:
        arguments: list[Any] = [None, None]
        for step in dis.get_instructions(code):
            if step.opname == "IMPORT_NAME":  # its level was loaded two steps before
                name = "." * (arguments[-2] or 0) + step.argval
                with contextlib.suppress(ImportError):
                    used[name] = importlib.import_module(name, space.get("__package__"))
            elif "GLOBAL" in step.opname or "NAME" in step.opname:
                if step.argval in LOOKUPS:
                    raise ValueError(f"{step.argval}() in its code")
                if step.argval in space:
                    used[step.argval] = space[step.argval]
            arguments.append(step.argval)
    names = {name for code in codes for name in code.co_names}
    if looked_up := names & LOOKUP_ATTRIBUTES:
        raise ValueError(f"{min(looked_up)} in its code")
    for name, value in list(used.items()):
        if isinstance(value, ModuleType):
            used |= _used_attributes(name, value, names, set())
    return used


def _used_attributes(
    path: str, module: ModuleType, names: set[str], seen: set[str]
) -> dict[str, Any]:
    """The attributes of a module that are in `names`; of an installed module only those
    that the user may have set."""
    used: dict[str, Any] = {}
    seen.add(module.__name__)
    for name in names & vars(module).keys():
        value = vars(module)[name]
        if isinstance(value, ModuleType):
            if value.__name__ not in seen:
                used |= _used_attributes(f"{path}.{name}", value, names, seen)
                used[f"{path}.{name}"] = value
        elif (
            not is_installed(module.__name__)
            or isinstance(value, str | int | float)
            or (isinstance(value, FunctionType | type) and _is_own(value))
        ):
            used[f"{path}.{name}"] = value
    return used


class _Writer:
    """Writes a value, and all that it refers to, into a SHA-256.

    part: what is being written, for messages. source: of the user's own functions and
    classes, and the values that they use.
    """

    def __init__(self) -> None:
        self.hash, self.part = hashlib.sha256(), "it"
        self.source: list[str] = []
        self._seen: dict[int, tuple[int, Any]] = {}  # id → number, object

    def add(self, value: Any) -> None:
        if type(value) in PLAIN:
            self._write(type(value).__name__, repr(value))
        elif type(value) is bytes:
            self._write("bytes", str(len(value)))
            self.hash.update(value)
        elif type(value) is tuple:  # equal ones are alike, one object or two
            self._add_all("tuple", value)
        elif isinstance(value, set | frozenset):
            digests = []
            for element in value:
                writer = _Writer()
                writer.add(element)
                digests.append(writer.hash.hexdigest())
            self._write("set", *sorted(digests))
        elif id(value) in self._seen:
            self._write("seen", str(self._seen[id(value)][0]))
        else:
            self._seen[id(value)] = len(self._seen), value
            self._add_new(value)

    def _write(self, *texts: str) -> None:
        for text in texts:
            self.hash.update(f"{len(text)} {text}".encode("utf-8", "surrogatepass"))

    def _add_all(self, kind: str, values: Any) -> None:
        values = list(values)
        self._write(kind, str(len(values)))
        for value in values:
            self.add(value)

    def _add_new(self, value: Any) -> None:
        torch = sys.modules.get("torch")
        if type(value) is list:
            self._add_all("list", value)
        elif type(value) is dict:
            self._add_all("dict", value.items())
        elif isinstance(value, ModuleType):
            self._write("module", value.__name__, _module_digest(value.__name__))
        elif isinstance(value, FunctionType | type):
            if _is_own(value):
                self._add_own(value)
            else:
                self._write("installed", f"{value.__module__}.{value.__qualname__}")
        elif type(value) in PARTS:
            self._write(type(value).__name__)
            self.add(PARTS[type(value)](value))
        elif torch and isinstance(value, torch.Tensor):
            flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            self.add((str(value.dtype), tuple(value.shape), flat.numpy().tobytes()))
        else:
            self._add_object(value)

    def _add_object(self, value: Any) -> None:
        """Add what `pickle` would write of an object, and the whole state of one whose
        class is the user's own."""
        reduce = copyreg.dispatch_table.get(type(value))
        parts = reduce(value) if reduce else value.__reduce_ex__(4)
        if isinstance(parts, str):
            parts = (getattr(value, "__module__", None), parts)
        parts = tuple(list(x) if isinstance(x, Iterator) else x for x in parts)
        self.add(parts)
        if _is_own(type(value)):
            self.add(getattr(value, "__dict__", None))

    def _add_own(self, value: FunctionType | type) -> None:
        with contextlib.suppress(OSError, TypeError):  # typed at a prompt
            self._note(inspect.getsource(value).rstrip())
        parts: dict[str, Any] = {"module": _module_digest(value.__module__)}
        if isinstance(value, FunctionType):
            used = _used_globals(value)
            for name in sorted(used):
                if not isinstance(used[name], ModuleType | FunctionType | type):
                    self._note(f"{name} = {_shorten(used[name])}")
            parts |= {
                "code": value.__code__,
                "defaults": (value.__defaults__, value.__kwdefaults__),
                "annotations": value.__annotations__,
                "attributes": vars(value),
                "closure": value.__closure__,
            } | {f"global {name}": used[name] for name in sorted(used)}
        else:
            parts |= {"bases": value.__bases__, "kind": type(value)}
            body = vars(value).items()
            parts |= {f"attribute {k}": v for k, v in body if k not in CLASS_INTERNALS}
        for name, part in parts.items():
            self.part = f"{name} of {value.__qualname__}"
            self._write(name)
            self.add(part)

    def _note(self, text: str) -> None:
        if text not in self.source:
            self.source.append(text)


def _shorten(value: object) -> str:
    text = " ".join(repr(value).split())
    if " at 0x" in text:
        return type(value).__name__
    return text if len(text) <= 200 else text[:199] + "…"
