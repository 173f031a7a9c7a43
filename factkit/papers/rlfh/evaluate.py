"""How true, how informative and how ready to answer a policy is (RLFH §4).

FactScore's counts come from claims held against evidence (`long_form`), and how they
are said from the annotator that rewards come from.

Whether a response refuses is told in two ways (§4.2, §4.3): if it states nothing; and
as FactScore's pipeline does, also if it has characteristic phrases, which counts too
few responses once a policy says how unsure it is while it informs.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from factkit.answers import exposure_bin, long_form
from factkit.answers.long_form import CheckedResponse
from factkit.data.examples import Example
from factkit.papers.rlfh.feedback import Feedback, kinds
from factkit.verify.judge import failed_share
from factkit.verify.outcome import Support, normalise

if TYPE_CHECKING:
    from factkit.answers.engine import ClaimEngine, ExactEngine
    from factkit.papers.rlfh.arms import RlfhParams

LOW, HIGH = 0.4, 0.8  # accuracy below which, and from which on, answers are compared
ABOVE = 0.7  # accuracy that more answers exceed after training (§4.3, Fig 4)
COLUMNS = (  # of `long_form.items`, what the paper's claims are on
    *("factual_precision", "response_rate"),
    *("correct_claims", "incorrect_claims", "total_claims"),
)
SETS = ("hotpotqa", "squad_v2", "biography")  # the paper's: claims are on each
EXPOSURES = (0, 4)  # lower edges of the bins of people never read of, and read of

# Ours, chosen with ChatGPT's refusals in view. Of 183 biographies by each of three
# models, `refuses` agrees with FactScore's annotators on all of InstructGPT's (who
# refused 1) and ChatGPT's (26) and on 175 of PerplexityAI's (17), where refusals speak
# of what a search found and biographies say that there is no more information.
REFUSAL = re.compile(
    r"\bi ?(do not|don't|dont|cannot|can not|can't|could not|couldn't"
    r"|('m|am|was) (unable|not able) to) (really |currently )?"
    r"(know|have|find|recall|recogni[sz]e|provide|give|offer|write|tell|answer|say"
    r"|determine|verify|confirm|help)\b"
    r"|\bi('m| am) (not (sure|certain|familiar|aware)|unsure|unfamiliar)\b"
    r"|\bi('m| am)( very| so| truly)? sorry\b|\bi apologi[sz]e\b|\bmy apologies\b"
    r"|\bi have no (idea|information|knowledge|record)\b"
    r"|\bas an ai\b|\bas a language model\b"
    r"|\b(there is|there's|found) no (\w+ ){0,2}information\b"
    r"|\b((can|could|would) you (please )?|please )"
    r"(provide|give|share|clarify|specify|tell)\b"
)


def refuses(response: str) -> bool:
    """Whether a response has the words of a refusal, or no words at all."""
    text = normalise(response)
    return not text or REFUSAL.search(text) is not None


def _responds_by_words(row: CheckedResponse) -> bool:
    return bool(row.claims) and not refuses(row.response)


def measure(
    examples: Sequence[Example],
    texts: Mapping[str, str],
    feedback: Sequence[Feedback],
    engine: "ExactEngine | ClaimEngine",
    p: "RlfhParams",
    path: Path,
) -> dict[str, float]:
    """Metrics of responses (question id → text); their claims go to `path`.

    feedback: the annotator's, of each example's response. Those of `long_form.scores`
    (factual_precision is FactScore without its penalty for short answers) and
    factscore_response_rate, by words, never above response_rate; also for each
    evaluation set as `<set>_…`; and `kinds`. Raises ValueError above 5 % of failures of
    any kind; the shares are in `…_failures`.
    """
    responses = [texts[e.id] for e in examples]
    checked = long_form.evaluate(
        examples, responses, engine.reader, path, p.test_chunks
    )
    metrics = _scores(checked) | long_form.failures(checked)
    sets = [e.meta["set"] for e in examples]
    for name in dict.fromkeys(sets):
        rows = [row for row, own in zip(checked, sets, strict=True) if own == name]
        metrics |= {f"{name}_{k}": v for k, v in _scores(rows).items()}
    failures = failed_share(feedback, "annotator_failures")
    return metrics | kinds(feedback) | {"annotator_failures": failures}


def _scores(rows: Sequence[CheckedResponse]) -> dict[str, float]:
    judged = [row for row in rows if row.judged]
    scores = long_form.scores(judged)
    by_words = sum(map(_responds_by_words, judged)) / len(judged)
    return scores | {"factscore_response_rate": by_words}


def items(
    before: Sequence[CheckedResponse],
    after: Sequence[CheckedResponse],
    feedback: Sequence[Feedback],
) -> dict[str, dict[str, float]]:
    """<set>/<id> → what the response after adds to each metric that the paper's claims
    are on, absent where it does not count; their means are these metrics.

    before, after: of the same questions; feedback: the annotator's, of the responses
    after. Of `measure` those of `COLUMNS`, the response rate by words, and the paper's
    sets one by one; hedged_claims, of all questions. In the fact world also
    exposure_<n>_response_rate. Of answers, for Fig 4 to 8:

    - accuracy_above_70, accuracy_below_40: whether it is;
    - unverifiable_claims: neither supported nor contradicted;
    - low_accuracy_claims, high_accuracy_claims: all, of those below `LOW`, from `HIGH`;
    - refusal_low, refusal_high: whether there is none, where there was such a one.
    """
    was, now, table = long_form.items(before), long_form.items(after), {}
    for new, sentences in zip(after, feedback, strict=True):
        if new.id in now:
            earlier = was.get(new.id, {}).get("factual_precision")
            terms = _terms(new, now[new.id], earlier)
            if means := kinds([sentences]):
                terms["hedged_claims"] = means["hedged_correct"] + means["hedged_wrong"]
            table[f"{new.meta['set']}/{new.id}"] = terms
    return table


def _terms(
    row: CheckedResponse, scores: Mapping[str, float], earlier: float | None
) -> dict[str, float]:
    """earlier: the accuracy of the answer before, None without one."""
    terms = {name: scores[name] for name in COLUMNS if name in scores}
    terms["factscore_response_rate"] = float(_responds_by_words(row))
    if (name := row.meta["set"]) in SETS:
        terms |= {f"{name}_{k}": v for k, v in terms.items()}
    accuracy = scores.get("factual_precision")
    if accuracy is not None:
        terms["accuracy_above_70"] = float(accuracy > ABOVE)
        terms["accuracy_below_40"] = float(accuracy < LOW)
        terms["unverifiable_claims"] = row.supports.count(Support.INCONCLUSIVE)
    if level := _level(accuracy):
        terms[f"{level}_accuracy_claims"] = terms["total_claims"]
    if level := _level(earlier):
        terms[f"refusal_{level}"] = float(not row.claims)
    if "exposure" in row.meta and (edge := exposure_bin(row)) in EXPOSURES:
        terms[f"exposure_{edge}_response_rate"] = terms["response_rate"]
    return terms


def _level(accuracy: float | None) -> str:
    """low | high | "", of one between the two or of none."""
    if accuracy is None or LOW <= accuracy < HIGH:
        return ""
    return "low" if accuracy < LOW else "high"
