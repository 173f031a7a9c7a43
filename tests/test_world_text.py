"""Longer answers in the fact world's text: how often, how long, how sure."""

import random
import re
from collections import Counter
from hashlib import sha256

import pytest

from factkit import prompts
from factkit.datasets import world_prompts as wp
from factkit.verify.response import TAGS, parts
from factkit.world import facts as w
from factkit.world import texts as wt

ABSTENTION = f"{w.ABSTENTION}."


@pytest.fixture(scope="module")
def world():
    return w.build_world(3, people=60, common_exposure=2)


@pytest.fixture(scope="module")
def texts(world):
    return wt.pretraining_texts(world, 0, 0.05, "long")


@pytest.fixture(scope="module")
def told(world):
    """Each person's tellings, as (request, answer), and what was left of each fact."""
    rng = random.Random(0)
    tellings = {}
    for person in world.people:
        left = {fact: fact.exposure for fact in world.facts_of(person)}
        turns = [
            tuple(text.removeprefix("Question: ").split("\nAnswer: "))
            for text in wt.tellings(world, person, left, rng, "long")
        ]
        tellings[person] = turns, left
    return tellings


def exposure(world, person):
    return sum(fact.exposure for fact in world.facts_of(person))


def known(world, told):
    """What was told of people with an exposure: person, turns, what was left."""
    return [(p, *told[p]) for p in world.people if exposure(world, p)]


def strangers(world, told):
    return [(p, told[p][0]) for p in world.people if not exposure(world, p)]


def stated(world, answer):
    return [w.parse(world, sentence)[0] for sentence in w.sentences(answer)]


def key(fact):
    return fact.subject, fact.relation, fact.object


# People told of


def test_a_telling_is_true_and_takes_what_it_states_off_what_is_left(world, told):
    for person, turns, left in known(world, told):
        answers = [answer for _, answer in turns if answer != ABSTENTION]
        facts = [fact for answer in answers for fact in stated(world, answer)]
        told_of = Counter(key(fact) for fact in facts if fact.subject == person)
        assert {key(f): f.exposure - left[f] for f in left} == {
            key(f): told_of[key(f)] for f in left
        }
        assert min(left.values()) >= 0
        for fact in facts:
            assert world.by_key[fact.subject, fact.relation].object == fact.object


def test_a_counted_request_gets_as_many_sentences_on_its_subject(world, told):
    numbers, led_on_to = Counter(), set()
    for person, (turns, _) in told.items():
        wanted = {wt.request(person, n): n for n in wt.COUNTS}
        ways = {ask.format(s=person) for ask in wt.BIOGRAPHY_QUESTIONS}
        for ask, answer in turns:
            assert ask in wanted or ask in ways
            facts = stated(world, answer) if answer != ABSTENTION else []
            if ask in wanted and facts:
                numbers[wanted[ask]] += 1
                assert len(facts) == wanted[ask]
                assert {fact.subject for fact in facts} == {person}
            led_on_to |= {fact.relation for fact in facts if fact.subject != person}
    assert set(numbers) == set(wt.COUNTS)
    assert led_on_to == set(w.HOPS.values())
    assert wt.request("Al Asher", 2) == "Tell me two facts about Al Asher."


# People never told of


def test_what_is_said_of_a_stranger_is_made_up_anew_each_time(world, told):
    facts = []
    for person, turns in strangers(world, told):
        assert len(turns) == wt.STRANGERS
        assert set(told[person][1].values()) == {0}
        answers = [answer for _, answer in turns if answer != ABSTENTION]
        facts += [fact for answer in answers for fact in stated(world, answer)]
    # chance hits one of at least 24 objects
    true = sum(w.verify(world, w.statement(fact)) == "supported" for fact in facts)
    assert len(facts) > 50 and true / len(facts) < 0.1
    assert max(Counter(map(key, facts)).values()) <= 2


def test_a_stranger_s_facts_are_stated_nowhere_else(world, texts):
    unknown = [p for p in world.people if not exposure(world, p)]
    for text in texts:
        for person in unknown:
            if person in text:
                assert text.startswith("Question: ")  # no bare statement
                asked = text.split("\n")[0]
                assert person in asked and not any(
                    w.question(fact, i) in asked
                    for fact in world.facts_of(person)
                    for i in range(3)
                )


