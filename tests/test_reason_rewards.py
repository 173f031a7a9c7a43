"""Learning to Reason for Factuality's reward: by hand, and by its properties."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factkit.rewards import reason
from factkit.rewards.reason import Reasoned, counts, parts, reward
from factkit.verify.claims import Support

YES, NO, OPEN = Support.SUPPORTED, Support.CONTRADICTED, Support.INCONCLUSIVE
claims = st.integers(0, 50).flatmap(lambda t: st.tuples(st.integers(0, t), st.just(t)))
weights = st.floats(0, 1)


@pytest.mark.parametrize(
    ("arm", "claims", "wins", "by_hand"),
    [
        ("fact", (3, 4), True, 3 / 5),
        ("fact", (0, 0), None, 0.0),
        ("fact_detail", (3, 4), None, 0.6 + 0.01 * math.log(4)),
        ("fact_relevance", (3, 4), True, 0.7),
        ("fact_relevance", (3, 4), False, 0.6),
        ("fact_detail_relevance", (9, 9), True, 0.9 + 0.01 * math.log(10) + 0.1),
        ("fact_detail10_relevance", (9, 9), False, 0.9 + 0.1 * math.log(10)),
    ],
)
def test_table_2s_rewards_are_those_of_equation_2(arm, claims, wins, by_hand):
    assert reward(True, claims, wins, *reason.WEIGHTS[arm]) == pytest.approx(by_hand)


def test_a_malformed_response_costs_one_whatever_its_claims():
    assert reward(False, (9, 9), True, 0.1, 0.1) == -1
    assert reward(False, None, None, 0.1, 0.1) == -1


@pytest.mark.parametrize(
    ("claims", "wins", "relevance_weight", "failed"),
    [
        (None, True, 0.0, True),
        ((1, 2), None, 0.1, True),
        ((1, 2), None, 0.0, False),
    ],
)
def test_a_failed_judge_leaves_no_reward_where_it_counts(
    claims, wins, relevance_weight, failed
):
    assert (reward(True, claims, wins, 0.01, relevance_weight) is None) is failed


def test_more_supported_than_all_claims_are_refused():
    with pytest.raises(ValueError, match="F=3, T=2"):
        reward(True, (3, 2), None, 0, 0)


@given(claims, st.booleans(), weights, weights)
def test_a_well_formed_response_is_worth_more_than_a_malformed_one(c, wins, lam, mu):
    assert reward(True, c, wins, lam, mu) >= 0 > reason.MALFORMED


@given(claims, weights, weights)
def test_an_unsupported_claim_never_pays_and_a_supported_one_does(c, lam, mu):
    f, t = c
    here = reward(True, c, False, lam, mu)
    assert reward(True, (f, t + 1), False, lam, mu) <= here
    assert reward(True, (f + 1, t + 1), False, lam, mu) > here


def test_without_detail_one_sure_claim_is_nearly_half_of_what_many_give():
    """Why precision alone makes answers short: two claims, one wrong, pay 1/3."""
    assert reward(True, (1, 1), None, 0, 0) > reward(True, (1, 2), None, 0, 0)
    assert reward(True, (1, 1), None, 0, 0) == 0.5


def test_only_supported_claims_count_as_factual():
    assert counts([YES, NO, OPEN, YES]) == (2, 4)
    assert counts([]) == (0, 0)
    assert counts(None) is None
    assert counts([YES, None]) is None


@pytest.mark.parametrize(
    ("response", "found"),
    [
        ("<think>a</think><answer>b</answer>", Reasoned("a", "b")),
        ("\n<think> a\nb </think>\n\n<answer> c </answer>\n", Reasoned("a\nb", "c")),
        ("<think></think><answer></answer>", Reasoned("", "")),
        (
            "<think>1 < 2 > 0</think><answer><b>x</b></answer>",
            Reasoned("1 < 2 > 0", "<b>x</b>"),
        ),
        ("", None),
        ("b", None),
        ("<answer>b</answer>", None),
        ("<think>a</think>b", None),
        ("<think>a</think><answer>b", None),
        ("a<think>a</think><answer>b</answer>", None),
        ("<think>a</think>and<answer>b</answer>", None),
        ("<think>a</think><answer>b</answer>.", None),
        ("<answer>b</answer><think>a</think>", None),
        ("<think>a<answer>b</answer></think>", None),
        ("<think>a</think><think>a</think><answer>b</answer>", None),
        ("<think>a</think><answer>b</answer><answer>c</answer>", None),
        ("<think>a</think><answer>b<answer>c</answer>", None),
        ("<Think>a</Think><Answer>b</Answer>", None),
        ("<think>a</think></think><answer>b</answer>", None),
    ],
)
def test_a_response_has_one_reasoning_and_one_answer_and_nothing_else(response, found):
    assert parts(response) == found


@given(st.text(), st.text())
def test_what_has_no_tags_is_read_back(thought, answer):
    if any(tag in thought or tag in answer for tag in reason.TAGS):
        return
    response = f"<think>{thought}</think> <answer>{answer}</answer>"
    assert parts(response) == Reasoned(thought.strip(), answer.strip())
