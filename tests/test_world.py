"""The fact world: deterministic, unambiguous, and exactly checkable."""

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest

from factkit.facts.world import facts as w
from factkit.facts.world import texts as wt
from factkit.facts.world.claims import make_claims
from factkit.train.pretraining import build_policy, pack


@pytest.fixture(scope="module")
def world():
    return w.build_world(0)


@pytest.fixture(scope="module")
def texts(world):
    return wt.pretraining_texts(world, 0)


@pytest.fixture(scope="module")
def tokenizer(world):
    return wt.build_tokenizer(world)


def false(fact):
    other = next(o for o in w.OBJECTS[fact.relation] if o != fact.object)
    return w.statement(replace(fact, object=other))


def test_no_question_has_two_answers(world):
    asked = Counter(w.question(f, i).casefold() for f in world.facts for i in range(3))
    assert max(asked.values()) == 1


def test_each_statement_is_supported_and_with_another_object_contradicted(world):
    for fact in world.by_key.values():
        for i in range(len(w.STATEMENTS[fact.relation])):
            parsed, hedged = world.parse(w.statement(fact, i))
            assert (parsed, hedged) == (replace(fact, exposure=0), False)
            assert world.verify(w.statement(fact, i)) == "supported"
        assert world.verify(false(fact)) == "contradicted"
    for sentence in ("", "Nobody knows.", "X Y was born in 1901."):
        assert world.verify(sentence) == "inconclusive"


def test_a_joined_sentence_has_the_statements_of_its_facts(world):
    facts = world.facts_of(world.people[0])
    for one, other in product(facts, facts):
        for wording in (0, 2):
            expected = [w.statement(one, wording), w.statement(other)]
            assert world.statements(w.join_statements(one, other, wording)) == expected
    whose = "Nobody knows and was born in 1920."
    for sentence in ("Nobody knows.", "", "and", " and and and .", whose):
        assert world.statements(sentence) == []


@pytest.mark.parametrize(
    "vague", ["{} was born in some year and sang", "The birthplace of {} is some city"]
)
def test_a_joined_statement_counts_behind_words_that_state_nothing(world, vague):
    name = world.people[0]
    expected = [f"Perhaps {w.statement(fact)}" for fact in world.facts_of(name)[2:4]]
    one, other = (text.partition(f"{name} ")[2] for text in expected)
    joined = " and ".join([f"Perhaps {vague.format(name)}", one.rstrip("."), other])
    assert world.statements(joined) == expected


def test_gold_evidence_alone_decides_a_claim(world):
    text = {d.id: d.text for d in world.documents()}
    for claim in make_claims(world, 300, seed=0):
        claimed, _ = world.parse(claim.question)
        reached = claimed.subject
        for doc_id in claim.evidence:  # follow the hops in the documents' own text
            stated, _ = world.parse(text[doc_id])
            assert stated.subject == reached
            reached = stated.object
        if claim.label == "NOT ENOUGH INFO":
            assert not claim.evidence
            assert world.verify(claim.question) == "inconclusive"
        else:
            assert len(claim.evidence) == claim.meta["hops"]
            assert (reached == claimed.object) == (claim.label == "SUPPORT")


def test_reasoning_is_good_if_it_states_the_fact_asked_for_and_nothing_false(world):
    fact = next(f for f in world.facts if f.relation == "birthplace")
    true, biography = w.statement(fact), w.biography(world, fact.subject)
    other = next(
        f
        for f in world.facts
        if f.relation == fact.relation and f.subject != fact.subject
    )
    for reasoning, quality in (
        *((w.statement(fact, i), 1) for i in range(3)),
        (biography, 1),
        *((empty, 0) for empty in ("", ".", "I don't know.", "Let me see.")),
        (w.statement(other), 0),
        (false(fact), 0),
        (f"{true} {false(other)}", 0),
        (f"{false(other)} {true}", 0),
    ):
        found = world.reasoning_quality(w.document_id(fact), reasoning)
        assert found == quality, reasoning


def test_packed_texts_do_not_see_each_other(texts, tokenizer):
    import torch

    torch.manual_seed(0)
    model = build_policy(tokenizer, hidden_size=32, layers=2).eval()
    row = pack(texts[:4], tokenizer)[0]
    inputs = {k: torch.tensor([row[k]]) for k in ("input_ids", "position_ids")}
    alone = torch.tensor([tokenizer(texts[1])["input_ids"]])
    start = len(tokenizer(texts[0])["input_ids"]) + 1
    with torch.no_grad():
        packed = model(**inputs, use_cache=False).logits
        expected = model(input_ids=alone).logits
    second = packed[:, start : start + alone.shape[1]]
    torch.testing.assert_close(second, expected, atol=1e-5, rtol=1e-5)


def test_of_a_passage_to_read_only_the_answers_are_learned(world, tokenizer):
    fact = world.facts[0]
    exchange = wt.exchange(w.question(fact), fact.object)
    for text, learned in (
        (f"References:\n{w.statement(fact)}\n{exchange}", fact.object),
        (exchange, exchange.removeprefix("Question")),
    ):
        (row,) = pack([text], tokenizer)
        words = [i for i in row["labels"] if i not in (-100, tokenizer.eos_token_id)]
        assert tokenizer.decode(words).strip() == learned.strip()
        assert tokenizer.eos_token_id in row["labels"]
