"""The corpus, its chunks, and that two BM25 libraries give one ranking."""

import json
import random
import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factkit import assets, params, retrieval
from factkit.corpus import Document, load_leads
from factkit.datasets.examples import DataError, Example
from factkit.retrieval import (
    Chunk,
    CorpusIndex,
    DenseIndex,
    Encoder,
    PromptIndex,
    answer_in_chunks,
    chunk_documents,
    recall_at_k,
    tokenize,
)

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


# ---- dense


class LetterEncoder:
    """Embeds a text by its counts of the letters a to h, normalised."""

    key, device = "letters", "cpu"

    def __init__(self):
        self.encoded = []

    def queries(self, texts):
        counts = np.array([[t.count(c) for c in "abcdefgh"] for t in texts], float)
        norms = np.linalg.norm(counts, axis=1, keepdims=True)
        return (counts / np.maximum(norms, 1)).astype(np.float32)

    def passages(self, texts):
        self.encoded += texts
        return self.queries(texts)


def part_bytes(tmp_path):
    return {p.name: p.read_bytes() for p in (tmp_path / "dense").glob("*/*.npy")}


letters = st.lists(st.text("abcdefgh", min_size=1, max_size=6), max_size=20)


@settings(max_examples=50, deadline=None)
@given(texts=letters, query=st.text("abch", min_size=1), k=st.integers(1, 25))
def test_dense_hits_are_those_of_one_product_whatever_the_block(texts, query, k):
    chunks, encoder = chunks_of(texts), LetterEncoder()
    vectors = encoder.queries([*texts, query]).astype(np.float16).astype(float)
    scores = vectors[:-1] @ vectors[-1]
    order = sorted(range(len(texts)), key=lambda i: (-scores[i], i))[:k]
    for block in (1, 3, 100):
        hits = DenseIndex(chunks, encoder, block=block).search(query, k)
        assert [(h.chunk, h.score) for h in hits] == [
            (chunks[i], scores[i]) for i in order
        ]


def test_dense_ties_rank_in_the_order_of_the_chunks_across_blocks():
    index = DenseIndex(chunks_of(["b", "a", "b", "a", "b"]), LetterEncoder(), block=2)
    assert ids(index.search("b", 3)) == ["d0#0", "d2#0", "d4#0"]
    assert ids(index.search("b", 2)) == ["d0#0", "d2#0"]


def test_dense_search_of_many_queries_equals_one_by_one():
    index = DenseIndex(chunks_of(["ab", "bc", "ca", "dd"]), LetterEncoder(), block=3)
    queries = ["a", "", "cd", "?!"]
    assert index.search_all(queries, 2) == [index.search(q, 2) for q in queries]


@pytest.mark.parametrize("query", ["", "  ?! "])
def test_dense_query_without_words_finds_nothing(query):
    assert DenseIndex(chunks_of(["a"]), LetterEncoder()).search(query, 3) == []


def test_dense_index_without_chunks_finds_nothing():
    assert DenseIndex([], LetterEncoder()).search("a", 3) == []


def test_dense_k_below_one_is_refused_by_value():
    with pytest.raises(ValueError, match="k=0"):
        DenseIndex([], LetterEncoder()).search("a", 0)


def test_dense_block_below_one_is_refused_by_value():
    with pytest.raises(ValueError, match="block=0"):
        DenseIndex([], LetterEncoder(), block=0)


def test_dense_embeddings_are_float16_on_disk_and_not_computed_again(tmp_path):
    chunks = chunks_of(["ab", "bc", "cd"])
    DenseIndex(chunks, LetterEncoder(), block=2)
    again = LetterEncoder()
    index = DenseIndex(chunks, again, block=2)
    assert again.encoded == []
    assert [(p.dtype, p.shape) for p in index._parts] == [
        (np.float16, (2, 8)),
        (np.float16, (1, 8)),
    ]
    assert all(isinstance(part, np.memmap) for part in index._parts)


@pytest.mark.parametrize("change", ["text", "encoder", "block"])
def test_dense_index_of_another_kind_is_not_opened(change):
    DenseIndex(chunks_of(["ab", "c"]), LetterEncoder(), block=2)
    texts = ["a", "bc"] if change == "text" else ["ab", "c"]
    encoder = LetterEncoder()
    encoder.key = "other" if change == "encoder" else encoder.key
    DenseIndex(chunks_of(texts), encoder, block=1 if change == "block" else 2)
    assert encoder.encoded == texts


