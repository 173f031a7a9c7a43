"""Pairs for the embedded verifier: labels that hold by construction, no giveaways."""

import random
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factkit.corpus import Document
from factkit.curate import nli_pairs as made
from factkit.curate.like_words import KINDS, LikeWords
from factkit.curate.nli_pairs import CONTRADICTED, INCONCLUSIVE, SUPPORTED, nli_pairs
from factkit.curate.rewriting import (
    WORD,
    negate,
    other_number,
    resolved,
    sentences,
    shorten,
    with_articles,
)


def document(title, description, text):
    meta = {"description": description, "topic": "People"}
    return Document(title, title, text, "made up", meta)


BOND = document(
    "Ada Bond",
    "French chemist (1868–1934)",
    "Ada Bond was a French chemist who discovered two elements in Paris. "
    "In 1903, she won the Nobel Prize and became the first woman to receive it. "
    "Her laboratory in Paris had 120 workers, painters and poets.",
)
WREN = document(
    "Tom Wren",
    "German painter (1901–1990)",
    "Tom Wren was a German painter known for large landscapes of northern forests.",
)
LIKE = LikeWords(
    tables={word: [o for o in row if o != word] for row in KINDS for word in row},
    titles={"Paris": ["London", "Rome"]},
    words={"chemist": ["physicist"], "elements": ["planets"]},
    synonyms={"laboratory": ["workshop"], "two": ["three"]},
    kin={"Ada Bond": [WREN], "Tom Wren": [BOND]},
    counts={"discover": 9, "study": 9, "paint": 9},
)
NO_WORDS = LikeWords({}, {}, {}, {}, {}, {})


def groups(seeds=range(40), documents=(BOND, WREN)):
    return [g for seed in seeds for g in nli_pairs(documents, LIKE, seed)]


def test_a_claim_of_an_exchange_is_supported_by_one_text_and_contradicted_by_another():
    for group in groups():
        labels = defaultdict(set)
        for pair in group:
            labels[pair.claim].add(pair.label)
        if len(group) == 4:
            assert all(of == {SUPPORTED, CONTRADICTED} for of in labels.values())


def test_a_text_of_an_exchange_supports_as_often_as_it_contradicts():
    for group in groups():
        if len(group) > 1:
            assert [p.label for p in group].count(SUPPORTED) * 2 == len(group)


def test_every_kind_of_pair_is_made():
    kinds = {pair.kind for group in groups() for pair in group}
    assert kinds == {
        "exchange",
        "negation",
        "kin",
        "date",
        "nationality",
        "detail",
        "same subject",
        "other subject",
    }


def test_a_documents_pairs_do_not_depend_on_the_other_documents():
    alone = list(nli_pairs([BOND], LIKE, 3))
    assert [g for g in nli_pairs([WREN, BOND], LIKE, 3) if g[0].entity == BOND.id] == (
        alone
    )


def test_another_seed_gives_other_pairs():
    assert list(nli_pairs([BOND], LIKE, 0)) != list(nli_pairs([BOND], LIKE, 1))


def test_a_document_without_sentences_gives_no_pair():
    assert list(nli_pairs([document("X", "", "Too short.")], LIKE, 0)) == []


@pytest.mark.parametrize("seed", range(30))
def test_an_exchange_puts_what_neither_says_into_both(seed):
    evidence = "She was born in Paris in 1903."
    claim = "Ada Bond was born in Paris in 1903."
    changed = made.exchange(claim, evidence, "Ada Bond", LIKE, random.Random(seed))
    new, new_in_claim = (
        set(new.split()) - set(old.split())
        for new, old in zip(changed, (evidence, claim), strict=True)
    )
    assert new == new_in_claim != set()


def test_an_exchange_leaves_the_subjects_name():
    found = made.exchange(
        "Paris is big.", "Paris is big.", "Paris", LIKE, random.Random()
    )
    assert found is None


def test_nothing_is_exchanged_where_nothing_is_alike():
    found = made.exchange("It is so.", "It is so.", "X", NO_WORDS, random.Random(0))
    assert found is None


@pytest.mark.parametrize(
    ("text", "ways"),
    [
        ("Ada is tall.", {"Ada is not tall.", "Ada is never tall.", "Ada isn't tall."}),
        ("Ada can swim.", {"Ada can not swim.", "Ada can never swim."}),
        ("Ada sighed.", {"Ada never sighed."}),  # its base form is unknown
        (
            "It is near a painted wall.",
            {
                "It is not near a painted wall.",
                "It is never near a painted wall.",
                "It isn't near a painted wall.",
            },
        ),
        ("On a painted wall.", {""}),
        ("Ada.", {""}),
    ],
)
def test_the_first_verb_is_negated(text, ways):
    assert {negate(text, LIKE, random.Random(s)) for s in range(60)} == ways


def test_a_past_verb_is_negated_in_its_base_form():
    ways = {negate("Ada studied law.", LIKE, random.Random(s)) for s in range(60)}
    assert {"Ada did not study law.", "Ada never studied law."} <= ways


@given(st.integers(0, 10_000_000), st.booleans(), st.integers())
def test_another_number_is_another_and_written_alike(number, commas, seed):
    written = f"{number:,}" if commas else str(number)
    other = other_number(written, random.Random(seed))
    assert ("," in other) <= commas
    assert int(other.replace(",", "")) != number


@pytest.mark.parametrize(
    ("sentence", "claim"),
    [
        ("She won it.", "Ada Bond won it."),
        ("Her lab is old.", "Ada Bond's lab is old."),
        ("The chemist won it.", "Ada Bond won it."),
        ("Ada Bond won it.", "Ada Bond won it."),
        ("Tom won it.", ""),
    ],
)
def test_a_pronoun_gives_way_to_the_name(sentence, claim):
    assert resolved(sentence, "Ada Bond", "chemist") == claim


def test_initials_and_titles_do_not_end_a_sentence():
    text = "J. S. Bach met Dr. No. He left.\nThen it rained."
    assert sentences(text) == [
        "J. S. Bach met Dr. No. He left.",
        "Then it rained.",
    ]


@given(st.integers())
def test_a_shortened_sentence_has_no_bracket_and_no_new_word(seed):
    text = "In 1903, Ada (a chemist) was a poor, clever and bold woman, who left Rome."
    short = shorten(text, random.Random(seed))
    assert set(WORD.findall(short.lower())) <= set(WORD.findall(text.lower()))
    assert "(" not in short


@pytest.mark.parametrize(
    ("given_", "wanted"),
    [
        ("a old and an new uniform", "an old and a new uniform"),
        ("a umbrella, an university", "an umbrella, a university"),
    ],
)
def test_articles_fit_the_next_word(given_, wanted):
    assert with_articles(given_) == wanted


def test_what_only_adds_a_detail_is_inconclusive():
    found = [p for g in groups() for p in g if p.kind == "detail"]
    assert found and all(p.label == INCONCLUSIVE for p in found)
    assert all(len(p.evidence.split()) < len(p.claim.split()) for p in found)
