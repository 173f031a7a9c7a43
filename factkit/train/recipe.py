"""What made a model: written before its training, held to before it is used again.

A folder's recipe.json says, for each trainer that worked in it, what it was given:
the start, the rows, and the functions that make rewards and rollouts. The same trainer
with another recipe is refused: it would go on with, or return, another thing's model.
Parameters are the run's identity (`runs.start`) and not asked again.
"""

import functools
import hashlib
import inspect
import json
import shutil
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import factkit
from factkit.assets import write_atomically
from factkit.params import ParamError
from factkit.params.stages import RunParams

FILE = "recipe.json"
KIT = Path(factkit.__file__).parent


class RecipeError(ParamError):
    """A folder holds what another recipe made."""


def held_to(train: Callable[..., Path]) -> Callable[..., Path]:
    """Have a trainer hold its folder to the recipe of what it trained there before."""
    signature = inspect.signature(train)

    @functools.wraps(train)
    def call(*args: Any, **kwargs: Any) -> Path:
        check(train.__name__, signature.bind(*args, **kwargs).arguments)
        return train(*args, **kwargs)

    return call


def check(trainer: str, arguments: Mapping[str, Any]) -> None:
    """Write down what `trainer` was given, or hold it to what is written down.

    arguments: the trainer's; `folder` is the run's. Raises RecipeError if the folder
    has another recipe of this trainer, or a model of which nothing is known.
    """
    folder: Path = arguments["folder"]
    recipes = read(folder)
    recipe = {
        name: _identity(value)
        for name, value in arguments.items()
        if not isinstance(value, RunParams | Path) and value is not None
    }
    before = recipes.get(trainer)
    name = "reward_model" if trainer == "train_reward_model" else "model"
    if before is None and (folder / name).exists():
        raise RecipeError(
            f"{folder / name}: nothing says what made it; move {folder} away, or take "
            "another output_dir"
        )
    if before is not None and before != recipe:
        differing = [k for k in recipe if recipe[k] != before.get(k)]
        raise RecipeError(
            f"{folder} was made with "
            + ", ".join(f"{k}={before.get(k)!r} (now {recipe[k]!r})" for k in differing)
            + ": move it away, or give this run an arm or output_dir of its own"
        )
    if before is None:
        folder.mkdir(parents=True, exist_ok=True)
        content = json.dumps(recipes | {trainer: recipe}, indent=1)
        write_atomically(folder / FILE, content)


def read(folder: Path) -> dict[str, dict[str, str]]:
    """Trainer → recipe of what was trained in a folder; empty if nothing was."""
    path = folder / FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def tell(folder: Path, model: Path) -> None:
    """Put what made a model into its own folder, too."""
    if (folder / FILE).is_file():
        shutil.copy(folder / FILE, model / FILE)


def _identity(value: Any) -> str:
    """What stands for an argument: a function's name, a model's recipe, a digest."""
    if callable(value):
        return function_identity(value)
    if isinstance(value, str):  # a model's folder, or its name on the hub
        own = Path(value) / FILE
        made_by = f" made by {_digest(own.read_text())}" if own.is_file() else ""
        return f"{Path(value).name}{made_by}"
    rows = [json.dumps(row, sort_keys=True, default=str) for row in value]
    return f"{len(rows)} rows {_digest(*rows)}"


def function_identity(function: Callable) -> str:
    """The name of a function and what it is made of.

    The kit's own are known by their name and the kit's version, so that moving code
    makes no run stale; what was put into their module from outside is named, too. Any
    other has a digest of its source, its defaults and the constants it closes over.
    """
    if isinstance(function, functools.partial):
        given = _digest(repr(function.args), repr(sorted(function.keywords.items())))
        return f"{function_identity(function.func)} given {given}"
    code = inspect.unwrap(function).__code__
    name = getattr(function, "__qualname__", function.__name__)
    if not _is_ours(code):
        return f"{name} {_source_digest(function)}"
    module = sys.modules[function.__module__]
    replaced = [
        f", with {key} {_source_digest(value)}"
        for key, value in sorted(vars(module).items())
        if inspect.isfunction(value) and not _is_library(value.__code__)
    ]
    own = f"{function.__module__}.{name} of factkit {version('factkit')}"
    return own + "".join(replaced)


def _is_ours(code: Any) -> bool:
    return Path(code.co_filename).is_relative_to(KIT)


def _is_library(code: Any) -> bool:
    """Whether code is the kit's, or of the standard library or a package."""
    path = Path(code.co_filename)
    library = (Path(p) for p in (sys.prefix, sys.base_prefix))
    return _is_ours(code) or any(path.is_relative_to(p) for p in library)


def _source_digest(function: Callable) -> str:
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):  # typed at a prompt
        source = repr((function.__code__.co_code, function.__code__.co_consts))
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    constants = [repr(c) for c in cells if isinstance(c, str | int | float | tuple)]
    return _digest(source, repr(function.__defaults__), *constants)


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]
