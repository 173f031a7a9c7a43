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

from factkit.answers.drawn import Probe
from factkit.answers.short_form import Answered, majority, rates
from factkit.verify.judge import failed_share
from factkit.verify.outcome import Outcome

if TYPE_CHECKING:
    from factkit.answers.verifier import Verifier

Terms = dict[str, float]
Items = dict[str, Terms]  # of each question
NAMES = dict(zip(Outcome, ("correct", "abstaining", "wrong"), strict=True))
SURE = 0.8  # confidence, the highest of Fig 6's bins


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
            table[at + row.id] = _named(prefix, terms(row.outcome))
    for row, *untrained in zip(answered["test"], before, shown, strict=True):
        table[row.id] |= _of_test(row, *untrained)
    for probe in samples:
        table[probe.id] |= _of_samples(probe, boxed)
    return table


def terms(outcome: Outcome | None) -> Terms:
    """A response's terms of the four rates; none where the judge failed."""
    return rates([outcome]) if outcome else {}


def add(
    table: Items,
    prefix: str,
    rows: Sequence[Answered],
    judge: "Verifier | None" = None,
    name: str = "",
) -> None:
    """Add the terms of other answers to the test questions, as of an iteration's model
    (Table 4), or of what another judge says of the answers (Table 5).

    Such a judge, `name`, adds nothing where it fails on more than 5 %, and a line says
    so: the run is over, and its own judge's verdicts stand.
    """
    outcomes = [row.outcome for row in rows]
    if judge:
        columns = zip(*((r.response, r.answers, r.question) for r in rows), strict=True)
        outcomes = judge(*map(list, columns))
        try:
            failed_share(outcomes, name)
        except ValueError as error:
            print(f"left out: {error}")
            return
    for row, outcome in zip(rows, outcomes, strict=True):
        table[row.id] |= _named(prefix, terms(outcome))


def is_difficult(row: Answered, untrained: Sequence[Answered]) -> bool:
    """Whether a question is difficult (Fig 4b: almost no method answers it correctly).

    In the fact world: its fact is not in the pre-training text. Else: the untrained
    policy fails on it with both of its prompts (ours: one run has no other method).
    """
    if "exposure" in row.meta:
        return row.meta["exposure"] == 0
    return all(u.outcome is not Outcome.CORRECT for u in untrained)


def _of_test(row: Answered, before: Answered, shown: Answered) -> Terms:
    """The terms of one greedy answer, beside the four rates."""
    if row.outcome is None:
        return {}
    own, kind = terms(row.outcome), NAMES[row.outcome]
    values = {"confidence": row.confidence}
    if row.outcome is Outcome.CORRECT:
        values["confidence_correct"] = row.confidence
    if row.confidence >= SURE:
        names = "accuracy hallucination abstention"
        values |= _named(f"confidence_{SURE}_", own, names)
    else:
        values |= _named("unsure_", own, "abstention")
    if is_difficult(row, (before, shown)):
        values |= _named("difficult_", own, "hallucination abstention")
    else:
        values |= _named("easier_", own, "abstention")
    if before.outcome is not None:
        first = terms(before.outcome)
        gains = {name: own[name] - first[name] for name in own}
        values |= _named("gain_", gains, "truthfulness hallucination")
    if row.reasoning is not None:
        values |= {"reasoning": row.reasoning, f"reasoning_{kind}": row.reasoning}
    return values


def _of_samples(probe: Probe, boxed: bool) -> Terms:
    """The majority of all samples of a question, and what it gains over one sample."""
    voted = majority(probe.samples, probe.outcomes, boxed)
    if voted is None:
        return {}
    every, one = terms(voted), rates(probe.outcomes)
    gains = {name: every[name] - one[name] for name in every}
    return (
        _named("all_samples_", every, "accuracy hallucination abstention")
        | _named("sampling_gain_", gains, "accuracy abstention")
        | {"sampling_cut_hallucination": one["hallucination"] - every["hallucination"]}
    )


def _named(prefix: str, values: Mapping[str, float], names: str = "") -> Terms:
    return {f"{prefix}{name}": values[name] for name in names.split() or values}
