"""The index of a large corpus: what it finds, and that it is whole or not there."""

import json
import random
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from math import log

import pytest

from factkit.corpus import load_leads
from factkit.datasets.examples import DataError
from factkit.params import ROOT
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


def test_a_query_is_words_as_tokenize_has_them_and_no_language(index):
    for query in ("STRASSE", "straße", "NAÏVE", "h2o", "fin", "漢字", "<b>FIN</b>"):
        (hit,) = index.search(query, 3)
        assert hit.chunk == entries_of(TEXTS)[5]  # as it was
    for query in ("", "  ?! ", "unheardof", "str", "\x00", "\ud800"):
        assert index.search(query, 3) == []
    for query in (
        *("fox", "fox NOT badgers", 'words:"fox" entry:* place:[0 TO 9]', "fox^9 (den"),
        *("fox " * 2_500, "fox\x00den", f"fox {'x' * 100_000}"),
    ):
        assert ids(index.search(query, 100)) == ["e0", "e1"]
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
    manifest = index.manifest
    known = [manifest[key] for key in ("name", "entries", "repeated_ids")]
    assert known == ["animals", 7, 0]
    assert manifest["library"].startswith("tantivy ")
    assert "tokenize" in manifest["words"] and "k1=1.2" in manifest["ranking"]
    assert len(manifest["sha256"]) == 64 and manifest["built"].startswith("2")
    assert "meta.json" in manifest["files"]


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


def test_an_index_of_another_version_is_refused_by_what_differs(built):
    path = built / MANIFEST
    whole = json.loads(path.read_text())
    for key, value in (
        *(("format", 0), ("library", "tantivy 0.0.1"), ("ranking", "BM25, k1=9")),
        *(("words", "factkit.retrieval.tokenize, version 0"), ("library", None)),
    ):
        path.write_text(json.dumps(whole | {key: value}))
        with pytest.raises(DataError, match=f"{MANIFEST}: {key} is .*the index anew"):
            EntryIndex(built)


def test_a_folder_that_holds_no_index_is_refused(built, tmp_path):
    for content in ("", "{", "[]", "3", '{"name": "x"}', '"files"', "\x00"):
        (built / MANIFEST).write_text(content)
        with pytest.raises(DataError, match="no index, or not the whole of one"):
            EntryIndex(built)
    (built / MANIFEST).unlink()
    for folder in (built, tmp_path / "absent", ROOT / "pyproject.toml"):
        with pytest.raises(DataError, match=f"{folder}: no index"):
            EntryIndex(folder)


def test_files_other_than_the_manifest_s_are_refused(built):
    store, meta = next(built.glob("*.store")), built / "meta.json"
    whole = meta.read_bytes()
    meta.write_bytes(b"x" * len(whole))
    with pytest.raises(DataError, match=f"{built}: .*build it anew"):
        EntryIndex(built)
    meta.write_bytes(whole)
    more = built / "more"
    for path, content in (
        (more, b""),
        (store, store.read_bytes()[:-10]),
        (store, None),
    ):
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        with pytest.raises(DataError, match=f"{built}: its files are not those"):
            EntryIndex(built)
        more.unlink(missing_ok=True)


# ---- the build


def test_a_folder_that_is_there_is_left_as_it_is(built):
    before = (built / MANIFEST).read_bytes()
    with pytest.raises(DataError, match="there already; remove it"):
        build(entries_of(["other"]), built, "other")
    assert (built / MANIFEST).read_bytes() == before
    assert ids(EntryIndex(built).search("badger", 1)) == ["e1"]


def test_entries_that_cannot_be_indexed_leave_nothing(tmp_path):
    def broken():
        yield from entries_of(TEXTS)
        raise DataError("row 8")

    odd = Chunk("odd", "d", "a \ud800 b", 3)
    for entries, message in (
        ([], "x: not one entry"),
        ([*entries_of(TEXTS), odd], "entry 'odd': .*half"),
        ([Chunk("\udfff", "d", "text", 3)], "half a character"),
        (broken(), "row 8"),
    ):
        with pytest.raises(DataError, match=message):
            build(entries, tmp_path / "i", "x")
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


def test_the_command_line_indexes_a_published_corpus_and_refuses_a_mistake(tmp_path):
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
    mistake = from_the_command_line(tmp_path / "pages.db", tmp_path / "other")
    assert (mistake.returncode, "Traceback" in mistake.stderr) == (2, False)
    assert "the corpora are called feverous" in mistake.stderr
    assert not (tmp_path / "other").exists()
