"""The corpus, its chunks, and that two BM25 libraries give one ranking."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factkit import assets
from factkit.corpus import Document, load_leads
from factkit.datasets.examples import DataError, Example
from factkit.retrieval import bm25 as retrieval
from factkit.retrieval.bm25 import (
    CorpusIndex,
    PromptIndex,
    answer_in_chunks,
    recall_at_k,
    tokenize,
)
from factkit.retrieval.chunks import Chunk, chunk_documents

PAGES = [
    "The red fox jumps. The fox sleeps in the den.",
    "A den is where the fox and the badger sleep.",
    "Iron is a metal; the symbol is Fe.",
    "Iron is a metal; the symbol is Fe.",
    "Gold, the metal, is a chemical element.",
]
INDEXES = [CorpusIndex, PromptIndex]


@pytest.fixture(autouse=True)
def own_cache(request, tmp_path, monkeypatch):
    """Tests on real assets use the user's cache, the others an empty one."""
    if "assets" not in request.keywords:
        monkeypatch.setenv("FACTKIT_CACHE", str(tmp_path))


@pytest.fixture(scope="module")
def byte_tokenizer():
    """A byte-level tokenizer, as SmolLM2's: a character outside ASCII is 2–4 tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate([*alphabet, "th", "the", "Ġt"])}
    merges = [("t", "h"), ("th", "e"), ("Ġ", "t")]
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=backend)


@pytest.fixture(scope="module")
def word_tokenizer():
    """A word-level tokenizer, as profile tiny's: whitespace belongs to no token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def document(text: str) -> Document:
    return Document("d", "d", text, "test")


def chunks_of(texts: list[str]) -> list[Chunk]:
    return [Chunk(f"d{i}#0", f"d{i}", t, 1) for i, t in enumerate(texts)]


def ids(hits) -> list[str]:
    return [hit.chunk.id for hit in hits]


# ---- corpus


def write_corpus(tmp_path, **row):
    good = {"title": "Iron", "extract": "A metal.", "description": "", "topic": "T"}
    path = tmp_path / "leads.json"
    path.write_text(json.dumps({"Iron": good | row}))
    return path


def test_leads_have_plain_spaces_and_no_invisible_joiners(tmp_path):
    path = write_corpus(tmp_path, extract="10\u00a0km\u202fa\u2060b")
    assert load_leads(path)[0].text == "10 km ab"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff", "not UTF-8 at byte 0"),
        (b'{"a": 1,', "line 1: not JSON"),
        (b"[]", "top level is a list"),
        (b"{}", "no document"),
        (b'{"Iron": "text"}', "row 'Iron': title, extract, description, topic missing"),
    ],
)
def test_malformed_corpus_is_refused_with_file_and_place(tmp_path, content, message):
    path = tmp_path / "leads.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"leads.json.*{message}"):
        load_leads(path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"extract": " \u00a0"}, "row 'Iron': empty extract"),
        ({"topic": None}, "row 'Iron': topic missing or not text"),
        ({"extract": "\ud800"}, "row 'Iron': .* is half a character"),
    ],
)
def test_bad_row_of_corpus_is_refused_by_name(tmp_path, row, message):
    with pytest.raises(DataError, match=message):
        load_leads(write_corpus(tmp_path, **row))


def test_missing_corpus_is_refused_by_path(tmp_path):
    with pytest.raises(DataError, match="absent.json"):
        load_leads(tmp_path / "absent.json")


@pytest.mark.assets
def test_embedded_leads_are_the_10033_expected():
    leads = load_leads()
    assert len(leads) == len({d.id for d in leads}) == 10_033


@pytest.mark.assets
def test_embedded_leads_name_their_licence():
    assert {d.source for d in load_leads()} == {"Wikipedia, CC BY-SA 4.0"}


# ---- chunks

texts = st.text(st.sampled_from("the fox\n.é日🦊\u0301 "), max_size=80)


@given(text=texts, size=st.integers(5, 20))
def test_chunks_without_overlap_restore_the_text(byte_tokenizer, text, size):
    chunks = chunk_documents([document(text)], byte_tokenizer, size)
    assert "".join(c.text for c in chunks) == text


@given(text=texts, size=st.integers(1, 20))
def test_no_whitespace_between_words_is_lost(word_tokenizer, text, size):
    chunks = chunk_documents([document(text)], word_tokenizer, size)
    assert "".join(c.text for c in chunks) == (text if text.strip() else "")


