"""Sampling a turn of a rollout that searches: by transformers, vLLM, or a server."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from factkit import models

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from vllm import LLM
    from vllm.lora.request import LoRARequest

STOPS = ("</search>", "</answer>")
TAG_TOKENS = 16  # that a closing tag takes at most, with what it shares them with

Tokens = list[int]
# prompts, most new tokens of each → the tokens sampled, up to the end of sequence or to
# the one that completes a tag of STOPS; their log-probabilities, or None for all
Generate = Callable[
    [list[Tokens], Sequence[int]], tuple[list[Tokens], list[list[float]] | None]
]


def with_model(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    sampling: models.Sampling,
) -> Generate:
    """Sampling by transformers, `sampling.batch_size` trajectories at a time."""
    import torch
    from transformers import StoppingCriteria, StoppingCriteriaList

    ends = _ends(tokenizer)

    class Closed(StoppingCriteria):
        """A row stops with the token that completes a tag."""

        def __init__(self, width: int):
            self.width = width  # of the prompts

        def __call__(self, input_ids, scores, **_):
            new = input_ids[:, self.width :][:, -TAG_TOKENS:].tolist()
            return torch.tensor([ends(row) for row in new], device=input_ids.device)

    def generate(prompts: list[Tokens], most: Sequence[int]):
        turns: list[Tokens] = [[] for _ in prompts]
        order = sorted(range(len(prompts)), key=lambda i: (len(prompts[i]), i))
        for start in range(0, len(order), sampling.batch_size):
            batch = order[start : start + sampling.batch_size]
            rows = [{"input_ids": prompts[i]} for i in batch]
            padded = tokenizer.pad(rows, padding_side="left", return_tensors="pt")
            width = padded["input_ids"].shape[1]
            with torch.inference_mode():
                output = model.generate(
                    **padded.to(model.device),
                    max_new_tokens=max(most[i] for i in batch),
                    eos_token_id=tokenizer.eos_token_id,
                    pad_token_id=tokenizer.pad_token_id,
                    stopping_criteria=StoppingCriteriaList([Closed(width)]),
                    **models.decoding(sampling),
                )
            for i, row in zip(batch, output[:, width:].tolist(), strict=True):
                turns[i] = _until_end(row, ends, tokenizer.eos_token_id)
        return turns, None

    return generate


def _ends(tokenizer: "PreTrainedTokenizerBase") -> Callable[[Tokens], bool]:
    """Whether some tokens, none of which ended them, end with the one that completes a
    tag of STOPS; quick for others."""
    vocabulary = tokenizer.get_vocab()
    brackets = frozenset(i for token, i in vocabulary.items() if ">" in token)

    def ends(ids: Tokens) -> bool:
        if not ids or ids[-1] not in brackets:
            return False
        text = tokenizer.decode(ids[-TAG_TOKENS:], skip_special_tokens=True)
        return any(tag in text for tag in STOPS)

    return ends


def _until_end(ids: Tokens, ends: Callable[[Tokens], bool], eos: int) -> Tokens:
    """The tokens up to the end of sequence or of a tag, with it; no padding."""
    for i, token in enumerate(ids, start=1):
        if token == eos or ends(ids[max(i - TAG_TOKENS, 0) : i]):
            return ids[:i]
    return ids


def with_engine(
    llm: "LLM", sampling: models.Sampling, adapter: "LoRARequest | None" = None
) -> Generate:
    """Sampling by a vLLM engine in this process."""
    from vllm import SamplingParams

    def generate(prompts: list[Tokens], most: Sequence[int]):
        how = [
            SamplingParams(
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_tokens=n,
                stop=list(STOPS),
                include_stop_str_in_output=True,
                logprobs=0,
            )
            for n in most
        ]
        rows = [{"prompt_token_ids": ids} for ids in prompts]
        replies = llm.generate(rows, how, use_tqdm=False, lora_request=adapter)
        turns = [reply.outputs[0] for reply in replies]
        logprobs = [
            [at[i].logprob for i, at in zip(turn.token_ids, turn.logprobs, strict=True)]
            for turn in turns
        ]
        return [list(turn.token_ids) for turn in turns], logprobs

    return generate


def with_server(base_url: str, model: str, sampling: models.Sampling) -> Generate:
    """Sampling by `vllm serve`, by token ids, all prompts in one request.

    base_url: with /v1. Raises openai's errors once its retries are used up.
    """
    from openai import OpenAI

    client = OpenAI(base_url=base_url, api_key="none", timeout=3600)

    def generate(prompts: list[Tokens], most: Sequence[int]):
        reply = client.completions.create(
            model=model,
            prompt=prompts,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=max(most),
            stop=list(STOPS),
            logprobs=0,
            extra_body={"return_token_ids": True, "include_stop_str_in_output": True},
        )
        turns = sorted(reply.choices, key=lambda choice: choice.index)
        return (
            [list(choice.token_ids) for choice in turns],
            [list(choice.logprobs.token_logprobs) for choice in turns],
        )

    return generate
