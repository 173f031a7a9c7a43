"""Longer answers in the fact world's text: how often, how long, how sure."""

import random
import re
from collections import Counter
from dataclasses import replace
from hashlib import sha256

import pytest

from factkit.verify.response import TAGS, parts
from factkit.world import facts as w
from factkit.world import texts as wt

ABSTENTION = f"{w.ABSTENTION}."
FORMATS = ("plain", "boxed", "long", "reasoned", "joined")
DIGESTS = {
    "plain": "35b61f35c784d288",
    "boxed": "225e942c08ae04a6",
    "long": "8e2b029b044ea8e9",
    "reasoned": "a4e2bbd842e01411",
    "joined": "54a3f593cc732449",
}


@pytest.fixture(scope="module")
def world():
    """Few people, and few texts on cities and companies."""
    whole = w.build_world(3, people=60)
    facts = (
        fact if fact.subject in whole.people else replace(fact, exposure=2)
        for fact in whole.facts
    )
    return w.World(3, whole.people, tuple(facts))


@pytest.fixture(scope="module")
def texts(world):
    """Format → its texts."""
    return {form: wt.pretraining_texts(world, 0, 0.05, form) for form in FORMATS}


@pytest.fixture(scope="module")
def told(world):
    """Each person's tellings, as (request, answer), and what was left of each fact."""
    rng, tellings = random.Random(0), {}
    for person in world.people:
        left = {fact: fact.exposure for fact in world.facts_of(person)}
        turns = [
            tuple(text.removeprefix("Question: ").split("\nAnswer: "))
            for text in wt.tellings(world, person, left, rng, "long")
        ]
        tellings[person] = turns, left
    return tellings


def is_stranger(world, person):
    return not any(fact.exposure for fact in world.facts_of(person))


def facts_in(world, answer):
    if answer == ABSTENTION:
        return []
    return [w.parse(world, sentence)[0] for sentence in w.sentences(answer)]


def key(fact):
    return fact.subject, fact.relation, fact.object


def test_the_texts_of_a_seed_stay_what_policies_were_trained_on(texts):
    for form, digest in DIGESTS.items():
        whole = "\n".join(texts[form])
        assert sha256(whole.encode()).hexdigest()[:16] == digest, form


def test_each_format_decodes_to_itself_and_only_longer_ones_abstain_or_hedge(
    world, texts
):
    for form in FORMATS:
        tokenizer = wt.build_tokenizer(world, form)
        for text in dict.fromkeys(texts[form]):
            ids = tokenizer(text)["input_ids"]
            assert tokenizer.unk_token_id not in ids
            assert tokenizer.decode(ids) == text
        whole = "\n".join(texts[form])
        assert ("don't know" in whole) == (form in wt.LONG_FORMATS)
        assert ("Perhaps" in whole) == (form in ("reasoned", "joined"))


def test_exposure_is_how_often_the_text_states_a_fact(world, texts):
    """Of reasoned tellings, the reasoning alone counts."""
    asked = {w.question(f, i): key(f) for f in world.facts for i in range(3)}
    counts = Counter()
    for text in texts["reasoned"]:
        ask, _, answer = text.rpartition("\nAnswer: ")
        if text.startswith("References:") or "Repeat" in ask or answer == ABSTENTION:
            continue
        if text.startswith(wt.THINKING):
            answer, _ = split(answer)
        if (question := ask.removeprefix("Question: ")) in asked:
            counts[asked[question]] += 1
        else:
            counts.update(map(key, facts_in(world, answer)))
    people = [f for f in world.facts if f.subject in world.people and f.exposure]
    assert {key(f): counts[key(f)] for f in people} == {
        key(f): f.exposure for f in people
    }


def test_a_telling_is_true_and_takes_what_it_states_off_what_is_left(world, told):
    for person, (turns, left) in told.items():
        if is_stranger(world, person):
            continue
        facts = [fact for _, answer in turns for fact in facts_in(world, answer)]
        stated = Counter(key(fact) for fact in facts)
        assert {key(f): f.exposure - left[f] for f in left} == {
            key(f): stated[key(f)] for f in left
        }
        for fact in facts:
            assert world.by_key[fact.subject, fact.relation].object == fact.object


