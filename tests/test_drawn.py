"""Drawn responses: resumed as if never killed, ranked, and made into rows to learn."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factkit import models, params
from factkit.curate import drawn
from factkit.curate.drawn import (
    Drawn,
    best_rows,
    gap_pairs,
    margin_pair,
    margin_pairs,
    widest_pair,
)
from factkit.datasets import world_prompts as wp
from factkit.datasets.examples import Example
from factkit.rar import rewards as rar
from factkit.rlfh.feedback import annotator, share_true
from factkit.verify.exact import ExactEngine, WorldReader
from factkit.world import facts as w

EXAMPLES = [
    Example(id=f"q{i}", question=f"Who is {i}?", answers=["x"], entity=f"e{i}")
    for i in range(drawn.PART + 8)  # a whole part, and one that is not
]


@pytest.fixture
def p():
    return params.load("rar", "tiny", {"drawn_responses": 3, "seed": 2})


@pytest.fixture
def sampler(monkeypatch):
    """In place of the model: texts that show the seed and the prompt they come from."""
    calls = []

    def sample(model, tokenizer, asked, sampling, n=1, seed=0, progress=""):
        calls.append((len(asked), n, seed, sampling.temperature))
        return [[f"{seed}|{prompt}|{k}" for k in range(n)] for prompt in asked]

    monkeypatch.setattr(models, "sample", sample)
    return calls


def score(ids, prompts, responses):
    """The last sign of a response as its score; None for the second ones."""
    assert len(ids) == len(prompts) == len(responses)
    last = [int(text[-1]) for text in responses]
    return [None if k == 1 else k / 2 for k in last]


def draw(p, path, score=score, examples=EXAMPLES):
    return drawn.draw(None, None, examples, p, score, path)


# Drawing


def test_an_opened_form_is_completed_part_by_part(p, monkeypatch, tmp_path):
    """Reasoning, then the answer; both without what follows a tag or is cut off."""
    asked_for = []

    def sample(model, tokenizer, asked, sampling, n=1, seed=0, progress=""):
        asked_for.append((list(asked), n, sampling.max_new_tokens))
        drawn = {
            1: ["It is so. </think> <answer> x", "It is so. And then", "no end"],
            2: ["He is old. </answer> more", "He is old. He", ""],
        }[len(asked_for)]
        return [drawn] if n > 1 else [[text] for text in drawn]

    monkeypatch.setattr(models, "sample", sample)
    said = []

    def score(ids, prompts, responses):
        said.extend(responses)
        return [1.0] * len(responses)

    chat = p.model_copy(update={"chat": True, "max_completion_length": 40})
    path = tmp_path / "drawn.jsonl"
    drawn.draw(None, None, EXAMPLES[:1], chat, score, path, "reasoned_opened")
    assert said == [
        "<think> It is so. </think> <answer> He is old. </answer>",
        "<think> It is so. </think> <answer> He is old. </answer>",
        "<think> no end </think> <answer>  </answer>",
    ]
    (first, n, tokens), (second, m, _) = asked_for
    assert (n, m, tokens) == (3, 1, 20)
    assert first[0].endswith("Question: Who is 0?\nResponse: <think>")
    assert [text.removeprefix(first[0]) for text in second] == [
        *(" It is so. </think> <answer>", " It is so. </think> <answer>"),
        " no end </think> <answer>",
    ]


def test_each_request_gets_its_own_responses_with_their_scores(p, sampler, tmp_path):
    rows = draw(p, tmp_path / "drawn.jsonl")
    assert [row.id for row in rows] == [e.id for e in EXAMPLES]
    for row, example in zip(rows, EXAMPLES, strict=True):
        assert len(row.responses) == 3
        assert all(f"Question: {example.question}" in text for text in row.responses)
        assert row.scores == [0.0, None, 1.0]


def test_a_template_of_its_own_puts_the_requests(p, sampler, tmp_path):
    path = tmp_path / "drawn.jsonl"
    rows = drawn.draw(None, None, EXAMPLES, p, score, path, "think_first")
    plain = draw(p, tmp_path / "plain.jsonl")
    for row, other in zip(rows, plain, strict=True):
        thinking = [t.replace("Think before you answer.\n", "") for t in row.responses]
        assert thinking == other.responses != row.responses


def test_a_response_is_scored_with_its_own_prompt(p, sampler, tmp_path):
    def matches(ids, prompts, responses):
        found = zip(ids, prompts, responses, strict=True)
        return [float(f"Who is {i[1:]}?" == q and q in text) for i, q, text in found]

    rows = draw(p, tmp_path / "drawn.jsonl", matches)
    assert {s for row in rows for s in row.scores} == {1.0}


def test_the_parts_have_seeds_of_their_own_from_the_run_s(p, sampler, tmp_path):
    draw(p, tmp_path / "drawn.jsonl")
    first = 1_000_003 * p.seed
    assert sampler == [
        (drawn.PART, 3, first, p.drawn_temperature),
        (8, 3, first + drawn.PART, p.drawn_temperature),
    ]


def test_a_drawing_cut_off_goes_on_to_the_same_rows(p, sampler, tmp_path):
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    expected = draw(p, whole)
    kept = whole.read_text().splitlines(keepends=True)
    # in the first part, at its end, in the second part, within a line
    for lines in (0, 5, drawn.PART, drawn.PART + 3):
        for tail in ("", '{"id": "q7", "resp'):
            cut.write_text("".join(kept[:lines]) + tail)
            assert draw(p, cut) == expected
            assert cut.read_bytes() == whole.read_bytes()


def test_a_finished_drawing_asks_no_model_and_no_verifier(p, sampler, tmp_path):
    path = tmp_path / "drawn.jsonl"
    expected = draw(p, path)
    sampler.clear()

    def refuse(*_):
        raise AssertionError("scored again")

    assert draw(p, path, refuse) == expected
    assert not sampler


def test_a_verifier_that_breaks_off_leaves_no_half_part(p, sampler, tmp_path):
    path, calls = tmp_path / "drawn.jsonl", itertools.count()

    def breaks(ids, prompts, responses):
        if next(calls) == 1:
            raise ConnectionError
        return score(ids, prompts, responses)

    with pytest.raises(ConnectionError):
        draw(p, path, breaks)
    assert len(drawn.read_drawn(path)) == drawn.PART
    assert draw(p, path) == draw(p, tmp_path / "whole.jsonl")


def test_a_response_with_any_line_separator_is_read_back(p, monkeypatch, tmp_path):
    # separators that JSON need not escape, but that str.splitlines takes for line ends
    texts = ["a\nb", "a\u2028b", "a\u2029b", "a\x85b", "a\x1cb", "a\rb"]
    monkeypatch.setattr(models, "sample", lambda *_, **how: [texts])
    path = tmp_path / "drawn.jsonl"
    scores = lambda ids, prompts, responses: [1.0] * len(texts)  # noqa: E731
    (row,) = draw(p, path, scores, EXAMPLES[:1])
    assert drawn.read_drawn(path) == [row] == [Drawn("q0", texts, [1.0] * 6)]


# Ranking


def test_the_best_comes_first_of_equals_the_one_drawn_first_without_a_score_none():
    row = Drawn("q", ["a", "b", "c", "d", "e"], [0.5, 1.0, 0.5, None, 1.0])
    assert row.ranked == [(1.0, "b"), (1.0, "e"), (0.5, "a"), (0.5, "c")]
    assert Drawn("q", ["a", "b"], [None, None]).ranked == []


# SFT's rows


def test_sft_learns_the_best_response_that_has_a_point(p):
    scores = [0.0, 0.0], [0.25, 0.75], [None, 0.0], [None, None]
    found = [Drawn(f"q{i}", ["a", "b"], pair) for i, pair in enumerate(scores)]
    (row,) = best_rows(EXAMPLES[:4], found, p)
    assert row == {"prompt": "Question: Who is 1?\nAnswer:", "completion": " b"}


# DPO's pairs: the widest gap of score within the length rule

TEN = " ".join("w" * 10)  # ten words
NINE = " ".join("v" * 9)


def test_the_widest_pair_of_a_request():
    for responses, scores, limit, expected in (
        (["a", "b", "c"], [0.2, 0.9, 0.5], 0.1, ("b", "a")),
        # the widest pair is of unequal length, the next widest is not
        (["a", "b b b b", "c"], [0.2, 0.9, 0.5], 0.1, ("c", "a")),
        (["a", "b b b b", "c"], [0.2, 0.9, 0.5], 0.76, ("b b b b", "a")),
        # strictly below the limit: 1 − 9/10 is 0.1
        ([TEN, NINE], [1.0, 0.0], 0.1, None),
        ([TEN, NINE], [0.0, 1.0], 0.1, None),
        ([TEN, NINE], [1.0, 0.0], 0.11, (TEN, NINE)),
        # equal gaps: the pair whose better response is best
        (["a", "b", "c c", "d d"], [0.0, 0.5, 0.5, 1.0], 0.1, ("d d", "c c")),
        (["d d", "c c", "b", "a"], [1.0, 0.5, 0.5, 0.0], 0.1, ("d d", "c c")),
        # equal in everything: the ones drawn first
        (["a", "b", "c", "d"], [0.0, 1.0, 1.0, 0.0], 0.1, ("b", "a")),
        # no gap, one response, none that was scored
        (["a", "b"], [0.5, 0.5], 0.1, None),
        (["a"], [1.0], 0.1, None),
        (["a", "b"], [1.0, None], 0.1, None),
        ([], [], 0.1, None),
        # empty responses have equal lengths, and none has an empty one's
        (["", " "], [1.0, 0.0], 0.1, ("", " ")),
        (["", "a"], [1.0, 0.0], 0.99, None),
    ):
        assert widest_pair(Drawn("q", responses, scores), limit) == expected


responses = st.lists(
    st.tuples(
        st.integers(0, 12),
        st.none() | st.sampled_from([0.0, 0.25, 1 / 3, 0.5, 1.0]) | st.floats(0, 1),
    ),
    max_size=8,
)
limits = st.floats(0.01, 1.5)


def made(pairs):
    """Responses that differ, of these lengths and scores."""
    texts = [" ".join([f"r{i}"] * n) + " " * i for i, (n, _) in enumerate(pairs)]
    return Drawn("q", texts, [score for _, score in pairs])


@given(responses, limits)
def test_a_pair_keeps_to_the_length_rule_and_no_pair_that_does_is_wider(pairs, limit):
    row = made(pairs)
    rows = list(zip(row.responses, row.scores, strict=True))
    allowed = {}
    for (a, high), (b, low) in itertools.permutations(rows, 2):
        n, m = len(a.split()), len(b.split())
        close = abs(n - m) / max(n, m) < limit if n or m else True
        if None not in (high, low) and high > low and close:
            allowed[a, b] = high - low
    pair = widest_pair(row, limit)
    assert (pair is None) == (not allowed)
    if pair:
        assert allowed[pair] == max(allowed.values())


def test_dpo_learns_the_pair_and_skips_a_request_without_one(p):
    """RLFH's comparison takes pairs of any lengths."""
    found = [
        Drawn("q0", ["a", "b"], [0.0, 1.0]),
        Drawn("q1", ["a", "b b"], [0.0, 1.0]),
        Drawn("q2", ["a", "b"], [None, 1.0]),
        Drawn("q3", ["a", "b"], [0.5, 0.5]),
    ]
    first = {
        "prompt": "Question: Who is 0?\nAnswer:",
        "chosen": " b",
        "rejected": " a",
    }
    second = first | {"prompt": "Question: Who is 1?\nAnswer:", "chosen": " b b"}
    assert gap_pairs(EXAMPLES[:4], found, p, p.length_difference) == [first]
    assert gap_pairs(EXAMPLES[:4], found, p) == [first, second]


