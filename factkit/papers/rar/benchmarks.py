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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from factkit import UserError
from factkit.data import assets
from factkit.papers.rar.arms import RUN_CODE, SUITES, RarParams
from factkit.policy import models, vllm_engine
from factkit.run.files import write_atomically
from factkit.verify import response
from factkit.verify.response import CLOSE

CONTAINER = ("/.dockerenv", "/run/.containerenv")  # files in one
REASONED = "aime25"  # the benchmark whose reasoning's length is measured (Table 6)


class BenchmarkError(UserError):
    """A benchmark can't be run or read; the message names the fix."""


def run(
    names: Sequence[str], settings: Mapping[str, Any], folder: Path
) -> dict[str, float]:
    """Scores in [0, 1] of the public benchmarks among `names`, and `lengths`; scores
    that are in `folder` are not measured again. IFEval's is also `format_following`,
    the metric of the paper's claim.

    settings: from `model_settings`. Raises BenchmarkError on code outside a container,
    and if lm-eval fails.
    """
    names = [name for name in names if name in SUITES]
    missing = [name for name in names if name not in read_scores(folder)]
    reasoned = [name for name in missing if name == REASONED]
    for part in ([name for name in missing if name != REASONED], reasoned):
        if part:
            _run_harness(harness_config(part, settings, folder), folder)
    scores = read_scores(folder)
    if lacking := [name for name in names if name not in scores]:
        raise BenchmarkError(f"{folder}: lm-eval left no score of {', '.join(lacking)}")
    metrics = {name: scores[name] for name in names}
    if REASONED in names:
        metrics |= lengths(settings["model_args"]["pretrained"], folder)
    if "ifeval" in names:
        metrics["format_following"] = scores["ifeval"]
    return metrics


def lengths(policy: str, folder: Path) -> dict[str, float]:
    """Mean tokens of the reasoning and of the answer on AIME25 (Table 6), from the
    responses that lm-eval logged in `folder`; empty without. A response whose reasoning
    never ends has no answer."""
    logs = sorted(folder.rglob(f"samples_{REASONED}_*.jsonl"), key=lambda p: p.name)
    if not logs:
        return {}
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(assets.policy_path(policy))
    texts = [replies[0][0] for replies in pd.read_json(logs[-1], lines=True).resps]
    parts = {
        "reasoning_tokens": list(map(response.extract_reasoning, texts)),
        "response_tokens": response.extract_answers(texts),
    }
    return {
        f"{REASONED}_{name}": sum(map(len, tokenizer(part)["input_ids"])) / len(part)
        for name, part in parts.items()
    }


def model_settings(policy: str, p: RarParams) -> dict[str, Any]:
    """The part of lm-eval's configuration that says how the policy in a folder, a LoRA
    adapter, too, is loaded and sampled."""
    backend = "hf" if p.rollouts == "transformers" else "vllm"
    model: dict[str, Any] = {"pretrained": policy, "dtype": "auto"}
    if adapter := models.adapter_config(policy):
        model["pretrained"] = adapter["base_model_name_or_path"]
        lora = {"lora_local_path": policy, "max_lora_rank": adapter["r"]}
        model |= {"peft": policy} if backend == "hf" else lora
    model["max_length"] = p.for_evaluation.max_context_length
    if backend == "vllm":
        engine = models.vllm_arguments(policy, p)
        # several engines need Ray: one engine on all GPUs that train
        model["tensor_parallel_size"] = max(p.num_processes, p.vllm_tensor_parallel)
        model["gpu_memory_utilization"] = engine["gpu_memory_utilization"]
    limits = {"max_gen_toks": p.for_evaluation.max_completion_length}
    return {"model": backend, "model_args": model, "gen_kwargs": limits}


def harness_config(
    names: Sequence[str], settings: Mapping[str, Any], folder: Path
) -> dict[str, Any]:
    """lm-eval's configuration for these benchmarks; prompts go through the policy's
    chat template, shots as turns. Raises BenchmarkError on a benchmark that runs code,
    outside a container."""
    code = [name for name in names if name in RUN_CODE]
    if code and not in_container():
        raise BenchmarkError(
            f"{', '.join(code)}: runs code that the model writes, and this is no "
            "container; start one (docker run --network none …), or leave it out"
        )
    model, limits = dict(settings["model_args"]), dict(settings["gen_kwargs"])
    if names == [REASONED]:
        limits["until"] = []  # its log holds all of a response, reasoning too
    else:
        model["think_end_token"] = CLOSE
    return {
        "model": settings["model"],
        "model_args": model,
        "gen_kwargs": limits,
        "tasks": [SUITES[name][0] for name in names],
        "batch_size": "auto",
        "apply_chat_template": True,
        "fewshot_as_multiturn": True,
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


def read_scores(folder: Path) -> dict[str, float]:
    """The scores of benchmarks in `folder`, of several results the latest. Raises
    BenchmarkError on a file that can't be read, or lacks a task's metric."""
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
    """Run lm-eval in a process of its own, which frees the GPU when it ends; its output
    goes to stderr."""
    folder.mkdir(parents=True, exist_ok=True)
    vllm_engine.free_gpus()
    path = folder / "lm_eval.yaml"
    write_atomically(path, json.dumps(settings, indent=1))
    allowed = "1" if settings["confirm_run_unsafe_code"] else "0"
    environment = os.environ | {"HF_ALLOW_CODE_EVAL": allowed}
    environment.pop("TQDM_DISABLE", None)  # vLLM divides by its bar's time
    command = [sys.executable, "-m", "lm_eval", "run", "--config", str(path)]
    process = subprocess.run(
        command,
        env=environment,
        cwd=os.environ.get("FACTKIT_HUB"),  # where data sets' names are folders
        stdout=sys.stderr.fileno(),
    )
    if process.returncode:
        raise BenchmarkError(
            f"lm-eval failed with exit code {process.returncode}; see its last lines. "
            "Install it with pip install '.[gpu]' 'lm-eval[ifeval,math]'. "
            f"Settings: {path}"
        )