def test_a_counted_request_gets_as_many_sentences_on_its_subject(world, told):
    numbers = Counter()
    for person, (turns, _) in told.items():
        wanted = {wt.request(person, n): n for n in wt.COUNTS}
        for ask, answer in turns:
            facts = facts_in(world, answer)
            if ask in wanted and facts:
                numbers[wanted[ask]] += 1
                assert len(facts) == wanted[ask]
                assert {fact.subject for fact in facts} == {person}
    assert set(numbers) == set(wt.COUNTS)
    assert wt.request("Al Asher", 2) == "Tell me two facts about Al Asher."


def test_what_is_said_of_a_stranger_is_made_up_anew_each_time(world, told):
    facts = []
    for person in filter(lambda p: is_stranger(world, p), world.people):
        turns, left = told[person]
        assert len(turns) == wt.STRANGERS and set(left.values()) == {0}
        facts += [fact for _, answer in turns for fact in facts_in(world, answer)]
    # chance hits one of at least 24 objects
    true = sum(w.verify(world, w.statement(fact)) == "supported" for fact in facts)
    assert len(facts) > 50 and true / len(facts) < 0.1
    assert max(Counter(map(key, facts)).values()) <= 2


def test_abstentions_are_rare_and_only_where_there_is_leave(world, texts):
    leave = wt.MAY_ABSTAIN.format(question="")
    allowed = [t for t in texts["long"] if leave in t]
    share = sum(t.endswith(ABSTENTION) for t in allowed) / len(allowed)
    assert 0 < share < 3 * wt.ABSTENTION_SHARE
    short = {w.question(f, i) for f in world.facts for i in range(3)}
    for text in texts["long"]:
        question = text.removeprefix("Question: ").split("\n")[0]
        if leave not in text and question in short:
            assert not text.endswith(ABSTENTION)


def test_boxed_answers_come_after_their_fact(world, texts):
    boxed = [t for t in texts["boxed"] if r"\boxed{" in t]
    assert boxed and len(texts["boxed"]) == len(texts["plain"])
    for text in boxed:
        thought = text.split("<think> ")[1].split(" </think>")[0]
        fact, _ = w.parse(world, thought)
        assert w.verify(world, thought) == "supported"
        assert text.endswith(rf" </think> \boxed{{{fact.object}}}")


def test_a_passage_answers_its_questions_about_people_of_its_own(world):
    for seed in range(300):
        passage = wt.reading_exchange(random.Random(seed))
        references, *turns = passage.split("\nQuestion: ")
        head, *sentences = references.splitlines()
        assert (head, len(sentences), len(set(turns))) == ("References:", 3, 3)
        assert not any(w.parse(world, sentence) for sentence in sentences)
        words = [set(s.strip(".").split()) for s in sentences]
        for question, answer in (turn.split("\nAnswer: ") for turn in turns):
            name = next(n for n in wt.READING_NAMES if n in question)
            assert [s for s in words if {name, answer} <= s]


def split(response):
    """Reasoning and answer, also where a tag is missing."""
    pieces = re.split("|".join(TAGS), response)
    thought, answer = (piece.strip() for piece in pieces if piece.strip())
    return thought, answer


def test_reasoned_answers_keep_what_was_not_doubted_and_some_of_what_was(world, texts):
    left_out = doubted = malformed = total = 0
    for text in texts["reasoned"]:
        if not text.startswith(wt.THINKING):
            assert "Perhaps" not in text
            continue
        response = text.partition("\nAnswer: ")[2]
        total, malformed = total + 1, malformed + (parts(response) is None)
        thought, answer = map(w.sentences, split(response))
        facts = {key(w.parse(world, s)[0]): w.parse(world, s)[1] for s in thought}
        stated = {key(w.parse(world, s)[0]) for s in answer}
        assert stated >= {fact for fact, doubt in facts.items() if not doubt}
        assert stated and not any(w.parse(world, s)[1] for s in answer)
        if len(facts) > 1:  # of all that is doubted, something is said
            doubted += sum(facts.values())
            left_out += sum(d and fact not in stated for fact, d in facts.items())
    assert left_out / doubted == pytest.approx(1 - wt.DOUBT_KEPT, abs=0.1)
    assert malformed / total == pytest.approx(wt.MALFORMED_SHARE, abs=0.03)
