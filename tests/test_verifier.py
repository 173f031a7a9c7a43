"""Verifiers of whole responses: rules, string matching and judges by their names."""

import pytest

from factkit import params
from factkit.backends import Endpoint
from factkit.verify import judge, verifier
from factkit.verify.judge import Verdict
from factkit.verify.outcome import Outcome
from factkit.world import facts as world

CORRECT, ABSTAIN, WRONG = Outcome.CORRECT, Outcome.ABSTAIN, Outcome.WRONG
PLAIN = params.load("truthrl", "tiny")
BOXED = params.load("truthrl", "tiny", {"world_people": 40}, variant="reasoning")
JUDGED = {"verifier": "judge", "judge_model": "org/judge", "judge_url": "http://j/v1"}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FACTKIT_CACHE", str(tmp_path))


def outcomes(p, said, name=""):
    n = len(said)
    return verifier.verifier(p, name)(said, [["Paris"]] * n, ["Which city?"] * n)


SAID = ["Paris", "paris.", "Rome, Paris", "Rome", "I don't know"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rules", [CORRECT, CORRECT, WRONG, WRONG, ABSTAIN]),
        ("exact", [CORRECT, WRONG, WRONG, WRONG, ABSTAIN]),
        ("contains", [CORRECT, CORRECT, CORRECT, WRONG, ABSTAIN]),
    ],
)
def test_each_rule_by_its_name(name, expected):
    assert outcomes(PLAIN, SAID, name) == expected


def test_the_verifier_is_by_default_that_of_the_parameters():
    p = params.load("truthrl", "tiny", {"verifier": "exact"})
    assert outcomes(p, SAID) == outcomes(PLAIN, SAID, "exact")


def test_each_response_has_its_own_answers_and_question():
    verify = verifier.verifier(PLAIN)
    questions = ["Who?", "Which river?"]
    assert verify(["the river Po"] * 2, [["Po"], ["Po"]], questions) == [WRONG, CORRECT]


@pytest.mark.parametrize("name", ["rules", "exact", "contains"])
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (r"<think> It is Rome. </think> \boxed{Paris}", CORRECT),
        (r"<think> It is Paris. </think> \boxed{Rome}", WRONG),
        (r"<think> I don't know. </think> \boxed{Paris}", CORRECT),
        (r"<think> Paris. </think> \boxed{I don't know}", ABSTAIN),
        (r"\boxed{Paris}", CORRECT),
        ("<think> It is Paris. </think> Paris", WRONG),
        (r"<think> It is \boxed{Paris}", WRONG),
        ("I don't know", WRONG),
        ("", WRONG),
    ],
)
def test_only_the_box_of_a_boxed_response_counts(name, said, expected):
    assert outcomes(BOXED, [said], name) == [expected]


@pytest.fixture
def asked(monkeypatch):
    """What a judge that fails on Rome is given: (llm, responses) of each batch."""
    batches = []
    kinds = {"Paris": CORRECT, "Rome": None}

    def judged(llm, responses, answers, questions):
        batches.append((llm, list(responses)))
        return [kinds.get(r, WRONG) for r in responses]

    monkeypatch.setattr(judge, "judged_outcomes", judged)
    return batches


def test_the_judge_of_the_parameters_is_asked(asked):
    p = params.load("truthrl", "tiny", JUDGED)
    assert outcomes(p, ["Paris", "Rome", "Lyon"]) == [CORRECT, None, WRONG]
    backend = asked[0][0].backend
    assert isinstance(backend, Endpoint)
    assert (backend.model, backend.base_url) == ("org/judge", "http://j/v1")


def test_another_judge_is_named_by_model_and_url(asked):
    p = params.load("truthrl", "tiny", JUDGED)
    outcomes(p, ["Paris"], "org/other@http://other:8002/v1")
    backend = asked[0][0].backend
    assert (backend.model, backend.base_url) == ("org/other", "http://other:8002/v1")


def test_a_named_judge_needs_no_judge_in_the_parameters(asked):
    assert outcomes(PLAIN, ["Paris"], "org/other@http://other:8002/v1") == [CORRECT]


def test_a_judge_has_the_limits_of_the_parameters(asked):
    limits = {"judge_concurrency": 3, "judge_timeout": 7.0, "judge_max_calls": 11}
    outcomes(params.load("truthrl", "tiny", JUDGED | limits), ["Paris"])
    found = asked[0][0].limits
    assert (found.concurrency, found.timeout_s, found.max_calls) == (3, 7.0, 11)


def test_a_judge_s_calls_have_no_cap_where_it_is_0(asked):
    outcomes(params.load("truthrl", "tiny", JUDGED), ["Paris"])
    assert asked[0][0].limits.max_calls is None


def test_a_judge_reads_the_answer_without_the_reasoning(asked):
    p = params.load("truthrl", "tiny", JUDGED, variant="reasoning")
    outcomes(p, [r"<think> Rome? </think> \boxed{Paris}", "no box"])
    assert asked[0][1] == ["Paris", ""]


# Reasoning


def test_the_fact_world_judges_reasoning_exactly():
    example = world.questions(world.build_world(people=40))[0]
    true, box = example.meta["reasoning"], r"\boxed{x}"
    said = [f"<think> {true} </think> {box}", f"<think> Perhaps. </think> {box}", box]
    found = verifier.reasoning_judge(BOXED)(
        said, [example.id] * 3, [example.answers] * 3, [example.question] * 3
    )
    assert found == [1, 0, 0]


def test_a_true_statement_outside_the_reasoning_is_none():
    example = world.questions(world.build_world(people=40))[0]
    said = f"<think> Perhaps. </think> {example.meta['reasoning']}"
    rows = ([said], [example.id], [example.answers], [example.question])
    assert verifier.reasoning_judge(BOXED)(*rows) == [0]


def outside(**more):
    values = {"questions": "leads", "answer_format": "boxed"} | more
    return params.load("truthrl", "tiny", values)


@pytest.mark.parametrize("name", ["rules", "exact"])
def test_outside_the_fact_world_reasoning_needs_a_judge(name):
    with pytest.raises(params.ParamError, match=f"verifier={name}.* needs a judge"):
        verifier.reasoning_judge(outside(verifier=name))


def test_outside_the_fact_world_the_judge_reads_the_reasoning(monkeypatch):
    batches = []

    def judged(llm, rows):
        batches.append(rows)
        return [Verdict(1.0, ""), Verdict(None, "timeout")]

    monkeypatch.setattr(judge, "judge_reasoning", judged)
    said = [r"<think> A. </think> \boxed{x}", r"\boxed{x}"]
    rows = (said, ["i", "j"], [["x"], ["y"]], ["A?", "B?"])
    assert verifier.reasoning_judge(outside(**JUDGED))(*rows) == [1.0, None]
    assert batches == [[("A?", ["x"], "A."), ("B?", ["y"], "")]]


def test_plain_answers_have_no_reasoning_to_judge():
    assert verifier.reasoning_judge(params.load("truthrl", "tiny")) is None
