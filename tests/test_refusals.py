"""Whether a response refuses: by its words, by what it states, and against people."""

import json

import pytest

from factkit import params
from factkit.corpus import load_leads
from factkit.rlfh.refusals import refuses, responds_by_words
from factkit.world import facts as world

FACTSCORE = params.ROOT.parent / "shared" / "data" / "factscore"
ANNOTATED = sorted(FACTSCORE.glob("*.jsonl"))  # a file a model


REFUSALS = [
    "I don't know.",
    "I don’t know who she was.",
    "I do not really know.",
    "i dont know",
    "I'm sorry, but that is beyond me.",
    "I am very sorry, it escapes me.",
    "I apologise for that.",
    "My apologies!",
    "I cannot provide a biography.",
    "I can't say when he died.",
    "I couldn't find anyone of that name.",
    "I'm unable to answer.",
    "I am not able to verify this.",
    "I currently have no idea: I have no idea.",
    "I'm not sure, but it may be Oslo.",
    "I am not familiar with her.",
    "As an AI, my memory ends in 2021.",
    "There is no reliable information about him.",
    "Could you give me her profession?",
    "Please provide more context.",
    "",
    " \n",
    world.ABSTENTION,
]
ANSWERS = [
    "Bo was born in Oslo. His date of birth is unknown.",
    "It is uncertain whether he died in 1611.",
    'She is known for "Sorry Seems to Be the Hardest Word".',
    "The treaty could not be signed and he was unable to find support.",
    "An AI company was founded there.",
    "No.",
    "42",
]


def test_a_response_refuses_by_its_words_or_by_stating_nothing():
    assert [text for text in REFUSALS if not refuses(text)] == []
    assert [text for text in ANSWERS if refuses(text)] == []
    assert responds_by_words("Bo sang.", ["Bo sang."])
    assert not responds_by_words("I'm not sure; Bo sang.", ["Bo sang."])
    assert not responds_by_words("Lovely!", [])  # states nothing


@pytest.mark.assets
def test_no_lead_of_wikipedia_refuses():
    assert [lead.title for lead in load_leads() if refuses(lead.text)] == []


@pytest.mark.skipif(not ANNOTATED, reason="no ../shared/data/factscore")
@pytest.mark.parametrize("path", ANNOTATED, ids=lambda path: path.stem)
def test_words_agree_with_the_people_who_annotated_factscores_responses(path):
    """In 95 of 100 responses; what they left without annotations refuses."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    agree = [refuses(row["output"]) == (row["annotations"] is None) for row in rows]
    assert sum(agree) / len(agree) > 0.95
    wrongly = [r for r in rows if r["annotations"] is not None and refuses(r["output"])]
    assert len(wrongly) / len(rows) < 0.02
