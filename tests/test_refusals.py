"""Whether a response refuses: by its words, by what it states, and against people."""

import json

import pytest

from factkit import params
from factkit.corpus import load_leads
from factkit.evaluate.refusals import refuses, response_rates
from factkit.world import facts as world

FACTSCORE = params.ROOT.parent / "shared" / "data" / "factscore"
ANNOTATED = sorted(FACTSCORE.glob("*.jsonl"))  # a file a model


@pytest.mark.parametrize(
    "response",
    [
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
    ],
)
def test_these_words_refuse(response):
    assert refuses(response)


@pytest.mark.parametrize(
    "response",
    [
        "Bo was born in Oslo. His date of birth is unknown.",
        "It is uncertain whether he died in 1611.",
        'She is known for "Sorry Seems to Be the Hardest Word".',
        "The treaty could not be signed and he was unable to find support.",
        "An AI company was founded there.",
        "No.",
        "42",
    ],
)
def test_these_words_do_not(response):
    assert not refuses(response)


@pytest.mark.assets
def test_no_lead_of_wikipedia_refuses():
    assert [lead.title for lead in load_leads() if refuses(lead.text)] == []


def test_the_two_rates_by_hand():
    """A response that states nothing is no answer to FactScore, whatever its words."""
    responses = ["Bo sang.", "I'm not sure; Bo sang.", "I don't know.", "Lovely!"]
    stated = [["Bo sang."], ["Bo sang."], [], []]
    assert response_rates(responses, stated) == {
        "response_rate": 2 / 4,
        "factscore_response_rate": 1 / 4,
    }
    assert response_rates(responses[:2], stated[:2]) == {
        "response_rate": 1.0,
        "factscore_response_rate": 0.5,
    }


def test_who_informs_with_doubts_is_counted_too_seldom_by_words():
    """§4.2: why words underestimate the response rate."""
    doubtful = ["I'm not certain, but Bo sang in Oslo."] * 3
    rates = response_rates(doubtful, [["Bo sang in Oslo."]] * 3)
    assert rates["factscore_response_rate"] < rates["response_rate"]


def test_without_a_response_there_is_no_rate():
    with pytest.raises(ValueError, match="no responses"):
        response_rates([], [])


def test_as_many_annotations_as_responses_are_needed():
    with pytest.raises(ValueError):
        response_rates(["Bo sang.", "Al."], [["Bo sang."]])


@pytest.mark.skipif(not ANNOTATED, reason="no ../shared/data/factscore")
@pytest.mark.parametrize("path", ANNOTATED, ids=lambda path: path.stem)
def test_words_agree_with_the_people_who_annotated_factscores_responses(path):
    """In 95 of 100 responses; what they left without annotations refuses."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    agree = [refuses(row["output"]) == (row["annotations"] is None) for row in rows]
    assert sum(agree) / len(agree) > 0.95
    wrongly = [r for r in rows if r["annotations"] is not None and refuses(r["output"])]
    assert len(wrongly) / len(rows) < 0.02
