"""RLFH's prompts: what of each source, what is dropped for which reason, no overlap."""

import json
from collections import Counter

import pytest

from factkit import params
from factkit.datasets import benchmarks, rlfh_prompts
from factkit.datasets.examples import (
    DataError,
    read_examples,
    refuse_overlap,
    write_examples,
)
from factkit.datasets.rlfh_prompts import hotpotqa, squad_v2

DATA = params.ROOT.parent / "shared" / "data"
FILES = {
    "hotpotqa": str(DATA / "hotpotqa/hotpot_dev_v1_simplified.json"),
    "squad_v2": str(DATA / "squad_v2/dev-v2.0.json"),
    "biography": str(DATA / "factscore/prompt_entities.txt"),
}
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the sample files are not beside the project"
)


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
        rows = "".join(f"{json.dumps(row)}\n" for row in hotpot)
        (tmp_path / "hotpot.jsonl").write_text(rows)
        (tmp_path / "squad.json").write_text(json.dumps({"data": list(squad)}))
        (tmp_path / "names.txt").write_text("".join(f"{name}\n" for name in names))
        files = {"hotpotqa": "hotpot.jsonl", "squad_v2": "squad.json"}
        files["biography"] = "names.txt"
        return {name: str(tmp_path / file) for name, file in files.items()}

    return written


@pytest.fixture
def hub(monkeypatch):
    """A hub of rows by (data set, split), in place of the real one."""

    def serve(found):
        def of_hub(hub, config, split, stream):
            yield from found[hub, split]

        monkeypatch.setattr(benchmarks.rows, "of_hub", of_hub)

    return serve


# ---- HotpotQA


def test_questions_of_fewer_than_five_words_are_dropped_and_counted(write):
    rows = [hotpot_row(0, "Who is Bo?"), hotpot_row(1, "Who is Bo Li then?")]
    rows.append(hotpot_row(2, "Who was Al in Oslo?"))
    examples, problems = hotpotqa(write(rows)["hotpotqa"])
    assert [e.id for e in examples] == ["h1", "h2"]
    assert problems == {"fewer than 5 words": 1}


def test_both_splits_of_the_hub_are_read_and_a_question_of_both_comes_once(hub):
    name = "hotpotqa/hotpot_qa"
    rows = {(name, "train"): [hotpot_row(0), hotpot_row(1)]}
    again = hotpot_row(3, hotpot_row(1)["question"])
    hub(rows | {(name, "validation"): [hotpot_row(2), again]})
    examples, problems = hotpotqa()
    assert [e.id for e in examples] == ["h0", "h1", "h2"]
    assert problems == {"duplicate question": 1}
    assert examples[0].entity == "Page 0"


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


def test_pages_are_drawn_by_the_seed_and_keep_their_order(write):
    path = write(squad=articles(30))["squad_v2"]
    every = [e.id for e in squad_v2(path)[0]]
    assert len(every) == 30
    drawn = [e.id for e in squad_v2(path, 10, seed=1)[0]]
    assert len(drawn) == 10 and drawn == [i for i in every if i in drawn]
    assert drawn == [e.id for e in squad_v2(path, 10, seed=1)[0]]
    assert drawn != [e.id for e in squad_v2(path, 10, seed=2)[0]]


def test_the_hubs_two_splits_of_squad_are_one(hub):
    def rows(title, n):
        return [
            {
                "id": f"{title} {i}",
                "title": title,
                "context": "In Oslo.",
                "question": f"Of {title}, {i}?",
                "answers": {"text": ["Oslo"], "answer_start": [3]},
            }
            for i in range(n)
        ]

    name = "rajpurkar/squad_v2"
    hub({(name, "train"): rows("A", 2), (name, "validation"): rows("B", 3)})
    examples, problems = squad_v2()
    assert [e.entity for e in examples] == ["A", "B"]
    assert problems == {"not its page's first question": 3}


# ---- all three


