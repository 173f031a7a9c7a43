"""Policies: what batching and shared prefixes must not change."""

import math

import pytest

from factkit.policy import decoding
from factkit.policy.decoding import Sampling
from factkit.policy.policy import Policy, VllmPolicy
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
    return Policy.of(model, tokenizer), asked


def test_a_shared_prefix_changes_no_greedy_answer(tiny, monkeypatch):
    policy, prompts = tiny
    ids = policy.tokenizer(prompts)["input_ids"]
    assert len(decoding.shared_prefix(ids)) >= 16
    shared = policy.generate(prompts, Sampling(6))
    monkeypatch.setattr(decoding, "shared_prefix", lambda ids: [])
    assert policy.generate(prompts, Sampling(6)) == shared


def test_a_seed_gives_the_same_samples_and_another_seed_others(tiny):
    policy, prompts = tiny
    sampling = Sampling(6, temperature=1.0)
    a, b, c = (policy.generate(prompts, sampling, n=3, seed=s) for s in (1, 1, 2))
    assert a == b != c
    assert [len(group) for group in a] == [3] * len(prompts)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_drawn_tokens_have_the_log_probabilities_of_a_plain_forward(tiny, temperature):
    """At temperature 1; several completions share a prompt's reading, and batches are
    padded."""
    import torch

    policy, prompts = tiny
    sampling = Sampling(6, temperature, 0.9, batch_size=4, logprobs=True)
    samples = policy.generate_tokens(prompts, sampling, n=2)
    prompt_ids, lengths = policy.tokenizer(prompts)["input_ids"], set()
    for prompt, rows in zip(prompt_ids, samples, strict=True):
        for ids, logps in rows:
            with torch.inference_mode():
                logits = policy.model(torch.tensor([prompt + ids])).logits
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
        policy = VllmPolicy(engine=VllmEngine({}))
        policy.tokenizer = lambda texts: {"input_ids": texts}
        sampling = Sampling(max_new_tokens=4, temperature=temperature)
        given = policy.generate_tokens(["a", "b", "a"], sampling, 2, seed)
        return [own.get("seed") for own in given]

    assert len(set(seeds(0))) == 3
    assert seeds(0) == seeds(0)
    assert not set(seeds(0)) & set(seeds(1))
    assert seeds(0, temperature=0.0) == [None] * 3


# Perplexity


def letters(texts, truncation, max_length):
    """In place of a tokenizer: a letter a token."""
    return {"input_ids": [[ord(c) - 97 for c in t][:max_length] for t in texts]}


def test_perplexity_is_that_of_a_loop_over_single_texts():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2}
    config = LlamaConfig(
        vocab_size=26, num_attention_heads=2, initializer_range=0.5, **sizes
    )
    model = LlamaForCausalLM(config).eval()
    texts = ["abcdefgh", "zy", "q", "hello", "", "mnop"]
    losses = []
    for text in texts:
        ids = [ord(c) - 97 for c in text]
        for t in range(1, len(ids)):
            with torch.inference_mode():
                logits = model(torch.tensor([ids[:t]])).logits[0, -1]
            losses.append(-logits.log_softmax(-1)[ids[t]].item())
    expected = math.exp(sum(losses) / len(losses))
    policy = Policy.of(model, letters)
    for batch_size in (1, 4, 6):
        value = policy.perplexity(texts, batch_size=batch_size)
        assert value == pytest.approx(expected, rel=1e-4)
    cut = policy.perplexity(["abcdefgh"], max_tokens=4)
    assert cut == pytest.approx(policy.perplexity(["abcd"]))


def test_an_engine_s_perplexity_is_over_all_tokens_but_the_first(monkeypatch):
    def logps(self, rows):
        return [[-float(i) for i in row[1:]] for row in rows]

    monkeypatch.setattr(VllmEngine, "logps", logps)
    policy = VllmPolicy(engine=VllmEngine({}))
    policy.tokenizer = letters
    value = policy.perplexity(["abc", "q", "zy", ""])
    assert value == pytest.approx(math.exp((1 + 2 + 24) / 3))


def test_new_words_are_written_and_change_nothing_that_was_known(tiny, tmp_path):
    import torch

    from factkit.policy import models

    policy, prompts = tiny
    base, folder = tmp_path / "base", tmp_path / "more"
    policy.model.save_pretrained(base)
    policy.tokenizer.save_pretrained(base)
    assert models.add_words(str(base), ("Prize", "or ("), folder) == str(base)
    words = ("0.0", "0.7", "Prize")
    more = Policy(path=models.add_words(str(base), words, folder))
    assert len(more.tokenizer) == len(policy.tokenizer) + 2
    (ids,) = more.tokenizer(["Prize (0.7)"])["input_ids"]
    assert more.tokenizer.decode(ids) == "Prize (0.7)" and len(ids) == 4
    (known,) = policy.tokenizer(prompts[:1])["input_ids"]
    assert more.tokenizer(prompts[:1])["input_ids"] == [known]
    with torch.inference_mode():
        old, new = (p.model(torch.tensor([known])).logits for p in (policy, more))
    assert torch.allclose(new[..., : old.shape[-1]], old, atol=1e-5)
    weights = more.model.get_input_embeddings().weight
    again = Policy(path=models.add_words(str(base), words, folder))
    assert torch.equal(again.model.get_input_embeddings().weight, weights)
