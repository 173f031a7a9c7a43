"""Public utility benchmarks through lm-evaluation-harness, in a process of its own.

A process of its own gives the GPU back when it ends. Task names and metrics are those
of lm-eval 0.4.13; the tests hold them against its list. Deviations from Binary RAR
App. B: `minerva` is the MATH test set under Minerva's prompt (the paper describes a set
of 272 problems, which lm-eval does not have), and the variants of a benchmark (shots,
prompt, strict or loose scoring), which the paper does not name, are ours. BIG-bench
Hard, GSM8K and MATH keep their shots, given as turns of a chat.

HumanEval and MBPP run what the model writes, in lm-eval. They need `allow_code=True`
and a container that the user has started, best without a network and with nothing in
reach that matters, as by

    docker run --rm --network none --gpus all -v "$PWD":/kit -w /kit IMAGE papermill …

Outside one they are refused: a sandbox written in Python holds no program back.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from factkit.assets import write_atomically
from factkit.verify.response import final_answer, reasoning

SETTINGS = "lm_eval.yaml"
MATH = ("math_verify", "sympy", "antlr4")
CODE = ("evaluate",)


class SuiteError(RuntimeError):
    """A benchmark can't be run or read; the message names the fix."""


@dataclass(frozen=True)
class Suite:
    """A benchmark: lm-eval's task, the metric taken from it, and what it needs.

    metric: "<metric>,<filter>" as in lm-eval's results. needs: modules that lm-eval
    leaves to an extra. runs_code: it runs code that the model writes.
    """

    task: str
    metric: str
    needs: tuple[str, ...] = ()
    runs_code: bool = False


SUITES = {
    "ifeval": Suite(
        "ifeval",
        "prompt_level_strict_acc,none",
        ("langdetect", "immutabledict", "nltk"),
    ),
    "bbh": Suite("bbh_cot_fewshot", "exact_match,get-answer"),
    "gsm8k": Suite("gsm8k", "exact_match,flexible-extract"),
    "minerva": Suite("minerva_math", "math_verify,none", MATH),
    "humaneval": Suite("humaneval_instruct", "pass@1,create_test", CODE, True),
    "humaneval_plus": Suite("humaneval_plus", "pass@1,create_test", CODE, True),
    "mbpp": Suite("mbpp_instruct", "pass_at_1,extract_code", CODE, True),
    "mbpp_plus": Suite("mbpp_plus_instruct", "pass_at_1,extract_code", CODE, True),
    "gpqa": Suite("gpqa_main_cot_zeroshot", "exact_match,flexible-extract"),
    "aime25": Suite("aime25", "exact_match,none"),
}


def run(
    model: str, suites: Sequence[str], folder: Path, **options: Any
) -> dict[str, float]:
    """Each suite's score in [0, 1] and its standard error, {"gsm8k": …}; see `scores`.

    Suites whose results lie in `folder` are not run again. options: of `arguments`.
    Raises SuiteError on an unknown suite, a missing package, code that is not allowed,
    a folder of other settings, and if lm-eval fails.
    """
    settings = arguments(model, suites, folder, **options)
    _refuse_other_settings(folder, settings)
    done = scores(folder)
    missing = [name for name in suites if name not in done]
    if missing:
        settings["tasks"] = [SUITES[name].task for name in missing]
        _run_harness(missing, folder, settings)
        done = scores(folder)
    without = [name for name in suites if name not in done]
    if without:
        raise SuiteError(f"{folder}: lm-eval left no result of {', '.join(without)}")
    wanted = {key for name in suites for key in (name, f"{name}_stderr")}
    return {key: value for key, value in done.items() if key in wanted}


def arguments(
    model: str,
    suites: Sequence[str],
    folder: Path,
    backend: Literal["vllm", "hf"] = "vllm",
    model_args: Mapping[str, Any] | None = None,
    gen_kwargs: Mapping[str, Any] | None = None,
    allow_code: bool = False,
    limit: int | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """lm-eval's configuration (its `--config` file) for these suites.

    model: a folder (a LoRA adapter, too) or hub name, asked through its chat template.
    model_args, gen_kwargs: lm-eval's, besides (max_model_len, think_end_token;
    do_sample, temperature …). Raises SuiteError on an unknown suite, and on one that
    runs code without `allow_code` or outside a container.
    """
    unknown = [name for name in suites if name not in SUITES]
    if unknown or not suites:
        raise SuiteError(
            f"suites: {', '.join(unknown) or 'none'}; known are {', '.join(SUITES)}"
        )
    unsafe = [name for name in suites if SUITES[name].runs_code]
    if unsafe and not allow_code:
        raise SuiteError(
            f"{', '.join(unsafe)}: runs code that the model writes; set "
            "allow_code=True inside a container, or leave it out"
        )
    if unsafe and not in_container():
        raise SuiteError(
            f"{', '.join(unsafe)}: runs code that the model writes, and this is no "
            "container; start one (docker run --network none …), or leave it out"
        )
    return {
        "model": backend,
        "model_args": _loading(model, backend) | dict(model_args or {}),
        "tasks": [SUITES[name].task for name in suites],
        "batch_size": "auto",
        "apply_chat_template": True,
        "fewshot_as_multiturn": True,
        "gen_kwargs": dict(gen_kwargs or {}),
        "limit": limit,
        "log_samples": True,
        "output_path": str(folder),
        "seed": [seed, seed, seed, seed],
        "confirm_run_unsafe_code": bool(unsafe),
        "trust_remote_code": False,
    }


def in_container() -> bool:
    """Whether this process runs in a container of Docker, Podman or Apptainer."""
    marks = (Path("/.dockerenv"), Path("/run/.containerenv"))
    names = ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "KUBERNETES_SERVICE_HOST")
    return any(m.exists() for m in marks) or any(n in os.environ for n in names)


