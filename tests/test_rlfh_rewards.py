"""RLFH's rewards by hand, and the way from statements to tokens."""

import math
import random
import re
from functools import cache, partial

import numpy as np
import plain_mapping as plain
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tokenizers import byte_level

from factkit.data import assets
from factkit.facts.world import facts as worlds
from factkit.facts.world import texts as wt
from factkit.papers.rlfh import rewards as rlfh
from factkit.papers.rlfh.feedback import Sentence, Statement, Truth
from factkit.papers.rlfh.rewards import find_sentence, place_rewards, statement_end
from factkit.policy.models import decode_with_offsets
from factkit.run import params

README = {"truth_map": "readme", "informativeness_map": "readme"}
TURING = "Turing was an American born in 1911."
marks = ["a", "b", " ", ".", "é", "e\u0301", "日", "😀"]
many = st.lists(st.sampled_from(marks), max_size=20).map("".join)
texts = st.text("ab ", max_size=20) | many | st.text(max_size=30)


@pytest.fixture
def p():
    return params.load("rlfh", "tiny", README)


@pytest.fixture
def m(p):
    return rlfh.reward_map(p)


def statement(truth=Truth.CORRECT, informativeness=5, text="x"):
    return Statement(text, truth, informativeness)


# Equations 1 and 2


def test_a_map_is_the_public_code_s_of_that_name_or_five_numbers(p, m):
    assert m.f[Truth.CORRECT] == 0.45 and m.f[Truth.WRONG] == -1.7
    assert m.g == {5: 1.25, 4: 1.0, 3: 0.75, 2: 0.1, 1: -0.2}
    own = rlfh.reward_map(p.model_copy(update={"truth_map": "1 2 3 4 5.5"})).f
    assert list(own) == list(Truth) and own[Truth.WRONG] == 5.5
    for text in ("", "1 2 3 4", "1 2 3 4 x", "1 2 3 4 nan", "reame"):
        with pytest.raises(params.ParamError, match="truth_map.*settings, script, rea"):
            params.load("rlfh", "tiny", {"truth_map": text})


def test_the_reward_of_truth_is_eq_1(p, m):
    for truth, informativeness, by_hand in (
        (Truth.CORRECT, 5, 0.45 * 1.25),
        (Truth.HEDGED_CORRECT, 3, 0.35 * 0.75),
        (Truth.WRONG, 1, -1.7 * 0.2),  # |g|: useless and wrong is no gain
        (Truth.VAGUE, 4, -1.0),
    ):
        found = rlfh.truth_reward(statement(truth, informativeness), m)
        assert found == pytest.approx(by_hand)
    weighted = rlfh.reward_map(p.model_copy(update={"alpha": 2.0}))
    assert rlfh.truth_reward(statement(), weighted) == pytest.approx(2 * 0.45 * 1.25)


def test_the_reward_of_informativeness_is_eq_2(m):
    two = [statement(), statement(Truth.WRONG, 2)]
    assert rlfh.info_reward(two, m) == pytest.approx(1.2 * math.log(1 + 1.25 + 0.1))
    useless = [statement(informativeness=1)] * 10  # their g sums to −2: epsilon
    assert rlfh.info_reward(useless, m) == pytest.approx(1.2 * math.log(0.1))


# Statement → sentence → response


def until(part, text=TURING):
    """The position in a text of the last character of one of its parts."""
    assert text.count(part) == 1
    return text.index(part) + len(part) - 1


def characters(text):
    """Offsets with a token for each character."""
    return [(i, i + 1) for i in range(len(text))]


def test_a_statement_ends_where_its_last_word_does_by_hand():
    for said, end in {
        "Turing was an American": "American",
        "Turing was born in 1911": "1911",
        "Turing was born": "born",
        "xyz: 1911": "1911",
    }.items():
        assert statement_end(said, TURING) == until(end)
    sentence = "Bo was born in Rome and died in Rome, in 1911, a Roman."
    ends = {
        "Bo was born in Rome": sentence.index("Rome") + 3,
        "Bo died in Rome": sentence.rindex("Rome") + 3,
        "Bo was a Roman": sentence.index("Roman") + 4,
    }
    assert {s: statement_end(s, sentence) for s in ends} == ends


@settings(max_examples=500)
@given(texts, texts, st.integers(0, 30))
def test_both_longest_common_parts_are_the_plain_programmes(one, other, after):
    assert statement_end(one, other) == plain.last_in_sentence(one, other)
    a, b, size = find_sentence(one, other, after)
    assert ((b, a, size) if size else None) == plain.start_in_response(
        one, other, after
    )


