"""What each test question adds to TruthRL's metrics: the terms of their means.

A metric of `items` is the mean over the questions that have a value in it:

| metric | of which questions | value |
|---|---|---|
| truthfulness, accuracy, hallucination, abstention | all | 1, 0 or −1 (§4.1) |
| <set>_… | those of another set: comparison, nq_open … | the same |
| judge_2_…, judge_3_… | all, by another judge (Table 5) | the same |
| gain_truthfulness, gain_hallucination | all | after less before training |
| confidence, confidence_correct | all, the correct | its confidence (Fig 6) |
| confidence_0.8_… | answers of confidence 0.8 and above | 1 or 0 |
| unsure_abstention | answers of a lower confidence | 1 or 0 |
| difficult_…, easier_abstention | the difficult (`is_difficult`), the others | 1 or 0 |
| all_samples_… | all | 1 or 0: the majority of all samples (Fig 2) |
| sampling_gain_accuracy, …_abstention | all | that, less the share of the samples |
| sampling_cut_hallucination | all | the share of the samples, less that |
| reasoning, reasoning_correct, … | all, the correct, … | its quality (§4.6) |

A question that the judge failed on has no value.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from factkit.curate.probing import Probe
from factkit.evaluate.short_form import Answered, majority, rates
from factkit.verify.outcome import Outcome

if TYPE_CHECKING:
    import pandas as pd

    from factkit.verify.verifier import Verifier

Items = dict[str, dict[str, float]]
NAMES = {
    Outcome.CORRECT: "correct",
    Outcome.WRONG: "wrong",
    Outcome.ABSTAIN: "abstaining",
}
SURE = 0.8  # confidence, the highest of Fig 6's bins
PART = 0.2  # of the updates, at the beginning and at the end of training


def items(
    answered: Mapping[str, Sequence[Answered]],
    before: Sequence[Answered],
    shown: Sequence[Answered],
    samples: Sequence[Probe] = (),
    boxed: bool = False,
) -> Items:
    """Question id → its terms; of a set other than "test", `<set>/<id>`.

    answered: set → the trained policy's answers. before, shown: the untrained policy's
    to the test questions, asked in two ways. samples: of the trained policy.
    """
    table: Items = {}
    for name, rows in answered.items():
        at, prefix = ("", "") if name == "test" else (f"{name}/", f"{name}_")
        for row in rows:
            own = terms(row.outcome)
            table[at + row.id] = {prefix + k: v for k, v in own.items()}
    untrained = zip(before, shown, strict=True)
    for row, pair in zip(answered["test"], untrained, strict=True):
        table[row.id] |= _of_test(row, *pair)
    for probe in samples:
        table[probe.id] |= _of_samples(probe, boxed)
    return table


def terms(outcome: Outcome | None) -> dict[str, float]:
    """A response's terms of the four rates; none where the judge failed."""
    return rates([outcome]) if outcome else {}


def again(
    table: Items, name: str, rows: Sequence[Answered], verify: "Verifier"
) -> None:
    """Add what another judge says of the same test answers, as `<name>_…` (Table 5)."""
    columns = zip(*((r.response, r.answers, r.question) for r in rows), strict=True)
    for row, outcome in zip(rows, verify(*map(list, columns)), strict=True):
        table[row.id] |= _named(name, terms(outcome))


def iteration(table: Items, number: int, rows: Sequence[Answered]) -> None:
    """Add an iteration's test answers, as `iteration_<number>_…` (Table 4)."""
    for row in rows:
        table[row.id] |= _named(f"iteration_{number}", terms(row.outcome))


def averages(metrics: Mapping[str, float], sets: Sequence[str]) -> dict[str, float]:
    """The rates averaged over the test questions' and further sets (Table 1)."""
    names = ("truthfulness", "hallucination", "accuracy") if sets else ()
    return {
        f"average_{k}": (metrics[k] + sum(metrics[f"{name}_{k}"] for name in sets))
        / (1 + len(sets))
        for k in names
    }


def is_difficult(row: Answered, untrained: Sequence[Answered]) -> bool:
    """Whether a question is difficult (Fig 4b: almost no method answers it correctly).

    In the fact world: its fact was never read. Else: the untrained policy answers it
    correctly in neither way of asking (ours: one run knows of no other method).
    """
    if "exposure" in row.meta:
        return row.meta["exposure"] == 0
    return all(u.outcome is not Outcome.CORRECT for u in untrained)


def trends(curve: "pd.DataFrame") -> dict[str, float]:
    """How abstention moves in training (Fig 3), by the first and last fifth of the
    updates: its share of the rollouts at the end, its rise in pro-abstention groups
    and its fall in anti-abstention groups. What no group shows is left out.
    """
    (_, end), pro, anti = (
        _ends(curve, f"abstention{groups}") for groups in ("", "_pro", "_anti")
    )
    moves = {
        "rollout_abstention_end": end,
        "abstention_pro_rise": pro[1] - pro[0],
        "abstention_anti_fall": anti[0] - anti[1],
    }
    return {name: float(value) for name, value in moves.items() if value == value}


def _ends(curve: "pd.DataFrame", name: str) -> tuple[float, float]:
    """A column's mean in the first and in the last fifth; NaN without the column."""
    if name not in curve:
        return float("nan"), float("nan")
    values, step = curve[name], curve.step
    first, last = step <= step.quantile(PART), step >= step.quantile(1 - PART)
    return values[first].mean(), values[last].mean()


def _of_test(row: Answered, before: Answered, shown: Answered) -> dict[str, float]:
    """The terms of one greedy answer, beside the four rates."""
    if row.outcome is None:
        return {}
    own, kind = terms(row.outcome), NAMES[row.outcome]
    found = {"confidence": row.confidence}
    if row.outcome is Outcome.CORRECT:
        found["confidence_correct"] = row.confidence
    if row.confidence >= SURE:
        found |= _named(f"confidence_{SURE}", own, "accuracy hallucination abstention")
    else:
        found |= _named("unsure", own, "abstention")
    if is_difficult(row, (before, shown)):
        found |= _named("difficult", own, "hallucination abstention")
    else:
        found |= _named("easier", own, "abstention")
    if before.outcome is not None:
        first = terms(before.outcome)
        gains = {k: own[k] - first[k] for k in ("truthfulness", "hallucination")}
        found |= _named("gain", gains)
    if row.reasoning is not None:
        found |= {"reasoning": row.reasoning, f"reasoning_{kind}": row.reasoning}
    return found


def _of_samples(probe: Probe, boxed: bool) -> dict[str, float]:
    """The majority of all samples of a question, and what it gains over one sample."""
    voted = majority(probe.samples, probe.outcomes, boxed)
    if voted is None:
        return {}
    every, one = terms(voted), rates(probe.outcomes)
    gains = {k: every[k] - one[k] for k in ("accuracy", "abstention")}
    return (
        _named("all_samples", every, "accuracy hallucination abstention")
        | _named("sampling_gain", gains)
        | {"sampling_cut_hallucination": one["hallucination"] - every["hallucination"]}
    )


def _named(prefix: str, values: Mapping[str, float], names: str = "") -> dict:
    return {f"{prefix}_{k}": values[k] for k in names.split() or values}
