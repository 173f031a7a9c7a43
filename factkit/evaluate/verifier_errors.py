"""How often a verifier of (evidence, claim) pairs errs, beside two simple baselines."""

import html
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from factkit.curate.like_words import SMALL_WORDS
from factkit.retrieval import Index, tokenize

LABELS = ("SUPPORTS", "REFUTES")  # as FEVER writes them
_TOKENISED = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "``": '"',
    "''": '"',
    "--": "–",
}

# (evidence, claim) pairs → (n, 3): supported, contradicted, inconclusive
Probabilities = Callable[[Sequence[tuple[str, str]]], np.ndarray]


@dataclass(frozen=True)
class Judged:
    """A claim, its evidence texts, best first, and whether these contradict it."""

    claim: str
    evidence: Sequence[str]
    contradicted: bool


def fever_symmetric(path: Path) -> list[Judged]:
    """Human-labelled claims with one evidence sentence (Schuster et al. 2019)."""
    return [
        Judged(_plain(row["claim"]), [_plain(row["evidence"])], _refuted(row))
        for row in _rows(path)
    ]


def fever(path: Path, index: Index, k: int) -> list[Judged]:
    """FEVER's claims (Thorne et al. 2018), each with the k best chunks of an index.

    Whether these contain what the label rests on is part of what is measured.
    """
    return [
        Judged(claim, [h.chunk.text for h in index.search(claim, k)], _refuted(row))
        for row in _rows(path)
        for claim in [_plain(row["claim"])]
    ]


def contradiction_scores(
    rows: Sequence[Judged], probabilities: Probabilities, decided: bool = False
) -> np.ndarray:
    """How much more a row's evidence contradicts than supports: (n,) in [-1, 1].

    c - s of the probabilities of contradiction and support; with several evidence texts
    the highest of each counts, and without any both are 0. decided: the evidence is
    known not to be inconclusive, so c and s are made to sum to 1.
    """
    pairs = [(text, row.claim) for row in rows for text in row.evidence]
    found = iter(probabilities(pairs))
    best = [[next(found) for _ in row.evidence] or [np.zeros(3)] for row in rows]
    most = np.array([np.max(of, axis=0)[:2] for of in best])  # (n, 2)
    if decided:
        most = most / np.maximum(most.sum(1, keepdims=True), 1e-9)
    return most[:, 1] - most[:, 0]


def lexical_scores(rows: Sequence[Judged]) -> np.ndarray:
    """The baseline that compares words: a claim's share that its evidence lacks (n,).

    Content words and numbers; a negation in the claim alone counts as one word more.
    """
    return np.array([_lacking(row.claim, " ".join(row.evidence)) for row in rows])


def auc(contradicted: Sequence[bool], scores: np.ndarray) -> float:
    """The chance that a contradicted row scores above another; ties count half.

    Raises ValueError unless there are rows of both kinds.
    """
    import pandas as pd

    is_one = np.asarray(contradicted, bool)
    ones, others = int(is_one.sum()), int((~is_one).sum())
    if not ones or not others:
        raise ValueError("AUC needs rows that are contradicted and rows that aren't")
    ranks = pd.Series(scores).rank().to_numpy()[is_one].sum()
    return float((ranks - ones * (ones + 1) / 2) / (ones * others))


def error_rates(
    rows: Sequence[Judged], scores: np.ndarray, resamples: int = 1000
) -> dict[str, float]:
    """AUC with its 95 % bootstrap interval, and what deciding at 0 gets wrong.

    false_negative: share of the rows without contradiction that are called
    contradicted, as Binary RAR A.2 counts (16 % for its verifier); false_positive:
    share of the contradicted rows that pass. majority: accuracy of one answer to all.
    """
    truth = np.array([row.contradicted for row in rows])
    called = scores > 0
    rng, draws = np.random.default_rng(0), []
    while len(draws) < resamples:
        picked = rng.integers(len(rows), size=len(rows))
        if 0 < truth[picked].sum() < len(rows):
            draws.append(auc(truth[picked], scores[picked]))
    low, high = np.quantile(draws, [0.025, 0.975])
    return {
        "rows": len(rows),
        "auc": auc(truth, scores),
        "auc_low": float(low),
        "auc_high": float(high),
        "accuracy": float((called == truth).mean()),
        "majority": float(max(truth.mean(), 1 - truth.mean())),
        "false_negative": float(called[~truth].mean()),
        "false_positive": float((~called[truth]).mean()),
    }


def _rows(path: Path) -> Iterable[dict]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _refuted(row: dict) -> bool:
    if row["label"] not in LABELS:
        raise ValueError(f"label {row['label']!r}; it must be one of {LABELS}")
    return row["label"] == "REFUTES"


def _plain(text: str) -> str:
    """FEVER's tokenised text as it is usually written."""
    for token, written in _TOKENISED.items():
        text = text.replace(token, written)
    text = re.sub(r"([(\[]) ", r"\1", html.unescape(text))
    return re.sub(r" (?=[.,;:)\]'’])", "", text).strip()


def _lacking(claim: str, evidence: str) -> float:
    words, said = set(tokenize(claim)), set(tokenize(evidence))
    content = words - SMALL_WORDS
    negated = bool(words & {"not", "never", "no"}) and not said & {"not", "never", "no"}
    return (len(content - said) + negated) / max(len(content), 1)
