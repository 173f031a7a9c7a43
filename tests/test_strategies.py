"""Strategies of a reasoning: an annotator's own words or None, rules, structure."""

import json

import pytest
from fake_llm import FakeLLM

from factkit import prompts
from factkit.llm import Reply
from factkit.reason.strategies import (
    RULES,
    Annotation,
    Steps,
    annotate,
    annotation,
    normalised,
    shares,
    stated,
    tag,
)
from factkit.verify.exact import WorldReader
from factkit.world import facts as world

STEPS = [
    {"step": "names the year", "strategies": ["Recall", "doubt"]},
    {"step": "looks at it again", "strategies": ["Self-verification", "recall"]},
]
READ = Annotation(
    (
        ("names the year", ("recall", "doubt")),
        ("looks at it again", ("self_verification", "recall")),
    ),
    7,
)


def reply(steps=STEPS, helpfulness=7, **more):
    return json.dumps({"steps": steps, "helpfulness": helpfulness} | more)


# A language model's annotation


def test_an_annotation_is_read_with_what_may_stand_around_it():
    for text in (
        reply(),
        f"```json\n{reply()}\n```",
        f"<think>{{maybe}} 3 or 4? {reply(helpfulness=3)}</think>{reply()}",
    ):
        assert annotation(Reply(text)) == READ
    assert READ.strategies == ["recall", "doubt", "self_verification"]
    nothing = annotation(Reply(reply([{"step": "", "strategies": []}], 0)))
    assert (nothing.strategies, nothing.helpfulness) == ([], 0)


def test_names_that_differ_in_case_space_and_hyphens_are_one():
    plain = {
        "Self-Verification": "self_verification",
        "self  verification": "self_verification",
        " SELF‑verification. ": "self_verification",
        "step 2: recall": "step_2_recall",
        "Résumé": "résumé",
        "…": "",
    }
    assert {name: normalised(name) for name in plain} == plain


def test_the_template_names_the_strategies_of_the_rules_in_their_order():
    names = prompts.template("annotate_strategies").partition("three words: ")[2]
    listed = names.partition(".\n")[0].split(", ")
    assert [normalised(name) for name in listed] == list(RULES)


def test_the_examples_of_the_template_are_replies_that_can_be_read():
    lines = prompts.template("annotate_strategies").splitlines()
    found = [annotation(Reply(line)) for line in lines if line.startswith("{")]
    assert [of.helpfulness for of in found] == [8, 0]
    assert set(found[0].strategies) <= set(RULES)


def test_a_reasoning_takes_one_request_with_question_reasoning_and_answer():
    llm = FakeLLM(lambda _: Reply(reply()))
    long = "r" * 50_000
    found = annotate(llm, [("Q?", long, "A."), ('"}', "<think>", "\n{reasoning}")])
    assert found == [READ] * 2
    assert annotate(
        FakeLLM(lambda _: Reply(None, "timeout")), [("Q?", "R.", "A.")]
    ) == [None]
    prompts_seen = [r.messages[0]["content"].splitlines()[-3:] for r in llm.requests]
    values = [[json.loads(line.partition(": ")[2]) for line in p] for p in prompts_seen]
    assert values == [["Q?", long, "A."], ['"}', "<think>", "\n{reasoning}"]]
    (request, _) = llm.requests
    assert request.template.startswith("annotate_strategies@")
    assert request.schema == Steps.model_json_schema()
    assert request.sampling.temperature == 0


# Rules

TOLD = {
    "recall": [
        "Let me recall what happened there.",
        "I'll start by recalling the dates.",
        "This is what I know of it.",
        "I remember three of them.",
    ],
    "self_verification": [
        "Let me double-check the year.",
        "First, I should verify the name.",
        "Let’s make sure that it lies in Peru.",
        "It rose in 1910. Checking the month: May.",
        "Is that right?",
    ],
    "doubt": [
        "Perhaps it was built of brick.",
        "I'm not entirely sure of the height.",
        "It might have been later.",
        "He probably came by ship.",
        "I think there were nine.",
        "I can't remember her first name.",
    ],
    "backtracking": [
        "It was in May. Wait, it was in June.",
        "Actually it has four.",
        "He had two sons. No, three.",
        "But wait, that was his brother.",
        "On second thought it is older.",
        "Nine.\nWait … ten.",
    ],
    "leaving_out": [
        "I'd better leave it out.",
        "I won't mention his teacher.",
        "I’ll not give the number.",
        "I should avoid dates here.",
        "I'll just say where, without naming the year.",
    ],
    "planning": [
        "I'll begin with the history.",
        "Let me outline an answer.",
        "Now I'm ready to write.",
    ],
    "restating_the_question": [
        "The user wants to know about bees.",
        "So the question is about bees.",
        "I'm asked about bees.",
    ],
    "decomposition": [
        "Let me break this down.",
        "I'll take them one by one.",
        "The question has two parts.",
    ],
    "summarising": [
        "To sum up, it is old.",
        "Putting it all together.",
        "It has three arches. Overall, it is a small bridge.",
    ],
    "definition": ["A fen is defined as a wet place.", "DNA stands for an acid."],
    "comparison": ["Unlike moss, it has roots.", "It is tall compared to the others."],
    "example": ["Some, such as the Nile, flood.", "Take rivers, e.g. the Nile."],
    "ordering": ["First, the place. Then, the time.", "It grew. Finally it closed."],
}
# what has a strategy's word but not its sense; rows of plain statements
PLAIN = [
    "The recall of the car cost millions. He is remembered in Lima.",
    "The police check bags at the door. A confirmed report came in.",
    "A certain Baker was sure of it.",
    "He could not wait until noon. Wait times are long. There is no bridge.",
    "No. 5 lies in the north.",
    "Leaves turn red in autumn. These disorders do not include obesity.",
    "The plan of the city is old. They began to draft soldiers.",
    "The user interface was new. The question was asked in 1910.",
    "The river splits the city in two. It has two parts.",
    "He brought a band together. Overall length is nine metres.",
    "The first bridge opened in 1890; the last stood until 1950. Next to it is a fen.",
    "Ala Haskwood came into the world in 1916. The Aurion Prize went to Ala Haskwood.",
]


