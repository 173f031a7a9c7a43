"""One place of pins: environment.yml and the locks agree with pyproject.toml."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from factkit.run.params import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PYTHONS = [c.split()[-1] for c in PROJECT["classifiers"]]
LOCKS = ROOT / "factkit" / "locks"
BASE, EXTRAS = set(PROJECT["dependencies"]), PROJECT["optional-dependencies"]


def lock(name):
    text = (LOCKS / f"{name}.txt").read_text("utf-8")
    return {pin.lower() for pin in re.findall(r"^[\w.-]+==[^\s\\;]+", text, re.M)}


def test_every_requirement_is_pinned_and_locked():
    every = BASE.union(*EXTRAS.values())
    assert [r for r in every if "==" not in r] == []
    for name, extras in (("cpu", ["dev"]), ("gpu", ["dev", "gpu"])):
        pins = BASE.union(*(EXTRAS[extra] for extra in extras))
        assert {pin.lower() for pin in pins} <= lock(name), name
    for name in ("assets", "slurm"):  # installed without what they depend on
        assert lock(name) == set(EXTRAS[name])


def test_what_verl_s_environment_shares_with_ours_has_our_pins():
    text = (LOCKS / "verl.in").read_text("utf-8")
    pins = {line for line in text.splitlines() if "==" in line}
    assert pins <= lock("verl")
    ours = {pin.split("==")[0]: pin for pin in BASE.union(*EXTRAS.values())}
    assert [p for p in pins if ours.get(p.split("==")[0], p) != p] == []


def interpreters():
    """The interpreters of the Pythons that the kit is for, of those on this machine."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for version in PYTHONS:
        on_path = shutil.which(f"python{version}")
        for path in (*pyenv.glob(f"{version}.*/bin/python{version}"), on_path):
            if (
                path
                and not subprocess.run([path, "-c", ""], capture_output=True).returncode
            ):
                yield str(path)
                break


@pytest.mark.slow
@pytest.mark.parametrize("python", [*interpreters()])
@pytest.mark.parametrize(
    "name, wanted",
    [
        ("cpu", [".[dev]"]),
        ("gpu", [".[dev,gpu]"]),
        ("verl", ["-r", "factkit/locks/verl.in"]),
    ],
)
def test_each_lock_can_be_installed_with_each_python(name, wanted, python, tmp_path):
    uv = shutil.which("uv", path=Path(sys.executable).parent) or shutil.which("uv")
    if not uv:
        pytest.skip("uv is not installed")
    command = [uv, "pip", "install", "--dry-run", "--target", tmp_path, *wanted]
    command += ["--python", python, "--constraint", LOCKS / f"{name}.txt"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode and "error sending request" in done.stderr:
        pytest.skip("no network")
    assert done.returncode == 0, done.stderr
    installed = re.findall(r"^ \+ (\S+==\S+)", done.stderr, re.M)
    others = {pin.lower() for pin in installed} - lock(name)
    assert len(installed) > 100 and others == set()


def test_ci_runs_what_ci_run_does_with_each_python():
    path = ROOT / ".github" / "workflows" / "ci.yml"
    jobs = yaml.safe_load(path.read_text("utf-8"))["jobs"]
    assert jobs["linux"]["strategy"]["matrix"]["python"] == PYTHONS
    assert jobs["linux"]["steps"][-1] == {"run": ".ci/run"}
    commands = " ".join(step.get("run", "") for step in jobs["smoke"]["steps"])
    tests = re.findall(r"tests/\w+\.py", commands)
    assert tests and all((ROOT / test).is_file() for test in tests)


def test_contributing_names_files_and_functions_that_there_are():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    paths = re.findall(r"(?:factkit|notebooks|params|tests)/[\w/.]+\.\w+", text)
    assert [path for path in paths if not (ROOT / path).is_file()] == []
    assert len(paths) > 8


def test_environment_yml_holds_the_pins_of_base_and_gpu():
    parts = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))[
        "dependencies"
    ]
    (pip,) = [part["pip"] for part in parts if isinstance(part, dict)]
    pins = {line for line in pip if not line.startswith("--")}
    assert pins == BASE | set(EXTRAS["gpu"])


def calls_without_encoding(source):
    """Line numbers of calls that open a text file in the locale's encoding."""
    for call in ast.walk(ast.parse(source)):
        name = getattr(getattr(call, "func", None), "attr", "")
        named = any(k.arg == "encoding" for k in getattr(call, "keywords", ()))
        least = {"read_text": 1, "write_text": 2}.get(name, 0)
        if least and not named and len(call.args) < least:
            yield call.lineno


def test_every_text_file_is_read_and_written_in_a_named_encoding():
    """Ruff's rule finds calls on paths of a known type; this finds the others."""
    offenders = []
    for pattern in ("factkit/**/*.py", "tests/**/*.py", "notebooks/*.ipynb"):
        for path in ROOT.glob(pattern):
            sources = [path.read_text("utf-8")]
            if "_text(" not in sources[0]:
                continue
            if path.suffix == ".ipynb":
                cells = json.loads(sources[0])["cells"]
                code = [c for c in cells if c["cell_type"] == "code"]
                sources = ["".join(cell["source"]) for cell in code]
            for source in sources:
                offenders += [(path, n) for n in calls_without_encoding(source)]
    assert offenders == []
