"""Search by a text encoder: exact, also over a corpus that does not fit in memory.

TruthRL App. C retrieves with E5 over Wikipedia of 2018.
"""

import os
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from factkit import assets
from factkit.models import SAFE
from factkit.retrieval.bm25 import index_hash, tokenize, top_places
from factkit.retrieval.chunks import Chunk, Hit
from factkit.runs import progress_bar

# Part of the cache key: raise it whenever `Encoder` changes what it computes.
DENSE_VERSION = 1
BATCH = 64  # texts

_E5 = re.compile(r"(?<![a-z0-9])e5(?![a-z0-9])")


class Encoder:
    """A Hugging Face text encoder: mean over tokens, L2-normalised (Wang et al. 2022).

    `model` is a folder or hub name with safetensors. Before its texts E5 was trained
    with "query: " and "passage: ": they are put there where the name says e5. Texts are
    cut to `max_tokens`. Computes in bfloat16 on a GPU and in float32 on a CPU; the
    model is loaded at the first text.
    """

    def __init__(self, model: str, max_tokens: int = 256):
        self.model, self.max_tokens = model, max_tokens
        e5 = _E5.search(model.casefold())
        self.query_prefix, self.passage_prefix = (
            ("query: ", "passage: ") if e5 else ("", "")
        )

    @cached_property
    def device(self) -> str:
        import torch

        return "cuda" if torch.cuda.is_available() else "cpu"

    @property
    def key(self) -> str:
        """What decides a passage's embedding; a folder's weights by size and time."""
        stats = [f.stat() for f in sorted(Path(self.model).glob("*.safetensors"))]
        weights = [(s.st_size, s.st_mtime_ns) for s in stats]
        how = (self.passage_prefix, self.max_tokens, BATCH, self.device)
        return repr((DENSE_VERSION, self.model, weights, *how))

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        """Embeddings of questions, float32 (n, d)."""
        return self._encode([self.query_prefix + text for text in texts])

    def passages(self, texts: Sequence[str]) -> np.ndarray:
        """Embeddings of passages, float32 (n, d)."""
        return self._encode([self.passage_prefix + text for text in texts])

    @cached_property
    def _loaded(self):
        import torch
        from transformers import AutoModel, AutoTokenizer

        dtype = torch.bfloat16 if self.device == "cuda" else torch.float32
        model = AutoModel.from_pretrained(self.model, dtype=dtype, **SAFE)
        tokenizer = AutoTokenizer.from_pretrained(self.model, trust_remote_code=False)
        return model.to(self.device).eval(), tokenizer

    def _encode(self, texts: Sequence[str]) -> np.ndarray:
        # each text once and texts of one length together: the least padding
        unique = sorted(set(texts), key=lambda text: (len(text), text))
        embedded = np.concatenate(
            [self._embed(unique[i : i + BATCH]) for i in range(0, len(unique), BATCH)]
        )
        place = {text: i for i, text in enumerate(unique)}
        return embedded[[place[text] for text in texts]]

    def _embed(self, texts: list[str]) -> np.ndarray:
        import torch

        model, tokenizer = self._loaded
        batch = tokenizer(
            texts,
            padding=True,
            truncation=True,
            max_length=self.max_tokens,
            return_tensors="pt",
        ).to(self.device)
        with torch.inference_mode():
            hidden = model(**batch).last_hidden_state.float()  # (n, T, d)
        mask = batch["attention_mask"][..., None]  # (n, T, 1)
        mean = (hidden * mask).sum(1) / mask.sum(1)
        return torch.nn.functional.normalize(mean, dim=-1).cpu().numpy()


