"""The dense index: exact hits, embeddings computed once, and what a kill leaves."""

import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factkit.data import assets, dense
from factkit.data.corpus import Chunk
from factkit.data.dense import DenseIndex, Encoder
from factkit.run import params


@pytest.fixture(autouse=True)
def own_cache(request, tmp_path, monkeypatch):
    """Tests on real assets use the user's cache, the others an empty one."""
    monkeypatch.setattr(dense, "BLOCK", 2)
    if "assets" not in request.keywords:
        monkeypatch.setenv("FACTKIT_CACHE", str(tmp_path))


def chunks_of(texts: list[str]) -> list[Chunk]:
    return [Chunk(f"d{i}#0", f"d{i}", t, 1) for i, t in enumerate(texts)]


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


@settings(max_examples=25, deadline=None)
@given(texts=letters, query=st.text("abch", min_size=1), k=st.integers(1, 25))
def test_dense_hits_are_those_of_one_product_whatever_the_block(texts, query, k):
    chunks, encoder = chunks_of(texts), LetterEncoder()
    vectors = encoder.queries([*texts, query]).astype(np.float16).astype(float)
    scores = vectors[:-1] @ vectors[-1]
    order = sorted(range(len(texts)), key=lambda i: (-scores[i], i))[:k]
    for block in (1, 3, 100):
        dense.BLOCK = block
        hits, none = DenseIndex(chunks, encoder).search_all([query, " ?! "], k)
        assert [(h.chunk, h.score) for h in hits] == [
            (chunks[i], scores[i]) for i in order
        ]
        assert none == []


TEXTS = ["ab", "bc", "cd", "de", "ef"]
KILLED = """
import os, signal, sys
sys.path.insert(0, "tests")
from test_dense import TEXTS, LetterEncoder, chunks_of
from factkit.data import dense

class Killed(LetterEncoder):
    def passages(self, texts):
        if self.encoded:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().passages(texts)

dense.BLOCK = 2
dense.DenseIndex(chunks_of(TEXTS), Killed())
"""


def test_a_killed_build_goes_on_to_the_same_bytes_and_no_text_is_embedded_twice(
    tmp_path, monkeypatch
):
    chunks = chunks_of(TEXTS)
    monkeypatch.setenv("FACTKIT_CACHE", str(tmp_path / "through"))
    DenseIndex(chunks, LetterEncoder())
    monkeypatch.setenv("FACTKIT_CACHE", str(tmp_path / "killed"))
    done = subprocess.run(
        [sys.executable, "-c", KILLED], cwd=params.ROOT, capture_output=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert len(part_bytes(tmp_path / "killed")) == 1
    for texts in (["cd", "de", "ef"], []):
        encoder = LetterEncoder()
        index = DenseIndex(chunks, encoder)
        assert encoder.encoded == texts
    assert part_bytes(tmp_path / "killed") == part_bytes(tmp_path / "through")
    assert [(p.dtype, p.shape) for p in index._parts] == [
        *((np.float16, (2, 8)), (np.float16, (2, 8)), (np.float16, (1, 8)))
    ]


def test_an_index_of_other_texts_or_another_encoder_is_not_opened():
    DenseIndex(chunks_of(["ab", "c"]), LetterEncoder())
    encoder = LetterEncoder()
    DenseIndex(chunks_of(["a", "bc"]), encoder)
    assert encoder.encoded == ["a", "bc"]
    encoder.key = "other"
    DenseIndex(chunks_of(["ab", "c"]), encoder)
    assert encoder.encoded == ["a", "bc", "ab", "c"]


class Corpus:
    """A corpus that is read anew each time, and counts what is read of it."""

    def __init__(self, texts):
        self.texts, self.read = texts, 0

    def __iter__(self):
        for chunk in chunks_of(self.texts):
            self.read += 1
            yield chunk


def test_a_corpus_on_disk_is_encoded_as_it_is_read_and_known_by_its_key(monkeypatch):
    monkeypatch.setenv("TQDM_DISABLE", "1")  # as in a batch
    corpus, read = Corpus(TEXTS), []

    class Reading(LetterEncoder):
        def passages(self, texts):
            read.append(corpus.read)
            return super().passages(texts)

    index = DenseIndex(corpus, Reading(), "one")
    assert read == [2, 4, 5]  # a part, and it is encoded
    corpus.read = 0
    again = DenseIndex(corpus, Reading(), "one")
    assert corpus.read == 0 and len(read) == 3
    for k in (1, 3):
        hits = again.search_all(["a", "cd", "fa"], k)
        whole = DenseIndex(chunks_of(TEXTS), LetterEncoder())
        assert hits == index.search_all(["a", "cd", "fa"], k)
        assert hits == whole.search_all(["a", "cd", "fa"], k)
    corpus.read = 0
    again.search_all(["ab"], 1)
    assert corpus.read == 1  # up to the last hit
    DenseIndex(Corpus(TEXTS), Reading(), "two")
    assert len(read) == 6


@pytest.fixture(scope="module")
def minilm():
    return Encoder(assets.embedder_path())


@pytest.mark.assets
def test_embedding_is_the_mean_over_the_texts_own_tokens(minilm):
    import torch

    model, tokenizer = minilm._loaded
    with torch.inference_mode():
        hidden = model(**tokenizer("a fox", return_tensors="pt")).last_hidden_state[0]
    mean = hidden.mean(0) / hidden.mean(0).norm()
    padded = minilm.passages(["a fox", "a much longer text of many more words"])[0]
    assert padded == pytest.approx(mean.numpy(), abs=1e-5)
