"""Sampling: what batching and shared prefixes must not change."""

import pytest

from factkit import models, params
from factkit.evaluate import short_form


@pytest.fixture(scope="module")
def tiny():
    from transformers import set_seed

    from factkit.world import facts as world
    from factkit.world import texts as world_text
    from factkit.world.policy import build_policy

    made = world.build_world(people=40, seed=0)
    tokenizer = world_text.build_tokenizer(made)
    tokenizer.padding_side = "left"
    set_seed(0)
    model = build_policy(tokenizer, hidden_size=32, layers=2).eval()
    shots = " ".join(e.question for e in world.questions(made)[:3])
    asked = [f"{shots} {e.question}\nAnswer:" for e in world.questions(made)[3:19]]
    return model, tokenizer, asked


def test_a_shared_prefix_changes_no_greedy_answer(tiny, monkeypatch):
    model, tokenizer, asked = tiny
    ids = tokenizer(asked)["input_ids"]
    assert len(models._shared_prefix(ids)) >= 16
    shared = models.sample(model, tokenizer, asked, models.Sampling(6))
    monkeypatch.setattr(models, "_shared_prefix", lambda ids: [])
    assert models.sample(model, tokenizer, asked, models.Sampling(6)) == shared


def test_a_seed_gives_the_same_samples_and_another_seed_others(tiny):
    sampling = models.Sampling(6, temperature=1.0)
    a, b, c = (models.sample(*tiny, sampling, n=3, seed=s) for s in (1, 1, 2))
    assert a == b != c
    assert [len(group) for group in a] == [3] * len(tiny[2])


def test_the_confidence_of_a_sampled_token_is_its_probability(tiny):
    import torch

    model, tokenizer, asked = tiny
    said = [
        tokenizer.decode([40]),
        "",
        f"{tokenizer.decode([41])} {tokenizer.decode([42])}",
    ]
    p = params.load("truthrl", "tiny")
    found = short_form.confidence(model, tokenizer, asked[:3], said, p)
    ids = tokenizer(asked[:3])["input_ids"]
    with torch.inference_mode():
        first = model(torch.tensor([ids[0]])).logits[0, -1].softmax(-1)[40]
        both = model(torch.tensor([ids[2] + [41]])).logits[0, -2:].softmax(-1)
    assert found[0] == pytest.approx(float(first), rel=1e-4)
    assert found[1] == 0
    expected = float(both[0, 41] * both[1, 42]) ** 0.5
    assert found[2] == pytest.approx(expected, rel=1e-4)


def test_an_engine_draws_each_prompt_with_a_seed_of_its_own():
    """With one for all, vLLM would give all prompts the same random numbers."""

    class Engine:
        def generate(self, prompts, settings):
            return settings

    def seeds(seed, temperature=1.0):
        sampling = models.Sampling(max_new_tokens=4, temperature=temperature)
        given = models.sample_tokens(
            Engine(),
            lambda texts: {"input_ids": texts},
            ["a", "b", "a"],
            sampling,
            2,
            seed,
        )
        return [own.get("seed") for own in given]

    assert len(set(seeds(0))) == 3
    assert seeds(0) == seeds(0)
    assert not set(seeds(0)) & set(seeds(1))
    assert seeds(0, temperature=0.0) == [None] * 3
