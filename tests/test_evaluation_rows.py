"""Rows of evaluations in files: read back as they were, damage refused by row."""

from dataclasses import asdict

import pytest

from factkit.answers.long_form import CheckedResponse
from factkit.answers.short_form import ScoredAnswer
from factkit.data.examples import DataError, read_rows, write_rows
from factkit.papers.veri.evaluate import Verified
from factkit.verify.claims import Claim, Support
from factkit.verify.outcome import Outcome
from factkit.verify.trajectory import Turn

TEXT = "one\u2028two\x85three"  # what splits a str into lines
ANSWERED = [
    ScoredAnswer(
        "a", "q?", ["x"], "r", TEXT, Outcome.WRONG, 0.5, None, {"exposure": 1}
    ),
    ScoredAnswer("b", "q?", ["x"], "r", "", None),
]
CHECKED = [
    CheckedResponse("a", "q?", TEXT, [Claim(TEXT, "s")] * 2, [Support.SUPPORTED, None]),
    CheckedResponse("b", "q?", TEXT, None, []),
]
TURNS = [Turn(TEXT, True), Turn("<answer>", False)]
VERIFIED = [Verified("a", "c", "s", "SUPPORT", ("d1",), TURNS, None, ("REFUTE",))]
NO_ROWS = {
    ScoredAnswer: ["{", "[]", "{}", '{"id": "a", "outcome": "maybe"}', "\udcff"],
    CheckedResponse: ["{", "[]", "{}", '{"claims": 1}', "\udcff"],
    Verified: [
        *("{", "[]", "{}", "\udcff"),
        '{"gold": [], "also_right": [], "trajectory": []}',
        '{"gold": [], "also_right": [], "trajectory": [1]}',
        '{"id": "c", "claim": "b", "set": "s", "label": "SUPPORT", "gold": [], '
        '"trajectory": [], "label_probability": null, "also_right": []}',
    ],
}


def test_rows_come_back_from_their_file(tmp_path):
    path = tmp_path / "new" / "rows.jsonl"
    for kept, columns in ((ANSWERED, asdict), (CHECKED, asdict), (VERIFIED, vars)):
        write_rows(path, map(columns, kept))
        assert read_rows(path, type(kept[0])) == kept


def test_a_damaged_file_is_refused_by_row(tmp_path):
    path = tmp_path / "rows.jsonl"
    for kind, lines in NO_ROWS.items():
        for line in lines:
            path.write_bytes(line.encode("utf-8", "surrogateescape") + b"\n")
            with pytest.raises(DataError, match=r"rows\.jsonl, row 1: .*again"):
                read_rows(path, kind)
