"""Whether an answer is preferred: the rule, and what stands in for a judge."""

import itertools
import json

import pytest
from fake_endpoint import answer, prompt_of, serve
from hypothesis import given
from hypothesis import strategies as st

from factkit import params
from factkit.datasets import world_prompts as wp
from factkit.datasets.examples import DataError
from factkit.verify import engine as engines
from factkit.verify.engine import PreferenceEngine
from factkit.verify.exact import ExactEngine, WorldReader
from factkit.verify.preference import at_least_as
from factkit.world import facts as w

# The rule


def by_number(ids, prompts, answers):
    """An answer is as relevant as the number that it is; "?": the judge failed."""
    return [None if text == "?" else float(text) for text in answers]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ("2", "1", 1.0),
        ("1", "2", 0.0),
        ("1", "1", 1.0),  # a tie wins
        ("0", "0", 0.0),  # but not at 0
        ("1", "0", 1.0),
        ("?", "1", None),
        ("1", "?", None),
        ("0", "?", None),
    ],
)
def test_an_answer_wins_at_no_less_relevance_than_the_reference(ours, theirs, expected):
    prefer = at_least_as(by_number, {"q": theirs})
    assert prefer(["q"], ["Who?"], [ours]) == [expected]


numbers = st.integers(0, 3).map(str) | st.just("?")


@given(st.lists(st.tuples(st.sampled_from("abc"), numbers), max_size=8), st.data())
def test_each_answer_is_held_against_its_own_prompt_s_reference(rows, data):
    references = {i: data.draw(numbers) for i in "abc"}
    ids, answers = ([row[k] for row in rows] for k in (0, 1))
    prefer = at_least_as(by_number, references)
    alone = [prefer([i], ["Who?"], [text])[0] for i, text in rows]
    assert prefer(ids, ["Who?"] * len(rows), answers) == alone


def test_a_prompt_without_a_reference_is_refused():
    with pytest.raises(DataError, match="'b': no answer of the reference policy"):
        at_least_as(by_number, {"a": "1"})(["a", "b"], ["?"] * 2, ["1"] * 2)


def test_equal_answers_tie_though_an_encoder_s_last_digits_are_the_batch_s():
    drift = itertools.count()

    def relevance(ids, prompts, answers):
        noise = next(drift) * 1e-7
        return [0.5 - noise for _ in answers]

    prefer = at_least_as(relevance, {"q": "the same"})
    assert prefer(["q"], ["Who?"], ["the same"]) == [1.0]


# In the fact world

WORLD = w.build_world(3, people=30)
PERSON, OTHER = WORLD.people[:2]
REQUEST = wp.requests(WORLD, [PERSON], wp.OPEN)[0]


def told(n, person=PERSON):
    return " ".join(w.statement(fact) for fact in WORLD.facts_of(person)[:n])


CITY = next(w.statement(f) for f in WORLD.facts if f.subject not in WORLD.people)


def wins(text, reference):
    engine = ExactEngine(
        WorldReader(WORLD), {REQUEST.id: REQUEST}, {REQUEST.id: reference}
    )
    return engine.preferred([REQUEST.id], [REQUEST.question], [text]) == [1.0]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (told(3), told(2), True),
        (told(2), told(3), True),
        (f"{told(2)} {CITY}", told(2), False),
        (told(2), f"{told(2)} {CITY}", True),
        (told(4, OTHER), told(1), False),
        (told(1), told(4, OTHER), True),
        ("I don't know.", "I don't know.", False),
        ("", "", False),
    ],
)
def test_in_the_fact_world_keeping_to_the_person_wins_whatever_the_length(
    ours, theirs, expected
):
    assert wins(ours, theirs) is expected


def test_in_the_fact_world_what_is_told_need_not_be_true():
    """As the paper's judge is told: precision is another part of the reward."""
    wrong = [
        w.statement(w.Fact(PERSON, f.relation, o))
        for f in WORLD.facts_of(PERSON)[:2]
        for o in w.OBJECTS[f.relation]
        if o != f.object
    ]
    lies = f"{wrong[0]} {wrong[-1]}"
    engine = ExactEngine(WorldReader(WORLD), {REQUEST.id: REQUEST}, {})
    assert set(engine.supports([REQUEST.id], [""], [lies])[0]) == {"contradicted"}
    assert wins(lies, told(2)) and wins(told(2), lies)


def test_in_the_fact_world_another_number_of_facts_than_asked_for_loses():
    asked = wp.requests(WORLD, [PERSON], wp.COUNTED)[0]
    engine = ExactEngine(WorldReader(WORLD), {asked.id: asked}, {})
    right, wrong = (told(asked.meta["wanted"] + more) for more in (0, 1))
    rows = [asked.id] * 2, [asked.question] * 2, [right, wrong]
    assert engine.relevance(*rows) == [1.0, 0.5]


# By a judge


def test_where_there_is_a_judge_it_prefers_and_nothing_else_does(tmp_path, monkeypatch):
    monkeypatch.setenv("FACTKIT_CACHE", str(tmp_path))

    def behave(body, attempt):
        prompt, response = prompt_of(body).splitlines()[-2:]
        good = json.loads(response.removeprefix("Response: ")) in prompt
        verdict = "A" if good else "B"
        told = "???" not in response
        return answer(f"<answer>[[{verdict}]]</answer>" if told else "I can't tell.")

    with serve(behave) as server:
        values = {"verifier": "judge", "judge_model": "m", "judge_url": server.url}
        p = params.load("reason", "tiny", values)
        engine = PreferenceEngine(
            prefer=engines._preference(p),
            **dict.fromkeys(("extract", "verify", "pieces", "search")),
        )
        prompts = ["Tell of Rome.", "Tell of Ur.", "Tell of Bern."]
        found = engine.preferred(list("abc"), prompts, ["Rome", "Rome", "???"])
    assert found == [1.0, 0.0, None]
    assert len(server.bodies) == 3
    assert engine.relevance(list("abc"), prompts, ["Rome"] * 3) == [None] * 3


def test_the_base_policy_is_asked_where_it_is_named(tmp_path, monkeypatch):
    """App. G: who judges relevance writes y_ref itself. The reader of claims, a model
    of 70B, would set another reference than the base policy."""
    monkeypatch.setenv("FACTKIT_CACHE", str(tmp_path))
    with (
        serve(lambda body, attempt: answer("<answer>[[A]]</answer>")) as judge,
        serve(lambda body, attempt: answer("<answer>[[B]]</answer>")) as base,
    ):
        values = {"verifier": "judge", "judge_model": "m", "judge_url": judge.url}
        values |= {"relevance_model": "base", "relevance_url": base.url}
        p = params.load("reason", "tiny", values)
        prefer = engines._preference(p)
        assert prefer(["a"], ["Tell of Rome."], ["Rome"]) == [0.0]
    assert [body["model"] for body in base.bodies] == ["base"]
    assert judge.bodies == []
    full = params.load("reason", "h100_full")
    assert full.relevance_model == full.policy
