"""Public utility benchmarks through lm-evaluation-harness, in a process of its own.

A process of its own gives the GPU back when it ends. Task names and metrics are those
of lm-eval 0.4.13; the tests hold them against its list. Deviations from Binary RAR
App. B: `minerva` is the MATH test set under Minerva's prompt (the paper describes a set
of 272 problems, which lm-eval does not have), and the variants of a benchmark (shots,
prompt, strict or loose scoring), which the paper does not name, are ours.

HumanEval and MBPP run what the model writes, in lm-eval. They need `allow_code` and a
container that the user has started, best without a network and with nothing in reach
that matters, as by

    docker run --rm --network none --gpus all -v "$PWD":/kit -w /kit IMAGE papermill …
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit import UserError
from factkit.assets import write_atomically
from factkit.verify.response import CLOSE

if TYPE_CHECKING:
    from factkit.rar.arms import RarParams

# name → lm-eval's task, and the metric taken from it: "<metric>,<filter>"
SUITES = {
    "ifeval": ("ifeval", "prompt_level_strict_acc,none"),
    "bbh": ("bbh_cot_fewshot", "exact_match,get-answer"),
    "gsm8k": ("gsm8k", "exact_match,flexible-extract"),
    "minerva": ("minerva_math", "math_verify,none"),
    "humaneval": ("humaneval_instruct", "pass@1,create_test"),
    "humaneval_plus": ("humaneval_plus", "pass@1,create_test"),
    "mbpp": ("mbpp_instruct", "pass_at_1,extract_code"),
    "mbpp_plus": ("mbpp_plus_instruct", "pass_at_1,extract_code"),
    "gpqa": ("gpqa_main_cot_zeroshot", "exact_match,flexible-extract"),
    "aime25": ("aime25", "exact_match,none"),
}
RUN_CODE = ("humaneval", "humaneval_plus", "mbpp", "mbpp_plus")


class BenchmarkError(UserError):
    """A benchmark can't be run or read; the message names the fix."""


def run(policy: str, p: "RarParams", folder: Path) -> dict[str, float]:
    """Scores in [0, 1] of the benchmarks in `p.utility_benchmarks`, by lm-eval on the
    policy in its folder. What lies in `folder` is not run again.

    Raises BenchmarkError on code outside a container, and if lm-eval fails.
    """
    names = [name for name in p.utility_benchmarks.split() if name in SUITES]
    done = scores(folder)
    missing = [name for name in names if name not in done]
    if missing:
        _run_harness(arguments(policy, missing, p, folder), folder)
        done = scores(folder)
    if lacking := [name for name in names if name not in done]:
        raise BenchmarkError(f"{folder}: lm-eval left no score of {', '.join(lacking)}")
    return {name: done[name] for name in names}


def arguments(
    policy: str, names: list[str], p: "RarParams", folder: Path
) -> dict[str, Any]:
    """lm-eval's configuration (its `--config` file) for some benchmarks.

    The policy (a LoRA adapter, too) is asked through its chat template, shots as turns.
    Raises BenchmarkError on a benchmark that runs code, outside a container.
    """
    code = [name for name in names if name in RUN_CODE]
    if code and not in_container():
        raise BenchmarkError(
            f"{', '.join(code)}: runs code that the model writes, and this is no "
            "container; start one (docker run --network none …), or leave it out"
        )
    backend = "hf" if p.rollouts == "transformers" else "vllm"
    model_args = {"think_end_token": CLOSE, "max_length": p.max_context_length}
    return {
        "model": backend,
        "model_args": _loading(policy, backend) | model_args,
        "tasks": [SUITES[name][0] for name in names],
        "batch_size": "auto",
        "apply_chat_template": True,
        "fewshot_as_multiturn": True,
        "gen_kwargs": {"max_gen_toks": p.max_completion_length},
        "log_samples": True,
        "output_path": str(folder),
        "seed": [0, 0, 0, 0],
        "confirm_run_unsafe_code": bool(code),
        "trust_remote_code": False,
    }


def in_container() -> bool:
    """Whether this process runs in a container of Docker, Podman or Apptainer."""
    files = (Path("/.dockerenv"), Path("/run/.containerenv"))
    variables = {"APPTAINER_CONTAINER", "KUBERNETES_SERVICE_HOST"} & os.environ.keys()
    return bool(variables) or any(file.exists() for file in files)


def scores(folder: Path) -> dict[str, float]:
    """The benchmarks' scores that lie in `folder`; of several results the latest.

    Raises BenchmarkError on a file that can't be read, or lacks a task's metric.
    """
    table: dict[str, float] = {}
    for path in sorted(folder.rglob("results_*.json"), key=lambda p: p.name):
        try:
            results = json.loads(path.read_text(encoding="utf-8"))["results"]
            table |= {
                name: float(results[task][metric])
                for name, (task, metric) in SUITES.items()
                if task in results
            }
        except (ValueError, KeyError, TypeError) as error:
            raise BenchmarkError(
                f"{path}: no results of lm-eval ({error!r}); remove the file"
            ) from None
    return table


def _loading(policy: str, backend: str) -> dict[str, Any]:
    """lm-eval's arguments that load a model, or a LoRA adapter on its base."""
    adapter = Path(policy) / "adapter_config.json"
    if not adapter.exists():
        return {"pretrained": policy, "dtype": "auto"}
    config = json.loads(adapter.read_text(encoding="utf-8"))
    base = {"pretrained": config["base_model_name_or_path"], "dtype": "auto"}
    if backend == "hf":
        return base | {"peft": policy}
    return base | {"lora_local_path": policy, "max_lora_rank": config["r"]}


def _run_harness(settings: dict[str, Any], folder: Path) -> None:
    """lm-eval on a configuration; what it says goes to stderr."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "lm_eval.yaml"
    write_atomically(path, json.dumps(settings, indent=1))
    environment = {k: v for k, v in os.environ.items() if k != "HF_ALLOW_CODE_EVAL"}
    if settings["confirm_run_unsafe_code"]:
        environment["HF_ALLOW_CODE_EVAL"] = "1"
    command = [sys.executable, "-m", "lm_eval", "run", "--config", str(path)]
    ended = subprocess.run(command, env=environment, stdout=sys.stderr.fileno())
    if ended.returncode:
        raise BenchmarkError(
            f"lm-eval failed with exit code {ended.returncode}; its last lines above "
            "say why. It comes by pip install '.[gpu]', its extras by "
            f"'lm-eval[ifeval,math]'. Settings: {path}"
        )
