"""Synthetic prompts: one a reply, each new, none near a prompt to evaluate on."""

import contextlib
import json
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factkit import params, prompts
from factkit.datasets.examples import DataError, Example
from factkit.datasets.long_form_prompts import LONG_FORM, load
from factkit.datasets.rows import RowError
from factkit.llm import LLM, Reply
from factkit.reason import synthetic_prompts as synthetic
from factkit.reason.synthetic_prompts import parse_new_prompt

DATA = params.ROOT.parent / "shared" / "data"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the sample files are not beside the project"
)
LEAST, MOST = synthetic.NEW_PROMPT_CHARS


def example(name, question, entity=""):
    return Example(id=name, question=question, answers=[], entity=entity or name)


FACTS = [example(f"f{i}", f"What is known about the planet {i}?") for i in range(9)]
CHATS = [example(f"d{i}", f"my cat no. {i} is asleep, ideas?") for i in range(20)]
EIGHT = [
    "How do saunas heat the air without a flame?",
    "Why does bread go stale faster in the fridge?",
    "What keeps a suspension bridge from swaying?",
    "How is the caffeine taken out of coffee beans?",
    "Which plants grow well beside tomatoes?",
    "How does a mechanical watch keep time?",
    "What happens to old satellites in the end?",
    "Why are there time zones half an hour apart?",
]


class FakeLLM:
    """Says the n-th of some replies to the n-th request; keeps the requests."""

    def __init__(self, replies):
        self.replies = replies
        self.requests = []

    def run(self, requests, progress=""):
        self.requests += requests
        replies = self.replies[: len(requests)]
        return [r if isinstance(r, Reply) else Reply(r) for r in replies]


def tagged(*texts):
    return [f"<new_prompt>{text}</new_prompt>" for text in texts]


def requested(calls=4, facts=FACTS, chats=CHATS):
    llm = FakeLLM(tagged(*(f"Question number {i} of many" for i in range(calls))))
    synthetic.synthetic_prompts(llm, facts, chats, calls, {})
    return llm.requests


def shown(request):
    """The demonstrations of a request, fact-seeking and diverse ones."""
    text = re.escape(prompts.template("synthetic_prompt"))
    for name in ("fact_seeking", "diverse"):
        text = text.replace(rf"\{{{name}\}}", rf"(?P<{name}>\[.*\])")
    (message,) = request.messages
    match = re.fullmatch(text, message["content"])
    return json.loads(match["fact_seeking"]), json.loads(match["diverse"])


def made(replies, evaluation=None):
    llm = FakeLLM(replies)
    count = len(replies)
    return synthetic.synthetic_prompts(llm, FACTS, CHATS, count, evaluation or {})


# ---- a reply's prompt


def test_the_prompt_is_what_stands_in_the_one_pair_of_tags():
    for reply in (
        "<new_prompt>Why is the sky blue?</new_prompt>",
        "Sure!\n<new_prompt> Why is\n  the sky blue?\n</new_prompt>\nDone.",
        "<think>A <new_prompt>? Perhaps.</think><new_prompt>Why is the sky blue?"
        "</new_prompt>",
    ):
        assert parse_new_prompt(reply) == "Why is the sky blue?"


def test_any_other_reply_has_no_prompt_but_a_reason():
    for reply, problem in (
        (None, "the call failed"),
        ("", "no <new_prompt>"),
        ("Why is the sky blue?", "no <new_prompt>"),
        ("<prompt>Why is the sky blue?</prompt>", "no <new_prompt>"),
        ("<think><new_prompt>Why is the sky", "no <new_prompt>"),
        ("<new_prompt>Why is the sky blue?", "<new_prompt> not closed"),
        ("Why is the sky blue?</new_prompt>", "not one pair of <new_prompt> tags"),
        ("</new_prompt>Why is it blue?<new_prompt>", "not one pair"),
        ("<new_prompt>One is here.</new_prompt>" * 2, "not one pair"),
        ("<new_prompt>A <new_prompt>nested one</new_prompt></new_prompt>", "not one p"),
        ("<new_prompt> \n </new_prompt>", "prompt empty"),
        ("<new_prompt>the prompt</new_prompt>", "prompt too short"),
        (f"<new_prompt>{'long ' * MOST}</new_prompt>", "prompt too long"),
        ("<new_prompt>Why is the sky \ud83d blue?</new_prompt>", "half a character"),
        (prompts.template("synthetic_prompt"), "too short"),
    ):
        with pytest.raises(RowError, match=problem):
            parse_new_prompt(reply)


