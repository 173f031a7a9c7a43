"""TruthRL's rewards and advantages against hand calculations and by properties."""

import itertools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factkit import arms, params
from factkit.rewards import truthrl
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

groups = st.lists(st.sampled_from(list(Outcome)), min_size=2, max_size=16)
losing = st.lists(st.sampled_from([ABSTAIN, WRONG]), min_size=2, max_size=16)
outcomes = st.sampled_from(list(Outcome))
qualities = st.floats(0, 1)


def in_table(arm, kind):
    unknown, reasoning = divmod(kind, 2)
    return [truthrl.reward(arm, o, bool(unknown), reasoning) for o in Outcome]


@pytest.mark.parametrize("kind", range(4), ids=["k0", "k1", "u0", "u1"])
@pytest.mark.parametrize("arm", TABLE)
def test_rewards_are_those_of_sections_3_2_and_4_6(arm, kind):
    assert tuple(in_table(arm, kind)) == TABLE[arm][kind]


@pytest.mark.parametrize("arm", sorted(WITHOUT_REWARD))
def test_an_arm_without_a_reward_of_the_outcome_is_refused(arm):
    with pytest.raises(ValueError, match=f"arm={arm} has no reward"):
        truthrl.reward(arm, CORRECT)


def test_the_weight_scales_the_reasoning_of_the_additive_reward():
    found = truthrl.reward("ternary_reason_additive", WRONG, reasoning=0.5, weight=0.2)
    assert found == pytest.approx(-1 + 0.2 * 0.5)


@given(outcomes)
def test_knowledge_enhanced_equals_its_base_on_known_questions(result):
    for base in (truthrl.binary, truthrl.ternary):
        assert truthrl.knowledge_enhanced(result, False, base) == base(result)


@given(outcomes)
def test_out_of_knowledge_the_base_reward_does_not_matter(result):
    found = {
        truthrl.knowledge_enhanced(result, True, base)
        for base in (truthrl.binary, truthrl.ternary, lambda _: 7.0)
    }
    assert len(found) == 1


@given(outcomes, qualities)
def test_multiplying_or_conditioning_never_turns_the_outcome_s_sign(result, quality):
    before = truthrl.ternary(result)
    assert before * truthrl.multiplicative(before, quality) >= 0
    assert before * truthrl.conditional(before, quality) >= 0


@given(outcomes, qualities, qualities)
def test_conditional_pays_reasoning_only_of_correct_answers(result, one, other):
    base = truthrl.ternary(result)
    found = [truthrl.conditional(base, q) for q in (one, other)]
    expected = [one, other] if result is CORRECT else [base, base]
    assert found == expected


@given(outcomes, qualities, qualities)
def test_better_reasoning_is_never_worth_less_under_the_additive_reward(
    result, one, other
):
    low, high = sorted((one, other))
    base = truthrl.ternary(result)
    assert truthrl.additive(base, low, 0.5) <= truthrl.additive(base, high, 0.5)


# Advantages


def advantages(arm, group):
    return truthrl.group_advantages([truthrl.reward(arm, o) for o in group])


def test_binary_can_not_tell_abstention_from_hallucination():
    assert advantages("binary", [ABSTAIN, WRONG]) == [0, 0]


def test_ternary_prefers_abstention_to_hallucination():
    abstaining, wrong = advantages("ternary", [ABSTAIN, WRONG])
    # rewards 0, −1: mean −0.5, sample std √0.5
    assert abstaining == pytest.approx(0.5 / (0.5**0.5 + 1e-4))
    assert wrong == -abstaining


def test_ternary_turns_against_abstention_beside_a_correct_answer():
    _, abstaining = advantages("ternary", [CORRECT, ABSTAIN])
    assert abstaining < 0


def test_without_abstention_both_rewards_are_the_same_algorithm():
    group = [CORRECT, WRONG, WRONG, CORRECT, WRONG]
    assert advantages("binary", group) == advantages("ternary", group)


@given(losing)
def test_ternary_ranks_every_abstention_above_every_hallucination(group):
    group = [ABSTAIN, WRONG, *group]
    found = dict(zip(group, advantages("ternary", group), strict=True))
    assert found[ABSTAIN] > 0 > found[WRONG]


@given(losing)
def test_binary_gives_abstentions_and_hallucinations_no_advantage(group):
    assert set(advantages("binary", group)) == {0}


@given(groups, st.randoms())
def test_permuting_a_group_permutes_its_advantages(group, rng):
    order = list(range(len(group)))
    rng.shuffle(order)
    before = advantages("ternary", group)
    after = advantages("ternary", [group[i] for i in order])
    assert after == pytest.approx([before[i] for i in order])


@given(groups, st.sampled_from(sorted(TABLE)))
def test_advantages_of_a_group_have_mean_zero(group, arm):
    assert statistics.mean(advantages(arm, group)) == pytest.approx(0, abs=1e-9)


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


def test_a_failed_judgement_is_left_out_of_the_dynamics():
    failed = [None, CORRECT, ABSTAIN, None]
    assert truthrl.abstention_dynamics(PRO + failed, 4) == {
        "abstention": 2 / 6,
        "abstention_pro": 1 / 4,
        "abstention_anti": 1 / 2,
    }


def test_a_failed_judgement_does_not_decide_the_kind_of_a_group():
    found = truthrl.abstention_dynamics([ABSTAIN, None, None, ABSTAIN], 4)
    assert found == {"abstention": 1.0}


def test_a_batch_without_verdicts_has_no_dynamics():
    assert truthrl.abstention_dynamics([None] * 4, 4) == {}


