"""Sampling a turn of each trajectory: by a policy or a server."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from factkit.policy.decoding import Sampling
from factkit.policy.policy import Policy
from factkit.policy.vllm_engine import Sampled, Tokens
from factkit.run import connections

if TYPE_CHECKING:
    from factkit.verify.llm import Endpoint

STOPS = ("</search>", "</answer>")

# prompts, the most new tokens of each → for each the tokens sampled, up to the end of
# sequence or the token that completes a tag of STOPS, and their log π
Generate = Callable[[list[Tokens], Sequence[int]], list[Sampled]]


def with_policy(policy: Policy, sampling: Sampling) -> Generate:
    """Sample with a policy: transformers here, or vLLM's engines."""
    return partial(policy.complete, sampling=sampling, stops=STOPS)


def with_server(endpoint: "Endpoint", sampling: Sampling) -> Generate:
    """Sample with `vllm serve`, by token ids.

    Prompts of one budget share a request: the server refuses a prompt that leaves no
    room for `max_tokens`. Raises openai's errors after its retries.
    """
    from openai import DefaultHttpxClient, OpenAI

    proxy = connections.uses_proxy(endpoint.url)
    client = OpenAI(
        api_key=endpoint.key or "none",
        base_url=endpoint.url,
        default_headers=endpoint.headers,
        http_client=DefaultHttpxClient(trust_env=proxy),
        timeout=3600,
    )
    # not the values that Qwen's files would fill in
    fixed = {"top_k": 0, "repetition_penalty": 1.0}
    fixed |= {"return_token_ids": True, "include_stop_str_in_output": True}

    def generate(prompts: list[Tokens], budgets: Sequence[int]) -> list[Sampled]:
        turns: list[Sampled] = [([], []) for _ in prompts]
        for budget in sorted(set(budgets)):
            indices = [i for i, other in enumerate(budgets) if other == budget]
            reply: Any = client.completions.create(  # with vLLM's token_ids
                model=endpoint.model,
                prompt=[prompts[i] for i in indices],
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_tokens=budget,
                stop=list(STOPS),
                logprobs=0,
                extra_body={**fixed, **endpoint.extra},
            )
            for choice in reply.choices:
                logps = list(choice.logprobs.token_logprobs)
                turns[indices[choice.index]] = list(choice.token_ids), logps
        return turns

    return generate
