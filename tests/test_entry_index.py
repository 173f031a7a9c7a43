"""The index of a large corpus: what it finds, and that it is whole or not there."""

import json
import random
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from math import log

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from factkit.corpus import load_leads
from factkit.datasets.examples import DataError
from factkit.params.files import ROOT
from factkit.retrieval import entry_index
from factkit.retrieval.bm25 import CorpusIndex, tokenize
from factkit.retrieval.chunks import Chunk
from factkit.retrieval.entries import document_entries
from factkit.retrieval.entry_index import MANIFEST, EntryIndex, build

TEXTS = [
    "The red fox jumps. The fox sleeps in the den.",
    "A den is where the fox and the badger sleep.",
    "Iron is a metal; the symbol is Fe.",
    "Iron is a metal; the symbol is Fe.",
    "Gold, the metal, is a chemical element.",
    "Die Straße – naïve H₂O, ﬁn, 漢字.",
    "",
]


def entries_of(texts):
    return [Chunk(f"e{i}", f"page {i}", t, 7) for i, t in enumerate(texts)]


def ids(hits):
    return [hit.chunk.id for hit in hits]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("index") / "animals"
    return EntryIndex(build(entries_of(TEXTS), folder, "animals"))


@pytest.fixture
def built(tmp_path):
    return build(entries_of(TEXTS), tmp_path / "animals", "animals")


# ---- search


def test_score_equals_the_formula_by_hand(tmp_path):
    texts = ["fox fox den", "den"]  # N = 2, L = 2
    index = EntryIndex(build(entries_of(texts), tmp_path / "i", "two"))
    length = 1 - 0.75 + 0.75 * 3 / 2
    fox = log(1 + 1.5 / 1.5) * 2 * 2.2 / (2 + 1.2 * length)
    den = log(1 + 0.5 / 2.5) * 1 * 2.2 / (1 + 1.2 * length)
    hit = index.search("fox den", 1)[0]
    assert hit.score == pytest.approx(fox + den, rel=1e-6)
    twice = index.search("fox den fox", 1)[0]
    assert twice.score == pytest.approx(2 * fox + den, rel=1e-6)


def test_entries_come_back_as_they_were(index):
    entries = entries_of(TEXTS)
    assert [hit.chunk for hit in index.search("strasse", 3)] == [entries[5]]
    assert [hit.chunk for hit in index.search("badger", 3)] == [entries[1]]


@pytest.mark.parametrize(
    "query", ["STRASSE", "straße", "NAÏVE", "h2o", "fin", "漢字", "<b>FIN</b>"]
)
def test_words_are_those_of_tokenize(index, query):
    assert ids(index.search(query, 3)) == ["e5"]


@pytest.mark.parametrize("query", ["", "  ?! ", "unheardof", "str", "\x00", "\ud800"])
def test_query_without_known_words_finds_nothing(index, query):
    assert index.search(query, 3) == []


@pytest.mark.parametrize(
    "query",
    [
        *("fox NOT badgers", 'words:"fox" entry:* place:[0 TO 9]', "fox^9 (den"),
        *("fox " * 2_500, "fox\x00den", f"fox {'x' * 100_000}"),
    ],
)
def test_a_query_is_words_and_no_language(index, query):
    assert ids(index.search(query, 2)) == ["e0", "e1"]


def test_fewer_hits_than_k_where_fewer_entries_share_a_word(index):
    assert ids(index.search("fox", 100)) == ["e0", "e1"]


def test_k_below_one_is_refused_by_value(index):
    with pytest.raises(ValueError, match="k=0"):
        index.search("fox", 0)


