"""The scripted searcher of the fact world: its form, its habits, what it can know."""

import random
import re
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factkit.data.bm25 import CorpusIndex
from factkit.data.entries import split_entry
from factkit.data.search import in_process
from factkit.facts.script import Habits, search_and_verify
from factkit.facts.world import claims as wt
from factkit.facts.world import facts as w
from factkit.facts.world import texts as world_text
from factkit.facts.world.claims import ClaimReader
from factkit.papers.veri.search_rollout import FORCED, HEAD, TAIL
from factkit.verify import trajectory as t
from factkit.verify.trajectory import is_well_formed, parse_answer

CAREFUL = Habits(own_words=1.0, second_hop=1.0, precise=1.0)
PLAIN = Habits()
WORLD = w.build_world(people=60)
ENTRIES = {entry.id: entry for entry in wt.list_entries(WORLD)}
SEARCH = in_process(CorpusIndex(ENTRIES.values()))
CLAIMS = wt.make_claims(WORLD, 90, 0)
READER = ClaimReader(WORLD)
N = 2_000

shares = st.floats(0, 1)
habits = st.builds(Habits, shares, shares, shares, shares)  # none is malformed


@cache
def find(query, k=wt.ENTRIES):
    return SEARCH([query], k)[0]


def online(claim, how, seed=0):
    return search_and_verify(READER, claim.question, find, how, random.Random(seed))


def offline(claim, how, seed=0):
    """With its evidence among other texts."""
    gold = [ENTRIES[name] for name in claim.evidence]
    pieces = [
        piece for e in [*find(claim.question, 2), *gold] for piece in split_entry(e)
    ]
    return wt.write_offline(WORLD, claim.question, pieces, how, random.Random(seed))


@pytest.fixture(scope="module")
def tokenizer():
    return world_text.build_tokenizer(WORLD, "claims")


@pytest.fixture(scope="module")
def texts():
    return wt.pretraining_texts(WORLD, 0, N)


@settings(max_examples=60)
@given(st.sampled_from(CLAIMS), habits, st.integers(0, 99))
def test_all_is_of_the_form_unless_a_tag_is_forgotten(claim, how, seed):
    searched = online(claim, how, seed)
    assert is_well_formed(searched, online=True)
    assert is_well_formed(offline(claim, how, seed), online=False)
    forgetful = online(claim, replace(how, malformed=1.0), seed)
    assert not is_well_formed(forgetful, online=True)
    assert not is_well_formed(offline(claim, replace(how, malformed=1.0), seed), False)
    for turn in forgetful[:-1:2]:
        assert re.search(r"<search> .+ </search>$", turn.text)


def thoughts(turns):
    return [step.text for step in t.parse_steps(turns) if step.kind == "think"]


def test_a_claim_and_its_swapped_twin_are_searched_and_read_alike():
    """The script knows nothing of the label."""
    for claim in [c for c in CLAIMS if c.label != t.NEI][:30]:
        others = [o for o in w.OBJECTS[claim.relation] if o not in claim.question]
        stated = WORLD.parse(claim.question)[0]
        twin = claim.question.replace(stated.object, others[0])
        one, two = (
            search_and_verify(READER, text, find, CAREFUL, random.Random(0))
            for text in (claim.question, twin)
        )
        asked = [
            query.replace(stated.object, others[0]) for query in t.extract_queries(one)
        ]
        assert twin != claim.question and asked == t.extract_queries(two)
        found = [[x.split(". ")[0] for x in thoughts(made)] for made in (one, two)]
        assert found[0] == found[1]
        assert parse_answer(one).evidence == parse_answer(two).evidence


def test_what_was_not_found_is_a_fact_about_nothing():
    for claim in CLAIMS:
        made = [online(claim, CAREFUL), offline(claim, CAREFUL)]
        for turns in made:
            words = thoughts(turns)[-1].strip(" .").split()
            assert (wt.NOTHING in words) == (claim.label == t.NEI)


def right(claims, script):
    """The share of claims with the right label and the exact evidence."""
    answers = [parse_answer(script(claim)) for claim in claims]
    return sum(
        a.label == c.label and (c.label == t.NEI or set(a.evidence) == set(c.evidence))
        for a, c in zip(answers, claims, strict=True)
    ) / len(claims)


def test_a_careful_script_is_right_and_a_plain_one_only_about_labels_of_one_hop():
    one, two = ([c for c in CLAIMS if c.meta["hops"] == hops] for hops in (1, 2))
    assert right(CLAIMS, lambda claim: online(claim, CAREFUL)) == 1
    assert right(CLAIMS, lambda claim: offline(claim, CAREFUL)) == 1
    plain = [(c.label, parse_answer(online(c, PLAIN))) for c in one]
    assert all(label == answer.label for label, answer in plain)
    assert all(len(answer.evidence) == wt.ENTRIES for _, answer in plain)
    assert {parse_answer(online(c, PLAIN)).label for c in two} == {t.NEI}
    assert all(t.extract_queries(online(c, PLAIN)) == [c.question] for c in CLAIMS)


def test_the_place_of_an_entry_tells_nothing_of_what_is_read(texts):
    places = Counter()
    shown = re.compile(r"<information>\n((?:\[\[.*\n)+)</information>\n<think> (.*?\.)")
    for text in texts:
        for rows, thought in shown.findall(text)[:1]:
            entries = [row.split(": ")[1] for row in rows.splitlines()]
            if len(entries) == wt.ENTRIES and thought in entries:
                places[entries.index(thought)] += 1
    assert places.total() > N / 4
    assert all(0.28 < n / places.total() < 0.39 for n in places.values())


def test_every_word_is_known_no_text_longer_than_a_row_and_no_fact_taught(
    texts, tokenizer
):
    lengths = [len(ids) + 1 for ids in tokenizer(texts)["input_ids"]]  # with its end
    assert max(lengths) <= wt.LONGEST
    every = [*texts, HEAD, TAIL, FORCED, *(claim.question for claim in CLAIMS)]
    every += [text for e in ENTRIES.values() for text in (e.text, f"[[{e.id}]]")]
    for text, ids in zip(every, tokenizer(every)["input_ids"], strict=True):
        assert tokenizer.unk_token_id not in ids, text
    compared = [text for text in texts if text.startswith("Compare:")]
    assert len(compared) == wt.N_COMPARISON_TEXTS
    for found, claimed, said in re.findall(r"(\w+) (\w+) (\w+)\.", compared[0]):
        assert said == ("same" if found == claimed else "other")
    lines = re.findall(r"^\[\[.*?\]\]: (.*)$", "\n".join(texts), re.MULTILINE)
    parsed = [WORLD.parse(line) for line in lines]
    facts = [fact for fact, _ in filter(None, parsed)]
    known = [f for f in facts if (f.subject, f.relation) in WORLD.by_key]
    true = sum(WORLD.by_key[f.subject, f.relation].object == f.object for f in known)
    chance = sum(1 / len(w.OBJECTS[f.relation]) for f in known)
    assert len(known) > 1_000
    assert true == pytest.approx(chance, abs=5 * chance**0.5)
