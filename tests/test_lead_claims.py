"""Claims from leads: labels that hold by construction, splits and a corpus to match."""

import random
import re
from collections import Counter
from functools import cache

import pytest

from factkit.corpus import Document, load_leads
from factkit.datasets import lead_claims as made
from factkit.datasets.examples import DataError, refuse_overlap
from factkit.datasets.lead_claims import lead_claims, lead_entries
from factkit.datasets.lead_sentences import claim_of, read_lead, told, what_it_is
from factkit.entries import entry_of, page_of, shown
from factkit.world import LABELS

SIZES = {"train": 27, "test": 9}


def document(title, text, said="", topic="Geography"):
    return Document(
        title, title, text, "made up", {"description": said, "topic": topic}
    )


ELBA = document(
    "Elba",
    "Elba, also known as Ilva, is the third-largest island of Italy, where wine grows.",
    "Island in Italy",
)
BOND = document(
    "Ada Bond",
    "Ada Maria Bond was a French chemist of great skill who spent her life in Lyon. "
    "In 1903, she won the Curie Medal (the first) and became rich. "
    "Her laboratory there employed 120 workers; most of them came from far away. "
    "Tom Wren painted her portrait. "
    "Bond was also buried on Elba in 1934.",
    "French chemist (1868–1934)",
    "People",
)


def claims_of(this):
    lead = read_lead(this)
    found = [claim_of(lead, *sentence) for sentence in told(lead) if sentence[1]]
    return [claim if isinstance(claim, str) else claim.text for claim in found]


def drafts(*documents):
    """Drafts from the first document for some seeds; the rest may be linked."""
    leads = made._Leads(documents)
    lead = leads.by_title[documents[0].title]
    found = [d for i in range(30) for d in made._drafts(lead, leads, random.Random(i))]
    return [draft for draft in found if not isinstance(draft, str)]


def lake(text):
    return document("Lake Oro", text, "Lake in Italy")


# ---- sentences that stand alone


def test_pronouns_surnames_and_full_names_give_way_to_the_title():
    assert claims_of(BOND) == [
        "Ada Bond was a French chemist of great skill who spent her life in Lyon",
        "In 1903, Ada Bond won the Curie Medal and became rich",
        "Ada Bond's laboratory there employed 120 workers",
        "Ada Bond was buried on Elba in 1934",
    ]


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        (
            "Elba, also called Ilva, is an island of the sea.",
            "Elba is an island of the sea",
        ),
        (
            "Elba is the third-largest island of all of Italy, making it a large one.",
            "Elba is the third-largest island of all of Italy",
        ),
        (
            "Elba (island) is also known as Ilva in Latin (a language).",
            "Elba is also known as Ilva in Latin",
        ),
        ("Elba is an island (in Italy).", "too short or too long"),
        ("Elba is an island that these people like.", "unclear on its own"),
        ("Elba is not the largest island of Italy.", "unclear on its own"),
        ("Elba and an island of old Italy.", "no verb after the subject"),
    ],
)
def test_what_a_claim_does_without_is_cut_and_what_is_unclear_is_dropped(text, claim):
    assert claims_of(document("Elba", text, "Island")) == [claim]


@pytest.mark.parametrize(
    "later",
    [
        "It is thought that the island is old.",
        "The wine of Crete is better than many.",
        "He left for France in the end.",
        "Crete is a far larger island. It is old and dry.",
    ],
)
def test_a_later_sentence_that_may_be_on_another_subject_gives_no_claim(later):
    text = f"Elba is the third-largest island of Italy. {later}"
    assert len(claims_of(document("Elba", text, "Island in Italy"))) == 1


def test_a_title_that_says_what_it_is_of_is_put_into_words():
    text = "Dune is a 1965 novel by Frank Herbert."
    novel = document("Dune (novel)", text, "1965 novel by Frank Herbert", "Arts")
    assert claims_of(novel) == ["The novel Dune is a 1965 novel by Frank Herbert"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (ELBA.text, "the third-largest island of Italy"),
        ("Elba is an island that belongs to Italy.", "an island that belongs to Italy"),
        ("Elba is the only island known to have wine.", ""),
        ("Elba is a name for several islands.", ""),
        ("Elba lies in the sea.", ""),
    ],
)
def test_what_a_lead_is_about_is_cut_where_it_is_complete(text, what):
    assert what_it_is(read_lead(document("Elba", text, "Island"))) == what


