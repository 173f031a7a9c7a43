"""Metrics of claim verification: by hand, by item."""

from dataclasses import replace

import pytest

from factkit.papers.veri import evaluate as cv
from factkit.papers.veri.evaluate import Verified, scores
from factkit.verify.trajectory import LABELS, Answer, Turn

SUPPORT, REFUTE, NEI = LABELS
METRICS = (
    "joint_accuracy",
    "verification_accuracy",
    "label_accuracy",
    "evidence_score",
    "evidence_cover",
)


def row(label, gold, said, cited, probability=None, searches=1, **more):
    """A claim, and an answer of label `said` (None: no label) that cites letters."""
    listed = ", ".join(f"[[{id}]]" for id in cited)
    look = [
        Turn("<search>q</search>", True),
        Turn("<information>i</information>", False),
        Turn("<think>t</think>", True),
    ]
    answer = f"<answer>\nLabel: {said}\nEvidence: {listed}\n</answer>"
    trajectory = [Turn("<plan>p</plan>", True), *look * searches, Turn(answer, True)]
    rest = {"trajectory": trajectory, "label_probability": probability} | more
    return Verified("c", "Bo is a baker.", "fever", label, tuple(gold), **rest)


ROWS = [
    row(SUPPORT, "ab", SUPPORT, "ab"),  # all right
    row(SUPPORT, "ab", SUPPORT, "abc"),  # one id too many
    row(SUPPORT, "ab", SUPPORT, "a"),  # one missing
    row(REFUTE, "ab", SUPPORT, "ab"),  # evidence right, label wrong
    row(REFUTE, "a", NEI, ""),
    row(NEI, "ab", NEI, "c"),  # label alone counts
    row(NEI, "", NEI, ""),
    row(NEI, "", REFUTE, "a"),
    row(NEI, "ab", None, ""),  # no readable label
]


def tiers(rows):
    """What a summary tells of labels by how sure they are."""
    metrics = cv.summary(rows)
    return {k: v for k, v in metrics.items() if "_confidence_accuracy" in k}


# ---- scores


def test_scores_by_hand():
    found = scores(ROWS)
    assert {name: found[name] for name in METRICS} == pytest.approx(
        {
            "joint_accuracy": 3 / 9,
            "verification_accuracy": 4 / 9,
            "label_accuracy": 5 / 9,
            "evidence_score": (1 + 2 / 3 + 1 / 2 + 1 + 0 + 0 + 0 + 0 + 0) / 9,
            "evidence_cover": 3 / 7,  # of the seven claims with gold evidence
        }
    )


def test_joint_accuracy_by_hops_is_over_the_claims_with_so_much_evidence():
    found = scores([*ROWS, row(REFUTE, "a", REFUTE, "a"), row(SUPPORT, "a", NEI, "")])
    assert found["one_hop_joint_accuracy"] == 1 / 3
    assert found["more_hops_joint_accuracy"] == 2 / 6
    assert not {n for n in found if "_hop" in n} - {*cv.BY_HOPS}


def test_scores_by_label_by_hand():
    found = scores(ROWS)
    by_label = {
        "support": (1 / 3, 2 / 3, 1, (1 + 2 / 3 + 1 / 2) / 3, 2 / 3),
        "refute": (0, 0, 0, 1 / 2, 1 / 2),
        "nei": (2 / 4, 2 / 4, 2 / 4, 0, 0),
    }
    for label, values in by_label.items():
        for name, value in zip(METRICS, values, strict=True):
            assert found[f"{label}_{name}"] == pytest.approx(value), (label, name)


def test_evidence_is_told_of_what_can_be_checked_and_by_either_choice_for_nothing():
    found = scores(ROWS)
    checkable = (1 + 2 / 3 + 1 / 2 + 1 + 0) / 5
    assert found["checkable_evidence_score"] == pytest.approx(checkable)
    assert found["nei_evidence_score"] == 0
    as_one = found["empty_as_one_evidence_score"]  # (NEI, "", NEI, "") gains
    assert as_one == pytest.approx(found["evidence_score"] + 1 / 9)
    silent = [row(NEI, "", None, "")]  # cites nothing, for it answers nothing
    assert scores(silent)["empty_as_one_evidence_score"] == 0


def test_where_two_labels_are_right_either_is():
    """As of HoVer's claims that are not supported (the last columns of Table 7, 8)."""
    for said, right in ((NEI, 1), (REFUTE, 1), (SUPPORT, 0)):
        rows = [row(NEI, "ab", said, "a", 0.99, also_right=(REFUTE,))]
        found, short = scores(rows), cv.SHORT[said]
        for name in METRICS[:3]:
            assert found[name] == found[f"nei_{name}"] == right
        assert found["nei_recall"] == found[f"{short}_precision"] == right
        assert found["evidence_score"] == 1 / 2
        assert tiers(rows) == {f"{short}_high_confidence_accuracy": right}


# ---- confidence


