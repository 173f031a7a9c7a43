"""Requests and claims about leads, and the cold start: nobody is in two of them."""

import random
from collections import Counter

import pytest

from factkit import prompts
from factkit.data.bm25 import CorpusIndex
from factkit.data.examples import (
    BEST_GUESS,
    COUNTED,
    LABELS,
    MAY_ABSTAIN,
    OPEN,
    DataError,
    read_examples,
    refuse_overlap,
    write_examples,
)
from factkit.data.search import in_process
from factkit.facts.leads import facts, policy
from factkit.facts.leads.claims import ClaimReader, LeadClaims
from factkit.facts.leads.source import LeadSource
from factkit.facts.script import Habits, search_and_verify
from factkit.facts.source import Fact
from factkit.papers.rar.requests import request_sets
from factkit.papers.rlfh.requests import rlfh_sets
from factkit.run import params
from factkit.verify import trajectory as t

pytestmark = pytest.mark.assets
SIZES = {"sft": 2, "train": 6, "dev": 1, "test": 2}


@pytest.fixture(scope="module")
def leads():
    return facts.load()


@pytest.fixture(scope="module")
def split(read):
    return read.split(SIZES)


@pytest.fixture(scope="module")
def rows(leads):
    return policy.cold_start_rows(leads, 0)


@pytest.fixture(scope="module")
def read(leads):
    return LeadSource(leads)


# Requests


def test_short_questions_have_one_answer_each_and_leave_to_abstain_or_none(
    split, read, tmp_path
):
    kinds = (OPEN, COUNTED, MAY_ABSTAIN, BEST_GUESS)
    every = [e for kind in kinds for e in read.requests(split["dev"], kind)]
    assert len({e.id for e in every}) == len({e.question for e in every}) == len(every)
    write_examples(tmp_path / "dev.jsonl", every)
    assert read_examples(tmp_path / "dev.jsonl") == every
    for kind in (MAY_ABSTAIN, BEST_GUESS):
        for example in read.requests(split["dev"], kind):
            assert example.relation in facts.SINGLE
            allowed = "You may say that you don't know." in example.question
            assert allowed == (kind == MAY_ABSTAIN)
            answer = read.answer(example.entity, example.relation, example.answers[0])
            assert read.verify(answer) == "supported"


def test_a_paper_s_sets_share_no_subject_with_each_other_or_the_cold_start(leads):
    for paper, load in (("rar", request_sets), ("rlfh", rlfh_sets)):
        p = params.load(paper, "tiny", {"requests": "leads", "verifier": "leads"})
        sets = load(p)[0]
        names = Counter(i for rows in sets.values() for i in {e.entity for e in rows})
        assert set(names.values()) == {1}
        assert not any(policy.is_of_cold_start(name) for name in names)
        assert all(sets[name] for name in p.splits)


# The cold start


def test_the_cold_start_asks_as_the_runs_ask(leads, read, rows):
    """By the same wordings and templates; of cold subjects alone."""
    assert policy.cold_start_rows(leads, 0) == rows != policy.cold_start_rows(leads, 1)
    cold = [name for name in leads.subjects if policy.is_of_cold_start(name)]
    possible = {  # a subject is asked for one fact, two or three
        prompts.fill(prompts.template(name), question=example.question)
        for name in ("short_form", "think_first")
        for kind in (OPEN, COUNTED, MAY_ABSTAIN, BEST_GUESS)
        for subject in cold
        for example in read.requests([subject] * 3, kind)
    }
    assert {row["prompt"] for row in rows} <= possible


@pytest.fixture(scope="module")
def told(leads, read, rows):
    """(subject, what is told of it) of the open requests without thinking."""
    asked = {
        prompts.fill(prompts.template("short_form"), question=e.question): e.entity
        for e in read.requests(list(leads.subjects), OPEN)
    }
    return [
        (asked[r["prompt"]], r["completion"].strip())
        for r in rows
        if r["prompt"] in asked
    ]


