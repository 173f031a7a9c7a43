"""Verifiers of whole responses: rules, string matching and judges by their names."""

import pytest

from factkit.answers import verifier
from factkit.facts.world import facts as world
from factkit.run import params
from factkit.verify import judge
from factkit.verify.outcome import Outcome

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


def test_each_rule_by_its_name():
    for name, expected in {
        "": [CORRECT, CORRECT, WRONG, WRONG, ABSTAIN],
        "rules": [CORRECT, CORRECT, WRONG, WRONG, ABSTAIN],
        "exact": [CORRECT, WRONG, WRONG, WRONG, ABSTAIN],
        "contains": [CORRECT, CORRECT, CORRECT, WRONG, ABSTAIN],
    }.items():
        assert outcomes(PLAIN, SAID, name) == expected


def test_only_the_box_of_a_boxed_response_counts():
    cases = [
        (r"<think> It is Rome. </think> \boxed{Paris}", CORRECT),
        (r"<think> It is Paris. </think> \boxed{Rome}", WRONG),
        (r"<think> Paris. </think> \boxed{I don't know}", ABSTAIN),
        ("<think> It is Paris. </think> Paris", WRONG),
        ("I don't know", WRONG),
    ]
    for name in ("rules", "exact", "contains"):
        found = outcomes(BOXED, [said for said, _ in cases], name)
        assert found == [expected for _, expected in cases]


@pytest.fixture
def asked(monkeypatch):
    """What a judge that fails on Rome is given: (llm, responses) of each batch."""
    batches = []
    kinds = {"Paris": CORRECT, "Rome": None}

    def judged(llm, responses, answers, questions):
        batches.append((llm, list(responses)))
        return [kinds.get(r, WRONG) for r in responses]

    monkeypatch.setattr(judge, "judge_outcomes", judged)
    return batches


def test_the_judge_of_the_parameters_is_asked(asked, monkeypatch):
    limits = {"judge_concurrency": 3, "judge_timeout": 7.0, "judge_max_calls": 11}
    monkeypatch.setenv("JUDGE_HEADERS", '{"X-Team": "a"}')
    sent = {"judge_extra": '{"top_k": 1}', "judge_headers": "JUDGE_HEADERS"}
    values = JUDGED | limits | sent | {"judge_thinking_tokens": 9}
    p = params.load("truthrl", "tiny", values, variant="reasoning")
    said = [r"<think> Rome? </think> \boxed{Paris}", r"\boxed{Rome}", "no box"]
    assert outcomes(p, said) == [CORRECT, None, WRONG]
    outcomes(p, said, "org/other@http://other:8002/v1")
    (llm, told), (other, _) = asked
    assert told == ["Paris", "Rome", ""]  # without the reasoning
    limits = llm.limits
    assert (limits.concurrency, limits.timeout_s, limits.max_calls) == (3, 7.0, 11)
    assert (llm.endpoint.extra, llm.endpoint.headers) == ({"top_k": 1}, {"X-Team": "a"})
    assert llm.endpoint.thinking_tokens == 9
    named = [(of.endpoint.model, of.endpoint.url) for of in (llm, other)]
    assert named == [
        ("org/judge", "http://j/v1"),
        ("org/other", "http://other:8002/v1"),
    ]


def test_an_unknown_verifier_is_refused():
    p = params.load("truthrl", "tiny")
    with pytest.raises(ValueError, match="'exakt': there are rules, exact, contains"):
        verifier.verifier(p, "exakt")


def test_secrets_come_from_the_environment_and_are_not_shown(monkeypatch):
    secret = "sk-Zq7"
    places = {
        "judge_key": secret,
        "judge_headers": f'{{"Authorization": "{secret}"}}',
        "judge_url": f"http://user:{secret}@judge:1/v1",
        "other_judges": f"m@http://judge:1/v1?key={secret}",
    }
    for name, value in places.items():
        with pytest.raises(params.ParamError, match=name) as error:
            params.load("truthrl", "tiny", {name: value})
        assert secret not in str(error.value)
    for content in (secret, f'["{secret}"]', f'{{"X": ["{secret}"]}}'):
        monkeypatch.setenv("JUDGE_HEADERS", content)
        with pytest.raises(params.ParamError, match="JUDGE_HEADERS") as error:
            verifier.read_headers("JUDGE_HEADERS")
        assert secret not in str(error.value)


def test_a_judge_s_fields_that_are_no_json_object_are_refused():
    for wrong in ("enable_thinking: false", "[1]"):
        with pytest.raises(params.ParamError, match="judge_extra"):
            params.load("truthrl", "tiny", {"judge_extra": wrong})


# Reasoning


def test_the_fact_world_judges_reasoning_exactly():
    example = world.build_world(people=40).questions()[0][0]
    true, box = example.meta["reasoning"], r"\boxed{x}"
    said = [f"<think> {true} </think> {box}", f"<think> Perhaps. </think> {true}", box]
    found = verifier.reasoning_judge(BOXED)(
        said, [example.id] * 3, [example.answers] * 3, [example.question] * 3
    )
    assert found == [1, 0, 0]
    assert verifier.reasoning_judge(params.load("truthrl", "tiny")) is None  # plain


def outside(**more):
    values = {"questions": "leads", "answer_format": "boxed"} | more
    return params.load("truthrl", "tiny", values)


def test_outside_the_fact_world_reasoning_needs_a_judge():
    with pytest.raises(params.ParamError, match="verifier=rules.* needs a judge"):
        verifier.reasoning_judge(outside(verifier="rules"))


def test_outside_the_fact_world_the_judge_reads_the_reasoning(monkeypatch):
    batches = []

    def judged(llm, template, rows):
        assert template == "judge_reasoning"
        batches.append(rows)
        return [1.0, None]

    monkeypatch.setattr(judge, "grade_responses", judged)
    said = [r"<think> A. </think> \boxed{x}", r"\boxed{x}"]
    rows = (said, ["i", "j"], [["x"], ["y"]], ["A?", "B?"])
    assert verifier.reasoning_judge(outside(**JUDGED))(*rows) == [1.0, None]
    assert batches == [[("A?", ["x"], "A."), ("B?", ["y"], "")]]
