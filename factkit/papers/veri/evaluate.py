"""Measures of claim verification: labels and their evidence (Veri-R1 §3.2).

What each metric requires of an answer, with y the claim's label, G its gold evidence
and P the cited evidence:

| metric | y is SUPPORT or REFUTE | y is NOT ENOUGH INFO |
|---|---|---|
| label_accuracy | label | label |
| verification_accuracy | label and G ⊆ P | label |
| joint_accuracy | label and G = P | label |
| evidence_score | abs(G ∩ P) / abs(G ∪ P) | the same |
| checkable_evidence_score | the same | – |
| evidence_cover | G ⊆ P | the same, where G is not empty |
| one_hop_joint_accuracy | label and G = P, of claims with abs(G) = 1 | – |
| more_hops_joint_accuracy | the same, with abs(G) > 1 | – |

The paper relaxes NOT ENOUGH INFO for the two accuracies only, so its evidence score is
the mean over all claims, including the third of FEVER's and SciFact's without gold
evidence, whose score is 0 whatever is cited. `checkable_evidence_score` leaves those
out; `nei_evidence_score` is theirs. An answer without a readable label is wrong.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from factkit.data.examples import LABELS, Example
from factkit.run.statistics import means
from factkit.verify import trajectory as t
from factkit.verify.trajectory import NEI, Answer, Turn

SHORT = dict(zip(LABELS, ("support", "refute", "nei"), strict=True))
LOW, HIGH = 0.85, 0.95  # §4.3
ENTRY = re.compile(r"^\[\[(.+?)\]\]: (.+)$", re.MULTILINE)  # of what a search found
ACCURACIES = ("joint_accuracy", "verification_accuracy", "label_accuracy")
OF_A_SET = (*ACCURACIES, "evidence_score")
BY_HOPS = ("one_hop_joint_accuracy", "more_hops_joint_accuracy")
OF_CHECKABLE = ("checkable_evidence_score", *BY_HOPS)  # not of NOT ENOUGH INFO
BY_LABEL = {f"{label}_{name}" for label in ("support", "refute") for name in ACCURACIES}
BY_CONFIDENCE = {
    f"{label}_{name}"
    for label in SHORT.values()
    for name in ("low_confidence_accuracy", "high_confidence_accuracy", "confidence")
}
COMPARED = {  # metrics in the claims of papers/veri/published/claims.csv
    *OF_A_SET,
    *BY_LABEL,
    *BY_CONFIDENCE,
    "nei_joint_accuracy",  # for NOT ENOUGH INFO the three are one
    "checkable_evidence_score",
    "evidence_cover",
    "confidence",
    "high_confidence_share",
    "searched_twice",
    "repeated_query",
    "checkable_as_nei",
    "nei_as_support",
    "nei_as_refute",
}


@dataclass(frozen=True)
class Verified:
    """A claim and the trajectory in which the policy verified it.

    set: the benchmark; label: one of LABELS; gold: ids of the gold evidence, which
    SUPPORT and REFUTE must have (else ValueError); label_probability: of the label that
    the policy wrote, in [0, 1], None if it was not measured or there is none.
    also_right: labels that count as correct beside `label`, as for HoVer's
    NOT_SUPPORTED.
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
        return t.parse_answer(self.trajectory)

    def right(self, label: str | None) -> bool:
        """Whether a label counts as correct."""
        return label in (self.label, *self.also_right)


def check_claim(label: str, gold: Sequence[str]) -> None:
    """Raise ValueError on an unknown label, and on SUPPORT or REFUTE without gold
    evidence."""
    if label not in LABELS:
        raise ValueError(f"label={label!r}, not one of {', '.join(LABELS)}")
    if label != NEI and not gold:
        raise ValueError(f"a claim with label {label} has no gold evidence")


def of_examples(
    examples: Sequence[Example],
    trajectories: Sequence[list[Turn]],
    probabilities: Sequence[float | None] = (),
) -> list[Verified]:
    """Join claims with their trajectories. probabilities: of the labels written."""
    probabilities = probabilities or [None] * len(examples)
    return [
        Verified(
            id=e.id,
            claim=e.question,
            set=e.meta["set"],
            label=e.label,
            gold=tuple(e.evidence),
            trajectory=turns,
            label_probability=probability,
            also_right=tuple(e.answers[1:]),
        )
        for e, turns, probability in zip(
            examples, trajectories, probabilities, strict=True
        )
    ]


# ---- one answer


def evidence_score(answer: Answer, gold: Sequence[str]) -> float:
    """|P ∩ G| / |P ∪ G| of the cited and the gold ids, in [0, 1] (§2.3, R_evidence).

    0 where both are empty: the paper does not define 0/0; its Table 3 and its public
    code count 0. With 1, an answer that never cites anything would get a third of all
    points.
    """
    cited, true = set(answer.evidence), set(gold)
    return len(cited & true) / len(cited | true) if cited | true else 0.0


def marks(answer: Answer, label: str, gold: Sequence[str]) -> dict[str, float]:
    """An answer's value of each metric of the table above that applies to it."""
    cited, true = set(answer.evidence), set(gold)
    correct, label_only = answer.label == label, label == NEI
    score = evidence_score(answer, gold)
    values = {
        "joint_accuracy": float(correct and (label_only or cited == true)),
        "verification_accuracy": float(correct and (label_only or true <= cited)),
        "label_accuracy": float(correct),
        "evidence_score": score,
    }
    if gold:
        values["evidence_cover"] = float(true <= cited)
        values[BY_HOPS[len(true) > 1]] = values["joint_accuracy"]
    if label != NEI:
        values["checkable_evidence_score"] = score
    return values


