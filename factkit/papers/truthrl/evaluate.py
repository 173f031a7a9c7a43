"""What each test question adds to TruthRL's metrics: the terms of their means.

A metric of `items` is the mean over the questions that have a value in it:

| metric | questions | value |
|---|---|---|
| truthfulness, accuracy, hallucination, abstention | all | 1, 0 or −1 (§4.1) |
| <set>_… | those of another set: comparison, nq_open … | the same |
| judge_2_…, judge_3_… | all, by another judge (Table 5) | the same |
| gain_truthfulness, gain_hallucination | all | after minus before training |
| confidence, confidence_correct | all, the correct | its confidence (Fig 6) |
| brier | the answered (`answers.calibration`) | its squared error |
| confidence_0.8_… | answers of confidence 0.8 and above | 1 or 0 |
| unsure_abstention | answers of a lower confidence | 1 or 0 |
| with_evidence_… | those with an answer in the prompt | the four rates |
| without_evidence_… | those with references, but no answer in them | the same |
| difficult_…, easier_abstention | the difficult (`is_difficult`), the others | 1 or 0 |
| all_samples_… | all | 1 or 0: the majority of all samples (Fig 2) |
| sampling_gain_accuracy, …_abstention | all | majority minus share of the samples |
| sampling_cut_hallucination | all | share of the samples minus majority |
| reasoning, reasoning_correct, … | all, the correct, … | its quality (§4.6) |

A question that the judge failed on has no value.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from factkit.answers.calibration import brier_term
from factkit.answers.sampling import Probe
from factkit.answers.short_form import ScoredAnswer, majority, rates
from factkit.data.examples import Example
from factkit.run.statistics import means
from factkit.verify.failures import check_failures
from factkit.verify.outcome import Outcome

if TYPE_CHECKING:
    import pandas as pd

    from factkit.answers.verifier import Verifier

Terms = dict[str, float]
Items = dict[str, Terms]  # of each question
NAMES = dict(zip(Outcome, ("correct", "abstaining", "wrong"), strict=True))
CONFIDENT = 0.8  # confidence, the highest of Fig 6's bins


def items(
    answers: Mapping[str, Sequence[ScoredAnswer]],
    before: Sequence[ScoredAnswer],
    abstaining: Sequence[ScoredAnswer],
    samples: Sequence[Probe] = (),
    boxed: bool = False,
) -> Items:
    """Question id → its terms; of a set other than "test", `<set>/<id>`.

    answers: set → the trained policy's answers. before, abstaining: the untrained
    policy's answers to the test questions under two prompts. samples: of the trained
    policy.
    """
    table: Items = {}
    for name, rows in answers.items():
        test = name == "test"
        for row in rows:
            terms = outcome_terms(row.outcome)
            key = row.id if test else f"{name}/{row.id}"
            table[key] = _prefixed(terms, "" if test else f"{name}_")
    for row, *untrained in zip(answers["test"], before, abstaining, strict=True):
        table[row.id] |= _answer_terms(row, *untrained)
    for probe in samples:
        table[probe.id] |= _sample_terms(probe, boxed)
    return table


def outcome_terms(outcome: Outcome | None) -> Terms:
    """A response's terms of the four rates; none where the judge failed."""
    return rates([outcome]) if outcome else {}


def add_answers(
    table: Items,
    prefix: str,
    rows: Sequence[ScoredAnswer],
    judge: "Verifier | None" = None,
    name: str = "",
) -> None:
    """Add the terms of other answers to the test questions, as an iteration's (Table
    4), or of the outcomes that another judge, `name`, gives the answers (Table 5).

    A judge that fails on more than 5 % adds nothing and is named in a line of output:
    the run is over, and its own judge's verdicts are valid.
    """
    outcomes = [row.outcome for row in rows]
    if judge:
        texts, questions = [r.response for r in rows], [r.question for r in rows]
        outcomes = judge(texts, [r.answers for r in rows], questions)
        try:
            check_failures(outcomes, name)
        except ValueError as error:
            print(f"left out: {error}")
            return
    for row, outcome in zip(rows, outcomes, strict=True):
        table[row.id] |= _prefixed(outcome_terms(outcome), prefix)


