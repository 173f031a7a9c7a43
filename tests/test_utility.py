"""Utility: perplexity against a loop, form checks, the drop that stops."""

import math

import pytest

from factkit.rar import utility
from factkit.rar.utility import FORM_PROMPTS, FormPrompt

# ---- perplexity


class Letters:
    """A tokenizer: a letter a token."""

    def __call__(self, texts, truncation, max_length):
        return {"input_ids": [[ord(c) - 97 for c in t][:max_length] for t in texts]}


def tiny_llama(seed=0):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=26,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        initializer_range=0.5,
    )
    return LlamaForCausalLM(config).eval()


TEXTS = ["abcdefgh", "zy", "q", "hello", "", "mnop"]


def test_perplexity_is_that_of_a_loop_over_single_texts():
    import torch

    model = tiny_llama()
    total, n = 0.0, 0
    for text in TEXTS:
        ids = [ord(c) - 97 for c in text]
        for t in range(1, len(ids)):
            with torch.inference_mode():
                logits = model(torch.tensor([ids[:t]])).logits[0, -1]
            total -= logits.log_softmax(-1)[ids[t]].item()
            n += 1
    for batch_size in (1, 4, 6):
        found = utility.perplexity(model, Letters(), TEXTS, batch_size)
        assert found == pytest.approx(math.exp(total / n), rel=1e-4)
    cut = utility.perplexity(model, Letters(), ["abcdefgh"], max_tokens=4)
    assert cut == pytest.approx(utility.perplexity(model, Letters(), ["abcd"]))
    with pytest.raises(ValueError, match="two tokens"):
        utility.perplexity(model, Letters(), ["a", ""])


# ---- form


# a response that keeps each prompt's form, in their order
KEPT = [
    "Blue", "Cat.", "Yes", "7", "Hello!",
    "A small soft animal.", "Food that is baked from flour.", "sea " * 50,
    "warm " * 25,
    "Rain falls.", "Dogs bark. Dogs run.", "It lends books. It is quiet.",
    "It snows. It is cold. Days are short.",
    "- a\n- b\n- c", "1. a\n2. b\n3. c\n4. d", "- a\n- b\n- c\n- d\n- e", "* a\n* b",
    "a\nb\nc\nd", "red\nblue\ngreen", "Trees grow.\n\nThey fall.",
    "A LION ROARS.", "FROZEN WATER.", "a star.", "eat it.",
    "Certainly. It shows time.", "In short, it has two wheels.",
    "They run. That is all.", "Is it a drink?", "You are kind!!!", '"Bees make it."',
    "A lantern hung there.", "Copper pots under an umbrella.",
    "Quiet. It was quiet, so quiet.", "It has walls.", "It burns wood and gives light.",
    "It flows down to the sea.", "<<Map>> It shows places.", '{"capital": "Paris"}',
    "Hello! P.S. Write soon.", "carrot; cumin", "bee, bat, ball", "1 2 3 4 5",
]  # fmt: skip


def test_each_form_prompt_can_be_kept_and_broken():
    assert len({p.prompt for p in FORM_PROMPTS}) == len(FORM_PROMPTS) >= 40
    broken = ["Ok, hot zebras", "ok.\n" * 70, "Um, IS it", "a " * 60, '"x, hot z"; ']
    for form, kept in zip(FORM_PROMPTS, KEPT, strict=True):
        assert form.check(kept), form
        assert not all(form.check(said) for said in broken), form


def test_a_check_tells_a_kept_form_from_a_broken_one():
    for check, good, bad in (
        (utility.matches(utility.words(2, 3)), "a b c", "a b c d"),
        (utility.matches(utility.words(50)), "sea " * 50, "sea " * 49),
        (utility.sentences(2), 'He said "go." Then 3.5 km.', "One. Two. Three."),
        (utility.sentences(1), "A dog barks.", "A dog barks. It"),
        (utility.items(2), "Tips:\n- a\n* b", "- a\n- b\n- c"),
        (utility.items(2, r"\d+[.)]"), "1. a\n2) b", "- a\n- b"),
        (utility.items(1), "- a", "-a"),
        (utility.counts(r"\bquiet\b", 2, more=True), "quiet " * 3, "quiet, quietly."),
        (utility.is_json, '```json\n{"a": 1}\n```', '["Paris"]'),
    ):
        assert check(good), good
        assert not check(bad), bad


def test_a_form_is_kept_without_reasoning_and_by_no_empty_answer():
    prompts = [FormPrompt(str(i), "?", utility.matches("[^,]*")) for i in range(5)]
    said = ["a", "a, b", "<think>a, b</think> c", "", "<think>c"]
    assert utility.keeps_form(prompts, said) == [True, False, True, False, False]


# ---- loss of utility


def test_drops_by_hand():
    before = {"accuracy": 0.5, "perplexity": 20.0, "form": 0.4, "none": 0.0}
    after = {"accuracy": 0.4, "perplexity": 25.0, "form": 0.5, "none": 0.1}
    assert utility.utility_drop(before, after) == pytest.approx(
        {"accuracy": 0.2, "perplexity": 0.25, "form": -0.25, "none": 0.0}
    )
    for name in ("b", "perplexity"):
        with pytest.raises(ValueError, match=f"{name}: measured before"):
            utility.utility_drop({"a": 1.0, name: 1.0}, {"a": 1.0})
    for value in (math.nan, math.inf, -0.1):
        with pytest.raises(ValueError, match="a="):
            utility.stops({"a": 0.5}, {"a": value})


def test_training_stops_above_and_not_at_a_drop_of_ten_per_cent():
    for before in (0.1, 0.3, 0.7, 0.9, 87.2):
        for name, factor, further in (("a", 0.9, 0.999), ("perplexity", 1.1, 1.001)):
            at, above = before * factor, before * factor * further
            both = {name: before, "kept": 1.0}
            assert utility.stops(both, {name: at, "kept": 1.5}) == []
            assert utility.stops(both, {name: above, "kept": 1.0}) == [name]
