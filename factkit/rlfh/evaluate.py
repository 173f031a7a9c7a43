"""How true, how informative and how ready to answer a policy is (RLFH §4).

FactScore's counts come from claims held against evidence (`long_form`), and how they
are said from the annotator that rewards come from.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from factkit.datasets.examples import Example
from factkit.evaluate import long_form
from factkit.evaluate.long_form import Checked
from factkit.evaluate.short_form import exposure_bin
from factkit.rlfh.feedback import Sentence, Truth
from factkit.rlfh.refusals import responds_by_words
from factkit.verify.claims import Support
from factkit.verify.failures import failed_share

if TYPE_CHECKING:
    from factkit.rlfh.arms import RlfhParams
    from factkit.verify.engine import ClaimEngine
    from factkit.verify.exact import ExactEngine

BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # of a response's accuracy (Fig 7)
LOW, HIGH = 0.4, 0.8  # accuracy below which, and from which on, answers are compared
ABOVE = 0.7  # accuracy that more answers exceed after training (§4.3, Fig 4)
COLUMNS = (  # of `long_form.items`, what the paper's claims are on
    *("factual_precision", "response_rate"),
    *("correct_claims", "incorrect_claims", "total_claims"),
)
SETS = ("hotpotqa", "squad_v2", "biography")  # the paper's: claims are on each
EXPOSURES = (0, 4)  # lower edges of the bins of people never read of, and read of


def measure(
    examples: Sequence[Example],
    said: Mapping[str, str],
    feedback: Sequence[Sequence[Sentence] | None],
    engine: "ExactEngine | ClaimEngine",
    p: "RlfhParams",
    path: Path,
) -> dict[str, float]:
    """Metrics of the responses `said` (question id → text); their claims go to `path`.

    feedback: the annotator's, of each example's response. Those of `long_form.scores`
    (factual_precision is FactScore without its penalty for short answers) and
    factscore_response_rate, the share of `refusals.responds_by_words`, never above
    response_rate; also for each evaluation set as `<set>_…`; and `kinds`. Raises
    ValueError above 5 % of failures of any kind; the shares are in `…_failures`.
    """
    texts = [said[e.id] for e in examples]
    checked = long_form.evaluate(examples, texts, *engine.reader, path, p.test_chunks)
    metrics = _scores(checked) | long_form.failures(checked)
    sets = [e.meta["set"] for e in examples]
    for name in dict.fromkeys(sets):
        rows = [row for row, of in zip(checked, sets, strict=True) if of == name]
        metrics |= {f"{name}_{k}": v for k, v in _scores(rows).items()}
    return metrics | kinds(feedback)


def _scores(rows: Sequence[Checked]) -> dict[str, float]:
    judged = [row for row in rows if row.judged]
    answering = [responds_by_words(row.response, row.claims) for row in judged]
    scores = long_form.scores(judged)
    return scores | {"factscore_response_rate": sum(answering) / len(judged)}


def items(
    before: Sequence[Checked],
    after: Sequence[Checked],
    feedback: Sequence[Sequence[Sentence] | None],
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
    table = long_form.items(after)
    rows = zip(before, after, feedback, strict=True)
    return {
        f"{new.meta['set']}/{new.id}": _terms(old, new, table[new.id]) | _hedged(said)
        for old, new, said in rows
        if new.id in table
    }


def _hedged(said: Sequence[Sentence] | None) -> dict[str, float]:
    """How many statements are hedged; nothing where the annotator failed."""
    if said is None:
        return {}
    hedged = (Truth.HEDGED_CORRECT, Truth.HEDGED_WRONG)
    return {
        "hedged_claims": sum(s.truth in hedged for of in said for s in of.statements)
    }


def _terms(old: Checked, new: Checked, scores: Mapping[str, float]) -> dict[str, float]:
    terms = {name: scores[name] for name in COLUMNS if name in scores}
    by_words = responds_by_words(new.response, new.claims)
    terms["factscore_response_rate"] = float(by_words)
    if (name := new.meta["set"]) in SETS:
        terms |= {f"{name}_{k}": v for k, v in terms.items()}
    if (share := accuracy(new)) is not None:
        terms["accuracy_above_70"] = float(share > ABOVE)
        terms["accuracy_below_40"] = float(share < LOW)
        terms["unverifiable_claims"] = new.supports.count(Support.INCONCLUSIVE)
        if level := _level(share):
            terms[f"{level}_accuracy_claims"] = terms["total_claims"]
    if (share := accuracy(old)) is not None and (level := _level(share)):
        terms[f"refusal_{level}"] = float(not new.claims)
    if "exposure" in new.meta and (edge := exposure_bin(new)) in EXPOSURES:
        terms[f"exposure_{edge}_response_rate"] = terms["response_rate"]
    return terms


def _level(share: float) -> str:
    """low | high | "", of an accuracy between the two."""
    return "low" if share < LOW else "high" if share >= HIGH else ""


def kinds(feedback: Sequence[Sequence[Sentence] | None]) -> dict[str, float]:
    """Statements of each kind of truth a question, refusals' 0 with them, and a
    statement's informativeness, means; and the share of failures.

    Raises ValueError if that is above 5 %.
    """
    failed = failed_share(feedback, "annotator_failures")
    known = [sentences for sentences in feedback if sentences is not None]
    stated = [s for of in known for sentence in of for s in sentence.statements]
    means = {
        truth.replace(" ", "_"): sum(s.truth == truth for s in stated) / len(known)
        for truth in Truth
    }
    if stated:
        total = sum(s.informativeness for s in stated)
        means["informativeness"] = total / len(stated)
    return means | {"annotator_failures": failed}


def accuracy(row: Checked) -> float | None:
    """The share of a response's claims that are supported, None without any."""
    known = [s for s in row.supports if s is not None]
    return known.count(Support.SUPPORTED) / len(known) if known else None


def by_accuracy(rows: Sequence[Checked]) -> dict[tuple[float, float], list[Checked]]:
    """Responses by the bin of `BINS` that their accuracy is in, [low, high), the last
    with its end; those without claims are in none (Fig 7)."""
    table = {edges: [] for edges in pairwise(BINS)}
    for row in rows:
        if (share := accuracy(row)) is not None:
            table[_bin(share)].append(row)
    return table


def refusals_by_accuracy(
    before: Sequence[Checked], after: Sequence[Checked]
) -> dict[tuple[float, float], tuple[int, int]]:
    """Bin of a response's accuracy before → how many of these questions are refused
    after, and how many there are (Fig 8). before, after: of the same questions."""
    table = {edges: (0, 0) for edges in pairwise(BINS)}
    for old, new in zip(before, after, strict=True):
        if (share := accuracy(old)) is not None and new.judged:
            refused, n = table[_bin(share)]
            table[_bin(share)] = refused + (not new.claims), n + 1
    return table


def _bin(share: float) -> tuple[float, float]:
    return next(
        (low, high) for low, high in pairwise(BINS) if share < high or high == BINS[-1]
    )
