"""Strategies of a reasoning: an annotator's own words or None, rules, structure."""

import json

import pytest
from fake_endpoint import answer, prompt_of, refuse, serve
from hypothesis import given
from hypothesis import strategies as st

from factkit import prompts
from factkit.backends import Endpoint
from factkit.llm import LLM, Limits, Reply
from factkit.verify.exact import WorldReader
from factkit.verify.strategies import (
    HELPFULNESS,
    RULES,
    STRUCTURE,
    Annotated,
    Annotation,
    Steps,
    annotate,
    annotation,
    normalised,
    shares,
    stated,
    tag,
)
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


@pytest.mark.parametrize(
    "text",
    [
        reply(),
        f"```json\n{reply()}\n```",
        f"Here is what it did.\n\n{reply()}\n",
        f"<think>{{maybe}} 3 or 4? {reply(helpfulness=3)}</think>{reply()}",
    ],
)
def test_an_annotation_is_read_with_what_may_stand_around_it(text):
    assert annotation(Reply(text)) == READ


def test_each_strategy_is_listed_once_in_the_order_of_first_use():
    assert READ.strategies == ["recall", "doubt", "self_verification"]


@pytest.mark.parametrize("steps", [[], [{"step": "", "strategies": []}]])
def test_reasoning_without_strategies_has_an_annotation_without_any(steps):
    found = annotation(Reply(reply(steps, 0)))
    assert found.strategies == [] and found.helpfulness == 0


@pytest.mark.parametrize("helpfulness", HELPFULNESS)
def test_every_score_of_the_scale_is_read(helpfulness):
    assert annotation(Reply(reply([], helpfulness))).helpfulness == helpfulness


def test_a_line_end_inside_a_string_is_part_of_it():
    text = reply([{"step": "a@b", "strategies": []}], 1).replace("@", "\n")
    assert annotation(Reply(text)).steps == (("a\nb", ()),)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("Self-Verification", "self_verification"),
        ("self  verification", "self_verification"),
        ("SELF_VERIFICATION", "self_verification"),
        (" self‑verification. ", "self_verification"),
        ("restating the question", "restating_the_question"),
        ("step 2: recall", "step_2_recall"),
        ("Résumé", "résumé"),
        ("…", ""),
        ("", ""),
    ],
)
def test_names_that_differ_in_case_space_and_hyphens_are_one(name, plain):
    assert normalised(name) == plain


@given(st.text())
def test_a_normalised_name_stays_as_it_is(name):
    assert normalised(normalised(name)) == normalised(name)


def test_the_template_names_the_strategies_of_the_rules_in_their_order():
    names = prompts.template("annotate_strategies").partition("three words: ")[2]
    listed = names.partition(".\n")[0].split(", ")
    assert [normalised(name) for name in listed] == list(RULES)


def test_the_examples_of_the_template_are_replies_that_can_be_read():
    lines = prompts.template("annotate_strategies").splitlines()
    found = [annotation(Reply(line)) for line in lines if line.startswith("{")]
    assert [of.helpfulness for of in found] == [8, 0]
    assert set(found[0].strategies) <= set(RULES)


class FakeLLM:
    """Answers by a rule on the prompt; keeps the requests."""

    def __init__(self, says):
        self.says = says
        self.requests = []

    def run(self, requests, progress=""):
        self.requests += requests
        return [self.says(r.messages[0]["content"]) for r in requests]


def test_a_reasoning_takes_one_request_with_question_reasoning_and_answer():
    llm = FakeLLM(lambda _: Reply(reply()))
    long = "r" * 50_000
    found = annotate(llm, [("Q?", long, "A."), ('"}', "<think>", "\n{reasoning}")])
    assert found == [Annotated(READ, reply())] * 2
    prompts_seen = [r.messages[0]["content"].splitlines()[-3:] for r in llm.requests]
    values = [[json.loads(line.partition(": ")[2]) for line in p] for p in prompts_seen]
    assert values == [["Q?", long, "A."], ['"}', "<think>", "\n{reasoning}"]]
    (request, _) = llm.requests
    assert request.template.startswith("annotate_strategies@")
    assert request.schema == Steps.model_json_schema()
    assert request.sampling.temperature == 0


@pytest.mark.parametrize("said", [Reply(None, "timeout"), Reply("fine"), Reply("")])
def test_a_failed_annotation_has_no_value_and_keeps_why(said):
    (found,) = annotate(FakeLLM(lambda _: said), [("Q?", "R.", "A.")])
    assert found == Annotated(None, said.text or said.error)


