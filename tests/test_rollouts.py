"""What a rollout server is asked: each prompt with a seed that no other has."""

from types import SimpleNamespace

from factkit.train.rollouts import seeded


class Client:
    """TRL's client of a vLLM server: two responses a prompt, what they were asked."""

    def __init__(self):
        self.asked = []

    def generate(self, prompts, n, generation_kwargs, features):
        self.asked.append((prompts, n, generation_kwargs))
        texts = [[*prompt, i] for prompt in prompts for i in range(n)]
        return {"prompt_ids": list(prompts), "completion_ids": texts}


def asked(seed, step):
    """Client, and its seeds by prompt, of an update."""
    client, state = Client(), SimpleNamespace(global_step=step)
    own = seeded(client.generate, seed, SimpleNamespace(state=state))
    more = {"features": None, "generation_kwargs": {"top_k": 5}}  # as TRL gives them
    answers = own(prompts=[[1], [2], [3]], n=2, **more)
    assert answers["prompt_ids"] == [[1], [2], [3]]
    assert answers["completion_ids"] == [[p, i] for p in (1, 2, 3) for i in (0, 1)]
    assert all(how["top_k"] == 5 for _, _, how in client.asked)
    return {prompts[0][0]: how["seed"] for prompts, _, how in client.asked}


def test_each_prompt_has_a_seed_that_follows_the_run_s_seed_and_its_update():
    first = asked(seed=0, step=4)
    assert len(set(first.values())) == 3
    assert asked(seed=0, step=4) == first
    assert not set(first.values()) & set(asked(seed=0, step=5).values())
    assert not set(first.values()) & set(asked(seed=1, step=4).values())
