"""What we hand to vLLM and Unsloth, against the parameters of these versions."""

import ast
import re
import zipfile

import pytest

from factkit import params
from factkit.params import ROOT
from factkit.train import setup

WHEELS = sorted(ROOT.glob(".venv-vllm/wheels/unsloth-*.whl"))


def parameters(source: str, file: str, function: str) -> set[str]:
    """Names of a function's parameters in a Python source, read without running it."""
    for node in ast.walk(ast.parse(source, file)):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return {a.arg for a in [*node.args.args, *node.args.kwonlyargs]}
    raise LookupError(f"{file} has no function {function}")


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
