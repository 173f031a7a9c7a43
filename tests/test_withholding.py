"""Evidence that is withheld from a share of TruthRL's prompts."""

from collections import Counter

import numpy as np
import pytest

from factkit.data import assets
from factkit.data.bm25 import tokenize
from factkit.data.examples import Example
from factkit.papers.truthrl import data, withholding
from factkit.papers.truthrl.withholding import MARK, withhold
from factkit.policy.models import load_tokenizer
from factkit.run import params

CITY = "City {i}: City {i} lies in the Republic of the Congo, near Gabon."


def question(i, references="", relation="city_country", answers=("Republic of Congo",)):
    return Example(
        id=f"{relation}{i}",
        question=f"Where is City {i}?",
        answers=list(answers),
        entity=f"City {i}",
        relation=relation,
        meta={"references": references or CITY.format(i=i)},
    )


def stated(example):
    return example.meta["answer_in_references"]


def test_each_relation_is_withheld_by_the_share_and_by_the_ids_alone():
    examples = [question(i, relation=r) for r in "ab" for i in range(40)]
    chosen = withhold(examples, 0.25)
    counts = Counter((e.relation, stated(e)) for e in chosen)
    assert counts == {(r, s): 30 if s else 10 for r in "ab" for s in (True, False)}
    kept = {e.id: e for e in chosen}
    for some in (examples[::-1], examples[:40]):
        assert {e.id: e for e in withhold(some, 0.25)}.items() <= kept.items()


def test_the_answer_is_cut_out_or_as_many_words_beside_it_and_nothing_else():
    examples = [question(i) for i in range(40)]
    for before, after in zip(examples, withhold(examples, 0.5), strict=True):
        text = after.meta["references"]
        assert text.count(MARK) == 1 and text.startswith(f"{before.entity}: ")
        assert ("Congo" in text) is stated(after)
        if not stated(after):
            assert text.endswith(f"lies in the {MARK}, near Gabon.")
        else:  # four words of the answer, no four after it
            assert text.endswith(f"{MARK} Republic of the Congo, near Gabon.")


def test_every_place_that_states_the_answer_is_cut_and_the_longest_name_first():
    text = "Bo was a Côte d'Ivoire-born poet. Cote d'Ivoire, or Ivoire, is far."
    spans = withholding.locate_answers(["Ivoire", "Côte d'Ivoire"], text)
    assert [text[a:b] for a, b in spans] == ["Côte d'Ivoire", "Cote d'Ivoire", "Ivoire"]
    assert withholding.locate_answers(["art"], "the party") == []


@pytest.mark.parametrize(
    "references",
    [
        "City: it lies in Gabon.",  # no answer
        "Congo: Republic of the Congo: a country in the middle of Africa.",  # in title
        "City: Republic of the Congo.",  # no words beside it
    ],
)
def test_questions_whose_answer_can_not_be_cut_out_are_left_out(references):
    rows = [question(i) for i in range(12)]
    answers = ["Republic of Congo", "Congo"]
    bad = question(99, references, answers=answers)
    assert withhold([*rows, bad], 0.5) == withhold(rows, 0.5)
    assert withhold(rows[1:], 0.5) == []  # too few of the relation


def test_comparison_questions_keep_the_text_of_their_question():
    p = params.load("truthrl", "laptop", variant="withheld")
    chosen = withhold([question(i) for i in range(12)], p.withheld_evidence)
    assert data.with_references({"test": chosen}, p, None) == {"test": chosen}


def test_evidence_is_withheld_from_one_text_only():
    for name, value, said in (
        ("retrieved_chunks", 2, "retrieved_chunks=1"),
        ("retriever", "", "needs a retriever"),
    ):
        with pytest.raises(params.ParamError, match=said):
            params.load("truthrl", "laptop", {name: value}, "withheld")


def surface(example, relations):
    """What can be seen of a prompt without reading whether the answer is there."""
    title, _, text = example.meta["references"].partition(": ")
    asked, words = set(tokenize(example.question)), text.split()
    place = next(i for i, word in enumerate(words) if MARK in word)
    return [
        title == example.entity,
        len(text),
        len(words),
        len(asked & set(tokenize(text))) / len(asked),
        len(asked & set(tokenize(title))) / len(asked),
        text.count(MARK),
        place,
        place / len(words),
        text[:1].islower(),
        *(example.relation == name for name in relations),
    ]


def held_out_auc(x, y, folds=5):
    """AUC of a logistic regression (L2, Newton's method) on held-out rows."""
    fold = np.random.default_rng(0).integers(0, folds, len(y))
    scores = np.zeros(len(y))
    x = np.c_[np.ones(len(x)), (x - x.mean(0)) / (x.std(0) + 1e-9)]
    for f in range(folds):
        a, b, w = x[fold != f], y[fold != f], np.zeros(x.shape[1])
        for _ in range(20):
            p = 1 / (1 + np.exp(-a @ w))
            hessian = a.T * (p * (1 - p)) @ a + np.eye(len(w))
            w -= np.linalg.solve(hessian, a.T @ (p - b) + w)
        scores[fold == f] = x[fold == f] @ w
    pairs = scores[y == 1][:, None] - scores[y == 0]
    return (np.sign(pairs).mean() + 1) / 2


@pytest.mark.slow
def test_only_reading_tells_whether_the_answer_is_in_a_prompt_of_laptop():
    p = params.load("truthrl", "laptop", variant="withheld")
    examples, _ = data.open_questions(p).load()
    tokenizer = load_tokenizer(assets.policy_path(p.policy))
    chosen = data.withhold_evidence(examples, p, tokenizer)
    relations = sorted({e.relation for e in chosen})
    assert len(chosen) > 1500 and len(relations) > 10
    x = np.array([surface(e, relations) for e in chosen], float)
    y = np.array([stated(e) for e in chosen], float)
    assert abs(held_out_auc(x, y) - 0.5) < 0.05
    read = np.c_[x, y]  # the check can fail
    assert held_out_auc(read, y) > 0.99
