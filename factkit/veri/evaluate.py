"""Claim verification: labels and their evidence (Veri-R1 §3.2).

What is asked of an answer, y the claim's label, G its gold evidence, P the cited:

| metric | y is SUPPORT or REFUTE | y is NOT ENOUGH INFO |
|---|---|---|
| label_accuracy | label | label |
| verification_accuracy | label and G ⊆ P | label |
| joint_accuracy | label and G = P | label |
| evidence_score | abs(G ∩ P) / abs(G ∪ P) | the same |
| checkable_evidence_score | the same | – |
| evidence_cover | G ⊆ P | the same, where G is not empty |

The paper relaxes NOT ENOUGH INFO for the two accuracies alone, so its evidence score is
the mean over all claims, also over the third of FEVER's and SciFact's that have no gold
evidence: nothing can be found for them, and their score is 0 whatever is cited. What
there is to find is in `checkable_evidence_score`, of SUPPORT and REFUTE alone, and
`nei_evidence_score` is of the others. An answer without a readable label is wrong.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator

from factkit.datasets.examples import Example
from factkit.evaluate import rows as kept
from factkit.statistics import means, resampled_means
from factkit.verify import trajectory as t
from factkit.verify.trajectory import LABELS, NEI, Answer, Turn

SHORT = dict(zip(LABELS, ("support", "refute", "nei"), strict=True))
LOW, HIGH = 0.85, 0.95  # §4.3
ACCURACIES = ("joint_accuracy", "verification_accuracy", "label_accuracy")
OF_A_SET = (*ACCURACIES, "evidence_score")
COMPARED = (  # by the claims of published/veri_claims.csv
    *(*OF_A_SET, "checkable_evidence_score", "evidence_cover"),
    *(f"{label}_{metric}" for label in ("support", "refute") for metric in ACCURACIES),
    "nei_joint_accuracy",  # of NOT ENOUGH INFO the three are one
    *(
        f"{label}_{of}"
        for label in SHORT.values()
        for of in ("low_confidence_accuracy", "high_confidence_accuracy", "confidence")
    ),
    *("confidence", "high_confidence_share"),
    *("searched_twice", "repeated_query"),
    *("checkable_as_nei", "nei_as_support", "nei_as_refute"),
)


@dataclass(frozen=True)
class Verified:
    """A claim and what the policy did to verify it.

    set: the benchmark; label: one of LABELS; gold: ids of the gold evidence, of which
    SUPPORT and REFUTE have some (else ValueError); label_probability: of the label that
    the policy wrote, in [0, 1], None if it was not measured or there is none.
    also_right: labels that count as right beside `label`, as HoVer's NOT_SUPPORTED has.
    """

    id: str
    claim: str
    set: str
    label: str
    gold: tuple[str, ...]
    trajectory: Annotated[list[Turn], BeforeValidator(t.from_rows)]
    label_probability: float | None
    also_right: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_claim(self.label, self.gold)

    @property
    def answer(self) -> Answer:
        return t.answer_of(self.trajectory)

    def right(self, said: str | None) -> bool:
        """Whether a label is right."""
        return said in (self.label, *self.also_right)


def check_claim(label: str, gold: Sequence[str]) -> None:
    """Raise ValueError on a label that is none of LABELS, and on one of SUPPORT and
    REFUTE without gold evidence: whether it was found can't be said."""
    if label not in LABELS:
        raise ValueError(f"label={label!r}, not one of {', '.join(LABELS)}")
    if label != NEI and not gold:
        raise ValueError(f"a claim with label {label} has no gold evidence")


def claim_rows(examples: Iterable[Example]) -> list[dict[str, Any]]:
    """The fields of `Verified` that are the claims' own."""
    return [
        {
            "id": e.id,
            "claim": e.question,
            "set": e.meta["set"],
            "label": e.label,
            "gold": tuple(e.evidence),
            "also_right": tuple(e.answers[1:]),
        }
        for e in examples
    ]


def of_examples(
    examples: Sequence[Example], trajectories: Iterable[list[Turn]]
) -> list[Verified]:
    """Claims with what was done to verify them; how sure it was is not known."""
    return [
        Verified(**row, trajectory=of, label_probability=None)
        for row, of in zip(claim_rows(examples), trajectories, strict=True)
    ]


# ---- files


