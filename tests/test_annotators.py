"""Annotators: whole feedback or None, each call once, repeats and order kept."""

import json
from collections import Counter

import pytest
from fake_endpoint import answer, prompt_of, refuse, serve
from hypothesis import given, settings
from hypothesis import strategies as st

from factkit import prompts
from factkit.backends import Endpoint
from factkit.llm import LLM, Limits, Reply
from factkit.verify.annotators import (
    embedded_annotator,
    llm_annotator,
    llm_rater,
    llm_verifier,
    single_pass_annotator,
)
from factkit.verify.claims import Support
from factkit.verify.clauses import sentences
from factkit.verify.feedback import Sentence, Statement, Truth
from factkit.verify.feedback_replies import SCALE, TRUTHS, parse_feedback
from factkit.verify.replies import parse_label, parse_ratings, parse_texts
from factkit.verify.statements import llm_statements, rule_statements

CORRECT, HEDGED_CORRECT, VAGUE, HEDGED_WRONG, WRONG = Truth


def field(prompt, name):
    """A field of the last, filled part of a prompt."""
    line = prompt.rpartition(f"\n{name}: ")[2].partition("\n")[0]
    return json.loads(line)


def told(**value):
    return Reply(json.dumps(value))


class FakeLLM:
    """Answers by a rule on the prompt for each template; keeps the batches."""

    def __init__(self, **rules):
        self.rules = PIPELINE | rules
        self.batches = []

    def run(self, requests, progress=""):
        self.batches.append(requests)
        return [self.rules[_name(r)](r.messages[0]["content"]) for r in requests]

    @property
    def calls(self):
        return Counter(_name(r) for batch in self.batches for r in batch)

    def prompts(self, template):
        requests = [r for batch in self.batches for r in batch]
        return [r.messages[0]["content"] for r in requests if _name(r) == template]


def _name(request):
    return request.template.partition("@")[0]


def extract(prompt):
    """A statement for each part of a sentence; none of one about "I"."""
    sentence = field(prompt, "Sentence")
    parts = sentence.removesuffix(".").split(" and ")
    return told(statements=[] if "I " in sentence else [f"{p}." for p in parts])


def verify(prompt):
    """The label that the statement ends with, or else correct."""
    last = field(prompt, "Statement").rpartition(" ")[2].removesuffix(".")
    label = last.replace("-", " ")
    return told(label=label if label in TRUTHS else "correct")


def rate(prompt):
    """5, 4, 3, 2, 1, 1, …"""
    n = len(field(prompt, "Statements"))
    return told(ratings=[max(5 - i, 1) for i in range(n)])


PIPELINE = {
    "extract_statements": extract,
    "verify_statement": verify,
    "rate_informativeness": rate,
}


def passages(prompt_id, text):
    return [f"of {prompt_id}", "more"]


def annotated(llm, *responses, evidence_of=passages):
    n = len(responses)
    ids, questions = [str(i) for i in range(n)], [f"Q{i}?" for i in range(n)]
    return llm_annotator(llm, evidence_of)(ids, questions, responses)


def statement(text, truth=CORRECT, informativeness=5):
    return Statement(text, truth, informativeness)


# The pipeline


def test_feedback_has_sentences_statements_and_labels_in_the_order_of_the_response():
    (found,) = annotated(FakeLLM(), "A is and B is wrong. I think so. C is vague.")
    assert found == [
        Sentence(
            "A is and B is wrong.",
            (statement("A is."), statement("B is wrong.", WRONG, 4)),
        ),
        Sentence("C is vague.", (statement("C is vague.", VAGUE, 3),)),
    ]


def test_each_part_is_one_batch_of_as_many_calls_as_it_needs():
    llm = FakeLLM()
    annotated(llm, "A is and B is. So I am. C is.", "So I am.", "", "D is.")
    assert llm.calls == {
        "extract_statements": 5,  # sentences
        "verify_statement": 4,  # statements
        "rate_informativeness": 2,  # responses with statements
    }
    assert [len(batch) for batch in llm.batches] == [5, 4, 2]


