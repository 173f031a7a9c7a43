"""Requests about leads and the cold start: nobody is in two of them; both ask alike."""

from collections import Counter

import pytest

from factkit import params, prompts
from factkit.datasets.examples import (
    BEST_GUESS,
    COUNTED,
    MAY_ABSTAIN,
    OPEN,
    read_examples,
    write_examples,
)
from factkit.leads import facts, policy, reader, requests
from factkit.rar.requests import request_sets
from factkit.rlfh.requests import rlfh_sets

pytestmark = pytest.mark.assets
SIZES = {"sft": 2, "train": 6, "dev": 1, "test": 2}


@pytest.fixture(scope="module")
def leads():
    return facts.load()


@pytest.fixture(scope="module")
def split(leads):
    return requests.split(leads, SIZES, 0)


@pytest.fixture(scope="module")
def rows(leads):
    return policy.cold_start_rows(leads, 0)


@pytest.fixture(scope="module")
def read(leads):
    return reader.LeadReader(leads)


# Splits


# Requests


def test_short_questions_have_one_answer_each_and_leave_to_abstain_or_none(
    split, read, tmp_path
):
    kinds = (OPEN, COUNTED, MAY_ABSTAIN, BEST_GUESS)
    every = [e for kind in kinds for e in requests.requests(split["dev"], kind)]
    assert len({e.id for e in every}) == len({e.question for e in every}) == len(every)
    write_examples(tmp_path / "dev.jsonl", every)
    assert read_examples(tmp_path / "dev.jsonl") == every
    for kind in (MAY_ABSTAIN, BEST_GUESS):
        for example in requests.requests(split["dev"], kind):
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
        assert not any(policy.of_cold_start(leads.subjects[name]) for name in names)
        assert all(sets[name] for name in p.splits)


# The cold start


def test_the_cold_start_asks_as_the_runs_ask(leads, rows):
    """By the same wordings and templates; of cold subjects alone."""
    assert policy.cold_start_rows(leads, 0) == rows != policy.cold_start_rows(leads, 1)
    cold = [s for s in leads.subjects.values() if policy.of_cold_start(s)]
    possible = {  # a subject is asked for one fact, two or three
        prompts.fill(prompts.template(name), question=example.question)
        for name in ("short_form", "think_first")
        for kind in (OPEN, COUNTED, MAY_ABSTAIN, BEST_GUESS)
        for subject in cold
        for example in requests.requests([subject] * 3, kind)
    }
    assert {row["prompt"] for row in rows} <= possible


@pytest.fixture(scope="module")
def told(leads, rows):
    """(subject, what is told of it) of the open requests without thinking."""
    subjects = list(leads.subjects.values())
    asked = {
        prompts.fill(prompts.template("short_form"), question=e.question): e.entity
        for e in requests.requests(subjects, OPEN)
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