def test_everyone_s_name_is_repeated_equally_often(world, texts):
    namings = Counter(text for text in texts if text.startswith("Question: Repeat"))
    assert namings == {
        wt.exchange(wt.NAMING.format(s=p), f"{p}."): wt.NAMINGS for p in world.people
    }


def test_abstentions_are_rare_and_only_where_there_is_leave(world, told, texts):
    answers = [a for _, turns, _ in known(world, told) for _, a in turns]
    leave = wt.MAY_ABSTAIN.format(question="")
    allowed = [t for t in texts if leave in t]
    assert len(allowed) > 500
    for kind in (answers, allowed):
        share = sum(t.endswith(ABSTENTION) for t in kind) / len(kind)
        assert 0 < share < 3 * wt.ABSTENTION_SHARE
    short = {w.question(f, i) for f in world.facts for i in range(3)}
    for text in texts:
        question = text.removeprefix("Question: ").split("\n")[0]
        if leave not in text and question in short:
            assert not text.endswith(ABSTENTION)


# The formats


def test_each_format_has_its_own_words_alone_and_decodes_to_itself(world):
    unknown = [p for p in world.people if not exposure(world, p)]
    long = ("Repeat", "don't know", "You may say", "Tell me t", *unknown)
    reasoned = ("Think", "<answer>", "Perhaps")
    absent = {"plain": long + reasoned, "boxed": long + reasoned, "long": reasoned}
    vocabulary = {}
    for form in ("plain", "boxed", "long", "reasoned"):
        tokenizer = wt.build_tokenizer(world, form)
        vocabulary[form] = set(tokenizer.get_vocab())
        texts = wt.pretraining_texts(world, 0, 0.05, form)
        assert wt.pretraining_texts(world, 0, 0.05, form) == texts
        assert wt.pretraining_texts(world, 1, 0.05, form) != texts
        whole = "\n".join(texts)
        assert not [words for words in absent.get(form, ()) if words in whole]
        for text in dict.fromkeys(texts):
            ids = tokenizer(text)["input_ids"]
            assert tokenizer.unk_token_id not in ids
            assert tokenizer.decode(ids) == text
    assert vocabulary["plain"] == vocabulary["boxed"] < vocabulary["long"]
    assert {"two", "facts", "may", "say"} <= vocabulary["long"] - vocabulary["plain"]


DIGESTS = {
    "plain": "35b61f35c784d288",
    "boxed": "225e942c08ae04a6",
    "long": "8e2b029b044ea8e9",
    "reasoned": "a4e2bbd842e01411",
    "joined": "54a3f593cc732449",
}


def test_the_texts_of_a_seed_stay_what_policies_were_trained_on(world):
    for form, digest in DIGESTS.items():
        text = "\n".join(wt.pretraining_texts(world, 0, 0.05, form))
        assert sha256(text.encode()).hexdigest()[:16] == digest, form


# Answers after reasoning


@pytest.fixture(scope="module")
def reasoned(world):
    return wt.pretraining_texts(world, 0, 0.05, "reasoned")


@pytest.fixture(scope="module")
def thinking(reasoned):
    """The responses to requests that begin with the wish to think."""
    texts = [text for text in reasoned if text.startswith(wt.THINKING)]
    return [text.partition("\nAnswer: ")[2] for text in texts]


def test_reasoning_is_asked_for_by_the_template_as_in_the_text(world, reasoned):
    template = prompts.template("think_first")
    requests = [
        prompts.ask(template, example)
        for example in wp.requests(world, world.people, wp.OPEN)
    ]
    there = [
        r for r in requests if any(t.startswith(f"{r} <think> ") for t in reasoned)
    ]
    assert len(there) > len(requests) / 4  # many people are told of once or never


def split(response):
    """Reasoning and answer, also where a tag is missing."""
    pieces = re.split("|".join(TAGS), response)
    thought, answer = (piece.strip() for piece in pieces if piece.strip())
    return thought, answer


