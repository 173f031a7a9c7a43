"""factkit: five papers against hallucination, reproduced as numbered notebooks."""

import os
import sys
from collections.abc import Callable
from typing import Any

from factkit.run import failures, quiet
from factkit.run.failures import Check, UserError, require

__all__ = ["Check", "UserError", "require", "show_source"]

__version__ = "0.1.0"

# Read when torch loads OpenMP. Threads that spin while they wait for each other make a
# run many times slower beside another program; those that sleep at once wake up late.
os.environ.setdefault("GOMP_SPINCOUNT", "3000")

quiet.silence_messages()
if shell := getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)():
    failures.explain_in_notebooks(shell)


def show_source(*objects: Callable[..., Any]) -> None:
    """Display the source of functions or classes, highlighted, in a notebook."""
    import inspect

    from IPython.display import Markdown, display

    for obj in objects:
        display(Markdown(f"```python\n{inspect.getsource(obj)}```"))
