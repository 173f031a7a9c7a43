"""Replies: the verdict that a person would give by the rule, or none; never another.

The rule: a reply ends normally and is exactly one JSON object of the form, with nothing
beside it but white space, one closed block of reasoning before it and one code fence
around it. A row of replies.jsonl: the kind of reply, its form, text and finish reason,
what is expected of the reader, and the fields of the prompt that it is checked with.
"""

import json
from pathlib import Path

import pytest
from fake_endpoint import answer, serve
from fake_llm import FakeLLM, told
from hypothesis import given
from hypothesis import strategies as st

from factkit.answers.requests import Factual
from factkit.papers.rar.rewards import Check, Rating
from factkit.papers.reason import evaluate
from factkit.papers.reason.rewards import Preference
from factkit.papers.rlfh import feedback
from factkit.verify import claims, judge
from factkit.verify.claims import Claims, Label, is_claim_of
from factkit.verify.failures import check_failures
from factkit.verify.judge import Choice, Grade
from factkit.verify.llm import LLM, Endpoint, Limits, Reply
from factkit.verify.replies import CLOSING, Failure, read_reply

CORPUS = Path(__file__).with_name("replies.jsonl")
FORMS = {
    "score": Grade,
    "check": Check,
    "rating": Rating,
    "support": Label,
    "truth": feedback.Label,
    "factual": Factual,
    "choice": Choice,
    "preference": Preference,
    "claims": Claims,
    "statements": feedback.Statements,
    "ratings": feedback.Ratings,
    "annotation": evaluate.Steps,
}
VERDICTS = ("label", "score", "SCORE", "claims", "statements", "ratings")

FACTS = Path(__file__).parents[2] / "shared/data/factscore/InstructGPT.jsonl"


def verdict_of(form, text, finish_reason="stop", row=None):
    """What the reader makes of a reply, as plain JSON."""
    value = read_reply(Reply(text, finish_reason=finish_reason), FORMS[form], row)
    if isinstance(value, Failure):
        return None
    if form == "annotation":
        names = [name for step in value.steps for name in step.strategies]
        return [list(dict.fromkeys(names)), value.helpfulness]
    return next(getattr(value, key) for key in VERDICTS if hasattr(value, key))


def corpus():
    """(row, fields of its prompt) of each reply."""
    for line in CORPUS.read_text("utf-8").splitlines():
        row = json.loads(line)
        yield row, {key: row[key] for key in ("sentence", "statements") if key in row}


# The corpus


def test_every_reply_of_the_corpus_is_read_as_expected_or_not_at_all():
    wrong, rows = [], list(corpus())
    for row, fields in rows:
        verdict = verdict_of(row["form"], row["reply"], row["finish_reason"], fields)
        if verdict != row["expected"]:
            wrong.append((row, verdict))
    assert wrong == [] and len(rows) >= 400


def test_a_reply_that_was_cut_off_is_no_verdict_wherever_it_was_cut():
    for row, fields in corpus():
        for reason in ("length", "Max-Tokens", "content_filter", "abort", "x"):
            assert verdict_of(row["form"], row["reply"], reason, fields) is None


def test_a_reply_cut_anywhere_gives_its_own_verdict_or_none():
    """Also where nobody says that it was cut."""
    other = []
    for row, fields in corpus():
        form, text, whole = row["form"], row["reply"], row["expected"]
        for end in range(len(text) if whole is not None else 0):
            verdict = verdict_of(form, text[:end], row=fields)
            if verdict not in (None, whole):
                other.append((form, text[:end], verdict, whole))
    assert other == []


def test_no_text_beside_an_object_leaves_it_readable():
    """Each reply that is read, with other replies of its form before or after it; not
    with an end of reasoning, which makes reasoning of what stands before it."""
    read_anyway = []
    rows = [(row, fields) for row, fields in corpus() if row["reply"].strip()]
    for row, fields in rows:
        form, text = row["form"], row["reply"]
        texts = [r["reply"] for r, _ in rows if r["form"] == form][::4]
        for added in texts if row["expected"] is not None else []:
            for mixed in (f"{text}\n{added}", added + text):
                if not CLOSING.search(mixed) and (
                    verdict_of(form, mixed, row=fields) is not None
                ):
                    read_anyway.append((form, mixed))
    assert read_anyway == []


# Claims and remarks


def test_a_fact_of_a_sentence_is_a_claim_and_a_remark_on_it_is_none():
    """The corpus' remarks, beside all of its sentences."""
    rows = [row for row, _ in corpus() if "sentence" in row and "remark" in row["kind"]]
    remarks = [
        next(iter(json.loads(row["reply"]).values()))
        for row in rows
        if "Ben" not in row["reply"] and "was born" not in row["reply"]
    ]
    sentences = {row["sentence"] for row in rows}
    claims = [c for listed in remarks for c in listed]
    passed = {(c, s) for c in claims for s in sentences if is_claim_of(c, s)}
    assert len(claims) > 40 and not passed