def test_equal_statements_with_equal_passages_are_verified_once():
    llm = FakeLLM()
    annotated(llm, "A is. A is.", "A is.", evidence_of=lambda i, text: ["same"])
    assert llm.calls["verify_statement"] == 1
    llm = FakeLLM()
    annotated(llm, "A is. A is.", "A is.")  # passages of each prompt
    assert llm.calls["verify_statement"] == 2


def test_a_repeated_statement_is_in_the_feedback_as_often_as_in_the_response():
    (found,) = annotated(FakeLLM(), "A is and A is. A is.")
    assert [(s.text, [t.text for t in s.statements]) for s in found] == [
        ("A is and A is.", ["A is.", "A is."]),
        ("A is.", ["A is."]),
    ]
    assert [t.informativeness for s in found for t in s.statements] == [5, 4, 3]


def test_a_response_without_statements_has_no_feedback_and_needs_no_labels():
    llm = FakeLLM()
    assert annotated(llm, "So I am. Who I am?", "", "```\nA is.\n```") == [[], [], []]
    assert llm.calls == {"extract_statements": 2}


def test_a_statement_without_passages_is_vague_and_makes_no_call():
    llm = FakeLLM()
    (found,) = annotated(
        llm, "A is. B is.", evidence_of=lambda i, text: ["e"] if "A" in text else []
    )
    assert [t.truth for s in found for t in s.statements] == [CORRECT, VAGUE]
    assert llm.calls["verify_statement"] == 1


def test_a_statement_is_verified_by_the_passages_found_for_it_by_its_prompts_id():
    llm = FakeLLM()
    annotated(llm, "A is and B is.", "C is.", evidence_of=lambda i, text: [i, text])
    shown = [field(p, "Passages") for p in llm.prompts("verify_statement")]
    assert shown == [["0", "A is."], ["0", "B is."], ["1", "C is."]]


def test_all_statements_of_a_response_are_numbered_and_rated_in_one_call():
    llm = FakeLLM()
    annotated(llm, "A is and B is. C is.")
    (prompt,) = llm.prompts("rate_informativeness")
    assert field(prompt, "Statements") == ["1. A is.", "2. B is.", "3. C is."]
    assert field(prompt, "Response") == "A is and B is. C is."
    assert field(prompt, "Question") == "Q0?"


@pytest.mark.parametrize("truth", Truth)
def test_each_of_the_five_labels_comes_through(truth):
    (found,) = annotated(FakeLLM(), f"A is {truth.replace(' ', '-')}.")
    assert found[0].statements[0].truth is truth


def unless(marker, rule, failure):
    """The rule, but a failure where the filled part of the prompt has the marker."""

    def ruled(prompt):
        return failure if marker in prompt.rpartition("Your turn")[2] else rule(prompt)

    return ruled


@pytest.mark.parametrize("failure", [Reply(None, "timeout"), Reply(""), Reply("hm")])
@pytest.mark.parametrize("part", PIPELINE)
def test_a_response_of_which_one_part_failed_is_none_and_no_other_is(part, failure):
    rule = unless("bad", PIPELINE[part], failure)
    found = annotated(
        FakeLLM(**{part: rule}), "A is. C is.", "A is. B is bad.", "D is."
    )
    assert [of if of is None else len(of) for of in found] == [2, None, 1]


def test_what_failed_is_not_asked_about_any_further():
    failed = Reply(None, "timeout")
    llm = FakeLLM(extract_statements=unless("bad", extract, failed))
    annotated(llm, "A is. B is bad.")
    assert llm.calls == {"extract_statements": 2}
    llm = FakeLLM(verify_statement=unless("bad", verify, failed))
    annotated(llm, "A is. B is bad.", "C is.")
    assert llm.calls["rate_informativeness"] == 1


@pytest.mark.parametrize("ratings", [[5], [5, 4, 3], [], [5, 6], [5, "4"], [5, None]])
def test_ratings_that_are_not_one_for_each_statement_are_a_failure(ratings):
    llm = FakeLLM(rate_informativeness=lambda _: told(ratings=ratings))
    assert annotated(llm, "A is. B is.") == [None]


