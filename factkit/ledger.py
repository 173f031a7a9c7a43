"""The papers' claims held against our results: holds, fails or undecided."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from factkit.figures import mean_and_range

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Claim:
    """Arm `more` has a higher `metric` than arm `less`, the paper says in `where`.

    may_lose: of a metric that stays, the share of `less`'s that `more` may lack. An arm
    "" has 0: the claim is on the sign of the other arm's metric, as of a difference.
    """

    text: str
    where: str
    metric: str
    more: str
    less: str
    may_lose: float = 0.0


PAPERS = ("truthrl", "rar", "reason", "rlfh", "veri")


def claims(paper: str) -> list[Claim]:
    """The claims of a paper, from factkit/published/<paper>_claims.csv."""
    path = files("factkit") / "published" / f"{paper}_claims.csv"
    with path.open(encoding="utf-8") as rows:
        return [
            Claim(
                *(row[k] for k in ("claim", "where", "metric", "more", "less")),
                may_lose=float(row["may_lose"] or 0),
            )
            for row in csv.DictReader(rows)
        ]


def check(
    claimed: Sequence[Claim], results: Sequence[Mapping[str, Any]]
) -> "pd.DataFrame":
    """A row a claim: mean difference over common seeds and the verdict.

    In points of a rate, or in claims a response. The claim holds if the 95 % t interval
    of the difference over seeds lies above 0 (above what `may_lose` allows), fails if
    below, and is undecided otherwise or with fewer than two seeds.
    """
    import pandas as pd

    values = {(r["arm"], r["seed"]): r["metrics"] for r in results}
    rows = []
    for claim in claimed:
        pairs = _pairs(claim, values)
        if not pairs:
            continue
        differences = [more - less for more, less in pairs]
        slack = [more - (1 - claim.may_lose) * less for more, less in pairs]
        mean, half = mean_and_range(differences)
        rows.append(
            (
                claim.text,
                claim.where,
                f"{claim.metric}: {claim.more or 0} − {claim.less or 0}",
                f"{mean:+.1f} ± {half:.1f}" if len(pairs) > 1 else f"{mean:+.1f}",
                len(pairs),
                verdict(*mean_and_range(slack), len(pairs)),
            )
        )
    columns = ["claim", "where", "difference", "ours (points)", "seeds", "verdict"]
    return pd.DataFrame(rows, columns=columns)


def _pairs(claim: Claim, values: Mapping) -> list[tuple[float, float]]:
    """The metric of `more` and of `less` for each seed that has both.

    Rates in points, since they are fractions in files; counts of claims as they are.
    """
    factor = 1 if claim.metric.endswith("_claims") else 100
    seeds = sorted(seed for arm, seed in values if arm == (claim.more or claim.less))
    both = (
        [
            values.get((arm, seed), {}).get(claim.metric) if arm else 0.0
            for arm in (claim.more, claim.less)
        ]
        for seed in seeds
    )
    return [(factor * m, factor * n) for m, n in both if None not in (m, n)]


def verdict(mean: float, half: float, n: int) -> str:
    """holds | fails | undecided, for a difference that the claim says is positive."""
    if n < 2 or mean - half <= 0 <= mean + half:
        return "undecided"
    return "holds" if mean > 0 else "fails"
