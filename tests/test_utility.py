"""Utility: best guess, perplexity against a loop, form checks, the drop that stops."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factkit.evaluate import utility
from factkit.evaluate.utility import FORM_PROMPTS, FormPrompt
from factkit.verify.outcome import Outcome

CORRECT, ABSTAIN, WRONG = Outcome.CORRECT, Outcome.ABSTAIN, Outcome.WRONG


# ---- best guess


def test_an_abstention_is_no_right_guess():
    assert utility.best_guess_accuracy([CORRECT, ABSTAIN, WRONG, CORRECT]) == 0.5


def test_a_failed_judgement_is_left_out_and_alone_can_not_be_scored():
    assert utility.best_guess_accuracy([CORRECT, None]) == 1
    with pytest.raises(ValueError, match="no outcomes"):
        utility.best_guess_accuracy([None])


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
    found = utility.perplexity(model, Letters(), TEXTS, batch_size=4)
    assert found == pytest.approx(math.exp(total / n), rel=1e-4)


@pytest.mark.parametrize("batch_size", [1, 2, 6])
def test_perplexity_does_not_depend_on_the_batch(batch_size):
    model = tiny_llama()
    found = utility.perplexity(model, Letters(), TEXTS, batch_size)
    assert found == pytest.approx(utility.perplexity(model, Letters(), TEXTS, 3), 1e-4)


def test_a_model_that_knows_nothing_is_as_perplexed_as_its_vocabulary_is_large():
    import torch

    model = tiny_llama()
    with torch.no_grad():
        model.lm_head.weight.zero_()
    assert utility.perplexity(model, Letters(), TEXTS) == pytest.approx(26)


def test_only_the_first_tokens_of_a_text_are_read():
    model = tiny_llama()
    cut = utility.perplexity(model, Letters(), ["abcdefgh"], max_tokens=4)
    assert cut == pytest.approx(utility.perplexity(model, Letters(), ["abcd"]))


def test_texts_without_a_second_token_have_no_perplexity():
    with pytest.raises(ValueError, match="two tokens"):
        utility.perplexity(tiny_llama(), Letters(), ["a", ""])


# ---- form


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (utility.words_between(1, 1), "Blue.", "It is"),
        (utility.words_between(2, 3), "a b c", "a b c d"),
        (utility.sentences(2), "A dog barks. It runs!", "A dog barks."),
        (utility.sentences(2), 'He said "go." Then 3.5 km.', "One. Two. Three."),
        (utility.sentences(1), "A dog barks.", "A dog barks. It"),
        (utility.lines(2), "a\n\nb\n", "a"),
        (utility.items(2), "Tips:\n- a\n* b", "- a\n- b\n- c"),
        (utility.items(2, r"\d+[.)]"), "1. a\n2) b", "- a\n- b"),
        (utility.items(1), "- a", "-a"),
        (utility.paragraphs(2), "a\nb\n\nc", "a\nb"),
        (utility.starts_with("In short"), " In short, no", "in short, no"),
        (utility.ends_with("!!!"), "Nice!!!\n", "Nice!!"),
        (utility.uses("quiet", 2), "Quiet, quiet.", "Quiet, quietly."),
        (utility.avoids(","), "a b", "a, b"),
        (utility.matches(r"\d+"), " 7\n", "7 days"),
        (utility.upper_case, "A LION!", "A Lion"),
        (utility.upper_case, "A", "1!"),
        (utility.lower_case, "the sun", "The sun"),
        (utility.is_json, '{"capital": "Paris"}', '["Paris"]'),
        (utility.is_json, '```json\n{"a": 1}\n```', "capital: Paris"),
        (utility.every(utility.uses("a"), utility.uses("b")), "a b", "a"),
    ],
)
def test_a_check_tells_a_kept_form_from_a_broken_one(check, good, bad):
    assert check(good)
    assert not check(bad)


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


@pytest.mark.parametrize(
    ("prompt", "kept"),
    list(zip(FORM_PROMPTS, KEPT, strict=True)),
    ids=[p.id for p in FORM_PROMPTS],
)
def test_each_form_prompt_can_be_kept_and_broken(prompt, kept):
    assert prompt.check(kept)
    broken = ["Ok, hot zebras", "ok.\n" * 70, "Um, IS it", "a " * 60, '"x, hot z"; ']
    assert not all(prompt.check(said) for said in broken)


def test_form_prompts_differ_and_there_are_forty():
    assert len({p.prompt for p in FORM_PROMPTS}) == len(FORM_PROMPTS) >= 40
    assert len({p.id for p in FORM_PROMPTS}) == len(FORM_PROMPTS)


def test_a_form_is_kept_without_reasoning_and_by_no_empty_answer():
    prompts = [FormPrompt(str(i), "?", utility.avoids(",")) for i in range(5)]
    said = ["a", "a, b", "<think>a, b</think> c", "", "<think>c"]
    assert utility.keeps_form(prompts, said) == [True, False, True, False, False]


# ---- loss of utility


def test_drops_by_hand():
    before = {"accuracy": 0.5, "perplexity": 20.0, "form": 0.4, "none": 0.0}
    after = {"accuracy": 0.4, "perplexity": 25.0, "form": 0.5, "none": 0.1}
    assert utility.utility_drop(before, after) == pytest.approx(
        {"accuracy": 0.2, "perplexity": 0.25, "form": -0.25, "none": 0.0}
    )


@pytest.mark.parametrize("before", [0.1, 0.3, 0.7, 0.9, 87.2])
def test_training_stops_above_and_not_at_a_drop_of_ten_per_cent(before):
    for name, factor in (("accuracy", 0.9), ("perplexity", 1.1)):
        further = 0.999 if name == "accuracy" else 1.001
        at, above = before * factor, before * factor * further
        assert utility.stops({name: before}, {name: at}) == []
        assert utility.stops({name: before}, {name: above}) == [name]


positive = st.floats(0.01, 100)


@given(st.dictionaries(st.sampled_from("abc"), positive, min_size=1), positive)
def test_the_drop_is_relative(before, scale):
    after = {name: value / 2 for name, value in before.items()}
    scaled = [{k: v * scale for k, v in values.items()} for values in (before, after)]
    drop = utility.utility_drop(before, after)
    assert utility.utility_drop(*scaled) == pytest.approx(drop)


@given(st.dictionaries(st.sampled_from(["a", "perplexity"]), positive))
def test_nothing_changed_is_no_drop(values):
    assert not any(utility.utility_drop(values, values).values())
    assert utility.stops(values, values) == []


def test_one_benchmark_is_enough_to_stop_and_is_named():
    before = {"a": 1.0, "b": 1.0, "perplexity": 10.0}
    after = {"a": 1.5, "b": 0.8, "perplexity": 11.5}
    assert utility.stops(before, after) == ["b", "perplexity"]


def test_a_benchmark_that_was_not_measured_again_is_refused():
    with pytest.raises(ValueError, match="b: measured before"):
        utility.utility_drop({"a": 1.0, "b": 1.0}, {"a": 1.0})


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.1])
def test_a_value_that_is_no_score_is_refused(value):
    with pytest.raises(ValueError, match="a="):
        utility.stops({"a": 0.5}, {"a": value})
