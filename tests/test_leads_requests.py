"""Requests about leads and the cold start: nobody is in two of them; both ask alike."""

import re
from collections import Counter

import pytest

from factkit import params, prompts
from factkit.curate.request_sets import request_sets
from factkit.curate.rlfh_sets import rlfh_sets
from factkit.datasets.examples import read_examples, write_examples
from factkit.datasets.world_prompts import BEST_GUESS, COUNTED, MAY_ABSTAIN, OPEN
from factkit.leads import facts, reader, requests, texts
from factkit.verify.response import parts

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
    return texts.cold_start_rows(leads, 0)


@pytest.fixture(scope="module")
def read(leads):
    return reader.LeadReader(leads)


def names(subjects):
    return {s.name for s in subjects}


# Splits


def test_no_subject_is_in_two_splits_or_in_the_cold_start(leads, split):
    cold = {s.name for s in leads.subjects.values() if requests.of_cold_start(s)}
    counted = Counter(name for of in split.values() for name in names(of))
    assert set(counted.values()) == {1}
    assert cold and not cold & set(counted)


def test_the_splits_share_the_subjects_in_the_ratio_of_their_sizes(leads, split):
    total = sum(map(len, split.values()))
    for name, size in SIZES.items():
        assert abs(len(split[name]) - total * size / sum(SIZES.values())) <= 1
    asked = [s for s in leads.subjects.values() if not requests.of_cold_start(s)]
    assert total == sum(len(s.facts) >= requests.LEAST_FACTS for s in asked)


def test_another_seed_gives_another_split_but_the_same_cold_start(leads, split):
    again, other = (requests.split(leads, SIZES, seed) for seed in (0, 1))
    assert again == split != other
    assert set().union(*map(names, other.values())) == set().union(
        *map(names, split.values())
    )


def test_a_third_of_the_subjects_or_so_is_kept_for_the_cold_start(leads):
    cold = sum(map(requests.of_cold_start, leads.subjects.values()))
    assert abs(cold / len(leads.subjects) - requests.COLD_SHARE) < 0.04


# Requests


def test_counted_requests_name_the_number_that_they_want(split):
    asked = requests.requests(split["train"], COUNTED)
    assert Counter(e.meta["wanted"] for e in asked).keys() == {1, 2, 3}
    for example in asked:
        assert requests.COUNTS[example.meta["wanted"]] in example.question
        assert example.meta["wanted"] <= requests.LEAST_FACTS


def test_an_open_request_wants_no_number_and_has_a_true_reference(split, read):
    for example in requests.requests(split["test"], OPEN):
        assert "wanted" not in example.meta
        (reference,) = example.answers
        sentences = read.sentences(reference, example.entity)
        stated = [t for s in sentences for t in read.statements(s, example.entity)]
        assert {read.verify(t) for t in stated} == {"supported"}
        assert len(stated) == len(read.facts_of(example.entity))


def test_a_quarter_of_the_mixed_requests_is_counted_each_of_another_subject(split):
    asked = requests.mixed(split["train"], 60)
    kinds = Counter(e.meta["kind"] for e in asked)
    assert kinds == {OPEN: 45, COUNTED: 15}
    assert len({e.entity for e in asked}) == len(asked) == 60
    wanted = Counter(e.meta.get("wanted") for e in asked)
    assert (wanted[1], wanted[2], wanted[3]) == (5, 5, 5)


def test_short_questions_have_one_answer_each_and_leave_to_abstain_or_none(split, read):
    for kind in (MAY_ABSTAIN, BEST_GUESS):
        for example in requests.requests(split["dev"], kind):
            assert example.relation in requests.ASKED
            allowed = "You may say that you don't know." in example.question
            assert allowed == (kind == MAY_ABSTAIN)
            said = read.answer(example.entity, example.relation, example.answers[0])
            assert read.verify(said) == "supported"


def test_ids_and_questions_are_there_once_and_pass_the_reader(split, tmp_path):
    kinds = (OPEN, COUNTED, MAY_ABSTAIN, BEST_GUESS)
    asked = [e for kind in kinds for e in requests.requests(split["dev"], kind)]
    assert len({e.id for e in asked}) == len({e.question for e in asked}) == len(asked)
    write_examples(tmp_path / "dev.jsonl", asked)
    assert read_examples(tmp_path / "dev.jsonl") == asked


@pytest.mark.parametrize(
    ("paper", "load"), [("rar", request_sets), ("rlfh", rlfh_sets)]
)
def test_a_paper_s_sets_share_no_subject_with_each_other_or_the_cold_start(
    leads, paper, load
):
    p = params.load(paper, "tiny", {"requests": "leads", "verifier": "leads"})
    sets = load(p)[0]
    counted = Counter(name for of in sets.values() for name in {e.entity for e in of})
    assert set(counted.values()) == {1}
    assert not any(requests.of_cold_start(leads.subjects[name]) for name in counted)
    assert all(sets[name] for name in p.splits)


# The cold start


def test_the_cold_start_asks_as_the_runs_ask(leads, rows):
    """By the same wordings and templates; of cold subjects alone."""
    cold = [s for s in leads.subjects.values() if requests.of_cold_start(s)]
    possible = {  # a subject is asked for one fact, two or three
        prompts.fill(prompts.template(name), question=example.question)
        for name in ("short_form", "think_first")
        for kind in (OPEN, COUNTED, MAY_ABSTAIN, BEST_GUESS)
        for subject in cold
        for example in requests.requests([subject] * 3, kind)
    }
    assert {row["prompt"] for row in rows} <= possible


@pytest.mark.parametrize("paper", ["rar", "reason", "rlfh"])
def test_the_cold_start_asks_by_the_template_of_each_paper_at_laptop(paper, rows):
    p = params.load(paper, "laptop")
    start, end = prompts.template(p.prompt_template).split("{question}")
    asked = [r["prompt"] for r in rows]
    assert sum(x.startswith(start) and x.endswith(end) for x in asked) > 300


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


def test_facts_are_left_out_abstentions_few_and_some_statements_hedged(told, read):
    said = [completion for _, completion in told]
    abstained = said.count(texts.ABSTENTION)
    assert 0 < abstained < 0.06 * len(said)
    hedged = sum(text.count("Perhaps") for text in said)
    stated = sum(len(read.sentences(text, name)) for name, text in told)
    assert 0.05 < hedged / stated < 0.15
    there = sum(len(read.facts_of(name)) for name, _ in told)
    assert 0.6 < stated / there < 0.9


def test_a_part_thinks_first_in_the_form_of_the_reward(rows):
    thinking = [r for r in rows if r["prompt"].startswith("Think")]
    assert 0.15 < len(thinking) / len(rows) < 0.4
    for row in rows:
        found = parts(row["completion"].strip())
        assert (found is not None) == (row in thinking)
        if found:
            assert found.answer and set(found.answer) <= set(found.reasoning)


def test_a_counted_answer_has_as_many_sentences_as_asked_for(leads, rows, read):
    wanted = {count: n for n, count in requests.COUNTS.items()}
    pattern = re.compile(rf"Tell me ({'|'.join(wanted)}) about (.*)\.\n")
    counted = [(m, r["completion"]) for r in rows if (m := pattern.search(r["prompt"]))]
    assert len(counted) > 100
    for match, completion in counted:
        assert len(read.sentences(completion, match[2])) == wanted[match[1]]


def test_the_cold_start_is_its_seed_s(leads, rows):
    assert texts.cold_start_rows(leads, 0) == rows
    assert texts.cold_start_rows(leads, 1) != rows
