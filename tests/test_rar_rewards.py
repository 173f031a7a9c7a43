"""Binary RAR's rewards against hand calculations, by properties, and under TRL."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factkit.rar import rewards as rar
from factkit.verify.claims import Support
from factkit.verify.failures import FEWEST_RESPONSES, Failures

YES, NO, OPEN = Support.SUPPORTED, Support.CONTRADICTED, Support.INCONCLUSIVE

# supports → VeriScore, binary VeriScore, conflict-only VeriScore
CLAIMS = [
    ([YES, YES, YES, YES], 1.0, 1.0, 1.0),
    ([YES, YES, YES, NO], 0.75, 1.0, 0.75),
    ([YES, NO], 0.5, 1.0, 0.5),
    ([YES, OPEN, OPEN], 1 / 3, 0.0, 1.0),
    ([OPEN, OPEN, NO, OPEN], 0.0, 0.0, 0.75),
    ([NO], 0.0, 0.0, 0.0),
    ([], 0.0, 0.0, 1.0),
]

supports = st.lists(st.sampled_from(list(Support)), max_size=20)
some_supports = st.lists(st.sampled_from(list(Support)), min_size=1, max_size=20)
ratings = st.floats(0, 10)


def test_claim_rewards_by_hand():
    for claims, score, binary, conflict in CLAIMS:
        assert rar.veriscore(claims) == pytest.approx(score)
        assert rar.binary_veriscore(claims) == binary
        assert rar.conflict_only_veriscore(claims) == pytest.approx(conflict)
    assert rar.binary_veriscore([YES] * 3 + [NO], threshold=0.75) == 1.0
    assert rar.binary_veriscore([YES] * 3 + [NO], threshold=0.76) == 0.0


def test_whole_response_rewards_by_hand():
    assert (rar.binary_rar(1.0), rar.binary_rar(0.0)) == (1.0, 0.0)
    assert [rar.rating_rar(r) for r in (0, 3, 10)] == [0.0, 0.3, 1.0]
    assert [rar.lm_judge(r) for r in (0, 7.5, 10)] == [0.0, 0.75, 1.0]
    assert rar.veriscore_plus_judge([YES, YES, YES, NO], 6) == pytest.approx(1.35)


def test_a_rating_off_its_scale_is_refused():
    for rating in (-0.1, 10.1, float("nan"), float("inf")):
        for reward in (rar.rating_rar, rar.lm_judge):
            with pytest.raises(ValueError, match="between 0 and 10"):
                reward(rating)


@given(supports, ratings, st.sampled_from([0.0, 1.0]))
def test_rewards_stay_within_their_range(claims, rating, verdict):
    pieces = {"supports": claims, "no_contradiction": verdict}
    pieces |= {"rating": rating, "quality": rating}
    for arm in rar.ARMS:
        most = 2 if arm == "veriscore_plus_judge" else 1
        assert 0 <= rar.reward(arm, **pieces) <= most


@given(some_supports)
def test_true_padding_dilutes_an_error(claims):
    before, after = [NO, *claims], [NO, *claims, YES]
    assert rar.veriscore(after) > rar.veriscore(before)
    assert rar.conflict_only_veriscore(after) > rar.conflict_only_veriscore(before)


# A judge that failed


PIECES = {"no_contradiction": 1.0, "rating": 8.0, "quality": 6.0, "supports": [YES, NO]}
VALUES = {
    "lm_judge": 0.6,
    "veriscore": 0.5,
    "binary_rar": 1.0,
    "rating_rar": 0.8,
    "binary_veriscore": 1.0,
    "conflict_only_veriscore": 0.5,
    "veriscore_plus_judge": 1.1,
}


def test_an_arm_takes_its_own_pieces_and_fails_with_one_of_them_alone():
    for arm, value in VALUES.items():
        assert rar.reward(arm, **PIECES) == pytest.approx(value)
        for failed in PIECES:
            reward = rar.reward(arm, **PIECES | {failed: None})
            assert (reward is None) == (failed in rar.needs(arm))
    half = PIECES | {"supports": [YES, None]}
    failing = [arm for arm in rar.ARMS if rar.reward(arm, **half) is None]
    assert failing == [arm for arm in rar.ARMS if "supports" in rar.needs(arm)]


def test_an_arm_without_a_reward_is_refused():
    for arm in ("base", "sft", "dpo", ""):
        for ask in (rar.reward, rar.needs):
            with pytest.raises(ValueError, match=f"arm={arm} has no reward"):
                ask(arm)


# The engine and TRL's signature


class Told:
    """Says what it was told, by response, and keeps what it was asked."""

    def __init__(self, **pieces):
        self.pieces, self.asked = pieces, []

    def _say(self, piece, ids, prompts, responses):
        self.asked.append((piece, ids, prompts, responses))
        return [self.pieces[piece][r] for r in responses]

    def no_contradiction(self, *rows):
        return self._say("no_contradiction", *rows)

    def rating(self, *rows):
        return self._say("rating", *rows)

    def quality(self, *rows):
        return self._say("quality", *rows)

    def supports(self, *rows):
        return self._say("supports", *rows)


def told():
    return Told(
        no_contradiction={"good": 1.0, "bad": 0.0, "": None},
        rating={"good": 9.0, "bad": 2.0, "": None},
        quality={"good": 8.0, "bad": 5.0, "": None},
        supports={"good": [YES, YES, OPEN], "bad": [YES, NO, NO], "": None},
    )


ROWS = (["a", "b", "c"], ["who?", "what?", "when?"], ["good", "bad", ""])


def test_the_engine_is_asked_for_what_the_arms_need_once_each():
    for arm in rar.ARMS:
        engine = told()
        rar.rewards_of(arm, engine, *ROWS)
        assert engine.asked == [(piece, *ROWS) for piece in rar.needs(arm)]
    engine = told()
    rewards = rar.rewards_by_arm(rar.ARMS, engine, *ROWS)
    asked = [piece for piece, *_ in engine.asked]
    assert sorted(asked) == ["no_contradiction", "quality", "rating", "supports"]
    assert rewards["binary_rar"] == [1.0, 0.0, None]
    assert rewards["veriscore"] == [2 / 3, 1 / 3, None]


def score(reward, said, tokens=3, **more):
    n = len(said)
    rows = {
        "prompts": ["formatted"] * n,
        "completions": said,
        "completion_ids": [[1] * tokens] * n,
        "id": ["q"] * n,
        "question": ["who?"] * n,
    }
    return reward(**rows | more)


# the last: cut off, so that it gives no answer
# the last: cut off, so that it gives no answer
def test_no_reward_looks_at_reasoning():
    """Neither in training, nor where drawn responses are scored."""
    for form, answer in {
        "<think>bad</think> {}": "good",
        "bad</think>{}": "good",
        "<think>{}": "",
    }.items():
        engine, text = told(), form.format("good")
        for arm in rar.ARMS:
            rar.rewards_of(arm, engine, ["q"], ["who?"], [text])
        chat = [[{"role": "assistant", "content": text}]]
        score(rar.trl_reward("binary_rar", engine, 4, 0.0), chat)
        assert {said for _, _, _, (said,) in engine.asked} == {answer}


def test_a_response_that_does_not_stop_costs_the_penalty():
    """Down to 0, so that in reasoning that never ends there is no gain."""
    long, short = [1] * 4, [1] * 3
    said, lengths = ["good"] * 2 + ["bad", ""], [long, short, long, long]
    for penalty, rewards in (
        (0.5, [0.5, 1.0, 0.0, None]),
        (2.0, [0.0, 1.0, 0.0, None]),
    ):
        reward = rar.trl_reward("binary_rar", told(), 4, penalty)
        assert score(reward, said, completion_ids=lengths) == rewards


def test_the_adapter_logs_a_batch():
    logged = {}
    reward = rar.trl_reward("veriscore", told(), 4, 0.0)
    score(reward, ["good", "bad", "bad", ""], log_metric=logged.__setitem__)
    assert logged == {
        "response_words": 3 / 4,
        "judge_failures": 1 / 4,
        "total_claims": 3.0,
        "supported_claims": pytest.approx(4 / 3),
        "contradicted_claims": pytest.approx(4 / 3),
    }
    logged.clear()
    reward = rar.trl_reward("binary_rar", told(), 4, 0.0)  # an arm without claims
    score(reward, ["good", "bad"], log_metric=logged.__setitem__)
    assert logged == {"response_words": 1.0, "judge_failures": 0.0}


def test_a_run_fails_above_5_per_cent_over_its_steps():
    reward = rar.trl_reward("binary_rar", told(), 4, 0.0)
    for _ in range(9):
        score(reward, ["good"] * 20)
    score(reward, [""] * 10 + ["good"] * 10)  # 10 of 200: 5 %, still allowed
    with pytest.raises(RuntimeError) as error:
        score(reward, [""])
    for part in ("arm=binary_rar", "11 of 201", "5.5%", "at most 5%", "endpoint"):
        assert part in str(error.value)


def test_few_responses_do_not_fail_a_run():
    failures = Failures("veriscore")
    for _ in range(FEWEST_RESPONSES - 1):
        failures.count([None])
    with pytest.raises(RuntimeError, match="100.0%"):
        failures.count([None])


def test_trl_takes_its_rewards_names_apart():
    names = [rar.trl_reward(arm, told(), 4, 0.0).__name__ for arm in rar.ARMS]
    assert all(a != b for a, b in itertools.combinations(names, 2))