@pytest.mark.skipif(not FACTS.exists(), reason="needs ../shared")
def test_the_facts_of_real_biographies_are_claims_of_their_sentences():
    """Those of people and of a model; a refused one costs a whole response."""
    rows = [json.loads(line) for line in FACTS.read_text("utf-8").splitlines()]
    sentences = [s for row in rows for s in row["annotations"] or []]
    kinds = ("model-atomic-facts", "human-atomic-facts")
    facts = [
        (f["text"], s["text"]) for s in sentences for k in kinds for f in s.get(k) or []
    ]
    refused = [pair for pair in facts if not is_claim_of(*pair)]
    assert len(facts) > 9_000 and len(refused) <= 3, refused


# Properties

marks = st.lists(
    st.sampled_from(
        ['"score"', '"SCORE"', '"label"', ": ", "1", "0", '"', "'", "\\", "{", "}", ","]
        + ["\n", " ", "```", "```json\n", "<think>", "</think>", "Score: 1", '"a"']
        + ['"supported"', "[", "]", "[[A]]", "<answer>[[A]]</answer>", '{"score": 1}']
        + [
            '{"claims": ["I cannot."]}',
            '{"label": "supported"}',
            "\u0661",
            "\ud800",
            "x",
        ]
    )
).map("".join)
ALLOWED = {
    "score": {0, 1},
    "check": {0, 1},
    "rating": set(range(11)),
    "support": {"supported", "contradicted", "inconclusive"},
    "truth": {"correct", "hedged correct", "vague", "hedged wrong", "wrong"},
    "factual": {"yes", "no"},
    "choice": {"a", "b"},
    "preference": {"a", "b"},
}
kinds = st.sampled_from(sorted(ALLOWED))


def written(kind, value, text, last=True):
    """A well-formed reply of a kind; text: what its explanation says."""
    *texts, verdict = FORMS[kind].model_fields
    value = dict.fromkeys(texts, text) | {verdict: value}
    return json.dumps(value if last else dict(reversed(value.items())))


@given(kinds, st.text() | marks, st.data())
def test_a_judge_gives_its_own_verdict_whatever_its_explanation_quotes(
    kind, text, data
):
    value = data.draw(st.sampled_from(sorted(ALLOWED[kind])))
    for last in (True, False):
        reply = written(kind, value, text, last)
        for whole in (reply, f"```json\n{reply}\n```", f"<think>Hm.</think>\n{reply}"):
            assert verdict_of(kind, whole) == value
        assert verdict_of(kind, reply, "length") is None


@given(st.lists(st.text(min_size=1)), st.data())
def test_a_list_is_read_as_it_was_written_or_not_at_all(texts, data):
    reply = json.dumps({"claims": texts})
    verdict = verdict_of("claims", reply)
    assert verdict == texts or not all(is_claim_of(t, t) for t in texts)
    assert (
        verdict_of("claims", reply[: data.draw(st.integers(0, len(reply) - 1))]) is None
    )


