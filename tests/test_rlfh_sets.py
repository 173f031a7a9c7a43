"""RLFH's prompts: what of each source, what is dropped for which reason, no overlap."""

import json
from collections import Counter

import pytest

from factkit.answers.requests import FILES
from factkit.data.corpus import Document
from factkit.data.examples import DataError, Example, refuse_overlap
from factkit.facts.source import open_source
from factkit.papers.rlfh import requests as curating
from factkit.papers.rlfh.requests import hotpotqa, squad_v2
from factkit.run import params

SOURCES = ("hotpotqa", "squad_v2", "biography")


def hotpot_row(i, question="", title=""):
    facts = {"title": [title or f"Page {i}"], "sent_id": [0]}
    return {
        "id": f"h{i}",
        "question": question or f"In which town was number {i} born?",
        "answer": "Oslo",
        "type": "bridge",
        "level": "hard",
        "supporting_facts": facts,
        "context": {"title": [title or f"Page {i}"], "sentences": [["Oslo."]]},
    }


def article(title, *questions):
    """An article of SQuAD's file; a question that ends in "??" is impossible."""
    asked = [
        {
            "id": f"{title} {i}",
            "question": question,
            "answers": [] if question.endswith("??") else [{"text": "Oslo"}],
            "is_impossible": question.endswith("??"),
        }
        for i, question in enumerate(questions)
    ]
    half = len(asked) // 2
    parts = [asked[:half], asked[half:]]
    return {
        "title": title,
        "paragraphs": [{"context": "In Oslo.", "qas": part} for part in parts],
    }


def articles(n, per=3):
    return [article(f"T_{i}", *(f"Of {i}, {j}?" for j in range(per))) for i in range(n)]


@pytest.fixture
def write(tmp_path):
    """Writes the three sources' files and gives their paths."""

    def written(hotpot=(), squad=(), names=("Bo", "Al")):
        paths = {name: tmp_path / FILES[name] for name in SOURCES}
        paths["hotpotqa"].write_text(json.dumps(list(hotpot)), "utf-8")
        paths["squad_v2"].write_text(json.dumps({"data": list(squad)}), "utf-8")
        paths["biography"].write_text("".join(f"{name}\n" for name in names), "utf-8")
        return {name: str(path) for name, path in paths.items()}

    return written


def sets_of(folder, train=1, dev=1, test=1, seed=0):
    sizes = {"train_requests": train, "dev_requests": dev, "test_requests": test}
    values = {"requests_path": str(folder), "split_seed": seed} | sizes
    p = params.load("rlfh", "h100_full").model_copy(update=values)
    return curating.rlfh_sets(p)


# ---- HotpotQA


def test_questions_of_fewer_than_five_words_are_dropped_and_counted(write):
    rows = [hotpot_row(0, "Who is Bo?"), hotpot_row(1, "Who is Bo Li then?")]
    rows.append(hotpot_row(2, "Who was Al in Oslo?"))
    examples, problems = hotpotqa(write(rows)["hotpotqa"])
    assert [e.id for e in examples] == ["h1", "h2"]
    assert problems == {"fewer than 5 words": 1}


# ---- SQuAD v2


def test_a_pages_first_answerable_question_is_kept_and_the_rest_counted(write):
    squad = [
        article("Steam_engine", "Never??", "First?", "Second?", "Third?"),
        article("Oslo", "Not here??", "Nor here??"),
        article("Bergen", "Where?"),
    ]
    examples, problems = squad_v2(write(squad=squad)["squad_v2"])
    assert [(e.entity, e.question) for e in examples] == [
        ("Steam engine", "First?"),
        ("Bergen", "Where?"),
    ]
    assert problems == {"unanswerable": 3, "not its page's first question": 2}
    assert all(e.answers == ["Oslo"] for e in examples)


# ---- all three


def test_test_holds_the_three_sets_and_the_other_splits_hotpotqa_alone(write, tmp_path):
    write([hotpot_row(i) for i in range(20)], articles(4))
    sets, dropped = sets_of(tmp_path, train=10, dev=3, test=5)
    sizes = {k: Counter(e.meta["set"] for e in part) for k, part in sets.items()}
    assert sizes == {
        "train": {"hotpotqa": 10},
        "dev": {"hotpotqa": 3},
        "test": {"hotpotqa": 5, "squad_v2": 4, "biography": 2},
    }
    assert sets["test"][-1].question == "Tell me a bio of Al."
    assert dropped == {"squad_v2: not its page's first question": 8}
    refuse_overlap(sets)
    assert sets == sets_of(tmp_path, train=10, dev=3, test=5)[0]
    assert sets != sets_of(tmp_path, train=10, dev=3, test=5, seed=1)[0]


def test_a_question_about_what_another_set_is_about_is_dropped_and_counted(
    write, tmp_path
):
    about = [hotpot_row(3, title="bo"), hotpot_row(4, title="T 0")]
    about.append(hotpot_row(5, question="Tell me a bio of Al."))
    write([*(hotpot_row(i) for i in range(3)), *about], articles(1))
    sets, dropped = sets_of(tmp_path)
    assert {e.id for name in ("train", "dev") for e in sets[name]} < {"h0", "h1", "h2"}
    assert dropped["hotpotqa: about what another set is about"] == 3
    with pytest.raises(DataError, match="only . of 3 prompts"):
        sets_of(tmp_path, train=2)


# ---- the small profiles, and documents


def test_no_person_of_the_world_s_questions_is_in_two_splits_or_wholly_known():
    p = params.load("rlfh", "tiny", {"world_people": 200, "train_requests": 100})
    sets, dropped = curating.rlfh_sets(p)
    refuse_overlap(sets)
    assert list(sets) == ["train", "dev", "test"] and not dropped
    assert {e.meta["set"] for e in sets["test"]} == {"open", "counted"}
    world = open_source(p.requests, p)
    people = {e.entity for e in sets["train"]}
    untold = [any(not f.exposure for f in world.facts_of(i)) for i in people]
    assert sum(untold) / len(untold) > 0.7


def test_a_short_answer_is_a_document_and_its_question_is_searched_for(monkeypatch):
    searched = {}

    def gather(p, examples, own, source):
        assert source is None
        searched.update({e.id: e.answers for e in examples})
        return {e.id: [Document("d", "t", "text", "web")] for e in examples[:2]}, {}

    monkeypatch.setattr(curating, "gather", gather)
    p = params.load("rlfh", "tiny").model_copy(update={"requests": "hotpotqa"})
    asked = [
        Example(
            id="a",
            question="Who won?",
            answers=["Ann"],
            entity="The race",
            meta={"set": "hotpotqa"},
        ),
        Example(id="b", question="Tell me of Ann.", answers=[], entity="Ann"),
    ]
    found, _ = curating.rlfh_evidence(p, asked, {"b": "She won."})
    assert searched == {"a": ["Who won?"], "b": []}
    assert [d.id for d in found["a"]] == ["a#answer", "d"]
    assert found["a"][0].text == 'The answer to "Who won?" may be "Ann".'
    assert [d.id for d in found["b"]] == ["d"]