@pytest.mark.parametrize("n", [1, 3])
def test_ids_prompts_and_responses_must_be_as_many(n):
    for make in (llm_annotator, single_pass_annotator):
        annotate = make(FakeLLM(), passages)
        with pytest.raises(ValueError, match="zip"):
            annotate(["i"] * n, ["q"] * 2, ["A is."] * 2)
        with pytest.raises(ValueError, match="zip"):
            annotate(["i"] * 2, ["q"] * n, ["A is."] * 2)


def test_a_request_is_greedy_and_has_its_schema():
    llm = FakeLLM()
    annotated(llm, "A is.")
    (extraction,), (verification,), (rating,) = llm.batches
    assert list(extraction.schema["properties"]) == ["statements"]
    assert verification.schema["properties"]["label"]["enum"] == TRUTHS
    items = rating.schema["properties"]["ratings"]["items"]
    assert items == {"type": "integer", "enum": [1, 2, 3, 4, 5]}
    assert all(r.sampling.temperature == 0 for batch in llm.batches for r in batch)


def test_with_a_tenth_of_the_calls_failing_feedback_is_whole_or_none():
    def behave(body, attempt):
        prompt = prompt_of(body)
        if prompt.startswith("List the factual"):
            sentence = field(prompt, "Sentence")
            bad = sentence.endswith("7 is here.")
            return refuse(400) if bad else answer(extract(prompt).text)
        rule = verify if prompt.startswith("Decide how") else rate
        return answer(rule(prompt).text)

    responses = [f"X{2 * i} is here. X{2 * i + 1} is here." for i in range(10)]
    with serve(behave) as server:
        limits = Limits(attempts=1, timeout_s=60)
        llm = LLM(Endpoint(server.url, "annotator"), None, limits)
        found = annotated(llm, *responses)
    assert [i for i, of in enumerate(found) if of is None] == [3, 8]
    known = [(of, r) for of, r in zip(found, responses, strict=True) if of is not None]
    assert all([s.text for s in of] == sentences(r) for of, r in known)


hostile = st.text() | st.lists(
    st.sampled_from(
        ['"', "\\", "\n", "\u2028", "\nStatement: ", '{"label": "correct"}', "</s>"]
        + ["[INST]", '{"ratings": [5]}', "</think>", "\nResponse: ", "x"]
    )
).map("".join)


@settings(max_examples=40)
@given(hostile)
def test_texts_stay_within_the_json_of_their_fields(text):
    llm = FakeLLM(annotate_response=lambda _: told(sentences=[]))
    llm_verifier(llm)([(text, [text])])
    llm_rater(llm)([text], [text], [[text]])
    llm_statements(llm)([text], [f"A{text}"])
    single_pass_annotator(llm, lambda i, t: [text])(["i"], [text], [f"A{text}"])
    for request in [r for batch in llm.batches for r in batch]:
        template = prompts.template(_name(request)).splitlines()
        lines = request.messages[0]["content"].splitlines()
        places = sum(line.endswith("}") and ": {" in line for line in template[-4:])
        assert lines[:-places] == template[:-places]
        values = [json.loads(line.partition(": ")[2]) for line in lines[-places:]]
        assert all(isinstance(value, str | list) for value in values)
        assert not any("<" in line or "[INST]" in line for line in lines[-places:])


# A single pass

STATED = {"statement": "A is.", "truth": "correct", "informativeness": 5}
SAID = {"sentence": "A is, surely.", "statements": [STATED]}
READ = [Sentence("A is, surely.", (statement("A is."),))]


def reply(*said):
    return json.dumps({"sentences": said})


