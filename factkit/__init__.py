"""factkit: five papers against hallucination, reproduced as numbered notebooks."""

import sys
from collections.abc import Callable

from factkit import failures, quiet
from factkit.failures import Check, UserError, require

__all__ = ["Check", "UserError", "require", "show_source", "source_digest"]

__version__ = "0.1.0"

quiet.messages()
if shell := getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)():
    failures.explain_in_notebooks(shell)


def source_digest(function: Callable) -> str:
    """Twelve hexadecimal digits of a function's source, or of its code if it has none.

    Of a function written in a notebook the values and functions of the notebook that
    it uses are in it, too. What it calls of a package is not.
    """
    import hashlib

    return hashlib.sha256(_source(function, set()).encode()).hexdigest()[:12]


def _source(function: Callable, seen: set[str]) -> str:
    import inspect

    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):  # typed at a prompt
        text = repr((function.__code__.co_code, function.__code__.co_consts))
    if function.__module__ != "__main__" or not inspect.isfunction(function):
        return text
    used = inspect.getclosurevars(function)
    for name, value in sorted({**used.globals, **used.nonlocals}.items()):
        where = getattr(value, "__module__", None)
        if name in seen or inspect.ismodule(value):
            continue
        seen.add(name)
        if inspect.isfunction(value) and where == "__main__":
            text += _source(value, seen)
        elif where is None:  # a number, a text, a list …, no name of a package
            text += f"\n{name} = {value!r}"
    return text


def show_source(*objects: object) -> None:
    """Display the source of functions or classes, highlighted, in a notebook."""
    import inspect

    from IPython.display import Markdown, display

    for obj in objects:
        display(Markdown(f"```python\n{inspect.getsource(obj)}```"))
