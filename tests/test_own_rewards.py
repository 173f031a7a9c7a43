"""A user's own reward is known by all that it uses, in every process."""

import functools
import json
import os
import subprocess
import sys
import threading

import pytest

from factkit import UserError, identity, params, past_runs, runs
from factkit.params import ROOT
from factkit.train.launch import function_identity
from factkit.truthrl import rewards

CLASS = (
    "class R:\n    def __init__(s, w): s.w = w\n    def __call__(s, r): return s.w\n"
)
DECORATED = """import functools
def weigh(w):
    def decorate(f):
        @functools.wraps(f)
        def g(r): return w * f(r)
        return g
    return decorate
"""
# A notebook's cell; § is 1, and then 2
CELLS = {
    "body": "def mine(r): return §",
    "lambda": "mine = lambda r: §",
    "default": "def mine(r, x=§): return x",
    "keyword default": "def mine(r, *, x=§): return x",
    "number": "W = §\ndef mine(r): return W",
    "list": "W = [§]\ndef mine(r): return W",
    "regex": "import re\nP = re.compile('§')\ndef mine(r): return P.search(r)",
    "regex flags": "import re\nP = re.compile('a', §)\ndef mine(r): return P",
    "set": "W = {'a', 'b', 'c', '§'}\ndef mine(r): return r in W",
    "nested sets": "W = ({'k': {'a', 'b', 'c', '§'}},)\ndef mine(r): return r in W",
    "frozenset": "W = [frozenset({'a', 'b', 'c', '§'})]\ndef mine(r): return r in W",
    "set in code": "def mine(r): return r in {'a', 'b', 'c', '§'}",
    "set as default": "def mine(r, w={'a', 'b', 'c', '§'}): return w",
    "dataclass": "from dataclasses import dataclass\n@dataclass\nclass C:\n    x: int\n"
    "c = C(§)\ndef mine(r): return c.x",
    "named tuple": "from typing import NamedTuple\nclass N(NamedTuple):\n    x: int\n"
    "n = N(§)\ndef mine(r): return n.x",
    "enumeration": "from enum import Enum\nclass E(Enum):\n    A = §\n"
    "def mine(r): return E.A",
    "attribute": "class C: pass\nc = C(); c.x = §\ndef mine(r): return c.x",
    "class attribute": "class C: X = §\ndef mine(r): return C.X",
    "method": "class C:\n    def f(s): return §\nc = C()\ndef mine(r): return c.f()",
    "property": "class C:\n    @property\n    def x(s): return §\n"
    "def mine(r): return C().x",
    "base class": "class B:\n    def f(s): return §\nclass C(B): pass\n"
    "def mine(r): return C().f()",
    "partial": "from functools import partial\ndef mine(r, x): return x\n"
    "mine = partial(mine, x=§)",
    "object that is called": CLASS + "mine = R(§)",
    "bound method": CLASS.replace("__call__", "mine") + "mine = R(§).mine",
    "tensor": "import torch\nT = torch.tensor([§.0])\ndef mine(r): return T",
    "array": "import numpy as np\nT = np.array([§.0])\ndef mine(r): return T",
    "table": "import pandas as pd\nT = pd.DataFrame({'a': [§]})\ndef mine(r): return T",
    "in a lambda": "W = §\ndef mine(r): return (lambda: W)()",
    "in a nested function": "W = §\ndef mine(r):\n    def g(): return W\n"
    "    return g()",
    "in a comprehension": "W = §\ndef mine(r): return [W for _ in r]",
    "in a method": "W = §\nclass R:\n    def __call__(s, r): return W\nmine = R()",
    "in a helper": "W = §\ndef h(): return W\ndef mine(r): return h()",
    "closure": "def make(w):\n    def mine(r): return w\n    return mine\n"
    "mine = make(§)",
    "decorator": DECORATED + "@weigh(§)\ndef mine(r): return 1",
    "cached helper": "import functools\n@functools.lru_cache\ndef h(x): return §\n"
    "def mine(r): return h(r)",
    "own module": "import mine§ as m\ndef mine(r): return m.W",
    "own function": "from mine§ import f\ndef mine(r): return f(r)",
    "imported inside": "def mine(r):\n    import mine§ as m\n    return m.W",
    "module of a module": "import outer§ as m\ndef mine(r): return m.g(r)",
}
DIGESTS = """
import json, sys, __main__
from factkit.identity import source_digest as digest_of
digests = {}
for name, sources in json.loads(sys.argv[1]).items():
    digests[name] = []
    for i, source in enumerate(sources):
        place = f"/tmp/ipykernel_{sys.argv[2]}/{i}.py"
        exec(compile(source, place, "exec"), vars(__main__))
        digests[name].append(digest_of(mine))
print(json.dumps(digests))
"""


