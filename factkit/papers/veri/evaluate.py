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
evidence: their score is 0 whatever is cited. What there is to find is in
`checkable_evidence_score`, and `nei_evidence_score` is of the others. An answer without
a readable label is wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from factkit.data.examples import LABELS, Example
from factkit.run.statistics import means
from factkit.verify import trajectory as t
from factkit.verify.trajectory import NEI, Answer, Turn

SHORT = dict(zip(LABELS, ("support", "refute", "nei"), strict=True))
LOW, HIGH = 0.85, 0.95  # §4.3
ACCURACIES = ("joint_accuracy", "verification_accuracy", "label_accuracy")
OF_A_SET = (*ACCURACIES, "evidence_score")
COMPARED = (  # by the claims of papers/veri/published/claims.csv
    *(*OF_A_SET, "checkable_evidence_score", "evidence_cover"),
    *(f"{label}_{metric}" for label in ("support", "refute") for metric in ACCURACIES),
    "nei_joint_accuracy",  # of NOT ENOUGH INFO the three are one
    *(
        f"{label}_{name}"
        for label in SHORT.values()
        for name in ("low_confidence_accuracy", "high_confidence_accuracy")
    ),
    *(f"{label}_confidence" for label in SHORT.values()),
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
    trajectory: list[Turn]
    label_probability: float | None
    also_right: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_claim(self.label, self.gold)

    @property
    def answer(self) -> Answer:
        return t.answer_of(self.trajectory)

    def right(self, label: str | None) -> bool:
        """Whether a label is right."""
        return label in (self.label, *self.also_right)


def check_claim(label: str, gold: Sequence[str]) -> None:
    """Raise ValueError on a label that is none of LABELS, and on one of SUPPORT and
    REFUTE without gold evidence: whether it was found can't be said."""
    if label not in LABELS:
        raise ValueError(f"label={label!r}, not one of {', '.join(LABELS)}")
    if label != NEI and not gold:
        raise ValueError(f"a claim with label {label} has no gold evidence")


def of_examples(
    examples: Sequence[Example],
    trajectories: Sequence[list[Turn]],
    sure: Sequence[float | None] = (),
) -> list[Verified]:
    """Claims with what was done to verify them; sure: their label_probability."""
    sure = sure or [None] * len(examples)
    return [
        Verified(
            *(e.id, e.question, e.meta["set"], e.label, tuple(e.evidence)),
            trajectory=turns,
            label_probability=probability,
            also_right=tuple(e.answers[1:]),
        )
        for e, turns, probability in zip(examples, trajectories, sure, strict=True)
    ]


# ---- one answer


def evidence_score(answer: Answer, gold: Sequence[str]) -> float:
    """|P ∩ G| / |P ∪ G| of the cited and the gold ids, in [0, 1] (§2.3, R_evidence).

    0 where both are empty: the paper does not say what 0/0 is worth, its Table 3 and
    its public code count 0. And 1 would be a gift: an answer that cites nothing, ever,
    had a third of all points.
    """
    cited, true = set(answer.evidence), set(gold)
    return len(cited & true) / len(cited | true) if cited | true else 0.0


def marks(answer: Answer, label: str, gold: Sequence[str]) -> dict[str, float]:
    """What an answer counts in each metric of the table above that is asked of it."""
    cited, true = set(answer.evidence), set(gold)
    right, enough = answer.label == label, label == NEI
    score = evidence_score(answer, gold)
    counted = {
        "joint_accuracy": float(right and (enough or cited == true)),
        "verification_accuracy": float(right and (enough or true <= cited)),
        "label_accuracy": float(right),
        "evidence_score": score,
    }
    if gold:
        counted["evidence_cover"] = float(true <= cited)
    if label != NEI:
        counted["checkable_evidence_score"] = score
    return counted


# ---- many


def scores(rows: Sequence[Verified]) -> dict[str, float]:
    """The metrics of the table above, all in [0, 1].

    Of all claims, and of those of each label as `support_…`, `refute_…`, `nei_…`; and
    for each label `…_recall` (right of the claims that have it, which is their label
    accuracy) and `…_precision` (right of the answers that give it; Fig 5e-f).
    empty_as_one_evidence_score: what the evidence score would be if 0/0 were 1 in an
    answer with a label. What would be a mean over nothing is left out.
    """
    return means(map(_marks, rows))


def summary(
    rows: Sequence[Verified], max_searches: int = t.MAX_SEARCHES
) -> dict[str, float]:
    """What a run is told by: `scores`, also of each set as `<set>_…`; means of what
    `_conduct` tells; format_share (of the protocol's form), searches, forced_share (the
    system had to open the answer)."""
    metrics = scores(rows) | means(map(_conduct, rows))
    sets = dict.fromkeys(row.set for row in rows)
    for name in sets if len(sets) > 1 else ():
        own = scores([row for row in rows if row.set == name])
        metrics |= {f"{name}_{k}": v for k, v in own.items()}
    return metrics | means(
        {
            "format_share": t.well_formed(row.trajectory, True, max_searches),
            "searches": len(t.queries(row.trajectory)),
            "forced_share": t.forced(row.trajectory),
        }
        for row in rows
    )


def items(rows: Sequence[Verified]) -> dict[str, dict[str, float]]:
    """<set>/<claim> → what the claim counts in those metrics of `summary` that the
    paper's claims compare (COMPARED); of several sets, in a set's own ones, too.

    Raises ValueError if two claims have the same name.
    """
    several = len({row.set for row in rows}) > 1
    table: dict[str, dict[str, float]] = {}
    for row in rows:
        counted = _marks(row) | _conduct(row)
        counted = {k: round(v, 7) for k, v in counted.items() if k in COMPARED}
        if several:
            own = {f"{row.set}_{k}": v for k, v in counted.items() if k in OF_A_SET}
            counted |= own
        if table.setdefault(f"{row.set}/{row.id}", counted) is not counted:
            raise ValueError(f"two claims are {row.set}/{row.id}")
    return table


def _marks(row: Verified) -> dict[str, float]:
    """What a claim counts in each of `scores`."""
    given = row.answer
    right = row.right(given.label)
    answer = Answer(row.label if right else given.label, given.evidence)
    counted, short = marks(answer, row.label, row.gold), SHORT[row.label]
    checkable = counted.pop("checkable_evidence_score", None)
    counted |= {f"{short}_{name}": value for name, value in counted.items()}
    counted[f"{short}_recall"] = float(right)
    if given.label:
        counted[f"{SHORT[given.label]}_precision"] = float(right)
    if checkable is not None:
        counted["checkable_evidence_score"] = checkable
    empty = given.label and not row.gold and not given.evidence
    counted["empty_as_one_evidence_score"] = 1.0 if empty else counted["evidence_score"]
    return counted


def _conduct(row: Verified) -> dict[str, float]:
    """How a claim was gone about, and how surely.

    searched_twice: with two queries that differ or more; repeated_query: with one more
    than once (App. J). nei_as_support, nei_as_refute: how NOT ENOUGH INFO was mistaken
    (§4.3); checkable_as_nei: how another label was. Of an answer whose label has a
    probability (the paper speaks of logits, near 1 where the model is sure):
    confidence, also as `<label said>_confidence`; high_confidence_share (Fig 5a-b); and
    `<label said>_low_confidence_accuracy` below 0.85, `…_high_…` above 0.95 (Fig 5c-d).
    """
    queries, said = t.queries(row.trajectory), row.answer.label
    right = float(row.right(said))
    counted = {
        "searched_twice": float(len(set(queries)) > 1),
        "repeated_query": float(len(set(queries)) < len(queries)),
    }
    if row.label == NEI:
        for label in LABELS[:2]:
            counted[f"nei_as_{SHORT[label]}"] = float(said == label and not right)
    else:
        counted["checkable_as_nei"] = float(said == NEI)
    sure = row.label_probability
    if said and sure is not None:
        counted |= {"confidence": sure, f"{SHORT[said]}_confidence": sure}
        counted["high_confidence_share"] = float(sure > HIGH)
        if not LOW <= sure <= HIGH:
            tier = "low" if sure < LOW else "high"
            counted[f"{SHORT[said]}_{tier}_confidence_accuracy"] = right
    return counted
