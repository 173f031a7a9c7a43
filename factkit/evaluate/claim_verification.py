"""Claim verification: labels and their evidence (Veri-R1 §3.2).

What is asked of an answer, y the claim's label, G its gold evidence, P the cited:

| metric | y is SUPPORT or REFUTE | y is NOT ENOUGH INFO |
|---|---|---|
| label_accuracy | label | label |
| verification_accuracy | label and G ⊆ P | label |
| joint_accuracy | label and G = P | label |
| evidence_score | abs(G ∩ P) / abs(G ∪ P) | the same |
| evidence_cover | G ⊆ P | the same, where G is not empty |

The paper relaxes NOT ENOUGH INFO for the two accuracies alone, so the evidence score is
the mean over all claims. An answer without a readable label is wrong.

Without gold evidence, a label that cites nothing has an evidence score of 1; in the
public evaluation code it has 0 in any case. FEVER's and SciFact's NOT ENOUGH INFO are
such claims: beside Table 3 belongs (support + refute) / 3 of their scores by label.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from factkit.assets import write_atomically
from factkit.datasets.examples import DataError, Example
from factkit.entries import page_of
from factkit.verify import trajectory as t
from factkit.verify.trajectory import LABELS, NEI, Answer, Turn

SHORT = dict(zip(LABELS, ("support", "refute", "nei"), strict=True))
LOW, HIGH = 0.85, 0.95  # §4.3


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
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in plain)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(lines))


def read_verified(path: Path) -> list[Verified]:
    """The rows that `write_verified` wrote.

    Raises DataError, naming file and row, on a row that is not of this kind.
    """
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            row = json.loads(line)
            parsed = {
                "gold": tuple(row["gold"]),
                "also_right": tuple(row["also_right"]),
                "trajectory": t.from_rows(row["trajectory"]),
            }
            found.append(Verified(**row | parsed))
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path}, row {number}: {error}: {line[:120]!r}; remove the file and "
                "evaluate again"
            ) from None
    return found


# ---- one answer


def covers(answer: Answer, gold: Sequence[str]) -> bool:
    """G ⊆ P: whether all gold evidence is cited; more may be."""
    return set(gold) <= set(answer.evidence)


def evidence_score(answer: Answer, gold: Sequence[str]) -> float:
    """|P ∩ G| / |P ∪ G| of the cited and the gold ids, in [0, 1] (§2.3, R_evidence).

    Where both are empty the paper's fraction is 0/0. An answer with a label has 1: it
    "retrieves all true evidence while avoiding irrelevant selections", which is where
    §2.3 has the reward at its most. One without a label has 0: silence cites nothing,
    too. (The public code gives 0 to both; in its training data every claim has gold
    evidence.)
    """
    cited, true = set(answer.evidence), set(gold)
    if not cited | true:
        return float(answer.label is not None)
    return len(cited & true) / len(cited | true)


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
    """The five metrics of the table above, all in [0, 1].

    Of all claims, and of those of each label as `support_…`, `refute_…`, `nei_…`; and
    for each label `…_recall` (right of the claims that have it, which is their label
    accuracy) and `…_precision` (right of the answers that give it; Fig 5e-f). What
    would be a mean over nothing is left out. Raises ValueError without rows.
    """
    return _means([_marks(row) for row in rows])


def summary(
    rows: Sequence[Verified], max_searches: int = t.MAX_SEARCHES
) -> dict[str, float]:
    """What a run is told by: `scores`, also of each set as `<set>_…`; `by_confidence`
    with `<label>_confidence_gap`, high less low; format_share, searches, forced_share.
    """
    metrics = scores(rows) | by_confidence(rows)
    for name in SHORT.values():
        tiers = [f"{name}_{tier}_confidence_accuracy" for tier in ("high", "low")]
        if all(tier in metrics for tier in tiers):
            high, low = map(metrics.get, tiers)
            metrics[f"{name}_confidence_gap"] = high - low
    sets = dict.fromkeys(row.set for row in rows)
    for name in sets if len(sets) > 1 else ():
        of = scores([row for row in rows if row.set == name])
        metrics |= {f"{name}_{k}": v for k, v in of.items()}
    return metrics | {
        "format_share": format_share(rows, online=True, max_searches=max_searches),
        "searches": searches(rows),
        "forced_share": forced_share(rows),
    }


def page_scores(rows: Sequence[Verified]) -> dict[str, float]:
    """label_accuracy, and evidence_score and evidence_cover with pages for sentences,
    of claims whose gold evidence is pages while sentences were cited."""
    marks = []
    for row in rows:
        pages = Answer(row.answer.label, tuple(map(page_of, row.answer.evidence)))
        marks.append(
            {
                "label_accuracy": float(pages.label == row.label),
                "evidence_score": evidence_score(pages, row.gold),
                "evidence_cover": float(covers(pages, row.gold)),
            }
        )
    return _means(marks)


def by_confidence(rows: Sequence[Verified]) -> dict[str, float]:
    """`<label>_low_confidence_accuracy` and `…_high_…`: the share of right labels among
    the answers that give the label with a probability < 0.85 and > 0.95 (Fig 5c-d).

    The paper speaks of logits, near 1 where the model is sure; we take probabilities.
    Left out: answers without one, and means over nothing.
    """
    found = []
    for row in rows:
        said, sure = row.answer.label, row.label_probability
        if said is None or sure is None or LOW <= sure <= HIGH:
            continue
        tier = "low" if sure < LOW else "high"
        name = f"{SHORT[said]}_{tier}_confidence_accuracy"
        found.append({name: float(row.right(said))})
    return _means(found) if found else {}


def bootstrap(
    rows: Sequence[Verified], resamples: int, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """95 % percentile intervals of `scores` over resampled claims.

    A resample without a claim for a metric (none with that label, say) counts for none
    of that metric. Raises ValueError without rows.
    """
    marks = [_marks(row) for row in rows]
    names = list(_means(marks))
    table = np.array([[of.get(name, np.nan) for name in names] for of in marks])
    known, values = ~np.isnan(table), np.nan_to_num(table)  # (claims, metrics)
    n = len(rows)
    drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), resamples)
    counts, sums = drawn @ known, drawn @ values  # (resamples, metrics)
    found = {}
    for name, count, total in zip(names, counts.T, sums.T, strict=True):
        ordered = np.sort(total[count > 0] / count[count > 0])
        last = max(int(0.975 * len(ordered)) - 1, 0)
        found[name] = float(ordered[int(0.025 * len(ordered))]), float(ordered[last])
    return found


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
    return marks


def _means(marks: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each name over the rows that have it."""
    if not marks:
        raise ValueError("no claims to score")
    names = dict.fromkeys(name for of in marks for name in of)
    return {name: _mean([of[name] for of in marks if name in of]) for name in names}


def _mean(values: Sequence[float]) -> float:
    if not values:
        raise ValueError("no claims to score")
    return sum(values) / len(values)
