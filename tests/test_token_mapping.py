"""RLFH's way from statements to tokens: by hand, against plain programmes, and real
tokenizers."""

import random
import re
from functools import cache

import numpy as np
import plain_mapping as plain
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from factkit import assets
from factkit.rewards import token_mapping
from factkit.rewards.token_mapping import (
    Match,
    last_in_response,
    last_in_sentence,
    offsets_of,
    spread,
    start_in_response,
    token_of,
)
from factkit.world import facts as world
from factkit.world import texts as world_text

TURING = "Turing was an American born in 1911."
EMOJI = "👩🏽‍🚀"  # four code points: 4, 4, 3 and 4 bytes
few = st.text("ab ", max_size=20)
marks = ["a", "b", " ", ".", "é", "e\u0301", "\u0308", "日", "😀", EMOJI]
many = st.lists(st.sampled_from(marks), max_size=20).map("".join)
texts = few | many | st.text(max_size=30)


def until(part, text=TURING):
    """The position in a text of the last character of one of its parts."""
    assert text.count(part) == 1
    return text.index(part) + len(part) - 1


def characters(text):
    """Offsets with a token for each character."""
    return [(i, i + 1) for i in range(len(text))]


# Statement → sentence


def test_a_statement_ends_where_its_last_word_does_by_hand():
    for statement, end in {
        "Turing was an American": "American",
        "Turing was born in 1911": "1911",
        "Turing was an American.": "1911.",  # its full stop finds the sentence's
        "Turing was born": "born",
        "xyz: 1911": "1911",
    }.items():
        assert last_in_sentence(statement, TURING) == until(end)
    sentence = "Bo was born in Rome and died in Rome, in 1911, a Roman."
    ends = {
        "Bo was born in Rome": sentence.index("Rome") + 3,
        "Bo died in Rome": sentence.rindex("Rome") + 3,
        "Bo was a Roman": sentence.index("Roman") + 4,
    }
    assert {s: last_in_sentence(s, sentence) for s in ends} == ends


@settings(max_examples=700)
@given(texts, texts, st.integers(0, 30))
def test_both_longest_common_parts_are_the_plain_programmes(one, other, after):
    assert last_in_sentence(one, other) == plain.last_in_sentence(one, other)
    found = start_in_response(one, other, after)
    assert found == plain.start_in_response(one, other, after)


# Sentence → response


def test_the_longest_common_substring_by_hand():
    for *row, match in (
        ("b c", "a b c d", 0, (0, 2, 3)),
        ("no, it is", "it is, no", 0, (4, 0, 5)),
        ("ab", "ab ab ab", 0, (0, 0, 2)),
        ("ab", "ab ab ab", 1, (0, 3, 2)),
        ("ab", "ab ab ab", 3, (0, 3, 2)),
        ("ab", "ab ab ab", 7, (0, 0, 2)),
        ("xab", "ab ab", 2, (1, 3, 2)),
        ("ab-cd", "cd ab cd", 1, (0, 3, 2)),
        ("ab-ab", "ab", 0, (0, 0, 2)),
        ("abcd", "abc ab", 3, (0, 0, 3)),  # longer comes before later
        ("", "a", 0, None),
        ("a", "b", 0, None),
    ):
        assert start_in_response(*row) == match


# Statement → response


def test_a_statement_ends_in_the_response_where_it_does_in_its_sentence():
    match = Match(0, 100, len(TURING))
    statements = ["Turing was an American.", "He was born in 1911.", None]
    found = [last_in_response(s, TURING, match) - 100 for s in statements]
    assert found == [until("American"), until("1911"), until("1911.")]


def test_an_end_outside_the_match_moves_to_its_nearest_character():
    middle = Match(TURING.index("an "), 50, len("an American"))
    ends = [last_in_response(s, TURING, middle) for s in ("Turing", "born", None)]
    assert ends == [50, 50 + len("an American") - 1] + [50 + len("an American") - 1]


def test_a_statement_without_a_common_character_ends_with_its_sentence():
    for statement in ("日本", "?", ""):
        assert last_in_response(statement, "It is", Match(0, 7, 5)) == 11
    assert last_in_response("...", "1. It", Match(0, 0, 5)) == 1  # it has its stops


# Response → token


def test_the_token_of_a_character_by_hand():
    # <s>, 0–2, white space at 3, two tokens that share character 4, 5–6, </s>
    offsets = [(0, 0), (0, 3), (4, 5), (4, 5), (5, 7), (0, 0)]
    for char, token in {0: 1, 2: 1, 3: 1, 4: 3, 5: 4, 8: 4, 99: 4}.items():
        assert token_of(char, offsets) == token
    assert token_of(0, [(0, 0), (2, 4), (4, 6)]) == 1
    assert token_of(0, []) is token_of(0, [(0, 0), (0, 0)]) is None


