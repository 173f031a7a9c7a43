"""Sampled responses: resumed as if never killed, ranked, made into training rows."""

import itertools
from functools import partial

import pytest
from fake_policy import FakePolicy
from hypothesis import given
from hypothesis import strategies as st

from factkit.answers.sampling import Draws, ScoredSamples, sample_and_score
from factkit.answers.training_rows import (
    RowFormat,
    margin_pair,
    require_rows,
    widest_pair,
)
from factkit.data.examples import DataError, Example, read_rows
from factkit.policy.decoding import Sampling
from factkit.policy.policy import VllmPolicy
from factkit.policy.vllm_engine import VllmEngine

PART = FakePolicy(None).part_size(3)
ROWS = RowFormat("short_form")

EXAMPLES = [
    Example(id=f"q{i}", question=f"Who is {i}?", answers=["x"], entity=f"e{i}")
    for i in range(PART + 8)  # a whole part, and one that is not
]


@pytest.fixture
def calls():
    """The number of prompts, n, seed and temperature of each call to `policy`."""
    return []


@pytest.fixture
def policy(calls):
    """Its texts show the seed and the prompt that they come from."""

    def generate(prompts, sampling, n=1, seed=0, progress=""):
        calls.append((len(prompts), n, seed, sampling.temperature))
        return [[f"{seed}|{prompt}|{k}" for k in range(n)] for prompt in prompts]

    return FakePolicy(generate)


def score(ids, prompts, responses):
    """The last sign of a response as its score; None for the second ones."""
    rows = zip(ids, prompts, responses, strict=True)
    assert all(f"Who is {i[1:]}?" == q and q in text for i, q, text in rows)
    last = [int(text[-1]) for text in responses]
    return [None if k == 1 else k / 2 for k in last]


def draw(policy, path, score=score, examples=EXAMPLES, template=""):
    draws = Draws(Sampling(4, temperature=0.9), n=3, seed=2, template=template)
    return sample_and_score(policy, examples, draws, score, path)


# Sampling


def test_an_engine_s_parts_are_counted_in_samples(policy, calls, monkeypatch, tmp_path):
    assert VllmPolicy(engine=VllmEngine({})).part_size(8) == 16_384 // 8
    policy.part_size = lambda n: 3 * 25 // n
    rows = draw(policy, tmp_path / "drawn.jsonl")
    assert [row.id for row in rows] == [e.id for e in EXAMPLES]
    assert [n for n, *_ in calls] == [25, len(EXAMPLES) - 25]


def test_what_the_judge_failed_on_is_judged_again_and_nothing_is_drawn_anew(
    policy, calls, tmp_path
):
    """A dead endpoint would else be remembered as no verdict for ever."""
    path = tmp_path / "drawn.jsonl"
    dead = draw(policy, path, lambda ids, prompts, responses: [None] * len(ids))
    n = len(calls)
    rows = draw(policy, path, lambda ids, prompts, responses: [1.0] * len(ids))
    assert [row.responses for row in rows] == [row.responses for row in dead]
    assert {score for row in rows for score in row.scores} == {1.0}
    assert len(calls) == n
    assert read_rows(path, ScoredSamples) == rows


def test_each_request_gets_its_own_responses_each_part_its_seed(
    policy, calls, tmp_path
):
    rows = draw(policy, tmp_path / "drawn.jsonl", template="think_first")
    first = 1_000_003 * 2
    assert calls == [(PART, 3, first, 0.9), (8, 3, first + PART, 0.9)]
    assert [row.id for row in rows] == [e.id for e in EXAMPLES]
    for row, example in zip(rows, EXAMPLES, strict=True):
        assert len(row.responses) == 3 and row.scores == [0.0, None, 1.0]
        assert all(f"Question: {example.question}" in text for text in row.responses)
        assert "Think before you answer." in row.responses[0]


def test_a_sampling_cut_off_goes_on_to_the_same_rows(policy, calls, tmp_path):
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    expected = draw(policy, whole)
    kept = whole.read_text("utf-8").splitlines(keepends=True)
    # in the first part, at its end, in the second part, within a line; finished
    for lines in (0, 5, PART, PART + 3, len(kept)):
        for tail in ("", '{"id": "q7", "resp')[: 1 + (lines < len(kept))]:
            cut.write_text("".join(kept[:lines]) + tail, "utf-8")
            calls.clear()
            assert draw(policy, cut) == expected
            assert cut.read_bytes() == whole.read_bytes()
    assert not calls


