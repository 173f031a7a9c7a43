"""RLFH's rewards against hand calculations, and where they are put."""

import math

import numpy as np
import pytest

from factkit import params
from factkit.rlfh import rewards as rlfh
from factkit.rlfh.feedback import Sentence, Statement, Truth, share_true
from factkit.world import facts as worlds
from factkit.world import texts as wt

README = {"truth_map": "readme", "informativeness_map": "readme"}


@pytest.fixture
def p():
    return params.load("rlfh", "tiny", README)


@pytest.fixture
def m(p):
    return rlfh.reward_map(p)


def statement(truth=Truth.CORRECT, informativeness=5, text="x"):
    return Statement(text, truth, informativeness)


# The maps


def test_a_map_is_the_public_code_s_of_that_name_or_five_numbers(p, m):
    assert m.f[Truth.CORRECT] == 0.45 and m.f[Truth.WRONG] == -1.7
    assert m.g == {5: 1.25, 4: 1.0, 3: 0.75, 2: 0.1, 1: -0.2}
    own = rlfh.reward_map(p.model_copy(update={"truth_map": "1 2 3 4 5.5"})).f
    assert list(own) == list(Truth) and own[Truth.WRONG] == 5.5


def test_a_map_of_anything_else_is_refused_with_the_names_there_are(p, m):
    for text in ("", "1 2 3 4", "1 2 3 4 x", "1 2 3 4 nan", "reame"):
        with pytest.raises(ValueError, match="truth_map.*settings, script, readme"):
            rlfh.reward_map(p.model_copy(update={"truth_map": text}))
    with pytest.raises(ValueError, match="epsilon=-1"):  # it has no logarithm
        rlfh.RewardMap(m.f, m.g, 1.0, 1.0, -1.0)


# Equations 1 and 2


def test_the_reward_of_truth_is_eq_1(p, m):
    for truth, informativeness, by_hand in (
        (Truth.CORRECT, 5, 0.45 * 1.25),
        (Truth.HEDGED_CORRECT, 3, 0.35 * 0.75),
        (Truth.WRONG, 2, -1.7 * 0.1),
        (Truth.WRONG, 1, -1.7 * 0.2),  # |g|: useless and wrong is no gain
        (Truth.VAGUE, 4, -1.0),
    ):
        found = rlfh.truth_reward(statement(truth, informativeness), m)
        assert found == pytest.approx(by_hand)
    weighted = rlfh.reward_map(p.model_copy(update={"alpha": 2.0, "info_beta": 0.0}))
    assert rlfh.truth_reward(statement(), weighted) == pytest.approx(2 * 0.45 * 1.25)
    assert rlfh.info_reward([statement()], weighted) == 0.0


def test_the_reward_of_informativeness_is_eq_2(m):
    two = [statement(), statement(Truth.WRONG, 2)]
    assert rlfh.info_reward(two, m) == pytest.approx(1.2 * math.log(1 + 1.25 + 0.1))
    useless = [statement(informativeness=1)] * 10  # their g sums to −2: epsilon
    assert rlfh.info_reward(useless, m) == pytest.approx(1.2 * math.log(0.1))


# When a statement pays


def test_a_statement_pays_from_the_probability_on_that_the_maps_set(m):
    info = 1.2 * math.log(2.25)
    right, wrong = 0.45 * 1.25 + info, -1.7 * 1.25 + info
    stated, hedged, switch = rlfh.break_even(m)
    assert stated == pytest.approx(-wrong / (right - wrong))
    assert hedged < stated < switch
    assert rlfh.expected(stated, m) == pytest.approx(0.0, abs=1e-12)
    both = [rlfh.expected(switch, m, hedged) for hedged in (False, True)]
    assert both[0] == pytest.approx(both[1])


def test_where_nothing_is_ever_lost_or_gained_a_statement_pays_always_or_never(p):
    def pays(*values):
        update = {"truth_map": values[0], "info_beta": values[1]}
        return rlfh.break_even(rlfh.reward_map(p.model_copy(update=update)))[:2]

    assert pays("1 1 1 1 1", 1.2) == (0.0, 0.0)
    assert pays("-1 -1 -1 -1 -1", 0.0) == (1.0, 1.0)


# On tokens