# Rewards


def test_rewards_land_on_the_tokens_by_hand():
    response = f"{TURING} He was gay."
    words = [word.span() for word in re.finditer(r"\w+|\.", response)]
    rewards = [
        (
            TURING,
            [("Turing was American.", -1.0), ("He was born in 1911.", -0.5), (None, 2)],
        ),
        ("He was gay.", [("Turing was gay.", 1.0), (None, 0.25)]),
    ]
    expected = [0, 0, 0, -1, 0, 0, -0.5, 2, 0, 0, 1, 0.25]
    assert spread(rewards, response, words).tolist() == expected


def test_repeated_sentences_are_rewarded_in_order():
    response = "So it is. So it is. No. So it is."
    rewards = [(s + ".", [(None, 1.0)]) for s in ("So it is", "So it is", "So it is")]
    found = spread(rewards, response, characters(response))
    assert np.flatnonzero(found).tolist() == [8, 18, len(response) - 1]


def test_what_was_cut_off_is_rewarded_at_the_end_of_what_there_is():
    response = TURING[: until("American") + 1]
    rewards = [(TURING, [("He was born in 1911.", -1.0), (None, 0.5)])]
    found = spread(rewards, response, characters(response))
    assert found[-1] == -0.5 and not found[:-1].any()


def test_nothing_is_paid_for_nothing_in_common():
    for response in ("", " \n", "\t"):
        for sentence in ("It is.", "", " \n"):
            rewards = [(sentence, [("It is.", 1.0), (None, 1.0)])]
            found = spread(rewards, response, characters(response))
            assert found.tolist() == [0] * len(response)
    assert not spread([("日 本", [(None, 1.0)])], "It is", characters("It is")).any()
    with pytest.raises(ValueError, match="2 tokens, but none has characters"):
        spread([("It is", [(None, 1.0)])], "It is", [(0, 0), (0, 0)])


halves = st.integers(-8, 8).map(lambda n: n / 2)
paid = st.lists(st.tuples(st.none() | texts, halves), max_size=4)


@given(st.lists(st.tuples(texts, paid), max_size=4))
def test_no_reward_is_lost_whose_sentence_is_in_the_response(rewards):
    rewards = [(sentence, paid) for sentence, paid in rewards if sentence.strip()]
    response = "\n".join(sentence for sentence, _ in rewards)
    found = spread(rewards, response, characters(response))
    assert found.sum() == sum(reward for _, paid in rewards for _, reward in paid)


# Offsets of sampled tokens


def byte_level():
    """A byte-level tokenizer in which a character outside ASCII is 2–4 tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*letters, "th", "the", "Ġt"])}
    merges = [("t", "h"), ("th", "e"), ("Ġ", "t")]
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<eos>", pad_token="<pad>"
    )


def word_level():
    """Profile tiny's: decoding puts the spaces in, but not before a full stop."""
    made = world.build_world(people=40, seed=0)
    return world_text.build_tokenizer(made, "reasoned")


