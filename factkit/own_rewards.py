"""A user's own reward: its name, its source, and a digest of all that it uses."""

import ast
import contextlib
import importlib.util
import inspect
import io
import pickletools
import re
import site
import sys
import sysconfig
import threading
import warnings
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from factkit import UserError

FILES = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.FileIO)
MODULE_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def name_of(reward: Callable) -> str:
    """The name of a reward: of a function, or of the class of a callable object."""
    while isinstance(reward, partial):
        reward = reward.func
    return getattr(reward, "__name__", type(reward).__name__)


def source_of(reward: Callable) -> str:
    """The source of a reward's function or class, as far as Python has it."""
    while isinstance(reward, partial):
        reward = reward.func
    kind = reward if hasattr(reward, "__name__") else type(reward)
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        return ""


def digest_of(reward: Callable) -> str:
    """Hexadecimal digits that change with a reward and with anything that it uses.

    That is its code, defaults and closure; the values, functions and classes of the
    notebook that it names, however deep, as `datasets` fingerprints them for its cache;
    and the source of your own modules that it names, or that these import. Code of
    installed packages and of the kit is not part of it. Comments and the cell that it
    stands in do not matter. A value that the reward itself changes, as a list of what
    it has seen, makes it another reward: log such things by `log_metric`.

    Raises UserError if something can't be identified: an open file, a lock, a
    generator, functions that call each other, or a value that differs at each reading.
    """
    import xxhash

    try:
        pickled, again = _pickle(reward), _pickle(reward)
    except Exception as error:
        raise _unidentified(reward, f"{type(error).__name__}: {error}") from None
    if pickled != again:
        raise _unidentified(reward, "something that it uses differs at each reading")
    digest = xxhash.xxh128(pickled)
    for name, content in sorted(_own_modules(_names_in(pickled)).items()):
        digest.update(name.encode() + b"\0" + content)
    return digest.hexdigest()


def _unidentified(reward: Callable, why: str) -> UserError:
    return UserError(
        f"the reward {name_of(reward)} can't be told from another one ({why[:300]}): "
        "leave out what is no plain value, function or class, as an open file, or make "
        "it inside the function"
    )


def _refuse(_: Any, value: Any) -> None:
    raise TypeError(f"it uses a {type(value).__name__}")


def _pickle(value: Any) -> bytes:
    """A value's canonical bytes, the same in every process."""
    from datasets.utils import _dill

    for kind in (*map(type, (threading.Lock(), threading.RLock())), *FILES):
        _dill.pklregister(kind)(_refuse)

    @_dill.pklregister(frozenset)
    def save_frozenset(pickler: _dill.Pickler, items: frozenset) -> None:
        pickler.save_reduce(frozenset, (sorted(items, key=_pickle),), obj=items)

    @_dill.pklregister(ModuleType)
    def save_module(pickler: _dill.Pickler, module: ModuleType) -> None:
        pickler.save_reduce(importlib.import_module, (module.__name__,), obj=module)

    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _dill.Pickler(file, recurse=True).dump(value)
    return file.getvalue()


# ---- the user's own modules


def _names_in(pickled: bytes) -> set[str]:
    """The texts in a pickle that may be names of modules."""
    texts = (arg for _, arg, _ in pickletools.genops(pickled) if isinstance(arg, str))
    words = {word for text in texts if len(text) < 1000 for word in text.split(" ")}
    return {word for word in words if MODULE_NAME.fullmatch(word)}


def _own_modules(names: Iterable[str]) -> dict[str, bytes]:
    """Name → file of the user's own modules among these, and of those they import."""
    found: dict[str, bytes] = {}
    waiting = {prefix for name in names for prefix in _prefixes(name)}
    while waiting:
        name = waiting.pop()
        path = _own_file(name)
        if name in found or path is None:
            continue
        found[name] = path.read_bytes()
        if path.suffix == ".py":
            package = name if path.stem == "__init__" else name.rpartition(".")[0]
            imported = _imported(found[name], package)
            waiting |= {prefix for other in imported for prefix in _prefixes(other)}
    return found


def _prefixes(name: str) -> set[str]:
    parts = name.split(".")
    return {".".join(parts[:n]) for n in range(1, len(parts) + 1)}


def _imported(source: bytes, package: str) -> set[str]:
    """The modules that a source names in its imports."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            with contextlib.suppress(ImportError, ValueError):
                base = importlib.util.resolve_name(base, package)
                names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return names


def _own_file(name: str) -> Path | None:
    """The file of a module that is neither installed nor the kit's, if there is one."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if module is None and ("." not in name or _own_file(name.rpartition(".")[0])):
        with contextlib.suppress(ImportError, ValueError, AttributeError):
            spec = importlib.util.find_spec(name)
            file = spec.origin if spec and spec.has_location else None
    if name == "__main__" or not file or not Path(file).is_file():
        return None
    path = Path(file).resolve()
    return None if any(map(path.is_relative_to, _installed())) else path


@cache
def _installed() -> list[Path]:
    """Folders of Python's own modules, of installed packages and of the kit."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = [sysconfig.get_path(name) for name in names]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    return [Path(folder).resolve() for folder in folders] + [Path(__file__).parent]
