"""Evaluation of long answers, claim by claim: the protocol of FactScore.

How responses count:

| a response | precision, claims | claims per question, words | response_rate |
|---|---|---|---|
| with claims: an answer | yes | yes | as responding |
| without a claim: it abstains or refuses | left out | 0 claims | as not responding |
| that extraction or verification failed on | left out | left out | left out |

Refusals therefore change neither precision nor claims, which like FactScore's are per
answer given (RLFH Table 1), but lower the claims per question. A claim whose
verification failed is left out. Precision is the mean over answers, not over claims,
and an inconclusive claim counts as not supported. FactScore's penalty for short answers
is not applied (Binary RAR App. B.1 uses 1 − precision).
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from factkit.answers import exposure_bin, flatten_metrics, stored_meta
from factkit.answers import items as request_items
from factkit.answers.items import Items
from factkit.answers.stage import Stage, compute_once
from factkit.data.corpus import Document, Hit
from factkit.data.evidence import EvidenceCache
from factkit.data.examples import DataError, Example, read_rows, write_rows
from factkit.policy.policy import Policy
from factkit.verify import judge
from factkit.verify.claims import (
    Claim,
    ClaimVerifier,
    Extractor,
    check_response,
)
from factkit.verify.failures import check_failures
from factkit.verify.outcome import Support
from factkit.verify.response import extract_answers

CHUNK_WORDS = 100  # App. B.1
CHUNKS = 10  # a claim's evidence, App. B.1

# (prompt id, query, k) → the k best chunks; EvidenceCache.search is one
Search = Callable[[str, str, int], Sequence[Hit]]
Reader = tuple[Extractor, Search, ClaimVerifier]  # how claims are read and verified


@dataclass(frozen=True)
class CheckedResponse:
    """A prompt with the policy's response, its claims and their supports.

    claims: None if the extraction failed. supports: one per claim, None where the
    verification failed. meta: of the example (category, popularity …).
    """

    id: str
    prompt: str
    response: str
    claims: list[Claim] | None
    supports: list[Support | None]
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def judged(self) -> bool:
        """Whether it can be scored: not if extraction or all verifications failed."""
        return self.claims is not None and (
            not self.claims or any(s is not None for s in self.supports)
        )


@dataclass(frozen=True)
class Evaluation:
    """A policy's metrics, the requests' items of them (`answers.items`), and the claims
    of its long answers."""

    metrics: dict[str, float]
    items: Items
    checked: Sequence[CheckedResponse]


# ---- responses and evidence


def answer(policy: Policy, examples: Sequence[Example], path: Path) -> dict[str, str]:
    """The policy's greedy responses by the request's id; kept in `path`."""

    def compute() -> dict[str, str]:
        prompts = policy.format_prompts(examples)
        samples = policy.generate(prompts, policy.greedy, progress=path.stem)
        return {e.id: text for e, (text,) in zip(examples, samples, strict=True)}

    return compute_once(path, compute)


def search_words(documents: Mapping[str, Sequence[Document]]) -> Search:
    """BM25 over each prompt's documents, cut into chunks of `CHUNK_WORDS` words.

    documents: prompt id → its documents; DataError for a prompt without.
    """

    def spans(texts: Sequence[str], **_: Any) -> dict[str, list]:
        words = [[m.span() for m in re.finditer(r"\S+", text)] for text in texts]
        return {"offset_mapping": words}

    return EvidenceCache(documents, spans, CHUNK_WORDS).search


# ---- checking


def evaluate(
    examples: Sequence[Example],
    responses: Sequence[str],
    reader: Reader,
    path: Path,
    k: int = CHUNKS,
) -> list[CheckedResponse]:
    """The responses' claims, each verified against its k best chunks; kept in `path`.

    All responses are checked at the same time, the claims of each as soon as they are
    extracted. Of a response that reasons, only what follows `</think>` is checked.
    Responses in `path` on which a model failed are checked again. Raises DataError if
    `path` holds other prompts or responses.
    """
    if path.exists():
        stored = [(row.id, row.response) for row in read_checked(path)]
        given = zip(examples, responses, strict=True)
        if stored != [(e.id, text) for e, text in given]:
            raise DataError(
                f"{path}: holds other prompts or responses than these; remove it, or "
                "give another path"
            )
    extract, search, verify = reader

    def compute(start: int, stop: int) -> list[CheckedResponse]:
        return [
            CheckedResponse(e.id, e.question, text, None, [], stored_meta(e))
            for e, text in zip(examples, responses, strict=True)
        ]

    async def check(row: CheckedResponse, text: str) -> CheckedResponse:
        def evidence_of(claim: str) -> list[str]:
            return [hit.chunk.text for hit in search(row.id, claim, k)]

        claims, supports = await check_response(
            row.prompt, text, extract, evidence_of, verify
        )
        return replace(row, claims=claims, supports=list(supports or ()))

    def score(rows: list[CheckedResponse]) -> list[CheckedResponse]:
        texts = extract_answers(row.response for row in rows)
        work = [check(row, text) for row, text in zip(rows, texts, strict=True)]
        return judge.run_all(work, "verifying")

    def is_scored(row: CheckedResponse) -> bool:
        return row.claims is not None and None not in row.supports

    stage = Stage(path, CheckedResponse, score, is_scored)
    return stage.run(len(examples), len(examples), compute)


def read_checked(path: Path) -> list[CheckedResponse]:
    """The responses kept in a file of `evaluate`; DataError as `read_rows`."""
    return read_rows(path, CheckedResponse)


def write_samples(
    path: Path, before: Sequence[CheckedResponse], after: Sequence[CheckedResponse]
) -> None:
    """Write responses before and after to the same prompts, one row per prompt, with
    the sentence and the support of each claim."""

    def stated(row: CheckedResponse) -> list[tuple[str, Support | None]]:
        sentences = [claim.sentence for claim in row.claims or ()]
        return list(zip(sentences, row.supports, strict=True))

    rows = (
        {"id": b.id, "prompt": b.prompt, "before": b.response, "after": a.response}
        | {"before_claims": stated(b), "after_claims": stated(a)}
        | b.meta
        for b, a in zip(before, after, strict=True)
    )
    write_rows(path, rows)


def read_samples(path: Path) -> list[tuple[CheckedResponse, CheckedResponse]]:
    """The responses before and after that `write_samples` wrote; a claim's text is the
    sentence that it was taken from."""

    def checked(row: Mapping[str, Any], side: str) -> CheckedResponse:
        claims = [Claim(text, text) for text, _ in row[f"{side}_claims"]]
        supports = [s and Support(s) for _, s in row[f"{side}_claims"]]
        return CheckedResponse(row["id"], row["prompt"], row[side], claims, supports)

    rows = map(json.loads, path.read_bytes().splitlines())
    return [(checked(row, "before"), checked(row, "after")) for row in rows]


# ---- scores


def failures(rows: Sequence[CheckedResponse]) -> dict[str, float]:
    """The shares of responses and of claims on which extraction or verification failed.

    Raises ValueError if one of them is above 5 %.
    """
    values: dict[str, Sequence[object]] = {
        "extraction_failures": [row.claims for row in rows],
        "verification_failures": [s for row in rows for s in row.supports],
    }
    return {name: check_failures(column, name) for name, column in values.items()}


def scores(rows: Sequence[CheckedResponse]) -> dict[str, float]:
    """Factual precision, hallucination rate, claims, response rate and length.

    With c_i of n_i claims supported and R the responses with n_i > 0:
    factual_precision = (1/|R|) Σ_R c_i / n_i, hallucination_rate = 1 − that (Binary RAR
    §4.1, App. B.1), response_rate = |R| / all; all three in [0, 1]. Means over R, the
    answers given: correct_claims c_i, incorrect_claims n_i − c_i (of these
    contradicted_claims), total_claims n_i; precision_at_1, whether the first claim is
    supported. Means over all: the four counts as `…_claims_per_question`, and words.
    What is a mean over R is left out where nobody responds. Each is the mean of its
    column of `items`.
    Raises ValueError without a response that can be scored.
    """
    columns = _terms(rows).items()
    return {name: float(x.dropna().mean()) for name, x in columns if x.notna().any()}


def same_answered(
    before: Sequence[CheckedResponse],
    after: Sequence[CheckedResponse],
    items_of: Callable[[Sequence[CheckedResponse]], Items] | None = None,
) -> dict[str, float]:
    """`items.same_answered` of precision and hallucination, in [0, 1].

    items_of: default `items`.
    """
    old, new = map(items_of or items, (before, after))
    names = ("factual_precision", "hallucination_rate")
    return request_items.same_answered(old, new, names)


def items(rows: Sequence[CheckedResponse]) -> Items:
    """Id → the response's term in each mean of `scores`; absent where it has none."""
    return {name: row.dropna().to_dict() for name, row in _terms(rows).iterrows()}


