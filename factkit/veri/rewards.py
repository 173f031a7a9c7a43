"""Veri-R1's reward (§2.3): pure functions first, then TRL's signature.

    R = R_label · w_validity + R_evidence + R_format, in [0, 4]

R_evidence is `claim_verification.evidence_score`, R_format is 1 where
`trajectory.well_formed`. A claim without gold evidence has R_evidence 0, whatever is
cited, so it earns 3 at most. Everything is a rule over strings: no reward can fail.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from factkit import models
from factkit.veri.evaluate import (
    check_claim,
    covers,
    evidence_score,
    verified,
)
from factkit.verify import trajectory as t
from factkit.verify.trajectory import NEI, Answer, Trajectory, Turn

if TYPE_CHECKING:
    import pandas as pd

    from factkit.veri.arms import VeriRlParams

LABEL = 2.0  # R_label of a right label
HALF = 0.5  # w_validity where most of the gold evidence was hit


def label_reward(answer: Answer, label: str) -> float:
    """R_label = 2 if ŷ = y, else 0."""
    return LABEL if answer.label == label else 0.0


def hit_rate(answer: Answer, gold: Sequence[str]) -> float:
    """h = |P ∩ G| / |G| of the cited and the gold ids, in [0, 1].

    Raises ValueError without gold evidence.
    """
    true = set(gold)
    if not true:
        raise ValueError("without gold evidence there is no hit rate")
    return len(true & set(answer.evidence)) / len(true)


def validity(
    answer: Answer, label: str, gold: Sequence[str], at_half: bool = False
) -> float:
    """w_validity = 1 if y = NEI or h = 1, 0.5 if h > 0.5, else 0; y the claim's label.

    at_half: 0.5 from h = 0.5 on, as in the public code (hits ≥ ⌈|G| / 2⌉). Raises
    ValueError if y is SUPPORT or REFUTE and there is no gold evidence.
    """
    if label == NEI:
        return 1.0
    h = hit_rate(answer, gold)
    if h == 1:
        return 1.0
    return HALF if h > 0.5 or (at_half and h == 0.5) else 0.0


def reward(
    answer: Answer,
    formed: bool,
    label: str,
    gold: Sequence[str],
    evidence_reward: bool = True,
    validity_weight: bool = True,
    format_reward: bool = True,
    validity_at_half: bool = False,
) -> float:
    """R = R_label · w_validity + R_evidence + R_format, in [0, 4].

    answer: what the trajectory ends with; formed: whether it is of the form; label and
    gold: the claim's. The first three switches leave out R_evidence, w_validity (then
    1) and R_format; with all three off only R_label is left. validity_at_half: at_half
    of `validity`. Raises ValueError on what `claim_verification.check_claim` refuses.
    """
    check_claim(label, gold)
    weight = validity(answer, label, gold, validity_at_half) if validity_weight else 1.0
    evidence = evidence_score(answer, gold) if evidence_reward else 0.0
    return label_reward(answer, label) * weight + evidence + (formed and format_reward)


def parts(
    trajectory: Trajectory,
    label: str,
    gold: Sequence[str],
    online: bool = True,
    max_searches: int = t.MAX_SEARCHES,
) -> dict[str, float]:
    """The paper's reward of a trajectory, part by part, for the viewer."""
    answer = t.answer_of(trajectory)
    formed = t.well_formed(trajectory, online, max_searches)
    return {
        "label × validity": label_reward(answer, label) * validity(answer, label, gold),
        "evidence": evidence_score(answer, gold),
        "format": float(formed),
    }


# TRL


def reward_function(p: "VeriRlParams", folder: Path) -> Callable[..., list[float]]:
    """The reward of p with TRL's `reward_funcs` signature.

    The rows need `label` and `evidence` (gold ids). trajectory: [[text, by_model], …]
    of each completion, from the rollout; without search a completion is its own
    trajectory. Raises ValueError if p.online and there are none.
    """

    def veri_reward(
        completions: list,
        label: list[str],
        evidence: list[list[str]],
        trajectory: list[list] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **_: object,
    ) -> list[float]:
        if p.online and trajectory is None:
            raise ValueError(f"arm={p.arm}: the rollout gave no trajectories")
        if trajectory is None:
            said = models.completion_texts(completions)
            read = [[Turn(text, by_model=True)] for text in said]
        else:
            read = [t.from_rows(rows) for rows in trajectory]
        answers = [t.answer_of(of) for of in read]
        formed = [t.well_formed(of, p.online, p.max_searches) for of in read]
        if log_metric:
            log_batch(read, answers, formed, label, evidence, log_metric)
        return [
            reward(
                *row,
                evidence_reward=p.evidence_reward,
                validity_weight=p.validity_weight,
                format_reward=p.format_reward,
                validity_at_half=p.validity_at_half,
            )
            for row in zip(answers, formed, label, evidence, strict=True)
        ]

    veri_reward.__name__ = f"veri_{p.arm}"
    return veri_reward


def log_batch(
    trajectories: Sequence[Trajectory],
    answers: Sequence[Answer],
    formed: Sequence[bool],
    labels: Sequence[str],
    golds: Sequence[Sequence[str]],
    log_metric: Callable[[str, float], None],
) -> None:
    """Log a batch's means of the metrics of `claim_verification` (Fig 4), of the share
    of the form, and of the number of searches; checkable_evidence_score of the SUPPORT
    and REFUTE claims and evidence_cover of those with gold evidence, if there are any.
    """
    rows = list(zip(answers, labels, golds, strict=True))
    log_metric("evidence_score", _mean([evidence_score(a, g) for a, _, g in rows]))
    if checkable := [evidence_score(a, g) for a, y, g in rows if y != NEI]:
        log_metric("checkable_evidence_score", _mean(checkable))
    log_metric("verification_accuracy", _mean([verified(*row) for row in rows]))
    log_metric("label_accuracy", _mean([a.label == y for a, y, _ in rows]))
    if covered := [covers(a, g) for a, _, g in rows if g]:
        log_metric("evidence_cover", _mean(covered))
    log_metric("format_share", _mean(formed))
    log_metric("searches", _mean([len(t.queries(of)) for of in trajectories]))


AT = {"start": 0.05, "40": 0.4, "60": 0.6, "80": 0.8, "end": 0.95}


def course(curve: "pd.DataFrame") -> dict[str, float]:
    """What Fig 4's curves say, of a run's metrics.csv: for each metric that was logged
    `rollout_<metric>`, its mean over all updates, and `rollout_<metric>_<when>`, over a
    tenth of them about the share AT of the training (§4: steps 40 and 60 of about 100).
    """
    n, found = len(curve), {}
    middle = curve.reset_index().index + 0.5
    for metric in ("evidence_score", "verification_accuracy", "evidence_cover"):
        if metric not in curve:
            continue
        found[f"rollout_{metric}"] = float(curve[metric].mean())
        for when, share in AT.items():
            near = abs(middle - share * n) <= max(n / 20, 0.5)
            found[f"rollout_{metric}_{when}"] = float(curve[metric][near].mean())
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