def logged(results, group_size=4):
    found = {}
    truthrl.log_outcomes(results, group_size, found.__setitem__)
    return found


def test_failed_judgements_are_left_out_of_the_logged_rates():
    found = logged([CORRECT, WRONG, ABSTAIN, None])
    assert found["accuracy"] == found["hallucination"] == pytest.approx(1 / 3)
    assert found["judge_failures"] == 1 / 4


def test_a_batch_on_which_the_judge_failed_logs_that_alone():
    assert logged([None] * 4) == {"judge_failures": 1.0}


@given(st.lists(st.sampled_from([*Outcome, None]), min_size=4, max_size=16))
def test_logged_rates_of_a_batch_add_up_to_one(results):
    found = logged(results)
    if found["judge_failures"] < 1:
        total = found["accuracy"] + found["hallucination"] + found["abstention"]
        assert total == pytest.approx(1)


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


def test_the_adapter_scores_a_batch(tmp_path):
    assert score(reward_of("ternary", tmp_path), SAID) == [1, 0, -1, 1]


def test_the_adapter_logs_a_batch(tmp_path):
    found = {}
    score(reward_of("ternary", tmp_path), SAID, log_metric=found.__setitem__)
    assert found == {
        "accuracy": 1 / 2,
        "hallucination": 1 / 4,
        "abstention": 1 / 4,
        "abstention_anti": 1 / 4,
        "judge_failures": 0,
    }


def test_completions_of_a_chat_are_read(tmp_path):
    turns = [[{"role": "assistant", "content": text}] for text in SAID]
    assert score(reward_of("ternary", tmp_path), turns) == [1, 0, -1, 1]


@pytest.mark.parametrize("arm", ["binary_knowledge", "ternary_knowledge"])
def test_the_knowledge_arms_read_the_row_s_probing(arm, tmp_path):
    reward = reward_of(arm, tmp_path)
    assert score(reward, SAID, unknown=True) == [-1, 1, -1, -1]


def test_each_row_is_judged_by_its_own_answers(tmp_path):
    reward = reward_of("ternary", tmp_path)
    answers = [["Paris"], ["Rome"], ["Rome"], ["Rome"]]
    assert score(reward, SAID, answers=answers) == [1, 0, 1, -1]


@pytest.mark.parametrize("said", ["paris", "Paris.", "It is Paris"])
def test_strict_match_takes_answers_letter_by_letter(said, tmp_path):
    found = [
        score(reward_of(arm, tmp_path), [said, "Paris"])
        for arm in ("ternary_strict_match", "ternary")
    ]
    assert found == [[-1, 1], [1, 1]]


def test_the_reward_is_named_after_its_arm(tmp_path):
    assert reward_of("binary", tmp_path).__name__ == "truthrl_binary"


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
    reward = reward_of("ternary", tmp_path)
    for _ in range(9):
        score(reward, ["right"] * 20)
    score(reward, ["fail"] * 10 + ["wrong"] * 10)  # 10 of 200: 5 %, still allowed
    with pytest.raises(RuntimeError, match=r"arm=ternary: .* 11 of 201 .*5\.5%"):
        score(reward, ["fail"])


def test_what_the_reasoning_judge_failed_on_has_no_reward(monkeypatch, tmp_path):
    quality = lambda responses, ids, answers, questions: [1.0, None]  # noqa: E731
    monkeypatch.setattr(verifier, "reasoning_judge", lambda p: quality)
    found = {}
    reward = reward_of("ternary_reason_additive", tmp_path, "reasoning")
    said = [r"\boxed{Paris}", r"\boxed{Paris}"]
    assert score(reward, said, log_metric=found.__setitem__) == [1.5, None]
    assert found["reasoning"] == 1


@pytest.mark.parametrize("arm", ["rlhf", "rlkf"])
def test_learned_rewards_are_the_reward_model_s_scores(arm, monkeypatch, tmp_path):
    from factkit import models

    asked = []

    def load(path):
        asked.append(path)
        return lambda prompts, texts: [float(len(text)) for text in texts]

    monkeypatch.setattr(models, "load_scorer", load)
    assert score(reward_of(arm, tmp_path), SAID) == [len(text) for text in SAID]
    assert asked == [str(tmp_path / "reward_model")]


# The reasoning of the fact world has an exact judge.


@pytest.fixture(scope="module")
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


@pytest.mark.parametrize(
    ("arm", "good", "none"),
    [
        ("ternary_reason_multiplicative", [2, 0, -2], [1, 0, -1]),
        ("ternary_reason_additive", [1.5, 0.5, -0.5], [1, 0, -1]),
        ("ternary_reason_conditional", [1, 0, -1], [0, 0, -1]),
    ],
)
def test_reasoning_is_judged_by_the_fact_world(arm, good, none, question, tmp_path):
    reward = reward_of(arm, tmp_path, "reasoning")
    found = reward(
        prompts=["p"] * 6,
        completions=responses(question),
        id=[question.id] * 6,
        answers=[question.answers] * 6,
        question=[question.question] * 6,
        out_of_knowledge=[False] * 6,
    )
    assert found == [*good, *none]


def test_the_weight_of_reasoning_is_a_parameter(question, tmp_path):
    reward = reward_of(
        "ternary_reason_additive", tmp_path, "reasoning", reason_weight=0.25
    )
    found = reward(
        prompts=["p"],
        completions=responses(question)[:1],
        id=[question.id],
        answers=[question.answers],
        question=[question.question],
        out_of_knowledge=[False],
    )
    assert found == [1.25]