def is_difficult(row: ScoredAnswer, untrained: Sequence[ScoredAnswer]) -> bool:
    """Whether a question is difficult (Fig 4b: almost no method answers it correctly).

    In the fact world: its fact is not in the pre-training text. Else: the untrained
    policy fails on it with both of its prompts (ours: one run has no other method).
    """
    if "exposure" in row.meta:
        return row.meta["exposure"] == 0
    return all(u.outcome is not Outcome.CORRECT for u in untrained)


def _answer_terms(
    row: ScoredAnswer, before: ScoredAnswer, abstaining: ScoredAnswer
) -> Terms:
    """The terms of one greedy answer, beside the four rates."""
    if row.outcome is None:
        return {}
    terms, kind = outcome_terms(row.outcome), NAMES[row.outcome]
    values = brier_term(row)
    if row.confidence is not None:
        values["confidence"] = row.confidence
        if row.outcome is Outcome.CORRECT:
            values["confidence_correct"] = row.confidence
    if (row.confidence or 0.0) >= CONFIDENT:
        names = "accuracy hallucination abstention"
        values |= _prefixed(terms, f"confidence_{CONFIDENT}_", names)
    else:
        values |= _prefixed(terms, "unsure_", "abstention")
    if is_difficult(row, (before, abstaining)):
        values |= _prefixed(terms, "difficult_", "hallucination abstention")
    else:
        values |= _prefixed(terms, "easier_", "abstention")
    if (stated := row.meta.get("answer_in_references")) is not None:
        values |= _prefixed(terms, "with_evidence_" if stated else "without_evidence_")
    if before.outcome is not None:
        first = outcome_terms(before.outcome)
        gains = {name: terms[name] - first[name] for name in terms}
        values |= _prefixed(gains, "gain_", "truthfulness hallucination")
    if row.reasoning is not None:
        values |= {"reasoning": row.reasoning, f"reasoning_{kind}": row.reasoning}
    return values


def _sample_terms(probe: Probe, boxed: bool) -> Terms:
    """The majority of all samples of a question, and what it gains over one sample."""
    outcome = majority(probe.samples, probe.outcomes, boxed)
    if outcome is None:
        return {}
    voted, single = outcome_terms(outcome), rates(probe.outcomes)
    gains = {name: voted[name] - single[name] for name in voted}
    cut = single["hallucination"] - voted["hallucination"]
    return (
        _prefixed(voted, "all_samples_", "accuracy hallucination abstention")
        | _prefixed(gains, "sampling_gain_", "accuracy abstention")
        | {"sampling_cut_hallucination": cut}
    )


def _prefixed(terms: Mapping[str, float], prefix: str, names: str = "") -> Terms:
    return {f"{prefix}{name}": terms[name] for name in names.split() or terms}


# ---- metrics of a whole run


def confidence_bin(row: ScoredAnswer) -> float:
    """The lower edge of an answer's bin: 0, 0.2, 0.4, 0.6 or 0.8 (Fig 6); without a
    confidence, the lowest."""
    return min(int((row.confidence or 0.0) * 5), 4) / 5


def majority_curve(
    samples: Sequence[Probe], boxed: bool = False
) -> dict[int, dict[str, float]]:
    """k → the rates of majority@k, for k = 1, 2, 4 … up to all samples (Fig 2).

    Fewer than all of them are drawn twenty times, and the rates averaged.
    """
    n = len(samples[0].samples) if samples else 0
    curve = {}
    for k in (2**i for i in range(n.bit_length())):
        rng, draws = random.Random(f"majority {k} 0"), []
        for _ in range(20 if k < n else 1):
            indices = sorted(rng.sample(range(n), k))
            outcomes = [majority_outcome(probe, indices, boxed) for probe in samples]
            draws.append(rates(outcomes))
        curve[k] = means(draws)
    return curve


def majority_outcome(
    probe: Probe, indices: Iterable[int], boxed: bool = False
) -> Outcome | None:
    """The outcome of the commonest answer among some of a question's samples."""
    drawn = [(probe.samples[i], probe.outcomes[i]) for i in indices]
    texts, outcomes = zip(*drawn, strict=True)
    return majority(texts, outcomes, boxed)