def scores(folder: Path) -> dict[str, float]:
    """The suites' scores that lie in `folder`: {"gsm8k": …, "gsm8k_stderr": …}.

    Of several results the latest counts. Raises SuiteError on a file that can't be
    read, or lacks the metric of a task that it holds.
    """
    table: dict[str, float] = {}
    for path in sorted(folder.rglob("results_*.json"), key=lambda p: p.name):
        try:
            results = json.loads(path.read_text(encoding="utf-8"))["results"]
        except (ValueError, KeyError) as error:
            raise SuiteError(
                f"{path}: no results of lm-eval ({error}); remove the file"
            ) from None
        for name, suite in SUITES.items():
            if suite.task in results:
                table |= _score(name, suite, results[suite.task], path)
    return table


def lengths(folder: Path, suite: str, tokenizer) -> dict[str, float]:
    """Mean tokens of reasoning and of what follows it (Binary RAR A.5, Table 6).

    From the responses that lm-eval kept. They must hold their reasoning: run the suite
    without `think_end_token`, which makes lm-eval cut it off.
    """
    said = [
        response
        for path in sorted(folder.rglob(f"samples_{SUITES[suite].task}_*.jsonl"))
        for line in path.read_bytes().splitlines()
        for (response,) in json.loads(line)["resps"]
    ]
    if not said:
        raise SuiteError(f"{folder}: holds no responses of {suite}; run it first")
    parts = {
        "reasoning_tokens": [reasoning(s) for s in said],
        "response_tokens": [final_answer(s, boxed_required=False) for s in said],
    }
    return {
        name: sum(map(len, tokenizer(texts, add_special_tokens=False)["input_ids"]))
        / len(texts)
        for name, texts in parts.items()
    }


def _loading(model: str, backend: str) -> dict[str, Any]:
    """lm-eval's arguments that load a model, or a LoRA adapter on its base."""
    adapter = Path(model) / "adapter_config.json"
    if not adapter.exists():
        return {"pretrained": model, "dtype": "auto"}
    config = json.loads(adapter.read_text(encoding="utf-8"))
    base = {"pretrained": config["base_model_name_or_path"], "dtype": "auto"}
    if backend == "hf":
        return base | {"peft": model}
    return base | {"lora_local_path": model, "max_lora_rank": config["r"]}


def _refuse_other_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Raise SuiteError if the folder holds results of other settings than these."""
    if not (folder / SETTINGS).exists():
        return
    before = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    # which tasks were run with them, and so whether code was, may differ
    free = ("tasks", "confirm_run_unsafe_code")
    differ = [k for k in settings if k not in free and before.get(k) != settings[k]]
    if differ:
        raise SuiteError(
            f"{folder}: holds results of another {', '.join(differ)}; give another "
            "folder, or remove it"
        )


def _run_harness(
    suites: Sequence[str], folder: Path, settings: Mapping[str, Any]
) -> None:
    """lm-eval on a configuration; what it says goes to stderr."""
    needed = {"lm_eval", *(m for name in suites for m in SUITES[name].needs)}
    absent = sorted(module for module in needed if find_spec(module) is None)
    if absent:
        raise SuiteError(
            f"{', '.join(absent)} not installed; {', '.join(suites)} can't run: "
            "pip install '.[gpu]', and lm-eval's extras: 'lm-eval[ifeval,math]'"
        )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / SETTINGS
    write_atomically(path, json.dumps(settings, indent=1))
    environment = {k: v for k, v in os.environ.items() if k != "HF_ALLOW_CODE_EVAL"}
    if settings["confirm_run_unsafe_code"]:
        environment["HF_ALLOW_CODE_EVAL"] = "1"
    command = [sys.executable, "-m", "lm_eval", "run", "--config", str(path)]
    ended = subprocess.run(command, env=environment, stdout=sys.stderr.fileno())
    if ended.returncode:
        raise SuiteError(
            f"lm-eval failed with exit code {ended.returncode}; its last lines above "
            f"say why. Settings: {path}"
        )


def _score(
    name: str, suite: Suite, results: Mapping[str, Any], path: Path
) -> dict[str, float]:
    value = results.get(suite.metric)
    if not isinstance(value, int | float):
        raise SuiteError(f"{path}: {suite.task} has no number for {suite.metric!r}")
    metric, _, filtered = suite.metric.partition(",")
    error = results.get(f"{metric}_stderr,{filtered}")
    known = isinstance(error, int | float)  # lm-eval writes "N/A" where there is none
    return {name: float(value)} | ({f"{name}_stderr": float(error)} if known else {})
