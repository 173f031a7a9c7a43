"""How well verifiers tell supported claims from others, on claims that people labelled.

Arrays have one value per row, a claim with evidence; a claim may have several rows.
"""

from collections.abc import Collection, Mapping

import numpy as np
from scipy.stats import rankdata

from factkit.verify.outcome import Support

DRAWS = 1000  # of the bootstrap
FEWEST_ROWS = 10  # of either kind, in each half
QUESTIONS = {  # → the labels that supported claims are told from
    "supported or not": [Support.CONTRADICTED, Support.INCONCLUSIVE],
    "supported or contradicted": [Support.CONTRADICTED],
}


def auc(supported: np.ndarray, scores: np.ndarray) -> float:
    """The chance that a supported row scores above another; ties count half."""
    n, others = int(supported.sum()), int((~supported).sum())
    ranks = rankdata(scores)[supported].sum()
    return float((ranks - n * (n + 1) / 2) / (n * others))


def threshold_errors(
    supported: np.ndarray, scores: np.ndarray, threshold: float
) -> tuple[float, float]:
    """(passed, refused): the share of the other rows at or above the threshold, and of
    the supported ones below it."""
    above = scores >= threshold
    return float(above[~supported].mean()), float((~above[supported]).mean())


def choose_dev(claims: Collection[str], seed: int) -> np.ndarray:
    """The rows to choose thresholds on: bool (n,), half of the claims with all of their
    rows."""
    names = sorted(set(claims))
    chosen = np.random.default_rng(seed).permutation(len(names)) < len(names) / 2
    dev = dict(zip(names, chosen, strict=True))
    return np.array([dev[claim] for claim in claims])


def claim_only_scores(
    embeddings: np.ndarray, supported: np.ndarray, fit: np.ndarray
) -> np.ndarray:
    """Scores of a ridge regression that sees the claim and no evidence: (n,).

    embeddings: of the claims, (n, d). fit: the rows to fit it on, bool (n,).
    """
    x = np.hstack([embeddings, np.ones((len(embeddings), 1))])
    a, b = x[fit], supported[fit].astype(float)
    return x @ np.linalg.solve(a.T @ a + np.eye(x.shape[1]), a.T @ b)


def error_rates(
    supported: np.ndarray, scores: np.ndarray, claims: np.ndarray, dev: np.ndarray
) -> dict[str, float]:
    """AUC and errors on the rows that are not `dev`, each with the 95 % interval of a
    bootstrap over claims (`…_low`, `…_high`).

    threshold: the one with the smallest sum of both errors on `dev`.
    """
    cuts = np.unique(scores[dev])
    sums = [sum(threshold_errors(supported[dev], scores[dev], cut)) for cut in cuts]
    threshold = float(cuts[int(np.argmin(sums))])
    y, s = supported[~dev], scores[~dev]
    names, claim_of = np.unique(claims[~dev], return_inverse=True)
    rows_of = [np.flatnonzero(claim_of == i) for i in range(len(names))]
    rng = np.random.default_rng(0)
    draws: list[tuple[float, float, float]] = []
    while len(draws) < DRAWS:
        drawn = rng.integers(len(names), size=len(names))
        rows = np.concatenate([rows_of[i] for i in drawn])
        if 0 < y[rows].sum() < len(rows):
            errors = threshold_errors(y[rows], s[rows], threshold)
            draws.append((auc(y[rows], s[rows]), *errors))
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    rates = {"rows": len(y), "supported": float(y.mean())}
    for i, value in enumerate((auc(y, s), *threshold_errors(y, s, threshold))):
        name = ("auc", "passed", "refused")[i]
        rates |= {name: value, f"{name}_low": low[i], f"{name}_high": high[i]}
    return rates | {"threshold": threshold}


def compare_verifiers(
    claims: np.ndarray,
    support: np.ndarray,
    scores: Mapping[str, np.ndarray],
    embeddings: np.ndarray,
    seed: int,
) -> list[dict]:
    """The `error_rates` of each verifier, and of the claim alone, by question.

    support: the labels. scores: verifier → its scores, NaN where it gave no verdict;
    such rows are left out and counted in `failed`. embeddings: of the claims, (n, d).
    seed: of the halves. A question without `FEWEST_ROWS` of either kind in each half
    has no row.
    """
    table, dev = [], choose_dev(claims, seed)
    supported = support == Support.SUPPORTED
    for question, others in QUESTIONS.items():
        used = supported | np.isin(support, others)
        sizes = np.bincount(2 * supported[used] + dev[used], minlength=4)
        if sizes.min() < FEWEST_ROWS or others[-1] not in support:
            continue
        claim_only = claim_only_scores(embeddings, supported, used & dev)
        for name, values in {"the claim alone": claim_only, **scores}.items():
            known = used & np.isfinite(values)
            rates = error_rates(
                supported[known], values[known], claims[known], dev[known]
            )
            failed = int((used & ~dev & ~known).sum())
            row = {"question": question, "verifier": name}
            table.append(row | rates | {"failed": failed})
    return table