def one(**changed):
    """A reply of one sentence with one statement, some fields of which are changed;
    `...` removes one."""
    kept = {k: v for k, v in (STATED | changed).items() if v is not ...}
    return reply({"sentence": "A is.", "statements": [kept]})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (reply(SAID), READ),
        (reply(), []),
        (reply(SAID, SAID), READ * 2),
        (json.dumps({"sentences": [SAID]}, indent=2), READ),
        (f"```json\n{reply(SAID)}\n```", READ),
        (f"```\n{reply(SAID)}\n```\nI hope that this helps!", READ),
        (f"Here is what I found.\n\n{reply(SAID)}", READ),
        (f"<think>{{maybe}} wrong? {reply()}</think>\n{reply(SAID)}", READ),
        (reply({"sentence": "Hm.", "statements": []}, SAID), READ),
        (reply({"sentence": "Hm.", "statements": []}), []),
        (
            one(truth="Hedged Wrong"),
            [Sentence("A is.", (statement("A is.", HEDGED_WRONG),))],
        ),
        (one(statement="é\n"), [Sentence("A is.", (statement("é\n"),))]),
        (
            reply(SAID).replace(", surely", "\n"),
            [Sentence("A is\n.", READ[0].statements)],
        ),
        (
            reply({"sentence": 'He said "A {is}".', "statements": [STATED] * 2}),
            [Sentence('He said "A {is}".', READ[0].statements * 2)],
        ),
    ],
)
def test_a_whole_responses_feedback_is_read(text, expected):
    assert parse_feedback(text) == expected


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize("rating", SCALE)
def test_every_label_and_rating_is_read(truth, rating):
    (found,) = parse_feedback(one(truth=truth, informativeness=rating))
    assert found.statements == (Statement("A is.", Truth(truth), rating),)


MALFORMED = [
    # nothing, prose, other JSON
    None,
    "",
    "A is correct, 5.",
    "null",
    "5",
    "[]",
    "{}",
    "}{",
    json.dumps([SAID]),
    json.dumps(SAID),
    json.dumps({"A is.": {"A is.": ["correct", 5]}}),
    # cut off, doubled, malformed
    reply(SAID)[:-1],
    reply(SAID)[:-40],
    reply(SAID) + reply(SAID),
    f"{reply(SAID)}\n{reply(SAID)}",
    f"[{reply(SAID)}, {reply()}]",
    f"<think>{reply(SAID)}",
    f"It is {{almost}} right: {reply(SAID)}",
    reply(SAID).replace("A is, surely", 'A "is"'),
    '{"sentences": [], "sentences": []}',
    one()[:-3] + ', "informativeness": 4}]}]}',
    # wrong shapes
    json.dumps({"sentences": "A is."}),
    json.dumps({"sentences": None}),
    json.dumps({"sentences": SAID}),
    json.dumps({"sentences": [SAID], "note": "x"}),
    reply("A is."),
    reply(None),
    reply({"sentence": "A is."}),
    reply({"sentence": "A is.", "statements": STATED}),
    reply({"sentence": "A is.", "statements": ["A is."]}),
    reply({"sentence": "A is.", "statements": [["A is.", "correct", 5]]}),
    reply({"sentence": 1, "statements": [STATED]}),
    reply({"sentence": " ", "statements": [STATED]}),
    reply(SAID | {"truth": "correct"}),
    one(why="x"),
    one(statement=...),
    one(truth=...),
    one(informativeness=...),
    # labels and ratings
    one(statement=""),
    one(statement=" \n"),
    one(statement=None),
    one(statement=["A is."]),
    one(statement="half \ud800"),
    one(truth="true"),
    one(truth="hedged"),
    one(truth="hedged vague"),
    one(truth="hedged_correct"),
    one(truth=" correct"),
    one(truth=""),
    one(truth=None),
    one(truth=True),
    one(truth=["correct"]),
    one(informativeness=0),
    one(informativeness=6),
    one(informativeness=-1),
    one(informativeness=4.5),
    one(informativeness=5.0),
    one(informativeness="5"),
    one(informativeness=True),
    one(informativeness=None),
    one(informativeness=[5]),
    one(informativeness=float("nan")),
    one(informativeness=float("inf")),
    one().replace("5", "9" * 1_000_000),
    one().replace("5", "1e999"),
    # noise
    "x" * 1_000_000,
    "{" * 1_000_000,
    "[" * 100_000 + "{" * 100_000 + "}",
    '{"sentences": ' + "[" * 500_000 + "]" * 500_000 + "}",
    '{"sentences": ' * 100_000 + "1" + "}" * 100_000,
    '{"' * 300_000 + "}",
    "\\" * 1_000_000,
]


