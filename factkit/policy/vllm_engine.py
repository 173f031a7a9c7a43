"""vLLM engines in processes of their own, which sample and score for this one.

A start takes a minute or two, so engines are kept while their arguments stay the same.
They give their GPUs back only when their processes end: before engines with other
arguments start, before training or lm-eval does, and with this process.
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
Sampled = tuple[Tokens, list[float]]  # and their log π at temperature 1, if asked for
IDLE_S = 60.0  # for an idle engine to end by itself


class EngineError(UserError):
    """An engine could not start, or ended; the message says why."""


@dataclass(frozen=True)
class VllmEngine:
    """Engines that `vllm.LLM(**arguments)` makes; they start with their first job.

    arguments: with `model`, and `tokenizer`: the model's folder, or its adapter's.
    replicas: engines, each on GPUs of its own, to which prompts are dealt.
    """

    arguments: Mapping[str, Any]
    replicas: int = 1

    def generate(
        self, prompts: Sequence[Tokens], settings: Sequence[dict[str, Any]]
    ) -> list[list[Sampled]]:
        """What `generate` below gives for prompts, each with settings of its own.

        Raises EngineError if an engine fails; then the next job starts others.
        """
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
            # what it prints goes where errors go
            process = subprocess.Popen(
                command, stdin=theirs, stdout=2, env=os.environ | self._gpus(i)
            )
            theirs.close()
            _live.append((self, process, ours))
        self._replies([dict(self.arguments)] * self.replicas)

    def _gpus(self, i: int) -> dict[str, str]:
        """The environment's variable with the GPUs of engine i, where there are any."""
        n = self.arguments.get("tensor_parallel_size", 1)
        own = list(gpus.visible())[i * n : (i + 1) * n]
        return {"CUDA_VISIBLE_DEVICES": ",".join(own)} if own else {}

    def logps(self, texts: Sequence[Tokens]) -> list[list[float]]:
        """log π of each text's tokens but the first, at temperature 1."""
        settings = {"prompt_logprobs": 0, "max_tokens": 1}
        rows = self.generate(texts, [settings] * len(texts))
        return [logps for ((_, logps),) in rows]

    def _replies(self, messages: Sequence[object]) -> list[Any]:
        """The reply of each process to its message; without one all are ended."""
        pipes = [pipe for _, _, pipe in _live[: len(messages)]]
        try:
            for pipe, message in zip(pipes, messages, strict=True):
                pipe.send(message)
            replies = [pipe.recv() for pipe in pipes]
        except (EOFError, OSError):
            replies = ["its process ended; what it printed last may say why"]
        except BaseException:  # a late reply would be taken for the next message's
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
    """End the engines, if any run, and give back what this process no longer uses of
    the GPUs' memory."""
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
    """Each prompt's completions by vLLM's SamplingParams of `settings`; logprobs=0:
    with log π of their tokens; prompt_logprobs=0: instead the prompt's own tokens but
    the first, with theirs."""
    from vllm import SamplingParams

    rows = [{"prompt_token_ids": ids} for ids in prompts]
    how = [SamplingParams(**own) for own in settings]
    replies = llm.generate(rows, how, use_tqdm=False, lora_request=adapter)
    return [_sampled(reply) for reply in replies]


def _sampled(reply: "RequestOutput") -> list[Sampled]:
    rows = [(output.token_ids, output.logprobs or ()) for output in reply.outputs]
    if reply.prompt_logprobs:
        rows = [(reply.prompt_token_ids[1:], reply.prompt_logprobs[1:])]
    own = [[at[i].logprob for at, i in zip(steps, ids)] for ids, steps in rows]  # noqa: B905
    return [(list(ids), logps) for (ids, _), logps in zip(rows, own, strict=True)]


def main() -> None:
    """What the process runs: load, then reply to jobs until the pipe closes."""
    jobs, llm, adapter = Connection(os.dup(0)), None, None
    # what vLLM starts is not to hold the pipe
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
            jobs.send(generate(llm, *jobs.recv(), adapter))
    except EOFError:
        pass
    except Exception as error:
        jobs.send(f"{type(error).__name__}: {error}")
        raise
    finally:
        # not left to Python: modules that vLLM imports keep frames in which it is never
        # collected, and at exit the process could wait for ever
        if llm:
            llm.llm_engine.engine_core.shutdown()


if __name__ == "__main__":
    main()