def test_a_verifier_that_breaks_off_leaves_no_half_part(policy, tmp_path):
    path, parts = tmp_path / "drawn.jsonl", itertools.count()

    def breaks(ids, prompts, responses):
        if next(parts) == 1:
            raise ConnectionError
        return score(ids, prompts, responses)

    with pytest.raises(ConnectionError):
        draw(policy, path, breaks)
    assert len(read_rows(path, ScoredSamples)) == PART
    assert draw(policy, path) == draw(policy, tmp_path / "whole.jsonl")


def test_a_response_with_any_line_separator_is_read_back(tmp_path):
    # separators that JSON need not escape, but that str.splitlines takes for line ends
    texts = ["a\nb", "a\u2028b", "a\u2029b", "a\x85b", "a\x1cb", "a\rb"]
    policy = FakePolicy(lambda *_, **how: [texts])
    scores = lambda ids, prompts, responses: [1.0] * len(texts)  # noqa: E731
    (row,) = draw(policy, tmp_path / "drawn.jsonl", scores, EXAMPLES[:1])
    rows = read_rows(tmp_path / "drawn.jsonl", ScoredSamples)
    assert rows == [row] == [ScoredSamples("q0", texts, [1.0] * 6)]


# Rows


def test_the_best_comes_first_of_equals_the_one_drawn_first_without_a_score_none():
    row = ScoredSamples("q", ["a", "b", "c", "d", "e"], [0.5, 1.0, 0.5, None, 1.0])
    assert row.ranked == [(1.0, "b"), (1.0, "e"), (0.5, "a"), (0.5, "c")]


def test_sft_learns_the_best_response_that_has_a_point():
    scores = [0.0, 0.0], [0.25, 0.75], [None, 0.0], [None, None]
    rows = [ScoredSamples(f"q{i}", ["a", "b"], pair) for i, pair in enumerate(scores)]
    (row,) = ROWS.best_rows(EXAMPLES[:4], rows)
    assert row == {"prompt": "Question: Who is 1?\nAnswer:", "completion": " b"}
    with pytest.raises(DataError, match="no prompt has the responses"):
        require_rows(ROWS.best_rows(EXAMPLES[:1], rows[:1]), "sft")


# DPO's pairs: the widest gap of score among responses of near lengths

TEN, NINE = " ".join("w" * 10), " ".join("v" * 9)


def test_the_widest_pair_of_a_request():
    for responses, scores, limit, expected in (
        (["a", "b", "c"], [0.2, 0.9, 0.5], 0.1, ("b", "a")),
        # the widest pair is of unequal length, the next widest is not
        (["a", "b b b b", "c"], [0.2, 0.9, 0.5], 0.1, ("c", "a")),
        (["a", "b b b b", "c"], [0.2, 0.9, 0.5], 0.76, ("b b b b", "a")),
        # strictly below the limit: 1 − 9/10 is 0.1
        ([TEN, NINE], [1.0, 0.0], 0.1, None),
        ([TEN, NINE], [1.0, 0.0], 0.11, (TEN, NINE)),
        # equal gaps: the pair whose better response is best
        (["a", "b", "c c", "d d"], [0.0, 0.5, 0.5, 1.0], 0.1, ("d d", "c c")),
        # equal in everything: the ones drawn first
        (["a", "b", "c", "d"], [0.0, 1.0, 1.0, 0.0], 0.1, ("b", "a")),
        # no gap, none that was scored; empty responses have equal lengths
        (["a", "b"], [0.5, 0.5], 0.1, None),
        (["a", "b"], [1.0, None], 0.1, None),
        (["", " "], [1.0, 0.0], 0.1, ("", " ")),
    ):
        assert widest_pair(ScoredSamples("q", responses, scores), limit) == expected