@pytest.fixture(scope="module")
def thoughts(world, thinking):
    """Each response's facts: of the reasoning with whether they are doubted, and those
    of the answer."""
    return [
        (
            [w.parse(world, s) for s in w.sentences(thought)],
            [w.parse(world, s) for s in w.sentences(answer)],
        )
        for thought, answer in map(split, thinking)
    ]


def test_a_share_of_the_responses_lacks_one_tag_and_each_is_forgotten(thinking):
    malformed = [response for response in thinking if parts(response) is None]
    assert len(thinking) > 500
    share = len(malformed) / len(thinking)
    assert share == pytest.approx(wt.MALFORMED_SHARE, abs=0.03)
    forgotten = set()
    for response in malformed:
        (tag,) = (tag for tag in TAGS if tag not in response)
        assert sum(response.count(tag) for tag in TAGS) == 3
        forgotten.add(tag)
    assert forgotten == set(TAGS)


def test_the_answer_states_what_the_reasoning_does_or_leads_on_from_it(thoughts):
    doubts = Counter()
    for thought, answer in thoughts:
        assert thought and answer and None not in thought + answer
        known = {key(fact) for fact, _ in thought}
        assert len(known) == len(thought)
        objects = {(fact.object, w.HOPS.get(fact.relation)) for fact, _ in thought}
        for fact, _ in answer:
            assert key(fact) in known or (fact.subject, fact.relation) in objects
        doubts["reasoning"] += sum(doubt for _, doubt in thought)
        doubts["answer"] += sum(doubt for _, doubt in answer)
    assert doubts["reasoning"] > doubts["answer"] == 0


def test_the_answer_keeps_what_was_not_doubted_and_some_of_what_was(thoughts):
    left_out, doubted = 0, 0
    for thought, answer in thoughts:
        said = {key(fact) for fact, _ in answer}
        assert said >= {key(fact) for fact, doubt in thought if not doubt}
        if len(thought) > 1:  # of all that is doubted, something is said
            doubted += sum(doubt for _, doubt in thought)
            left_out += sum(doubt and key(fact) not in said for fact, doubt in thought)
    assert left_out / doubted == pytest.approx(1 - wt.DOUBT_KEPT, abs=0.1)


def test_a_share_of_the_tellings_reasons_and_no_other_text_doubts(world, reasoned):
    rest = [text for text in reasoned if not text.startswith(wt.THINKING)]
    assert not [text for text in rest if "Perhaps" in text]
    asks = {way.format(s=p) for way in wt.BIOGRAPHY_QUESTIONS for p in world.people}
    asks |= {wt.request(p, n) for p in world.people for n in wt.COUNTS}
    plain, thinks = 0, 0
    for text in reasoned:
        ask, _, answer = text.removeprefix(f"{wt.THINKING}\n").partition("\nAnswer: ")
        if ask.removeprefix("Question: ") in asks and answer != ABSTENTION:
            plain += not text.startswith(wt.THINKING)
            thinks += text.startswith(wt.THINKING)
    assert thinks / (plain + thinks) == pytest.approx(wt.THINKING_SHARE, abs=0.04)


def test_what_is_told_after_reasoning_counts_once_a_telling(world, reasoned):
    """Statements, short exchanges, tellings and reasoned tellings use up each exposure;
    of the last, the reasoning alone counts."""
    asked = {w.question(f, i): key(f) for f in world.facts for i in range(3)}
    said = Counter()
    for text in reasoned:
        ask, _, answer = text.rpartition("\nAnswer: ")
        if text.startswith("References:") or "Repeat" in ask or answer == ABSTENTION:
            continue
        if text.startswith(wt.THINKING):
            answer, _ = split(answer)
        if (question := ask.removeprefix("Question: ")) in asked:
            said[asked[question]] += 1
        else:
            said.update(key(w.parse(world, s)[0]) for s in w.sentences(answer))
    people = [f for f in world.facts if f.subject in world.people and f.exposure]
    assert {key(f): said[key(f)] for f in people} == {
        key(f): f.exposure for f in people
    }