# Learning to Reason's pairs: a margin above τ_m, and near in length to the worse one


def words(n, of="w"):
    return " ".join([of] * n)


def test_the_pair_of_the_widest_margin():
    for responses, scores, expected in (
        (["a", "b", "c"], [0.2, 0.9, 0.5], ("b", "a")),
        # the widest pair is of unequal length, the next widest is not
        (["a", "b b", "c"], [0.2, 0.9, 0.5], ("c", "a")),
        # equal margins: the pair whose better response is best
        (["a", "b", "c c", "d d"], [0.0, 0.5, 0.5, 1.0], ("d d", "c c")),
        # equal in everything: the ones drawn first
        (["a", "b", "c", "d"], [0.0, 1.0, 1.0, 0.0], ("b", "a")),
        # no margin, one response, none that was scored
        (["a", "b"], [0.5, 0.5], None),
        (["a"], [1.0], None),
        (["a", "b"], [1.0, None], None),
        ([], [], None),
        # against an empty response there is no relative length
        (["", " "], [1.0, 0.0], None),
        (["a", ""], [1.0, 0.0], None),
    ):
        assert margin_pair(Drawn("q", responses, scores), 0.1, 0.1) == expected


def test_the_margin_is_above_its_least():
    for high, low, margin, kept in (
        (0.8, 0.6, 0.1, True),
        (0.8, 0.75, 0.1, False),
        # strictly above, also where floats are a bit above
        (0.8, 0.7, 0.1, False),
        (0.4, 0.3, 0.1, False),
        (0.9, 0.8, 0.1, False),
        (2 / 3, 1 / 3, 1 / 3, False),
        (1.0, 0.0, 0.999, True),
        (0.5, 0.5, 0.0, False),
        (0.51, 0.5, 0.0, True),
    ):
        pair = margin_pair(Drawn("q", ["a", "b"], [low, high]), margin, 0.1)
        assert pair == (("b", "a") if kept else None)