@pytest.mark.parametrize("text", MALFORMED, ids=lambda t: str(t)[:30])
def test_what_is_not_exactly_feedback_is_none(text):
    assert parse_feedback(text) is None


def test_one_bad_statement_among_a_thousand_makes_the_whole_none():
    good = [SAID] * 1000
    assert len(parse_feedback(reply(*good))) == 1000
    bad = {"sentence": "B.", "statements": [STATED, STATED | {"truth": "maybe"}]}
    assert parse_feedback(reply(*good, bad)) is None


texts = st.text(min_size=1).filter(str.strip)
feedback = st.lists(
    st.builds(
        Sentence,
        texts,
        st.lists(
            st.builds(
                Statement, texts, st.sampled_from(Truth), st.sampled_from(list(SCALE))
            ),
            min_size=1,
            max_size=3,
        ).map(tuple),
    ),
    max_size=3,
)


def written(sentences):
    return reply(
        *(
            {
                "sentence": sentence.text,
                "statements": [
                    {
                        "statement": s.text,
                        "truth": s.truth,
                        "informativeness": s.informativeness,
                    }
                    for s in sentence.statements
                ],
            }
            for sentence in sentences
        )
    )


@given(feedback)
def test_any_feedback_that_json_can_write_is_read_back(sentences):
    assert parse_feedback(f"```json\n{written(sentences)}\n```") == sentences


@given(feedback, st.data())
def test_feedback_cut_anywhere_is_none(sentences, data):
    whole = written(sentences)
    assert parse_feedback(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None


def single(llm, *responses, evidence_of=passages):
    n = len(responses)
    annotate = single_pass_annotator(llm, evidence_of)
    return annotate([str(i) for i in range(n)], ["Q?"] * n, responses)


def test_a_single_pass_takes_one_call_a_response_in_their_order():
    llm = FakeLLM(
        annotate_response=lambda p: Reply(
            one(statement=field(p, "Response"), truth="wrong")
        )
    )
    found = single(llm, "B is.", "", "A is.")
    assert [len(batch) for batch in llm.batches] == [2]
    assert [[s.statements[0].text for s in of] for of in found] == [
        ["B is."],
        [],
        ["A is."],
    ]


def test_a_single_pass_shows_the_passages_found_for_prompt_and_response():
    llm = FakeLLM(annotate_response=lambda _: Reply(reply(SAID)))
    single(llm, "A is.", evidence_of=lambda i, text: [i, text])
    (prompt,) = llm.prompts("annotate_response")
    assert field(prompt, "Passages") == ["0", "Q?\nA is."]
    assert field(prompt, "Question") == "Q?"


def test_sentences_of_a_single_pass_are_as_the_model_copied_them():
    llm = FakeLLM(annotate_response=lambda _: Reply(reply(SAID)))
    assert single(llm, "A is, SURELY.") == [READ]


def test_without_passages_a_single_pass_finds_nothing_correct_or_wrong():
    llm = FakeLLM(annotate_response=lambda _: Reply(one(truth="wrong")))
    (found,) = single(llm, "A is.", evidence_of=lambda i, text: [])
    assert found == [Sentence("A is.", (statement("A is.", VAGUE),))]


@pytest.mark.parametrize(
    "failure", [Reply(None, "timeout"), Reply(""), Reply(one()[1:])]
)
def test_a_failed_single_pass_is_none_and_no_other_is(failure):
    rule = unless("bad", lambda _: Reply(reply(SAID)), failure)
    llm = FakeLLM(annotate_response=rule)
    for evidence_of in (passages, lambda i, text: []):
        found = single(llm, "A is.", "A is bad.", "A.", evidence_of=evidence_of)
        assert [of is None for of in found] == [False, True, False]


# Ratings and labels of the pipeline


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"ratings": [5, 1]}', [5, 1]),
        ("[5, 1]", [5, 1]),
        ('{"informativeness": [5, 1]}', [5, 1]),
        ("```json\n[5, 1]\n```", [5, 1]),
        ('```\n{"ratings": [5,\n1]}\n```', [5, 1]),
        ("The ratings: [5, 1]. I hope that this helps.", [5, 1]),
        ("<think>[1, 1]? No.</think>[5, 1]", [5, 1]),
    ],
)
def test_ratings_are_read(text, expected):
    assert parse_ratings(text, 2, SCALE) == expected


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "5, 1",
        "1. 5\n2. 1",
        "[5]",
        "[5, 1, 1]",
        "[]",
        "[5, 6]",
        "[5, 0]",
        "[5, -1]",
        "[5, 1.0]",
        "[5, 4.5]",
        '[5, "1"]',
        "[5, true]",
        "[5, null]",
        "[5, NaN]",
        "[5, Infinity]",
        "[5, [1]]",
        "[[5, 1]]",
        "[5, 1",
        "[5, 1] [5, 1]",
        "[5, 1]\n[4, 1]",
        '{"ratings": [5, 1], "why": "x"}',
        '{"ratings": [5, 1]} {"ratings": [5, 1]}',
        '{"ratings": [5, 1], "ratings": [5, 1]}',
        '{"ratings": {"1": 5, "2": 1}}',
        '{"1": 5, "2": 1}',
        '{"ratings": "[5, 1]"}',
        '{"why": "[5, 1]", "rat',
        "<think>[5, 1]",
        "[" * 1_000_000,
        "[" * 100_000 + "]" * 100_000,
        "[5, " * 200_000,
        f"[5, {'1' * 1_000_000}]",
        "[" + "1, " * 300_000 + "1]",
    ],
    ids=lambda t: str(t)[:20],
)
def test_what_is_not_a_rating_for_each_statement_is_none(text):
    assert parse_ratings(text, 2, SCALE) is None


