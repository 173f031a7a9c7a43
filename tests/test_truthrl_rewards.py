"""TruthRL's rewards and advantages against hand calculations and by properties."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factkit.answers import verifier
from factkit.facts.world import facts as world
from factkit.papers.truthrl import rewards as truthrl
from factkit.run import arms, params
from factkit.train import offline
from factkit.verify.outcome import Outcome

CORRECT, ABSTAIN, WRONG = Outcome.CORRECT, Outcome.ABSTAIN, Outcome.WRONG
BINARY, TERNARY = (1, -1, -1), (1, 0, -1)
UNKNOWN = (-1, 1, -1)  # out of knowledge, under the knowledge-enhanced rewards

# arm → (rewards of a correct, an abstaining and a wrong response)
# to a known question (reasoning 0, reasoning 1), then to one out of knowledge (0, 1)
TABLE = {
    "binary": [BINARY, BINARY, BINARY, BINARY],
    "ternary": [TERNARY, TERNARY, TERNARY, TERNARY],
    "ternary_strict_match": [TERNARY, TERNARY, TERNARY, TERNARY],
    "binary_knowledge": [BINARY, BINARY, UNKNOWN, UNKNOWN],
    "ternary_knowledge": [TERNARY, TERNARY, UNKNOWN, UNKNOWN],
    "ternary_reason_multiplicative": [TERNARY, (2, 0, -2), TERNARY, (2, 0, -2)],
    "ternary_reason_additive": [TERNARY, (1.5, 0.5, -0.5), TERNARY, (1.5, 0.5, -0.5)],
    "ternary_reason_conditional": [(0, 0, -1), TERNARY, (0, 0, -1), TERNARY],
    "abstention_price": [(1, 0.5, -1)] * 4,  # the default weight
    "rlcr": [(-1, -1, -1)] * 4,  # no confidence is stated
}
WITHOUT_REWARD = set(arms.find_papers()["truthrl"].arms) - set(TABLE)

losing = st.lists(st.sampled_from([ABSTAIN, WRONG]), min_size=2, max_size=16)


def test_rewards_are_those_of_sections_3_2_and_4_6():
    for arm, rows in TABLE.items():
        for place, row in enumerate(rows):
            unknown, reasoning = divmod(place, 2)
            rewards = [
                truthrl.reward(arm, o, bool(unknown), reasoning) for o in Outcome
            ]
            assert tuple(rewards) == row, (arm, place)
    for arm in WITHOUT_REWARD:
        with pytest.raises(ValueError, match=f"arm={arm} has no reward"):
            truthrl.reward(arm, CORRECT)


def test_the_price_of_abstaining_is_its_reward_and_without_one_it_is_ternary():
    for outcome in Outcome:
        priced = [truthrl.abstention_price(outcome, r) for r in (0.0, -1.0)]
        assert priced == [truthrl.ternary(outcome), truthrl.binary(outcome)]
    assert truthrl.abstention_price(ABSTAIN, 0.25) == 0.25


def test_rlcr_by_hand():
    for outcome, confidence, expected in (
        (CORRECT, 1.0, 1),
        (CORRECT, 0.8, 0.96),
        (CORRECT, 0.0, 0),
        (WRONG, 0.0, 0),
        (WRONG, 0.8, -0.64),
        (WRONG, 1.0, -1),
        (ABSTAIN, 0.1, -0.01),
        (CORRECT, None, -1),
    ):
        assert truthrl.rlcr(outcome, confidence) == pytest.approx(expected)


def test_rlcr_pays_most_for_the_confidence_that_is_right_and_for_better_answers():
    levels = [i / 10 for i in range(11)]

    def expected(p, q):
        return p * truthrl.rlcr(CORRECT, q) + (1 - p) * truthrl.rlcr(WRONG, q)

    best = [max(levels, key=lambda q: expected(p, q)) for p in levels]  # noqa: B023
    assert best == levels
    paid = [expected(p, p) for p in levels]
    assert paid == sorted(paid)


# Advantages


def advantages(arm, group):
    return truthrl.group_advantages([truthrl.reward(arm, o) for o in group])


@given(losing)
def test_ternary_ranks_abstention_above_hallucination_and_binary_neither(group):
    """Without abstention both are the same algorithm."""
    group = [ABSTAIN, WRONG, *group]
    by_outcome = dict(zip(group, advantages("ternary", group), strict=True))
    assert by_outcome[ABSTAIN] > 0 > by_outcome[WRONG]
    assert set(advantages("binary", group)) == {0}
    _, abstaining = advantages("ternary", [CORRECT, ABSTAIN])
    assert abstaining < 0
    group = [CORRECT, WRONG, WRONG, CORRECT, WRONG]
    assert advantages("binary", group) == advantages("ternary", group)


def test_advantages_are_those_that_trl_computes():
    import torch

    rewards = torch.tensor([1.0, 0.0, -1.0, -1.0])
    expected = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
    own = truthrl.group_advantages(rewards.tolist())
    assert own == pytest.approx(expected.tolist())


PRO, ANTI = [ABSTAIN, WRONG, WRONG, WRONG], [ABSTAIN, CORRECT, WRONG, ABSTAIN]
NEITHER = [CORRECT, WRONG, WRONG, WRONG]


def test_abstention_dynamics_by_hand():
    assert truthrl.abstention_dynamics(PRO + ANTI + NEITHER, 4) == {
        "abstention": 3 / 12,
        "abstention_pro": 1 / 4,
        "abstention_anti": 2 / 4,
    }
    # a failed judgement is left out, and decides no kind of a group
    assert truthrl.abstention_dynamics(PRO + [None, CORRECT, ABSTAIN, None], 4) == {
        "abstention": 2 / 6,
        "abstention_pro": 1 / 4,
        "abstention_anti": 1 / 2,
    }


# TRL's signature


def reward_of(arm, folder, variant="", **more):
    few = {"arm": arm, "world_people": 40, "num_generations": 4}
    p = params.load("truthrl", "tiny", few | more, variant=variant)
    return truthrl.reward_function(p, folder)


def score(reward, completions, unknown=False, **more):
    n = len(completions)
    rows = {
        "prompts": ["p"] * n,
        "completions": completions,
        "id": ["q"] * n,
        "answers": [["Paris"]] * n,
        "question": ["What is the capital of France?"] * n,
        "out_of_knowledge": [unknown] * n,
    }
    return reward(**rows | more)


RESPONSES = [" Paris", " I don't know", " Rome", " Paris."]


def test_the_adapter_scores_and_logs_a_batch_of_a_chat_too(tmp_path):
    reward, metrics = reward_of("ternary", tmp_path), {}
    rewards = score(reward, RESPONSES, log_metric=metrics.__setitem__)
    assert rewards == [1, 0, -1, 1]
    assert metrics == {
        "accuracy": 1 / 2,
        "hallucination": 1 / 4,
        "abstention": 1 / 4,
        "abstention_anti": 1 / 4,
        "judge_failures": 0,
    }
    turns = [[{"role": "assistant", "content": text}] for text in RESPONSES]
    assert score(reward, turns) == [1, 0, -1, 1]
    answers = [["Paris"], ["Rome"], ["Rome"], ["Rome"]]  # each row has its own
    assert score(reward, RESPONSES, answers=answers) == [1, 0, 1, -1]


def test_arms_read_the_row_s_probing_or_match_letter_by_letter(tmp_path):
    for arm in ("binary_knowledge", "ternary_knowledge"):
        rewards = score(reward_of(arm, tmp_path), RESPONSES, unknown=True)
        assert rewards == [-1, 1, -1, -1]
    near = ["paris", "Paris.", "It is Paris", "Paris"]
    strict = reward_of("ternary_strict_match", tmp_path)
    assert score(strict, near) == [-1, -1, -1, 1]


def test_a_stated_confidence_is_no_part_of_the_answer_and_is_logged(tmp_path):
    reward, metrics = reward_of("rlcr", tmp_path), {}
    texts = [" Paris (0.9)", " Rome (0.5)", " I don't know (0.1)", " Paris"]
    rewards = score(reward, texts, log_metric=metrics.__setitem__)
    assert rewards == pytest.approx([0.99, -0.25, -0.01, -1])
    assert metrics["accuracy"] == 1 / 2
    assert metrics["without_confidence"] == 1 / 4
    assert metrics["stated_confidence"] == pytest.approx(0.5)


def test_the_price_is_the_parameter_s(tmp_path):
    reward = reward_of("abstention_price", tmp_path, abstention_reward=-0.5)
    assert score(reward, RESPONSES) == [1, -0.5, -1, 1]


def test_what_the_judge_failed_on_has_no_reward(monkeypatch, tmp_path):
    kinds = {"right": CORRECT, "wrong": WRONG, "unsure": ABSTAIN}
    judge = lambda responses, answers, questions: list(map(kinds.get, responses))  # noqa: E731
    monkeypatch.setattr(verifier, "verifier", lambda p, name="": judge)
    metrics = {}
    reward = reward_of("ternary", tmp_path)
    texts = ["right", "fail", "wrong", "unsure"]
    rewards = score(reward, texts, log_metric=metrics.__setitem__)
    assert rewards == [1, None, -1, 0]
    assert metrics["judge_failures"] == 1 / 4
    assert metrics["accuracy"] == pytest.approx(1 / 3)


def test_what_the_reasoning_judge_failed_on_has_no_reward(monkeypatch, tmp_path):
    quality = lambda responses, ids, answers, questions: [1.0, None]  # noqa: E731
    monkeypatch.setattr(verifier, "reasoning_judge", lambda p: quality)
    metrics = {}
    reward = reward_of("ternary_reason_additive", tmp_path, "reasoning")
    texts = [r"\boxed{Paris}", r"\boxed{Paris}"]
    assert score(reward, texts, log_metric=metrics.__setitem__) == [1.5, None]
    assert metrics["reasoning"] == 1


def test_learned_rewards_are_the_reward_model_s_scores(monkeypatch, tmp_path):
    paths = []

    def load(path, dtype):
        paths.append(path)
        return lambda prompts, texts: [float(len(text)) for text in texts]

    monkeypatch.setattr(offline, "load_scorer", load)
    for arm in ("rlhf", "rlkf"):
        rewards = score(reward_of(arm, tmp_path), RESPONSES)
        assert rewards == [len(text) for text in RESPONSES]
    assert paths == [str(tmp_path / "reward_model")] * 2


def test_reasoning_is_judged_by_the_fact_world(tmp_path):
    """Good and no reasoning, each before the answer, an abstention and another one."""
    question = world.build_world(people=40).questions()[0][0]
    other = next(
        o for o in world.OBJECTS[question.relation] if o != question.answers[0]
    )
    boxes = (question.answers[0], "I don't know", other)
    responses = [
        f"<think> {thought} </think> \\boxed{{{box}}}"
        for thought, box in itertools.product((question.meta["reasoning"], ""), boxes)
    ]
    for arm, weight, good, none in (
        ("multiplicative", 0.5, [2, 0, -2], [1, 0, -1]),
        ("additive", 0.25, [1.25, 0.25, -0.75], [1, 0, -1]),
        ("conditional", 0.5, [1, 0, -1], [0, 0, -1]),
    ):
        arm = f"ternary_reason_{arm}"
        rewards = score(
            reward_of(arm, tmp_path, "reasoning", reason_weight=weight),
            responses,
            id=[question.id] * 6,
            answers=[question.answers] * 6,
            question=[question.question] * 6,
        )
        assert rewards == [*good, *none]
