"""The kit's own verifier of claims: a small model of (evidence, claim) pairs.

MiniLM as a cross-encoder with three classes. It reads both texts at once; a token's
type says which text it is from and whether the other text has it, too. Without that
hint it needs many times the pairs to learn to compare.
`factkit.train.embedded_verifier` trains it and measures its error rates.
"""

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from factkit import assets
from factkit.retrieval import tokenize

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

MAX_TOKENS = 112  # evidence and claim together
WINDOW = 50  # words of evidence that are read at once
WINDOWS = 2  # of a long evidence, those with the most of the claim's words
BATCH = 64
LABEL_SMOOTHING = 0.05  # of the training loss
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


class EmbeddedVerifier:
    """A trained verifier, from a folder of safetensors and JSON, loaded at first use.

    Computes in bfloat16 where the processor can, else in float32.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Of each (evidence, claim): supported, contradicted, inconclusive (n, 3).

        Rows sum to 1. Evidence of more than `WINDOW` words is cut at sentences into
        windows, which are read one by one; the window that is least inconclusive
        counts, of the `WINDOWS` that share the most words with the claim.
        """
        if not pairs:
            return np.empty((0, 3))
        read = [[(w, claim) for w in _nearest(e, claim)] for e, claim in pairs]
        unique = sorted({pair for of in read for pair in of}, key=_length)
        steps = range(0, len(unique), BATCH)
        rows = np.concatenate([self._read(unique[i : i + BATCH]) for i in steps])
        found = dict(zip(unique, rows, strict=True))
        return np.stack(
            [min((found[p] for p in of), key=lambda r: r[2]) for of in read]
        )

    @cached_property
    def _loaded(self):
        import torch
        from safetensors.torch import load_file
        from transformers import AutoTokenizer

        model = network(untrained=True)
        model.load_state_dict(load_file(self.folder / "model.safetensors"))
        model = model.to(torch.bfloat16) if fast_bfloat16() else model
        return model.eval(), AutoTokenizer.from_pretrained(self.folder)

    def _read(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        import torch

        model, tokenizer = self._loaded
        batch = tokenizer.pad(encode(tokenizer, pairs), return_tensors="pt")
        with torch.inference_mode():
            logits = model(**batch)["logits"].float()  # (n, 3)
        return logits.softmax(-1).numpy()


def network(untrained: bool = False) -> "torch.nn.Module":
    """MiniLM on both texts, and a classifier on the claim's tokens.

    untrained: its weights will be loaded. Takes what `encode` gives, padded; returns
    logits (n, 3) and, with labels (n,), the loss.
    """
    import torch
    from torch import nn
    from transformers import AutoConfig, AutoModel

    source = assets.embedder_path()
    # at this length faster than sdpa, backwards
    options = {"dtype": torch.float32, "attn_implementation": "eager"}
    if untrained:
        trunk = AutoModel.from_config(AutoConfig.from_pretrained(source), **options)
    else:
        trunk = AutoModel.from_pretrained(source, use_safetensors=True, **options)
    width = trunk.config.hidden_size

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk = trunk
            self.types = nn.Embedding(4, width)
            nn.init.normal_(self.types.weight, std=trunk.config.initializer_range)
            layers = nn.Linear(3 * width, width), nn.GELU(), nn.Dropout(0.1)
            self.classify = nn.Sequential(*layers, nn.Linear(width, 3))

        def forward(self, input_ids, token_type_ids, attention_mask, labels=None):
            words = self.trunk.embeddings.word_embeddings(input_ids)  # (n, T, d)
            words = words + self.types(token_type_ids)
            hidden = self.trunk(inputs_embeds=words, attention_mask=attention_mask)[0]
            claim = ((token_type_ids % 2 == 1) & (attention_mask == 1))[..., None]
            mean = (hidden * claim).sum(1) / claim.sum(1)
            most = hidden.masked_fill(~claim, -1e4).amax(1)
            read = torch.cat([hidden[:, 0], mean, most], dim=-1)  # (n, 3d)
            logits = self.classify(read)
            if labels is None:
                return {"logits": logits}
            loss = nn.functional.cross_entropy(
                logits.float(), labels, label_smoothing=LABEL_SMOOTHING
            )
            return {"loss": loss, "logits": logits}

    return Network()


def encode(
    tokenizer: "PreTrainedTokenizerBase", pairs: Sequence[tuple[str, str]]
) -> dict[str, list[list[int]]]:
    """The token ids and types of (evidence, claim) pairs, without padding.

    Type 0: of the evidence alone, 1: of the claim alone, 2 and 3: the same, and the
    other text has the token, too. The longer text is cut where both exceed MAX_TOKENS.
    """
    evidence, claims = zip(*pairs, strict=True)
    batch = tokenizer(
        list(evidence), list(claims), truncation="longest_first", max_length=MAX_TOKENS
    )
    special = set(tokenizer.all_special_ids)
    types = []
    for ids, sides in zip(batch["input_ids"], batch["token_type_ids"], strict=True):
        of = [{t for t, s in zip(ids, sides, strict=True) if s == k} for k in (0, 1)]
        both = (of[0] & of[1]) - special
        types.append([s + 2 * (t in both) for t, s in zip(ids, sides, strict=True)])
    return {"input_ids": batch["input_ids"], "token_type_ids": types}


def windows(text: str) -> list[str]:
    """A text in pieces of whole sentences, at most `WINDOW` words where they allow."""
    pieces: list[str] = []
    for sentence in filter(None, _SENTENCE.split(text.strip())):
        if pieces and len(f"{pieces[-1]} {sentence}".split()) <= WINDOW:
            pieces[-1] += " " + sentence
        else:
            pieces.append(sentence)
    return pieces or [""]


def _nearest(evidence: str, claim: str) -> list[str]:
    """The windows that share the most words with a claim, the first ones of equals."""
    words = set(tokenize(claim))
    pieces = windows(evidence)
    return sorted(pieces, key=lambda p: -len(words & set(tokenize(p))))[:WINDOWS]


def _length(pair: tuple[str, str]) -> tuple[int, tuple[str, str]]:
    return len(pair[0]) + len(pair[1]), pair


def fast_bfloat16() -> bool:
    """Whether this machine's processor multiplies bfloat16 faster than float32."""
    import torch

    has = torch.cpu.get_capabilities()
    return bool(has.get("avx512_bf16") or has.get("amx_bf16"))


def embedded_verifier(train_if_missing: bool = True) -> EmbeddedVerifier:
    """The verifier from the cache folder; trained first if it isn't there (15 min).

    Raises AssetError if it isn't there and shall not be trained.
    """
    from factkit.train.embedded_verifier import trained  # trains with what is here

    return EmbeddedVerifier(trained(train_if_missing))