def test_with_a_tenth_of_the_calls_failing_the_others_are_annotated():
    def behave(body, attempt):
        line = prompt_of(body).splitlines()[-2]
        number = int(json.loads(line.partition(": ")[2]))
        return refuse(400) if number % 10 == 7 else answer(reply([], number % 10))

    with serve(behave) as server:
        limits = Limits(attempts=1, timeout_s=5)
        llm = LLM(Endpoint(server.url, "annotator"), None, limits)
        found = annotate(llm, [("Q?", str(i), "A.") for i in range(40)])
    expected = [None if i % 10 == 7 else i % 10 for i in range(40)]
    assert [of.value and of.value.helpfulness for of in found] == expected
    assert all("400" in of.raw for of in found[7::10])


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


def test_there_are_sentences_for_every_rule():
    assert list(TOLD) == list(RULES)


@pytest.mark.parametrize(
    ("name", "sentence"), [(n, s) for n, told in TOLD.items() for s in told]
)
def test_a_strategy_is_told_by_its_wording_and_the_answer_plays_no_part(name, sentence):
    assert name in tag(sentence, "")
    assert name in tag(f"A plain one.\n{sentence}", "")
    assert not set(tag("", sentence)) & set(RULES)


# strategies whose wording sentences on others have, too: "I'll start by recalling"
OFTEN = {"planning", "recall", "self_verification", "ordering", "doubt"}


@pytest.mark.parametrize("name", [name for name in RULES if name not in OFTEN])
def test_a_strategy_is_not_told_by_the_wording_of_others(name):
    others = [s for other, told in TOLD.items() if other != name for s in told]
    assert [s for s in others if name in tag(s, "")] == []


@pytest.mark.parametrize("text", PLAIN)
def test_plain_statements_use_no_strategy(text):
    assert tag(text, text) == []


@pytest.mark.parametrize("hedge", world.HEDGES)
def test_the_hedges_of_the_fact_world_are_doubt(hedge):
    assert tag(f"{hedge.capitalize()} Ala Haskwood was a poet.", "")[0] == "doubt"


# Structure

ONE, TWO, THREE = "Ann was a poet.", "Ann came from Lima.", "Ann won a prize."


@pytest.mark.parametrize(
    ("reasoning", "said", "shown"),
    [
        ([ONE, TWO], [ONE, TWO], []),
        ([ONE, TWO], [TWO, ONE], []),
        ([ONE, TWO], [ONE], ["left_out"]),
        ([ONE], [ONE, THREE], ["added"]),
        ([ONE, TWO], [ONE, THREE], ["left_out", "added"]),
        ([ONE, TWO, ONE], [ONE, TWO], ["repeated"]),
        ([ONE], [ONE, ONE], ["repeated"]),
        ([ONE, ONE], [TWO, TWO], ["left_out", "added", "repeated"]),
        ([ONE], [], ["left_out"]),
        ([], [ONE], ["added"]),
        ([], [], []),
    ],
)
def test_structure_is_told_by_the_sentences_of_both_parts(reasoning, said, shown):
    assert tag(" ".join(reasoning), " ".join(said)) == shown


def test_hedges_case_and_punctuation_make_no_other_sentence():
    assert tag("Perhaps Ann was a poet.", "ANN was a poet!") == ["doubt"]
    assert tag("Ann was a poet.", "- Ann was a poet") == []


def test_a_doubted_sentence_that_the_answer_lacks_is_left_out():
    assert tag(f"{ONE} Perhaps {TWO}", ONE) == ["doubt", "left_out"]


def test_names_come_in_the_order_of_the_rules_and_then_of_structure():
    everything = " ".join(s for told in TOLD.values() for s in told)
    found = tag(f"{everything} {everything}", ONE)
    assert found == [*RULES, *STRUCTURE]


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


def test_in_the_fact_world_what_states_no_fact_goes_by_its_words(made):
    key = stated(WorldReader(made), "")
    assert tag("I don't know.", "I don't know", key) == ["doubt"]
    assert tag("Who?", "Where?", key) == ["left_out", "added"]


# Shares


def test_shares_are_those_of_responses_the_most_frequent_first():
    tags = [["b", "a"], ["b", "b"], {"c", "b"}, []]
    assert list(shares(tags).items()) == [("b", 0.75), ("a", 0.25), ("c", 0.25)]
    assert list(shares(tags, top=2)) == ["b", "a"]


def test_a_failed_annotation_is_left_out_of_the_shares():
    assert shares([["a"], None, []]) == {"a": 0.5}


@pytest.mark.parametrize("tags", [[], [None], [[]]])
def test_without_strategies_there_are_no_shares(tags):
    assert shares(tags) == {}