def write_verified(path: Path, rows: Iterable[Verified]) -> None:
    """Write rows as JSON lines, byte-equal for equal rows."""
    plain = (vars(row) | {"trajectory": t.as_rows(row.trajectory)} for row in rows)
    kept.write(path, plain)


def read_verified(path: Path) -> list[Verified]:
    """The rows that `write_verified` wrote; DataError as `rows.read`."""
    return kept.read(path, Verified)


# ---- one answer


def covers(answer: Answer, gold: Sequence[str]) -> bool:
    """G ⊆ P: whether all gold evidence is cited; more may be."""
    return set(gold) <= set(answer.evidence)


def evidence_score(answer: Answer, gold: Sequence[str]) -> float:
    """|P ∩ G| / |P ∪ G| of the cited and the gold ids, in [0, 1] (§2.3, R_evidence).

    0 where both are empty. There the fraction is 0/0, and the paper does not say what
    it is worth. Its training claims all have gold evidence, so no reward hung on it;
    its Table 3 counts 0 for each of FEVER's and SciFact's claims without any (public
    code: `evidence_reward` stays 0 without gold evidence). And 1 would be a gift: an
    answer that cites nothing, ever, had a third of all points.
    """
    cited, true = set(answer.evidence), set(gold)
    return len(cited & true) / len(cited | true) if cited | true else 0.0


def verified(answer: Answer, label: str, gold: Sequence[str]) -> bool:
    """Whether the label is right and, unless it is NOT ENOUGH INFO, all gold evidence
    is cited (§3.2, verification accuracy)."""
    return answer.label == label and (label == NEI or covers(answer, gold))


def joint(answer: Answer, label: str, gold: Sequence[str]) -> bool:
    """Whether label and, unless it is NOT ENOUGH INFO, evidence are right, with nothing
    more cited (§3.2, joint accuracy)."""
    exact = set(answer.evidence) == set(gold)
    return answer.label == label and (label == NEI or exact)


# ---- scores


def scores(rows: Sequence[Verified]) -> dict[str, float]:
    """The metrics of the table above, all in [0, 1].

    Of all claims, and of those of each label as `support_…`, `refute_…`, `nei_…`; and
    for each label `…_recall` (right of the claims that have it, which is their label
    accuracy) and `…_precision` (right of the answers that give it; Fig 5e-f).
    empty_as_one_evidence_score: what the evidence score would be if 0/0 were 1 in an
    answer with a label. What would be a mean over nothing is left out. Raises
    ValueError without rows.
    """
    if not rows:
        raise ValueError("no claims to score")
    return means(map(_marks, rows))


def summary(
    rows: Sequence[Verified], max_searches: int = t.MAX_SEARCHES
) -> dict[str, float]:
    """What a run is told by: `scores`, also of each set as `<set>_…`; `by_confidence`;
    what `_conduct` tells; format_share, searches, forced_share.
    """
    metrics = scores(rows) | by_confidence(rows) | means(map(_conduct, rows))
    sets = dict.fromkeys(row.set for row in rows)
    for name in sets if len(sets) > 1 else ():
        of = scores([row for row in rows if row.set == name])
        metrics |= {f"{name}_{k}": v for k, v in of.items()}
    return metrics | {
        "format_share": format_share(rows, online=True, max_searches=max_searches),
        "searches": searches(rows),
        "forced_share": forced_share(rows),
    }


def items(rows: Sequence[Verified]) -> dict[str, dict[str, float]]:
    """<set>/<claim> → what the claim counts in those metrics of `summary` that the
    paper's claims compare (COMPARED); of several sets, in a set's own ones, too.

    Raises ValueError if two claims have the same name.
    """
    several = len({row.set for row in rows}) > 1
    table: dict[str, dict[str, float]] = {}
    for row in rows:
        marks = _marks(row) | _tier(row) | _conduct(row)
        marks = {k: round(v, 7) for k, v in marks.items() if k in COMPARED}
        if several:
            own = {f"{row.set}_{k}": v for k, v in marks.items() if k in OF_A_SET}
            marks |= own
        if table.setdefault(f"{row.set}/{row.id}", marks) is not marks:
            raise ValueError(f"two claims are {row.set}/{row.id}")
    return table


