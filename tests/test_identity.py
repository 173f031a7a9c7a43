"""A reward is another one if anything that it is made of is, and only then."""

import os
import subprocess
import sys
from functools import partial

import pandas as pd
import pytest
import torch

from factkit.run.identity import UnidentifiableError, callable_name, source_digest
from factkit.run.params import ROOT

# kind → cells with ¤ where two versions differ; the last one defines `mine`
CHANGED = {
    "regex": "import re\nP = re.compile('¤')\ndef mine(r, o): return P.match(r)",
    "default": "W = ¤\ndef mine(r, o, w=W): return w",
    "keyword-only default": "W = ¤\ndef mine(r, o, *, w=W): return w",
    "attribute": "def mine(r, o): return mine.w\nmine.w = ¤",
    "dataclass": "from dataclasses import dataclass\n@dataclass(frozen=True)\n"
    "class P:\n    w: float = 0\np = P(¤)\ndef mine(r, o): return p.w",
    "default of a dataclass": "from dataclasses import dataclass\n@dataclass\n"
    "class P:\n    w: float = ¤\ndef mine(r, o): return P().w",
    "object": "class P: pass\np = P()\np.w = ¤\ndef mine(r, o): return p.w",
    "object that hides its state": "class P:\n    def __getstate__(self): return {}\n"
    "p = P()\np.w = ¤\ndef mine(r, o): return p.w",
    "slots": "class P:\n    __slots__ = ('w',)\np = P()\np.w = ¤\n"
    "def mine(r, o): return p.w",
    "class": "class P:\n    w = ¤\ndef mine(r, o): return P.w",
    "base": "class B:\n    def w(self): return ¤\nclass P(B): pass\n"
    "def mine(r, o): return P().w()",
    "property": "class P:\n    @property\n    def w(self): return ¤\n"
    "def mine(r, o): return P().w",
    "named tuple": "from typing import NamedTuple\nclass P(NamedTuple):\n"
    "    a: int = 0\n"
    "    def w(self): return ¤\ndef mine(r, o): return P().w()",
    "enum": "from enum import Enum\nclass P(Enum):\n    A = ¤\n"
    "def mine(r, o): return P.A.value",
    "partial": "from functools import partial\ndef f(w, r, o): return w\n"
    "mine = partial(f, ¤)",
    "partial's keyword": "from functools import partial\ndef f(r, o, w): return w\n"
    "mine = partial(f, w=¤)",
    "callable object": "class P:\n    def __call__(self, r, o): return self.w\n"
    "mine = P()\nmine.w = ¤",
    "bound method": "class P:\n    def score(self, r, o): return ¤\nmine = P().score",
    "global of a lambda": "W = ¤\nmine = lambda r, o: W",
    "global of a comprehension": "W = ¤\ndef mine(r, o): return [W for _ in r][0]",
    "global of a nested function": "W = ¤\ndef mine(r, o):\n    def f(): return W\n"
    "    return f()",
    "global of a nested class": "W = ¤\ndef mine(r, o):\n    class P:\n        w = W\n"
    "    return P.w",
    "global of a method": "W = ¤\nclass P:\n    def w(self): return W\np = P()\n"
    "def mine(r, o): return p.w()",
    "global of two that call each other": "W = ¤\ndef a(n): return b(n)\n"
    "def b(n): return a(n - 1) if n else W\ndef mine(r, o): return a(2)",
    "closure": "def make(w):\n    def mine(r, o): return w\n    return mine\n"
    "mine = make(¤)",
    "decorator": "W = ¤\ndef d(f): return lambda r, o: W * f(r, o)\n"
    "@d\ndef mine(r, o): return 1",
    "wrapper": "import functools\ndef d(f):\n    @functools.wraps(f)\n"
    "    def g(*a): return ¤\n    return g\n@d\ndef mine(r, o): return 1",
    "cached function": "import functools\n@functools.lru_cache\ndef f(): return ¤\n"
    "def mine(r, o): return f()",
    "order of a dict": "W = dict(sorted({1: 'a', 2: 'b'}.items(), key=lambda i: i[0] * "
    "(3 - 2 * ¤)))\ndef mine(r, o): return next(iter(W))",
    "main module": "W = ¤\ndef mine(r, o):\n    import __main__\n    return __main__.W",
    "own module": "import mymod¤ as m\ndef mine(r, o): return m.W",
    "function of an own module": "from mymod¤ import f\ndef mine(r, o): return f()",
    "module of an own module": "from outer¤ import g\ndef mine(r, o): return g()",
    "import inside": "def mine(r, o):\n    from mymod¤ import f\n    return f()",
    "value set in an own module": "import mymod1\nmymod1.W = ¤\nfrom mymod1 import f\n"
    "def mine(r, o): return f()",
    "function put into a package": "import statistics\nstatistics.w = lambda: ¤\n"
    "def mine(r, o): return statistics.w()",
}
SAME = {  # pairs of cells that make the same reward
    "sets": (
        "W = {'ab', 'cd', 'ef', frozenset({'gh', 'ij'}), frozenset({'kl'}), (1, 2)}\n"
        "def mine(r, o, s=frozenset({'mn', 'op'})): return r in W or r in {'qr', 'st'}",
    )
    * 2,
    "sets in objects": (
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass P:\n"
        "    s: frozenset = frozenset({'ab', 'cd', 'ef'})\n"
        "W = {P(), P(frozenset({'gh', 'ij'}))}\ndef mine(r, o): return W",
    )
    * 2,
    "a comment above, and a line inside": (
        "class P:\n    w = 1\ndef mine(r, o):\n    return P.w",
        "# why\n\nclass P:\n    w = 1\n# and\n"
        "def mine(r, o):\n    # so\n\n    return P.w",
    ),
    "other cells": (
        "A = ('a b', 1)\nB = ('a b', 1)\ndef mine(r, o): return A == B",
        "A = ('a b', 1)\n%%\nB = (' '.join('ab'), 1)\n%%\nrun = open('out', 'w')\n%%\n"
        "def mine(r, o): return A == B",
    ),
    "what was called before": (
        "import re\nP = re.compile('a|b', re.I)\ndef mine(r, o): return P.match(r)",
        "import re\nP = re.compile('a|b', re.I)\ndef mine(r, o): return P.match(r)\n"
        "for _ in range(100): mine('a', 1)",
    ),
}
LISTED = f"""
import sys
from IPython.core.interactiveshell import InteractiveShell
from factkit.run.identity import source_digest
sys.path.insert(0, ".")
shell = InteractiveShell.instance()
def digest(cells):
    shell.reset()
    for cell in cells.split("%%\\n"):
        shell.run_cell(cell).raise_error()
    return source_digest(shell.user_ns["mine"])
for name, cells in {CHANGED!r}.items():
    print(name, digest(cells.replace("¤", "1")), digest(cells.replace("¤", "2")))
for name, pair in {SAME!r}.items():
    print("same", name, *map(digest, pair))
"""


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    """Lines of name and two digests, from two processes with other hashes."""
    folder = tmp_path_factory.mktemp("own")
    for version in (1, 2):
        source = f"W = {version}\ndef f(): return W\n"
        (folder / f"mymod{version}.py").write_text(source, "utf-8")
        outer = f"import mymod{version} as m\ndef g(): return m.f()\n"
        (folder / f"outer{version}.py").write_text(outer, "utf-8")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", LISTED],
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
        )
        for seed in ("1", "2")
    ]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    return [[line.rsplit(" ", 2) for line in out.splitlines()] for out in outputs]