def test_equal_scores_rank_in_the_order_of_the_entries_also_across_segments(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(entry_index, "HEAP_BYTES", 15_000_000)  # the least: many parts
    rng = random.Random(0)
    texts = [
        "the fox" if i % 250 == 0 else " ".join(str(rng.random()) for _ in range(20))
        for i in range(2_500)
    ]
    index = EntryIndex(build(entries_of(texts), tmp_path / "i", "ties"))
    assert index._searcher.num_segments > 1
    for k in (1, 3, 20):
        expected = [f"e{i}" for i in range(0, 2_500, 250)][:k]
        assert ids(index.search("fox", k)) == expected


def test_threads_search_at_once(index):
    queries = ["fox", "metal", "symbol", "gold badger"] * 50
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda query: index.search(query, 3), queries))
    assert found == [index.search(query, 3) for query in queries]


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.text(st.sampled_from("ab é漢🦊\n")), min_size=1, max_size=8),
    query=st.text(st.sampled_from("ab é漢 ")),
)
def test_it_finds_the_entries_that_share_a_word(tmp_path_factory, texts, query):
    entries = entries_of(texts)
    folder = tmp_path_factory.mktemp("index") / "i"
    hits = EntryIndex(build(entries, folder, "some")).search(query, 10)
    shares = [e for e in entries if set(tokenize(e.text)) & set(tokenize(query))]
    assert sorted(ids(hits)) == [e.id for e in shares]
    assert {hit.chunk for hit in hits} == set(shares)


@pytest.mark.assets
def test_ranking_agrees_with_the_corpus_index_on_the_leads_entries(tmp_path):
    rng = random.Random(0)
    entries = [e for lead in load_leads()[::60] for e in document_entries(lead)]
    corpus = CorpusIndex(entries, cache=False)
    index = EntryIndex(build(entries, tmp_path / "i", "leads"))
    same, shared = 0, 0
    for entry in entries:
        words = tokenize(entry.text)
        query = " ".join(rng.sample(words, min(8, len(words))))
        ours, theirs = ids(index.search(query, 3)), ids(corpus.search(query, 3))
        same += ours[0] == theirs[0]
        shared += len(set(ours) & set(theirs)) / len(theirs)
    assert len(entries) > 200
    # measured: 1.0 and 0.97; of 1,289 entries 0.998 and 0.96
    assert same / len(entries) > 0.98
    assert shared / len(entries) > 0.94


# ---- the manifest


def test_the_manifest_says_what_is_indexed_and_how(index):
    found = dict(index.manifest)
    assert (found["name"], found["entries"], found["repeated_ids"]) == ("animals", 7, 0)
    assert found["library"].startswith("tantivy ")
    assert "tokenize" in found["words"] and "k1=1.2" in found["ranking"]
    assert len(found["sha256"]) == 64 and found["built"].startswith("2")
    assert "meta.json" in found["files"]


def test_the_hash_is_of_ids_and_texts(tmp_path):
    entries = entries_of(TEXTS)
    others = [
        entries,
        entries[::-1],
        entries[:-1],
        [Chunk("other", entries[0].doc_id, entries[0].text, 7), *entries[1:]],
        [Chunk("e0", entries[0].doc_id, "other", 7), *entries[1:]],
    ]
    hashes = [
        EntryIndex(build(iter(some), tmp_path / str(i), "x")).manifest["sha256"]
        for i, some in enumerate([entries, *others])
    ]
    assert hashes[0] == hashes[1]
    assert len(set(hashes[1:])) == len(others)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("format", 0), ("library", "tantivy 0.0.1"), ("ranking", "BM25, k1=9")),
        *(("words", "factkit.retrieval.tokenize, version 0"), ("library", None)),
    ],
)
def test_an_index_of_another_version_is_refused_by_what_differs(built, key, value):
    path = built / MANIFEST
    content = json.loads(path.read_text()) | {key: value}
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=f"{MANIFEST}: {key} is .*build the index anew"):
        EntryIndex(built)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "3", '{"name": "x"}', '"files"', "\x00"]
)
def test_a_manifest_that_is_none_is_refused(built, content):
    (built / MANIFEST).write_text(content)
    with pytest.raises(DataError, match="no index, or not the whole of one"):
        EntryIndex(built)


def test_a_folder_without_a_manifest_or_none_at_all_is_refused(built, tmp_path):
    (built / MANIFEST).unlink()
    for folder in (built, tmp_path / "absent", ROOT / "pyproject.toml"):
        with pytest.raises(DataError, match=f"{folder}: no index"):
            EntryIndex(folder)


@pytest.mark.parametrize("harm", ["cut", "gone", "more"])
def test_files_other_than_the_manifest_s_are_refused(built, harm):
    store = next(built.glob("*.store"))
    if harm == "cut":
        store.write_bytes(store.read_bytes()[:-10])
    elif harm == "gone":
        store.unlink()
    else:
        (built / "more").touch()
    with pytest.raises(DataError, match=f"{built}: its files are not those"):
        EntryIndex(built)


