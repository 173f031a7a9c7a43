"""The papers' claims held against our results: holds, fails or undecided."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from factkit.figures import mean_and_range

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Claim:
    """Arm `more` has a higher `metric` than arm `less`, the paper says in `where`."""

    text: str
    where: str
    metric: str
    more: str
    less: str


TRUTHRL = (
    Claim(
        "TruthRL is more truthful than prompting",
        "Table 1",
        "truthfulness",
        "ternary",
        "prompting",
    ),
    Claim(
        "TruthRL hallucinates less than prompting",
        "Table 1",
        "hallucination",
        "prompting",
        "ternary",
    ),
    Claim(
        "TruthRL is more truthful than SFT",
        "Table 1",
        "truthfulness",
        "ternary",
        "sft",
    ),
    Claim(
        "TruthRL is more truthful than R-Tuning",
        "Table 1",
        "truthfulness",
        "ternary",
        "r_tuning",
    ),
    Claim(
        "TruthRL answers more correctly than R-Tuning",
        "Table 1",
        "accuracy",
        "ternary",
        "r_tuning",
    ),
    Claim(
        "SFT raises hallucination over prompting",
        "§4.2",
        "hallucination",
        "sft",
        "prompting",
    ),
    Claim(
        "R-Tuning lowers hallucination",
        "§4.2",
        "hallucination",
        "prompting",
        "r_tuning",
    ),
    Claim(
        "the ternary reward is more truthful than the binary",
        "Table 3",
        "truthfulness",
        "ternary",
        "binary",
    ),
    Claim(
        "the binary reward answers more correctly",
        "Table 1",
        "accuracy",
        "binary",
        "ternary",
    ),
    Claim(
        "the binary reward removes abstention",
        "Fig 3a",
        "abstention",
        "r_tuning",
        "binary",
    ),
)


def check(
    claims: Sequence[Claim], results: Sequence[Mapping[str, Any]]
) -> "pd.DataFrame":
    """A row a claim: mean difference over common seeds in points, and the verdict.

    The claim holds if the 95 % t interval of the difference over seeds lies above 0,
    fails if below, and is undecided otherwise or with fewer than two seeds.
    """
    import pandas as pd

    values = {(r["arm"], r["seed"]): r["metrics"] for r in results}
    rows = []
    for claim in claims:
        seeds = [s for arm, s in values if arm == claim.more]
        differences = [
            100 * (values[claim.more, s][claim.metric] - less[claim.metric])
            for s in sorted(seeds)
            if (less := values.get((claim.less, s)))
        ]
        if not differences:
            continue
        mean, half = mean_and_range(differences)
        rows.append(
            (
                claim.text,
                claim.where,
                f"{claim.metric}: {claim.more} − {claim.less}",
                f"{mean:+.1f} ± {half:.1f}" if len(differences) > 1 else f"{mean:+.1f}",
                len(differences),
                verdict(mean, half, len(differences)),
            )
        )
    columns = ["claim", "where", "difference", "ours (points)", "seeds", "verdict"]
    return pd.DataFrame(rows, columns=columns)


def verdict(mean: float, half: float, n: int) -> str:
    """holds | fails | undecided, for a difference that the claim says is positive."""
    if n < 2 or mean - half <= 0 <= mean + half:
        return "undecided"
    return "holds" if mean > 0 else "fails"
