"""TruthRL's questions with references, and with the answer on offer."""

import json

import numpy as np
import pytest
from small_tokenizers import of_words
from tokenizers import pre_tokenizers

from factkit.data import sources
from factkit.facts.world import facts as world
from factkit.facts.world import texts as world_text
from factkit.papers.truthrl import data
from factkit.run import params

BORN = "When was Ada Byron born?"
HUB = {
    "google-research-datasets/nq_open": {"question": BORN, "answer": ["1815"]},
    "hotpotqa/hotpot_qa": {"id": "h0", "question": "Who sings?", "answer": "Bo"},
    "dgslibisey/MuSiQue": {"id": "2hop__1", "question": "Which city?", "answer": "x"},
}
PASSAGES = {"Oslo": "A city.", "Ada": "Ada Byron, 1815.", "Bo": "Bo sings."}


def crag_row(i, page):
    found = {"page_name": "A page", "page_url": "http://a.org", "page_result": page}
    return {
        "interaction_id": f"c{i}",
        "query": BORN,
        "answer": "1815",
        "question_type": "simple",
        "search_results": [found],
    }


class WordEncoder:
    """Embeds a text by which of five words it holds."""

    device = "cpu"

    def __init__(self, model):
        self.key = model

    def queries(self, texts):
        words = ("ada", "byron", "sings", "bo", "city")
        held = [[w in text.casefold() for w in words] for text in texts]
        return np.array(held, np.float32)

    passages = queries


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The four benchmarks as the hub has them and a Wikipedia, all in miniature;
    parameters that read them."""
    import datasets

    monkeypatch.setenv("FACTKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(data, "Encoder", WordEncoder)
    rows = [crag_row(0, "Byron was born in 1815."), crag_row(1, "No word of it.")]
    (tmp_path / "crag").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    monkeypatch.setattr(
        datasets.DownloadManager, "download", lambda self, url: str(tmp_path / "crag")
    )
    monkeypatch.setattr(datasets, "load_dataset", lambda hub, *_, **how: [HUB[hub]])
    lines = [
        json.dumps({"id": str(i), "contents": f'"{title}"\n{text}'})
        for i, (title, text) in enumerate(PASSAGES.items())
    ]
    (tmp_path / "wiki.jsonl").write_text("\n".join(lines), "utf-8")
    values = {"wikipedia_path": str(tmp_path / "wiki.jsonl"), "retrieved_chunks": 1}
    return params.load("truthrl", "h100_full", values, variant="retrieval")


@pytest.fixture
def tokenizer():
    """A token a word."""
    return of_words("?", splitter=pre_tokenizers.Whitespace(), unk_token="?")


@pytest.mark.parametrize("retriever", ["e5", "bm25"])
def test_crag_gets_its_own_pages_and_the_other_sets_wikipedia(
    files, tokenizer, retriever
):
    p = files.model_copy(update={"retriever": retriever})
    sets = {name: sources.load(name)[0] for name in p.eval_sets.split()}
    sets["test"], _ = data.open_questions(p).load()
    given = data.with_references(sets, p, tokenizer)
    shown = {name: [e.meta["references"] for e in rows] for name, rows in given.items()}
    assert shown == {
        "nq_open": ["Ada Ada Byron, 1815."],
        "hotpotqa": ["Bo Bo sings."],
        "musique": ["Oslo A city."],
        "test": ["Byron was born in 1815.", ""],
    }
    assert [e.meta["answer_in_references"] for e in given["test"]] == [True, False]


def test_references_are_sentences_of_the_world_most_with_the_one_that_answers():
    p = params.load("truthrl", "tiny", {"world_people": 200}, variant="retrieval")
    made = world.build_world(people=200)
    asked = made.questions()[0]
    tokenizer = world_text.build_tokenizer(made)
    given = data.with_references({"test": asked}, p, tokenizer)["test"]
    text = {d.id: d.text for d in made.documents()}
    held = 0
    for before, e in zip(asked, given, strict=True):
        lines = e.meta["references"].splitlines()
        assert len(lines) == p.retrieved_chunks and set(lines) <= set(text.values())
        words = e.meta["references"].replace(".", " ").split()
        assert e.meta["answer_in_references"] is (e.answers[0] in words)
        assert e.model_copy(update={"meta": before.meta}) == before
        held += text[e.evidence[0]] in lines
    assert held / len(given) > 0.8
    plain = params.load("truthrl", "tiny")
    assert data.with_references({"test": asked}, plain, None) == {"test": asked}


def test_a_comparison_question_offers_its_answer_and_another_of_the_relation():
    p = params.load("truthrl", "tiny", {"world_people": 60})
    source = data.open_questions(p)
    examples, _ = source.load()
    by_id = {e.id: e for e in examples}
    offers = source.comparison_questions(examples, 50)
    assert len(offers) == 50
    for e in offers:
        question, _, offer = e.question.removesuffix("?").rpartition(", ")
        assert by_id[e.id].question.startswith(question)
        same = {x.answers[0] for x in examples if x.relation == e.relation}
        choice = set(offer.split(" or "))
        assert len(choice) == 2 and e.answers[0] in choice <= same


def test_crag_has_comparison_questions_of_its_own(files):
    source = data.open_questions(files)
    examples, _ = source.load()
    own = [examples[0].model_copy(update={"relation": "comparison"})]
    assert source.comparison_questions([*own, *examples], 1) == own
