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
from factkit.evaluate.refusals import response_rates
from factkit.verify.claims import Support
from factkit.verify.failures import MOST_JUDGE_FAILURES
from factkit.verify.feedback import Sentence, Truth

if TYPE_CHECKING:
    from factkit.params import RlfhParams
    from factkit.verify.engine import ClaimEngine, WorldEngine

BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # of a response's accuracy (Fig 7)
LOW, HIGH = 0.4, 0.8  # accuracy below which, and from which on, refusals are compared


def measure(
    examples: Sequence[Example],
    said: Mapping[str, str],
    feedback: Sequence[Sequence[Sentence] | None],
    engine: "WorldEngine | ClaimEngine",
    p: "RlfhParams",
    path: Path,
) -> dict[str, float]:
    """Metrics of the responses `said` (question id → text); their claims go to `path`.

    feedback: the annotator's, of each example's response. Those of `long_form.scores`
    (factual_precision is FactScore without its penalty for short answers), also for
    each evaluation set as `<set>_…`; response_rate_by_words; and `kinds`. Raises
    ValueError above 5 % of failures of any kind; the shares are in `…_failures`.
    """
    texts = [said[e.id] for e in examples]
    checked = long_form.evaluate(examples, texts, *engine.reader, path, p.test_chunks)
    metrics = long_form.scores(checked) | long_form.failures(checked)
    words = response_rates(texts, [row.claims for row in checked])
    metrics["response_rate_by_words"] = words["response_rate_by_words"]
    sets = [e.meta["set"] for e in examples]
    for name in dict.fromkeys(sets):
        rows = [row for row, of in zip(checked, sets, strict=True) if of == name]
        metrics |= {f"{name}_{k}": v for k, v in long_form.scores(rows).items()}
    return metrics | kinds(feedback)


def kinds(feedback: Sequence[Sequence[Sentence] | None]) -> dict[str, float]:
    """A response's statements of each kind of truth and a statement's informativeness,
    means, and the share of failures. Raises ValueError if that is above 5 %."""
    known = [of for of in feedback if of is not None]
    failed = 1 - len(known) / len(feedback)
    if failed > MOST_JUDGE_FAILURES:
        raise ValueError(
            f"annotator_failures: {failed:.1%}, at most {MOST_JUDGE_FAILURES:.0%} may "
            "fail: see to the judge's endpoint and run again"
        )
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


def refusal_low_minus_high(
    before: Sequence[Checked], after: Sequence[Checked]
) -> float | None:
    """Share of refusals after among the questions answered with an accuracy below LOW
    before, less that among those from HIGH on; None where one of the two is empty."""
    table = refusals_by_accuracy(before, after)
    low = [of for (_, end), of in table.items() if end <= LOW]
    high = [of for (begin, _), of in table.items() if begin >= HIGH]
    sums = [[sum(column) for column in zip(*of, strict=True)] for of in (low, high)]
    if not all(n for _, n in sums):
        return None
    (low_refused, n_low), (high_refused, n_high) = sums
    return low_refused / n_low - high_refused / n_high


def _bin(share: float) -> tuple[float, float]:
    return next(
        (low, high) for low, high in pairwise(BINS) if share < high or high == BINS[-1]
    )