def test_rewards_land_on_the_tokens_by_hand():
    response = f"{TURING} He was gay."
    words = [word.span() for word in re.finditer(r"\w+|\.", response)]
    rewards = [
        (
            TURING,
            [("Turing was American.", -1.0), ("He was born in 1911.", -0.5), (None, 2)],
        ),
        ("He was gay.", [("Turing was gay.", 1.0), ("?", 0.5), (None, 0.25)]),
    ]
    expected = [0, 0, 0, -1, 0, 0, -0.5, 2, 0, 0, 1, 0.75]
    assert place_rewards(rewards, response, words).tolist() == expected
    # white space before the first token; two that share a character; special ones
    shared = [(0, 0), (1, 2), (2, 3), (2, 3), (0, 0)]
    found = place_rewards([("a b", [("a", 1.0), ("b", 2.0)])], "a b", shared)
    assert found.tolist() == [0, 1, 0, 2, 0]


def test_repeated_sentences_are_rewarded_in_order_and_cut_ones_at_their_end():
    response = "So it is. So it is. No. So it is."
    rewards = [("So it is.", [(None, 1.0)])] * 3
    found = place_rewards(rewards, response, characters(response))
    assert np.flatnonzero(found).tolist() == [8, 18, len(response) - 1]
    response = TURING[: until("American") + 1]
    rewards = [(TURING, [("He was born in 1911.", -1.0), (None, 0.5)])]
    found = place_rewards(rewards, response, characters(response))
    assert found[-1] == -0.5 and not found[:-1].any()


def test_nothing_is_paid_for_nothing_in_common():
    for response in ("", " \n", "It is"):
        for sentence in ("日 本", "", " \n"):
            rewards = [(sentence, [("It is.", 1.0), (None, 1.0)])]
            assert not place_rewards(rewards, response, characters(response)).any()


halves = st.integers(-8, 8).map(lambda n: n / 2)
paid = st.lists(st.tuples(st.none() | texts, halves), max_size=4)


@given(st.lists(st.tuples(texts, paid), max_size=4))
def test_no_reward_is_lost_whose_sentence_is_in_the_response(rewards):
    rewards = [(sentence, paid) for sentence, paid in rewards if sentence.strip()]
    response = "\n".join(sentence for sentence, _ in rewards)
    found = place_rewards(rewards, response, characters(response))
    assert found.sum() == sum(reward for _, paid in rewards for _, reward in paid)


# Offsets of sampled tokens


def word_level():
    """Profile tiny's: decoding puts the spaces in, but not before a full stop."""
    return wt.build_tokenizer(worlds.build_world(people=40, seed=0), "reasoned")


