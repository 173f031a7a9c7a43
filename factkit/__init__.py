"""factkit: five papers against hallucination, reproduced as numbered notebooks."""

import sys
from collections.abc import Callable
from typing import Any

from factkit.run import failures, quiet
from factkit.run.failures import Check, UserError, require

__all__ = ["Check", "UserError", "require", "show_source"]

__version__ = "0.1.0"

quiet.silence_messages()
if shell := getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)():
    failures.explain_in_notebooks(shell)


def show_source(*objects: Callable[..., Any]) -> None:
    """Display the source of functions or classes, highlighted, in a notebook."""
    import inspect

    from IPython.display import Markdown, display

    for obj in objects:
        display(Markdown(f"```python\n{inspect.getsource(obj)}```"))