def test_accuracy_by_confidence_goes_by_the_label_that_was_said():
    rows = [
        row(SUPPORT, "a", SUPPORT, "a", 0.99),
        row(REFUTE, "a", SUPPORT, "a", 0.96),
        row(SUPPORT, "a", SUPPORT, "", 0.2),
        row(NEI, "", REFUTE, "a", 0.84),
        row(NEI, "", NEI, "", 0.951),
        # between the tiers, without a probability, without a label
        *(row(SUPPORT, "a", REFUTE, "a", p) for p in (0.85, 0.9, 0.95, None)),
        row(SUPPORT, "a", None, "a", 0.99),
    ]
    assert tiers(rows) == {
        "support_high_confidence_accuracy": 1 / 2,
        "support_low_confidence_accuracy": 1,
        "refute_low_confidence_accuracy": 0,
        "nei_high_confidence_accuracy": 1,
    }


def test_how_a_claim_was_gone_about():
    def asked(*queries, said=NEI, label=SUPPORT, probability=0.9):
        turns = [Turn(f"<search>{q}</search>", True) for q in queries]
        answer = Turn(f"<answer>\nLabel: {said}\nEvidence:\n</answer>", True)
        more = {"trajectory": [*turns, answer]}
        return row(label, "a" if label != NEI else "", said, "", probability, **more)

    rows = [asked("q", "r"), asked("q", "q", said=SUPPORT, probability=0.99)]
    rows += [asked("q", label=NEI, said=REFUTE), asked("q", label=NEI)]
    found = cv.summary(rows)
    assert found["searched_twice"] == found["repeated_query"] == 1 / 4
    assert found["checkable_as_nei"] == found["nei_as_refute"] == 1 / 2
    assert found["nei_as_support"] == 0
    assert found["high_confidence_share"] == 1 / 4
    assert found["confidence"] == pytest.approx((3 * 0.9 + 0.99) / 4)
    assert found["nei_confidence"] == 0.9 and found["support_confidence"] == 0.99


# ---- items


def test_items_are_the_terms_of_the_summarys_means():
    sure = [row(SUPPORT, "a", SUPPORT, "a", 0.99), row(NEI, "", REFUTE, "a", 0.3)]
    rows = [
        replace(r, id=str(i), set="ab"[i % 2]) for i, r in enumerate([*ROWS, *sure])
    ]
    found, metrics = cv.items(rows), cv.summary(rows)
    assert list(found) == [f"{r.set}/{r.id}" for r in rows]
    for name in {name for marks in found.values() for name in marks}:
        terms = [marks[name] for marks in found.values() if name in marks]
        assert sum(terms) / len(terms) == pytest.approx(metrics[name], abs=1e-6)
    whole = {name for name in cv.COMPARED if name in metrics}
    with pytest.raises(ValueError, match=f"two claims are {rows[0].set}/0"):
        cv.items([*rows, rows[0]])
    of_sets = {f"{s}_{n}" for s in {r.set for r in rows} for n in cv.OF_A_SET}
    own = of_sets & metrics.keys()
    assert {name for marks in found.values() for name in marks} == whole | own


# ---- the form


def test_shares_of_the_form_of_forced_answers_and_searches():
    forced = [Turn("<answer>", False), Turn("Label: SUPPORT</answer>", True)]
    rows = [
        row(SUPPORT, "a", SUPPORT, "a", searches=3),
        row(SUPPORT, "a", SUPPORT, "", searches=1),  # SUPPORT of nothing
        row(SUPPORT, "a", SUPPORT, "a", searches=4),
        row(SUPPORT, "a", SUPPORT, "a", trajectory=forced),
    ]
    found = cv.summary(rows)
    assert found["format_share"] == found["forced_share"] == 1 / 4
    assert found["searches"] == (3 + 1 + 4 + 0) / 4
    assert cv.summary(rows, max_searches=4)["format_share"] == 2 / 4


def test_a_rule_cites_the_entries_whose_text_is_thought_else_says_nei():
    found = "[[a]]: Bo bakes.\n[[b]]: Bo is old.\n[[c]]: Cy bakes."
    turns = [
        Turn("<plan>p</plan>\n<search>Bo</search>", True),
        Turn(f"<information>{found}</information>", False),
        Turn("<think>Bo is old. And Bo bakes. baker baker same.</think>", True),
    ]
    for label, cited in ((SUPPORT, ("a", "b")), (NEI, ())):
        said = row(SUPPORT, "ab", label, "abc")
        said = replace(said, trajectory=[*turns, said.trajectory[-1]])
        assert cv.answer_what_was_read(said) == Answer(label, cited)
    unread = Turn("<think>Bo sings. baker baker same.</think>", True)
    said = row(SUPPORT, "ab", SUPPORT, "abc")
    said = replace(said, trajectory=[*turns[:2], unread, said.trajectory[-1]])
    assert cv.answer_what_was_read(said) == Answer(NEI, ())


def test_a_rule_cites_the_entries_that_a_thought_names():
    found = "[[a]]: Bo died in 1901.\n[[b]]: Bo was born in 1850.\n[[c]]: Bo is a cook."
    thought = "<think>Claim: 1850. Found: 1901 [[a]]. Different.</think>"
    said = row(REFUTE, "a", REFUTE, "abc")
    turns = [Turn(f"<information>{found}</information>", False), Turn(thought, True)]
    said = replace(said, trajectory=[*turns, said.trajectory[-1]])
    assert cv.answer_what_was_read(said) == Answer(REFUTE, ("a",))
