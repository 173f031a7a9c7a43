"""Metrics of short answers by hand and by properties."""

import math
from dataclasses import asdict

import pytest
from fake_policy import FakePolicy

from factkit.answers import exposure_bin, short_form, split_gain
from factkit.answers.items import same_answered
from factkit.answers.short_form import ScoredAnswer
from factkit.answers.verifier import verifier
from factkit.data.examples import Example, write_rows
from factkit.policy.policy import load_policy
from factkit.policy.vllm_engine import VllmEngine
from factkit.run import params
from factkit.run.statistics import means
from factkit.verify.outcome import Outcome

P = params.load("truthrl", "tiny")
CORRECT, ABSTAIN, WRONG = Outcome.CORRECT, Outcome.ABSTAIN, Outcome.WRONG


def answered(outcome, name="q", **more):
    fields = {"question": "?", "answers": ["x"], "relation": "a", "response": "r"}
    return ScoredAnswer(id=name, outcome=outcome, **fields | more)


def test_rates_by_hand():
    results = [Outcome.CORRECT] * 3 + [Outcome.ABSTAIN] * 5 + [Outcome.WRONG] * 2
    assert short_form.rates(results) == pytest.approx(
        {"truthfulness": 0.1, "accuracy": 0.3, "hallucination": 0.2, "abstention": 0.5}
    )


def test_the_gain_in_precision_on_questions_answered_both_times_and_by_silence():
    before, after = (
        short_form.precision_items("abcdefgh", outcomes)
        for outcomes in (
            [CORRECT, CORRECT, WRONG, WRONG, WRONG, ABSTAIN, None, WRONG],
            [CORRECT, WRONG, CORRECT, CORRECT, ABSTAIN, CORRECT, WRONG, None],
        )
    )
    same = same_answered(before, after, ["precision"])
    assert same == pytest.approx(
        {
            "same_answered_rate": 4 / 8,
            "same_answered_precision": 3 / 4,
            "before_same_answered_precision": 2 / 4,
        }
    )
    old, new = (means(items.values()) for items in (before, after))
    assert (old, new) == ({"precision": 2 / 6}, {"precision": 4 / 6})
    parts = split_gain(new | same, old, "precision")
    assert parts == pytest.approx(
        {"change": 2 / 6, "same answered": 1 / 4, "by silence": 1 / 12}
    )
    assert same_answered({"a": {}}, after, ["precision"]) == {}


def test_more_judge_failures_than_one_in_twenty_are_refused(tmp_path):
    path, few = tmp_path / "after_test.jsonl", [None] * 5 + [CORRECT] * 95

    def judged(outcomes):
        rows = [asdict(answered(outcome, str(i))) for i, outcome in enumerate(outcomes)]
        write_rows(path, rows)
        verify = lambda responses, *_: [None] * len(responses)  # noqa: E731
        return short_form.answer(FakePolicy(None), [], path, verify)

    assert [a.outcome for a in judged(few)] == few
    with pytest.raises(ValueError, match=r"after_test: 6.0% of 100"):
        judged([None] * 6 + [CORRECT] * 94)


# Rates of groups of answers


def test_rates_by_group_leave_failed_judgements_out():
    rows = [
        answered(CORRECT, relation="a"),
        answered(WRONG, relation="a"),
        answered(None, relation="a"),
        answered(ABSTAIN, relation="b"),
    ]
    found = short_form.rates_by(rows, lambda a: a.relation)
    assert list(found) == ["a", "b"]
    assert (found["a"]["accuracy"], found["a"]["n"]) == (0.5, 2)
    assert (found["b"]["abstention"], found["b"]["n"]) == (1.0, 1)


def test_a_bin_is_told_by_its_lower_edge():
    for exposure, edge in {0: 0, 3: 1, 4: 4, 39: 10, 40: 40}.items():
        row = answered(CORRECT, meta={"exposure": exposure})
        assert exposure_bin(row.meta["exposure"]) == edge


# Majority


@pytest.mark.parametrize(
    ("samples", "outcomes", "winner"),
    [
        (["Rome", "Paris", "paris ", " PARIS"], [WRONG] + [CORRECT] * 3, CORRECT),
        (["Rome", "Paris"], [WRONG, CORRECT], WRONG),
        (
            ["Rome", "Rome", "Not sure", "No idea", "I don't know"],
            [WRONG, WRONG, ABSTAIN, ABSTAIN, ABSTAIN],
            ABSTAIN,
        ),
        (["Rome", "Rome", "Paris"], [None, None, CORRECT], None),
        (["Rome", "Paris (0.1)", "Paris (0.9)"], [WRONG] + [CORRECT] * 2, CORRECT),
    ],
    ids=["normalised", "tie", "abstaining", "failed", "confident"],
)
def test_the_commonest_answer_wins(samples, outcomes, winner):
    assert short_form.majority(samples, outcomes) is winner


# Answers of a policy


class Echo(FakePolicy):
    """Says what its prompt asks for; notes that it was asked."""

    def __init__(self):
        super().__init__(None, template="short_form")
        self.asked = False

    def generate_tokens(self, prompts, sampling, n=1, seed=0, progress=""):
        self.asked = True
        return [[(prompt.split()[-2], [])] for prompt in prompts]

    def decode(self, completions, sampling):
        return list(completions)


