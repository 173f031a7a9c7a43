"""Checks of the exercises in notebooks."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def check(
    attempt: Callable, cases: Mapping[tuple, Any], tolerance: float = 1e-3
) -> bool:
    """Whether `attempt(*case)` is right for each case; prints the first that is not.

    cases: arguments → the right value: a number, a bool, or a sequence of numbers.
    A function that returns `...` counts as not written yet.
    """
    for arguments, right in cases.items():
        shown = f"{attempt.__name__}({', '.join(map(repr, arguments))})"
        try:
            given = attempt(*arguments)
        except Exception as error:
            print(f"{shown} raises {type(error).__name__}: {error}")
            return False
        if given is ...:
            print(f"{attempt.__name__} is not written yet: put your lines for the dots")
            return False
        if not _near(given, right, tolerance):
            print(f"Not yet: {shown} gives {given!r}, it should be {right!r}")
            return False
    print(f"Right, in all {len(cases)} cases.")
    return True


def _near(given: Any, right: Any, tolerance: float) -> bool:
    try:
        alike = np.shape(given) == np.shape(right)
        return alike and np.allclose(given, right, rtol=0, atol=tolerance)
    except (TypeError, ValueError):  # no numbers, or lists of several lengths
        return False
