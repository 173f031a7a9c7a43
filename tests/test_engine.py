"""The verification engine: exact in the fact world, and by cached evidence."""

import pytest

from factkit.answers.engine import ExactEngine, rating
from factkit.data import examples as wp
from factkit.data.examples import BEST_GUESS, write_examples
from factkit.facts.leads import facts
from factkit.facts.leads.source import LeadSource
from factkit.facts.world import facts as w
from factkit.papers.rar.rewards import engine_of
from factkit.run import params, runs
from factkit.verify.calls import run_all
from factkit.verify.claims import Support, check_response

YES, NO, OPEN = Support.SUPPORTED, Support.CONTRADICTED, Support.INCONCLUSIVE


@pytest.fixture(scope="module")
def world():
    return w.build_world(3, people=30)


@pytest.fixture(scope="module")
def person(world):
    return world.people[0]


@pytest.fixture(scope="module")
def examples(world):
    kinds = (wp.OPEN, wp.COUNTED, wp.MAY_ABSTAIN, BEST_GUESS)
    found = [e for kind in kinds for e in world.requests(world.people[:3], kind)]
    return {e.id: e for e in found}


@pytest.fixture(scope="module")
def exact(world, examples):
    return ExactEngine(world, examples)


def true(world, person, n=4):
    return [w.statement(fact) for fact in world.facts_of(person)[:n]]


def false(world, person, place=0):
    """A statement of the person's fact with another object of its kind."""
    fact = world.facts_of(person)[place]
    other = next(o for o in w.OBJECTS[fact.relation] if o != fact.object)
    return w.statement(w.Fact(person, fact.relation, other))


def unknown(world, person):
    """A statement of what the world is silent on: the attribute a person lacks."""
    lacks = next(r for r in w.PERSON_RELATIONS if (person, r) not in world.by_key)
    return w.statement(w.Fact(person, lacks, w.OBJECTS[lacks][0]))


def ask(engine, prompt_id, *responses):
    """What each method needs: a prompt's id and text for each response."""
    prompt = engine.examples[prompt_id].question
    n = len(responses)
    return [prompt_id] * n, [prompt] * n, list(responses)


# The fact world


def test_one_contradiction_is_enough_and_silence_is_none(world, person, exact):
    right = " ".join(true(world, person))
    asked = ask(
        exact,
        f"{person} open 0",
        right,
        f"{right} {false(world, person)}",
        f"{right} {unknown(world, person)}",
        "I don't know.",
        "",
    )
    assert [*map(exact.no_contradiction, *asked)] == [1.0, 0.0, 1.0, 1.0, 1.0]


def test_the_rating_is_in_the_guide_s_range_for_each_case():
    """Fig 10: several contradictions 0–2, one 3–4, unclear 5, minor concerns 6–7,
    all that is stated accurate 8–10, however little it is."""
    cases = [  # supports, rating
        ([], 10),
        ([YES] * 9, 10),
        ([YES, OPEN], 7),
        ([YES, YES, OPEN, OPEN], 6),
        ([YES, OPEN, OPEN], 5),
        ([YES] * 9 + [NO], 4),
        ([YES] * 9 + [NO, OPEN], 3),
        ([YES] * 9 + [NO] * 2, 2),
        ([NO] * 3 + [OPEN], 1),
        ([NO] * 9, 0),
    ]
    assert [rating(supports) for supports, _ in cases] == [r for _, r in cases]


def test_quality_is_detail_whether_true_or_not(world, person, exact):
    right = true(world, person)
    asked = ask(
        exact,
        f"{person} open 0",
        " ".join(right),
        right[0],
        " ".join([*right[1:], false(world, person)]),
        "I don't know.",
        "",
    )
    # relations told of the four there are: 4, 1, 4, none
    assert [*map(exact.quality, *asked)] == [10.0, 2.0, 10.0, 0.0, 0.0]


def test_a_short_answer_is_a_claim_together_with_its_question(world, person, exact):
    for fact in world.facts_of(person):
        other = next(o for o in w.OBJECTS[fact.relation] if o != fact.object)
        said = [fact.object, f" {fact.object}.\n", w.statement(fact, 1)]
        said += [other, "I don't know.", "nonsense", ""]
        for kind in (wp.MAY_ABSTAIN, BEST_GUESS):
            asked = ask(exact, f"{person} {fact.relation} {kind}", *said)
            assert [*map(exact.supports, *asked)] == [*[[YES]] * 3, [NO], [], [], []]
            assert [*map(exact.no_contradiction, *asked)] == [1, 1, 1, 0, 1, 1, 1]
            assert [*map(exact.quality, *asked)] == [10, 10, 10, 10, 0, 0, 0]


# The leads

DARWIN = "Charles Darwin"


@pytest.fixture(scope="module")
def by_leads():
    source = LeadSource(facts.load())
    kinds = (wp.OPEN, wp.COUNTED, wp.MAY_ABSTAIN, BEST_GUESS)
    about = ("Edinburgh", DARWIN)
    asked = {e.id: e for kind in kinds for e in source.requests(about, kind)}
    return ExactEngine(source, asked)


@pytest.mark.assets
def test_of_the_leads_what_is_false_unread_or_withheld_is_told_apart(by_leads):
    said = [
        "He was an English naturalist. He was born in 1810. He won it. I don't know.",
        "I don't know.",
        "He sailed around the world.",
        "Perhaps he was a painter.",
    ]
    asked = ask(by_leads, f"lead:{DARWIN} open", *said)
    supports = [[YES, YES, NO, OPEN], [], [OPEN], [NO]]
    assert [*map(by_leads.supports, *asked)] == supports
    assert [*map(by_leads.no_contradiction, *asked)] == [0.0, 1.0, 1.0, 0.0]
    extract, _, verify = by_leads.reader
    for text, expected in zip(said, supports, strict=True):
        checked = check_response(asked[1][0], text, extract, lambda _: (), verify)
        assert run_all([checked])[0][1] == expected


# The engine of a run


@pytest.fixture
def run(tmp_path):
    """Parameters of a run whose requests lie in its data folder."""
    p = params.load("rar", "tiny", {"output_dir": str(tmp_path), "world_people": 30})
    made = w.build_world(p.world_seed, people=p.world_people, exposure=p.world_exposure)
    data = runs.run_folder(p.data_notebook, p)
    for place, name in enumerate(p.splits):
        people = made.people[3 * place : 3 * place + 3]
        write_examples(data / f"{name}.jsonl", made.requests(people, wp.OPEN))
    return p, made


def test_the_engine_of_profile_tiny_knows_the_requests_of_every_split(run):
    p, made = run
    found = engine_of(p)
    assert isinstance(found, ExactEngine)
    people = made.people[:9]
    assert {e.entity for e in found.examples.values()} == set(people)
    for person in people:
        asked = ask(found, f"{person} open 1", w.biography(made, person))
        assert [*map(found.supports, *asked)] == [[YES] * 4]