@pytest.fixture
def policy(monkeypatch):
    monkeypatch.setattr(short_form, "confidence", lambda *_: 0.25)
    return Echo()


def asking(text, **meta):
    fields = {"answers": ["x"], "entity": "e", "relation": "a"}
    return Example(id=text, question=text, meta=meta, **fields)


def answer(policy, path, verify=None, judge=None, questions=("say x", "say y")):
    rows = [asking(q, exposure=3, references="R", reasoning="T") for q in questions]
    return short_form.answer(policy, rows, path, verify or verifier(P), judge)


def test_answers_are_read_back_as_they_were(tmp_path, policy):
    verify = lambda responses, answers, questions: [ABSTAIN, WRONG]  # noqa: E731
    judge = lambda responses, ids, answers, questions: [1.0, 0.0]  # noqa: E731
    path = tmp_path / "a.jsonl"
    rows = answer(policy, path, verify, judge)
    assert [(a.outcome, a.reasoning) for a in rows] == [(ABSTAIN, 1.0), (WRONG, 0.0)]
    policy.asked = False
    assert answer(policy, path) == rows and not policy.asked


def test_reasoning_that_the_judge_failed_on_is_judged_again(tmp_path, policy):
    path = tmp_path / "a.jsonl"

    def judge(responses, ids, answers, questions):
        seen.append(ids)
        return [None if i == "say y" and len(seen) == 1 else 1.0 for i in ids]

    seen = []
    with pytest.raises(ValueError, match="the reasoning of a: 50.0% of 2"):
        answer(policy, path, judge=judge)
    again = answer(policy, path, judge=judge)
    assert [a.reasoning for a in again] == [1.0, 1.0]
    assert seen == [["say x", "say y"], ["say y"]]


def test_what_a_judge_failed_on_is_judged_again_and_nothing_else(tmp_path):
    path, asked = tmp_path / "after_test.jsonl", []
    rows = [
        answered(CORRECT, "a"),
        answered(None, "b", response="Paris"),
        answered(WRONG),
    ]
    write_rows(path, map(asdict, rows))

    def verify(texts, answers, questions):
        asked.append(texts)
        return [ABSTAIN]

    for _ in range(2):
        rows = short_form.answer(FakePolicy(None), [], path, verify)
        assert [a.outcome for a in rows] == [CORRECT, ABSTAIN, WRONG]
    assert asked == [["Paris"]]


def test_the_confidence_of_a_policy_that_states_one_is_that():
    policy = FakePolicy(None, states_confidence=True)
    assert short_form.confidence("Paris (0.3)", ([], []), policy) == 0.3
    assert short_form.confidence("Paris", ([], []), policy) is None
    stated = load_policy("policy", P.model_copy(update={"arm": "rlcr"}))
    assert stated.states_confidence
    # room for the confidence beside the answer
    assert stated.greedy.max_new_tokens == P.max_completion_length + 6
    plain = load_policy("policy", P)
    assert not plain.states_confidence
    assert plain.greedy.max_new_tokens == P.max_completion_length


class Pieces:
    """A tokenizer of pieces, of which the empty one is special."""

    texts = (" Pa", "ris", "\n", " so \\boxed{", "a} or \\boxed{", "{b}", "}.", "")
    texts += (" ", "k.\n")

    def __call__(self, prompts):
        return {"input_ids": [[0]] * len(prompts)}

    def decode(self, ids, skip_special_tokens):
        return "".join(self.texts[i] for i in ids)

    def batch_decode(self, rows, skip_special_tokens):
        return [self.decode(ids, skip_special_tokens) for ids in rows]


# format → tokens as they were sampled, the response, places of its answer's tokens
SAMPLED = {
    "plain": [
        ([0, 1, 2, 7], "Paris", [0, 1]),
        ([8, 1, 2, 7], "ris", [0, 1]),
        ([2, 7], "", []),
    ],
    "boxed": [
        ([0, 3, 0, 4, 0, 1, 5, 6, 2, 7], None, [4, 5, 6]),
        ([0, 9, 7], "Pak.", []),
        ([3, 6, 7], None, []),
    ],
}


@pytest.mark.parametrize("answer_format", SAMPLED)
def test_an_engine_s_confidence_is_of_the_answer_s_tokens_as_sampled(
    answer_format, tmp_path, monkeypatch
):
    rows = SAMPLED[answer_format]
    settings = []

    def generate(self, prompts, given):
        settings.extend(given)
        return [[(ids, [-k - 1.0 for k in range(len(ids))])] for ids, _, _ in rows]

    monkeypatch.setattr(VllmEngine, "generate", generate)
    p = params.load("truthrl", "tiny", {"rollouts": "vllm_colocate"}).model_copy(
        update={"answer_format": answer_format}
    )
    examples = [asking(str(i)) for i in range(len(rows))]
    policy = load_policy("policy", p)
    policy.tokenizer = Pieces()
    answers = short_form.answer(policy, examples, tmp_path / "a.jsonl", verifier(p))
    assert all(how["logprobs"] == 0 and not how["temperature"] for how in settings)
    for row, (ids, text, places) in zip(answers, rows, strict=True):
        assert row.response == (text or Pieces().decode(ids, True).strip())
        expected = sum(-k - 1.0 for k in places) / max(len(places), 1)
        sure = math.exp(expected) if places else 0
        assert row.confidence == pytest.approx(sure)
