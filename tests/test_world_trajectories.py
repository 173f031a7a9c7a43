"""The scripted searcher of the fact world: its form, its habits, what it can know."""

import random
import re
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factkit import params
from factkit.retrieval.bm25 import CorpusIndex
from factkit.retrieval.entries import page_entry, shown
from factkit.search import in_process
from factkit.veri import claims as claim_sets
from factkit.veri import train as curated
from factkit.veri.search_rollout import FORCED, HEAD, TAIL
from factkit.verify import trajectory as t
from factkit.verify.trajectory import answer_of, well_formed
from factkit.world import facts as w
from factkit.world import texts as world_text
from factkit.world import trajectories as wt
from factkit.world.trajectories import MIXED, PLAIN, Habits

CAREFUL = Habits(own_words=1.0, second_hop=1.0, precise=1.0)
WORLD = w.build_world(people=60)
ENTRIES = {entry.id: entry for entry in wt.world_entries(WORLD)}
SEARCH = wt.marking(in_process(CorpusIndex(ENTRIES.values())))
CLAIMS = w.claims(WORLD, 90, 0)
N = 2_000

shares = st.floats(0, 1)
habits = st.builds(Habits, shares, shares, shares, shares)  # none is malformed


@cache
def find(query, k):
    return SEARCH([query], k)[0]


def online(claim, how, seed=0):
    return wt.online(WORLD, claim.question, find, how, random.Random(seed))


def offline(claim, how, seed=0):
    """With its evidence among other texts."""
    gold = [ENTRIES[name] for name in claim.evidence]
    pieces = [piece for e in [*find(claim.question, 2), *gold] for piece in shown(e)]
    return wt.offline(WORLD, claim.question, pieces, how, random.Random(seed))


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
    assert well_formed(searched, online=True)
    assert well_formed(offline(claim, how, seed), online=False)
    forgetful = online(claim, replace(how, malformed=1.0), seed)
    assert not well_formed(forgetful, online=True)
    assert not well_formed(offline(claim, replace(how, malformed=1.0), seed), False)
    for turn in forgetful[:-1:2]:
        assert re.search(r"<search> .+ </search>$", turn.text)


def test_where_nothing_is_found_there_is_nothing_to_cite():
    for claim in CLAIMS:
        rng = random.Random(0)
        how = replace(MIXED, malformed=0.0)
        nothing = wt.online(WORLD, claim.question, lambda query, k: [], how, rng)
        assert answer_of(nothing) == t.Answer(t.NEI, ())
    with pytest.raises(ValueError, match="'Bo sang.' is no claim of the world"):
        wt.online(WORLD, "Bo sang.", find, PLAIN, random.Random(0))


def thoughts(turns):
    return [step.text for step in t.steps(turns) if step.kind == "think"]


def test_a_claim_and_its_swapped_twin_are_searched_and_read_alike():
    """The script knows nothing of the label."""
    for claim in [c for c in CLAIMS if c.label != t.NEI][:30]:
        others = [o for o in w.OBJECTS[claim.relation] if o not in claim.question]
        stated = w.parse(WORLD, claim.question)[0]
        twin = claim.question.replace(stated.object, others[0])
        one, two = (
            wt.online(WORLD, text, find, CAREFUL, random.Random(0))
            for text in (claim.question, twin)
        )
        asked = [query.replace(stated.object, others[0]) for query in t.queries(one)]
        assert twin != claim.question and asked == t.queries(two)
        bare = [[wt.unmarked(x) for x in thoughts(made)] for made in (one, two)]
        assert bare[0] == bare[1]
        assert answer_of(one).evidence == answer_of(two).evidence


def test_what_the_query_lacks_is_marked_so_that_the_label_can_be_read():
    for claim in [c for c in CLAIMS if c.label != t.NEI][:30]:
        last = thoughts(online(claim, CAREFUL))[-1]
        assert ("(" in last) == (claim.label == "REFUTE")
    for text in [e.text.partition("\n")[2] for e in ENTRIES.values()]:
        assert wt.marked(text, text) == text
        assert wt.unmarked(wt.marked(text, "")) == text != wt.marked(text, "")


def right(claims, script):
    """The share of claims with the right label and the exact evidence."""
    answers = [answer_of(script(claim)) for claim in claims]
    return sum(
        a.label == c.label and (c.label == t.NEI or set(a.evidence) == set(c.evidence))
        for a, c in zip(answers, claims, strict=True)
    ) / len(claims)