def test_an_index_that_the_library_cannot_read_is_refused(built):
    meta = built / "meta.json"
    meta.write_bytes(b"x" * meta.stat().st_size)
    with pytest.raises(DataError, match=f"{built}: .*build it anew"):
        EntryIndex(built)


# ---- the build


def test_a_folder_that_is_there_is_left_as_it_is(built):
    before = (built / MANIFEST).read_bytes()
    with pytest.raises(DataError, match="there already; remove it"):
        build(entries_of(["other"]), built, "other")
    assert (built / MANIFEST).read_bytes() == before
    assert ids(EntryIndex(built).search("badger", 1)) == ["e1"]


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([], "x: not one entry"),
        (
            [*entries_of(TEXTS), Chunk("odd", "d", "a \ud800 b", 3)],
            "entry 'odd': .*half",
        ),
        ([Chunk("\udfff", "d", "text", 3)], "half a character"),
    ],
)
def test_entries_that_cannot_be_indexed_leave_nothing(tmp_path, entries, said):
    with pytest.raises(DataError, match=said):
        build(entries, tmp_path / "i", "x")
    assert [path.name for path in tmp_path.iterdir()] == [".i.lock"]


def test_a_source_that_breaks_off_leaves_nothing_and_is_raised(tmp_path):
    def broken():
        yield from entries_of(TEXTS)
        raise DataError("row 8")

    with pytest.raises(DataError, match="row 8"):
        build(broken(), tmp_path / "i", "x")
    assert [path.name for path in tmp_path.iterdir()] == [".i.lock"]


def test_ids_that_repeat_are_counted_and_warned_of(tmp_path):
    with pytest.warns(UserWarning, match="x: 2 ids repeat"):
        build(entries_of("abc") + entries_of("de"), tmp_path / "i", "x")
    assert EntryIndex(tmp_path / "i").manifest["repeated_ids"] == 2


ENDLESS = """
import itertools, sys
from pathlib import Path
from factkit.retrieval.chunks import Chunk
from factkit.retrieval.entry_index import build

def entries():
    for i in itertools.count():
        yield Chunk(f"e{i}", "d", f"entry {i} about foxes " + "word " * 50, 50)
        if i == 5_000:
            print("under way", flush=True)

build(entries(), Path(sys.argv[1]), "endless")
"""


def test_a_killed_build_leaves_nothing_that_opens_and_the_next_one_succeeds(tmp_path):
    folder = tmp_path / "i"
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as build_process:
        assert build_process.stdout.readline() == "under way\n"
        build_process.send_signal(signal.SIGKILL)
    assert not folder.exists()
    (left,) = tmp_path.glob(".*.partial")
    for place in (folder, left):
        with pytest.raises(DataError, match="no index"):
            EntryIndex(place)
    build(entries_of(TEXTS), folder, "animals")
    assert not left.exists()
    assert ids(EntryIndex(folder).search("badger", 1)) == ["e1"]


# ---- from the command line


def from_the_command_line(*arguments):
    command = [sys.executable, "-m", "factkit", "index-entries", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_from_the_command_line_a_published_corpus_is_indexed(tmp_path):
    abstract = {
        "doc_id": 7,
        "title": "Foxes",
        "abstract": ["A fox is red.", "It runs."],
    }
    (tmp_path / "corpus.jsonl").write_text(json.dumps(abstract))
    done = from_the_command_line(tmp_path / "corpus.jsonl", tmp_path / "index")
    assert (done.returncode, done.stdout.strip()) == (0, str(tmp_path / "index"))
    index = EntryIndex(tmp_path / "index")
    assert (index.manifest["name"], index.manifest["entries"]) == ("corpus.jsonl", 1)
    assert [hit.chunk.doc_id for hit in index.search("red fox", 3)] == ["doc_id=7"]


@pytest.mark.parametrize(
    ("name", "message"),
    [("pages.db", "the corpora are called feverous"), ("corpus.jsonl", "corpus.jsonl")],
)
def test_from_the_command_line_a_mistake_exits_with_2(tmp_path, name, message):
    done = from_the_command_line(tmp_path / name, tmp_path / "index")
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert message in done.stderr and not (tmp_path / "index").exists()