@given(st.lists(st.sampled_from(list(SCALE))), st.booleans())
def test_any_ratings_are_read_back_and_only_for_as_many_statements(ratings, bare):
    text = json.dumps(ratings if bare else {"ratings": ratings})
    assert parse_ratings(text, len(ratings), SCALE) == ratings
    assert parse_ratings(text, len(ratings) + 1, SCALE) is None


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ('{"label": "hedged correct"}', "hedged correct"),
        ('{"label": "Hedged Wrong"}', "hedged wrong"),
        ("**Label:** hedged wrong.", "hedged wrong"),
        ("Correct", "correct"),
        ('```json\n{"label": "vague"}\n```', "vague"),
        ('{"label": "hedged"}', None),
        ('{"label": "hedged vague"}', None),
        ('{"label": "hedged cor', None),
        ("wrong or hedged wrong", None),
        ("correct\nwrong", None),
    ],
)
def test_a_label_of_two_words_is_read_as_one(text, label):
    assert parse_label(text, TRUTHS) == label


def test_the_examples_of_the_templates_are_replies_that_can_be_read():
    def shown(template):
        lines = prompts.template(template).splitlines()
        return [line for line in lines if line.startswith("{")]

    extracted = [parse_texts(r) for r in shown("extract_statements")]
    assert [len(of) for of in extracted] == [4, 0]
    labels = [parse_label(r, TRUTHS) for r in shown("verify_statement")]
    assert sorted(labels) == sorted(TRUTHS)
    rated = [
        parse_ratings(r, n, SCALE)
        for r, n in zip(shown("rate_informativeness"), (6, 1), strict=True)
    ]
    assert set(rated[0]) == set(SCALE) and rated[1] == [5]
    whole, nothing = map(parse_feedback, shown("annotate_response"))
    response = prompts.template("annotate_response").partition('Response: "')[2]
    assert all(sentence.text in response.partition('"\n')[0] for sentence in whole)
    assert nothing == []


# Rules and the kit's verifier

FACTS = {
    "Ada Lovelace was a mathematician.": Support.SUPPORTED,
    "Ada Lovelace was born in 1815.": Support.SUPPORTED,
    "Ada Lovelace was born in Paris.": Support.CONTRADICTED,
    "Ada Lovelace moved to Rome.": Support.CONTRADICTED,
    "Ada Lovelace failed.": None,
}


