"""One place of pins: environment.yml and the locks agree with pyproject.toml."""

import re
import tomllib

import pytest
import yaml

from factkit.params import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def lock(name):
    text = (ROOT / "factkit" / "locks" / f"{name}.txt").read_text()
    return set(re.findall(r"^[\w.-]+==[^\s\\;]+", text, flags=re.M))


def test_every_requirement_is_pinned():
    loose = [r for r in PROJECT["dependencies"] if "==" not in r]
    loose += [r for extra in EXTRAS.values() for r in extra if "==" not in r]
    assert loose == []


def test_environment_yml_holds_the_pins_of_base_and_gpu():
    parts = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    (pip,) = [part["pip"] for part in parts if isinstance(part, dict)]
    pins = {line for line in pip if not line.startswith("--")}
    assert pins == set(PROJECT["dependencies"]) | set(EXTRAS["gpu"])


@pytest.mark.parametrize(
    ("name", "extras"),
    [("cpu", ["dev"]), ("gpu", ["dev", "gpu"])],
)
def test_a_lock_holds_every_pin(name, extras):
    pins = set(PROJECT["dependencies"]) | {r for e in extras for r in EXTRAS[e]}
    assert {pin.lower() for pin in pins} <= {pin.lower() for pin in lock(name)}


def test_the_asset_lock_is_the_assets_extra():
    assert lock("assets") == set(EXTRAS["assets"])
