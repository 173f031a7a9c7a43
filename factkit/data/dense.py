"""Exact search by a text encoder, also over a corpus that does not fit in memory.

TruthRL App. C retrieves with E5 over Wikipedia of 2018.
"""

import hashlib
import io
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import islice
from operator import length_hint
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from factkit.data import assets
from factkit.data.assets import SAFE
from factkit.data.bm25 import tokenize, top_k
from factkit.data.corpus import Chunk, Hit
from factkit.run import files, quiet
from factkit.run.progress import progress_bar

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

BATCH = 64  # texts
MAX_TOKENS = 256  # of a text
BLOCK = 65_536  # chunks of a part of an index

_E5 = re.compile(r"(?<![a-z0-9])e5(?![a-z0-9])")


class Encoder:
    """A Hugging Face text encoder: mean over tokens, L2-normalised (Wang et al. 2022).

    `model` is a folder or hub name with safetensors. If its name has e5, texts get the
    prefixes "query: " and "passage: ", with which E5 was trained. Texts are truncated
    to `max_tokens`. It computes in bfloat16 on a GPU and in float32 on a CPU; the model
    is loaded at the first text.
    """

    def __init__(self, model: str, max_tokens: int = MAX_TOKENS) -> None:
        import torch

        self.model, self.max_tokens = assets.of_hub(model), max_tokens
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.e5 = bool(_E5.search(model.casefold()))

    @property
    def key(self) -> str:
        """All that a passage's embedding depends on; weights by size and time."""
        stats = [f.stat() for f in sorted(Path(self.model).glob("*.safetensors"))]
        files = [(s.st_size, s.st_mtime_ns) for s in stats]
        return repr((self.model, files, self.e5, self.max_tokens, BATCH, self.device))

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        """Embeddings of questions, float32 (n, d)."""
        return self._encode("query: ", texts)

    def passages(self, texts: Sequence[str]) -> np.ndarray:
        """Embeddings of passages, float32 (n, d)."""
        return self._encode("passage: ", texts)

    @cached_property
    def _loaded(self) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
        import torch
        from transformers import AutoModel, AutoTokenizer

        quiet.disable_bars()
        dtype = torch.bfloat16 if self.device == "cuda" else torch.float32
        model = AutoModel.from_pretrained(self.model, dtype=dtype, **SAFE)
        tokenizer = AutoTokenizer.from_pretrained(self.model, trust_remote_code=False)
        return model.to(self.device).eval(), tokenizer

    def _encode(self, prefix: str, texts: Sequence[str]) -> np.ndarray:
        # each text once; texts of similar length together need the least padding
        unique = sorted(set(texts), key=lambda text: (len(text), text))
        full = [prefix * self.e5 + text for text in unique]
        batches = (full[i : i + BATCH] for i in range(0, len(full), BATCH))
        embedded = np.concatenate([self._embed(batch) for batch in batches])
        index = {text: i for i, text in enumerate(unique)}
        return embedded[[index[text] for text in texts]]

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

    chunks: a list, or an iterable that reads a corpus anew at each iteration, of which
    one part is in memory at a time; then `key` identifies the corpus.

    The embeddings, float16 (N, d), are memory-mapped .npy parts of BLOCK chunks each in
    `files.cache_dir()/dense/<hash>`: 21 million passages of E5-base are 32 GB, of which
    a search holds one part at a time. A part is written atomically, so a build that was
    killed continues with the first missing part.

    Query and embeddings are both float16 and multiplied in float64, where such products
    (multiples of 2^-48) and their sums (about 1) are exact: equal text scores equally,
    on any machine, in any batch.
    """

    def __init__(
        self, chunks: Iterable[Chunk], encoder: Encoder, key: str = ""
    ) -> None:
        self.chunks, self.encoder = chunks, encoder
        self._parts = self._open_or_build(key)

    def search_all(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """Each query's k best chunks, best first; ties in the chunks' order.

        Fewer than k only if the corpus has fewer; none for a query without words. All
        queries share one pass over the embeddings.
        """
        import torch

        wordy = [i for i, query in enumerate(queries) if tokenize(query)]
        hits: list[list[Hit]] = [[] for _ in queries]
        if not wordy or not self._parts:
            return hits
        device = self.encoder.device
        vectors = self.encoder.queries([queries[i] for i in wordy]).astype(np.float16)
        vectors = torch.tensor(vectors, device=device).double()  # (n, d)
        best = [(np.empty(0, int), np.empty(0))] * len(wordy)  # indices, scores
        for number, part in enumerate(self._parts):
            rows = torch.tensor(np.asarray(part), device=device).double()
            new = np.arange(len(part)) + number * BLOCK
            for i, scores in enumerate((vectors @ rows.T).cpu().numpy()):
                # earlier chunks stand first, so that they win ties
                indices = np.concatenate([best[i][0], new])
                scores = np.concatenate([best[i][1], scores])
                top = top_k(scores, k)
                best[i] = indices[top], scores[top]
        needed = {index for indices, _ in best for index in indices.tolist()}
        numbered = enumerate(islice(self.chunks, max(needed) + 1))
        chunks = {index: chunk for index, chunk in numbered if index in needed}
        for i, (indices, scores) in zip(wordy, best, strict=True):
            pairs = zip(indices.tolist(), scores.tolist(), strict=True)
            hits[i] = [Hit(chunks[index], score) for index, score in pairs]
        return hits

    def _open_or_build(self, key: str) -> list[np.ndarray]:
        """The memory-mapped parts (block, d), built if they are missing."""
        digest = hashlib.sha256(f"{self.encoder.key} {BLOCK}{key}".encode())
        for chunk in () if key else self.chunks:
            # the length keeps ["ab", "c"] and ["a", "bc"] apart
            digest.update(f"{len(chunk.text)} {chunk.text}".encode())
        folder = files.cache_dir() / "dense" / digest.hexdigest()[:32]
        folder.mkdir(parents=True, exist_ok=True)
        whole = folder / "chunks"  # how many; there once all of them are
        if not whole.exists():
            files.write_atomically(whole, str(self._build(folder)))
        parts = range(-(-int(whole.read_text("utf-8")) // BLOCK))
        return [np.load(_part(folder, number), mmap_mode="r") for number in parts]

    def _build(self, folder: Path) -> int:
        """Encode the missing parts; returns the number of chunks."""
        stream, total = iter(self.chunks), 0
        expected = length_hint(self.chunks) or None
        with progress_bar(expected, "dense index", " chunks") as bar:
            while texts := [chunk.text for chunk in islice(stream, BLOCK)]:
                if not (path := _part(folder, total // BLOCK)).exists():
                    embedded = self.encoder.passages(texts).astype(np.float16)
                    np.save(buffer := io.BytesIO(), embedded)
                    files.write_atomically(path, buffer.getvalue())
                total += len(texts)
                bar.update(len(texts))
        return total


def _part(folder: Path, number: int) -> Path:
    return folder / f"{number:05d}.npy"
