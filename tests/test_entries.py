"""Entries: their ids agree with published evidence, nothing of a page is lost."""

import unicodedata
from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from factkit import params
from factkit.corpus import Document
from factkit.retrieval.chunks import Chunk
from factkit.retrieval.entries import (
    document_entries,
    entries_of_sentences,
    entry_of,
    entry_of_sentence,
    page_entry,
    page_id,
    page_of,
    sentence_id,
    shown,
)
from factkit.veri import benchmarks as claim_benchmarks

DATA = params.ROOT.parent / "shared" / "data"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the sample files are not beside the project"
)
PAGE = ["Bo was born in Oslo.", "He sang.", "He wrote.", "He died.", "He was 80."]


def test_three_consecutive_sentences_are_an_entry_that_begins_with_its_title():
    first, second = entries_of_sentences("Bo", PAGE)
    assert first.id == "Bo_sentences_0_2"
    assert first.text == "Bo\nBo was born in Oslo.\nHe sang.\nHe wrote."
    assert (second.id, second.doc_id) == ("Bo_sentences_3_5", "Bo")
    assert (second.text, second.n_tokens) == ("Bo\nHe died.\nHe was 80.", 6)


def test_a_page_is_shown_whole_under_its_title():
    entry = page_entry("Bo (singer)", "Bo was born in Oslo.\nHe sang.")
    assert entry.text == "Bo (singer)\nBo was born in Oslo. He sang."
    (line,) = shown(entry)
    assert (line.id, line.text) == ("Bo (singer)", "Bo was born in Oslo. He sang.")


def test_a_chunk_without_a_title_is_no_entry_rather_than_an_empty_text():
    with pytest.raises(ValueError, match="'bo#0' is no entry: 'Bo sang.'"):
        shown(Chunk("bo#0", "bo", "Bo sang.", 2))
    assert [line.text for line in shown(page_entry("Bo", ""))] == [""]


def test_empty_and_missing_sentences_keep_their_numbers():
    gaps = {0: "One.", 2: " ", 4: "Five.", 9: "Ten."}
    entries = entries_of_sentences("Bo", gaps)
    assert [e.id for e in entries] == [
        "Bo_sentences_0_2",
        "Bo_sentences_3_5",
        "Bo_sentences_9_11",
    ]
    lines = [(line.id, line.text) for e in entries for line in shown(e)]
    assert lines == [
        ("Bo_sentence_0", "One."),
        ("Bo_sentence_4", "Five."),
        ("Bo_sentence_9", "Ten."),
    ]


def test_another_heading_stands_in_the_text_and_not_in_the_id():
    (entry,) = entries_of_sentences("doc_id=7", ["Mice age."], "On mice\nand age")
    assert entry.text == "On mice and age\nMice age."
    assert shown(entry)[0].id == "doc_id=7_sentence_0"


@given(st.lists(st.text(max_size=20), max_size=20), st.text(min_size=1, max_size=20))
def test_what_is_shown_is_every_sentence_with_a_word_once(page, title):
    assume(page_id(title))
    entries = entries_of_sentences(title, page)
    said = [line for entry in entries for line in shown(entry)]
    flat = {i: " ".join(s.split()) for i, s in enumerate(page)}
    wanted = {sentence_id(title, i): s for i, s in flat.items() if s}
    assert [(line.id, line.text) for line in said] == list(wanted.items())
    for entry in entries:
        for line in shown(entry):
            assert entry_of(line.id) == entry.id
            assert page_of(line.id) == entry.doc_id == page_id(title)


@given(st.text(max_size=20))
def test_no_id_ends_early_between_its_brackets(title):
    assert not set("[]\n") & set(page_id(title))
    assert unicodedata.is_normalized("NFC", page_id(title))
    assert page_id(page_id(title)) == page_id(title)


def test_evidence_says_its_page_and_its_entry():
    for evidence, entry, page in (
        ("NME_sentence_2", "NME_sentences_0_2", "NME"),
        ("NME_sentence_213", "NME_sentences_213_215", "NME"),
        ("A_sentence_1_sentence_7", "A_sentence_1_sentences_6_8", "A_sentence_1"),
        ("Vin Diesel", "Vin Diesel", "Vin Diesel"),
        ("The sentence_2", "The sentence_2", "The sentence_2"),
    ):
        assert (entry_of(evidence), page_of(evidence)) == (entry, page)
    composed, decomposed = "Sucré", unicodedata.normalize("NFD", "Sucré")
    assert sentence_id(composed, 4) == sentence_id(decomposed, 4)


def test_a_document_is_split_into_sentences():
    text = "Dr. Bo lives in Oslo. He sang in 1.5 hours. He wrote.\nHe died."
    entries = document_entries(Document("bo", "Bo", text, "test"))
    assert [e.id for e in entries] == ["Bo_sentences_0_2", "Bo_sentences_3_5"]
    assert shown(entries[0])[0].text == "Dr. Bo lives in Oslo."
    assert entry_of_sentence("Bo", 3) == entries[1].id


@needs_data
def test_the_published_evidence_is_sentences_of_feverous_and_pages_of_exfever():
    path = str(DATA / "veri_r1/train_online.slim.jsonl.gz")
    examples, _ = claim_benchmarks.load("veri_r1", path)
    forms = Counter(
        (e.meta["set"], "page" if page_of(i) == i == entry_of(i) else "sentence")
        for e in examples
        for i in e.evidence
    )
    assert forms == {("feverous", "sentence"): 7216, ("exfever", "page"): 7964}