def relation_rule(
    train: Sequence[Example],
    probes: Sequence[Probe],
    before: Mapping[str, Sequence[ScoredAnswer]],
    boxed: bool = False,
) -> dict[str, float]:
    """The rates of an untrained rule: prompting's answer where prompting is mostly
    right on the relation, by majority on the training questions, else abstention.

    before: test set → prompting's answers. probes: of the training questions.
    """
    answered: dict[str, list[bool]] = {}  # relation → whether each answer is correct
    for example, probe in zip(train, probes, strict=True):
        outcome = majority_outcome(probe, range(len(probe.samples)), boxed)
        if outcome and outcome is not Outcome.ABSTAIN:
            correct = outcome is Outcome.CORRECT
            answered.setdefault(example.relation, []).append(correct)
    known = {name for name, rows in answered.items() if 2 * sum(rows) > len(rows)}
    metrics: dict[str, float] = {}
    for name, rows in before.items():
        outcomes = [r.outcome if r.relation in known else Outcome.ABSTAIN for r in rows]
        prefix = "relation_rule_" + f"{name}_" * (name != "test")
        metrics |= _prefixed(rates(outcomes), prefix)
    return metrics


def within_relation_auc(
    before: Sequence[ScoredAnswer], after: Sequence[ScoredAnswer]
) -> dict[str, float]:
    """How well answering after training tells what prompting knows, within relations:
    `pairwise_auc` with r = 1 where prompting is correct."""
    known = [
        None if b.outcome is None else b.outcome is Outcome.CORRECT for b in before
    ]
    return pairwise_auc(known, after, "within_relation")


def evidence_auc(after: Sequence[ScoredAnswer]) -> dict[str, float]:
    """How well answering tells whether the prompt states an answer, within relations:
    `pairwise_auc` with r = 1 where it does. Nothing without references.

    `evidence_by_relation`: the share of decisions to answer or to abstain that are
    those of the majority of the question's relation; 1: the relation decides alone.
    """
    stated = [a.meta.get("answer_in_references") for a in after]
    if not any(s is not None for s in stated):
        return {}
    decisions: dict[str, Counter[bool]] = {}
    for a in after:
        if a.outcome:
            answers = a.outcome is not Outcome.ABSTAIN
            decisions.setdefault(a.relation, Counter())[answers] += 1
    majority_share = sum(max(n.values()) for n in decisions.values()) / max(
        sum(n.total() for n in decisions.values()), 1
    )
    auc = pairwise_auc(stated, after, "evidence")
    return auc | {"evidence_by_relation": majority_share}


def pairwise_auc(
    answerable: Sequence[bool | None], after: Sequence[ScoredAnswer], name: str
) -> dict[str, float]:
    """The AUC of answering for r = `answerable`, over pairs of one relation.

    AUC = 1/|P| Σ_P (1[a_i > a_j] + ½·1[a_i = a_j]) over the pairs P of test questions
    of one relation with r_i = 1 and r_j = 0; a = 1 where the policy answers, 0 where it
    abstains. 0.5: it decides by the relation alone. A None counts nowhere.
    """
    answers: dict[str, tuple[list[bool], list[bool]]] = {}  # r = 0, r = 1
    for r, a in zip(answerable, after, strict=True):
        if r is not None and a.outcome:
            by_r = answers.setdefault(a.relation, ([], []))
            by_r[r].append(a.outcome is not Outcome.ABSTAIN)
    wins = [
        (1 + i - j) / 2  # 1, ½ or 0
        for unanswerable, answered in answers.values()
        for i in answered
        for j in unanswerable
    ]
    auc = {f"{name}_auc": sum(wins) / len(wins)} if wins else {}
    return auc | {f"{name}_pairs": len(wins)}


def abstention_trends(curve: "pd.DataFrame") -> dict[str, float]:
    """Abstention in rollouts from the first to the last fifth of the updates (Fig 3).

    curve: metrics.csv of a run. A kind of group that never occurs is left out.
    """
    names = ["abstention", "abstention_pro", "abstention_anti"]
    shares = curve.set_index("step").reindex(columns=names)
    steps = shares.index.to_series()
    first = shares[steps <= steps.quantile(0.2)].mean()
    last = shares[steps >= steps.quantile(0.8)].mean()
    trends = {
        "rollout_abstention_end": last.abstention,
        "abstention_pro_rise": last.abstention_pro - first.abstention_pro,
        "abstention_anti_fall": first.abstention_anti - last.abstention_anti,
    }
    return {name: value for name, value in trends.items() if value == value}
