"""What long answers state of facts that the policy read often, rarely or never."""

from dataclasses import replace

import pytest

from factkit.answers.engine import ExactEngine
from factkit.answers.exposure import stated_by_exposure
from factkit.answers.long_form import evaluate
from factkit.data.examples import Example
from factkit.facts.world import facts as w

WORLD = w.build_world(people=20, exposure="fact")
PERSON = WORLD.people[0]
FACTS = WORLD.facts_of(PERSON)


def measure(tmp_path, exposures, response):
    """The shares of a response about a person whose facts have these exposures."""
    own = [replace(f, exposure=n) for f, n in zip(FACTS, exposures, strict=True)]
    others = [f for f in WORLD.facts if f.subject != PERSON]
    known = w.World(0, WORLD.people, (*own, *others))
    asked = Example(id="a", question="Who?", answers=[], entity=PERSON)
    engine = ExactEngine(known, {"a": asked})
    rows = evaluate([asked], [response], engine.reader, tmp_path / "claims.jsonl")
    return stated_by_exposure(rows, engine)


def test_right_and_wrong_statements_are_shares_of_a_bin_s_facts(tmp_path):
    wrong = next(o for o in w.OBJECTS[FACTS[1].relation] if o != FACTS[1].object)
    said = [w.statement(FACTS[0]), w.statement(replace(FACTS[1], object=wrong))]
    found = measure(tmp_path, (0, 0, 5, 50), " ".join([*said, w.statement(FACTS[2])]))
    assert found["a"] == {
        "exposure_0_stated": 1,
        "exposure_0_stated_right": 0.5,
        "exposure_0_stated_wrong": 0.5,
        "exposure_4_stated": 1,
        "exposure_4_stated_right": 1,
        "exposure_4_stated_wrong": 0,
        "exposure_40_stated": 0,
        "exposure_40_stated_right": 0,
        "exposure_40_stated_wrong": 0,
    }


def test_what_says_nothing_states_nothing(tmp_path):
    vague = [replace(fact, object=w.VAGUE[fact.relation]) for fact in FACTS]
    text = " ".join(w.statement(fact) for fact in vague)
    shares = measure(tmp_path, (1, 1, 1, 1), text)["a"]
    assert shares == pytest.approx(dict.fromkeys(shares, 0)) and shares


def test_without_exposure_there_is_nothing_to_measure(tmp_path):
    assert measure(tmp_path, (0, 0, 0, 0), w.statement(FACTS[0])) == {}