class DenseIndex:
    """Exact search by cosine over an encoder's embeddings of a whole corpus.

    The embeddings, float16 (N, d), lie in `assets.cache_dir()/dense/<hash>` as .npy
    parts of `block` chunks each and are memory-mapped: 21 million passages of E5-base
    are 32 GB, of which a search holds one part at a time. A part is written whole or
    not at all, so a build that was killed goes on with the first part missing.
    `chunks` is kept as it is if it is a sequence, which may read them lazily.

    Query and embeddings are both float16 and multiplied in float64, where such products
    and their sums are exact: equal text scores equally, on any machine, in any batch.
    """

    def __init__(self, chunks: Iterable[Chunk], encoder: Encoder, block: int = 65_536):
        self.chunks = chunks if isinstance(chunks, Sequence) else list(chunks)
        self.encoder, self.block = encoder, block
        self._parts = self._open_or_build()

    def search(self, query: str, k: int) -> list[Hit]:
        """The k best chunks, best first; ties in the chunks' order.

        Fewer than k only where the corpus has fewer; none for a query without words.
        Raises ValueError if k < 1.
        """
        return self.search_all([query], k)[0]

    def search_all(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """The hits of `search` for each query, with one pass over the embeddings."""
        if k < 1:
            raise ValueError(f"k={k}; it must be at least 1")
        with_words = [i for i, query in enumerate(queries) if tokenize(query)]
        hits: list[list[Hit]] = [[] for _ in queries]
        if not with_words or not self.chunks:
            return hits
        texts = [queries[i] for i in with_words]
        vectors = self.encoder.queries(texts).astype(np.float16)
        best = [(np.empty(0, int), np.empty(0))] * len(texts)
        for number, part in enumerate(self._parts):
            scores = _products(vectors, part, self.encoder.device)  # (n, block)
            best = [
                _merge(known, new, number * self.block, k)
                for known, new in zip(best, scores, strict=True)
            ]
        for i, (places, scores) in zip(with_words, best, strict=True):
            hits[i] = [
                Hit(self.chunks[place], float(score))
                for place, score in zip(places, scores, strict=True)
            ]
        return hits

    def _open_or_build(self) -> list[np.ndarray]:
        """The memory-mapped parts (block, d); those missing are encoded in turn."""
        digest = index_hash(f"{self.encoder.key} {self.block}", self.chunks)
        folder = assets.cache_dir() / "dense" / digest
        folder.mkdir(parents=True, exist_ok=True)
        n_parts = -(-len(self.chunks) // self.block)
        paths = [folder / f"{number:05d}.npy" for number in range(n_parts)]
        missing = [number for number, path in enumerate(paths) if not path.exists()]
        if missing:
            with progress_bar(len(missing), "dense index", unit="part") as bar:
                for number in missing:
                    start = number * self.block
                    texts = [c.text for c in self.chunks[start : start + self.block]]
                    embedded = self.encoder.passages(texts).astype(np.float16)
                    _save_part(paths[number], embedded)
                    bar.update()
        return [np.load(path, mmap_mode="r") for path in paths]


def _save_part(path: Path, part: np.ndarray) -> None:
    """Write an array so that a reader sees none or the whole of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        np.save(file, part)
    temporary.replace(path)


def _products(vectors: np.ndarray, part: np.ndarray, device: str) -> np.ndarray:
    """The exact inner products, float64 (n, block), of float16 rows (n, d), (block, d).

    A product of two float16 is a multiple of 2^-48 and so is their sum, which is about
    1 for unit vectors: no rounding in the 53 bits of float64, whatever the order.
    """
    import torch

    left, right = (
        torch.tensor(np.asarray(rows), device=device).double()
        for rows in (vectors, part)
    )
    return (left @ right.T).cpu().numpy()


def _merge(
    best: tuple[np.ndarray, np.ndarray], scores: np.ndarray, start: int, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The k best (places, scores) of those so far and the next scores from `start`."""
    places, known = best
    # a later chunk must beat the k-th so far, not equal it
    new = (
        np.flatnonzero(scores > known[-1])
        if len(known) == k
        else np.arange(len(scores))
    )
    places = np.concatenate([places, start + new])
    scores = np.concatenate([known, scores[new]])
    top = top_places(scores, k)
    return places[top], scores[top]
