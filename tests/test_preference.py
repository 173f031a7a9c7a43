"""Whether an answer is preferred: the rule, and what stands in for a judge."""

import json

import pytest
from fake_endpoint import answer, prompt_of, serve

from factkit import params
from factkit.datasets import world_prompts as wp
from factkit.datasets.examples import DataError
from factkit.reason.preference import engine_of
from factkit.verify import engine
from factkit.verify.exact import ExactEngine, WorldReader
from factkit.world import facts as w
from factkit.world import texts as world_text

# In the fact world

WORLD = w.build_world(3, people=30)
PERSON, OTHER = WORLD.people[:2]
REQUEST = wp.requests(WORLD, [PERSON], wp.OPEN)[0]


def told(n, person=PERSON):
    return " ".join(w.statement(fact) for fact in WORLD.facts_of(person)[:n])


CITY = next(w.statement(f) for f in WORLD.facts if f.subject not in WORLD.people)


def wins(text, reference):
    exact = ExactEngine(
        WorldReader(WORLD), {REQUEST.id: REQUEST}, {REQUEST.id: reference}
    )
    return exact.preferred([REQUEST.id], [REQUEST.question], [text]) == [1.0]


def test_in_the_fact_world_keeping_to_the_person_wins_whatever_the_length():
    cases = [  # ours, theirs, whether ours wins
        (told(3), told(2), True),
        (told(2), told(3), True),
        (f"{told(2)} {CITY}", told(2), False),
        (told(2), f"{told(2)} {CITY}", True),
        (told(4, OTHER), told(1), False),
        (told(1), told(4, OTHER), True),
        ("I don't know.", "I don't know.", False),
        ("", "", False),
    ]
    found = [wins(ours, theirs) for ours, theirs, _ in cases]
    assert found == [expected for _, _, expected in cases]
    exact = ExactEngine(WorldReader(WORLD), {REQUEST.id: REQUEST}, {})
    with pytest.raises(DataError, match="no answer of the reference policy"):
        exact.preferred([REQUEST.id], [REQUEST.question], ["It is."])


def test_in_the_fact_world_what_is_told_need_not_be_true():
    """As the paper's judge is told: precision is another part of the reward."""
    wrong = [
        w.statement(w.Fact(PERSON, f.relation, o))
        for f in WORLD.facts_of(PERSON)[:2]
        for o in w.OBJECTS[f.relation]
        if o != f.object
    ]
    lies = f"{wrong[0]} {wrong[-1]}"
    exact = ExactEngine(WorldReader(WORLD), {REQUEST.id: REQUEST}, {})
    assert set(exact.supports([REQUEST.id], [""], [lies])[0]) == {"contradicted"}
    assert wins(lies, told(2)) and wins(told(2), lies)


def test_in_the_fact_world_another_number_of_facts_than_asked_for_loses():
    asked = wp.requests(WORLD, [PERSON], wp.COUNTED)[0]
    exact = ExactEngine(WorldReader(WORLD), {asked.id: asked}, {})
    right, wrong = (told(asked.meta["wanted"] + more) for more in (0, 1))
    rows = [asked.id] * 2, [asked.question] * 2, [right, wrong]
    assert exact.relevance(*rows) == [1.0, 0.5]


# By a judge

TOKENIZER = world_text.build_tokenizer(w.build_world(people=5))


def test_the_base_policy_prefers_where_it_is_named_and_else_the_judge(
    tmp_path, monkeypatch
):
    """App. G: who judges relevance writes y_ref itself. The reader of claims, a model
    of 70B, would set another reference than the base policy."""
    monkeypatch.setenv("FACTKIT_CACHE", str(tmp_path))
    monkeypatch.setattr(engine, "stored_evidence", lambda p: ({}, TOKENIZER))

    def behave(body, attempt):
        prompt, response = prompt_of(body).splitlines()[-2:]
        good = json.loads(response.removeprefix("Response: ")) in prompt
        verdict = "A" if good else "B"
        told = "???" not in response
        return answer(f"<answer>[[{verdict}]]</answer>" if told else "I can't tell.")

    prompts = ["Tell of Rome.", "Tell of Ur.", "Tell of Bern."]
    with serve(behave) as judge, serve(behave) as base:
        values = {"verifier": "judge", "judge_model": "m", "judge_url": judge.url}
        named = {"relevance_model": "base", "relevance_url": base.url}
        for more, asked in (({}, judge), (named, base)):
            p = params.load("reason", "tiny", values | more)
            prefer = engine_of(p).preferred
            found = prefer(list("abc"), prompts, ["Rome", "Rome", "???"])
            assert found == [1.0, 0.0, None]
            assert len(asked.bodies) == 3
    assert {body["model"] for body in base.bodies} == {"base"}
    assert {body["model"] for body in judge.bodies} == {"m"}
