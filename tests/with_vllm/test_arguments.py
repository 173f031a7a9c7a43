"""What we hand to vLLM and Unsloth, against the parameters of these versions."""

import ast
import re
import subprocess
import sys
import zipfile

import pytest

from factkit.run import params
from factkit.run.params import ROOT
from factkit.train import rollouts, setup

WHEELS = sorted(ROOT.glob(".venv-vllm/wheels/unsloth-*.whl"))


def parameters(source: str, file: str, function: str) -> set[str]:
    """Names of a function's parameters in a Python source, read without running it."""
    for node in ast.walk(ast.parse(source, file)):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return {a.arg for a in [*node.args.args, *node.args.kwonlyargs]}
    raise LookupError(f"{file} has no function {function}")


# what Unsloth's own function leaves of TRL's class, run by itself: without a GPU the
# package does not import
PATCHED = """
import importlib.util, inspect, linecache, logging, os, re, textwrap
from importlib.metadata import version as importlib_version


from packaging.version import Version
from trl.generation.vllm_generation import VLLMGeneration

logger = logging.getLogger()
own = VLLMGeneration.generate
_unsloth_vllm_sync_colocate = None
%s
vllm_generation_init_patch()

assert VLLMGeneration.generate is not own and hasattr(VLLMGeneration.generate, %r)
assert "self._unsloth_load_lora = model.load_lora" in inspect.getsource(
    VLLMGeneration._init_vllm
)
assert "self.llm.wake_up()" in inspect.getsource(VLLMGeneration.sync_weights)
"""


@pytest.mark.skipif(not WHEELS, reason="Unsloth's wheel is not here")
def test_unsloth_hands_its_adapter_to_the_engine_of_this_trl():
    with zipfile.ZipFile(WHEELS[-1]) as wheel:
        source = wheel.read("unsloth/models/rl_replacements.py").decode()
    (patch,) = (
        ast.get_source_segment(source, node)
        for node in ast.parse(source).body
        if getattr(node, "name", "") == "vllm_generation_init_patch"
    )
    code = PATCHED % (patch, rollouts.UNSLOTH_WRAPPED)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.skipif(not WHEELS, reason="Unsloth's wheel is not here")
def test_unsloth_takes_our_arguments():
    p = params.load("truthrl", "h100_lora")
    loading, adapter = setup.unsloth_arguments("model", p, rollouts=True)
    with zipfile.ZipFile(WHEELS[-1]) as wheel:
        loader = wheel.read("unsloth/models/loader.py").decode()
        llama = wheel.read("unsloth/models/llama.py").decode()
    known = parameters(loader, "loader.py", "from_pretrained")
    known |= set(re.findall(r'kwargs\.get\("(\w+)"', llama))  # what it hands on
    assert set(loading) <= known
    assert set(adapter) <= parameters(llama, "llama.py", "get_peft_model")
