"""Preference pairs of a chosen and a rejected response, from probing's samples."""

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from factkit.curate.probing import Probe, abstention, out_of_knowledge, pair, response
from factkit.datasets.examples import Example
from factkit.verify.outcome import Outcome

if TYPE_CHECKING:
    from factkit.truthrl.arms import QuestionParams


def dpo_pairs(
    examples: Sequence[Example], probes: Sequence[Probe], p: "QuestionParams"
) -> list[dict]:
    """DPO (Appendix C): out of knowledge, "I don't know" over a random wrong sample;
    else a random correct sample over a random wrong one.

    A question without the samples that its pair needs has none.
    """
    rng = random.Random(f"dpo {p.seed}")
    rows = []
    for example, probe in zip(examples, probes, strict=True):
        wrong = probe.of(Outcome.WRONG)
        if out_of_knowledge(probe, p.known_share):
            chosen = [abstention(example, p)]
        else:
            chosen = probe.of(Outcome.CORRECT)
        if chosen and wrong:
            rows.append(pair(example, rng.choice(chosen), rng.choice(wrong), p))
    return rows


def rlhf_pairs(
    examples: Sequence[Example], probes: Sequence[Probe], p: "QuestionParams"
) -> list[dict]:
    """RLHF: the reference answer over each different sample that is not correct.

    Preference for the helpful answer alone, blind to what the policy knows: abstaining
    is rejected like a wrong answer (ours; the paper does not describe its pairs).
    """
    rows = []
    for example, probe in zip(examples, probes, strict=True):
        chosen = response(example.answers[0], example, p)
        for other in [*_different(probe, Outcome.WRONG), abstention(example, p)]:
            rows.append(pair(example, chosen, other, p))
    return rows


def rlkf_pairs(
    examples: Sequence[Example], probes: Sequence[Probe], p: "QuestionParams"
) -> list[dict]:
    """RLKF (Xu et al., 2024): correct > abstaining > wrong, by knowledge feedback.

    A known question gives a correct sample over abstaining and over each different
    wrong sample; a question out of knowledge gives abstaining over each of these.
    """
    rows = []
    for example, probe in zip(examples, probes, strict=True):
        idk, wrong = abstention(example, p), _different(probe, Outcome.WRONG)
        best = probe.most_frequent(Outcome.CORRECT)
        if best is None or out_of_knowledge(probe, p.known_share):
            best, worse = idk, wrong
        else:
            worse = [idk, *wrong]
        rows += [pair(example, best, other, p) for other in worse]
    return rows


def _different(probe: Probe, kind: Outcome) -> list[str]:
    """The different samples of a kind, in the order they were drawn."""
    return list(dict.fromkeys(probe.of(kind)))