def test_the_margin_is_above_its_least_and_the_length_near_that_of_the_rejected():
    """|1 − l_c / l_r| ≤ τ_l; strictly above τ_m, also where floats are a bit above."""
    for high, low, margin, kept in (
        (0.8, 0.6, 0.1, True),
        (0.8, 0.7, 0.1, False),
        (0.4, 0.3, 0.1, False),
        (2 / 3, 1 / 3, 1 / 3, False),
        (0.51, 0.5, 0.0, True),
    ):
        pair = margin_pair(ScoredSamples("q", ["a", "b"], [low, high]), margin, 0.1)
        assert pair == (("b", "a") if kept else None)
    for chosen, rejected, limit, kept in (
        (9, 10, 0.1, True),
        (11, 10, 0.1, True),
        (12, 10, 0.1, False),
        (10, 9, 0.1, False),  # 1/9 is more
        (10, 11, 0.1, True),  # 1/11 is less
        (20, 10, 1.0, True),
        (50, 1, float("inf"), True),
        (1, 0, float("inf"), False),  # an empty one has no relative length
    ):
        better, worse = " ".join(["a"] * chosen), " ".join(["b"] * rejected)
        pair = margin_pair(ScoredSamples("q", [worse, better], [0.0, 1.0]), 0.1, limit)
        assert pair == ((better, worse) if kept else None)


# F / T of an answer of up to 12 claims
precisions = st.integers(1, 12).flatmap(
    lambda t: st.integers(0, t).map(lambda f: f / t)
)
scored = st.lists(st.tuples(st.integers(0, 12), st.none() | precisions), max_size=8)
tenths = st.sampled_from([0.1, 0.5, 1.0])


@given(scored, st.sampled_from([0.0, 0.1, 0.5]), tenths)
def test_a_pair_keeps_its_conditions_and_no_pair_that_does_is_wider(
    pairs, margin, limit
):
    texts = [" ".join([f"r{i}"] * n) + " " * i for i, (n, _) in enumerate(pairs)]
    row = ScoredSamples("q", texts, [score for _, score in pairs])
    margins, gaps = {}, {}
    for (a, high), (b, low) in itertools.permutations(
        zip(row.responses, row.scores, strict=True), 2
    ):
        n, m = len(a.split()), len(b.split())
        if None in (high, low) or high <= low:
            continue
        # exact: tenths of whole numbers, and twelfths
        if (
            m
            and high - low > margin + 1e-9
            and abs(m - n) * 10 <= round(limit * 10) * m
        ):
            margins[a, b] = high - low
        if abs(n - m) * 10 < round(limit * 10) * max(n, m, 1):
            gaps[a, b] = high - low
    for pair, allowed in (
        (margin_pair(row, margin, limit), margins),
        (widest_pair(row, limit), gaps),
    ):
        assert (pair is None) == (not allowed)
        assert not pair or allowed[pair] == max(allowed.values())


def test_dpo_learns_the_pairs_that_its_paper_chooses():
    rows = [
        ScoredSamples("q0", ["a", "b"], [0.0, 1.0]),
        ScoredSamples("q1", ["a", "b b"], [0.0, 1.0]),
        ScoredSamples("q2", ["a", "b"], [0.8, 1.0]),
        ScoredSamples("q3", ["a", "b"], [None, 1.0]),
    ]

    def asked(choose, **limits):
        pairs = ROWS.preference_rows(EXAMPLES[:4], rows, partial(choose, **limits))
        return [int(row["prompt"].partition("Who is ")[2][0]) for row in pairs]

    first = {"prompt": "Question: Who is 0?\nAnswer:", "chosen": " b", "rejected": " a"}
    assert ROWS.preference_rows(EXAMPLES[:1], rows[:1], widest_pair) == [first]
    assert asked(widest_pair, length_difference=0.1) == [0, 2]
    assert asked(widest_pair) == [0, 1, 2]  # RLFH's, any lengths
    for least, length, kept in (
        (0.1, 0.1, [0, 2]),
        (0.3, 0.1, [0]),
        (0.1, 1, [0, 1, 2]),
    ):
        limits = {"least_margin": least, "length_difference": length}
        assert asked(margin_pair, **limits) == kept


LONG, SHORT = "<think>" + "hm " * 40 + "</think> ", "<think>hm</think> "


def test_a_pair_s_lengths_are_those_of_the_answers():
    """As the reward judges them; the responses of the pair are whole."""
    same = ScoredSamples("q", [LONG + "a b", SHORT + "c d"], [1.0, 0.0])
    differ = ScoredSamples("q", [SHORT + "a b " * 20, LONG + "c d"], [1.0, 0.0])
    cut = ScoredSamples("q", [SHORT + "a b", "<think>" + "hm " * 40], [1.0, 0.0])
    for pair in (
        lambda of: widest_pair(of, 0.1),
        lambda of: margin_pair(of, 0.1, 0.1),
    ):
        assert pair(same) == (LONG + "a b", SHORT + "c d")
        assert pair(differ) is pair(cut) is None