# ---- drafts


@pytest.mark.parametrize(
    ("text", "kind", "old", "new"),
    [
        (
            "Lake Oro was made by a landslide in 1903.",
            "year",
            "1903",
            r"(1[89]|20)\d\d",
        ),
        ("Lake Oro became famous in the 1930s.", "year", "1930s", r"1[89]\d0s"),
        ("Lake Oro was dammed on 3 May 1903.", "date", "3|May|1903", r"\w+"),
        ("Lake Oro has 120 small boats in summer.", "number", "120", r"\d+"),
        ("Lake Oro has three small boats in summer.", "number", "three", r"[a-z]+"),
        ("Lake Oro was known in the 9th century.", "rank", "9th", r"\d+(st|nd|rd|th)"),
        ("Lake Oro was the first lake with boats.", "rank", "first", r"[a-z]+"),
        ("Lake Oro is a French lake of great depth.", "nationality", "French", r"\w+"),
        ("Lake Oro is the largest lake of all.", "opposite", "largest", "smallest"),
        ("Lake Oro is a lake in Southern Elba.", "place", "Southern", "Northern"),
    ],
)
def test_the_false_claim_has_the_focus_exchanged_and_nothing_else(text, kind, old, new):
    found = drafts(lake(text))
    assert {draft.kind for draft in found} <= {kind, "year"}
    for draft in found:
        pairs = zip(
            text.rstrip(".").split(), draft.false.rstrip(".").split(), strict=True
        )
        changed = [pair for pair in pairs if pair[0] != pair[1]]
        changed = [pair for pair in changed if pair not in (("a", "an"), ("an", "a"))]
        assert draft.true == text and len(changed) == 1
        assert re.fullmatch(old, changed[0][0]) and re.fullmatch(new, changed[0][1])
    assert kind in {draft.kind for draft in found}


@pytest.mark.parametrize(
    "text",
    [
        "Lake Oro has had boats on board since 1903.",
        "Lake Oro has more than 120 boats in summer.",
        "Lake Oro has at least three boats in summer.",
        "Lake Oro has boats of American and Irish make.",
        "Lake Oro was liked by several people in Elba.",
    ],
)
def test_nothing_is_exchanged_where_the_claim_would_be_as_true(text):
    assert drafts(lake(text)) == []


def test_what_the_lead_says_elsewhere_is_neither_asked_nor_put_in():
    first = "Lake Oro was the first lake with boats."
    assert not drafts(lake(f"{first} Boats on lakes were first seen here."))
    others = " ".join(
        f"Nobody was {n}." for n in ("second", "third", "fourth", "fifth")
    )
    told = {draft.false for draft in drafts(lake(f"{first} {others}"))}
    assert told == {
        f"Lake Oro was the {n} lake with boats." for n in ("last", "sixth", "seventh")
    }


def test_what_another_lead_says_of_the_subject_is_not_asked():
    text = "Lake Oro is the largest lake of all."
    tells = document("Villa", "Villa lies on Lake Oro, the largest of lakes.", "Town")
    assert drafts(lake(text)) and not drafts(lake(text), tells)


def test_a_linked_name_gives_way_to_what_its_lead_is_about():
    found = [draft for draft in drafts(BOND, ELBA) if len(draft.gold) == 2]
    assert {draft.true for draft in found} == {
        "Ada Bond was buried on the third-largest island of Italy in 1934."
    }
    assert {draft.gold for draft in found} == {(("Ada Bond", 4), ("Elba", 0))}
    assert any("1934" not in draft.false for draft in found)


@pytest.mark.parametrize(
    "said",
    [
        "Elba is an island of wine, where Ada Bond lies.",  # tells of the link, too
        "Elba is the island of Elba and the sea.",  # gives its name away
        "Elba lies in the sea.",  # not said to be anything
    ],
)
def test_no_link_is_made_that_does_not_need_both_sentences(said):
    found = drafts(BOND, document("Elba", said, "Island"))
    assert {len(draft.gold) for draft in found} == {1}