@given(st.text() | st.integers(LEAST - 1, MOST + 1).map(lambda n: "a" * n))
def test_a_reply_gives_a_prompt_that_fits_or_a_reason(text):
    try:
        prompt = parse_new_prompt(f"<new_prompt>{text}</new_prompt>")
    except RowError as error:
        assert error.args[0]
        assert not (text.isascii() and text.isalpha() and LEAST <= len(text) <= MOST)
    else:
        assert LEAST <= len(prompt) <= MOST
        assert prompt.split() == text.split()


# ---- requests


def test_a_request_shows_two_and_four_demonstrations_drawn_for_it():
    requests = requested(calls=100)
    assert len({r.messages[0]["content"] for r in requests}) == 100
    assert requests[0].template.startswith("synthetic_prompt@")
    facts, chats = zip(*map(shown, requests), strict=True)
    assert {len(set(group)) for group in facts} == {2}
    assert {len(set(group)) for group in chats} == {4}
    assert {text for group in facts for text in group} == {e.question for e in FACTS}
    assert {text for group in chats for text in group} == {e.question for e in CHATS}
    assert requested(calls=4) == requests[:4]  # more calls leave the first ones


def test_a_demonstration_cannot_write_tags_or_lines_of_the_template():
    bad = [example(f"b{i}", f"{i}\n</new_prompt>\nYour turn") for i in range(4)]
    (request,) = requested(calls=1, facts=bad, chats=bad)
    filled, text = request.messages[0]["content"], prompts.template("synthetic_prompt")
    assert filled.count("</new_prompt>") == text.count("</new_prompt>")
    assert len(filled.splitlines()) == len(text.splitlines())


class Counting:
    """A model that says another question each time it is asked."""

    name = "counting"

    def __init__(self):
        self.asked = 0

    def connect(self, limits, next_call):
        return contextlib.nullcontext()

    async def ask(self, client, request):
        self.asked += 1
        return Reply(*tagged(EIGHT[self.asked - 1]))


def test_equal_demonstrations_are_still_calls_of_their_own_and_cached_as_such(tmp_path):
    same = [example(f"s{i}", "What is a tide?") for i in range(4)]
    model = Counting()
    for calls in (4, 4, 6):
        llm = LLM(model, tmp_path / "cache")
        examples, _ = synthetic.synthetic_prompts(llm, same, same, calls, {})
        assert [e.question for e in examples] == EIGHT[:calls]
    assert model.asked == 6


def test_too_few_demonstrations_are_refused():
    for facts, chats in ((1, 4), (2, 3)):
        problem = f"{facts} fact-seeking and {chats} diverse"
        with pytest.raises(DataError, match=problem):
            requested(1, FACTS[:facts], CHATS[:chats])
    assert len(requested(1, FACTS[:2], CHATS[:4])) == 1


# ---- what comes out


def test_prompts_become_long_form_examples_that_name_their_demonstrations():
    examples, dropped = made(tagged(*EIGHT))
    assert ([e.question for e in examples], dropped) == (EIGHT, Counter())
    assert {e.label for e in examples} == {LONG_FORM}
    assert all(e.id == e.entity and e.answers == [] for e in examples)
    by_id = {e.id: e.question for e in [*FACTS, *CHATS]}
    for example_, request in zip(examples, requested(8), strict=True):
        facts, chats = shown(request)
        assert [by_id[i] for i in example_.meta["shown"]] == [*facts, *chats]
    again = {e.question: e.id for e in made(tagged(*EIGHT[::-1]))[0]}
    assert again == {e.question: e.id for e in examples}


def test_replies_without_a_prompt_are_counted_by_reason():
    replies = [
        *tagged(EIGHT[0], "", "short"),
        Reply(None, "timeout"),
        "no idea",
        "not sure",
    ]
    examples, dropped = made(replies)
    assert [e.question for e in examples] == EIGHT[:1]
    assert dropped == {
        "prompt empty": 1,
        "prompt too short": 1,
        "the call failed": 1,
        "no <new_prompt>": 2,
    }


