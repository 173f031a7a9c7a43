"""Long answers: chunks by words, FactScore's precision by hand, failures, files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factkit.answers import long_form
from factkit.answers.long_form import CheckedResponse
from factkit.data.corpus import Document
from factkit.data.examples import DataError, Example
from factkit.verify.claims import Claim, Support

S, C, I = Support.SUPPORTED, Support.CONTRADICTED, Support.INCONCLUSIVE  # noqa: E741
some_supports = st.lists(st.sampled_from([S, C, I]), max_size=6)


def document(text, name="d"):
    return Document(name, name, text, "test")


def checked(supports, name="p", response="one two three"):
    """A row; supports None: the extraction failed."""
    claims = None if supports is None else [Claim("c", "s")] * len(supports)
    return CheckedResponse(name, "Who?", response, claims, list(supports or []))


# ---- scores


def test_the_same_answered_requests_are_those_with_claims_both_times():
    before = [checked([S, C], "a"), checked([C], "b"), checked([], "c")]
    after = [checked([S, S], "a"), checked([], "b"), checked([C], "c")]
    same = long_form.same_answered(before, after)
    assert same == {
        "same_answered_rate": pytest.approx(1 / 3),
        "same_answered_factual_precision": 1.0,
        "same_answered_hallucination_rate": 0.0,
        "before_same_answered_factual_precision": 0.5,
        "before_same_answered_hallucination_rate": 0.5,
    }
    assert long_form.same_answered(before[1:2], after[1:2]) == {}


def test_scores_by_hand():
    rows = [
        checked([S, S, C, I]),  # 2 of 4
        checked([S], response="<think>a b</think> one"),  # 1 of 1
        checked([]),  # abstains
        checked([C, C]),  # 0 of 2
    ]
    assert long_form.scores(rows) == pytest.approx(
        {
            "factual_precision": (2 / 4 + 1 / 1 + 0 / 2) / 3,
            "hallucination_rate": 1 - (2 / 4 + 1 / 1 + 0 / 2) / 3,
            "precision_at_1": (1 + 1 + 0) / 3,
            # of the three that state a claim, as FactScore counts
            "correct_claims": 3 / 3,
            "incorrect_claims": 4 / 3,
            "contradicted_claims": 3 / 3,
            "total_claims": 7 / 3,
            # of all four
            "correct_claims_per_question": 3 / 4,
            "incorrect_claims_per_question": 4 / 4,
            "contradicted_claims_per_question": 3 / 4,
            "total_claims_per_question": 7 / 4,
            "response_rate": 3 / 4,
            "words": (3 + 1 + 3 + 3) / 4,
        }
    )


@given(st.lists(some_supports, min_size=1, max_size=10))
def test_failed_extractions_and_verifications_change_no_score(supports):
    rows = [checked(s) for s in supports]
    failed = [checked(None), checked([None, None])]
    holed = [checked([*s, None]) if s else checked(s) for s in supports]
    assert long_form.scores(rows + failed) == long_form.scores(rows)
    assert long_form.scores(holed) == long_form.scores(rows)


def test_more_failures_than_one_in_twenty_are_refused():
    few = [checked([S] * 19 + [None])] * 19 + [checked(None)]
    shares = {"extraction_failures": 0.05, "verification_failures": 0.05}
    assert long_form.failures(few) == shares
    with pytest.raises(ValueError, match="extraction_failures: 10.0%"):
        long_form.failures([checked([S])] * 9 + [checked(None)])
    with pytest.raises(ValueError, match="verification_failures: 10.0%"):
        long_form.failures([checked([S] * 9 + [None])])


# ---- evaluate

EXAMPLES = [
    Example(id="p", question="Who was Bo?", answers=[], entity="Bo"),
    Example(id="q", question="Who was Al?", answers=[], entity="Al", meta={"n": 1}),
]
DOCUMENTS = {
    "p": [document("Bo was a baker. Bo lived in Bern.", "Bo")],
    "q": [document("Al was a poet.", "Al")],
}


async def by_sentence(prompt, response):
    """An extractor: each sentence is a claim, "fail" fails."""
    if "fail" in response:
        return None
    sentences = [f"{s.strip()}." for s in response.split(".") if s.strip()]
    return [Claim(sentence, sentence) for sentence in sentences]


async def by_substring(claim, evidence):
    """A verifier: supported if evidence holds the claim, None without evidence."""
    if not evidence:
        return None
    return S if any(claim in e for e in evidence) else C


def check(tmp_path, responses, extract=by_sentence, verify=by_substring):
    return long_form.evaluate(
        EXAMPLES,
        responses,
        (extract, long_form.search_words(DOCUMENTS), verify),
        tmp_path / "checked.jsonl",
    )


def test_each_claim_is_checked_against_its_own_prompts_evidence(tmp_path):
    rows = check(tmp_path, ["Bo was a baker. Bo lived in Rome.", "Bo was a baker."])
    assert [row.supports for row in rows] == [[S, C], [C]]
    assert rows[1].meta == {"n": 1}


def test_only_what_follows_the_reasoning_is_checked(tmp_path):
    said = "<think>Bo was a cook.</think>Bo was a baker."
    row, unfinished = check(tmp_path, [said, "<think>Al was a poet."])
    assert [c.text for c in row.claims] == ["Bo was a baker."]
    assert row.response == said
    assert unfinished.claims == []


def test_failures_of_extractor_and_verifier_stay_none(tmp_path):
    failed, unverified = check(tmp_path, ["fail", "Xyzzy."])
    assert failed.claims is None and failed.supports == []
    assert unverified.supports == [None]
    assert not failed.judged and not unverified.judged


def test_a_finished_file_is_read_and_nothing_is_asked_again(tmp_path):
    responses = ["Bo was a baker. Bo lived in Rome.", ""]
    before = check(tmp_path, responses)

    async def never(*_):
        raise AssertionError("asked again")

    assert check(tmp_path, responses, never, never) == before


def test_what_failed_is_asked_again(tmp_path):
    responses = ["Bo was a baker. Xyzzy.", "fail"]
    check(tmp_path, responses)

    async def mended(claim, evidence):
        return S

    found, failed = check(tmp_path, responses, verify=mended)
    assert found.supports == [S, S] and failed.claims is None
    assert long_form.read_checked(tmp_path / "checked.jsonl") == [found, failed]


def test_a_file_of_other_responses_is_refused(tmp_path):
    check(tmp_path, ["Bo was a baker.", ""])
    with pytest.raises(DataError, match="other prompts or responses"):
        check(tmp_path, ["Bo was a cook.", ""])


# ---- samples


def test_samples_come_back_with_their_claims_sentences_and_supports(tmp_path):
    said = "Sela won. Sela\u2028lost."
    claims = [Claim("Sela won", "Sela won."), Claim("She lost", "Sela\u2028lost.")]
    supports = [Support.SUPPORTED, None]
    before = CheckedResponse("a", "Who?", "I don't know.", [], [], {"exposure": 3})
    after = CheckedResponse("a", "Who?", said, claims, supports, {"exposure": 3})
    failed = CheckedResponse("b", "What?", "It is.", None, [])
    path = tmp_path / "samples.jsonl"
    long_form.write_samples(path, [before, failed], [after, failed])
    (b, a), (none, _) = long_form.read_samples(path)
    assert (b.response, b.claims) == ("I don't know.", [])
    assert (a.id, a.prompt, a.response, a.supports) == ("a", "Who?", said, supports)
    assert [c.sentence for c in a.claims] == [c.sentence for c in claims]
    assert (none.claims, none.supports) == ([], [])  # the claims failed
    assert '"exposure": 3' in path.read_text(encoding="utf-8")