def test_what_the_cold_start_tells_is_true_and_mostly_of_its_subject(told, read):
    assert len(told) > 500
    about = Counter()
    for name, completion in told:
        for sentence in read.sentences(completion, name):
            for text in read.statements(sentence, name):
                assert read.verify(text) == "supported"
                about[read.parse(text)[0].subject == name] += 1
    assert 0 < about[False] < 0.15 * about[True]


# ---- claims

SUPPORT, REFUTE, NEI = LABELS
CLAIMS = {"train": 300, "dev": 30, "test": 90}


@pytest.fixture(scope="module")
def made(leads):
    return LeadClaims(leads)


@pytest.fixture(scope="module")
def sets(made):
    return made.claim_sets(CLAIMS)


@pytest.fixture(scope="module")
def search(made):
    return in_process(CorpusIndex(made.entries()))


def every(sets):
    return [e for claims in sets.values() for e in claims]


def claimed(example, leads, read):
    """The facts that a claim rests on, the last one as it is claimed."""
    hops = read.hops_of(example.question)
    if len(hops) == 2:
        (first,) = leads.by_key[hops[0].subject, hops[0].relation]
        hops = [first, Fact(first.object, hops[1].relation, hops[1].object)]
    return hops


def test_sets_have_their_sizes_their_labels_in_turn_and_no_subject_twice(
    sets, made, leads, read
):
    assert made.claim_sets(CLAIMS) == sets != LeadClaims(leads, 1).claim_sets(CLAIMS)
    refuse_overlap(sets)
    assert {name: len(claims) for name, claims in sets.items()} == CLAIMS
    owner = {}  # of a work's creator and a place's country, too
    for name, claims in sets.items():
        assert set(Counter(e.label for e in claims).values()) == {len(claims) // 3}
        first_hops = [e.relation.split()[0] for e in claims if e.meta["hops"] == 2]
        assert set(first_hops) == {"creator", "country"}
        assert len(first_hops) > 0.3 * len(claims)
        for example in claims:
            for fact in claimed(example, leads, read):
                assert owner.setdefault(fact.subject, name) == name
    assert len({e.id for e in every(sets)}) == sum(CLAIMS.values())
    with pytest.raises(DataError, match="too few claims"):
        made.claim_sets({"train": 60_000})
    with pytest.raises(ValueError, match="no claim"):
        read.hops_of("Ada wandered lonely as a cloud")


def test_the_leads_say_of_each_claim_what_its_label_says(sets, made, leads, read):
    wanted = {SUPPORT: "supported", REFUTE: "contradicted"}
    for example in every(sets):
        hops = claimed(example, leads, read)
        assert [h.relation for h in hops] == example.relation.split()
        if example.label in wanted:
            assert leads.verify(hops[-1]) == wanted[example.label], example.question


# ---- the script


def script(claim, search, read, precise=1.0, second_hop=1.0, k=2, seed=0):
    habits = Habits(precise=precise, second_hop=second_hop, reads_ahead=False)
    return search_and_verify(
        ClaimReader(read),
        claim,
        lambda query: search([query], k)[0],
        habits,
        random.Random(seed),
    )


def test_the_script_at_its_best_is_right_where_the_search_finds(sets, search, read):
    """With more entries a search it is right nearly always, and never by chance; its
    label follows from what it said last."""
    right = []
    for example in sets["test"]:
        turns = script(example.question, search, read, k=5)
        answer = t.parse_answer(turns)
        said = [v for v in ("Same.", "Different.") if f" {v}</think>" in turns[-1].text]
        follows = {SUPPORT: ["Same."], REFUTE: ["Different."], NEI: []}
        assert said == follows[answer.label], turns[-1].text
        assert not any("Same." in turn.text for turn in turns[:-1])
        right.append(answer.label == example.label)
        if right[-1] and example.label != NEI:
            assert set(answer.evidence) == set(example.evidence)
        if not right[-1]:
            assert answer.label == NEI  # not found
    assert sum(right) / len(right) > 0.95