def test_a_careful_script_is_right_and_a_plain_one_only_about_labels_of_one_hop():
    one, two = ([c for c in CLAIMS if c.meta["hops"] == hops] for hops in (1, 2))
    assert right(CLAIMS, lambda claim: online(claim, CAREFUL)) == 1
    assert right(CLAIMS, lambda claim: offline(claim, CAREFUL)) == 1
    plain = [(c.label, answer_of(online(c, PLAIN))) for c in one]
    assert all(label == answer.label for label, answer in plain)
    assert all(len(answer.evidence) == wt.ENTRIES for _, answer in plain)
    assert {answer_of(online(c, PLAIN)).label for c in two} == {t.NEI}
    assert all(t.queries(online(c, PLAIN)) == [c.question] for c in CLAIMS)


def assert_share(expected, chosen):
    """Within four standard deviations."""
    deviation = (expected * (1 - expected) / len(chosen)) ** 0.5
    assert sum(chosen) / len(chosen) == pytest.approx(expected, abs=4 * deviation)


def test_mixed_habits_come_up_as_often_as_stated():
    rows = [(CLAIMS[i % len(CLAIMS)], i) for i in range(N)]
    whole = replace(MIXED, malformed=0.0)
    mixed, honest = (
        [online(claim, how, i) for claim, i in rows]
        for how in (whole, replace(whole, guess=0.0))
    )
    queries = zip(mixed, rows, strict=True)
    own = [t.queries(turns)[0] != claim.question for turns, (claim, _) in queries]
    assert_share(MIXED.own_words, own)
    pairs = zip(mixed, honest, strict=True)
    guessed = [answer_of(a).label != answer_of(b).label for a, b in pairs]
    assert_share(MIXED.guess * 2 / 3, guessed)
    for script, form in ((online, True), (offline, False)):
        made = [script(claim, MIXED, i) for claim, i in rows]
        assert_share(MIXED.malformed, [not well_formed(m, online=form) for m in made])


def test_texts_ask_as_the_policy_is_asked_later_a_quarter_of_them_offline(texts):
    p = params.load("veri", "tiny")
    assert wt.pretraining_texts(WORLD, 0, 40) == texts[:40]
    assert_share(wt.OFFLINE_SHARE, ["\nDocuments:\n" in text for text in texts])
    for text in texts:
        offline_text = "\nDocuments:\n" in text
        prompt, begun, _ = text.partition("<think>" if offline_text else "<plan>")
        claim = re.match("Claim: (.*)", prompt)[1]
        lines = re.findall(r"^\[\[(.*?)\]\]: (.*)$", prompt, re.MULTILINE)
        given = {claim: [shown(page_entry(*line))[0] for line in lines]}
        one = [CLAIMS[0].model_copy(update={"id": claim, "question": claim})]
        if begun and offline_text:
            assert [prompt] == claim_sets.asked_offline(one, given, p)
        elif begun:
            assert [prompt] == claim_sets.asked(one, p)


def test_every_word_is_known_no_text_longer_than_a_row_and_no_fact_taught(
    texts, tokenizer
):
    lengths = [len(ids) + 1 for ids in tokenizer(texts)["input_ids"]]  # with its end
    assert max(lengths) <= wt.LONGEST
    every = [*texts, HEAD, TAIL, FORCED, *(claim.question for claim in CLAIMS)]
    every += [text for e in ENTRIES.values() for text in (e.text, f"[[{e.id}]]")]
    for text, ids in zip(every, tokenizer(every)["input_ids"], strict=True):
        assert tokenizer.unk_token_id not in ids, text
    lines = re.findall(r"^\[\[.*?\]\]: (.*)$", "\n".join(texts), re.MULTILINE)
    parsed = [w.parse(WORLD, wt.unmarked(line)) for line in lines]
    facts = [fact for fact, _ in filter(None, parsed)]
    known = [f for f in facts if (f.subject, f.relation) in WORLD.by_key]
    true = sum(WORLD.by_key[f.subject, f.relation].object == f.object for f in known)
    chance = sum(1 / len(w.OBJECTS[f.relation]) for f in known)
    assert len(known) > 1_000
    assert true == pytest.approx(chance, abs=5 * chance**0.5)


def test_the_scripts_trajectories_fit_the_budgets_of_profile_tiny(tokenizer):
    p = params.load("veri", "tiny", {"world_people": 60})
    scripts = curated.scripted(p, CLAIMS, SEARCH)
    for turn in (turn for script in scripts for turn in script):
        n = len(tokenizer(turn.text)["input_ids"])
        assert n <= (
            p.max_completion_length if turn.by_model else p.max_observation_length
        )
    given = claim_sets.given_offline(CLAIMS, [*ENTRIES.values()], SEARCH, p)
    asked = claim_sets.asked(CLAIMS, p) + claim_sets.asked_offline(CLAIMS, given, p)
    assert max(map(len, tokenizer(asked)["input_ids"])) <= p.max_prompt_length