def _terms(rows: Sequence[CheckedResponse]) -> pd.DataFrame:
    """One row per response that can be scored: its term in each metric's mean, or NaN.
    Raises ValueError if there is none."""
    rows = [row for row in rows if row.judged]
    if not rows:
        raise ValueError("no responses to score")
    known = [[s for s in row.supports if s is not None] for row in rows]
    table = pd.DataFrame(index=[row.id for row in rows])
    table["correct_claims"] = [s.count(Support.SUPPORTED) for s in known]
    table["incorrect_claims"] = [len(s) - s.count(Support.SUPPORTED) for s in known]
    table["contradicted_claims"] = [s.count(Support.CONTRADICTED) for s in known]
    table["total_claims"] = [len(s) for s in known]
    responds = table["total_claims"] > 0
    each = table.add_suffix("_per_question")
    table = pd.concat([table.where(responds), each], axis=1)
    table["response_rate"] = responds
    table["words"] = [
        len(text.split()) for text in extract_answers(r.response for r in rows)
    ]
    table["factual_precision"] = table["correct_claims"] / table["total_claims"]
    table["hallucination_rate"] = 1 - table["factual_precision"]
    first = pd.Series([s[:1] == [Support.SUPPORTED] for s in known], table.index)
    table["precision_at_1"] = first.where(responds)
    return table.astype(float)


def exposure_metrics(rows: Sequence[CheckedResponse]) -> dict[str, float]:
    """`scores`, and the share of requests `n`, by the bin of how often the policy read
    of the person: exposure_<lower edge>_<name>; empty outside of the fact world."""
    if not all("exposure" in row.meta for row in rows):
        return {}
    groups: dict[int, list[CheckedResponse]] = {}
    for row in rows:
        groups.setdefault(exposure_bin(row.meta["exposure"]), []).append(row)
    by_bin = {edge: scores(groups[edge]) | {"n": len(groups[edge])} for edge in groups}
    return flatten_metrics({"exposure": dict(sorted(by_bin.items()))})