def test_the_length_differs_by_at_most_its_share_of_the_rejected():
    for chosen, rejected, limit, kept in (
        # |1 − l_c / l_r| ≤ 0.1, relative to the rejected response, not the longer one
        (9, 10, 0.1, True),
        (11, 10, 0.1, True),
        (8, 10, 0.1, False),
        (12, 10, 0.1, False),
        (10, 9, 0.1, False),  # 1/9 is more
        (10, 11, 0.1, True),  # 1/11 is less
        (22, 20, 0.1, True),
        (23, 20, 0.1, False),
        (99, 90, 0.1, True),
        (100, 90, 0.1, False),
        (13, 10, 0.3, True),
        (20, 10, 1.0, True),
        (21, 10, 1.0, False),
        (50, 1, float("inf"), True),
    ):
        better, worse = words(chosen, "a"), words(rejected, "b")
        pair = margin_pair(Drawn("q", [worse, better], [0.0, 1.0]), 0.1, limit)
        assert pair == ((better, worse) if kept else None)


# F / T of an answer of up to 12 claims
precisions = st.integers(1, 12).flatmap(
    lambda t: st.integers(0, t).map(lambda f: f / t)
)
of_a_request = st.lists(
    st.tuples(st.integers(0, 12), st.none() | precisions), max_size=8
)


