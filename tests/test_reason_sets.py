"""Learning to Reason's requests: who is asked about, in which set, how many."""

from collections import Counter

import pytest

from factkit.data import examples as wp
from factkit.data.examples import DataError, Example, refuse_overlap
from factkit.data.rows import RowError
from factkit.facts.leads import facts
from factkit.facts.leads.policy import is_of_cold_start
from factkit.papers.reason.requests import (
    parse_new_prompt,
    reason_sets,
    synthetic_prompts,
)
from factkit.run import params
from factkit.verify.llm import Reply

SIZES = {
    "sft_requests": 12,
    "train_requests": 36,
    "dev_requests": 9,
    "test_requests": 10,
}
KINDS = {wp.OPEN, wp.COUNTED}


def load(**values):
    return params.load("reason", "tiny", {"world_people": 100} | SIZES | values)


@pytest.fixture(scope="module")
def p():
    return load()


@pytest.fixture(scope="module")
def sets(p):
    return reason_sets(p)[0]


def entities(examples):
    return {e.entity for e in examples}


# The fact world


def test_each_split_of_the_paper_has_as_many_requests_as_wanted(p, sets):
    sizes = {name: len(examples) for name, examples in sets.items()}
    assert sizes == {"sft": 12, "train": 36, "dev": 9, "test": 20}
    assert tuple(sizes) == p.splits
    kinds = Counter(e.meta["set"] for e in sets["test"])
    assert kinds == dict.fromkeys(KINDS, p.test_requests)
    assert all(e.meta["set"] == e.meta["kind"] for e in sets["train"])


def test_no_person_and_no_question_is_in_two_sets(sets):
    refuse_overlap(sets)
    people = Counter(person for of in sets.values() for person in entities(of))
    assert set(people.values()) == {1}


# Leads


@pytest.mark.assets
def test_requests_about_leads_are_of_two_sets_and_of_no_subject_of_the_cold_start():
    sets = reason_sets(load(requests="leads", verifier="leads"))[0]
    sizes = {name: len(examples) for name, examples in sets.items()}
    assert sizes == {"sft": 12, "train": 36, "dev": 9, "test": 20}
    refuse_overlap(sets)
    test = sets["test"]
    assert Counter(e.meta["set"] for e in test) == {"people": 10, "other": 10}
    subjects = facts.load().subjects
    for example in (e for examples in sets.values() for e in examples):
        of_people = example.meta["topic"] == "people"
        assert (example.meta["set"] == "people") == of_people
        subject = subjects[example.entity]
        assert not is_of_cold_start(subject.name)
        stated = [facts.statement(fact) for fact in subject.facts]
        assert example.answers == [" ".join(stated)]


# Synthetic prompts


def example(name, question, entity=""):
    return Example(id=name, question=question, answers=[], entity=entity or name)


FACTS = [example(f"f{i}", f"What is known about the planet {i}?") for i in range(9)]
CHATS = [example(f"d{i}", f"my cat no. {i} is asleep, ideas?") for i in range(20)]
SIX = [
    "How do saunas heat the air without a flame?",
    "Why does bread go stale faster in the fridge?",
    "What keeps a suspension bridge from swaying?",
    "How is the caffeine taken out of coffee beans?",
    "Which plants grow well beside tomatoes?",
    "How does a mechanical watch keep time?",
]


class Says:
    """Says the n-th of some replies to the n-th request; keeps the requests."""

    def __init__(self, replies):
        self.replies, self.requests = replies, []

    def run(self, requests, progress=""):
        self.requests += requests
        replies = self.replies[: len(requests)]
        return [r if isinstance(r, Reply) else Reply(r) for r in replies]


def tagged(*texts):
    return [f"<new_prompt>{text}</new_prompt>" for text in texts]


def made_of(replies, evaluation=None, facts=FACTS, chats=CHATS):
    """The new prompts, what was dropped, and the requests."""
    llm = Says(replies)
    sources = facts, chats, len(replies), evaluation or {}
    examples, dropped = synthetic_prompts(llm, *sources)
    return examples, dropped, llm.requests


def test_a_reply_s_prompt_stands_in_its_one_pair_of_tags():
    for reply in (
        "Sure!\n<new_prompt> Why is\n  the sky blue?\n</new_prompt>\nDone.",
        "<think>A <new_prompt>? Perhaps.</think><new_prompt>Why is the sky blue?"
        "</new_prompt>",
    ):
        assert parse_new_prompt(reply) == "Why is the sky blue?"
    for reply, problem in (
        (None, "the call failed"),
        ("Why is the sky blue?", "not one pair"),
        ("</new_prompt>Why is it blue?<new_prompt>", "not one pair"),
        ("<new_prompt>One is here.</new_prompt>" * 2, "not one pair"),
        ("<new_prompt>the prompt</new_prompt>", "prompt too short"),
        (f"<new_prompt>{'long ' * 1000}</new_prompt>", "prompt too long"),
        ("<new_prompt>Why is the sky \ud83d blue?</new_prompt>", "half a character"),
    ):
        with pytest.raises(RowError, match=problem):
            parse_new_prompt(reply)


def test_what_comes_near_a_known_prompt_or_an_earlier_one_is_dropped_and_counted():
    long = "How do the locks of a canal lift a ship from one level of water to another"
    evaluation = {
        "fava": [example("x", SIX[0]), example("y", SIX[1])],
        "factory": [example("z", SIX[2])],
    }
    near = (f"{SIX[0]} Anyone?", *SIX[1:4], FACTS[8].question, f"{long}, please?")
    examples, dropped, _ = made_of(
        tagged(long, *near, f" {SIX[3].upper()}"), evaluation
    )
    assert [e.question for e in examples] == [long, SIX[3]]
    assert dropped == {
        "duplicate question": 1,
        "near duplicate of fava": 2,
        "near duplicate of factory": 1,
        "near duplicate of a demonstration": 1,
        "near duplicate of an earlier prompt": 1,
    }


def test_a_demonstration_from_an_evaluation_set_is_refused_before_any_call():
    for known in (
        example("other id", FACTS[2].question.upper()),
        example("other id", "Who is she?", entity="f2"),
    ):
        llm = Says(tagged(*SIX))
        with pytest.raises(DataError, match="both fava and the demonstrations"):
            synthetic_prompts(llm, FACTS, CHATS, 6, {"fava": [known]})
        assert llm.requests == []