def pieces():
    """As Llama 2's: "▁" is a space, and what has no piece is spelt in bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers
    from transformers import PreTrainedTokenizerFast

    units = ["<unk>", "▁", "▁a", "b", "é", *(f"<0x{i:02X}>" for i in range(256))]
    vocabulary = {unit: i for i, unit in enumerate(units)}
    model = models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True)
    backend = Tokenizer(model)
    backend.normalizer = normalizers.Replace(" ", "▁")
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", eos_token="</s>"
    )


@cache
def smollm2():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(assets.policy_path("smollm2-135m-instruct"))


KINDS = [partial(byte_level, eos_token="<eos>"), word_level, pieces]
KINDS = [*KINDS, pytest.param(smollm2, marks=pytest.mark.assets)]


@pytest.mark.parametrize("kind", KINDS)
def test_spans_of_any_tokens_tile_the_decoded_text_and_special_ones_have_none(kind):
    tokenizer, rng = kind(), random.Random(0)
    eos = tokenizer.eos_token_id
    for _ in range(150):
        few = rng.choice((len(tokenizer), 300))
        ids = rng.choices(range(min(few, len(tokenizer))), k=rng.randrange(25))
        ids.insert(rng.randrange(len(ids) + 1), eos)
        text, spans = decode_with_offsets(ids, tokenizer)
        assert text == tokenizer.decode(ids, skip_special_tokens=True)
        assert "".join(text[a:b] for a, b in spans) == text
        assert spans[ids.index(eos)][0] == spans[ids.index(eos)][1]
        assert len(spans) == len(ids)


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[-1]])
@given(text=st.text() | many)
def test_a_token_ends_where_the_tokenizer_says_that_it_does(kind, text):
    """Of tokens that share a character the last one, which is the one that holds it."""
    tokenizer = kind()
    encoded = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    if tokenizer.unk_token_id not in encoded["input_ids"]:
        decoded, spans = decode_with_offsets(encoded["input_ids"], tokenizer)
        last = {end: i for i, (_, end) in enumerate(encoded["offset_mapping"])}
        assert decoded == text
        assert all(spans[i][1] == end for end, i in last.items())


@pytest.mark.assets
def test_each_statement_of_a_real_response_is_paid_at_its_last_word():
    tokenizer = smollm2()
    rest = " He studied in Zürich 😀, then in Łódź."
    ids = tokenizer(TURING + rest)["input_ids"] + [tokenizer.eos_token_id]
    text, spans = decode_with_offsets(ids, tokenizer)
    rewards = [
        (TURING, [("Turing was an American.", 1.0), ("He was born in 1911.", 2.0)]),
        (
            rest,
            [("Turing studied in Zürich.", 3.0), ("He was in Łódź.", 4.0), (None, 5.0)],
        ),
    ]
    found = place_rewards(rewards, text, spans)
    (tokens,) = np.nonzero(found)
    assert found[tokens].tolist() == [1, 2, 3, 4, 5]
    ends = ["American", "1911", "Zürich", "Łódź", rest]
    assert [spans[t][1] - 1 for t in tokens] == [until(end, text) for end in ends]


# On tokens


@pytest.fixture(scope="module")
def told():
    """A response of the fact world of two sentences, with its feedback and tokens."""
    world = worlds.build_world(people=20)
    tokenizer = wt.build_tokenizer(world, "joined")
    a, b, c, _ = world.facts_of(world.people[0])
    sentences = [worlds.join_statements(a, b), f"Perhaps {worlds.statement(c)}"]
    stated = [
        statement(Truth.CORRECT, 5, worlds.statement(a)),
        statement(Truth.WRONG, 5, worlds.statement(b)),
    ]
    hedged = statement(Truth.HEDGED_CORRECT, 2, sentences[1])
    feedback = [
        Sentence(sentences[0], tuple(stated)),
        Sentence(sentences[1], (hedged,)),
    ]
    ids = [*tokenizer(" ".join(sentences))["input_ids"], tokenizer.eos_token_id]
    words = [tokenizer.decode([i]) for i in ids]
    return tokenizer, feedback, ids, words, (a, b)


def test_each_statement_is_rewarded_on_the_token_that_it_ends_with(told, m):
    tokenizer, feedback, ids, words, facts = told
    r = rlfh.token_rewards(feedback, ids, tokenizer, "statement", m)
    stops = [i for i, word in enumerate(words) if word == "."]
    first, second = feedback
    for fact, stated in zip(facts, first.statements, strict=True):
        at = words.index(fact.object)
        assert r[at] == pytest.approx(rlfh.truth_reward(stated, m))
    infos = [rlfh.info_reward(s.statements, m) for s in (first, second)]
    assert r[stops[0]] == pytest.approx(infos[0])
    # the last token of a sentence is its full stop, or the word before it
    truth = rlfh.truth_reward(second.statements[0], m)
    assert r[stops[1] - 1] + r[stops[1]] == pytest.approx(truth + infos[1])
    assert np.count_nonzero(r) <= 5 and r.shape == (len(ids),)


def test_granularity_moves_rewards_and_leaves_their_sum(told, m):
    tokenizer, feedback, ids, words, _ = told
    stops = [i for i, word in enumerate(words) if word == "."]
    places = {"sentence": stops, "paragraph": [len(ids) - 1], "statement": None}
    for granularity, expected in places.items():
        r = rlfh.token_rewards(feedback, ids, tokenizer, granularity, m)
        assert r.sum() == pytest.approx(rlfh.total_reward(feedback, m))
        assert expected is None or np.flatnonzero(r).tolist() == expected
        assert not rlfh.token_rewards([], ids, tokenizer, granularity, m).any()
        assert rlfh.token_rewards([], [], tokenizer, granularity, m).shape == (0,)


def test_no_token_of_reasoning_is_rewarded(m, monkeypatch):
    """The answer's sentence stands there, too; a token is a character here."""
    feedback = [Sentence("He sat.", (statement(text="He sat."),))]
    for head in ("<think>He sat.</think>", "He sat.</think>\n"):
        text = f"{head} He sat."
        spans = text, characters(text)
        monkeypatch.setattr(
            rlfh.models, "decode_with_offsets", lambda *_, spans=spans: spans
        )
        for granularity in ("statement", "sentence"):
            r = rlfh.token_rewards(feedback, range(len(text)), None, granularity, m)
            assert np.flatnonzero(r).min() > len(head)


# The trainer's function


def test_the_trainer_gets_a_reward_a_token_and_none_where_the_annotator_failed(told, m):
    tokenizer, feedback, ids, _, _ = told
    asked, logged = [], {}

    def annotate(*columns):
        asked.append(columns)
        return [feedback, None, []]

    reward = rlfh.trl_reward("statement", annotate, tokenizer, m)
    found = reward(
        completions=["a", [{"content": "b"}], "c"],
        completion_ids=[ids, [5, 6], [7]],
        id=["1", "2", "3"],
        question=["q", "r", "s"],
        log_metric=logged.__setitem__,
        prompts=["other columns are no matter"],
    )
    assert asked == [(["1", "2", "3"], ["q", "r", "s"], ["a", "b", "c"])]
    assert found[1] is None and found[2] == [0.0]
    assert sum(found[0]) == pytest.approx(rlfh.total_reward(feedback, m))
    assert logged["annotator_failures"] == pytest.approx(1 / 3)
    assert logged["responds"] == logged["hedged_correct"] == 0.5
    assert logged["informativeness"] == pytest.approx(4.0)