def by_confidence(rows: Sequence[Verified]) -> dict[str, float]:
    """`<label>_low_confidence_accuracy` and `…_high_…`: the share of right labels among
    the answers that give the label with a probability < 0.85 and > 0.95 (Fig 5c-d).

    The paper speaks of logits, near 1 where the model is sure; we take probabilities.
    Left out: answers without one, and means over nothing.
    """
    return means(map(_tier, rows))


def bootstrap(
    rows: Sequence[Verified], resamples: int, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """95 % percentile intervals of `scores` over resampled claims.

    A resample without a claim for a metric (none with that label, say) counts for none
    of that metric. Raises ValueError without rows.
    """
    names = list(scores(rows))
    marks = map(_marks, rows)
    table = np.array([[of.get(name, np.nan) for name in names] for of in marks])
    intervals = {}
    for name, of in zip(names, resampled_means(table, resamples, seed), strict=True):
        ordered = np.sort(of).tolist()
        low, high = int(0.025 * len(ordered)), int(0.975 * len(ordered)) - 1
        intervals[name] = ordered[low], ordered[max(high, 0)]
    return intervals


def format_share(
    rows: Sequence[Verified], online: bool, max_searches: int = t.MAX_SEARCHES
) -> float:
    """The share of trajectories of the protocol's form (`trajectory.well_formed`)."""
    return _mean([t.well_formed(r.trajectory, online, max_searches) for r in rows])


def searches(rows: Sequence[Verified]) -> float:
    """The mean number of searches."""
    return _mean([len(t.queries(row.trajectory)) for row in rows])


def forced_share(rows: Sequence[Verified]) -> float:
    """The share of trajectories in which the system had to open the answer."""
    return _mean([t.forced(row.trajectory) for row in rows])


def _marks(row: Verified) -> dict[str, float]:
    """What a claim counts in each metric that is a mean over it and others."""
    answer, label, gold = row.answer, row.label, row.gold
    said, right = answer.label, float(row.right(answer.label))
    if right:
        answer = Answer(label, answer.evidence)
    marks = {
        "joint_accuracy": float(joint(answer, label, gold)),
        "verification_accuracy": float(verified(answer, label, gold)),
        "label_accuracy": right,
        "evidence_score": evidence_score(answer, gold),
    }
    if gold:
        marks["evidence_cover"] = float(covers(answer, gold))
    marks |= {f"{SHORT[label]}_{name}": value for name, value in marks.items()}
    marks[f"{SHORT[label]}_recall"] = right
    if said:
        marks[f"{SHORT[said]}_precision"] = right
    if label != NEI:
        marks["checkable_evidence_score"] = marks["evidence_score"]
    empty = said and not gold and not answer.evidence
    marks["empty_as_one_evidence_score"] = 1.0 if empty else marks["evidence_score"]
    return marks


def _tier(row: Verified) -> dict[str, float]:
    """What a claim counts in `by_confidence`."""
    said, sure = row.answer.label, row.label_probability
    if said is None or sure is None or LOW <= sure <= HIGH:
        return {}
    tier = "low" if sure < LOW else "high"
    return {f"{SHORT[said]}_{tier}_confidence_accuracy": float(row.right(said))}


def _conduct(row: Verified) -> dict[str, float]:
    """How a claim was gone about, and how surely.

    searched_twice: with two queries that differ or more; repeated_query: with one more
    than once (App. J). nei_as_support, nei_as_refute: how NOT ENOUGH INFO was mistaken
    (§4.3); checkable_as_nei: how another label was. Of an answer whose label has a
    probability: confidence, also as `<label said>_confidence`, and
    high_confidence_share (Fig 5a-b).
    """
    asked, said = t.queries(row.trajectory), row.answer.label
    marks = {
        "searched_twice": float(len(set(asked)) > 1),
        "repeated_query": float(len(set(asked)) < len(asked)),
    }
    if row.label == NEI:
        for label in LABELS[:2]:
            wrong = said == label and not row.right(said)
            marks[f"nei_as_{SHORT[label]}"] = float(wrong)
    else:
        marks["checkable_as_nei"] = float(said == NEI)
    if said and (sure := row.label_probability) is not None:
        marks |= {"confidence": sure, f"{SHORT[said]}_confidence": sure}
        marks["high_confidence_share"] = float(sure > HIGH)
    return marks


def _mean(values: Sequence[float]) -> float:
    if not values:
        raise ValueError("no claims to score")
    return sum(values) / len(values)
