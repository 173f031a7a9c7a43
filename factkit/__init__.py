"""factkit: five papers against hallucination, reproduced as numbered notebooks."""

from collections.abc import Callable, Iterable

from factkit import quiet

__version__ = "0.1.0"

Check = tuple[str, str, bool, str]  # what, found, whether that is fine, else the remedy

quiet.messages()


class UserError(ValueError):
    """What was given to the kit is wrong; the message names it, and the fix."""

    def _render_traceback_(self) -> list[str]:
        """What IPython prints in place of the stack, of which no line would help."""
        return [f"{type(self).__name__}: {self}"]


def require(checks: Iterable[Check]) -> None:
    """Raise UserError if something that was checked is not fine, with each remedy."""
    wrong = [
        f"{what}: {found}; {remedy}" for what, found, ok, remedy in checks if not ok
    ]
    if wrong:
        raise UserError("\n".join(wrong))


def source_digest(function: Callable) -> str:
    """Twelve hexadecimal digits of a function's source, or of its code if it has none.

    What the function calls is not in it.
    """
    import hashlib
    import inspect

    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):  # typed at a prompt
        text = repr((function.__code__.co_code, function.__code__.co_consts))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def show_source(*objects: object) -> None:
    """Display the source of functions or classes, highlighted, in a notebook."""
    import inspect

    from IPython.display import Markdown, display

    for obj in objects:
        display(Markdown(f"```python\n{inspect.getsource(obj)}```"))
