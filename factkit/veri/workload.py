"""Veri-R1's workload: trajectories of several turns, and searches between them.

The numbers are upper bounds, by the budgets (Table 4); `typical` has the lengths that
we assume. A judge is asked for the data alone: rewards and metrics are exact.
"""

from factkit.long_answers import SENTENCE_TOKENS
from factkit.veri.arms import ARMS, Veri

# Assumptions, ours: the paper tells no lengths, and nothing but prompts was measured
PROMPT_TOKENS = 460  # instructions as a chat, 420, and a claim, 40
SEARCHES = 2  # of a trajectory: one for each of two hops
TURN_TOKENS = 150  # of a turn: what was found is weighed, the next search or the answer
ID_TOKENS = 10  # before each sentence that is found


def prompt_tokens(p: Veri) -> int:
    return p.max_prompt_length


def response_tokens(p: Veri) -> int:
    """Tokens of a trajectory, at most: the policy's turns and what is found."""
    return p.longest - p.max_prompt_length


def written_tokens(p: Veri) -> int:
    """Tokens of a trajectory that the policy writes, at most."""
    return (p.max_searches + 1) * p.max_completion_length


def typical(p: Veri) -> Veri:
    """p with budgets as long as we assume a trajectory to be."""
    from factkit.retrieval.entries import SENTENCES

    of_sentence = SENTENCE_TOKENS + ID_TOKENS
    assumed = {
        "max_prompt_length": PROMPT_TOKENS,
        "max_searches": SEARCHES,
        "max_completion_length": TURN_TOKENS,
        "max_observation_length": p.retrieved_entries * SENTENCES * of_sentence,
    }
    shorter = {key: min(value, getattr(p, key)) for key, value in assumed.items()}
    return p.model_copy(update=shorter)


def sampling(p: Veri) -> dict[str, tuple[int, int, int]]:
    """The untrained policy's trajectories on the test claims."""
    return {"own trajectories": (_tests(p), prompt_tokens(p), 1)}


def evaluated_responses(p: Veri) -> int:
    """Dev and test, of the last policy."""
    return p.dev_claims + _tests(p)


def judge_calls(p: Veri, arm: str) -> dict[str, int]:
    """None: labels and ids of evidence are compared (§2.3)."""
    return {"training": 0, "evaluation": 0}


def shared_judge_calls(p: Veri) -> dict[str, int]:
    """A call a claim to be filtered (App. E), none if the published training claims are
    at hand; and a call a turn of a trajectory for SFT (App. H), with one more where the
    searches are used up and the system opens the answer."""
    from factkit.veri.claims import POOL, TRAINED_ON
    from factkit.world.facts import LABELS

    filtered = len(TRAINED_ON) * len(LABELS) * POOL
    return {
        "filtering": filtered * (p.claims == "feverous_exfever"),
        "trajectories": _taught(p) * (p.max_searches + 2),
    }


def searches(p: Veri, arm: str) -> dict[str, int]:
    """Searches of one run of an arm by stage, at most. Offline RL is trained without
    them (§2.2), and evaluated with them like all; the untrained policy's on test are
    shared."""
    online = ARMS[arm].algorithm == "GRPO" and ARMS[arm].changes.get("online", True)
    trained = p.rl_steps * p.rl_batch_size * online
    played = p.dev_claims if arm == "instruct" else evaluated_responses(p)
    return {
        "training": trained * p.max_searches,
        "evaluation": played * p.max_searches,
    }


def shared_searches(p: Veri) -> dict[str, int]:
    """A search a claim for offline prompts and for the search's own recall; those of
    the trajectories for SFT and of the untrained policy, at most."""
    return {
        "offline prompts": p.train_claims,
        "recall": _tests(p),
        "trajectories": _taught(p) * p.max_searches,
        "evaluation before": _tests(p) * p.max_searches,
    }


def _taught(p: Veri) -> int:
    return min(p.sft_trajectories, p.train_claims)


def _tests(p: Veri) -> int:
    """Claims of all evaluation sets; the small profiles have one set of their own."""
    return p.test_claims * (len(p.eval_sets.split()) or 1)
