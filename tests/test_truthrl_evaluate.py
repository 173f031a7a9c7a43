"""The terms of TruthRL's metrics: each metric is the mean of its questions' values."""

import pandas as pd
import pytest

from factkit.answers import short_form
from factkit.answers.sampling import Probe
from factkit.answers.short_form import ScoredAnswer
from factkit.data.examples import Example
from factkit.papers.truthrl import evaluate as measured
from factkit.papers.truthrl import figures
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


def test_a_missing_confidence_is_unsure_and_has_no_value_of_its_own():
    after = rows([WRONG, CORRECT, ABSTAIN], confidence=None)
    found = means(of(after).values())
    assert found["unsure_abstention"] == 1 / 3
    assert not {"confidence", "confidence_correct", "brier"} & found.keys()
    assert [measured.confidence_bin(row) for row in after] == [0, 0, 0]
    after = rows([WRONG, CORRECT, ABSTAIN], confidence=0.8)
    assert means(of(after).values())["brier"] == pytest.approx((0.64 + 0.04) / 2)


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


def test_the_majority_of_all_samples_is_one_draw_and_of_few_a_mean_of_twenty():
    probes = [
        Probe("q0", ["a", "b", "b", "b"], [CORRECT, WRONG, WRONG, WRONG]),
        Probe("q1", ["a", "a", "c", "c"], [CORRECT, CORRECT, WRONG, WRONG]),
    ]
    curve = measured.majority_curve(probes)
    assert list(curve) == [1, 2, 4]
    assert curve[4]["accuracy"] == 0.5  # on a tie the first answer wins
    assert 0 < curve[1]["accuracy"] < 0.75 and curve[1]["accuracy"] * 40 % 1 == 0
    assert measured.majority_outcome(probes[0], [0]) is CORRECT
    assert measured.majority_curve([]) == {}


def test_the_relation_rule_answers_where_prompting_is_mostly_right_in_training():
    fields = {"id": "t", "question": "?", "answers": ["x"], "entity": "e"}
    train = [Example(relation=r, **fields) for r in "aabbc"]
    outcomes = [CORRECT, ABSTAIN, CORRECT, WRONG, ABSTAIN]
    probes = [Probe("t", ["x"], [outcome]) for outcome in outcomes]
    test = [answered(i, WRONG, relation=r) for i, r in enumerate("abcd")]
    rates = measured.relation_rule(train, probes, {"test": test, "other": test[:1]})
    assert rates["relation_rule_hallucination"] == 1 / 4  # of a alone, b is half right
    assert rates["relation_rule_abstention"] == 3 / 4
    assert rates["relation_rule_other_hallucination"] == 1


def test_the_auc_within_relations_is_as_counted_by_hand():
    def auc(*triples):
        before = [answered(i, b, relation=r) for i, (r, b, _) in enumerate(triples)]
        after = [answered(i, a, relation=r) for i, (r, _, a) in enumerate(triples)]
        return measured.within_relation_auc(before, after)

    pairs = [
        ("a", CORRECT, CORRECT),
        ("a", WRONG, ABSTAIN),  # below the first: 1
        ("a", WRONG, WRONG),  # as the first: ½
        ("b", CORRECT, ABSTAIN),
        ("b", ABSTAIN, WRONG),  # above the one before: 0
        ("b", None, WRONG),
    ]
    assert auc(*pairs) == {"within_relation_auc": 0.5, "within_relation_pairs": 3}
    assert auc(("a", CORRECT, CORRECT), ("b", WRONG, WRONG)) == {
        "within_relation_pairs": 0
    }


def test_the_auc_of_evidence_is_one_for_a_policy_that_answers_exactly_with_it():
    def of_evidence(*triples):
        return measured.evidence_auc(
            [
                answered(i, o, relation=r, meta={"answer_in_references": stated})
                for i, (r, stated, o) in enumerate(triples)
            ]
        )

    reads = [("a", True, CORRECT), ("a", False, ABSTAIN), ("b", True, None)]
    assert of_evidence(*reads) == {
        "evidence_auc": 1,
        "evidence_pairs": 1,
        "evidence_by_relation": 0.5,
    }
    by_relation = [("a", s, WRONG) for s in (True, False)]
    by_relation += [("b", s, ABSTAIN) for s in (True, False)]
    assert of_evidence(*by_relation) == {
        "evidence_auc": 0.5,
        "evidence_pairs": 2,
        "evidence_by_relation": 1,
    }
    assert measured.evidence_auc(rows()) == {}


def test_rates_are_also_by_evidence():
    stated = [{"answer_in_references": value} for value in (True, False)]
    table = of([answered(i, ABSTAIN, meta=meta) for i, meta in enumerate(stated)])
    assert table["q0"]["with_evidence_abstention"] == 1
    assert table["q1"]["without_evidence_abstention"] == 1
    assert "without_evidence_abstention" not in table["q0"]
    assert not any("evidence" in name for name in of(rows())["q0"])


def test_trends_of_abstention_are_from_the_first_to_the_last_fifth_of_the_updates():
    curve = pd.DataFrame({"step": range(1, 11), "abstention": [0.1] * 8 + [0.4, 0.6]})
    curve["abstention_pro"] = [0.2] * 5 + [0.6] * 5
    trends = measured.abstention_trends(curve)
    assert trends == pytest.approx(
        {"rollout_abstention_end": 0.5, "abstention_pro_rise": 0.4}
    )


def test_figures_name_arms_as_the_papers_do():
    rows = [{"arm": arm, "metrics": {}} for arm in ("r_tuning", "binary_knowledge")]
    assert [*figures.by_title(rows)] == ["R-Tuning", "binary knowledge"]
    assert figures.arm_title("r_tuning (reference)") == "R-Tuning (reference)"


def test_rewards_are_ranked_with_the_interval_over_questions():
    def run(arm, right, wrong):
        rates = {"accuracy": right, "hallucination": wrong}
        rates |= {"truthfulness": right - wrong, "abstention": 1 - right - wrong}
        return {"arm": arm, "seed": 0, "metrics": rates, "inputs": {"reward": "d"}}

    board = figures.rank_rewards([run("mild", 0.5, 0.25), run("bold", 0.75, 0.0)], 4)
    assert [name for name, _ in board.index] == ["bold", "mild"]
    assert board["truthfulness"].tolist() == [75.0, 25.0]
    # scores 1, 1, 1, 0: standard error 0.25, t with 3 degrees of freedom 3.182
    assert board["T ±"].tolist()[0] == pytest.approx(79.6)
