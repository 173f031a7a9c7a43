"""The benchmarks' references: CRAG's own pages, Wikipedia of 2018 for the others."""

import json

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from factkit import params
from factkit.datasets import benchmarks
from factkit.truthrl import references

DATA = params.ROOT.parent / "shared" / "data"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the sample files are not beside the project"
)
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
        "split": i,
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
    monkeypatch.setattr(references, "Encoder", WordEncoder)
    rows = [crag_row(0, "Byron was born in 1815."), crag_row(1, "No word of it.")]
    (tmp_path / "crag").write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.setattr(
        datasets.DownloadManager, "download", lambda self, url: str(tmp_path / "crag")
    )
    monkeypatch.setattr(datasets, "load_dataset", lambda hub, *_, **how: [HUB[hub]])
    lines = [
        json.dumps({"id": str(i), "contents": f'"{title}"\n{text}'})
        for i, (title, text) in enumerate(PASSAGES.items())
    ]
    (tmp_path / "wiki.jsonl").write_text("\n".join(lines))
    values = {"wikipedia_path": str(tmp_path / "wiki.jsonl"), "retrieved_chunks": 1}
    return params.load("truthrl", "h100_full", values, variant="retrieval")


@pytest.fixture
def tokenizer():
    """A token a word."""
    words = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?")


def test_a_question_of_either_split_of_crag_gets_its_own_pages(files, tokenizer):
    asked, _ = benchmarks.load_all("crag")
    given = references.with_references({"train": asked}, files, tokenizer)["train"]
    assert {e.id: e.meta["references"] for e in given} == {
        "c0": "Byron was born in 1815.",
        "c1": "",
    }
    assert [e.meta["answer_in_references"] for e in given] == [True, False]


@pytest.mark.parametrize("retriever", ["e5", "bm25"])
def test_the_other_sets_are_searched_for_in_wikipedia(files, tokenizer, retriever):
    p = files.model_copy(update={"retriever": retriever})
    sets = {name: benchmarks.load(name)[0] for name in p.eval_sets.split()}
    sets["test"], _ = benchmarks.load("crag")
    given = references.with_references(sets, p, tokenizer)
    assert {name: e.meta["references"] for name, (e,) in given.items()} == {
        "nq_open": "Ada Ada Byron, 1815.",
        "hotpotqa": "Bo Bo sings.",
        "musique": "Oslo A city.",
        "test": "",  # of CRAG's second split, whose page says nothing
    }
    assert given["nq_open"][0].meta["answer_in_references"]


@pytest.mark.parametrize("profile", ["h100_lora", "h100_full"])
def test_the_profiles_of_the_paper_search_wikipedia_with_e5(profile):
    p = params.load("truthrl", profile, variant="retrieval")
    assert (p.retriever, p.encoder) == ("e5", "intfloat/e5-base-v2")
    assert set(p.eval_sets.split()) == {"nq_open", "hotpotqa", "musique"}


@needs_data
def test_the_real_questions_of_crag_get_references_from_their_own_pages(tokenizer):
    path = str(DATA / "crag/dev_data_10.trimmed.jsonl")
    values = {"questions_path": path, "retrieved_chunks": 4, "chunk_tokens": 64}
    p = params.load("truthrl", "h100_full", values, variant="retrieval")
    asked, _ = benchmarks.load_all("crag", path)
    pages = benchmarks.load_pages("crag", path)
    given = references.with_references({"test": asked}, p, tokenizer)["test"]
    for example in given:
        own = " ".join(" ".join(d.text.split()) for d in pages[example.id])
        lines = example.meta["references"].splitlines()
        assert len(lines) == 4 and all(line in own for line in lines)
    assert any(e.meta["answer_in_references"] for e in given)
