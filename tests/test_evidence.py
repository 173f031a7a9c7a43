"""The document cache of each prompt: its file, its search, building it."""

import json

import pytest

from factkit.data.bm25 import CorpusIndex, PromptIndex
from factkit.data.corpus import Chunk, Document, chunk_documents
from factkit.data.evidence import EvidenceCache, build_offline, query_of, read_evidence
from factkit.data.examples import DataError, Example
from factkit.facts.world import facts as worlds
from factkit.facts.world import texts as world_text


@pytest.fixture(scope="module")
def world():
    return worlds.build_world(people=30)


@pytest.fixture(scope="module")
def tokenizer(world):
    return world_text.build_tokenizer(world)


def document(i="d", text="some text", title="t"):
    return Document(i, title, text, "test")


# The file


def row(i="p2", **more):
    fields = {"id": "d", "title": "t", "text": "x", "source": "s"}
    return json.dumps({"id": i, "documents": [fields | more]}).encode()


BAD = {
    "invalid unicode": b'{"id": "\xff"}',
    "documents.0.text Input should be a valid string": row(text=3),
    "'p1' is an earlier row's": row("p1"),
}


def test_a_bad_row_is_refused_by_file_row_value_and_fix(tmp_path):
    path = tmp_path / "evidence.jsonl"
    for problem, bad in BAD.items():
        path.write_bytes(row("p1") + b"\n" + bad + b"\n" + row("p3"))
        with pytest.raises(DataError, match="(?s)evidence.jsonl, row 2") as error:
            read_evidence(path)
        assert problem in str(error.value)
    path.write_bytes(b"")
    for there in (path, tmp_path / "absent" / "evidence.jsonl"):
        with pytest.raises(DataError, match="evidence.jsonl"):
            read_evidence(there)


# The search


def test_a_search_is_bm25_over_the_prompts_chunks(world, tokenizer):
    own = world.documents()[:12]
    cache = EvidenceCache({"p": own}, tokenizer, chunk_tokens=4)
    chunks = chunk_documents(own, tokenizer, 4)
    assert len(chunks) > len(own)
    query = query_of("Who?", worlds.biography(world, world.people[0]))
    expected = CorpusIndex(chunks).search(query, 8)
    assert cache.search("p", query, 8) == expected


# Building offline

CORPUS = [
    document("Ada", "Ada Lovelace wrote notes on the engine. The engine of Babbage."),
    document("Babbage", "Charles Babbage drew the engine."),
    document("Engine", "An engine that computes, of brass."),
    document("Iron", "Iron is a metal."),
    document("Byron", "Lord Byron wrote poems."),
]
BY_ID = {d.id: d for d in CORPUS}


def index_of(texts, chunk_words=3):
    """BM25 over chunks of a few words."""
    chunks = []
    for d in texts:
        words = d.text.split()
        for i in range(0, len(words), chunk_words):
            piece = " ".join(words[i : i + chunk_words])
            chunks.append(Chunk(f"{d.id}#{i}", d.id, piece, chunk_words))
    return PromptIndex(chunks)


def example(i=0, answer="the engine", evidence=(), question="Lovelace?"):
    fields = {"entity": "e", "question": question, "answers": [answer]}
    return Example(id=f"q{i}", evidence=list(evidence), **fields)


def ids(evidence, prompt="q0"):
    return [d.id for d in evidence[prompt]]


def test_gold_documents_come_first_and_no_prompt_has_more_than_its_pages():
    built, _ = build_offline([example()], index_of(CORPUS), BY_ID, 10, 1)
    assert ids(built)[0] == "Ada"
    assert sorted(ids(built)) == ["Ada", "Babbage", "Engine"]
    rows = [example(evidence=["Iron", "Engine"])]
    built, _ = build_offline(rows, index_of(CORPUS), BY_ID, 3, 3)
    assert ids(built) == ["Iron", "Engine", "Ada"]


def test_a_document_that_the_corpus_lacks_and_a_repeated_id_are_refused_by_name():
    with pytest.raises(KeyError, match="Nobody"):
        build_offline([example(evidence=["Nobody"])], index_of(CORPUS), BY_ID, 3, 3)
    with pytest.raises(DataError, match="q0.*2 times"):
        build_offline([example(), example()], index_of(CORPUS), BY_ID, 3, 3)