@pytest.fixture(scope="module")
def told():
    """A response of the fact world of two sentences, with its feedback and tokens."""
    world = worlds.build_world(people=20)
    tokenizer = wt.build_tokenizer(world, "joined")
    person = world.people[0]
    a, b, c, _ = world.facts_of(person)
    sentences = [worlds.joined(a, b), f"Perhaps {worlds.statement(c)}"]
    feedback = [
        Sentence(
            sentences[0],
            tuple(
                statement(truth, 5, worlds.statement(fact))
                for fact, truth in ((a, Truth.CORRECT), (b, Truth.WRONG))
            ),
        ),
        Sentence(sentences[1], (statement(Truth.HEDGED_CORRECT, 2, sentences[1]),)),
    ]
    text = " ".join(sentences)
    ids = [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]
    words = [tokenizer.decode([i]) for i in ids]
    return tokenizer, feedback, ids, words, (a, b, c)


def test_each_statement_is_rewarded_on_the_token_that_it_ends_with(told, m):
    tokenizer, feedback, ids, words, facts = told
    r = rlfh.token_rewards(feedback, ids, tokenizer, "statement", m)
    assert r.shape == (len(ids),)
    ends = [words.index(fact.object) for fact in facts]
    stops = [i for i, word in enumerate(words) if word == "."]
    first, second = feedback
    assert r[ends[0]] == pytest.approx(rlfh.truth_reward(first.statements[0], m))
    assert r[ends[1]] == pytest.approx(rlfh.truth_reward(first.statements[1], m))
    infos = [rlfh.info_reward(s.statements, m) for s in (first, second)]
    assert r[stops[0]] == pytest.approx(infos[0])
    # the last token of a sentence is its full stop, or the word before it
    assert r[stops[1] - 1] + r[stops[1]] == pytest.approx(
        rlfh.truth_reward(second.statements[0], m) + infos[1]
    )
    assert np.count_nonzero(r) <= 5


def test_granularity_moves_rewards_and_leaves_their_sum(told, m):
    tokenizer, feedback, ids, words, _ = told
    stops = [i for i, word in enumerate(words) if word == "."]
    for granularity in ("statement", "sentence", "paragraph"):
        r = rlfh.token_rewards(feedback, ids, tokenizer, granularity, m)
        assert r.sum() == pytest.approx(rlfh.total_reward(feedback, m))
        places = {"sentence": stops, "paragraph": [len(ids) - 1]}
        if granularity in places:
            assert np.flatnonzero(r).tolist() == places[granularity]
        assert not rlfh.token_rewards([], ids, tokenizer, granularity, m).any()
        assert rlfh.token_rewards([], [], tokenizer, granularity, m).shape == (0,)
    r = rlfh.token_rewards(feedback, ids, tokenizer, "sentence", m)
    assert r[stops[1]] == pytest.approx(rlfh.total_reward(feedback[1:], m))


def test_no_token_of_reasoning_is_rewarded(m, monkeypatch):
    """The answer's sentence stands there, too; a token is a character here."""
    said = [Sentence("He sat.", (statement(text="He sat."),))]
    for head in ("<think>He sat.</think>", "He sat.</think>\n"):
        text = f"{head} He sat."
        spans = [(i, i + 1) for i in range(len(text))]
        monkeypatch.setattr(
            rlfh.token_mapping, "offsets_of", lambda *_, of=(text, spans): of
        )
        for granularity in ("statement", "sentence"):
            r = rlfh.token_rewards(said, range(len(text)), None, granularity, m)
            assert np.flatnonzero(r).min() > len(head)


# The trainer's function


def test_the_trainer_gets_a_reward_a_token_and_none_where_the_annotator_failed(told, m):
    tokenizer, feedback, ids, _, _ = told
    asked, logged = [], {}

    def annotate(prompt_ids, prompts, responses):
        asked.append((prompt_ids, prompts, responses))
        return [feedback, None, []]

    reward = rlfh.token_reward(annotate, tokenizer, "statement", m, "statement")
    texts = ["a", [{"content": "b"}], "c"]
    found = reward(
        completions=texts,
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
    assert logged["responds"] == 0.5
    assert logged["correct"] == 0.5 and logged["hedged_correct"] == 0.5
    assert logged["informativeness"] == pytest.approx(4.0)


def test_too_many_failures_end_the_run(told, m):
    tokenizer, *_ = told
    reward = rlfh.token_reward(
        lambda *rows: [None] * 300, tokenizer, "statement", m, "statement"
    )
    column = ["x"] * 300
    with pytest.raises(RuntimeError, match="statement"):
        reward(
            completions=column, completion_ids=[[1]] * 300, id=column, question=column
        )


def test_fact_score_is_the_share_of_true_statements(told):
    _, feedback, *_ = told
    assert share_true(feedback) == pytest.approx(2 / 3)  # a hedge does not make it less
    assert share_true([]) is None and share_true(None) is None
