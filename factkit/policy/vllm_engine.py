"""vLLM engines in processes of their own.

A start takes a minute or two, so engines run on while their arguments stay the same.
Only the end of their processes frees their GPUs: before engines with other arguments,
training or lm-eval start, and with this process.
"""

import gc
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from factkit import UserError
from factkit.run import child, gpus

if TYPE_CHECKING:
    from vllm import LLM, RequestOutput
    from vllm.lora.request import LoRARequest

Tokens = list[int]
Sampled = tuple[Tokens, list[float]]  # with log π at temperature 1, if asked for
IDLE_S = 60.0  # that an idle engine has to end by itself


class EngineError(UserError):
    """An engine did not start, or ended; the message says why."""


@dataclass(frozen=True)
class VllmEngine:
    """Engines `vllm.LLM(**arguments)`, which start with their first job.

    arguments: `tokenizer` is the folder of the model or of its adapter. replicas:
    engines that share the prompts, each on GPUs of its own.
    """

    arguments: Mapping[str, Any]
    replicas: int = 1

    def generate(
        self, prompts: Sequence[Tokens], settings: Sequence[dict[str, Any]]
    ) -> list[list[Sampled]]:
        """As `generate` below. Raises EngineError if an engine fails; the next job then
        starts others."""
        if not (_live and all(e == self and p.poll() is None for e, p, _ in _live)):
            self._start()
        n = min(self.replicas, len(prompts))
        jobs = [(list(prompts[i::n]), list(settings[i::n])) for i in range(n)]
        replies: list[Any] = [None] * len(prompts)
        for i, reply in enumerate(self._replies(jobs)):
            replies[i::n] = reply
        return replies

    def _start(self) -> None:
        free_gpus()
        for i in range(self.replicas):
            ours, theirs = Pipe()
            command = child.command(sys.executable, "-m", "factkit.policy.vllm_engine")
            process = subprocess.Popen(  # its output goes to stderr
                command, stdin=theirs.fileno(), stdout=2, env=os.environ | self._gpus(i)
            )
            theirs.close()
            _live.append((self, process, ours))
        self._replies([dict(self.arguments)] * self.replicas)

    def _gpus(self, i: int) -> dict[str, str]:
        n = self.arguments.get("tensor_parallel_size", 1)
        devices = list(gpus.visible())[i * n : (i + 1) * n]
        return {"CUDA_VISIBLE_DEVICES": ",".join(devices)} if devices else {}

    def logps(self, texts: Sequence[Tokens]) -> list[list[float]]:
        """log π of each text's tokens but the first, at temperature 1."""
        settings = {"prompt_logprobs": 0, "max_tokens": 1}
        rows = self.generate(texts, [settings] * len(texts))
        return [logps for ((_, logps),) in rows]

    def _replies(self, messages: Sequence[object]) -> list[Any]:
        """Each process's reply to its message; if one fails, all are ended."""
        pipes = [pipe for _, _, pipe in _live[: len(messages)]]
        try:
            for pipe, message in zip(pipes, messages, strict=True):
                pipe.send(message)
            replies = [pipe.recv() for pipe in pipes]
        except (EOFError, OSError):
            replies = ["its process ended; what it printed last may say why"]
        except BaseException:  # a late reply must not answer the next message
            _end(0)
            raise
        for reply in replies:
            if isinstance(reply, str):
                _end(IDLE_S)
                name = self.arguments.get("tokenizer")
                raise EngineError(f"the vLLM engine of {name} failed: {reply}")
        return replies


_live: list[tuple[VllmEngine, subprocess.Popen, Connection]] = []  # of one VllmEngine


def free_gpus() -> None:
    """End the engines and free the GPU memory that this process no longer uses."""
    import torch

    _end(IDLE_S)
    gc.collect()
    torch.cuda.empty_cache()


def _end(patience_s: float) -> None:
    while _live:
        _, process, pipe = _live.pop()
        pipe.close()  # an idle one then ends by itself
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()


# ---- where the engine is


def generate(
    llm: "LLM",
    prompts: Sequence[Tokens],
    settings: Sequence[Mapping[str, Any]],
    adapter: "LoRARequest | None" = None,
) -> list[list[Sampled]]:
    """Each prompt's completions; settings: of vLLM's SamplingParams for each prompt.

    logprobs=0 adds log π of their tokens. prompt_logprobs=0 returns the prompt's own
    tokens but the first, with log π, in place of completions.
    """
    from vllm import SamplingParams

    def completions(reply: "RequestOutput") -> list[Sampled]:
        rows = [(output.token_ids, output.logprobs or ()) for output in reply.outputs]
        if reply.prompt_logprobs:
            rows = [(reply.prompt_token_ids[1:], reply.prompt_logprobs[1:])]
        return [
            (list(ids), [step[i].logprob for step, i in zip(steps, ids)])  # noqa: B905
            for ids, steps in rows
        ]

    inputs = [{"prompt_token_ids": ids} for ids in prompts]
    sampling = [SamplingParams(**values) for values in settings]
    replies = llm.generate(inputs, sampling, use_tqdm=False, lora_request=adapter)
    return list(map(completions, replies))


def main() -> None:
    """Load the engine, then reply to jobs until the pipe closes."""
    jobs, llm, adapter = Connection(os.dup(0)), None, None
    # processes that vLLM starts must not hold the pipe
    with open(os.devnull, encoding="utf-8") as nothing:
        os.dup2(nothing.fileno(), 0)
    try:
        from vllm import LLM

        arguments = jobs.recv()
        # log-probabilities of the model itself, whatever the temperature
        llm = LLM(**arguments, logprobs_mode="raw_logprobs")
        if arguments.get("enable_lora"):
            from vllm.lora.request import LoRARequest

            adapter = LoRARequest("policy", 1, arguments["tokenizer"])
        jobs.send(None)
        while True:
            prompts, settings = jobs.recv()
            jobs.send(generate(llm, prompts, settings, adapter))
    except EOFError:
        pass
    except Exception as error:
        jobs.send(f"{type(error).__name__}: {error}")
        raise
    finally:
        # modules that vLLM imports keep frames in which it is never collected, and at
        # exit the process could wait for ever
        if llm:
            llm.llm_engine.engine_core.shutdown()


if __name__ == "__main__":
    main()
