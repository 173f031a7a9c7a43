"""Splits and knowledge-boundary probing."""

from collections import Counter

import pytest

from factkit.curate import probing, splits
from factkit.curate.probing import Probe
from factkit.datasets.examples import DataError, Example


def examples(n=400):
    return [
        Example(
            id=f"{relation}:{i}",
            question=f"{relation} of {i}?",
            answers=[str(i)],
            entity=f"e{i // 2}",
            relation=relation,
        )
        for i in range(n)
        for relation in ("a", "b", "rare")[: 3 if i % 5 == 0 else 2]
    ]


SIZES = {"train": 100, "test": 60}


def test_no_entity_is_in_two_splits():
    split = splits.split_by_entity(examples(), SIZES)
    train, test = ({e.entity for e in split[name]} for name in SIZES)
    assert not train & test


def test_splits_have_their_sizes_and_an_even_mix_of_relations():
    split = splits.split_by_entity(examples(), SIZES)
    assert {k: len(v) for k, v in split.items()} == SIZES
    counts = Counter(e.relation for e in split["train"])
    assert max(counts.values()) - min(counts.values()) <= 1


def test_the_same_seed_gives_the_same_split_whatever_the_order_of_entities():
    assert splits.split_by_entity(examples(), SIZES) == splits.split_by_entity(
        examples(), SIZES
    )


def test_asking_for_more_than_there_is_names_the_parameter():
    with pytest.raises(DataError, match="train_questions=1000"):
        splits.split_by_entity(examples(), {"train": 1000, "test": 10})


@pytest.mark.parametrize(
    ("right", "known_share", "unknown"),
    [(0, 0.0, True), (1, 0.0, False), (1, 0.5, True), (2, 0.5, False), (4, 0.5, False)],
)
def test_out_of_knowledge_by_share_of_correct_samples(right, known_share, unknown):
    probe = Probe("q", ["s"] * 4, [True] * right + [False] * (4 - right))
    assert probing.out_of_knowledge(probe, known_share) is unknown


def test_r_tuning_abstains_where_unknown_and_else_says_its_own_answer():
    rows = probing.r_tuning_rows(
        examples()[:2],
        [
            Probe("a:0", ["no", "no"], [False, False]),
            Probe("b:0", ["zero", "0"], [False, True]),
        ],
        "short_form",
        known_share=0.5,
    )
    assert [r["completion"] for r in rows] == [" I don't know", " 0"]
    assert rows[0]["prompt"] == "Question: a of 0?\nAnswer:"


def test_the_own_answer_is_the_most_frequent_correct_one():
    probe = Probe("q", ["UK", "Britain", "Britain", "Rome"], [True, True, True, False])
    assert probe.own_answer() == "Britain"


class CountingModel:
    """Stands in for `models.sample`; counts what it is asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, model, tokenizer, prompts, sampling, n, seed):
        self.asked += prompts
        return [[f"{prompt[-12:]} {seed}"] * n for prompt in prompts]


def test_a_killed_probing_goes_on_and_equals_one_that_ran_through(
    tmp_path, monkeypatch
):
    from factkit import models

    fake = CountingModel()
    monkeypatch.setattr(models, "sample", fake)
    some, args = examples()[:100], ("short_form", models.Sampling(4), 2)
    whole = probing.probe(None, None, some, *args, path=tmp_path / "a", part=10)
    probing.probe(None, None, some[:40], *args, path=tmp_path / "b", part=10)
    fake.asked.clear()
    resumed = probing.probe(None, None, some, *args, path=tmp_path / "b", part=10)
    assert resumed == whole
    assert len(fake.asked) == 60
