"""Veri-R1's rollouts for verl: an agent loop that searches.

A trajectory is `search_rollout.rollouts` of one prompt, in a thread of its own; each of
its turns is a request to verl's engines, which take all trajectories' together. One
whose search fails is left out of the batch.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from factkit.papers.veri import search_rollout as search
from factkit.papers.veri.search_rollout import Tokens
from factkit.papers.veri.turn_sampling import STOPS
from factkit.train.verl_adapter import parameters

if TYPE_CHECKING:
    from verl.experimental.agent_loop import AgentLoopOutput

AT_ONCE = 512  # trajectories of a worker, of which verl has 8

_searcher = cache(search.load_search)
_threads = cache(lambda: ThreadPoolExecutor(AT_ONCE, "trajectory"))


_turn = Lock()


class OneAtATime:
    """A tokenizer for many threads: a fast one keeps settings while it encodes, and
    raises "Already borrowed" where another thread sets them."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def __call__(self, *texts: Any, **how: Any) -> Any:
        with _turn:
            return self._tokenizer(*texts, **how)

    def decode(self, *ids: Any, **how: Any) -> str:
        with _turn:
            return self._tokenizer.decode(*ids, **how)


class SearchLoop:
    """verl's agent loop whose policy searches; the rewards get `trajectory`."""

    def __init__(
        self, trainer_config: Any, server_manager: Any, tokenizer: Any, **_: Any
    ) -> None:
        self._p = parameters(trainer_config.config)
        self._engines, self._tokenizer = server_manager, OneAtATime(tokenizer)

    async def run(
        self,
        sampling_params: dict[str, Any],
        raw_prompt: Any,
        extra_info: dict[str, Any],
        **_: Any,
    ) -> "AgentLoopOutput":
        """A trajectory; response_mask is 1 where the policy sampled, 0 where the system
        told what was found."""
        from verl.experimental.agent_loop import AgentLoopOutput

        mine, weights = asyncio.get_running_loop(), {}
        name = uuid4().hex  # one engine, with what it remembers, for all turns
        ends = {"stop": list(STOPS), "include_stop_str_in_output": True}

        def generate(prompts: list[Tokens], budgets: list[int]):
            how = sampling_params | ends | {"max_tokens": budgets[0]}
            asked = {"prompt_ids": prompts[0], "sampling_params": how}
            turn = self._engines.generate(name, **asked)
            output = asyncio.run_coroutine_threadsafe(turn, mine).result()
            weights.update(output.extra_fields)
            return [(output.token_ids, output.log_probs or [])]

        p, tokenizer = self._p, self._tokenizer
        prompt = search.tokenize_prompts([raw_prompt[-1]["content"]], tokenizer, p.chat)
        given = prompt, generate, _searcher(p), tokenizer, p, [extra_info["set"]]
        (made,) = await mine.run_in_executor(_threads(), search.rollouts, *given)
        told = {"trajectory": [tuple(turn) for turn in made.turns]}
        known = sampling_params.get("logprobs")
        return AgentLoopOutput(
            prompt_ids=made.prompt,
            response_ids=made.ids,
            response_mask=made.env_mask,
            response_logprobs=made.logprobs if known else None,
            num_turns=len(made.turns) + 1,
            metrics={},
            extra_fields=weights | {"factkit": told},
        )