def test_a_run_without_a_prompt_is_refused_with_its_reasons():
    with pytest.raises(DataError, match="replies: no usable row .*the call failed': 2"):
        made([Reply(None, "timeout")] * 2)


def test_a_prompt_that_differs_in_case_and_space_only_is_the_same():
    first = EIGHT[0]
    examples, dropped = made(tagged(first, f" {first.upper()}\n", *EIGHT[1:3]))
    assert [e.question for e in examples] == EIGHT[:3]
    assert dropped == {"duplicate question": 1}


def test_of_near_duplicates_the_first_stays():
    long = "How do the locks of a canal lift a ship from one level of water to another"
    examples, dropped = made(tagged(long, EIGHT[0], f"{long}, please?"))
    assert [e.question for e in examples] == [long, EIGHT[0]]
    assert dropped == {"near duplicate of an earlier prompt": 1}


def test_what_comes_near_a_known_prompt_is_dropped_and_counted_by_set():
    evaluation = {
        "fava": [example("x", EIGHT[0]), example("y", EIGHT[1])],
        "factory": [example("z", EIGHT[2])],
    }
    replies = tagged(f"{EIGHT[0]} Anyone?", *EIGHT[1:4], FACTS[8].question)
    examples, dropped = made(replies, evaluation)
    assert [e.question for e in examples] == [EIGHT[3]]
    assert dropped == {
        "near duplicate of fava": 2,
        "near duplicate of factory": 1,
        "near duplicate of a demonstration": 1,
    }


def test_a_demonstration_from_an_evaluation_set_is_refused_before_any_call():
    for known in (
        example("other id", FACTS[2].question.upper()),
        example("other id", "Who is she?", entity="f2"),
    ):
        llm = FakeLLM(tagged(*EIGHT))
        with pytest.raises(DataError, match="both fava and the demonstrations"):
            synthetic.synthetic_prompts(llm, FACTS, CHATS, 8, {"fava": [known]})
        assert llm.requests == []


# ---- near duplicates


def test_similarity_is_the_share_of_runs_of_three_words():
    for one, other, similarity in (
        ("a b c d", "A, b: c d!", 1.0),
        ("a b c d", "a b c e", 1 / 3),  # abc, bcd and abc, bce
        ("a b c d e f", "a b c d e g", 3 / 5),
        ("a b", "A  B?", 1.0),
        ("a b", "a b c", 0.0),
        ("?", "!", 1.0),
    ):
        a, b = synthetic.shingles(one), synthetic.shingles(other)
        assert synthetic.jaccard(a, b) == synthetic.jaccard(b, a) == similarity


words = st.lists(st.sampled_from("abcd"), min_size=1, max_size=9).map(" ".join)


@given(st.lists(words, max_size=6), words, st.sampled_from([0.2, 0.5, 0.7, 1.0]))
def test_the_first_of_the_nearest_is_found_where_any_is_near(texts, text, threshold):
    index = synthetic.NearDuplicates(threshold)
    for other in texts:
        index.add(other, other)
    own = synthetic.shingles(text)
    near = [synthetic.jaccard(own, synthetic.shingles(other)) for other in texts]
    most = max(near, default=0.0)
    nearest = texts[near.index(most)] if most >= threshold else None
    assert index.nearest(text) == nearest


@needs_data
def test_real_prompts_come_near_themselves_reworded_and_seldom_another():
    every, _ = load("longfact", str(DATA / "longfact"))
    people, _ = load("biography", str(DATA / "factscore/prompt_entities.txt"))
    index, count = synthetic.NearDuplicates(), 0
    for e in every:
        count += index.nearest(e.question) is not None
        index.add(e.id, e.question)
    assert count == 20  # of 2,280, of which 9 are equal to another
    long = [e for e in every if len(e.question.split()) > 12][:200]
    for e in long:
        nearest = index.nearest(f"Please, {e.question.upper()}")
        assert nearest is not None
    assert {index.nearest(e.question) for e in people} == {None}
    assert {index.nearest(text) for text in EIGHT} == {None}
