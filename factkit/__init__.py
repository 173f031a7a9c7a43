"""factkit: five papers against hallucination, reproduced as numbered notebooks."""

import warnings

__version__ = "0.1.0"

# tqdm looks for widgets in every notebook; the kit draws plain bars
warnings.filterwarnings("ignore", message="IProgress not found")


class UserError(ValueError):
    """What was given to the kit is wrong; the message names it, and the fix."""

    def _render_traceback_(self) -> list[str]:
        """What IPython prints in place of the stack, of which no line would help."""
        return [f"{type(self).__name__}: {self}"]


def show_source(*objects: object) -> None:
    """Display the source of functions or classes, highlighted, in a notebook."""
    import inspect

    from IPython.display import Markdown, display

    for obj in objects:
        display(Markdown(f"```python\n{inspect.getsource(obj)}```"))
