"""Veri-R1's reward (§2.3): pure functions first, then TRL's signature.

    R = R_label · w_validity + R_evidence + R_format, in [0, 4]

R_evidence is `evaluate.evidence_score`, R_format is 1 where a trajectory
`is_well_formed`. A claim without gold evidence has R_evidence 0, whatever is cited, so
it earns 3 at most. Everything is a rule over strings: no reward can fail.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from factkit.papers.veri.evaluate import check_claim, evidence_score, marks
from factkit.prompts import completion_texts
from factkit.run.statistics import means
from factkit.verify import trajectory as t
from factkit.verify.trajectory import NEI, Answer, Turn

if TYPE_CHECKING:
    from factkit.papers.veri.arms import Veri

LABEL = 2.0  # R_label of a correct label
HALF = 0.5  # w_validity where most of the gold evidence is cited
LOGGED = (
    "evidence_score",
    "checkable_evidence_score",
    "verification_accuracy",
    "label_accuracy",
    "evidence_cover",
    "format_share",
    "searches",
)
TIMES = {"start": 0.05, "40": 0.4, "60": 0.6, "80": 0.8, "end": 0.95}


def validity(
    answer: Answer, label: str, gold: Sequence[str], at_half: bool = False
) -> float:
    """w_validity = 1 if y = NEI or h = 1, 0.5 if h > 0.5, else 0.

    y is the claim's label, h = |P ∩ G| / |G| of the cited and the gold ids. at_half:
    0.5 from h = 0.5 on, as in the public code (hits ≥ ⌈|G| / 2⌉).
    """
    if label == NEI:
        return 1.0
    h = len(set(gold) & set(answer.evidence)) / len(set(gold))
    if h == 1:
        return 1.0
    return HALF if h > 0.5 or (at_half and h == 0.5) else 0.0


@dataclass(frozen=True)
class RewardTerms:
    """Which terms of the reward count.

    evidence_reward: R_evidence; validity_weight: w_validity, else 1; format_reward:
    R_format. Without the three, R_label is left. validity_at_half: as `validity`.
    """

    evidence_reward: bool = True
    validity_weight: bool = True
    format_reward: bool = True
    validity_at_half: bool = False


def reward(
    answer: Answer,
    formed: bool,
    label: str,
    gold: Sequence[str],
    terms: RewardTerms = RewardTerms(),
) -> float:
    """R = R_label · w_validity + R_evidence + R_format, in [0, 4].

    R_label = 2 if ŷ = y, else 0. answer: the trajectory's; formed: whether the
    trajectory keeps the protocol; label and gold: the claim's. Raises ValueError on
    what `evaluate.check_claim` refuses.
    """
    check_claim(label, gold)
    total = LABEL if answer.label == label else 0.0
    if terms.validity_weight:
        total *= validity(answer, label, gold, terms.validity_at_half)
    if terms.evidence_reward:
        total += evidence_score(answer, gold)
    return total + (formed and terms.format_reward)


def reward_function(p: "Veri", folder: Path) -> Callable[..., list[float]]:
    """The reward of p with TRL's `reward_funcs` signature; logs the means of LOGGED.

    The rows need `label` and `evidence` (gold ids). trajectory: the turns of each
    completion, from the rollout; without search a completion is its own trajectory.
    checkable_evidence_score is over SUPPORT and REFUTE claims, evidence_cover over
    claims with gold evidence, if a batch has any.
    """
    terms = RewardTerms(**{f.name: getattr(p, f.name) for f in fields(RewardTerms)})
    online, max_searches = p.online, p.max_searches

    def veri_reward(
        completions: list,
        label: list[str],
        evidence: list[list[str]],
        trajectory: list[list] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **_: object,
    ) -> list[float]:
        if trajectory is None:
            trajectory = [[(text, True)] for text in completion_texts(completions)]
        trajectories = [[Turn(*turn) for turn in turns] for turns in trajectory]
        answers = [t.parse_answer(turns) for turns in trajectories]
        formed = [
            t.is_well_formed(turns, online, max_searches) for turns in trajectories
        ]
        if log_metric:
            columns = zip(answers, label, evidence, formed, trajectories, strict=True)
            batch_means = means(
                marks(answer, y, gold)
                | {"format_share": form, "searches": len(t.extract_queries(turns))}
                for answer, y, gold, form, turns in columns
            )
            for name in LOGGED:
                if name in batch_means:
                    log_metric(name, batch_means[name])
        rows = zip(answers, formed, label, evidence, strict=True)
        return [reward(answer, form, y, gold, terms) for answer, form, y, gold in rows]

    veri_reward.__name__ = f"veri_{p.arm}"
    return veri_reward


def course(curve: pd.DataFrame) -> dict[str, float]:
    """Summarise Fig 4's curves from a run's metrics.csv.

    For each logged metric `rollout_<metric>`, its mean over all updates, and
    `rollout_<metric>_<time>`, its mean over a tenth of them around the share TIMES of
    the training (§4: steps 40 and 60 of about 100). Only the first update of a rollout
    has a value; a tenth without any is left out.
    """
    n, summary = len(curve), {}
    middle = curve.reset_index().index + 0.5
    for metric in ("evidence_score", "verification_accuracy", "evidence_cover"):
        if metric in curve:
            summary[f"rollout_{metric}"] = float(curve[metric].mean())
            for time, share in TIMES.items():
                near = abs(middle - share * n) <= max(n / 20, 0.5)
                values = curve[metric][near].dropna()
                if len(values):
                    summary[f"rollout_{metric}_{time}"] = float(values.mean())
    return summary
