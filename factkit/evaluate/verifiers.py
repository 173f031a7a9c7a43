"""How often a verifier of (evidence, claim) pairs errs, on claims that people labelled.

A verifier gives each row a score, the higher the better supported. Two questions are
asked of it: supported against the rest, and supported against contradicted. Its
threshold is chosen on one half of the claims; all that is told is of the other half.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from factkit.datasets.judged_claims import Judged
from factkit.retrieval.bm25 import tokenize
from factkit.verify.claims import FUNCTION_WORDS, Support
from factkit.verify.support import ClaimVerifier

if TYPE_CHECKING:
    import pandas as pd

Encode = Callable[[Sequence[str]], np.ndarray]  # n texts → (n, d), of length 1
SCORE = {Support.SUPPORTED: 1.0, Support.INCONCLUSIVE: 0.0, Support.CONTRADICTED: -1.0}
# question → the labels that supported claims are told from
QUESTIONS = {
    "supported or not": (Support.CONTRADICTED, Support.INCONCLUSIVE),
    "supported or contradicted": (Support.CONTRADICTED,),
}
FEWEST = 10  # rows of either kind in a half
RESAMPLES = 1000
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


def words(rows: Sequence[Judged]) -> np.ndarray:
    """The share of a claim's content words that its evidence has: (n,) in [0, 1]."""
    shares = []
    for row in rows:
        content = set(tokenize(row.claim)) - FUNCTION_WORDS
        said = set(tokenize(" ".join(row.evidence)))
        shares.append(len(content & said) / max(len(content), 1))
    return np.array(shares)


def cosine(rows: Sequence[Judged], encode: Encode) -> np.ndarray:
    """The cosine of a claim and the nearest sentence of its evidence: (n,)."""
    claims = encode([row.claim for row in rows])  # (n, d)
    split = [SENTENCE_END.split("\n".join(row.evidence)) for row in rows]
    found = iter(encode([piece for of in split for piece in of]))
    nearest = [
        max(float(next(found) @ claim) for _ in of)
        for claim, of in zip(claims, split, strict=True)
    ]
    return np.array(nearest)


def claim_alone(
    rows: Sequence[Judged], encode: Encode, fit: np.ndarray, right: np.ndarray
) -> np.ndarray:
    """What a claim's own words betray of its label, without any evidence: (n,).

    A ridge regression of `right` on the claim's embedding, learnt from the rows `fit`.
    """
    embedded = encode([row.claim for row in rows])
    x = np.hstack([embedded, np.ones((len(rows), 1))])
    a, b = x[fit], right[fit].astype(float)
    return x @ np.linalg.solve(a.T @ a + np.eye(x.shape[1]), a.T @ b)


def verdicts(rows: Sequence[Judged], verify: ClaimVerifier) -> np.ndarray:
    """The verdicts of a verifier as scores: 1, 0, −1; NaN where it failed: (n,)."""
    found = verify([(row.claim, row.evidence) for row in rows])
    return np.array([np.nan if of is None else SCORE[of] for of in found])


def halves(rows: Sequence[Judged], seed: int) -> np.ndarray:
    """Which rows are of the half that thresholds are chosen on: bool (n,). All rows of
    a claim are in the same half."""
    claims = sorted({row.claim for row in rows})
    chosen = np.random.default_rng(seed).permutation(len(claims)) < len(claims) / 2
    dev = dict(zip(claims, chosen, strict=True))
    return np.array([dev[row.claim] for row in rows])


def measured(
    rows: Sequence[Judged], scores: Mapping[str, np.ndarray], encode: Encode, seed: int
) -> "pd.DataFrame":
    """`error_rates` of each verifier, and of the claim alone, for each question.

    scores: verifier → (n,). A question is left out where a half has too few rows of
    either kind, or where it is the next one, since no row is inconclusive. failed: rows
    without a verdict, which are left out.
    """
    import pandas as pd

    table = []
    dev, claims = halves(rows, seed), np.array([row.claim for row in rows])
    support = np.array([row.support for row in rows])
    right = support == Support.SUPPORTED
    for question, others in QUESTIONS.items():
        asked = np.isin(support, (Support.SUPPORTED, *others))
        kinds = [asked & (right == r) & (dev == d) for r in (0, 1) for d in (0, 1)]
        same = len(others) > 1 and Support.INCONCLUSIVE not in support
        if same or min(kind.sum() for kind in kinds) < FEWEST:
            continue
        alone = claim_alone(rows, encode, asked & dev, right)
        for name, of in {"the claim alone": alone, **scores}.items():
            known = asked & np.isfinite(of)
            found = error_rates(right[known], of[known], claims[known], dev[known])
            failed = int((asked & ~dev & ~known).sum())
            table.append(
                {"question": question, "verifier": name, **found, "failed": failed}
            )
    return pd.DataFrame(table)


def error_rates(
    right: np.ndarray, scores: np.ndarray, claims: np.ndarray, dev: np.ndarray
) -> dict[str, float]:
    """AUC and errors on the half that is not `dev`, with 95 % intervals.

    right: bool (n,), whether a row is supported. threshold: with the least sum of both
    errors on `dev`. passed: share of the others that reach it; refused: share of the
    supported ones that don't. Intervals: bootstrap over claims with all their rows.
    """
    cuts = np.unique(scores[dev])
    both = [sum(_errors(right[dev], scores[dev], cut)) for cut in cuts]
    threshold = float(cuts[int(np.argmin(both))])
    right, scores = right[~dev], scores[~dev]

    def rates(at: np.ndarray) -> tuple[float, float, float]:
        y, s = right[at], scores[at]
        return auc(y, s), *_errors(y, s, threshold)

    names, claim_of = np.unique(claims[~dev], return_inverse=True)
    rows_of = [np.flatnonzero(claim_of == i) for i in range(len(names))]
    rng, draws = np.random.default_rng(0), []
    while len(draws) < RESAMPLES:
        drawn = rng.integers(len(names), size=len(names))
        at = np.concatenate([rows_of[i] for i in drawn])
        if 0 < right[at].sum() < len(at):
            draws.append(rates(at))
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    values = rates(np.arange(len(right)))
    found = {"rows": len(right), "supported": float(right.mean())}
    for i, name in enumerate(("auc", "passed", "refused")):
        found |= {name: values[i], f"{name}_low": low[i], f"{name}_high": high[i]}
    return found | {"threshold": threshold}


def auc(right: np.ndarray, scores: np.ndarray) -> float:
    """The chance that a supported row scores above another; ties count half."""
    from scipy.stats import rankdata

    ones, others = int(right.sum()), int((~right).sum())
    ranks = rankdata(scores)[right].sum()
    return float((ranks - ones * (ones + 1) / 2) / (ones * others))


def reader_check(table: "pd.DataFrame") -> dict[str, float]:
    """An exact reader against responses read by hand.

    table: a row a statement, with the columns response, reader and hand: each one's
    verdict, missing where it saw no statement. found: share of the hand's statements
    that the reader saw; right: share of the reader's verdicts that the hand gave, too.
    """
    by_hand, by_reader = table["hand"].notna(), table["reader"].notna()
    return {
        "responses": table["response"].nunique(),
        "statements": int(by_hand.sum()),
        "found": float(by_reader[by_hand].mean()),
        "right": float((table["hand"] == table["reader"])[by_reader].mean()),
    }


def _errors(right: np.ndarray, scores: np.ndarray, cut: float) -> tuple[float, float]:
    """(share of the others at or above the cut, share of the supported ones below)."""
    above = scores >= cut
    return float(above[~right].mean()), float((~above[right]).mean())
