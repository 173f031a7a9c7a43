"""One place of pins: environment.yml and the locks agree with pyproject.toml."""

import re
import tomllib

import yaml

from factkit.params import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BASE, EXTRAS = set(PROJECT["dependencies"]), PROJECT["optional-dependencies"]


def lock(name):
    text = (ROOT / "factkit" / "locks" / f"{name}.txt").read_text()
    return {pin.lower() for pin in re.findall(r"^[\w.-]+==[^\s\\;]+", text, re.M)}


def test_every_requirement_is_pinned_and_locked():
    every = BASE.union(*EXTRAS.values())
    assert [r for r in every if "==" not in r] == []
    for name, extras in (("cpu", ["dev"]), ("gpu", ["dev", "gpu"])):
        pins = BASE.union(*(EXTRAS[extra] for extra in extras))
        assert {pin.lower() for pin in pins} <= lock(name), name
    assert lock("assets") == set(EXTRAS["assets"])


def test_environment_yml_holds_the_pins_of_base_and_gpu():
    parts = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    (pip,) = [part["pip"] for part in parts if isinstance(part, dict)]
    pins = {line for line in pip if not line.startswith("--")}
    assert pins == BASE | set(EXTRAS["gpu"])
