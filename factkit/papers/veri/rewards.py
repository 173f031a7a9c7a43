"""Veri-R1's reward (§2.3): pure functions first, then TRL's signature.

    R = R_label · w_validity + R_evidence + R_format, in [0, 4]

R_evidence is `evaluate.evidence_score`, R_format is 1 where `trajectory.well_formed`. A
claim without gold evidence has R_evidence 0, whatever is cited, so it earns 3 at most.
Everything is a rule over strings: no reward can fail.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from factkit.papers.veri.evaluate import check_claim, evidence_score, marks
from factkit.prompts import completion_texts
from factkit.run.statistics import means
from factkit.verify import trajectory as t
from factkit.verify.trajectory import NEI, Answer, Turn

if TYPE_CHECKING:
    import pandas as pd

    from factkit.papers.veri.arms import VeriRlParams

LABEL = 2.0  # R_label of a right label
HALF = 0.5  # w_validity where most of the gold evidence was hit
LOGGED = (
    *("evidence_score", "checkable_evidence_score", "verification_accuracy"),
    *("label_accuracy", "evidence_cover", "format_share", "searches"),
)
AT = {"start": 0.05, "40": 0.4, "60": 0.6, "80": 0.8, "end": 0.95}


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

    R_label = 2 if ŷ = y, else 0. answer: what the trajectory ends with; formed: whether
    it is of the form; label and gold: the claim's. The first three switches leave out
    R_evidence, w_validity (then 1) and R_format; with all three off only R_label is
    left. validity_at_half: at_half of `validity`. Raises ValueError on what
    `evaluate.check_claim` refuses.
    """
    check_claim(label, gold)
    weight = validity(answer, label, gold, validity_at_half) if validity_weight else 1.0
    evidence = evidence_score(answer, gold) if evidence_reward else 0.0
    label_reward = LABEL if answer.label == label else 0.0
    return label_reward * weight + evidence + (formed and format_reward)


def reward_function(p: "VeriRlParams", folder: Path) -> Callable[..., list[float]]:
    """The reward of p with TRL's `reward_funcs` signature; logs means of LOGGED.

    The rows need `label` and `evidence` (gold ids). trajectory: the turns of each
    completion, from the rollout; without search a completion is its own trajectory.
    checkable_evidence_score is of the SUPPORT and REFUTE claims, evidence_cover of
    those with gold evidence, if a batch has any.
    """

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
        made = [[Turn(*turn) for turn in turns] for turns in trajectory]
        answers = [t.answer_of(turns) for turns in made]
        formed = [t.well_formed(turns, p.online, p.max_searches) for turns in made]
        if log_metric:
            rows = zip(answers, label, evidence, formed, made, strict=True)
            means_of = means(
                marks(answer, y, gold)
                | {"format_share": form, "searches": len(t.queries(turns))}
                for answer, y, gold, form, turns in rows
            )
            for name in LOGGED:
                if name in means_of:
                    log_metric(name, means_of[name])
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


def course(curve: "pd.DataFrame") -> dict[str, float]:
    """What Fig 4's curves say, of a run's metrics.csv: for each metric that was logged
    `rollout_<metric>`, its mean over all updates, and `rollout_<metric>_<when>`, over a
    tenth of them about the share AT of the training (§4: steps 40 and 60 of about 100).
    Of a rollout's updates the first alone has a value; a tenth without any is left out.
    """
    n, told = len(curve), {}
    middle = curve.reset_index().index + 0.5
    for metric in ("evidence_score", "verification_accuracy", "evidence_cover"):
        if metric in curve:
            told[f"rollout_{metric}"] = float(curve[metric].mean())
            for when, share in AT.items():
                near = abs(middle - share * n) <= max(n / 20, 0.5)
                known = curve[metric][near].dropna()
                if len(known):
                    told[f"rollout_{metric}_{when}"] = float(known.mean())
    return told