@given(of_a_request, st.sampled_from([0.0, 0.1, 0.5]), st.sampled_from([0.1, 0.5, 1.0]))
def test_a_pair_keeps_both_conditions_and_no_pair_that_does_is_wider(
    pairs, margin, limit
):
    row = made(pairs)
    rows = list(zip(row.responses, row.scores, strict=True))
    allowed = {}
    for (a, high), (b, low) in itertools.permutations(rows, 2):
        chosen, rejected = len(a.split()), len(b.split())
        if None in (high, low) or not rejected:
            continue
        # exact: tenths of whole numbers, and twelfths
        near = abs(rejected - chosen) * 10 <= round(limit * 10) * rejected
        if high - low > margin + 1e-9 and near:
            allowed[a, b] = high - low
    pair = margin_pair(row, margin, limit)
    assert (pair is None) == (not allowed)
    if pair:
        assert allowed[pair] == max(allowed.values())


def reason(least, length):
    values = {"least_margin": least, "length_difference": length}
    return params.load("reason", "tiny", values)


def test_dpo_learns_the_margin_s_pairs_by_the_run_s_limits():
    rows = [
        Drawn("q0", ["a", "b"], [0.0, 1.0]),
        Drawn("q1", ["a", "b b"], [0.0, 1.0]),
        Drawn("q2", ["a", "b"], [0.8, 1.0]),
    ]
    found = {
        (least, length): [
            row["prompt"].split("\n")[0]
            for row in margin_pairs(EXAMPLES[:3], rows, reason(least, length))
        ]
        for least, length in ((0.1, 0.1), (0.3, 0.1), (0.1, 1.0))
    }
    who = [f"Question: Who is {i}?" for i in range(3)]
    assert found == {
        (0.1, 0.1): [who[0], who[2]],
        (0.3, 0.1): [who[0]],
        (0.1, 1.0): who,
    }


# Reasoning


LONG, SHORT = "<think>" + "hm " * 40 + "</think> ", "<think>hm</think> "
NEVER = "<think>" + "hm " * 40


def test_a_pair_s_lengths_are_those_of_the_answers():
    """As the reward judges them; the responses of the pair are whole."""
    same = Drawn("q", [LONG + "a b", SHORT + "c d"], [1.0, 0.0])
    differ = Drawn("q", [SHORT + "a b " * 20, LONG + "c d"], [1.0, 0.0])
    cut = Drawn("q", [SHORT + "a b", NEVER], [1.0, 0.0])
    for pair in (
        lambda of: widest_pair(of, 0.1),
        lambda of: margin_pair(of, 0.1, 0.1),
    ):
        assert pair(same) == (LONG + "a b", SHORT + "c d")
        assert pair(differ) is pair(cut) is None


def test_drawn_responses_are_scored_without_their_reasoning(p):
    """By VeriScore in the fact world; the reasoning has a claim that is false."""
    made = w.build_world(3, people=30)
    person = made.people[0]
    (asked, *_) = wp.requests(made, [person], wp.OPEN)
    first, second = made.facts_of(person)[:2]
    wrong = next(o for o in w.OBJECTS[second.relation] if o != second.object)
    thought = f"<think>{w.statement(replace(second, object=wrong))}"
    said = [
        f"{thought}</think> {w.statement(first)}",
        f"{thought} {w.statement(first)}",
    ]
    engine = ExactEngine(WorldReader(made), {asked.id: asked})
    columns = [asked.id] * 2, [asked.question] * 2, said
    assert rar.rewards_of("veriscore", engine, *columns) == [1.0, 0.0]
    rlfh = params.load("rlfh", "tiny")
    found = annotator(rlfh, engine)(*columns)
    assert [share_true(of) for of in found] == [1.0, None]
