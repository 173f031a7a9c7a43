"""How verifiers are measured: scores by hand, no claim in both halves."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factkit import params
from factkit.datasets.judged_claims import Judged
from factkit.evaluate import verifiers
from factkit.verify.claims import Support

SUPPORTED, CONTRADICTED, INCONCLUSIVE = Support


def judged(claim, *evidence, support=SUPPORTED):
    return Judged(claim, evidence, support)


@pytest.mark.parametrize(
    ("claim", "evidence", "share"),
    [
        ("Ada was tall.", ["Ada is tall."], 1),
        ("Ada left in 1903.", ["Ada left.", "It was 1904."], 2 / 3),
        ("Ada left.", ["Bo came."], 0),
        ("Ada left.", [], 0),
    ],
)
def test_words_are_the_share_of_content_words_that_the_evidence_has(
    claim, evidence, share
):
    assert verifiers.words([judged(claim, *evidence)]) == pytest.approx([share])


VECTORS = {"c": (1, 0), "near.": (0.8, 0.6), "far.": (0, 1), "d": (0, 1), "": (0, 0)}


def encode(texts):
    return np.array([VECTORS[text] for text in texts], dtype=float)


def test_the_cosine_is_that_of_the_nearest_sentence():
    rows = [judged("c", "far. near.", "far."), judged("d", "near."), judged("c")]
    assert verifiers.cosine(rows, encode) == pytest.approx([0.8, 0.6, 0])


def test_the_claim_alone_learns_a_label_that_the_claim_betrays():
    rows = [judged(claim) for claim in "cd" * 20]
    right = np.array([True, False] * 20)
    fit = np.arange(40) < 20
    found = verifiers.claim_alone(rows, encode, fit, right)
    assert verifiers.auc(right[~fit], found[~fit]) == 1.0


def test_verdicts_are_scores_and_a_failure_is_none():
    rows = [judged(c, "e") for c in "abcd"]
    asked = []

    def verify(pairs):
        asked.extend(pairs)
        return [SUPPORTED, CONTRADICTED, INCONCLUSIVE, None]

    found = verifiers.verdicts(rows, verify)
    assert found[:3].tolist() == [1, -1, 0] and np.isnan(found[3])
    assert asked == [(c, ("e",)) for c in "abcd"]


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1), st.integers(0, 9))
def test_the_rows_of_a_claim_are_in_one_half(claims, seed):
    dev = verifiers.halves([judged(c) for c in claims], seed)
    assert len(set(zip(claims, dev, strict=True))) == len(set(claims))
    assert (
        len({c for c, d in zip(claims, dev, strict=True) if d})
        == (len(set(claims)) + 1) // 2
    )


@pytest.mark.parametrize(
    ("right", "scores", "wanted"),
    [
        ([0, 0, 1, 1], [1, 2, 3, 4], 1.0),
        ([0, 0, 1, 1], [4, 3, 2, 1], 0.0),
        ([0, 1, 0, 1], [1, 2, 3, 4], 0.75),
        ([0, 1, 1], [2, 2, 3], 0.75),  # a tie counts half
        ([0, 1], [5, 5], 0.5),
    ],
)
def test_auc_is_the_share_of_pairs_in_order(right, scores, wanted):
    assert verifiers.auc(np.array(right, bool), np.array(scores)) == wanted


def test_error_rates_by_hand():
    right = np.array([1, 1, 0, 0, 1, 1, 1, 0, 0], bool)
    scores = np.array([0.9, 0.6, 0.5, 0.1, 0.7, 0.6, 0.2, 0.8, 0.3])
    dev = np.arange(9) < 4
    found = verifiers.error_rates(right, scores, np.array(list("abcdefghi")), dev)
    assert found["threshold"] == 0.6  # tells dev's rows apart without an error
    assert (found["rows"], found["supported"]) == (5, 3 / 5)
    assert found["auc"] == pytest.approx(2 / 6)
    assert found["passed"] == pytest.approx(1 / 2)
    assert found["refused"] == pytest.approx(1 / 3)
    for name in ("auc", "passed", "refused"):
        assert found[f"{name}_low"] <= found[name] <= found[f"{name}_high"]


def test_rows_of_one_claim_count_as_one_for_the_interval():
    right, scores = np.array([1, 0] * 20, bool), np.array([1.0, 0.0, 0.0, 1.0] * 10)
    dev = np.arange(40) < 20

    def width(claims):
        found = verifiers.error_rates(right, scores, np.array(claims), dev)
        return found["auc_high"] - found["auc_low"]

    assert width([i // 10 for i in range(40)]) < width(list(range(40)))
    assert width([i // 4 for i in range(40)]) == 0  # each claim has all four kinds


def table_of(supports):
    rows = [judged(f"c{i}", "e", support=s) for i, s in enumerate(supports)]
    scores = {"words": np.array([verifiers.SCORE[s] for s in supports])}
    scores["judge"] = np.where(np.arange(len(rows)) % 7, scores["words"], np.nan)
    return verifiers.measured(
        rows, scores, lambda texts: np.ones((len(texts), 2)), seed=0
    )


def test_both_questions_are_asked_and_failures_counted():
    table = table_of(list(Support) * 40)
    assert table["question"].nunique() == 2
    by = table.set_index(["question", "verifier"])
    assert (by.loc[(slice(None), "words"), "auc"] == 1).all()
    assert (by.loc[(slice(None), "the claim alone"), "auc"] == 0.5).all()
    failed = by.loc["supported or not"]["failed"]
    assert failed["words"] == 0 and failed["judge"] > 0
    rows = by.loc["supported or not"]["rows"]
    assert rows["judge"] + failed["judge"] == rows["words"]


def test_a_question_that_nothing_answers_is_left_out():
    assert set(table_of([SUPPORTED, CONTRADICTED] * 40)["question"]) == {
        "supported or contradicted"
    }
    assert set(table_of([SUPPORTED, INCONCLUSIVE] * 40)["question"]) == {
        "supported or not"
    }
    assert table_of([SUPPORTED] * 80).empty


def test_the_reader_is_held_against_the_hand():
    table = pd.DataFrame(
        [
            ("r1", "a", "supported", "supported"),
            ("r1", "b", "supported", "contradicted"),
            ("r1", "c", None, "contradicted"),
            ("r2", "d", "supported", None),  # no statement by hand
        ],
        columns=["response", "statement", "reader", "hand"],
    )
    found = verifiers.reader_check(table)
    assert (found["responses"], found["statements"]) == (2, 3)
    assert found["found"] == pytest.approx(2 / 3)
    assert found["right"] == pytest.approx(1 / 3)


def test_the_stored_results_are_of_all_sets():
    table = pd.read_csv(params.ROOT / "outputs/reference/verifiers.csv")
    assert set(table["verifier"]) == {"the claim alone", "words", "cosine"}
    assert table["set"].nunique() == 5
    inside = (table["auc_low"] <= table["auc"]) & (table["auc"] <= table["auc_high"])
    assert inside.all()
