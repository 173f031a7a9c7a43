"""Confidence intervals of differences between arms, over seeds and items.

Two arms are measured on the same test items with several seeds. The share z_si of item
i in their difference with seed s has two crossed random effects,

    z_si = δ + seed_s + item_i + e_si,

and the variance of its mean is estimated by the mean squares of the two-way table,

    var = (MS_seed + MS_item − MS_rest) / (S·I), at least max(MS_seed, MS_item) / (S·I),

with Satterthwaite's degrees of freedom: about S − 1 if the seeds dominate, about I − 1
if the items do. It covers the truth in 92 to 96 of 100 simulated studies of three
seeds; a bootstrap over seeds and items in 80 to 95.

A metric is a mean over the items that count in it, or a ratio of sums (WEIGHTS); an
item's share is its linearised one, z_i = R + I·w_i (x_i − R) / Σw.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

FEWEST_ITEMS = 20
FEWEST_SEEDS = 3
# metrics that are ratios of sums: metric → the column that weighs an item's value
WEIGHTS = {"claim_precision": "total_claims"}

# item id → (value, weight); what does not count in the metric is left out
Items = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Estimate:
    """A difference with the standard error and degrees of freedom of its t interval.

    seeds: their number. items: their number in the smallest cell, 0 if none are stored.
    """

    value: float
    se: float
    df: float
    seeds: int
    items: int

    @property
    def half_width(self) -> float:
        """Half-width of the 95 % interval; NaN with one seed."""
        from scipy import special  # scipy.stats takes half a second to import

        return float(special.stdtrit(self.df, 0.975) * self.se)

    def p_above(self, bound: float) -> float:
        """One-sided p value against "the difference is at most `bound`"."""
        from scipy import special

        if self.se == 0:
            return 0.0 if self.value > bound else 1.0
        return float(special.stdtr(self.df, (bound - self.value) / self.se))


def means(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each column over the rows that have a value in it."""
    columns: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in columns.items()}


def mean_of(items: Items) -> float:
    """Σ w·x / Σ w over the items that count."""
    values, weights = np.array(list(items.values()), dtype=float).T
    return float(values @ weights / weights.sum())


def shares(items: Items, ids: Sequence[str]) -> np.ndarray:
    """Each item's share in the mean: float array (len(ids),), whose mean is `mean_of`.

    Items that do not count in the metric have the mean as their share.
    """
    values, weights = np.array([items.get(i, (0.0, 0.0)) for i in ids], dtype=float).T
    mean = values @ weights / weights.sum()
    return mean + len(ids) * weights * (values - mean) / weights.sum()


def difference(
    more: Mapping[int, Items], less: Mapping[int, Items], factor: float = 1.0
) -> Estimate:
    """more − factor·less, paired over items and seeds; without `less`, `more` itself.

    more, less: seed → items, with the same seeds. With one seed the interval covers the
    items only. If the seeds share no items, it is the t interval over the seeds'
    differences.
    """
    seeds = sorted(more)
    fewest = min(len(cell) for arm in (more, less) for cell in arm.values())
    per_seed = [set(more[s]) | set(less.get(s, ())) for s in seeds]
    every = sorted(set().union(*per_seed))
    if len(seeds) > 1 and not set.intersection(*per_seed):
        gains = [
            mean_of(more[s]) - (factor * mean_of(less[s]) if less else 0) for s in seeds
        ]
        return over_seeds(gains, fewest)
    rows = [
        shares(more[s], every) - (factor * shares(less[s], every) if less else 0)
        for s in seeds
    ]
    return _crossed(np.stack(rows), fewest)


def shared_items(
    more: Mapping[int, Items], less: Mapping[int, Items]
) -> tuple[dict[int, Items], dict[int, Items]]:
    """Both arms' items by seed, restricted to those that count in both arms, such as
    the requests that both answered."""
    shared = {seed: more[seed].keys() & less[seed].keys() for seed in more}

    def restrict(arm: Mapping[int, Items]) -> dict[int, Items]:
        return {s: {i: arm[s][i] for i in sorted(ids)} for s, ids in shared.items()}

    return restrict(more), restrict(less)


def over_seeds(values: Sequence[float], items: int = 0) -> Estimate:
    """The t interval over seeds, for results without stored items."""
    n = len(values)
    se = float(np.std(values, ddof=1)) / n**0.5 if n > 1 else float("nan")
    return Estimate(float(np.mean(values)), se, n - 1, n, items)


def _crossed(table: np.ndarray, fewest: int) -> Estimate:
    """The estimate of a table (S, I) of items' shares, one row per seed."""
    n_seeds, n_items = table.shape
    mean = table.mean()
    of_items = n_seeds * float(np.var(table.mean(axis=0), ddof=1)) if n_items > 1 else 0
    if n_seeds == 1:
        se = (of_items / n_items) ** 0.5
        return Estimate(float(mean), se, n_items - 1, 1, fewest)
    of_seeds = n_items * float(np.var(table.mean(axis=1), ddof=1))
    residual = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + mean
    df_rest = (n_seeds - 1) * (n_items - 1)
    of_rest = float((residual**2).sum()) / df_rest
    squares = max(of_seeds + of_items - of_rest, of_seeds, of_items)
    # Satterthwaite, from the mean squares that make up the variance
    parts = [(of_seeds, n_seeds - 1), (of_items, n_items - 1), (of_rest, df_rest)]
    if squares in (of_seeds, of_items):
        parts = parts[:1] if squares == of_seeds else parts[1:2]
    spread = sum(square**2 / df for square, df in parts)
    df = squares**2 / spread if spread else n_seeds - 1
    se = (squares / table.size) ** 0.5
    return Estimate(float(mean), se, df, n_seeds, fewest)


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half-width of the 95 % t interval of values; half-width 0 for one."""
    estimate = over_seeds(values)
    return estimate.value, estimate.half_width if len(values) > 1 else 0.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p values (1979)."""
    order, m = np.argsort(p_values), len(p_values)
    steps = [(m - rank) * p_values[i] for rank, i in enumerate(order)]
    adjusted = np.empty(m)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps or [0.0])[:m], 1)
    return adjusted.tolist()