def test_test_holds_the_three_sets_and_the_other_splits_hotpotqa_alone(write):
    paths = write([hotpot_row(i) for i in range(20)], articles(4))
    sizes = {"train": 10, "dev": 3, "test": 5}
    sets, dropped = rlfh_prompts.rlfh_prompts(paths, sizes)
    assert {name: Counter(e.meta["set"] for e in of) for name, of in sets.items()} == {
        "train": {"hotpotqa": 10},
        "dev": {"hotpotqa": 3},
        "test": {"hotpotqa": 5, "squad_v2": 4, "biography": 2},
    }
    assert sets["test"][-1].question == "Tell me a bio of Al."
    assert dropped == {"squad_v2: not its page's first question": 8}
    refuse_overlap(sets)


def test_without_a_test_split_of_hotpotqa_the_others_are_still_tested_on(write):
    paths = write([hotpot_row(i) for i in range(3)], articles(4))
    sets, _ = rlfh_prompts.rlfh_prompts(paths, {"train": 3}, squad_questions=2)
    assert Counter(e.meta["set"] for e in sets["test"]) == {
        "squad_v2": 2,
        "biography": 2,
    }


def test_a_question_about_what_another_set_is_about_is_dropped_and_counted(write):
    rows = [
        hotpot_row(0),
        hotpot_row(1, title="bo"),
        hotpot_row(2, title="T 0"),
        hotpot_row(3, question="Tell me a bio of Al."),
    ]
    sets, dropped = rlfh_prompts.rlfh_prompts(write(rows, articles(1)), {"train": 1})
    assert [e.id for e in sets["train"]] == ["h0"]
    assert dropped["hotpotqa: about what another set is about"] == 3


def test_an_overlap_that_is_left_is_refused(write, monkeypatch):
    monkeypatch.setattr(rlfh_prompts, "_not_about", lambda others, examples: examples)
    paths = write([hotpot_row(0, title="Bo")], articles(1))
    with pytest.raises(DataError, match="'Bo' is in both train and test"):
        rlfh_prompts.rlfh_prompts(paths, {"train": 1})


def test_the_seed_draws_the_questions(write):
    paths = write([hotpot_row(i) for i in range(40)], articles(1))

    def ids(seed):
        sets, _ = rlfh_prompts.rlfh_prompts(paths, {"train": 9, "test": 9}, seed=seed)
        return [e.id for of in sets.values() for e in of]

    assert ids(1) == ids(1) != ids(2)


def test_what_is_missing_is_refused_by_name(write):
    paths = write([hotpot_row(0)], articles(1))
    with pytest.raises(DataError, match="train=2: only 1 of 1"):
        rlfh_prompts.rlfh_prompts(paths, {"train": 2})
    without = {name: path for name, path in paths.items() if name != "biography"}
    with pytest.raises(DataError, match="biography is not on the hub; give the path"):
        rlfh_prompts.rlfh_prompts(without, {"train": 1})
    with pytest.raises(DataError, match="absent: no such file"):
        rlfh_prompts.rlfh_prompts(paths | {"squad_v2": "absent"}, {"train": 1})


def test_the_papers_sizes_are_the_defaults():
    assert rlfh_prompts.SIZES == {"train": 20_000, "test": 256}
    assert rlfh_prompts.SQUAD_QUESTIONS == 191


# ---- real rows


@needs_data
def test_of_the_real_files_nothing_is_too_short_and_each_page_has_a_question():
    examples, problems = hotpotqa(FILES["hotpotqa"])
    assert (len(examples), problems) == (7405, {})
    examples, problems = squad_v2(FILES["squad_v2"])
    assert len(examples) == len({e.entity for e in examples}) == 16
    assert examples[0].question == "In what country is Normandy located?"
    assert problems == {
        "unanswerable": 3168,
        "not its page's first question": 2894,
    }


@needs_data
def test_the_real_files_make_splits_that_are_read_back_as_written(tmp_path):
    sets, _ = rlfh_prompts.rlfh_prompts(FILES, {"train": 7000, "test": 256})
    assert Counter(e.meta["set"] for e in sets["test"]) == {
        "hotpotqa": 256,
        "squad_v2": 16,
        "biography": 183,
    }
    for name, examples in sets.items():
        write_examples(tmp_path / f"{name}.jsonl", examples)
        assert read_examples(tmp_path / f"{name}.jsonl") == (examples, Counter())