@given(text=texts, size=st.integers(5, 20), data=st.data())
def test_chunks_keep_within_their_size(byte_tokenizer, text, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    chunks = chunk_documents([document(text)], byte_tokenizer, size, overlap)
    assert all(1 <= c.n_tokens <= size for c in chunks)


@given(text=texts, size=st.integers(5, 20))
def test_no_token_is_lost_or_counted_twice(byte_tokenizer, text, size):
    chunks = chunk_documents([document(text)], byte_tokenizer, size)
    n_tokens = len(byte_tokenizer(text)["input_ids"])
    assert sum(c.n_tokens for c in chunks) == n_tokens


@given(text=texts, size=st.integers(5, 20), data=st.data())
def test_chunks_are_substrings_of_the_document(byte_tokenizer, text, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    chunks = chunk_documents([document(text)], byte_tokenizer, size, overlap)
    assert all(c.text in text for c in chunks)


@given(n=st.integers(0, 60), size=st.integers(1, 12), data=st.data())
def test_consecutive_chunks_share_exactly_the_overlap(word_tokenizer, n, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    words = [f"w{i}" for i in range(n)]
    text = document(" ".join(words))
    pieces = [
        c.text.split() for c in chunk_documents([text], word_tokenizer, size, overlap)
    ]
    for left, right in zip(pieces, pieces[1:], strict=False):
        assert left[len(left) - overlap :] == right[:overlap]
    assert list(dict.fromkeys(w for piece in pieces for w in piece)) == words


def test_chunk_ids_count_within_the_document(word_tokenizer):
    chunks = chunk_documents([document("a b c")], word_tokenizer, 2)
    assert [(c.id, c.doc_id, c.text) for c in chunks] == [
        ("d#0", "d", "a b "),
        ("d#1", "d", "c"),
    ]


def test_no_documents_give_no_chunks(word_tokenizer):
    assert chunk_documents([], word_tokenizer, 8) == []


@pytest.mark.parametrize(
    ("size", "overlap", "message"),
    [(8, 8, "overlap=8"), (8, -1, "overlap=-1"), (0, 0, "chunk_tokens=0")],
)
def test_impossible_chunk_size_is_refused_by_value(
    word_tokenizer, size, overlap, message
):
    with pytest.raises(ValueError, match=message):
        chunk_documents([document("a")], word_tokenizer, size, overlap)


def test_overlap_begins_at_a_whole_character(byte_tokenizer):
    chunks = chunk_documents([document("🦊🐦🐟🐛")], byte_tokenizer, 8, overlap=5)
    assert [(c.text, c.n_tokens) for c in chunks] == [
        *(("🦊🐦", 8), ("🐦🐟", 8), ("🐟🐛", 8))
    ]


def test_character_larger_than_a_chunk_is_refused(byte_tokenizer):
    with pytest.raises(ValueError, match="chunk_tokens=3 .*'d', character 1"):
        chunk_documents([document("a🦊")], byte_tokenizer, 3)


@pytest.mark.assets
def test_real_chunks_tokenized_alone_keep_their_size():
    from transformers import AutoTokenizer

    policy = assets.policy_path("smollm2-135m-instruct")
    tokenizer = AutoTokenizer.from_pretrained(policy)
    for chunk in chunk_documents(load_leads()[::25], tokenizer, 64, overlap=8):
        alone = tokenizer(chunk.text, add_special_tokens=False)["input_ids"]
        assert len(alone) == chunk.n_tokens


# ---- words and BM25


def test_words_are_casefolded_and_split_at_punctuation():
    assert tokenize("Straße, H₂O — the NAÏVE fox's") == [
        *("strasse", "h2o", "the", "naïve", "fox", "s")
    ]


@pytest.mark.parametrize("index", INDEXES)
def test_score_equals_the_formula_by_hand(index):
    from math import log

    # N = 2, L = 2: "fox" is in one chunk of 3 words, twice; "den" is in both
    chunks = chunks_of(["fox fox den", "den"])
    length = 1 - 0.75 + 0.75 * 3 / 2
    fox = log(3 / 1) * 2 * 2.5 / (2 + 1.5 * length)
    den = log(3 / 2) * 1 * 2.5 / (1 + 1.5 * length)
    assert index(chunks).search("fox den", 1)[0].score == pytest.approx(fox + den)


@settings(max_examples=50)
@given(
    pages=st.lists(st.lists(st.sampled_from("abcdef"), max_size=12), max_size=12),
    query=st.lists(st.sampled_from("abcdefg"), max_size=6),
    k=st.integers(1, 15),
)
def test_both_libraries_give_equal_hits(pages, query, k):
    chunks = chunks_of([" ".join(p) for p in pages])
    corpus = CorpusIndex(chunks, cache=False).search(" ".join(query), k)
    assert corpus == PromptIndex(chunks).search(" ".join(query), k)


@pytest.mark.assets
def test_both_libraries_give_equal_hits_on_real_text():
    leads = load_leads()[::10]
    chunks = [Chunk(f"{d.id}#0", d.id, d.text, 1) for d in leads]
    corpus, prompt = CorpusIndex(chunks, cache=False), PromptIndex(chunks)
    for lead in random.Random(0).sample(leads, 20):
        query = " ".join(lead.text.split()[:40])
        assert corpus.search(query, 50) == prompt.search(query, 50)


@pytest.mark.parametrize("index", INDEXES)
def test_equal_scores_rank_in_the_order_of_the_chunks(index):
    chunks = chunks_of(PAGES * 20)
    hits = index(chunks).search("the metal", 100)
    place = {chunk.id: i for i, chunk in enumerate(chunks)}
    assert hits == sorted(hits, key=lambda hit: (-hit.score, place[hit.chunk.id]))


@pytest.mark.parametrize("index", INDEXES)
def test_tie_at_the_last_place_goes_to_the_earlier_chunk(index):
    assert ids(index(chunks_of(PAGES)).search("iron", 1)) == ["d2#0"]


@pytest.mark.parametrize("index", INDEXES)
def test_word_in_every_chunk_still_counts(index):
    hits = index(chunks_of(["fox fox", "fox den den den"])).search("fox", 2)
    assert ids(hits) == ["d0#0", "d1#0"]


@pytest.mark.parametrize("index", INDEXES)
def test_fewer_hits_than_k_where_fewer_chunks_share_a_word(index):
    assert ids(index(chunks_of(PAGES)).search("fox", 100)) == ["d0#0", "d1#0"]


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("query", ["", "  ?! ", "unheardof"])
def test_query_without_known_words_finds_nothing(index, query):
    assert index(chunks_of(PAGES)).search(query, 3) == []


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("texts", [[], ["", " … "]])
def test_index_without_words_finds_nothing(index, texts):
    assert index(chunks_of(texts)).search("fox", 3) == []


@pytest.mark.parametrize("index", INDEXES)
def test_k_below_one_is_refused_by_value(index):
    with pytest.raises(ValueError, match="k=0"):
        index([]).search("fox", 0)


# ---- cache


def test_cached_index_gives_the_hits_of_a_fresh_one():
    chunks = chunks_of(PAGES)
    CorpusIndex(chunks)
    fresh = CorpusIndex(chunks, cache=False).search("the fox and the metal", 5)
    assert CorpusIndex(chunks).search("the fox and the metal", 5) == fresh


def test_second_index_over_the_same_text_is_not_built_again(monkeypatch):
    CorpusIndex(chunks_of(PAGES))
    monkeypatch.setattr(retrieval, "tokenize", lambda text: pytest.fail("built again"))
    CorpusIndex(chunks_of(PAGES))


def test_other_text_does_not_open_the_cached_index():
    CorpusIndex(chunks_of(["ab", "c"]))
    assert ids(CorpusIndex(chunks_of(["a", "bc"])).search("bc", 1)) == ["d1#0"]


def test_save_broken_off_midway_leaves_no_index_behind(monkeypatch):
    import bm25s

    def break_off(bm25, folder, **_):
        folder.mkdir(parents=True)
        (folder / "vocab.index.json").write_text('{"gold')
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(bm25s.BM25, "save", break_off)
        with pytest.raises(OSError, match="disk full"):
            CorpusIndex(chunks_of(PAGES))
    assert ids(CorpusIndex(chunks_of(PAGES)).search("gold", 1)) == ["d4#0"]


# ---- answers in chunks


@pytest.mark.parametrize(
    ("answers", "text", "found"),
    [
        (["New York"], "He lives in new york.", True),
        (["New York"], "A new city, not York.", False),
        (["the Beatles"], "Songs by Beatles fans", True),
        (["Beatles"], "the Beat-les", False),
        (["art"], "the party", False),
        (["António Guterres"], "Antonio Guterres spoke", True),
        (["3,677"], "seats 3,677 people", True),
        (["x", "Oslo"], "in Oslo", True),
        (["yes"], "yes, it is so", False),
        (["No"], "no one", False),
        (["yes man"], "a yes man", True),
        (["The"], "the fox", False),
        ([""], "the fox", False),
        ([], "the fox", False),
    ],
)
def test_answer_is_found_as_a_row_of_whole_words(answers, text, found):
    assert answer_in_chunks(answers, chunks_of(["other", text])) is found


def test_answer_across_two_chunks_is_not_found():
    assert not answer_in_chunks(["New York"], chunks_of(["in New", "York"]))


# ---- recall


def example(question: str, *evidence: str) -> Example:
    return Example(
        id=question, question=question, answers=["x"], entity="e", evidence=[*evidence]
    )


def test_recall_counts_examples_with_any_gold_document_in_the_top_k():
    examples = [
        example("badger", "d1"),  # first
        example("iron symbol", "d3"),  # second, after its equal
        example("fox", "d4"),  # not found
        example("chemical gold", "d0", "d4"),  # one of two
    ]
    recall = recall_at_k(PromptIndex(chunks_of(PAGES)), examples, [1, 2])
    assert recall == {1: 0.5, 2: 0.75}


def test_recall_without_evidence_names_the_example():
    with pytest.raises(ValueError, match="example fox has no evidence"):
        recall_at_k(PromptIndex([]), [example("fox")], [1])


def test_recall_of_no_examples_is_refused():
    with pytest.raises(ValueError, match="at least one example"):
        recall_at_k(PromptIndex([]), [], [1])
