"""Public benchmarks of a policy, by lm-evaluation-harness (Binary RAR App. B).

Deviations: `minerva` is the MATH test set under Minerva's prompt (the paper has a set
of 272 problems, which lm-eval lacks); a problem of AIME25 has one greedy answer (four
samples, A.5); shots, prompts and scoring, which the paper does not name, are ours.
HumanEval and MBPP run what the model writes: they need `allow_code` and a container,
best without a network and with nothing in reach, as by
   docker run --rm --network none --gpus all -v "$PWD":/kit -w /kit IMAGE papermill …
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from factkit import UserError
from factkit.data import assets
from factkit.papers.rar.arms import RUN_CODE, SUITES, RarParams
from factkit.policy import models, vllm_engine
from factkit.run.files import write_atomically
from factkit.verify import response
from factkit.verify.response import CLOSE

CONTAINER = "/.dockerenv", "/run/.containerenv"  # files in one
REASONED = "aime25"  # whose reasoning's length is measured (Table 6)


class BenchmarkError(UserError):
    """A benchmark can't be run or read; the message names the fix."""


def run(policy: str, p: RarParams, folder: Path) -> dict[str, float]:
    """Scores in [0, 1] of the benchmarks in `p.utility_benchmarks`, by lm-eval on the
    policy in its folder, and `lengths`; what lies in `folder` is not run again. That of
    IFEval is also `format_following`, which the paper's claim is on. Raises
    BenchmarkError on code outside a container, and if lm-eval fails."""
    names = [name for name in p.utility_benchmarks.split() if name in SUITES]
    missing = [name for name in names if name not in scores(folder)]
    for alone in (False, True):
        if part := [name for name in missing if (name == REASONED) == alone]:
            _run_harness(arguments(policy, part, p, folder), folder)
    done = scores(folder)
    if lacking := [name for name in names if name not in done]:
        raise BenchmarkError(f"{folder}: lm-eval left no score of {', '.join(lacking)}")
    told = lengths(policy, folder) if REASONED in names else {}
    if "ifeval" in names:
        told["format_following"] = done["ifeval"]
    return {name: done[name] for name in names} | told


def lengths(policy: str, folder: Path) -> dict[str, float]:
    """Mean tokens of the reasoning and of the answer on AIME25 (Table 6), of what
    lm-eval logged in `folder`; none without. Reasoning that never ends is all of it."""
    logs = sorted(folder.rglob(f"samples_{REASONED}_*.jsonl"), key=lambda p: p.name)
    if not logs:
        return {}
    import pandas as pd
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(assets.policy_path(policy))
    texts = [replies[0][0] for replies in pd.read_json(logs[-1], lines=True).resps]
    parts = {
        "reasoning_tokens": list(map(response.reasoning, texts)),
        "response_tokens": response.answers(texts),
    }
    return {
        f"{REASONED}_{name}": sum(map(len, tokenizer(part)["input_ids"])) / len(part)
        for name, part in parts.items()
    }


def arguments(
    policy: str, names: list[str], p: RarParams, folder: Path
) -> dict[str, Any]:
    """lm-eval's configuration; the policy (a LoRA adapter, too) is asked through its
    chat template, shots as turns. Raises BenchmarkError on a benchmark that runs code,
    outside a container."""
    code = [name for name in names if name in RUN_CODE]
    if code and not in_container():
        raise BenchmarkError(
            f"{', '.join(code)}: runs code that the model writes, and this is no "
            "container; start one (docker run --network none …), or leave it out"
        )
    backend = "hf" if p.rollouts == "transformers" else "vllm"
    model = {"pretrained": policy, "dtype": "auto"}
    adapter = Path(policy) / "adapter_config.json"
    if adapter.exists():
        config = json.loads(adapter.read_text(encoding="utf-8"))
        model["pretrained"] = config["base_model_name_or_path"]
        lora = {"lora_local_path": policy, "max_lora_rank": config["r"]}
        model |= {"peft": policy} if backend == "hf" else lora
    model["max_length"] = p.for_evaluation.max_context_length
    limits: dict[str, Any] = {"max_gen_toks": p.for_evaluation.max_completion_length}
    if names == [REASONED]:  # its log is to hold the reasoning, too, uncut
        limits["until"] = []
    else:
        model["think_end_token"] = CLOSE
    if backend == "vllm":
        engine = models.vllm_arguments(policy, p)
        # its own way to several engines needs Ray: one on all GPUs that train
        model["tensor_parallel_size"] = max(p.num_processes, p.vllm_tensor_parallel)
        model["gpu_memory_utilization"] = engine["gpu_memory_utilization"]
    return {
        "model": backend,
        "model_args": model,
        "tasks": [SUITES[name][0] for name in names],
        "batch_size": "auto",
        "apply_chat_template": True,
        "fewshot_as_multiturn": True,
        "gen_kwargs": limits,
        "log_samples": True,
        "output_path": str(folder),
        "seed": [0, 0, 0, 0],
        "confirm_run_unsafe_code": bool(code),
        "trust_remote_code": False,
    }


def in_container() -> bool:
    """Whether this process runs in a container of Docker, Podman or Apptainer."""
    variables = {"APPTAINER_CONTAINER", "KUBERNETES_SERVICE_HOST"} & os.environ.keys()
    return bool(variables) or any(map(os.path.exists, CONTAINER))


def scores(folder: Path) -> dict[str, float]:
    """The benchmarks' scores that lie in `folder`; of several results the latest.
    Raises BenchmarkError on a file that can't be read, or lacks a task's metric."""
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


def _run_harness(settings: dict[str, Any], folder: Path) -> None:
    """lm-eval on a configuration, in a process of its own, which gives the GPU back
    when it ends; what it says goes to stderr."""
    folder.mkdir(parents=True, exist_ok=True)
    vllm_engine.free_gpus()
    path = folder / "lm_eval.yaml"
    write_atomically(path, json.dumps(settings, indent=1))
    allowed = "1" if settings["confirm_run_unsafe_code"] else "0"
    environment = os.environ | {"HF_ALLOW_CODE_EVAL": allowed}
    environment.pop("TQDM_DISABLE", None)  # vLLM divides by the time of its bar
    command = [sys.executable, "-m", "lm_eval", "run", "--config", str(path)]
    ended = subprocess.run(
        command,
        env=environment,
        cwd=os.environ.get("FACTKIT_HUB"),  # where data sets' names are folders
        stdout=sys.stderr.fileno(),
    )
    if ended.returncode:
        raise BenchmarkError(
            f"lm-eval failed with exit code {ended.returncode}; see its last lines. It "
            f"comes by pip install '.[gpu]' 'lm-eval[ifeval,math]'. Settings: {path}"
        )
