"""What we hand to vLLM and Unsloth, against the parameters of these versions."""

import ast
import inspect
import re
import zipfile

import pytest

from factkit import params
from factkit.params import ROOT
from factkit.train import rollouts, setup

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


def test_vllm_serve_has_the_flags_that_the_docstring_shows():
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    flags = set(re.findall(r"--[\w-]+", inspect.getdoc(rollouts.rollout_arguments)))
    parser = make_arg_parser(FlexibleArgumentParser())
    known = {flag for action in parser._actions for flag in action.option_strings}
    assert flags and flags <= known
