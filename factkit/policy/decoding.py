"""How to decode, and what decoding with transformers needs beyond `generate`."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from factkit.policy import cpu
from factkit.policy.vllm_engine import Tokens

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import BatchEncoding, Cache
    from transformers import PreTrainedModel as Model

SHARED_PREFIX = 16  # tokens, at least, to be worth a cache of its own


@dataclass(frozen=True)
class Sampling:
    """How to decode. temperature 0: greedy; `max_new_tokens` in tokens.

    one_line: a completion ends at its first newline, as a short answer does.
    logprobs: tokens come with log π at temperature 1.
    batch_size: sequences at a time with transformers; vLLM schedules its own.
    """

    max_new_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    batch_size: int = 64
    one_line: bool = True
    logprobs: bool = False


class LogpRecorder:
    """log π of the tokens that `generate` samples, at temperature 1.

    As a logits processor it sees the logits of a step before they are warped, and at
    the next step which token was sampled.
    """

    def __init__(self) -> None:
        self.steps: list[Tensor] = []
        self.last: Tensor | None = None

    def __call__(self, input_ids: "Tensor", scores: "Tensor") -> "Tensor":
        self._record(input_ids)
        self.last = scores.float().log_softmax(-1)
        return scores

    def _record(self, input_ids: "Tensor") -> None:
        if self.last is not None:
            self.steps.append(self.last.gather(-1, input_ids[:, -1:]))

    def logps(self, output: "Tensor") -> "Tensor":
        """log π (B, T) of the new tokens of `generate`'s output."""
        import torch

        self._record(output)
        return torch.cat(self.steps, dim=1)


def arguments(sampling: Sampling) -> dict[str, object]:
    """transformers' generation arguments; they override those of a model's files."""
    sampled = sampling.temperature > 0
    return {
        "do_sample": sampled,
        "repetition_penalty": 1.0,
        "temperature": sampling.temperature if sampled else None,
        "top_p": sampling.top_p if sampled else None,
        "top_k": 0 if sampled else None,
    }


def by_length(rows: Sequence[Tokens], size: int) -> Iterator[list[int]]:
    """Batches of indices, the shortest rows first: that takes the least padding."""
    order = sorted(range(len(rows)), key=lambda i: (len(rows[i]), i))
    for start in range(0, len(order), size):
        yield order[start : start + size]


def shared_prefix(ids: Sequence[Tokens]) -> Tokens:
    """The tokens that all prompts begin with, if they are worth reading apart."""
    length = min(len(os.path.commonprefix(ids)), min(map(len, ids)) - 1)
    return ids[0][:length] if length >= SHARED_PREFIX else []


def generate_inputs(
    model: "Model",
    padded: "BatchEncoding",
    prefix: Tokens,
    cache: "Cache | None",
    n: int,
) -> dict[str, Any]:
    """Arguments of `generate` for B · n rows, n completions per prompt.

    padded: `input_ids` and `attention_mask` (B, L) of what follows `prefix`, whose keys
    and values `cache` holds. If n > 1, all but a prompt's last token is read here.
    """
    import torch

    rows, length = padded["input_ids"].shape
    ahead = torch.tensor([prefix] * rows, dtype=torch.long).to(model.device)
    ids = torch.cat([ahead, padded["input_ids"]], dim=1).repeat_interleave(n, dim=0)
    mask = torch.cat([torch.ones_like(ahead), padded["attention_mask"]], dim=1)
    mask = mask.repeat_interleave(n, dim=0)
    if n > 1 and length > 1:
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        group = torch.arange(rows, device=ids.device).repeat_interleave(n)
        new = slice(len(prefix), -1)
        cache = cpu.read_once(
            model, ids[:, new], mask[:, :-1], positions[:, new], cache, group
        )
    elif cache is not None:
        cache.batch_repeat_interleave(rows * n)
    inputs = {"input_ids": ids, "attention_mask": mask}
    return inputs | ({"past_key_values": cache} if cache is not None else {})
