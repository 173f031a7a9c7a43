"""Veri-R1's rollouts for verl: an agent loop that searches.

Each trajectory is `search_rollout.run_rollouts` of one prompt in its own thread. Each
turn is a request to verl's engines, which batch the requests of all trajectories. A
trajectory whose search fails is left out of the batch.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from factkit.data.examples import read_examples
from factkit.papers.veri import rewards
from factkit.papers.veri import search_rollout as search
from factkit.papers.veri.arms import ARMS, Veri
from factkit.papers.veri.train import (
    policy_of,
    prompt_rows,
    read_offline_evidence,
)
from factkit.policy.vllm_engine import Sampled, Tokens
from factkit.run import runs
from factkit.train.verl_adapter import Job, read_parameters

if TYPE_CHECKING:
    from verl.experimental.agent_loop import AgentLoopOutput

AT_ONCE = 512  # trajectories per worker; verl has 8 workers

_searcher = cache(search.load_search)
_threads = cache(lambda: ThreadPoolExecutor(AT_ONCE, "trajectory"))
_turn = Lock()


def make_job(p: Veri) -> Job:
    """What verl needs to train `p.arm` from the instruct model, on notebook 50's data.

    Offline RL's policy is to be chosen from verl's checkpoints (App. H).
    """
    data = runs.run_folder(p.data_notebook, p)
    train = read_examples(data / "train.jsonl")
    p = ARMS[p.arm].configure(p)
    rows = prompt_rows(train, read_offline_evidence(data / "given.jsonl"), p)
    loop, lengths = None, {}
    if p.online:
        loop = SearchLoop
        lengths = {
            "data.max_prompt_length": p.max_prompt_length,
            "data.max_response_length": p.longest - p.max_prompt_length,
        }
    return Job(p, policy_of(p), rows, rewards.reward_function, loop, lengths)


class OneAtATime:
    """A tokenizer for many threads. A fast one keeps settings while it encodes, and
    raises "Already borrowed" if another thread changes them."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def __call__(self, *texts: Any, **options: Any) -> Any:
        with _turn:
            return self._tokenizer(*texts, **options)

    def decode(self, *ids: Any, **options: Any) -> str:
        with _turn:
            return self._tokenizer.decode(*ids, **options)


class SearchLoop:
    """verl's agent loop whose policy searches; the rewards get `trajectory`."""

    def __init__(
        self, trainer_config: Any, server_manager: Any, tokenizer: Any, **_: Any
    ) -> None:
        self._p = read_parameters(trainer_config.config)
        self._engines, self._tokenizer = server_manager, OneAtATime(tokenizer)

    async def run(
        self,
        sampling_params: dict[str, Any],
        raw_prompt: Any,
        extra_info: dict[str, Any],
        **_: Any,
    ) -> "AgentLoopOutput":
        """A trajectory; response_mask is 1 for tokens that the policy sampled, 0 for
        search results."""
        from verl.experimental.agent_loop import AgentLoopOutput

        loop, weights = asyncio.get_running_loop(), {}
        name = uuid4().hex  # the same engine, with its prefix cache, for all turns
        ends = {"stop": list(search.STOPS), "include_stop_str_in_output": True}

        def generate(prompts: list[Tokens], budgets: Sequence[int]) -> list[Sampled]:
            turn = self._engines.generate(
                name,
                prompt_ids=prompts[0],
                sampling_params=sampling_params | ends | {"max_tokens": budgets[0]},
            )
            output = asyncio.run_coroutine_threadsafe(turn, loop).result()
            weights.update(output.extra_fields)
            return [(output.token_ids, output.log_probs or [])]

        p, tokenizer = self._p, self._tokenizer
        prompt = search.tokenize_prompts([raw_prompt[-1]["content"]], tokenizer, p.chat)
        (rollout,) = await loop.run_in_executor(
            _threads(),
            search.run_rollouts,
            prompt,
            generate,
            _searcher(p),
            tokenizer,
            search.limits_of(p),
            [extra_info["set"]],
        )
        columns = {"trajectory": [tuple(turn) for turn in rollout.turns]}
        with_logprobs = sampling_params.get("logprobs")
        return AgentLoopOutput(
            prompt_ids=rollout.prompt,
            response_ids=rollout.ids,
            response_mask=rollout.env_mask,
            response_logprobs=rollout.logprobs if with_logprobs else None,
            num_turns=len(rollout.turns) + 1,
            metrics={},
            extra_fields=weights | {"factkit": columns},
        )
