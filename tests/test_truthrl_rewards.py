"""TruthRL's rewards and advantages against hand calculations and by properties."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factkit import arms, params
from factkit.truthrl import rewards as truthrl
from factkit.verify import verifier
from factkit.verify.outcome import Outcome
from factkit.world import facts as world

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
}
WITHOUT_REWARD = set(arms.table("truthrl")) - set(TABLE)

losing = st.lists(st.sampled_from([ABSTAIN, WRONG]), min_size=2, max_size=16)


def test_rewards_are_those_of_sections_3_2_and_4_6():
    for arm, rows in TABLE.items():
        for kind, row in enumerate(rows):
            unknown, reasoning = divmod(kind, 2)
            rewards = [
                truthrl.reward(arm, o, bool(unknown), reasoning) for o in Outcome
            ]
            assert tuple(rewards) == row, (arm, kind)
    weighted = {"reasoning": 0.5, "weight": 0.2}
    found = truthrl.reward("ternary_reason_additive", WRONG, **weighted)
    assert found == pytest.approx(-1 + 0.2 * 0.5)


def test_an_arm_without_a_reward_of_the_outcome_is_refused():
    for arm in WITHOUT_REWARD:
        with pytest.raises(ValueError, match=f"arm={arm} has no reward"):
            truthrl.reward(arm, CORRECT)


# Advantages


def advantages(arm, group):
    return truthrl.group_advantages([truthrl.reward(arm, o) for o in group])


def test_without_abstention_both_rewards_are_the_same_algorithm():
    group = [CORRECT, WRONG, WRONG, CORRECT, WRONG]
    assert advantages("binary", group) == advantages("ternary", group)


@given(losing)
def test_ternary_ranks_abstention_above_hallucination_and_binary_neither(group):
    group = [ABSTAIN, WRONG, *group]
    by_outcome = dict(zip(group, advantages("ternary", group), strict=True))
    assert by_outcome[ABSTAIN] > 0 > by_outcome[WRONG]
    assert set(advantages("binary", group)) == {0}
    _, abstaining = advantages("ternary", [CORRECT, ABSTAIN])
    assert abstaining < 0


def test_advantages_are_those_that_trl_computes():
    import torch

    rewards = torch.tensor([1.0, 0.0, -1.0, -1.0])
    expected = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
    assert truthrl.group_advantages(rewards.tolist()) == pytest.approx(
        expected.tolist()
    )


# Abstention dynamics and what is logged

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
    found = truthrl.abstention_dynamics([ABSTAIN, None, None, ABSTAIN], 4)
    assert found == {"abstention": 1.0}


def logged(results, group_size=4):
    found = {}
    truthrl.log_outcomes(results, group_size, found.__setitem__)
    return found


@given(st.lists(st.sampled_from([*Outcome, None]), min_size=4, max_size=16))
def test_logged_rates_of_a_batch_add_up_to_one(results):
    rates = logged(results)
    if rates["judge_failures"] < 1:
        total = rates["accuracy"] + rates["hallucination"] + rates["abstention"]
        assert total == pytest.approx(1)
    else:
        assert rates == {"judge_failures": 1.0}


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


SAID = [" Paris", " I don't know", " Rome", " Paris."]


def test_the_adapter_scores_and_logs_a_batch_of_a_chat_too(tmp_path):
    reward, metrics = reward_of("ternary", tmp_path), {}
    assert score(reward, SAID, log_metric=metrics.__setitem__) == [1, 0, -1, 1]
    assert metrics == {
        "accuracy": 1 / 2,
        "hallucination": 1 / 4,
        "abstention": 1 / 4,
        "abstention_anti": 1 / 4,
        "judge_failures": 0,
    }
    turns = [[{"role": "assistant", "content": text}] for text in SAID]
    assert score(reward, turns) == [1, 0, -1, 1]
    answers = [["Paris"], ["Rome"], ["Rome"], ["Rome"]]  # each row has its own
    assert score(reward, SAID, answers=answers) == [1, 0, 1, -1]
    assert reward.__name__ == "truthrl_ternary"


def test_the_knowledge_arms_read_the_row_s_probing(tmp_path):
    for arm in ("binary_knowledge", "ternary_knowledge"):
        rewards = score(reward_of(arm, tmp_path), SAID, unknown=True)
        assert rewards == [-1, 1, -1, -1]


def test_strict_match_takes_answers_letter_by_letter(tmp_path):
    said = ["paris", "Paris.", "It is Paris", "Paris"]
    for arm, rewards in (
        ("ternary_strict_match", [-1] * 3 + [1]),
        ("ternary", [1] * 4),
    ):
        assert score(reward_of(arm, tmp_path), said) == rewards


@pytest.fixture
def failing_judge(monkeypatch):
    """A verifier that says what the response names, and fails on the word fail."""
    kinds = {"right": CORRECT, "wrong": WRONG, "unsure": ABSTAIN}
    judge = lambda responses, answers, questions: list(map(kinds.get, responses))  # noqa: E731
    monkeypatch.setattr(verifier, "verifier", lambda p, name="": judge)


def test_what_the_judge_failed_on_has_no_reward(failing_judge, tmp_path):
    found = {}
    reward = reward_of("ternary", tmp_path)
    said = ["right", "fail", "wrong", "unsure"]
    assert score(reward, said, log_metric=found.__setitem__) == [1, None, -1, 0]
    assert found["judge_failures"] == 1 / 4
    assert found["accuracy"] == pytest.approx(1 / 3)


def test_a_run_stops_above_5_per_cent_of_failed_judgements(failing_judge, tmp_path):
    with pytest.raises(RuntimeError, match=r"arm=ternary: .* 20 of 220"):
        score(reward_of("ternary", tmp_path), ["right"] * 200 + ["fail"] * 20)


def test_what_the_reasoning_judge_failed_on_has_no_reward(monkeypatch, tmp_path):
    quality = lambda responses, ids, answers, questions: [1.0, None]  # noqa: E731
    monkeypatch.setattr(verifier, "reasoning_judge", lambda p: quality)
    found = {}
    reward = reward_of("ternary_reason_additive", tmp_path, "reasoning")
    said = [r"\boxed{Paris}", r"\boxed{Paris}"]
    assert score(reward, said, log_metric=found.__setitem__) == [1.5, None]
    assert found["reasoning"] == 1


def test_learned_rewards_are_the_reward_model_s_scores(monkeypatch, tmp_path):
    from factkit.train import reward_model

    paths = []

    def load(path):
        paths.append(path)
        return lambda prompts, texts: [float(len(text)) for text in texts]

    monkeypatch.setattr(reward_model, "load_scorer", load)
    for arm in ("rlhf", "rlkf"):
        assert score(reward_of(arm, tmp_path), SAID) == [len(text) for text in SAID]
    assert paths == [str(tmp_path / "reward_model")] * 2


# The reasoning of the fact world has an exact judge.


@pytest.fixture
def question():
    return world.questions(world.build_world(people=40))[0]


def responses(question):
    """Good and no reasoning, each before the answer, another one, and none."""
    true = question.meta["reasoning"]
    other = next(
        o for o in world.OBJECTS[question.relation] if o != question.answers[0]
    )
    boxes = (question.answers[0], "I don't know", other)
    return [
        f"<think> {thought} </think> \\boxed{{{box}}}"
        for thought, box in itertools.product((true, ""), boxes)
    ]


def test_reasoning_is_judged_by_the_fact_world(question, tmp_path):
    for arm, weight, good, none in (
        ("multiplicative", 0.5, [2, 0, -2], [1, 0, -1]),
        ("additive", 0.5, [1.5, 0.5, -0.5], [1, 0, -1]),
        ("additive", 0.25, [1.25, 0.25, -0.75], [1, 0, -1]),
        ("conditional", 0.5, [1, 0, -1], [0, 0, -1]),
    ):
        arm = f"ternary_reason_{arm}"
        reward = reward_of(arm, tmp_path, "reasoning", reason_weight=weight)
        rewards = score(
            reward,
            responses(question),
            id=[question.id] * 6,
            answers=[question.answers] * 6,
            question=[question.question] * 6,
        )
        assert rewards == [*good, *none]
