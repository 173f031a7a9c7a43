"""Truth, informativeness and response rate of a policy (RLFH §4).

FactScore's counts come from claims verified by evidence (`long_form`), hedges and
informativeness from the annotator of the rewards.

A refusal has two definitions (§4.2, §4.3): a response without statements; and, in
FactScore's pipeline, also one with characteristic phrases, which counts too many once a
policy says how unsure it is while it informs.
"""

import re
from collections.abc import Sequence

import numpy as np

from factkit.answers import long_form
from factkit.answers.items import Items
from factkit.answers.long_form import CheckedResponse
from factkit.data.spelling import plain
from factkit.papers.rlfh.feedback import Feedback, mean_feedback
from factkit.verify.failures import check_failures
from factkit.verify.outcome import Support

# the paper's claims and the ledger are on these metrics, on each of these sets, and on
# these ranges
COMPARED = ["factual_precision", "precision_at_1", "response_rate"]
COMPARED += ["correct_claims", "incorrect_claims", "total_claims"]
SETS = ("hotpotqa", "squad_v2", "biography")
LOW, HIGH = 0.4, 0.8  # low accuracy is below LOW, high is from HIGH on
ABOVE = 0.7  # accuracy that more answers exceed after training (§4.3, Fig 4)

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
    text = plain(response).casefold()
    return not text or REFUSAL.search(text) is not None


def measure(
    checked: Sequence[CheckedResponse], feedback: Sequence[Feedback]
) -> dict[str, float]:
    """Metrics of responses, from their claims and the annotator's feedback on them.

    Those of `long_form.scores` (factual_precision is FactScore without its penalty for
    short answers) and factscore_response_rate, by words, never above response_rate;
    also for each evaluation set as `<set>_…`; and `mean_feedback`. Raises ValueError
    above 5 % of failures of any kind; the shares are in `…_failures`.
    """
    metrics = _scores(checked) | long_form.failures(checked)
    for name in dict.fromkeys(row.meta["set"] for row in checked):
        rows = [row for row in checked if row.meta["set"] == name]
        metrics |= {f"{name}_{k}": v for k, v in _scores(rows).items()}
    failures = check_failures(feedback, "annotator_failures")
    return metrics | mean_feedback(feedback) | {"annotator_failures": failures}


def _scores(rows: Sequence[CheckedResponse]) -> dict[str, float]:
    judged = [row for row in rows if row.judged]
    responding = sum(map(_responds_by_words, judged))
    return long_form.scores(judged) | {
        "factscore_response_rate": responding / len(judged)
    }


def _responds_by_words(row: CheckedResponse) -> bool:
    return bool(row.claims) and not refuses(row.response)


def items(
    before: Sequence[CheckedResponse],
    after: Sequence[CheckedResponse],
    feedback: Sequence[Feedback],
    stated: Items | None = None,
) -> Items:
    """<set>/<id> → what the response after training adds to each metric that the
    paper's claims are on; a metric is absent where the response does not count.

    before, after: of the same questions; feedback: on the responses after; stated: of
    `stated_by_exposure`, whose metrics are added. Of `measure` those of `COMPARED`, the
    response rate by words, and the paper's sets one by one; hedged_claims, of all
    questions. Of answers, for Fig 4 to 8:

    - accuracy_above_70, accuracy_below_40: whether it is;
    - unverifiable_claims: neither supported nor contradicted;
    - low_accuracy_claims, high_accuracy_claims: all claims, of those below `LOW`, from
      `HIGH` on;
    - refusal_low, refusal_high: whether it states nothing, where the answer before had
      low, high accuracy.
    """
    items_before, items_after = long_form.items(before), long_form.items(after)
    table: Items = {}
    for row, sentences in zip(after, feedback, strict=True):
        if row.id in items_after:
            earlier = items_before.get(row.id, {}).get("factual_precision")
            item = _item(row, items_after[row.id], earlier)
            if means := mean_feedback([sentences]):
                item["hedged_claims"] = means["hedged_correct"] + means["hedged_wrong"]
            item |= (stated or {}).get(row.id, {})
            table[f"{row.meta['set']}/{row.id}"] = item
    return table


def _item(
    row: CheckedResponse, metrics: dict[str, float], earlier: float | None
) -> dict[str, float]:
    """earlier: the accuracy of the answer before training, None without one."""
    item = {name: metrics[name] for name in COMPARED if name in metrics}
    item["factscore_response_rate"] = float(_responds_by_words(row))
    if (name := row.meta["set"]) in SETS:
        item |= {f"{name}_{k}": v for k, v in item.items()}
    accuracy = metrics.get("factual_precision")
    if accuracy is not None:
        item["accuracy_above_70"] = float(accuracy > ABOVE)
        item["accuracy_below_40"] = float(accuracy < LOW)
        item["unverifiable_claims"] = row.supports.count(Support.INCONCLUSIVE)
    if level := _level(accuracy):
        item[f"{level}_accuracy_claims"] = item["total_claims"]
    if level := _level(earlier):
        item[f"refusal_{level}"] = float(not row.claims)
    return item


def count_statements(rows: Sequence[CheckedResponse]) -> np.ndarray:
    """Correct and all statements of each response that states something, (2, n)."""
    supports = [[s for s in row.supports if s is not None] for row in rows]
    counts = [(s.count(Support.SUPPORTED), len(s)) for s in supports if s]
    return np.array(counts, dtype=int).reshape(-1, 2).T


def refusals(
    pairs: Sequence[tuple[CheckedResponse, CheckedResponse]],
) -> list[tuple[float, bool]]:
    """The accuracy before of each answer, and whether the policy refuses the question
    after training (Fig 8). pairs: responses to one question before and after."""
    outcomes = []
    for before, after in pairs:
        correct, n = count_statements([before])
        if n.size and after.judged:
            outcomes.append((correct[0] / n[0], not after.claims))
    return outcomes


def _level(accuracy: float | None) -> str:
    """low | high | "", of one between the two or of none."""
    if accuracy is None or LOW <= accuracy < HIGH:
        return ""
    return "low" if accuracy < LOW else "high"
