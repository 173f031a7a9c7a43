"""Trajectories a second of `rollouts` at batch 64, against a loop over one at a time.

Both play the same claims of the fact world, greedily and with the same search, by a
policy of the tiny profile's size that has read STEPS updates of trajectories (kept in
the cache folder; a minute or two the first time): it keeps the protocol and searches,
and knows little. They take turns, ROUNDS times; medians count. The loop is `rollouts`
with one prompt, so that what differs is the batch alone. Where float32 has two words
equally likely, the two may differ: how many trajectories do is printed.
"""

import json
import statistics
import time
from collections.abc import Callable, Sequence

from factkit.data.bm25 import CorpusIndex
from factkit.data.search import in_process
from factkit.papers.veri import data as claim_data
from factkit.papers.veri import search_rollout
from factkit.papers.veri.arms import Veri
from factkit.papers.veri.search_rollout import Rollout, Tokens
from factkit.papers.veri.train import policy_of
from factkit.papers.veri.turn_sampling import with_policy
from factkit.policy.policy import load_policy
from factkit.run import params
from factkit.verify.trajectory import extract_queries

BATCH, ROUNDS, STEPS = 64, 3, 150
Play = Callable[[Sequence[Tokens]], list[Rollout]]


def settings() -> Veri:
    """Profile tiny's, but for what makes it quick."""
    values = {"world_people": 100, "pretrain_steps": STEPS, "eval_batch_size": BATCH}
    claims = {"train_claims": 12, "dev_claims": 3, "test_claims": BATCH}
    return params.load("veri", "tiny", values | claims)


def player(p: Veri) -> tuple[Play, list[Tokens]]:
    """What plays prompts as trajectories, and BATCH prompts."""
    sets, entries, _ = claim_data.claim_sets(p)
    search = in_process(CorpusIndex(entries))
    policy = load_policy(policy_of(p), p)
    generate, tokenizer = with_policy(policy, policy.greedy), policy.tokenizer
    asked = search_rollout.format_prompts(sets["test"], p.prompt_template)

    def play(prompts: Sequence[Tokens]) -> list[Rollout]:
        sets = ["world"] * len(prompts)
        return search_rollout.run_rollouts(
            prompts, generate, search, tokenizer, p, sets
        )

    return play, search_rollout.tokenize_prompts(asked, tokenizer, p.chat)


def timed(play: Play, batches: Sequence[Sequence[Tokens]]) -> tuple[float, list]:
    """Seconds to play batches of prompts one after the other, and the trajectories."""
    begin = time.perf_counter()
    made = [rollout for batch in batches for rollout in play(batch)]
    return time.perf_counter() - begin, made


def compare(play: Play, prompts: Sequence[Tokens]) -> dict[str, float]:
    """Median trajectories a second of both, their ratio, and what was played."""
    ways = {"batch": [prompts], "one_at_a_time": [[prompt] for prompt in prompts]}
    times: dict[str, list[float]] = {name: [] for name in ways}
    made = {}
    timed(play, [prompts[:2]])  # imports
    for _ in range(ROUNDS):
        for name, batches in ways.items():
            took, made[name] = timed(play, batches)
            times[name].append(took)
    rates = {name: len(prompts) / statistics.median(of) for name, of in times.items()}
    both = zip(made["batch"], made["one_at_a_time"], strict=True)
    searches = [len(extract_queries(rollout.turns)) for rollout in made["batch"]]
    tokens = [len(rollout.ids) for rollout in made["batch"]]
    return {
        **{f"{name}_a_second": round(rate, 1) for name, rate in rates.items()},
        "ratio": round(rates["batch"] / rates["one_at_a_time"], 2),
        "searches_each": statistics.mean(searches),
        "tokens_each": statistics.mean(tokens),
        "different": sum(a.ids != b.ids for a, b in both),
    }


def main() -> None:
    """Print the comparison as a line of JSON."""
    found = compare(*player(settings()))
    print(f"{BATCH} trajectories in a batch, and one at a time: {json.dumps(found)}")


if __name__ == "__main__":
    main()
