"""A digest of a function and of all that it uses, to tell whether it has changed.

The bytes of `pickle`, with what is the user's own by value: functions (code, defaults,
closures, the globals that they use), classes, and objects of these classes. What is
installed, and the kit's own, is by name. Line numbers, file names, comments, and the
order of sets are left out, so that the digest is the same in every process. Of a
module of the user's own the source file counts, too.

Python's version is part of it, as code is compiled. An attribute of a module that is
looked up by a string alone is not seen.
"""

import contextlib
import dis
import functools
import hashlib
import importlib
import inspect
import pickle
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from types import (
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any

from factkit.run.failures import UserError

INSTALLED = {
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
    *(*site.getsitepackages(), site.getusersitepackages()),
    str(Path(__file__).parents[1]),
}
# what a function looks up when it is called, so that nothing says what it will be
LOOKUPS = {"eval", "exec", "globals", "open", "__import__", "input"}
LOOKUP_ATTRIBUTES = {
    *("environ", "getenv", "import_module", "read_text", "read_bytes"),
    *("read_csv", "read_json", "read_parquet", "open", "load", "modules"),
}
# of a class: what Python keeps there for itself
NOT_OF_A_CLASS = {
    *("__dict__", "__weakref__", "__doc__", "_abc_impl", "__firstlineno__"),
    *("__static_attributes__", "__annotations_cache__", "__slotnames__"),
    *("__pydantic_core_schema__", "__pydantic_serializer__", "__pydantic_validator__"),
}


class UnidentifiableError(UserError):
    """Nothing says whether a function will be the same the next time."""


class _Part(ValueError):
    """A part of a function that has no bytes of its own."""


def source_digest(function: Callable) -> str:
    """Twelve hexadecimal digits of what a function, or any callable, is made of.

    Raises UnidentifiableError, naming the part, if it is made of something that changes
    by itself or can't be written down.
    """
    return describe_source(function)[0]


def describe_source(function: Callable) -> tuple[str, str]:
    """The digest of a function, and the source of all of it that is the user's own,
    with the values that it uses, to look at. Raises as `source_digest`."""
    writers = [_Writer(), _Writer()]
    try:
        for writer in writers:
            writer.write_all(function)
        if writers[0].digest.digest() != writers[1].digest.digest():
            raise _Part("it is not the same when looked at twice")
    except Exception as error:
        raise UnidentifiableError(
            f"{callable_name(function)} can't be identified ({writer.part}: {error}), "
            "so a change of it would go unnoticed: use functions, numbers, texts and "
            "tables alone, and read files and settings into a variable first"
        ) from error
    return writer.digest.hexdigest()[:12], "\n".join(writer.source) + "\n"


def callable_name(function: Callable) -> str:
    """A name for a function, a partial one, or an object that can be called."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def is_installed(module: str | None) -> bool:
    """Whether a module is the kit's, Python's or a package's, not the user's own."""
    loaded = sys.modules.get(module or "")
    if loaded is None or module == "__main__":
        return False
    if (path := getattr(loaded, "__file__", None)) is None:
        made_by_cython = loaded.__name__.startswith("_cython_")
        return made_by_cython or getattr(loaded, "__spec__", None) is not None
    return any(Path(path).is_relative_to(folder) for folder in INSTALLED)


def _is_own(value: FunctionType | type) -> bool:
    """Whether a function or class is to be written by value: it is the user's own, or
    nothing finds it by its name."""
    found: Any = sys.modules.get(value.__module__ or "")
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    builtin = value.__module__ == "builtins"  # some are found under no name
    return not builtin and (found is not value or not is_installed(value.__module__))


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of all that is defined inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _used_globals(function: FunctionType) -> dict[str, Any]:
    """Name → value of the globals and modules that a function uses, and of the
    attributes of these modules that bear a name in its code."""
    space, codes = function.__globals__, list(_codes(function.__code__))
    names = {name for code in codes for name in code.co_names}
    used = {}
    for code in codes:
        before: list[Any] = [None, None]
        for step in dis.get_instructions(code):
            if step.opname == "IMPORT_NAME":  # after its level and what it wants of it
                name = "." * (before[-2] or 0) + step.argval
                used[name] = _imported(name, space.get("__package__"))
            elif "GLOBAL" in step.opname or "NAME" in step.opname:
                if step.argval in LOOKUPS:
                    raise _Part(f"{step.argval}() in its code")
                if step.argval in space:
                    used[step.argval] = space[step.argval]
            before.append(step.argval)
    if looked_up := names & LOOKUP_ATTRIBUTES:
        raise _Part(f"{min(looked_up)} in its code")
    for name, value in list(used.items()):
        if isinstance(value, ModuleType):
            used |= _attributes(name, value, names, set())
    return used


def _imported(name: str, package: str | None) -> ModuleType | None:
    try:
        return importlib.import_module(name, package)
    except ImportError:
        return None


def _attributes(
    path: str, module: ModuleType, names: set[str], seen: set[str]
) -> dict[str, Any]:
    """Of a module that is the user's own what bears one of the names; of an installed
    one what the user has put there."""
    found = {}
    seen.add(module.__name__)
    for name in names & vars(module).keys():
        value = vars(module)[name]
        if isinstance(value, ModuleType):
            if value.__name__ not in seen:
                found |= _attributes(f"{path}.{name}", value, names, seen)
                found[f"{path}.{name}"] = value
        elif (
            not is_installed(module.__name__)
            or isinstance(value, str | int | float)
            or (isinstance(value, FunctionType | type) and _is_own(value))
        ):
            found[f"{path}.{name}"] = value
    return found


class _Writer(pickle._Pickler):
    """Pickles for a digest: what it writes is never read again.

    Equal strings, tuples … are written alike whether or not they are one object.
    Functions and classes by value are numbered where they occur, and written one after
    the other, however they refer to each other.
    """

    def __init__(self) -> None:
        self.digest, self.source, self.part = hashlib.sha256(), [], "it"
        self._queue: list[FunctionType | type] = []
        self._numbers: dict[int, int] = {}
        super().__init__(self, protocol=4)

    def write(self, data: bytes) -> None:  # as a file
        self.digest.update(data)

    def write_all(self, value: Any) -> None:
        self.dump(value)
        for own in self._queue:  # which grows
            self._note_source(own)
            write = self._function if isinstance(own, FunctionType) else self._class
            for part, content in write(own).items():
                self.part = f"{part} of {own.__qualname__}"
                self.dump((part, content))

    def memoize(self, obj: object) -> None:
        if not isinstance(obj, str | bytes | tuple | frozenset):
            super().memoize(obj)

    def persistent_id(self, obj: object) -> str | None:
        if isinstance(obj, ModuleType):
            return f"module {obj.__name__}{self._module_source(obj.__name__)}"
        if not isinstance(obj, FunctionType | type) or not _is_own(obj):
            return None
        if id(obj) not in self._numbers:
            self._numbers[id(obj)] = len(self._queue)
            self._queue.append(obj)
        return f"own {self._numbers[id(obj)]}"

    def reducer_override(self, obj: object) -> Any:
        parts = self._parts(obj)
        if parts is NotImplemented:
            return parts
        kind = type(obj)
        name = kind if _is_own(kind) else f"{kind.__module__}.{kind.__qualname__}"
        return _part, (name,), parts

    def _parts(self, obj: Any) -> Any:
        """What stands for an object that pickle writes in no one way, or not at all."""
        torch = sys.modules.get("torch")
        if isinstance(obj, set | frozenset):
            return sorted(map(_element, obj)), getattr(obj, "__dict__", None)
        if torch and isinstance(obj, torch.Tensor):
            flat = obj.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            return str(obj.dtype), tuple(obj.shape), flat.numpy().tobytes()
        match obj:
            case CodeType():
                counts = obj.co_argcount, obj.co_posonlyargcount, obj.co_kwonlyargcount
                names = obj.co_names, obj.co_varnames, obj.co_freevars, obj.co_cellvars
                jumps = getattr(obj, "co_exceptiontable", b"")
                code = obj.co_code, obj.co_consts, obj.co_flags, jumps
                return counts, names, code
            case CellType():
                return [obj.cell_contents] if _is_full(obj) else []
            case property():
                return obj.fget, obj.fset, obj.fdel
            case classmethod() | staticmethod() | MethodType():
                return obj.__func__, getattr(obj, "__self__", None)
            case functools.cached_property():
                return obj.func
            case MappingProxyType():
                return dict(obj)
            case functools._lru_cache_wrapper():
                return obj.__wrapped__, obj.cache_parameters()
        if not isinstance(obj, type) and _is_own(type(obj)):
            reduced = obj.__reduce_ex__(4)
            if not isinstance(reduced, str):
                reduced = [list(x) if isinstance(x, Iterator) else x for x in reduced]
            return reduced, getattr(obj, "__dict__", None)
        return NotImplemented

    def _function(self, own: FunctionType) -> dict[str, Any]:
        used = _used_globals(own)
        for name in sorted(used):
            value = used[name]
            if not isinstance(value, ModuleType | FunctionType | type):
                self._note(f"{name} = {_shortened(value)}")
        return {
            "code": own.__code__,
            "defaults": (own.__defaults__, own.__kwdefaults__),
            "annotations": own.__annotations__,
            "attributes": vars(own),
            "closure": own.__closure__,
            "module": self._module_source(own.__module__),
        } | {f"global {name}": used[name] for name in sorted(used)}

    def _class(self, own: type) -> dict[str, Any]:
        body = {k: v for k, v in vars(own).items() if k not in NOT_OF_A_CLASS}
        made_of = {"name": own.__name__, "bases": own.__bases__, "kind": type(own)}
        module = {"module": self._module_source(own.__module__)}
        return made_of | module | {f"attribute {k}": v for k, v in body.items()}

    def _module_source(self, name: str | None) -> str:
        """The digest of the file of a module of the user's own; "" of any other."""
        path = getattr(sys.modules.get(name or ""), "__file__", None)
        if name == "__main__" or path is None or is_installed(name):
            return ""
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()

    def _note_source(self, own: FunctionType | type) -> None:
        with contextlib.suppress(OSError, TypeError):  # of what was typed at a prompt
            self._note(inspect.getsource(own).rstrip())

    def _note(self, text: str) -> None:
        if text not in self.source:
            self.source.append(text)


def _part() -> None:
    """In place of what would make an object of its parts."""


def _element(value: object) -> str:
    writer = _Writer()
    writer.write_all(value)
    return writer.digest.hexdigest()


def _is_full(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not None or True
    except ValueError:
        return False


def _shortened(value: object) -> str:
    text = " ".join(repr(value).split())
    if " at 0x" in text:
        return type(value).__name__
    return text if len(text) <= 200 else text[:199] + "…"