def test_a_strategy_is_told_by_its_wording_and_the_answer_plays_no_part():
    assert list(TOLD) == list(RULES)
    for name, sentences in TOLD.items():
        for sentence in sentences:
            assert name in tag(sentence, ""), sentence
            assert name in tag(f"A plain one.\n{sentence}", ""), sentence
            assert not set(tag("", sentence)) & set(RULES), sentence


# strategies whose wording sentences on others have, too: "I'll start by recalling"
OFTEN = {"planning", "recall", "self_verification", "ordering", "doubt"}


def test_a_strategy_is_not_told_by_the_wording_of_others_or_by_plain_statements():
    for name in set(RULES) - OFTEN:
        others = [s for other, told in TOLD.items() if other != name for s in told]
        assert [s for s in others if name in tag(s, "")] == []
    assert [text for text in PLAIN if tag(text, text)] == []


def test_the_hedges_of_the_fact_world_are_doubt():
    for hedge in world.HEDGES:
        assert tag(f"{hedge.capitalize()} Ala Haskwood was a poet.", "")[0] == "doubt"


# Structure

ONE, TWO, THREE = "Ann was a poet.", "Ann came from Lima.", "Ann won a prize."


def test_structure_is_told_by_the_sentences_of_both_parts():
    for reasoning, said, shown in (
        ([ONE, TWO], [TWO, ONE], []),
        ([ONE, TWO], [ONE], ["left_out"]),
        ([ONE], [ONE, THREE], ["added"]),
        ([ONE, TWO], [ONE, THREE], ["left_out", "added"]),
        ([ONE], [ONE, ONE], ["repeated"]),
        ([ONE, ONE], [TWO, TWO], ["left_out", "added", "repeated"]),
        ([ONE], [], ["left_out"]),
        ([], [ONE], ["added"]),
        ([], [], []),
    ):
        assert tag(" ".join(reasoning), " ".join(said)) == shown


def test_hedges_case_and_punctuation_make_no_other_sentence():
    assert tag("Perhaps Ann was a poet.", "ANN was a poet!") == ["doubt"]
    assert tag("Ann was a poet.", "- Ann was a poet") == []


@pytest.fixture(scope="module")
def made():
    return world.build_world(people=10)


def test_in_the_fact_world_a_fact_is_the_same_in_all_its_wordings(made):
    first, second = made.facts_of(made.people[0])[:2]
    for wording in range(3):
        thought = f"{world.statement(first)} Perhaps {world.statement(second)}"
        said = f"{world.statement(second, wording)} {world.statement(first, wording)}"
        assert tag(thought, said, stated(WorldReader(made), "")) == ["doubt"]
    assert "left_out" in tag(thought, said)  # by words alone they differ


def test_in_the_fact_world_another_object_is_another_fact(made):
    fact = made.facts_of(made.people[0])[0]
    other = next(o for o in world.OBJECTS[fact.relation] if o != fact.object)
    wrong = world.statement(world.Fact(fact.subject, fact.relation, other))
    found = tag(world.statement(fact), wrong, stated(WorldReader(made), ""))
    assert found == ["left_out", "added"]


# Shares


def test_shares_are_those_of_responses_the_most_frequent_first():
    tags = [["b", "a"], ["b", "b"], {"c", "b"}, []]
    assert list(shares(tags).items()) == [("b", 0.75), ("a", 0.25), ("c", 0.25)]
    assert list(shares(tags, top=2)) == ["b", "a"]
    assert shares([["a"], None, []]) == {"a": 0.5}  # None: the annotator failed
    assert shares([None]) == {}
