"""Entries: their ids agree with published evidence, nothing of a page is lost; and
their index: what it finds, and that it is whole or not there."""

import json
import signal
import subprocess
import sys
from math import log

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from factkit.data.corpus import Chunk
from factkit.data.entries import (
    entries_of_sentences,
    page_id,
    page_of,
    sentence_id,
    split_entry,
)
from factkit.data.entry_index import MANIFEST, EntryIndex, build_index
from factkit.data.examples import DataError
from factkit.run.params import ROOT


@given(st.lists(st.text(max_size=20), max_size=20), st.text(min_size=1, max_size=20))
def test_what_is_shown_is_every_sentence_with_a_word_once(page, title):
    assume(page_id(title))
    entries = entries_of_sentences(title, page)
    said = [line for entry in entries for line in split_entry(entry)]
    flat = {i: " ".join(s.split()) for i, s in enumerate(page)}
    wanted = {sentence_id(title, i): s for i, s in flat.items() if s}
    assert [(line.id, line.text) for line in said] == list(wanted.items())
    assert {page_of(line.id) for line in said} <= {page_id(title)}
    assert {e.doc_id for e in entries} <= {page_id(title)}
    assert not set("[]\n") & set(page_id(title))
    assert page_id(page_id(title)) == page_id(title)


# ---- the index

CORPUS = [
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
    return EntryIndex(build_index(entries_of(CORPUS), folder, "animals"))


@pytest.fixture
def built(tmp_path):
    return build_index(entries_of(CORPUS), tmp_path / "animals", "animals")


def test_score_equals_the_formula_by_hand(tmp_path):
    texts = ["fox fox den", "den"]  # N = 2, L = 2
    index = EntryIndex(build_index(entries_of(texts), tmp_path / "i", "two"))
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
        assert hit.chunk == entries_of(CORPUS)[5]  # as it was
    for query in ("", "  ?! ", "unheardof", "str", "\x00", "\ud800"):
        assert index.search(query, 3) == []
    for query in ('words:"fox" entry:* place:[0 TO 9]', "fox^9 (den", "fox\x00den"):
        assert ids(index.search(query, 100)) == ["e0", "e1"]
    with pytest.raises(ValueError, match="k=0"):
        index.search("fox", 0)


def test_an_index_is_opened_when_it_is_the_whole_of_one_of_this_version(built):
    path = built / MANIFEST
    whole = json.loads(path.read_text("utf-8"))
    assert (whole["name"], whole["entries"]) == ("animals", 7)
    assert whole == EntryIndex(built).manifest
    path.write_text(json.dumps(whole | {"how": "tantivy 0.0.1"}), "utf-8")
    with pytest.raises(DataError, match=f"{built}: no index"):
        EntryIndex(built)
    for content in ("{", "3"):
        path.write_text(content, "utf-8")
        with pytest.raises(DataError, match=f"{built}: no index"):
            EntryIndex(built)
    path.unlink()
    for folder in (built, built / "absent", ROOT / "pyproject.toml"):
        with pytest.raises(DataError, match=f"{folder}: no index"):
            EntryIndex(folder)


def test_a_build_that_fails_leaves_all_as_it_was(built, tmp_path):
    before = (built / MANIFEST).read_bytes()
    with pytest.raises(DataError, match="there already; remove it"):
        build_index(entries_of(["other"]), built, "other")
    assert (built / MANIFEST).read_bytes() == before

    def broken():
        yield from entries_of(CORPUS)
        raise DataError("row 8")

    with pytest.raises(DataError, match="row 8"):
        build_index(broken(), tmp_path / "other" / "i", "x")
    assert [p.name for p in (tmp_path / "other").iterdir()] == [".i.lock"]


ENDLESS = """
import itertools, sys
from pathlib import Path
from factkit.data.corpus import Chunk
from factkit.data.entry_index import build_index

def entries():
    for i in itertools.count():
        yield Chunk(f"e{i}", "d", f"entry {i} about foxes " + "word " * 50, 50)
        if i == 5_000:
            print("under way", flush=True)

build_index(entries(), Path(sys.argv[1]), "endless")
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
    build_index(entries_of(CORPUS), folder, "animals")
    assert not left.exists()
    assert ids(EntryIndex(folder).search("badger", 1)) == ["e1"]
