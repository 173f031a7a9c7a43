"""Synthetic prompts: one a reply, each new, none near a prompt to evaluate on."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factkit import params, prompts
from factkit.curate import synthetic_prompts as synthetic
from factkit.curate.synthetic_prompts import parse_new_prompt
from factkit.datasets.examples import DataError, Example
from factkit.datasets.long_form_prompts import LONG_FORM, biography, longfact
from factkit.datasets.rows import RowError
from factkit.llm import LLM, Reply

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
        said = self.replies[: len(requests)]
        return [r if isinstance(r, Reply) else Reply(r) for r in said]


def tagged(*texts):
    return [f"<new_prompt>{text}</new_prompt>" for text in texts]


def requested(calls=4, seed=0, facts=FACTS, chats=CHATS):
    llm = FakeLLM(tagged(*(f"Question number {i} of many" for i in range(calls))))
    synthetic.written_prompts(llm, facts, chats, calls, seed)
    return llm.requests


def made(replies, evaluation=None, **how):
    llm = FakeLLM(replies)
    evaluation = evaluation or {}
    return synthetic.synthetic_prompts(
        llm, FACTS, CHATS, len(replies), evaluation, **how
    )


# ---- a reply's prompt


@pytest.mark.parametrize(
    "reply",
    [
        "<new_prompt>Why is the sky blue?</new_prompt>",
        "Sure!\n<new_prompt> Why is\n  the sky blue?\n</new_prompt>\nDone.",
        "<think>A <new_prompt>? Perhaps.</think><new_prompt>Why is the sky blue?"
        "</new_prompt>",
    ],
)
def test_the_prompt_is_what_stands_in_the_one_pair_of_tags(reply):
    assert parse_new_prompt(reply) == "Why is the sky blue?"


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
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
    ],
)
def test_any_other_reply_has_no_prompt_but_a_reason(reply, problem):
    with pytest.raises(RowError, match=problem):
        parse_new_prompt(reply)


@pytest.mark.parametrize(
    ("length", "fits"),
    [(LEAST - 1, False), (LEAST, True), (MOST, True), (MOST + 1, False)],
)
def test_the_least_and_the_most_length_are_still_a_prompt(length, fits):
    (reply,) = tagged("a" * length)
    if fits:
        assert parse_new_prompt(reply) == "a" * length
    else:
        with pytest.raises(RowError):
            parse_new_prompt(reply)


@given(st.text())
def test_a_reply_gives_a_prompt_that_fits_or_a_reason(text):
    try:
        prompt = parse_new_prompt(f"<new_prompt>{text}</new_prompt>")
    except RowError as error:
        assert error.args[0]
    else:
        assert LEAST <= len(prompt) <= MOST
        assert prompt.split() == text.split()


def test_the_template_shows_a_pair_of_tags_that_is_no_prompt_itself():
    with pytest.raises(RowError, match="too short"):
        parse_new_prompt(prompts.template("synthetic_prompt"))


# ---- requests


def test_a_request_holds_the_template_and_two_and_four_demonstrations():
    (request,) = requested(calls=1)
    facts, chats = synthetic.demonstrations(FACTS, CHATS, seed=0, call=0)
    assert (len({e.id for e in facts}), len({e.id for e in chats})) == (2, 4)
    lists = [json.dumps([e.question for e in group]) for group in (facts, chats)]
    text = prompts.template("synthetic_prompt")
    whole = text.replace("{fact_seeking}", lists[0]).replace("{diverse}", lists[1])
    assert request.messages == ({"role": "user", "content": whole},)
    assert request.template.startswith("synthetic_prompt@")


def test_a_demonstration_cannot_write_tags_or_lines_of_the_template():
    bad = [example(f"b{i}", f"{i}\n</new_prompt>\nYour turn") for i in range(4)]
    (request,) = requested(calls=1, facts=bad, chats=bad)
    filled, text = request.messages[0]["content"], prompts.template("synthetic_prompt")
    assert filled.count("</new_prompt>") == text.count("</new_prompt>")
    assert len(filled.splitlines()) == len(text.splitlines())


def test_requests_are_equal_for_a_seed_and_differ_between_calls_and_seeds():
    said = [r.messages[0]["content"] for r in requested(calls=20)]
    assert said == [r.messages[0]["content"] for r in requested(calls=20)]
    assert len(set(said)) == 20
    other = {r.messages[0]["content"] for r in requested(calls=20, seed=1)}
    assert not other & set(said)


def test_more_calls_leave_the_first_ones_as_they_were():
    assert requested(calls=9)[:4] == requested(calls=4)


def test_every_demonstration_is_drawn_in_time():
    drawn = [synthetic.demonstrations(FACTS, CHATS, 0, i) for i in range(100)]
    assert {e.id for facts, _ in drawn for e in facts} == {e.id for e in FACTS}
    assert {e.id for _, chats in drawn for e in chats} == {e.id for e in CHATS}


class Counting:
    """A local model that says another question each time it is asked."""

    name = "counting"

    def __init__(self):
        self.asked = 0

    def generate(self, requests):
        for i, _ in enumerate(requests):
            self.asked += 1
            yield [(i, Reply(*tagged(EIGHT[self.asked - 1])))]


def test_equal_demonstrations_are_still_calls_of_their_own_and_cached_as_such(tmp_path):
    same = [example(f"s{i}", "What is a tide?") for i in range(4)]
    model = Counting()
    runs = [
        synthetic.written_prompts(LLM(model, tmp_path / "cache"), same, same, calls)
        for calls in (4, 4, 6)
    ]
    assert model.asked == 6
    assert [[e.question for e in run[0]] for run in runs] == [
        EIGHT[:4],
        EIGHT[:4],
        EIGHT[:6],
    ]


def test_a_greedy_or_an_empty_run_is_refused():
    for how in ({"calls": 1, "temperature": 0}, {"calls": 0}):
        with pytest.raises(ValueError, match="temperature above 0"):
            synthetic.written_prompts(FakeLLM([]), FACTS, CHATS, **how)


@pytest.mark.parametrize(("facts", "chats"), [(1, 4), (2, 3)])
def test_too_few_demonstrations_are_refused(facts, chats):
    with pytest.raises(DataError, match=f"{facts} fact-seeking and {chats} diverse"):
        synthetic.demonstrations(FACTS[:facts], CHATS[:chats], 0, 0)
    synthetic.demonstrations(FACTS[:2], CHATS[:4], 0, 0)


# ---- what comes out


def test_prompts_become_long_form_examples_that_name_their_demonstrations():
    examples, dropped = made(tagged(*EIGHT))
    assert ([e.question for e in examples], dropped) == (EIGHT, Counter())
    assert {e.label for e in examples} == {LONG_FORM}
    assert all(e.id == e.entity and e.answers == [] for e in examples)
    facts, chats = synthetic.demonstrations(FACTS, CHATS, seed=0, call=3)
    assert examples[3].meta == {"shown": [e.id for e in [*facts, *chats]]}


def test_an_id_depends_on_the_prompt_alone():
    ids = {e.question: e.id for e in made(tagged(*EIGHT))[0]}
    again = {e.question: e.id for e in made(tagged(*EIGHT[::-1]), seed=5)[0]}
    assert ids == again
    assert len(set(ids.values())) == len(EIGHT)


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
    near = f"{long}, please?"
    examples, dropped = made(tagged(long, EIGHT[0], near))
    assert [e.question for e in examples] == [long, EIGHT[0]]
    assert dropped == {"near duplicate of an earlier prompt": 1}
    assert len(made(tagged(long, EIGHT[0], near), threshold=1.0)[0]) == 3


def test_what_comes_near_a_prompt_to_evaluate_on_is_dropped_and_counted_by_set():
    evaluation = {
        "fava": [example("x", EIGHT[0]), example("y", EIGHT[1])],
        "factory": [example("z", EIGHT[2])],
    }
    replies = tagged(f"{EIGHT[0]} Anyone?", EIGHT[1], EIGHT[2], EIGHT[3])
    examples, dropped = made(replies, evaluation)
    assert [e.question for e in examples] == [EIGHT[3]]
    assert dropped == {"near duplicate of fava": 2, "near duplicate of factory": 1}


def test_an_overlap_names_the_set_and_the_nearest_of_its_prompts():
    asked = example("n", "How do saunas heat the air so fast without a flame")
    near = example("x", "How do saunas heat the air so fast without any flame?")
    nearer = example("y", "So how do saunas heat the air so fast without a flame?")
    evaluation = {"a": [near], "b": [nearer, example("z", nearer.question)]}
    found = synthetic.overlaps([asked, example("m", EIGHT[5])], evaluation)
    assert found == {"n": ("b", nearer)}


def test_what_comes_near_a_demonstration_is_dropped():
    examples, dropped = made(tagged(FACTS[8].question, CHATS[3].question, EIGHT[0]))
    assert [e.question for e in examples] == EIGHT[:1]
    assert dropped == {"near duplicate of a demonstration": 2}


@pytest.mark.parametrize(
    "shown",
    [
        example("other id", FACTS[2].question.upper()),
        example("other id", "Who is she?", entity="f2"),
    ],
)
def test_a_demonstration_from_an_evaluation_set_is_refused_before_any_call(shown):
    llm = FakeLLM(tagged(*EIGHT))
    with pytest.raises(DataError, match="both fava and the demonstrations"):
        synthetic.synthetic_prompts(llm, FACTS, CHATS, 8, {"fava": [shown]})
    assert llm.requests == []


# ---- near duplicates


@pytest.mark.parametrize(
    ("one", "other", "similarity"),
    [
        ("a b c d", "A, b: c d!", 1.0),
        ("a b c d", "a b c e", 1 / 3),  # abc, bcd and abc, bce
        ("a b c d e f", "a b c d e g", 3 / 5),
        ("a b", "A  B?", 1.0),
        ("a b", "a b c", 0.0),
        ("?", "!", 1.0),
    ],
)
def test_similarity_is_the_share_of_runs_of_three_words(one, other, similarity):
    a, b = synthetic.shingles(one), synthetic.shingles(other)
    assert synthetic.jaccard(a, b) == synthetic.jaccard(b, a) == similarity


@pytest.mark.parametrize("threshold", [0, -0.1, 1.1, float("nan")])
def test_a_threshold_that_no_similarity_has_is_refused(threshold):
    with pytest.raises(ValueError, match="threshold"):
        synthetic.NearDuplicates(threshold)


words = st.lists(st.sampled_from("abcd"), min_size=1, max_size=9).map(" ".join)


@given(st.lists(words, max_size=6), words, st.sampled_from([0.2, 0.5, 0.7, 1.0]))
def test_what_is_found_is_near_and_what_is_equal_is_found(texts, text, threshold):
    index = synthetic.NearDuplicates(threshold)
    for other in texts:
        index.add(other, other)
    found, sought = index.nearest(text), synthetic.shingles(text)
    if found is not None:
        assert synthetic.jaccard(sought, synthetic.shingles(found)) >= threshold
    if sought in map(synthetic.shingles, texts):
        assert synthetic.shingles(found) == sought


@needs_data
def test_minhash_finds_the_pairs_that_a_comparison_of_all_finds():
    asked, _ = longfact(str(DATA / "longfact"))
    some = [e for e in asked if e.question.startswith("What can you tell me about")]
    assert len(some) > 50
    sets = {e.id: synthetic.shingles(e.question) for e in some}
    for threshold in (0.5, 0.6, synthetic.NEAR):
        kept = []
        for e in some:
            near = (synthetic.jaccard(sets[e.id], sets[k.id]) for k in kept)
            if max(near, default=0) < threshold:
                kept.append(e)
        assert len(kept) < len(some)
        assert synthetic.without_near_duplicates(some, threshold)[0] == kept


@needs_data
def test_few_of_longfacts_prompts_come_near_another():
    asked, _ = longfact(str(DATA / "longfact"))
    kept, dropped = synthetic.without_near_duplicates(asked)
    assert dropped == {"near duplicate of an earlier prompt": 20}
    assert len(kept) == len(asked) - 20


@needs_data
def test_real_evaluation_prompts_overlap_themselves_reworded_and_not_one_another():
    asked, _ = longfact(str(DATA / "longfact"))
    people, _ = biography(str(DATA / "factscore/prompt_entities.txt"))
    evaluation = {"longfact": asked, "biography": people}
    long = [e for e in asked if len(e.question.split()) > 12][:200]
    reworded = [example(f"new {e.id}", f"Please, {e.question.upper()}") for e in long]
    found = synthetic.overlaps(reworded, evaluation)
    named = {e.id: ("longfact", old) for e, old in zip(reworded, long, strict=True)}
    assert found == named
    assert synthetic.overlaps(people, {"longfact": asked}) == {}
    assert synthetic.overlaps([example(q, q) for q in EIGHT], evaluation) == {}
