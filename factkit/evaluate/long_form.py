"""Evaluation of long answers, claim by claim: the protocol of FactScore.

What counts how:

| a response | precision, claims | claims per question, words | response_rate |
|---|---|---|---|
| with claims: an answer | yes | yes | as responding |
| without a claim: it abstains or refuses | left out | 0 claims | as not responding |
| that extraction or verification failed on | left out | left out | left out |

So refusals change neither precision nor claims, which are FactScore's: per answer given
(RLFH Table 1). Claims per question fall with them. A single claim whose verification
failed is left out of its response. Precision is the mean over answers, not over claims,
and an inconclusive claim is not supported. FactScore's penalty for short answers is not
applied (Binary RAR App. B.1 takes 1 − precision).
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from factkit import models
from factkit.assets import write_atomically
from factkit.corpus import Document
from factkit.datasets.examples import DataError, Example
from factkit.evaluate import rows as kept
from factkit.evaluate.short_form import shown
from factkit.retrieval.bm25 import PromptIndex
from factkit.retrieval.chunks import Chunk, Hit
from factkit.statistics import resampled_means
from factkit.verify.claims import Claim, Extractor, Support
from factkit.verify.failures import failed_share
from factkit.verify.response import answers
from factkit.verify.support import ClaimVerifier, support_of

if TYPE_CHECKING:
    from factkit.params.stages import RequestParams

CHUNK_WORDS = 100  # App. B.1
CHUNKS = 10  # a claim's evidence, App. B.1

# (prompt id, query, k) → the k best chunks; EvidenceCache.search is one
Search = Callable[[str, str, int], Sequence[Hit]]


@dataclass(frozen=True)
class Checked:
    """A prompt with the policy's response, its claims and their supports.

    claims: None if the extraction failed. supports: one a claim, None where the
    verification failed. meta: the example's (category, popularity …).
    """

    id: str
    prompt: str
    response: str
    claims: list[Claim] | None
    supports: list[Support | None]
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def judged(self) -> bool:
        """Whether it can be scored: not where everything that was asked failed."""
        return self.claims is not None and (
            not self.claims or any(s is not None for s in self.supports)
        )


# ---- responses and evidence


def answer(
    policy: str, examples: Sequence[Example], p: "RequestParams", path: Path
) -> dict[str, str]:
    """The greedy responses of the policy in the folder `policy`, by the request's id;
    kept in `path`."""
    if path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    model, tokenizer = models.load_policy(policy, p.dtype)
    prompts = models.asked(examples, p.prompt_template, tokenizer, p.chat)
    greedy = models.sampling_of(p)
    drawn = models.sample(model, tokenizer, prompts, greedy, progress=path.stem)
    texts = {e.id: text for e, (text,) in zip(examples, drawn, strict=True)}
    write_atomically(path, json.dumps(texts, ensure_ascii=False))
    return texts


def word_chunks(document: Document, words: int = CHUNK_WORDS) -> list[Chunk]:
    """Cut a document into chunks of `words` words; the last may have fewer.

    A chunk is an exact substring and reaches to the next chunk's first word; `n_tokens`
    counts its words. Ids are `<doc_id>#<i>`.
    """
    texts = re.findall(rf"\s*(?:\S+(?:\s+|\Z)){{1,{words}}}", document.text)
    return [
        Chunk(f"{document.id}#{i}", document.id, text, len(text.split()))
        for i, text in enumerate(texts)
    ]


def search_words(
    documents: Mapping[str, Sequence[Document]], words: int = CHUNK_WORDS
) -> Search:
    """BM25 over each prompt's documents, cut into chunks of `words` words.

    documents: prompt id → its documents; DataError for a prompt without.
    """

    @lru_cache(maxsize=256)
    def index(prompt_id: str) -> PromptIndex:
        if prompt_id not in documents:
            raise DataError(f"no documents to check the claims of prompt {prompt_id!r}")
        return PromptIndex(
            c for d in documents[prompt_id] for c in word_chunks(d, words)
        )

    return lambda prompt_id, query, k: index(prompt_id).search(query, k)


# ---- checking


def evaluate(
    examples: Sequence[Example],
    responses: Sequence[str],
    extract: Extractor,
    search: Search,
    verify: ClaimVerifier,
    path: Path,
    k: int = CHUNKS,
) -> list[Checked]:
    """The responses' claims, each verified against its k best chunks; kept in `path`.

    All extractions are one batch and all verifications another. Of a response that
    reasons, only what follows `</think>` is checked. If `path` exists, it is read
    instead; the calls of a run that was killed are in the LLM's cache.
    Raises DataError if `path` holds other prompts or responses.
    """
    rows = list(zip(examples, responses, strict=True))
    if path.exists():
        checked = read_checked(path)
        if [(r.id, r.response) for r in checked] != [(e.id, text) for e, text in rows]:
            raise DataError(
                f"{path}: holds other prompts or responses than these; remove it, or "
                "give another path"
            )
        return checked
    claims = extract([e.question for e in examples], answers(responses))

    def evidence_of(i: int, claim: Claim) -> list[str]:
        return [hit.chunk.text for hit in search(examples[i].id, claim.text, k)]

    supports = support_of(claims, evidence_of, verify)
    checked = [
        Checked(e.id, e.question, text, stated, support or [], shown(e.meta))
        for (e, text), stated, support in zip(rows, claims, supports, strict=True)
    ]
    kept.write(path, map(asdict, checked))
    return checked


def read_checked(path: Path) -> list[Checked]:
    """The responses kept in a file of `evaluate`; DataError as `rows.read`."""
    return kept.read(path, Checked)


def write_samples(
    path: Path, before: Sequence[Checked], after: Sequence[Checked]
) -> None:
    """Write responses to the same prompts before and after, a row a prompt, with the
    sentence and the support of each claim."""

    def stated(row: Checked) -> list[tuple[str, Support | None]]:
        sentences = [claim.sentence for claim in row.claims or ()]
        return list(zip(sentences, row.supports, strict=True))

    rows = (
        {"id": b.id, "prompt": b.prompt, "before": b.response, "after": a.response}
        | {"before_claims": stated(b), "after_claims": stated(a)}
        | b.meta
        for b, a in zip(before, after, strict=True)
    )
    kept.write(path, rows)


def read_samples(path: Path) -> list[tuple[Checked, Checked]]:
    """The responses before and after that `write_samples` wrote; a claim's text is the
    sentence that it was taken from."""

    def of(row: Mapping[str, Any], side: str) -> Checked:
        claims = [Claim(text, text) for text, _ in row[f"{side}_claims"]]
        supports = [s and Support(s) for _, s in row[f"{side}_claims"]]
        return Checked(row["id"], row["prompt"], row[side], claims, supports)

    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [(of(row, "before"), of(row, "after")) for row in map(json.loads, lines)]


# ---- scores


def failures(rows: Sequence[Checked]) -> dict[str, float]:
    """The share of responses without claims read, and of claims without a support.

    Raises ValueError if either is above 5 %.
    """
    values = {
        "extraction_failures": [row.claims for row in rows],
        "verification_failures": [s for row in rows for s in row.supports],
    }
    return {name: failed_share(column, name) for name, column in values.items()}


def scores(rows: Sequence[Checked]) -> dict[str, float]:
    """Factual precision, hallucination rate, claims, response rate and length.

    With c_i of n_i claims supported and R the responses with n_i > 0:
    factual_precision = (1/|R|) Σ_R c_i / n_i, hallucination_rate = 1 − that (Binary RAR
    §4.1, App. B.1), response_rate = |R| / all; all three in [0, 1]. Means over R, the
    answers given: correct_claims c_i, incorrect_claims n_i − c_i (of these
    contradicted_claims), total_claims n_i. Means over all: the four as
    `…_claims_per_question`, and words. What is a mean over R is left out where nobody
    responds. Each is the mean of its column of `items`.
    Raises ValueError without a response that can be scored.
    """
    known = {name: x[~np.isnan(x)] for name, x in _terms(rows).items()}
    return {name: float(column.mean()) for name, column in known.items() if len(column)}


def items(rows: Sequence[Checked]) -> dict[str, dict[str, float]]:
    """Id → what the response adds to each mean of `scores`, absent where it does not
    count."""
    terms, judged = _terms(rows), [row for row in rows if row.judged]
    return {
        row.id: {
            name: float(column[i])
            for name, column in terms.items()
            if not np.isnan(column[i])
        }
        for i, row in enumerate(judged)
    }


def bootstrap(
    rows: Sequence[Checked], resamples: int, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """95 % percentile intervals of `scores` over resampled prompts.

    A resample in which nobody responds has no precision and counts for none.
    """
    terms = _terms(rows)
    table = np.stack(list(terms.values()), axis=1)  # (responses, metrics)
    drawn = dict(zip(terms, resampled_means(table, resamples, seed), strict=True))
    return {
        name: tuple(np.percentile(means, [2.5, 97.5]).tolist())
        for name, means in drawn.items()
        if means.size
    }


def _terms(rows: Sequence[Checked]) -> dict[str, np.ndarray]:
    """Metric → each judged response's term of its mean, NaN where it does not count.

    Raises ValueError without such a response.
    """
    rows = [row for row in rows if row.judged]
    if not rows:
        raise ValueError("no responses to score")
    known = [[s for s in row.supports if s is not None] for row in rows]
    total = np.array([len(supports) for supports in known], float)
    correct, contradicted = (
        np.array([supports.count(kind) for supports in known], float)
        for kind in (Support.SUPPORTED, Support.CONTRADICTED)
    )
    texts = answers(row.response for row in rows)
    responds = total > 0
    precision = np.divide(correct, total, np.full(len(rows), np.nan), where=responds)
    claims = {
        "correct_claims": correct,
        "incorrect_claims": total - correct,
        "contradicted_claims": contradicted,
        "total_claims": total,
    }
    return {
        **{name: np.where(responds, n, np.nan) for name, n in claims.items()},
        **{f"{name}_per_question": n for name, n in claims.items()},
        "response_rate": responds.astype(float),
        "words": np.array([len(text.split()) for text in texts], float),
        "factual_precision": precision,
        "hallucination_rate": 1 - precision,
    }
