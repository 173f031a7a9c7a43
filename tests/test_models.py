"""Sampling: what batching and shared prefixes must not change."""

import pytest

from factkit.policy import models
from factkit.policy.vllm_engine import VllmEngine


@pytest.fixture(scope="module")
def tiny():
    from transformers import set_seed

    from factkit.facts.world import facts as world
    from factkit.facts.world import texts as world_text
    from factkit.train.pretraining import build_policy

    made = world.build_world(people=40, seed=0)
    tokenizer = world_text.build_tokenizer(made)
    tokenizer.padding_side = "left"
    set_seed(0)
    model = build_policy(tokenizer, hidden_size=32, layers=2).eval()
    shots = " ".join(e.question for e in made.questions()[0][:3])
    asked = [f"{shots} {e.question}\nAnswer:" for e in made.questions()[0][3:19]]
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


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_drawn_tokens_have_the_log_probabilities_of_a_plain_forward(tiny, temperature):
    """At temperature 1; several completions share a prompt's reading, and batches are
    padded."""
    import torch

    model, tokenizer, asked = tiny
    how = models.Sampling(6, temperature, 0.9, batch_size=4)
    drawn = models.sample_tokens(model, tokenizer, asked, how, n=2, logps=True)
    lengths = set()
    for prompt, rows in zip(tokenizer(asked)["input_ids"], drawn, strict=True):
        for ids, logps in rows:
            with torch.inference_mode():
                logits = model(torch.tensor([prompt + ids])).logits
            plain = logits[0, len(prompt) - 1 : -1].log_softmax(-1)
            expected = plain[range(len(ids)), ids].tolist()
            assert logps == pytest.approx(expected, abs=1e-4)
            lengths.add(len(ids))
    assert len(lengths) > 1 or not temperature  # what ends a completion is its last


def test_an_engine_draws_each_prompt_with_a_seed_of_its_own(monkeypatch):
    """With one for all, vLLM would give all prompts the same random numbers."""
    monkeypatch.setattr(
        VllmEngine, "generate", lambda self, prompts, settings: settings
    )

    def seeds(seed, temperature=1.0):
        sampling = models.Sampling(max_new_tokens=4, temperature=temperature)
        given = models.sample_tokens(
            VllmEngine({}),
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
