"""The process of a vLLM engine, with a module in vLLM's place."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from retriever import until

from factkit.papers.rar import benchmarks
from factkit.policy import models, vllm_engine
from factkit.policy.policy import load_policy
from factkit.policy.vllm_engine import EngineError, VllmEngine
from factkit.run import params
from factkit.run.params import ROOT
from factkit.train import launch

FAKE = """
import os, signal, time
from types import SimpleNamespace as Name

SamplingParams = Name


class LLM:
    def __init__(self, model, tokenizer, logprobs_mode, max_model_len=0, **_):
        assert logprobs_mode == "raw_logprobs"
        if not max_model_len:
            raise ValueError("no memory left")
        self.llm_engine = Name(engine_core=Name(shutdown=lambda: None))

    def generate(self, rows, settings, use_tqdm, lora_request):
        assert lora_request is None and not use_tqdm
        return [self.reply(row["prompt_token_ids"], own)
                for row, own in zip(rows, settings, strict=True)]

    def reply(self, ids, own):
        if ids[0] == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        if ids[0] == 14:
            raise ValueError("too long")
        if ids[0] == 15:
            time.sleep(600)
        if ids[0] == 16:
            ids = [int(i) for i in os.environ["CUDA_VISIBLE_DEVICES"].split(",")]
        steps = [{i: Name(logprob=-i / 8), 99: Name(logprob=0.0)} for i in ids]
        asked = getattr(own, "prompt_logprobs", None) == 0
        output = Name(token_ids=tuple(ids[::-1]), logprobs=None)
        if getattr(own, "logprobs", None) == 0:
            output.logprobs = steps[::-1]
        return Name(
            outputs=[output] * getattr(own, "n", 1),
            prompt_token_ids=ids,
            prompt_logprobs=[None, *steps[1:]] if asked else None,
        )
"""
ARGUMENTS = {"model": "m", "tokenizer": "m", "max_model_len": 8}
ENGINE = VllmEngine(ARGUMENTS)


@pytest.fixture(autouse=True)
def vllm(tmp_path, monkeypatch):
    (tmp_path / "vllm.py").write_text(FAKE, "utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    yield
    vllm_engine.free_gpus()
    assert not vllm_engine._live


def process():
    """The process in between, which ends with the engine's."""
    return vllm_engine._live[0][1]


def ids_of(engine, *prompts):
    rows = engine.generate(prompts, [{}] * len(prompts))
    return [ids for ((ids, _),) in rows]


def test_an_engine_replies_to_each_prompt_by_its_own_settings():
    settings = [{"n": 2}, {"logprobs": 0}]
    two, one = ENGINE.generate([[1, 2], [3, 4, 5]], settings)
    assert two == [([2, 1], []), ([2, 1], [])]
    assert one == [([5, 4, 3], [-5 / 8, -4 / 8, -3 / 8])]
    assert ENGINE.logps([[3, 4, 5], [7, 8]]) == [[-4 / 8, -5 / 8], [-1.0]]


def test_one_process_serves_while_its_arguments_stay():
    assert ids_of(ENGINE, [1, 2]) == [[2, 1]]
    first = process()
    assert ids_of(VllmEngine(dict(ARGUMENTS)), [1], [2]) == [[1], [2]]
    assert process() is first and first.poll() is None
    ids_of(VllmEngine(ARGUMENTS | {"tokenizer": "adapter"}), [1])
    assert process() is not first and first.poll() == 0


def test_one_that_dies_in_a_job_is_named_and_the_next_job_starts_another():
    ids_of(ENGINE, [1])
    with pytest.raises(EngineError, match="engine of m failed: its process ended"):
        ids_of(ENGINE, [13])
    assert ids_of(ENGINE, [1, 2]) == [[2, 1]]


def test_prompts_are_dealt_to_engines_with_gpus_of_their_own(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7,8")
    two = VllmEngine(ARGUMENTS | {"tensor_parallel_size": 2}, replicas=2)
    assert ids_of(two, [1, 2], [16], [16], [3, 4]) == [[2, 1], [7, 6], [5, 4], [4, 3]]
    assert ids_of(two, [16]) == [[5, 4]]
    processes = [process for _, process, _ in vllm_engine._live]
    with pytest.raises(EngineError, match="its process ended"):
        ids_of(two, [1], [13])
    assert all(process.poll() is not None for process in processes)


def test_one_that_was_killed_between_jobs_is_started_again():
    ids_of(ENGINE, [1])
    between = process()
    children = Path(f"/proc/{between.pid}/task/{between.pid}/children")
    (child,) = children.read_text("utf-8").split()
    os.kill(int(child), signal.SIGKILL)
    until(lambda: between.poll() is not None)
    assert ids_of(ENGINE, [1, 2]) == [[2, 1]]


def test_what_vllm_refuses_is_said():
    with pytest.raises(EngineError, match="ValueError: too long"):
        ids_of(ENGINE, [14])
    without = VllmEngine({"model": "m", "tokenizer": "the-adapter"})
    with pytest.raises(EngineError, match="the-adapter failed.*no memory left"):
        ids_of(without, [1])


def test_the_reply_to_an_interrupted_job_is_not_taken_for_the_next_one_s():
    ids_of(ENGINE, [1])
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        ids_of(ENGINE, [15])
    assert time.monotonic() - start < vllm_engine.IDLE_S  # it is not waited for
    assert ids_of(ENGINE, [1, 2]) == [[2, 1]]


def trained(folder, p):
    assert not vllm_engine._live
    return folder


def test_training_and_benchmarks_have_the_gpus_to_themselves(tmp_path, monkeypatch):
    ids_of(ENGINE, [1])
    launch.made_once(trained)(tmp_path, params.load("truthrl", "tiny"))
    ids_of(ENGINE, [1])
    first = process()
    monkeypatch.setattr(benchmarks.subprocess, "run", lambda *_, **__: alone(first))
    benchmarks._run_harness({"confirm_run_unsafe_code": False}, tmp_path)


def alone(first):
    assert first.poll() == 0
    return vllm_engine.subprocess.CompletedProcess([], 0)


# Who samples


def test_where_vllm_samples_this_process_loads_no_policy(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "load_model", None)
    monkeypatch.setattr(models, "load_tokenizer", lambda path: f"of {path}")
    values = {"rollouts": "vllm_colocate", "dtype": "bfloat16"}
    p = params.load("truthrl", "tiny", values)
    policy = load_policy("whole", p)
    assert policy.tokenizer == "of whole"
    shared = {
        "dtype": "bfloat16",
        "max_model_len": p.max_context_length,
        "tensor_parallel_size": 1,
        "gpu_memory_utilization": 0.8,
    }
    whole = {"model": "whole", "tokenizer": "whole"} | shared
    assert policy.engine == VllmEngine(whole)
    (tmp_path / "adapter_config.json").write_text(
        '{"base_model_name_or_path": "base", "r": 8}', "utf-8"
    )
    adapter = {"model": "base", "tokenizer": str(tmp_path)} | shared
    adapter |= {"enable_lora": True, "max_lora_rank": 8}
    assert load_policy(str(tmp_path), p).engine == VllmEngine(adapter)