def test_a_change_in_anything_that_a_reward_uses_changes_its_digest(listed):
    ours = [row for row in listed[0] if not row[0].startswith("same ")]
    assert len(ours) == len(CHANGED)
    assert [name for name, a, b in ours if a == b] == []


def test_the_same_reward_has_one_digest_in_every_process_and_cell(listed):
    assert listed[0] == listed[1]
    ours = [row for row in listed[0] if row[0].startswith("same ")]
    assert len(ours) == len(SAME)
    assert [name for name, a, b in ours if a != b] == []


def test_tables_and_tensors_are_part_of_a_reward():
    tables = {
        "tensor": lambda w: torch.tensor([0.0, w], dtype=torch.bfloat16),
        "slice of a tensor": lambda w: torch.arange(9.0)[w:4],
        "parameters": lambda w: torch.nn.Parameter(torch.full((2, 2), float(w))),
        "array": lambda w: torch.tensor([0.0, w]).numpy(),
        "table": lambda w: pd.DataFrame({"a": [0] * 999 + [w], "b": "x"}),
    }

    def digest(value):
        def mine(result, out_of_knowledge):
            return value[0]

        return source_digest(mine)

    for name, make in tables.items():
        assert digest(make(1)) == digest(make(1)) != digest(make(2)), name


def test_a_module_that_was_loaded_anew_is_another(tmp_path, monkeypatch):
    import importlib

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    path = tmp_path / "prices_of_mine.py"
    digests = []
    for price in ("1", "22"):
        path.write_text(f"W = {price}\ndef f():\n    return W\n", "utf-8")
        module = importlib.import_module("prices_of_mine")
        f = importlib.reload(module).f
        digests.append(source_digest(lambda r, o, f=f: f()))
    assert digests[0] != digests[1]


STATE = open(os.devnull, encoding="utf-8")  # noqa: SIM115


def reads_an_open_file(result, out_of_knowledge):
    return STATE.read()


def opens_a_file(result, out_of_knowledge):
    return open("prices", encoding="utf-8").read()  # noqa: SIM115


def looks_up(result, out_of_knowledge):
    return globals()["W"]


def reads_the_environment(result, out_of_knowledge):
    return float(os.environ["W"])


class Restless:
    """Not the same twice."""

    def __init__(self):
        self.looks = iter(range(9))

    def __call__(self, result, out_of_knowledge):
        return 0.0

    def __reduce_ex__(self, protocol):
        return Restless, (next(self.looks),)


def test_what_cannot_be_identified_is_refused_with_its_name_and_the_part():
    for reward, part in (
        (reads_an_open_file, "STATE"),
        (opens_a_file, "open()"),
        (looks_up, "globals()"),
        (reads_the_environment, "environ"),
        (Restless(), "not the same"),
        (partial(reads_an_open_file), "STATE"),
    ):
        with pytest.raises(UnidentifiableError) as error:
            source_digest(reward)
        message = str(error.value)
        assert callable_name(reward) in message and part in message
        assert "into a variable" in message
