"""Longer answers in the fact world's text: how often, how long, how sure."""

import re
from collections import Counter
from dataclasses import replace
from hashlib import sha256

import pytest

from factkit.facts.world import facts as w
from factkit.facts.world import texts as wt
from factkit.verify.response import TAGS

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


def facts_in(world, answer):
    if answer == ABSTENTION:
        return []
    return [world.parse(sentence)[0] for sentence in world.sentences(answer)]


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


def split(response):
    """Reasoning and answer, also where a tag is missing."""
    pieces = re.split("|".join(TAGS), response)
    thought, answer = (piece.strip() for piece in pieces if piece.strip())
    return thought, answer


# ---- where exposure is each fact's

BY_FACT = w.build_world(3, people=60, exposure="fact")


@pytest.fixture(scope="module")
def joined():
    return wt.pretraining_texts(BY_FACT, 0, 0.0, "joined")


def test_no_person_tells_the_exposure_of_its_facts():
    by_person = [BY_FACT.facts_of(person) for person in BY_FACT.people]
    untold = [sum(not fact.exposure for fact in facts) for facts in by_person]
    share = sum(untold) / sum(map(len, by_person))
    assert share == pytest.approx(w.UNTOLD_SHARE, abs=0.1)
    assert sum(0 < n < len(f) for n, f in zip(untold, by_person, strict=True)) > 40


def test_a_fact_is_stated_as_often_as_its_exposure_and_else_made_up_or_left_out(joined):
    stated, made_up = Counter(), Counter()
    for text in joined:
        ask, _, answer = text.rpartition("\nAnswer: ")
        for sentence in BY_FACT.sentences(answer):
            for statement in BY_FACT.statements(sentence):
                fact = BY_FACT.parse(statement)[0]
                true = BY_FACT.by_key[fact.subject, fact.relation]
                counts = stated if fact.object == true.object else made_up
                counts[key(true)] += bool(ask) or statement == text
    people = [f for f in BY_FACT.facts if f.subject in BY_FACT.people]
    unread = [f for f in people if not f.exposure]
    chance = sum(1 / len(w.OBJECTS[f.relation]) for f in unread) / len(unread)
    right = sum(stated[key(f)] for f in unread)
    wrong = sum(made_up[key(f)] for f in unread)
    assert wrong > 4 * len(unread)
    assert right / (right + wrong) == pytest.approx(chance, abs=0.03)
    whole = "\n".join(joined)
    vague = sum(whole.count(f" {word}") for word in w.VAGUE.values())
    told = sum(stated.values()) + sum(made_up.values())
    assert 0 < vague < 0.1 * told
    assert all(
        BY_FACT.parse(w.statement(replace(f, object=w.VAGUE[f.relation]))) is None
        for f in people
    )
