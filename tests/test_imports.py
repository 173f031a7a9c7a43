"""The names that seldom-run tests and tools take from the kit are still there.

`make test` runs neither vLLM's and verl's tests, nor rehearsals, nor benchmarks: a
renamed function would break them unseen. Modules that they write are read, too.
"""

import ast
import importlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FOLDERS = ("with_vllm", "with_verl", "rehearsal", "benchmarks", "gpu")
FILES = sorted(
    str(path.relative_to(TESTS))
    for folder in FOLDERS
    for path in (TESTS / folder).rglob("*.py")
)


def imports(source: str) -> Iterator[tuple[str, str]]:
    """The (module, name) pairs that a source imports from the kit, also those in its
    strings that are source themselves."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fact"):
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Constant) and "from factkit" in str(node.value):
            with suppress(SyntaxError):  # a text that is no module
                yield from imports(node.value)


def is_there(module: str, name: str) -> bool:
    if hasattr(importlib.import_module(module), name):
        return True
    with suppress(ModuleNotFoundError):
        return bool(importlib.import_module(f"{module}.{name}"))
    return False


@pytest.mark.parametrize("path", FILES)
def test_names_from_the_kit_are_there(path):
    missing = [
        pair
        for pair in imports((TESTS / path).read_text("utf-8"))
        if not is_there(*pair)
    ]
    assert not missing


def test_a_missing_name_is_found():
    (pair,) = imports("made = '''\nfrom factkit.verify.trajectory import queries\n'''")
    assert not is_there(*pair)