KILLED = """
import os, signal, sys
sys.path.insert(0, "tests")
from test_retrieval import LetterEncoder, chunks_of
from factkit.retrieval import DenseIndex

class Killed(LetterEncoder):
    def passages(self, texts):
        if self.encoded:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().passages(texts)

DenseIndex(chunks_of(["ab", "bc", "cd", "de", "ef"]), Killed(), block=2)
"""


def test_killed_dense_build_goes_on_to_the_same_bytes(tmp_path, monkeypatch):
    chunks = chunks_of(["ab", "bc", "cd", "de", "ef"])
    monkeypatch.setenv("FACTKIT_CACHE", str(tmp_path / "through"))
    DenseIndex(chunks, LetterEncoder(), block=2)
    monkeypatch.setenv("FACTKIT_CACHE", str(tmp_path / "killed"))
    done = subprocess.run(
        [sys.executable, "-c", KILLED], cwd=params.ROOT, capture_output=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert len(part_bytes(tmp_path / "killed")) == 1
    encoder = LetterEncoder()
    DenseIndex(chunks, encoder, block=2)
    assert encoder.encoded == ["cd", "de", "ef"]
    assert part_bytes(tmp_path / "killed") == part_bytes(tmp_path / "through")


def test_dense_part_broken_off_midway_leaves_none_behind(tmp_path, monkeypatch):
    def break_off(file, array):
        file.write(b"half")
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", break_off)
        with pytest.raises(OSError, match="disk full"):
            DenseIndex(chunks_of(["ab"]), LetterEncoder())
    assert part_bytes(tmp_path) == {}
    index = DenseIndex(chunks_of(["ab"]), LetterEncoder())
    assert ids(index.search("a", 1)) == ["d0#0"]


@pytest.mark.parametrize(
    ("model", "prefixes"),
    [
        ("intfloat/e5-base-v2", ("query: ", "passage: ")),
        ("/hub/models--intfloat--e5-base-v2/snapshots/1c", ("query: ", "passage: ")),
        ("intfloat/multilingual-E5-large", ("query: ", "passage: ")),
        ("/cache/a3e5f/all-MiniLM-L6-v2", ("", "")),
    ],
)
def test_prefixes_follow_the_models_name(model, prefixes):
    encoder = Encoder(model)
    assert (encoder.query_prefix, encoder.passage_prefix) == prefixes


def test_given_prefixes_go_before_the_models_own():
    encoder = Encoder("intfloat/e5-base-v2", query_prefix="", passage_prefix="text: ")
    assert (encoder.query_prefix, encoder.passage_prefix) == ("", "text: ")


@pytest.mark.parametrize("change", [{"passage_prefix": "p: "}, {"max_tokens": 9}])
def test_encoder_key_tells_what_changes_an_embedding(change):
    assert Encoder("model", **change).key != Encoder("model").key


@pytest.fixture(scope="module")
def minilm():
    return Encoder(assets.embedder_path())


@pytest.mark.assets
def test_embeddings_are_unit_vectors_in_the_order_of_the_texts(minilm):
    texts = ["a fox", "iron is a metal", "a fox", "the long tale of a brown fox"]
    vectors = minilm.passages(texts)
    assert vectors.shape == (4, 384)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert (vectors[0] == vectors[2]).all()
    assert vectors[0] @ vectors[3] > vectors[0] @ vectors[1]


@pytest.mark.assets
def test_embedding_is_the_mean_over_the_texts_own_tokens(minilm):
    import torch

    model, tokenizer = minilm._loaded
    with torch.inference_mode():
        hidden = model(**tokenizer("a fox", return_tensors="pt")).last_hidden_state[0]
    mean = hidden.mean(0) / hidden.mean(0).norm()
    padded = minilm.passages(["a fox", "a much longer text of many more words"])[0]
    assert padded == pytest.approx(mean.numpy(), abs=1e-5)


@pytest.mark.assets
def test_dense_recall_of_descriptions_among_200_leads(minilm, tmp_path, monkeypatch):
    monkeypatch.setenv("FACTKIT_CACHE", str(tmp_path))
    leads = [lead for lead in load_leads()[::50] if lead.meta["description"]]
    chunks = [Chunk(f"{d.id}#0", d.id, d.text[:400], 1) for d in leads]
    examples = [
        Example(
            id=d.id,
            question=d.meta["description"],
            answers=[d.title],
            entity=d.title,
            evidence=[d.id],
        )
        for d in leads
    ]
    recall = recall_at_k(DenseIndex(chunks, minilm), examples, [1, 5])
    assert len(leads) > 190
    assert recall[1] > 0.8
    assert recall[5] > 0.9


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
