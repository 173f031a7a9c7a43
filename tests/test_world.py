"""The fact world: deterministic, unambiguous, and exactly checkable."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factkit.train.start import build_policy, pack
from factkit.world import facts as w
from factkit.world import texts as wt


@pytest.fixture(scope="module")
def world():
    return w.build_world(0)


@pytest.fixture(scope="module")
def texts(world):
    return wt.pretraining_texts(world, 0)


@pytest.fixture(scope="module")
def tokenizer(world):
    return wt.build_tokenizer(world)


def stated_facts(world, text):
    """The facts that a pre-training text states, as (subject, relation, object)."""
    if not text.startswith("Question: "):
        asked, sentences = "", [text]
    else:
        asked, answer = text.removeprefix("Question: ").split("\nAnswer: ")
        sentences = [f"{part.rstrip('.')}." for part in answer.split(". ")]
    parsed = [w.parse(world, sentence) for sentence in sentences]
    if all(parsed):
        return [(f.subject, f.relation, f.object) for f, _ in parsed]
    return [
        (f.subject, f.relation, answer)
        for f in world.facts
        if f.subject in asked and asked in {w.question(f, i) for i in range(3)}
    ]


def test_the_same_seed_gives_the_same_world_and_text(world, texts):
    again = w.build_world(0)
    assert again == world
    assert wt.pretraining_texts(again, 0) == texts
    assert w.build_world(1).facts != world.facts


def test_each_person_has_four_facts_told_never_to_hundreds_of_times(world):
    counts = Counter(f.subject for f in world.facts)
    assert {counts[person] for person in world.people} == {4}
    exposures = [f.exposure for f in world.facts if f.subject in set(world.people)]
    assert min(exposures) == 0 and max(exposures) > 200


def test_no_question_has_two_answers(world):
    asked = Counter(w.question(f, i).casefold() for f in world.facts for i in range(3))
    assert max(asked.values()) == 1


def test_exposure_is_how_often_the_text_states_a_fact(world, texts):
    # few people, so that looking up a question in all facts stays quick
    small = w.build_world(3, people=30, common_exposure=2)
    text = wt.pretraining_texts(small, 0)
    stated = Counter(key for t in text for key in stated_facts(small, t))
    expected = {(f.subject, f.relation, f.object): f.exposure for f in small.facts}
    assert stated == Counter({k: n for k, n in expected.items() if n})


def test_no_pretraining_text_abstains_or_hedges(texts):
    words = {word.strip(".,?").lower() for text in texts for word in text.split()}
    assert not words & {"don't", "know", *w.HEDGES}


def test_all_text_decodes_to_itself_without_unknown_words(world, texts, tokenizer):
    assert len(tokenizer) < 1_000
    evidence = " ".join(f"[[{d.id}]]" for d in w.documents(world)[:50])
    tagged = [f"<{tag}> Label: {lab} </{tag}>" for tag in wt.TAGS for lab in w.LABELS]
    boxed = [
        f"<think> {e.meta['reasoning']} </think> \\boxed{{{e.answers[0]}}}"
        for e in w.questions(world)[:200]
    ]
    rest = [w.ABSTENTION, f"Evidence: {evidence}", r"\boxed{}", *tagged, *boxed]
    for text in [*dict.fromkeys(texts), *rest]:
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids) == text


def test_a_tag_and_the_opening_of_a_box_are_one_token_each(tokenizer):
    for tag in wt.TAGS:
        assert len(tokenizer(f"<{tag}></{tag}>")["input_ids"]) == 2
    assert tokenizer.tokenize(r"\boxed{Arburg}") == [r"\boxed{", "Arburg", "}"]


def test_prompt_and_answer_have_the_tokens_of_the_whole(world, tokenizer):
    example = w.questions(world)[0]
    prompt, answer = f"Question: {example.question}\nAnswer:", example.answers[0]
    for gap in (" ", "", "\n", "  "):
        joined = tokenizer(f"{prompt}{gap}{answer}")["input_ids"]
        rest = tokenizer(f"{gap}{answer}")["input_ids"]
        assert joined == tokenizer(prompt)["input_ids"] + rest
    text = wt.exchange(example.question, answer)
    assert text == f"{prompt} {answer}"


def test_every_statement_parses_back_and_is_supported(world):
    for fact in world.by_key.values():
        for i in range(len(w.STATEMENTS[fact.relation])):
            parsed, hedged = w.parse(world, w.statement(fact, i))
            assert (parsed.subject, parsed.relation, parsed.object) == (
                (fact.subject, fact.relation, fact.object)
            )
            assert not hedged
            assert w.verify(world, w.statement(fact, i)) == "supported"


def false(fact):
    other = next(o for o in w.OBJECTS[fact.relation] if o != fact.object)
    return w.statement(w.Fact(fact.subject, fact.relation, other))


def test_a_swapped_object_is_contradicted_and_what_cannot_be_parsed_is_open(world):
    for fact in world.by_key.values():
        assert w.verify(world, false(fact)) == "contradicted"
    for sentence in ("", "Nobody knows.", "X Y was born in 1901."):
        assert w.verify(world, sentence) == "inconclusive"


def test_a_hedge_is_seen_and_keeps_the_verdict(world):
    fact = next(f for f in world.facts if f.relation == "profession")
    sentence = f"{fact.subject} was probably a {fact.object}."
    assert w.parse(world, sentence)[1] and w.verify(world, sentence) == "supported"


def test_claims_are_different_and_balanced(world):
    claims = w.claims(world, 300, seed=0)
    assert len({c.question for c in claims}) == len({c.id for c in claims}) == 300
    assert set(Counter((c.label, c.meta["hops"]) for c in claims).values()) == {50}
    with pytest.raises(ValueError, match="too few claims"):
        w.claims(w.build_world(0, people=5), 10_000, seed=0)


def test_gold_evidence_alone_decides_a_claim(world):
    text = {d.id: d.text for d in w.documents(world)}
    for claim in w.claims(world, 300, seed=0):
        said, _ = w.parse(world, claim.question)
        reached = said.subject
        for doc_id in claim.evidence:  # follow the hops in the documents' own text
            stated, _ = w.parse(world, text[doc_id])
            assert stated.subject == reached
            reached = stated.object
        if claim.label == "NOT ENOUGH INFO":
            assert not claim.evidence
            assert w.verify(world, claim.question) == "inconclusive"
        else:
            assert len(claim.evidence) == claim.meta["hops"]
            assert (reached == said.object) == (claim.label == "SUPPORT")


# Reasoning


def test_reasoning_is_good_if_it_states_the_fact_asked_for_and_nothing_false(world):
    for example in w.questions(world):
        assert w.reasoning_quality(world, example.id, example.meta["reasoning"]) == 1
    fact = next(f for f in world.facts if f.relation == "birthplace")
    true, biography = w.statement(fact), w.biography(world, fact.subject)
    other = next(
        f
        for f in world.facts
        if f.relation == fact.relation and f.subject != fact.subject
    )
    for reasoning in (w.statement(fact, 1), w.statement(fact, 2), biography):
        assert w.reasoning_quality(world, w.document_id(fact), reasoning) == 1
    for reasoning in (
        *("", " ", ".", "I don't know.", "Let me see."),
        w.statement(other),
        *(w.statement(f) for f in world.facts_of(fact.subject) if f != fact),
        false(fact),
        f"{true} {false(other)}",
        f"{false(other)} {true}",
    ):
        assert w.reasoning_quality(world, w.document_id(fact), reasoning) == 0


# Passages to read


def passage(seed):
    """References, and (question, answer) pairs, of a reading exchange."""
    references, *turns = wt.reading_exchange(random.Random(seed)).split("\nQuestion: ")
    return references.splitlines(), [tuple(t.split("\nAnswer: ")) for t in turns]


@given(st.integers(0, 10_000))
def test_a_passage_answers_its_questions_about_people_of_its_own(seed):
    (head, *sentences), turns = passage(seed)
    assert (head, len(sentences), len(dict(turns))) == ("References:", 3, 3)
    words = [set(s.strip(".").split()) for s in sentences]
    lasts = {name.split()[1] for name in w.build_world(0).people}
    assert not lasts & set().union(*words)
    for question, answer in turns:
        name = next(n for n in wt.READING_NAMES if n in question)
        assert [s for s in words if {name, answer} <= s]


@pytest.fixture(scope="module")
def small():
    return w.build_world(3, people=30, common_exposure=2)


def test_passages_come_on_top_of_the_other_texts_and_state_no_fact(small):
    plain = wt.pretraining_texts(small, 0)
    for share in (0.0, 0.5, 1.5):
        mixed = wt.pretraining_texts(small, 0, share)
        passages = [t for t in mixed if t.startswith("References:")]
        assert len(passages) == round(share * len(plain))
        assert Counter(mixed) - Counter(passages) == Counter(plain)
        sentences = [line for text in passages for line in text.split("\n")]
        assert not any(w.parse(small, sentence) for sentence in sentences)


def test_with_reasoning_short_answers_are_boxed_after_their_fact(small):
    plain, texts = (wt.pretraining_texts(small, 0, 0.0, f) for f in ("plain", "boxed"))
    boxed = [t for t in texts if r"\boxed{" in t]
    assert len(texts) == len(plain) and boxed
    for text in boxed:
        thought = text.split("<think> ")[1].split(" </think>")[0]
        fact, _ = w.parse(small, thought)
        assert w.verify(small, thought) == "supported"
        assert text.endswith(rf" </think> \boxed{{{fact.object}}}")
        assert fact.subject in text.split("\n")[0]


# Pre-training


def test_packed_texts_do_not_see_each_other(world, texts, tokenizer):
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
    text = wt.reading_exchange(random.Random(0))
    plain = "Question: Who employed Al Asher?\nAnswer: Acticorp"
    for whole, learned in (
        (text, [a.partition("\n")[0] for a in text.split("Answer: ")[1:]]),
        (plain, [plain.removeprefix("Question")]),
    ):
        row = pack([whole], tokenizer)[0]
        words = [i for i in row["labels"] if i not in (-100, tokenizer.eos_token_id)]
        lines = [line.strip() for line in tokenizer.decode(words).split("\n")]
        expected = tokenizer.decode(tokenizer("\n".join(learned))["input_ids"])
        assert lines == [line.strip() for line in expected.split("\n")]
        assert tokenizer.eos_token_id in row["labels"]