def answer_what_was_read(row: Verified) -> Answer:
    """The policy's label, with those entries as evidence that its thoughts name by id
    or repeat as a whole; NOT ENOUGH INFO if there is no such entry.

    A rule without RL for a policy whose thoughts state what it read, as those of the
    scripts do (ours): the gain by exact citation and by saying that nothing was found.
    """
    steps = t.parse_steps(row.trajectory)
    thoughts = " ".join(step.text for step in steps if step.kind == "think")
    found = "\n".join(step.text for step in steps if step.kind == "information")
    read = [
        entry
        for entry, text in ENTRY.findall(found)
        if text in thoughts or f"[[{entry}]]" in thoughts
    ]
    if row.answer.label == NEI or not read:
        return Answer(NEI, ())
    return Answer(row.answer.label, tuple(dict.fromkeys(read)))


# ---- all answers


def scores(rows: Sequence[Verified]) -> dict[str, float]:
    """The metrics of the table above, all in [0, 1].

    Over all claims, and over those of each label as `support_…`, `refute_…`, `nei_…`;
    and for each label `…_recall` (correct of the claims that have it, which is their
    label accuracy) and `…_precision` (correct of the answers that give it; Fig 5e-f).
    empty_as_one_evidence_score: the evidence score if 0/0 were 1 in an answer with a
    label. A mean over nothing is left out.
    """
    return means(map(_marks, rows))


def summary(
    rows: Sequence[Verified], max_searches: int = t.MAX_SEARCHES
) -> dict[str, float]:
    """All metrics of a run: `scores`, also of each set as `<set>_…`; the means of
    `_conduct`; format_share (keep the protocol), searches, forced_share (the system had
    to open the answer)."""
    metrics = scores(rows) | means(map(_conduct, rows))
    sets = dict.fromkeys(row.set for row in rows)
    for name in sets if len(sets) > 1 else ():
        set_scores = scores([row for row in rows if row.set == name])
        metrics |= {f"{name}_{k}": v for k, v in set_scores.items()}
    return metrics | means(
        {
            "format_share": t.is_well_formed(row.trajectory, True, max_searches),
            "searches": len(t.extract_queries(row.trajectory)),
            "forced_share": t.is_forced(row.trajectory),
        }
        for row in rows
    )


def items(rows: Sequence[Verified]) -> dict[str, dict[str, float]]:
    """<set>/<claim> → the claim's values of the metrics in COMPARED, of several sets
    also as `<set>_…`.

    Raises ValueError if two claims have the same name.
    """
    several = len({row.set for row in rows}) > 1
    table: dict[str, dict[str, float]] = {}
    for row in rows:
        values = _marks(row) | _conduct(row)
        values = {k: round(v, 7) for k, v in values.items() if k in COMPARED}
        if several:
            values |= {f"{row.set}_{k}": v for k, v in values.items() if k in OF_A_SET}
        if table.setdefault(f"{row.set}/{row.id}", values) is not values:
            raise ValueError(f"two claims are {row.set}/{row.id}")
    return table


def _marks(row: Verified) -> dict[str, float]:
    """A claim's value of each metric in `scores`."""
    label, cited = row.answer.label, row.answer.evidence
    correct = row.right(label)
    answer = Answer(row.label if correct else label, cited)
    values, short = marks(answer, row.label, row.gold), SHORT[row.label]
    of_checkable = {k: values.pop(k) for k in OF_CHECKABLE if k in values}
    values |= {f"{short}_{name}": value for name, value in values.items()}
    values[f"{short}_recall"] = float(correct)
    if label:
        values[f"{SHORT[label]}_precision"] = float(correct)
    values |= of_checkable
    empty = label and not row.gold and not cited
    values["empty_as_one_evidence_score"] = 1.0 if empty else values["evidence_score"]
    return values


def _conduct(row: Verified) -> dict[str, float]:
    """How a claim was searched for, confused and how confidently it was answered.

    searched_twice: with two or more different queries; repeated_query: with a query
    more than once (App. J). nei_as_support, nei_as_refute: wrong labels of NOT ENOUGH
    INFO (§4.3); checkable_as_nei: NOT ENOUGH INFO for another label. If the label has a
    probability (the paper has logits, near 1 where the model is sure): confidence, also
    as `<label>_confidence`; high_confidence_share (Fig 5a-b); and the accuracy below
    0.85 and above 0.95, `<label>_low_confidence_accuracy` and `…_high_…` (Fig 5c-d).
    """
    queries, label = t.extract_queries(row.trajectory), row.answer.label
    correct = float(row.right(label))
    values = {
        "searched_twice": float(len(set(queries)) > 1),
        "repeated_query": float(len(set(queries)) < len(queries)),
    }
    if row.label == NEI:
        for other in LABELS[:2]:
            values[f"nei_as_{SHORT[other]}"] = float(label == other and not correct)
    else:
        values["checkable_as_nei"] = float(label == NEI)
    confidence = row.label_probability
    if label and confidence is not None:
        values["confidence"] = values[f"{SHORT[label]}_confidence"] = confidence
        values["high_confidence_share"] = float(confidence > HIGH)
        if not LOW <= confidence <= HIGH:
            tier = "low" if confidence < LOW else "high"
            values[f"{SHORT[label]}_{tier}_confidence_accuracy"] = correct
    return values