HUGE = [
    part * (100_000 // len(part))
    for part in ["x", "{", "[", '{"', '{"a": ', '"score: ', "\\", "score:", "<think>"]
    + ["```", "```json", "[[A]]", "<answer>[[A]]</answer> ", "score" + " " * 999, "\n"]
    + ["</think>", "label: ", "{}", '{"score": 1}', "score=", "```a", '"']
]


def test_tags_with_letters_that_only_look_alike_raise_nothing():
    """A dotless i and a long s match i and s where case is ignored."""
    grade = '{"score": 1}'
    for tags in (("<thınk>", "</think>"), ("<reaſoning>", "</reasoning>")):
        assert verdict_of("score", "x".join(tags) + grade) == 1
    assert verdict_of("score", f"<think>x</thınk>{grade}") is None


def test_characters_of_noise_in_their_thousands_are_no_verdict():
    """In time linear in them: a quadratic reader would take hours."""
    readable = []
    for text in HUGE:
        for kind in ("score", "claims", "statements", "annotation", "preference"):
            for reply in (text, text + "\nx", "```json\n" + text, '{"score": "' + text):
                if verdict_of(kind, reply) is not None:
                    readable.append((kind, reply[:20]))
    assert readable == []


# What a reply is asked to keep to

TOKENS = {  # of a reply of this form
    Grade: judge.REPLY_TOKENS,
    Choice: judge.REPLY_TOKENS,
    Check: 1024,
    Rating: 1024,
    Factual: 128,
    Claims: claims.CLAIM_TOKENS,
    Label: claims.LABEL_TOKENS,
    feedback.Statements: claims.CLAIM_TOKENS,
    Preference: 2048,
    feedback.Ratings: feedback.RATING_TOKENS,
    evaluate.Steps: 2048,
}
CHARS_A_TOKEN = 2


def longest(part, names):
    """Characters of the longest value that a schema allows, its marks included."""
    part = names[part["$ref"].split("/")[-1]] if "$ref" in part else part
    if "enum" in part:
        return max(len(json.dumps(value)) for value in part["enum"])
    if part["type"] == "array":
        return 2 + part["maxItems"] * (2 + longest(part["items"], names))
    if part["type"] == "string":
        return 2 + part["maxLength"]
    values = part["properties"].items()
    return 2 + sum(len(name) + 6 + longest(value, names) for name, value in values)


def test_a_reply_that_keeps_to_its_schema_ends_within_its_tokens():
    for form, tokens in TOKENS.items():
        schema = form.model_json_schema()
        characters = longest(schema, schema.get("$defs", {}))
        assert characters / CHARS_A_TOKEN <= tokens, (form.__name__, characters)


def test_bounds_are_asked_for_and_not_required():
    long = {"explanation": "é" * 5_000, "score": 1}
    grade = read_reply(Reply(json.dumps(long)), Grade)
    assert grade.explanation == long["explanation"]
    many = Reply(json.dumps({"claims": ["A b."] * 99}))
    assert len(read_reply(many, Claims).claims) == 99
    for blank in (" ", "\n", ""):
        blank_claim = Reply(json.dumps({"claims": [blank]}))
        assert isinstance(read_reply(blank_claim, Claims), Failure)


# What happens to a reply that cannot be read

ROWS = [
    {"evidence": ["e"], "claim": f"Bo swam in {year}."} for year in range(1990, 1994)
]
ASKED = "verify_claim", ROWS, Label, 32


def answering(first, second):
    """An LLM whose rules are on the text of a request, and on that of a second one."""
    return FakeLLM(lambda prompt: first(prompt), again=second)


def test_a_reply_that_cannot_be_read_is_asked_for_once_more_and_shown():
    prose = Reply("Supported, I think.\n" + told(label="supported").text)

    def first(prompt):
        return {
            '"Bo swam in 1990."': told(label="contradicted"),
            '"Bo swam in 1991."': Reply(None, "HTTP 500: no"),
            '"Bo swam in 1992."': Reply("supp", finish_reason="length"),
        }.get(prompt.rpartition("Claim: ")[2], prose)

    llm = answering(first, lambda prompt: told(label="inconclusive"))
    with pytest.warns(UserWarning) as warned:
        values = judge.ask_all(llm, *ASKED)
    assert [v and v.label for v in values] == [
        *("contradicted", None, None, "inconclusive")
    ]
    (again,) = llm.requests[4:]
    roles = [message["role"] for message in again.messages]
    assert roles == ["user", "assistant", "user"]
    assert again.messages[1]["content"] == prose.text
    (line,) = {str(w.message) for w in warned}
    for words in ("asked again for 1 of 4 replies", "2 failed", "1 × HTTP 500 (no)"):
        assert words in line, line
    assert "\n" not in line


def test_a_reply_is_asked_for_no_third_time_and_the_causes_are_told():
    judge.RECENT_FAILURES.clear()
    llm = answering(lambda prompt: Reply("Yes."), lambda prompt: Reply("Yes!\n" * 999))
    with pytest.warns(UserWarning, match="4 × not one JSON object alone"):
        assert judge.ask_all(llm, *ASKED) == [None] * 4
    assert len(llm.requests) == 8
    assert len(judge.describe_failures()) < 300
    with pytest.raises(ValueError, match="4 × not one JSON object"):
        check_failures([None], "failures")


def test_a_second_reply_that_does_not_come_leaves_the_first_as_the_cause():
    llm = answering(
        lambda prompt: Reply('{"label": "true"}'),
        lambda prompt: Reply(None, "call cap of 4 reached"),
    )
    with pytest.warns(UserWarning, match="4 × not of the form Label"):
        assert judge.ask_all(llm, *ASKED) == [None] * 4


def test_a_second_reply_respects_the_cap_on_calls_and_is_cached(tmp_path):
    def behave(body, attempt):
        again = len(body["messages"]) > 1
        return answer(told(label="supported").text if again else "It is supported.")

    with serve(behave) as server:
        limits = Limits(attempts=1, max_calls=6)
        llm = LLM(Endpoint(server.url, "m"), tmp_path / "llm", limits)
        for calls, read_ in ((6, 2), (8, 4), (8, 4)):  # a rerun asks for the rest
            with pytest.warns(UserWarning, match="asked again for 4 of 4 replies"):
                values = judge.ask_all(llm, *ASKED)
            assert len(values) - values.count(None) == read_
            assert llm.totals.calls == calls
            llm.limits = Limits(attempts=1)
