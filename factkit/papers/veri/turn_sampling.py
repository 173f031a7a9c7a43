"""Sampling a turn of each trajectory: by transformers, a vLLM engine or a server."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from factkit.policy import cpu, models
from factkit.policy.vllm_engine import Sampled, Tokens
from factkit.run import connections

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel as Model
    from transformers import PreTrainedTokenizerBase as Tokenizer

STOPS = ("</search>", "</answer>")
TAG_TOKENS = 16  # longest closing tag, with the characters that share its tokens

# prompts, the most new tokens of each → for each the tokens sampled, up to the end of
# sequence or the token that completes a tag of STOPS, and their log π
Generate = Callable[[list[Tokens], Sequence[int]], list[Sampled]]


def with_model(
    model: "Model", tokenizer: "Tokenizer", sampling: models.Sampling
) -> Generate:
    """Sample with transformers, `sampling.batch_size` trajectories at a time."""
    import torch

    vocabulary = tokenizer.get_vocab()
    brackets = frozenset(i for token, i in vocabulary.items() if ">" in token)

    def ends(ids: Tokens) -> bool:
        """Whether the last token completes a tag of STOPS."""
        if not ids or ids[-1] not in brackets:
            return False
        text = tokenizer.decode(ids[-TAG_TOKENS:], skip_special_tokens=True)
        return any(tag in text for tag in STOPS)

    def turns_end(prompt_width: int) -> Callable[..., "Tensor"]:
        def criterion(input_ids: "Tensor", scores: "Tensor", **_) -> "Tensor":
            new = input_ids[:, prompt_width:][:, -TAG_TOKENS:].tolist()
            return torch.tensor([ends(row) for row in new], device=input_ids.device)

        return criterion

    def generate(prompts: list[Tokens], budgets: Sequence[int]):
        turns: list[Sampled] = [([], []) for _ in prompts]
        order = sorted(range(len(prompts)), key=lambda i: (len(prompts[i]), i))
        for start in range(0, len(order), sampling.batch_size):
            batch = order[start : start + sampling.batch_size]
            rows = [{"input_ids": prompts[i]} for i in batch]
            padded = tokenizer.pad(rows, padding_side="left", return_tensors="pt")
            width, seen = padded["input_ids"].shape[1], models.DrawnLogps()
            with torch.inference_mode(), cpu.quick_draws():
                output = model.generate(
                    **padded.to(model.device),
                    max_new_tokens=max(budgets[i] for i in batch),
                    eos_token_id=tokenizer.eos_token_id,
                    pad_token_id=tokenizer.pad_token_id,
                    stopping_criteria=[turns_end(width)],
                    logits_processor=[seen],
                    **models.decoding(sampling),
                )
                logps = seen.until(output).tolist()
            rows = zip(batch, output[:, width:].tolist(), logps, strict=True)
            for i, row, row_logps in rows:
                stops = (
                    n
                    for n, token in enumerate(row, start=1)
                    if token == tokenizer.eos_token_id or ends(row[:n])
                )
                length = next(stops, len(row))  # padding follows
                turns[i] = row[:length], row_logps[:length]
        return turns

    return generate


def with_engine(
    engine: Callable[..., list[list[Sampled]]], sampling: models.Sampling
) -> Generate:
    """Sample with a vLLM engine's `generate`."""
    shared = {"temperature": sampling.temperature, "top_p": sampling.top_p}
    shared |= {"stop": list(STOPS), "include_stop_str_in_output": True, "logprobs": 0}

    def generate(prompts: list[Tokens], budgets: Sequence[int]):
        settings = [shared | {"max_tokens": most} for most in budgets]
        return [sampled for (sampled,) in engine(prompts, settings)]

    return generate


def with_server(
    base_url: str,
    model: str,
    sampling: models.Sampling,
    key: str = "none",
    headers: Mapping[str, str] | None = None,
    extra: Mapping[str, Any] = {},
) -> Generate:
    """Sample with `vllm serve`, by token ids. base_url: with /v1.

    Prompts of one budget share a request: the server refuses a prompt that leaves no
    room for `max_tokens`. Raises openai's errors after its retries.
    """
    from openai import DefaultHttpxClient, OpenAI

    http_client = DefaultHttpxClient(trust_env=connections.uses_proxy(base_url))
    client = OpenAI(
        api_key=key,
        base_url=base_url,
        default_headers=headers,
        http_client=http_client,
        timeout=3600,
    )
    fixed = {"return_token_ids": True, "include_stop_str_in_output": True}
    # not the values that Qwen's files would fill in
    fixed |= {"top_k": 0, "repetition_penalty": 1.0, **extra}

    def generate(prompts: list[Tokens], budgets: Sequence[int]):
        turns: list[Sampled] = [([], []) for _ in prompts]
        for budget in sorted(set(budgets)):
            indices = [i for i, other in enumerate(budgets) if other == budget]
            reply = client.completions.create(
                model=model,
                prompt=[prompts[i] for i in indices],
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_tokens=budget,
                stop=list(STOPS),
                logprobs=0,
                extra_body=fixed,
            )
            for choice in reply.choices:
                logps = list(choice.logprobs.token_logprobs)
                turns[indices[choice.index]] = list(choice.token_ids), logps
        return turns

    return generate
