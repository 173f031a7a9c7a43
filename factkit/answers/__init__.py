"""What the evaluations of short and of long answers share."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from factkit.data.examples import Example

# rule → its name in tables; truthrl has a relation_rule of short answers
UNTRAINED_RULES = {
    "confidence_rule": "confidence rule (untrained)",
    "relation_rule": "relation rule (untrained)",
    "first_claim": "first claim (untrained)",
    "century_rule": "century rule (untrained)",
    "consistency_rule": "consistency rule (untrained)",
}
# of `answers.calibration`, in tables of arms
CALIBRATION = ("brier", "ece", "confidence_auc", "aurc")
EXPOSURE_EDGES = (0, 1, 4, 10, 40)  # times; a bin reaches to below the next


def stored_meta(example: "Example") -> dict[str, Any]:
    """The part of an example's meta that results store: all but its texts."""
    texts = ("references", "reasoning")
    return {k: v for k, v in example.meta.items() if k not in texts}


def exposure_bin(exposure: int) -> int:
    """The lower edge of the bin of how often the policy read a fact (fact world)."""
    return max(e for e in EXPOSURE_EDGES if e <= exposure)


def flatten_metrics(
    by: Mapping[str, Mapping[Any, Mapping[str, float]]],
) -> dict[str, float]:
    """{"exposure_10_abstention": …} from {"exposure": {10: {"abstention": …}}}.

    `n` becomes the share of all questions.
    """
    metrics: dict[str, float] = {}
    for kind, groups in by.items():
        total = sum(group.get("n", 0) for group in groups.values())
        for key, group in groups.items():
            shares = {k: v / total if k == "n" else v for k, v in group.items()}
            metrics |= {f"{kind}_{key}_{k}": v for k, v in shares.items()}
    return metrics


def split_gain(
    after: Mapping[str, float], before: Mapping[str, float], name: str
) -> dict[str, float]:
    """The change in a mean over answers, in two parts: on the requests answered both
    times, and by silence, the rest. Empty if no request was answered both times.

    after: with the metrics of `same_answered`.
    """
    if f"same_answered_{name}" not in after:
        return {}
    change = after[name] - before[name]
    same = after[f"same_answered_{name}"] - after[f"before_same_answered_{name}"]
    return {"change": change, "same answered": same, "by silence": change - same}
