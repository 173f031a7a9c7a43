"""An attempt at an exercise is told what is wrong with it."""

from factkit.report.exercises import check


def test_an_attempt_is_told_what_is_wrong(capsys):
    cases = {(1,): 2.0, (2,): (4.0, 5.0)}
    right = {1: 2.0, 2: [4.0, 5.0004]}

    def said(attempt):
        outcome = check(attempt, cases)
        return outcome, capsys.readouterr().out

    assert said(right.get) == (True, "Right, in all 2 cases.\n")
    for attempt, message in (
        (lambda x: ..., "is not written yet"),
        (lambda x: 3.0, "(1) gives 3.0, it should be 2.0"),
        (lambda x: 2.0, "(2) gives 2.0, it should be (4.0, 5.0)"),
        (lambda x: [2.0][x - 1], "(2) raises IndexError"),
        (lambda x: 2.0 if x == 1 else (4.0,), "(2) gives (4.0,)"),
        (lambda x: None, "(1) gives None"),
    ):
        outcome, text = said(attempt)
        assert not outcome
        assert message in text
