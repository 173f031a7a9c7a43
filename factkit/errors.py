"""Errors that a user can mend: their message is all that a notebook shows of them."""


class UserError(ValueError):
    """What was given to the kit is wrong; the message names it, and the fix."""

    def _render_traceback_(self) -> list[str]:
        """What IPython prints in place of the stack, of which no line would help."""
        return [f"{type(self).__name__}: {self}"]
