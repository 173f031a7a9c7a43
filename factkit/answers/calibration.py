"""How well confidences tell right answers from wrong ones.

The answers given count: a policy that abstains states no answer to be right of, so
abstentions are left out, and so are answers without a confidence and those that a judge
failed on. With answers i = 1 … n, confidences q_i in [0, 1] and y_i = 1 where answer i
is correct, else 0:

| metric | equation |
|---|---|
| brier | 1/n Σ (q_i − y_i)² |
| ece | Σ_b n_b/n · abs(mean y − mean q), over ten bins of equal width |
| confidence_auc | pairs of a correct and a wrong answer in which the correct one has \
the higher confidence, as a share; a tie counts ½ |
| aurc | 1/n Σ_k risk(k): area under the risk–coverage curve |
| coverage_<c>_risk | risk(k) at the coverage c = k / questions, c = 0.1, 0.2 … |
| most_coverage | n / questions |

risk(k) is the share of wrong answers among the k most confident ones; answers of equal
confidence share their mean risk, whatever their order.
"""

from collections.abc import Sequence

import numpy as np

from factkit.answers.short_form import ScoredAnswer, rates
from factkit.verify.outcome import Outcome

BINS = 10  # of equal width; 1.0 is in the last
STEPS = 10  # of the coverage
SURE = 0.5  # confidence above which an answer adds to the expected truthfulness


def brier_term(row: ScoredAnswer) -> dict[str, float]:
    """An answer's term of the Brier score, (q − y)²; none where it does not count."""
    if row.confidence is None or row.outcome in (None, Outcome.ABSTAIN):
        return {}
    return {"brier": (row.confidence - (row.outcome is Outcome.CORRECT)) ** 2}


def measures(rows: Sequence[ScoredAnswer]) -> dict[str, float]:
    """The metrics of the table above; those without answers to count are left out."""
    counted = [row for row in rows if brier_term(row)]
    judged = sum(row.outcome is not None for row in rows)
    metrics = {"most_coverage": len(counted) / judged} if judged else {}
    if not counted:
        return metrics
    q = np.array([row.confidence for row in counted])
    y = np.array([row.outcome is Outcome.CORRECT for row in counted], dtype=float)
    risks = np.cumsum(_wrong(q, y)) / np.arange(1, len(q) + 1)
    metrics |= {
        "brier": float(np.mean((q - y) ** 2)),
        "ece": expected_calibration_error(q, y),
        "aurc": float(risks.mean()),
    }
    for step in range(1, STEPS + 1):
        k = round(step * judged / STEPS)
        if 0 < k <= len(q):
            metrics[f"coverage_{step / STEPS:.1f}_risk"] = float(risks[k - 1])
    higher = q[y == 1][:, None] - q[y == 0][None, :]  # (correct, wrong)
    if higher.size:
        metrics["confidence_auc"] = float(np.mean((np.sign(higher) + 1) / 2))
    return metrics


def confidence_rule(
    outcomes: Sequence[Outcome | None], confidences: Sequence[float | None]
) -> dict[str, float]:
    """The `rates`, named confidence_rule_…, of an untrained rule: a policy's answer
    where its confidence q is above one half, else abstention.

    An answer adds 2q − 1 to the expected truthfulness if q is the probability that it
    is correct: no other rule on true probabilities has more.
    """
    kept = [
        outcome if (q or 0.0) > SURE else Outcome.ABSTAIN
        for outcome, q in zip(outcomes, confidences, strict=True)
    ]
    return {f"confidence_rule_{name}": rate for name, rate in rates(kept).items()}


def expected_calibration_error(q: np.ndarray, y: np.ndarray) -> float:
    """Σ_b n_b/n · abs(mean y − mean q) over `BINS` bins of q. q, y: (n,)."""
    bins = np.minimum((q * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, y - q, minlength=BINS)  # n_b (mean y − mean q)
    return float(np.abs(gaps).sum() / len(q))


def _wrong(q: np.ndarray, y: np.ndarray) -> np.ndarray:
    """1 − y by falling confidence, (n,); those of equal confidence have their mean."""
    _, level, n = np.unique(-q, return_inverse=True, return_counts=True)
    mean = np.bincount(level, 1 - y) / n
    return np.repeat(mean, n)
