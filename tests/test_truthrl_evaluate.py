"""The terms of TruthRL's metrics: each metric is the mean of its questions' values."""

import pytest

from factkit.answers import short_form
from factkit.answers.sampling import Probe
from factkit.answers.short_form import ScoredAnswer
from factkit.papers.truthrl import evaluate as measured
from factkit.run.statistics import means
from factkit.verify.outcome import Outcome

CORRECT, ABSTAIN, WRONG = Outcome.CORRECT, Outcome.ABSTAIN, Outcome.WRONG
KINDS = [CORRECT, ABSTAIN, WRONG, None, WRONG, CORRECT]


def answered(i, outcome, **more):
    fields = {"question": "?", "answers": ["x"], "relation": "a", "response": "r"}
    return ScoredAnswer(id=f"q{i}", outcome=outcome, **fields | more)


def rows(kinds=KINDS, **more):
    return [answered(i, kind, **more) for i, kind in enumerate(kinds)]


def of(after, before=None, shown=None, **more):
    before = before or rows([WRONG] * len(after))
    return measured.items({"test": after}, before, shown or before, **more)


def test_the_means_are_the_rates_and_a_failed_judgement_counts_nowhere():
    table = of(rows())
    assert table["q3"] == {}
    rates = short_form.rates(KINDS)
    found = means(table.values())
    assert {name: found[name] for name in rates} == pytest.approx(rates)


def test_gains_are_paired_by_question_and_the_confident_apart_from_the_unsure():
    table = of(rows([CORRECT, ABSTAIN]), rows([WRONG, None]))
    assert table["q0"]["gain_truthfulness"] == 2
    assert table["q0"]["gain_hallucination"] == -1
    assert "gain_truthfulness" not in table["q1"]
    sure, unsure = answered(0, WRONG, confidence=0.9), answered(1, ABSTAIN)
    found = means(of([sure, unsure]).values())
    assert found["confidence_0.8_hallucination"] == 1
    assert found["unsure_abstention"] == 1
    assert found["confidence"] == 0.45
    assert "confidence_correct" not in found


def test_difficult_is_what_was_never_read_or_neither_way_answers():
    world = [answered(i, ABSTAIN, meta={"exposure": i}) for i in range(3)]
    table = of(world)
    assert [i for i in table if "difficult_abstention" in table[i]] == ["q0"]
    table = of(
        rows([ABSTAIN] * 3),
        rows([CORRECT, WRONG, WRONG]),
        rows([WRONG, CORRECT, ABSTAIN]),
    )
    assert [i for i in table if "difficult_abstention" in table[i]] == ["q2"]
    assert [i for i in table if "easier_abstention" in table[i]] == ["q0", "q1"]


def test_a_further_judge_that_is_not_up_is_named_and_left_out(capsys):
    def down(*_):
        return [None] * len(KINDS)

    def up(*_):
        return [WRONG] * len(KINDS)

    table = of(rows())
    measured.add_answers(
        table, "judge_2_", rows(), down, "org/m@http://localhost:8002/v1"
    )
    measured.add_answers(
        table, "judge_3_", rows(), up, "org/n@http://localhost:8003/v1"
    )
    assert not any("judge_2_" in name for row in table.values() for name in row)
    assert means(table.values())["judge_3_hallucination"] == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("left out: org/m@http://localhost:8002/v1: 100.0% of 6")
    assert "Check the judge's endpoint and run again" in line


def test_samples_and_reasoning_have_terms_by_outcome():
    probe = Probe("q0", ["a", "a", "b", "c"], [CORRECT, CORRECT, WRONG, WRONG])
    row = of(rows([CORRECT]), samples=[probe])["q0"]
    assert (row["all_samples_accuracy"], row["sampling_gain_accuracy"]) == (1, 0.5)
    assert row["sampling_cut_hallucination"] == 0.5
    assert row["sampling_gain_abstention"] == 0
    kinds = zip((CORRECT, WRONG, ABSTAIN, CORRECT), (1.0, 0.5, 0.0, None), strict=True)
    after = [answered(i, kind, reasoning=q) for i, (kind, q) in enumerate(kinds)]
    found = means(of(after).values())
    assert found["reasoning"] == 0.5
    assert found["reasoning_correct"] == 1
    assert (found["reasoning_wrong"], found["reasoning_abstaining"]) == (0.5, 0)
