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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit.answers import exposure_bin, shown
from factkit.data.corpus import Document, Hit
from factkit.data.evidence import EvidenceCache
from factkit.data.examples import DataError, Example, read_rows, write_rows
from factkit.policy import models
from factkit.run.files import write_atomically
from factkit.verify.claims import Claim, ClaimVerifier, Extractor, support_of
from factkit.verify.judge import failed_share
from factkit.verify.outcome import Support
from factkit.verify.response import answers

if TYPE_CHECKING:
    import pandas as pd

    from factkit.run.params.stages import RequestParams

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
    model, tokenizer = models.policy(policy, p)
    prompts = models.asked(examples, p.prompt_template, tokenizer, p.chat)
    greedy = models.sampling_of(p)
    drawn = models.sample(model, tokenizer, prompts, greedy, progress=path.stem)
    texts = {e.id: text for e, (text,) in zip(examples, drawn, strict=True)}
    write_atomically(path, json.dumps(texts, ensure_ascii=False))
    return texts


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
    extract: Extractor,
    search: Search,
    verify: ClaimVerifier,
    path: Path,
    k: int = CHUNKS,
) -> list[Checked]:
    """The responses' claims, each verified against its k best chunks; kept in `path`.

    All extractions are one batch and all verifications another. Of a response that
    reasons, only what follows `</think>` is checked. If `path` exists, it is read
    instead, unless some of it failed: then only that is asked again, since the other
    calls are in the LLM's cache, as are those of a run that was killed.
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
        if not any(row.claims is None or None in row.supports for row in checked):
            return checked
    claims = extract([e.question for e in examples], answers(responses))

    def evidence_of(i: int, claim: Claim) -> list[str]:
        return [hit.chunk.text for hit in search(examples[i].id, claim.text, k)]

    supports = support_of(claims, evidence_of, verify)
    checked = [
        Checked(e.id, e.question, text, stated, support or [], shown(e.meta))
        for (e, text), stated, support in zip(rows, claims, supports, strict=True)
    ]
    write_rows(path, map(asdict, checked))
    return checked


def read_checked(path: Path) -> list[Checked]:
    """The responses kept in a file of `evaluate`; DataError as `read_rows`."""
    return read_rows(path, Checked)


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
    write_rows(path, rows)


def read_samples(path: Path) -> list[tuple[Checked, Checked]]:
    """The responses before and after that `write_samples` wrote; a claim's text is the
    sentence that it was taken from."""

    def checked(row: Mapping[str, Any], side: str) -> Checked:
        claims = [Claim(text, text) for text, _ in row[f"{side}_claims"]]
        supports = [s and Support(s) for _, s in row[f"{side}_claims"]]
        return Checked(row["id"], row["prompt"], row[side], claims, supports)

    rows = map(json.loads, path.read_bytes().splitlines())
    return [(checked(row, "before"), checked(row, "after")) for row in rows]


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
    columns = _terms(rows).items()
    return {name: float(x.dropna().mean()) for name, x in columns if x.notna().any()}


def same_answered(
    before: Sequence[Checked], after: Sequence[Checked]
) -> dict[str, float]:
    """Precision and hallucination before and after on the requests answered both times.

    A mean over answers also improves when badly answered requests are not answered any
    more. Here that can't be: same_answered_factual_precision and
    same_answered_hallucination_rate are of the answers after, the same names with
    `before_` of those before, and same_answered_rate is the share of all requests that
    they are of. All in [0, 1]; empty if no request was answered both times.
    """
    was, now = _terms(before), _terms(after)
    both = was["factual_precision"].dropna().index
    both = both.intersection(now["factual_precision"].dropna().index)
    if both.empty:
        return {}
    names = ("factual_precision", "hallucination_rate")
    return {
        "same_answered_rate": len(both) / len(now),
        **{f"same_answered_{n}": float(now.loc[both, n].mean()) for n in names},
        **{f"before_same_answered_{n}": float(was.loc[both, n].mean()) for n in names},
    }


def items(rows: Sequence[Checked]) -> dict[str, dict[str, float]]:
    """Id → what the response adds to each mean of `scores`, absent where it does not
    count."""
    return {name: row.dropna().to_dict() for name, row in _terms(rows).iterrows()}


def _terms(rows: Sequence[Checked]) -> "pd.DataFrame":
    """A row a response that can be scored, by its id: its term of each metric's mean,
    NaN where it does not count. Raises ValueError without such a response."""
    import pandas as pd

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
    table["words"] = [len(text.split()) for text in answers(r.response for r in rows)]
    table["factual_precision"] = table["correct_claims"] / table["total_claims"]
    table["hallucination_rate"] = 1 - table["factual_precision"]
    return table.astype(float)


def by_exposure(rows: Sequence[Checked]) -> dict[int, dict[str, float]]:
    """`scores` by how often the policy read of the person (fact world): the
    lower edge of its bin → metrics, and the number of requests as `n`."""
    groups: dict[int, list[Checked]] = {}
    for row in rows:
        groups.setdefault(exposure_bin(row), []).append(row)
    return {
        edge: scores(group) | {"n": len(group)}
        for edge, group in sorted(groups.items())
    }