def write_modules(folder):
    """Modules of a user's, alike but for a number, also where one imports the other."""
    for n in "12":
        module = f"W = {n}\ndef f(r): return W\n"
        (folder / f"mine{n}.py").write_text(module, "utf-8")
        outer = "def g(r):\n    from inner import f\n    return f(r)\n"
        package = folder / n
        package.mkdir()
        (package / "inner.py").write_text(module, "utf-8")
        (folder / f"outer{n}.py").write_text(
            f"import sys\nsys.path.insert(0, {str(package)!r})\n{outer}", "utf-8"
        )


@pytest.fixture(scope="module")
def digests(tmp_path_factory):
    """Of each cell, of the changed one and of one that begins with a comment; in two
    processes that order sets otherwise."""
    folder = tmp_path_factory.mktemp("modules")
    write_modules(folder)
    sources = {}
    for name, cell in CELLS.items():
        first, other = (cell.replace("§", n) for n in "12")
        sources[name] = [first, other, f"# moved\n\n{first}"]
    found = []
    for seed in "12":
        environment = os.environ | {"PYTHONHASHSEED": seed}
        environment["PYTHONPATH"] = f"{ROOT}{os.pathsep}{folder}"
        command = [sys.executable, "-c", DIGESTS, json.dumps(sources), seed]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, encoding="utf-8"
        )
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    return found


@pytest.mark.parametrize("cell", CELLS)
def test_a_reward_is_another_when_what_it_uses_is_and_else_the_same(cell, digests):
    first, again = (process[cell] for process in digests)
    assert first[0] != first[1]
    assert first[0] == first[2] == again[0]


def test_what_can_not_be_identified_is_refused_with_the_reason(tmp_path):
    lock, numbers = threading.Lock(), iter([1, 2, 3])
    with open(os.devnull, encoding="utf-8") as file:
        for thing in (lock, file, (n for n in numbers)):

            def mine(outcome, unknown, thing=thing):
                return 0.0

            with pytest.raises(UserError, match="the reward mine can't be told"):
                identity.source_digest(mine)
    p = params.load("truthrl", "tiny", {"output_dir": str(tmp_path)})
    with pytest.raises(UserError, match="define it by `def`"):
        runs.start("90_workshop_reward", p, reward=lambda outcome, unknown: 0.0)


def ternary(outcome, unknown):
    return 0.5


def test_a_reward_named_like_an_arm_leaves_the_arm_alone(tmp_path, capsys):
    p = params.load("truthrl", "tiny", {"output_dir": str(tmp_path), "arm": "ternary"})
    with runs.start("12_truthrl_train", p) as run:
        run.finish({"accuracy": 0.5})
    with runs.start("12_truthrl_train", p, reward=ternary) as own:
        own.finish({"accuracy": 0.9})
    assert (own.arm, own.folder.parent.name) == ("own/ternary", "own")
    assert runs.read_results(run.folder)["metrics"] == {"accuracy": 0.5}
    results = past_runs.stored("truthrl", "tiny", tmp_path)[""]
    assert [(r["arm"], r["metrics"]["accuracy"]) for r in results] == [("ternary", 0.5)]
    assert "moved" not in capsys.readouterr().out


def test_a_changed_reward_moves_its_run_aside_and_is_shown(tmp_path, capsys):
    p = params.load("truthrl", "tiny", {"output_dir": str(tmp_path)})

    def start(source):
        path = tmp_path / "cell.py"
        path.write_text(source, "utf-8")
        names = {"__name__": "__main__"}
        exec(compile(source, str(path), "exec"), names)
        return runs.start("90_workshop_reward", p, reward=names["mine"])

    cell = "def mine(outcome, unknown):\n    return {}\n"
    with start(cell.format("0.5")) as run:
        run.finish({"accuracy": 0.5})
    with start(cell.format("0.5")):
        assert runs.read_results(run.folder)
    with start(cell.format("-0.5")):
        assert runs.read_results(run.folder) is None
    shown = capsys.readouterr().out
    assert "-    return 0.5\n+    return -0.5" in shown
    assert "moved to mine-s0.stale-1" in shown
    assert len(shown.splitlines()) <= 10


def test_partial_and_callable_rewards_are_named_and_trained_with(tmp_path):
    def mine(outcome, unknown, price):
        return price

    half, none = (functools.partial(mine, price=price) for price in (0.5, 0.0))
    identities = [
        function_identity(functools.partial(rewards.reward_function, own=reward))
        for reward in (half, none)
    ]
    assert identities[0] != identities[1] and "own=mine " in identities[0]
    assert identity.callable_name(half) == "mine"
    p = params.load("truthrl", "tiny", {"arm": "ternary"})
    assert rewards.reward_function(p, tmp_path, own=half).__name__ == "mine"


def test_a_wrapper_of_the_kit_s_reward_is_a_reward_of_its_own():
    @functools.wraps(rewards.ternary)
    def mine(*arguments):
        return -rewards.ternary(*arguments)

    assert "of factkit" not in function_identity(mine)
