"""The corpus, its chunks, and that two BM25 libraries give one ranking."""

from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tokenizers import byte_level, of_words

from factkit.data.bm25 import (
    CorpusIndex,
    PromptIndex,
    answer_in_chunks,
    tokenize,
    top_k,
)
from factkit.data.corpus import Chunk, Document, chunk_documents, load_leads

PAGES = [
    "The red fox jumps. The fox sleeps in the den.",
    "A den is where the fox and the badger sleep.",
    "Iron is a metal; the symbol is Fe.",
    "Iron is a metal; the symbol is Fe.",
    "Gold, the metal, is a chemical element.",
]
INDEXES = [CorpusIndex, PromptIndex]
BYTES, SPLIT = byte_level(), of_words("[UNK]")


def document(text: str) -> Document:
    return Document("d", "d", text, "test")


def chunks_of(texts: list[str]) -> list[Chunk]:
    return [Chunk(f"d{i}#0", f"d{i}", t, 1) for i, t in enumerate(texts)]


def ids(hits) -> list[str]:
    return [hit.chunk.id for hit in hits]


# ---- corpus


@pytest.mark.assets
def test_embedded_leads_are_the_10033_expected_in_plain_characters():
    leads = load_leads()
    assert len(leads) == len({d.id for d in leads}) == 10_033
    assert {d.source for d in leads} == {"Wikipedia, CC BY-SA 4.0"}
    assert all(d.title and d.text == d.text.strip() != "" for d in leads)
    odd = set("\u00a0\u202f\u2009\u200a\u2060\u200d")
    assert not [d.id for d in leads if odd & {*d.text, *d.meta["description"]}]


# ---- chunks

texts = st.text(st.sampled_from("the fox\n.é日🦊\u0301 "), max_size=80)


@given(text=texts, size=st.integers(5, 20), data=st.data())
def test_chunks_keep_to_their_size_and_lose_or_change_nothing(text, size, data):
    chunks = chunk_documents([document(text)], BYTES, size)
    assert "".join(c.text for c in chunks) == text
    assert sum(c.n_tokens for c in chunks) == len(BYTES(text)["input_ids"])
    overlap = data.draw(st.integers(0, size - 1))
    chunks = chunk_documents([document(text)], BYTES, size, overlap)
    assert all(c.text in text and 1 <= c.n_tokens <= size for c in chunks)


@given(n=st.integers(0, 60), size=st.integers(1, 12), data=st.data())
def test_consecutive_chunks_share_exactly_the_overlap(n, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    words = [f"w{i}" for i in range(n)]
    chunks = chunk_documents([document(" ".join(words))], SPLIT, size, overlap)
    pieces = [c.text.split() for c in chunks]
    for left, right in zip(pieces, pieces[1:], strict=False):
        assert left[len(left) - overlap :] == right[:overlap]
    assert list(dict.fromkeys(w for piece in pieces for w in piece)) == words
    assert [c.id for c in chunks] == [f"d#{i}" for i in range(len(chunks))]


# ---- words and BM25


@pytest.mark.parametrize("index", INDEXES)
def test_score_equals_the_formula_by_hand(index):
    # N = 2, L = 2: "fox" is in one chunk of 3 words, twice; "den" is in both
    chunks = chunks_of(["fox fox den", "den"])
    length = 1 - 0.75 + 0.75 * 3 / 2
    fox = log(3 / 1) * 2 * 2.5 / (2 + 1.5 * length)
    den = log(3 / 2) * 1 * 2.5 / (1 + 1.5 * length)
    hits = index(chunks).search("fox den", 2)
    assert hits[0].score == pytest.approx(fox + den)
    assert ids(hits) == ["d0#0", "d1#0"]  # a word in every chunk counts, too


@settings(max_examples=50)
@given(
    pages=st.lists(st.lists(st.sampled_from("abcdef"), max_size=12), max_size=12),
    query=st.lists(st.sampled_from("abcdefg"), max_size=6),
    k=st.integers(1, 15),
)
def test_both_libraries_give_equal_hits(pages, query, k):
    chunks = chunks_of([" ".join(p) for p in pages])
    corpus = CorpusIndex(chunks).search(" ".join(query), k)
    assert corpus == PromptIndex(chunks).search(" ".join(query), k)


@pytest.mark.parametrize("index", INDEXES)
def test_equal_scores_rank_in_the_order_of_the_chunks_also_at_the_last_place(index):
    chunks = chunks_of(PAGES * 20)
    hits = index(chunks).search("the metal", 100)
    place = {chunk.id: i for i, chunk in enumerate(chunks)}
    assert hits == sorted(hits, key=lambda hit: (-hit.score, place[hit.chunk.id]))
    assert ids(index(chunks_of(PAGES)).search("iron", 1)) == ["d2#0"]


# ---- answers in chunks


def test_answer_is_found_as_a_row_of_whole_words_in_one_chunk():
    for answers, text, there in (
        (["New York"], "He lives in new york.", True),
        (["New York"], "A new city, not York.", False),
        (["art"], "the party", False),
        (["António Guterres"], "Antonio Guterres spoke", True),
        (["yes"], "yes, it is so", False),
        (["yes man"], "a yes man", True),
    ):
        chunks = chunks_of(["other", text])
        assert answer_in_chunks(answers, chunks) is there, (answers, text)
    assert not answer_in_chunks(["New York"], chunks_of(["in New", "York"]))


FOREIGN = {  # a text: what it is found by
    "İstanbul lies on two continents": "Istanbul|istanbul|İSTANBUL",
    "Malmö and Łódź are cities": "Malmo|Lodz|MALMÖ",
    "Die Straße der Ægir": "strasse|Aegir",
    "東京は日本の首都です": "東京|日本の首都",
    "北京是中国的首都": "北京|中国",
    "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย": "กรุงเทพ|ประเทศไทย",
    "दिल्ली भारत की राजधानी है": "दिल्ली",
}


@pytest.mark.parametrize("index", INDEXES)
def test_texts_are_found_without_diacritics_and_without_spaces(index):
    chunks = [Chunk(text, "d", text, 1) for text in FOREIGN]
    found = index(chunks)
    for text, queries in FOREIGN.items():
        for query in queries.split("|"):
            assert found.search(query, 1)[0].chunk.id == text, query


def test_ascii_text_has_its_words_in_lower_case_and_other_names_are_one_word():
    assert tokenize("It's A_1 (Ab-2)!") == ["it", "s", "a_1", "ab", "2"]
    assert tokenize("Shikoku (四国地方) in Japan")[1] == "四国地方"
    chunk = Chunk("d", "d", "He studied at 北京大学 in Beijing.", 1)
    assert answer_in_chunks(["北京大学"], [chunk])
    assert not answer_in_chunks(["南京大学"], [chunk])


def test_the_best_scores_of_many_come_first_and_ties_in_their_order():
    rng = np.random.default_rng(0)
    for n in (1, 63, 640, 5001):
        scores = rng.integers(0, 30, n).astype(float)
        order = sorted(range(n), key=lambda i: (-scores[i], i))
        for k in (1, 9, 10, 700):
            assert top_k(scores, k).tolist() == order[:k]
            positive = [i for i in order[:k] if scores[i] >= 1]
            assert top_k(scores, k, least=1.0).tolist() == positive