class FakeVerifier:
    """Knows FACTS; keeps the rows."""

    def __init__(self):
        self.rows = []

    def __call__(self, rows):
        self.rows += rows
        return [FACTS.get(claim, Support.INCONCLUSIVE) for claim, _ in rows]


def by_rules(*responses, question="Who was Ada Lovelace?"):
    verify = FakeVerifier()
    n = len(responses)
    annotate = embedded_annotator(verify, passages)
    found = annotate([str(i) for i in range(n)], [question] * n, responses)
    return found, verify.rows


def test_rules_give_feedback_on_a_response():
    (found,), _ = by_rules(
        "Ada Lovelace was a mathematician. Perhaps she was born in Paris and moved to "
        "Rome. I don't know more. She was born in 1815."
    )
    assert found == [
        Sentence(
            "Ada Lovelace was a mathematician.",
            (statement("Ada Lovelace was a mathematician.", CORRECT, 5),),
        ),
        Sentence(
            "Perhaps she was born in Paris and moved to Rome.",
            (
                statement("Ada Lovelace was born in Paris.", HEDGED_WRONG, 4),
                statement("Ada Lovelace moved to Rome.", HEDGED_WRONG, 4),
            ),
        ),
        Sentence(
            "She was born in 1815.",
            (statement("Ada Lovelace was born in 1815.", CORRECT, 4),),
        ),
    ]


@pytest.mark.parametrize(
    ("sentence", "truth"),
    [
        ("She was born in 1815.", CORRECT),
        ("She was probably born in 1815.", HEDGED_CORRECT),
        ("I think she was born in 1815.", HEDGED_CORRECT),
        ("It is believed that she was born in 1815.", HEDGED_CORRECT),
        ("She might have been born in 1815.", HEDGED_CORRECT),
        ("She was born in Paris.", WRONG),
        ("She may have been born in Paris.", HEDGED_WRONG),
        ("As far as I know, she was born in Paris.", HEDGED_WRONG),
        ("She liked her horses.", VAGUE),
        ("She possibly moved to Oslo.", VAGUE),
    ],
)
def test_the_verifier_reads_a_statement_without_the_hedge_that_the_truth_has(
    sentence, truth
):
    (found,), rows = by_rules(f"Ada Lovelace was a poet. {sentence}")
    (said,) = found[1].statements
    assert found[1].text == sentence and said.truth is truth
    known = rows[1][0] in FACTS
    assert known == (truth is not VAGUE)


def test_repeats_are_kept_by_rules_and_verified_once():
    (found,), rows = by_rules("Ada Lovelace failed to win. " * 3)
    assert [len(s.statements) for s in found] == [1, 1, 1]
    assert [s.statements[0].informativeness for s in found[1:]] == [1, 1]
    assert len(rows) == 1


def test_a_failed_verification_leaves_only_its_response_without_feedback():
    found, _ = by_rules("Ada Lovelace failed. She was a poet.", "I don't know.", "")
    assert found == [None, [], []]


def test_rules_take_no_hedge_for_an_opinion_but_leave_opinions_out():
    (found,) = rule_statements(
        ["Who was Ada Lovelace?"],
        ["Maybe she was a poet. I think you would like her. I'm not sure who she was."],
    )
    assert [texts for _, texts in found] == [["Ada Lovelace was a poet."]]


@settings(max_examples=60)
@given(
    st.lists(
        st.sampled_from(
            [
                "Ann",
                "was",
                "perhaps",
                "and",
                "I think",
                "a poet",
                ".",
                ",",
                "Rome",
                "\n",
            ]
            + ["might", "1815", "it is likely that", "who", "é", '"', "Bob"]
        )
    ).map(" ".join)
)
def test_rules_keep_sentences_of_the_response_in_order_with_a_statement_each(text):
    (found,), _ = by_rules(text)
    at = 0
    for sentence in found:
        at = text.index(sentence.text, at) + len(sentence.text)
        assert sentence.statements
        assert all(s.informativeness in SCALE for s in sentence.statements)