# ---- splits


@cache
def some_leads():
    """A few hundred leads that name each other: works, heads of state, places."""
    wanted = (
        r"(?:Country|Capital|City|President|Prime|Ocean|Continent|\d{4} (?:film|novel))"
    )
    said = [d for d in load_leads() if re.match(wanted, d.meta["description"])]
    return said[:800]


@cache
def some_claims(seed=0):
    return lead_claims(some_leads(), SIZES, seed)


@pytest.mark.assets
def test_each_split_has_all_labels_alike_and_two_hops_in_each_third_claim():
    splits, _, _ = some_claims()
    assert {name: len(claims) for name, claims in splits.items()} == SIZES
    for claims in splits.values():
        counts = Counter((claim.label, claim.meta["hops"]) for claim in claims)
        assert counts == {
            (label, hops): len(claims) // 9 * (3 - hops)
            for label in LABELS
            for hops in (1, 2)
        }
        assert [claim.label for claim in claims[:3]] == list(LABELS)
        assert all(claim.answers == [claim.label] for claim in claims)


@pytest.mark.assets
def test_no_lead_linked_ones_included_is_in_two_splits():
    splits, _, _ = some_claims()
    refuse_overlap(splits)
    pages = {
        name: {page_of(i) for claim in claims for i in _ids(claim)}
        for name, claims in splits.items()
    }
    assert not pages["train"] & pages["test"]


def _ids(claim):
    """The ids of a claim's sentences, whether in the corpus or not."""
    return claim.id.split(": ", 1)[1].split(" + ")


@pytest.mark.assets
def test_evidence_is_in_the_entries_and_what_is_taken_out_is_not():
    splits, removed, _ = some_claims()
    before = {s.id: s.text for e in lead_entries(some_leads(), ()) for s in shown(e)}
    after = {
        s.id: s.text for e in lead_entries(some_leads(), removed) for s in shown(e)
    }
    assert {i: text for i, text in before.items() if i not in removed} == after
    for claim in (claim for claims in splits.values() for claim in claims):
        first, *rest = _ids(claim)
        assert len(rest) == claim.meta["hops"] - 1
        assert set(rest) <= set(after)
        if claim.label == "NOT ENOUGH INFO":
            assert claim.evidence == [] and first in removed
        else:
            assert claim.evidence == [first, *rest] and first in after
    assert len(removed) == sum(SIZES.values()) // 3


@pytest.mark.assets
def test_a_supported_claim_is_made_of_its_evidence():
    splits, removed, _ = some_claims()
    text = {s.id: s.text for e in lead_entries(some_leads(), removed) for s in shown(e)}
    for claim in splits["train"]:
        if claim.label == "SUPPORT":
            said = " ".join([claim.entity, *(text[i] for i in claim.evidence)]).lower()
            words = set(re.findall(r"\w+", claim.question.lower()))
            assert words - set(re.findall(r"\w+", said)) <= set("the of an a".split())


@pytest.mark.assets
def test_claims_depend_on_the_seed_and_not_on_the_order_of_the_leads():
    again = lead_claims(some_leads()[::-1], SIZES, 0)
    assert again[:2] == some_claims()[:2]
    assert some_claims(1)[0] != some_claims()[0]


@pytest.mark.assets
def test_more_claims_than_the_leads_give_are_refused():
    with pytest.raises(DataError, match="train=5000: the leads give"):
        lead_claims(some_leads(), {"train": 5000}, 0)


def test_an_emptied_sentence_leaves_the_numbers_of_the_others():
    entries = lead_entries([BOND], {"Ada Bond_sentence_1"})
    assert [s.id for e in entries for s in shown(e)] == [
        f"Ada Bond_sentence_{n}" for n in (0, 2, 3, 4)
    ]
    assert {e.id for e in entries} == {
        entry_of(f"Ada Bond_sentence_{n}") for n in (0, 3)
    }