def pieces():
    """As Llama 2's: "▁" is a space, and what has no piece is spelt in bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers
    from transformers import PreTrainedTokenizerFast

    units = ["<unk>", "▁", "▁a", "b", "é", *(f"<0x{i:02X}>" for i in range(256))]
    vocabulary = {unit: i for i, unit in enumerate(units)}
    model = models.BPE(
        vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True
    )
    backend = Tokenizer(model)
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", eos_token="</s>"
    )


@cache
def smollm2():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(assets.policy_path("smollm2-135m-instruct"))


@pytest.fixture(
    scope="module",
    params=[
        byte_level,
        word_level,
        pieces,
        pytest.param(smollm2, marks=pytest.mark.assets),
    ],
    ids=lambda build: build.__name__,
)
def tokenizer(request):
    return request.param()


byte_tokenizers = pytest.mark.parametrize(
    "tokenizer",
    [byte_level, pytest.param(smollm2, marks=pytest.mark.assets)],
    indirect=True,
)


@settings(max_examples=150)
@given(data=st.data())
def test_spans_of_any_tokens_are_parts_of_the_decoded_text(tokenizer, data):
    some = st.integers(0, min(len(tokenizer), 300) - 1)
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1) | some, max_size=25))
    text, spans = offsets_of(ids, tokenizer)
    assert text == tokenizer.decode(ids, skip_special_tokens=True)
    assert len(spans) == len(ids)
    starts, ends = [s for s, _ in spans], [e for s, e in spans if s < e]
    assert starts == sorted(starts) and ends == sorted(ends)
    assert all(s <= e for s, e in spans)
    covered = {char for start, end in spans for char in range(start, end)}
    assert covered == set(range(len(text)))


@byte_tokenizers
@given(text=st.text() | many)
def test_spans_of_an_encoded_text_are_the_tokenizers_own(tokenizer, text):
    encoded = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    assume(tokenizer.unk_token_id not in encoded["input_ids"])
    found = offsets_of(encoded["input_ids"], tokenizer)
    assert found == (text, encoded["offset_mapping"])


@byte_tokenizers
def test_the_tokens_of_one_character_share_its_span(tokenizer):
    ids = tokenizer("a日😀", add_special_tokens=False)["input_ids"]
    text, spans = offsets_of(ids, tokenizer)
    assert text == "a日😀"
    assert sorted(set(spans)) == [(0, 1), (1, 2), (2, 3)] and len(spans) > 3
    assert token_of(1, spans) == spans.index((2, 3)) - 1
    a, *rest = tokenizer("a😀", add_special_tokens=False)["input_ids"][:-1]
    cut = [(0, 1)] + [(1, 2)] * len(rest)
    assert offsets_of([a, *rest], tokenizer) == ("a\ufffd", cut)
    beyond = [a, 10**6, a]  # the vocabulary
    assert offsets_of(beyond, tokenizer) == ("aa", [(0, 1), (1, 1), (1, 2)])


def test_broken_characters_by_hand():
    for parts, text, spans in (
        ([b"\xe6", b"\x97 b"], "\ufffd b", [(0, 1), (0, 3)]),
        ([b"\xe6", b"b"], "\ufffdb", [(0, 1), (1, 2)]),
        # half a surrogate pair
        ([b"\xed", b"\xa1"], "\ufffd\ufffd", [(0, 1), (1, 2)]),
        ([b"\xed\xa1", b"\x80"], "\ufffd" * 3, [(0, 2), (2, 3)]),
        ([b"\xf0\x9f", b"", b"\x98\x80"], "😀", [(0, 1), (0, 0), (0, 1)]),
        ([b"", b"\x80", b""], "\ufffd", [(0, 0), (0, 1), (1, 1)]),
    ):
        assert token_mapping._byte_spans(parts) == (text, spans)


@given(st.lists(st.binary(max_size=4), max_size=8))
def test_broken_characters_are_replaced_as_python_does(pieces):
    raw = b"".join(pieces)
    assert token_mapping._byte_spans(pieces)[0] == raw.decode(errors="replace")


def test_special_tokens_have_no_characters_where_they_stand(tokenizer):
    a, b = (tokenizer(t, add_special_tokens=False)["input_ids"] for t in ("a", "b"))
    eos = tokenizer.eos_token_id
    text, spans = offsets_of([eos, *a, eos, *b, eos, eos], tokenizer)
    special = [spans[0], spans[len(a) + 1], *spans[-2:]]
    middle = len(tokenizer.decode(a, skip_special_tokens=True))
    assert special == [(0, 0), (middle, middle)] + [(len(text), len(text))] * 2


def test_word_level_tokens_have_their_words_and_the_space_before():
    made = world.build_world(people=40, seed=0)
    tokenizer = world_text.build_tokenizer(made)
    said = world.biography(made, made.people[0], random.Random(0))
    text, spans = offsets_of(tokenizer(said)["input_ids"], tokenizer)
    own = tokenizer(said, return_offsets_mapping=True)["offset_mapping"]
    assert text == said
    assert [said[s:e].strip() for s, e in spans] == [said[s:e] for s, e in own]


@pytest.mark.assets
def test_each_statement_of_a_real_response_is_paid_at_its_last_word():
    tokenizer = smollm2()
    response = f"{TURING} He studied in Zürich 😀, then in Łódź."
    ids = tokenizer(response)["input_ids"] + [tokenizer.eos_token_id]
    text, spans = offsets_of(ids, tokenizer)
    rewards = [
        (TURING, [("Turing was an American.", 1.0), ("He was born in 1911.", 2.0)]),
        (
            response.removeprefix(TURING),
            [("Turing studied in Zürich.", 3.0), ("He was in Łódź.", 4.0), (None, 5.0)],
        ),
    ]
    ends = [until(end, text) for end in ("American", "1911", "Zürich", "Łódź")]
    tokens = [token_of(end, spans) for end in [*ends, len(text) - 1]]
    assert np.flatnonzero(spread(rewards, text, spans)).tolist() == tokens
    assert spread(rewards, text, spans)[tokens].tolist() == [1, 2, 3, 4, 5]
    assert [text[slice(*spans[t])] for t in tokens[:2]] == [" American", "1"]
