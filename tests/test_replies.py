"""Replies: the verdict that a person would give, or none; never another one.

A row of replies.jsonl: the kind of reply, its category, text and finish_reason, and the
verdict that a person would give to it, or null. `missed` marks what a person can read
and the reader does not: it takes no form that was not asked for.
"""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from factkit.curate.requests import Factual
from factkit.llm import Reply
from factkit.rar.rewards import Check, Rating
from factkit.reason import evaluate
from factkit.rlfh import feedback
from factkit.verify import claims, judge
from factkit.verify.claims import Claims, Label
from factkit.verify.judge import REFUSAL, TAG, Choice, Grade, preferred, read

CORPUS = Path(__file__).with_name("replies.jsonl")
FORMS = {
    "score": Grade,
    "check": Check,
    "rating": Rating,
    "support": Label,
    "truth": feedback.Label,
    "factual": Factual,
    "choice": Choice,
    "claims": Claims,
    "statements": feedback.Statements,
}
FIELDS = {"support": "label", "truth": "label", "factual": "label", "choice": "label"}
UPPER = {"check": "SCORE", "rating": "SCORE"}


def verdict_of(kind, text, finish_reason="stop", n=0):
    """What the reader of a kind makes of a reply, as plain JSON."""
    reply = Reply(text, finish_reason=finish_reason)
    match kind:
        case "preference":
            return preferred(reply)
        case "ratings":
            return feedback.ratings_of(reply, n)
        case "annotation":
            told = read(reply, evaluate.Steps)
            return told and [
                [
                    [s.step.strip(), list(dict.fromkeys(s.strategies))]
                    for s in told.steps
                ],
                told.helpfulness,
            ]
    told = read(reply, FORMS[kind])
    return told and getattr(told, FIELDS.get(kind) or UPPER.get(kind) or kind)


def corpus():
    return [json.loads(line) for line in CORPUS.read_text("utf-8").splitlines()]


# The corpus


def test_every_reply_of_the_corpus_has_the_verdict_of_a_person_or_none():
    wrong = []
    for row in corpus():
        verdict = verdict_of(
            row["kind"], row["text"], row["finish_reason"], row.get("n", 0)
        )
        wanted = None if row.get("missed") else row["verdict"]
        if verdict != wanted:
            wrong.append((row["kind"], row["category"], row["text"], verdict, wanted))
    assert wrong == []


def test_a_reply_that_was_cut_off_is_no_verdict_wherever_it_was_cut():
    for row in corpus():
        text = row["text"]
        for reason in ("length", "content_filter", "abort", ""):
            assert verdict_of(row["kind"], text, reason, row.get("n", 0)) is None


def test_a_reply_cut_anywhere_gives_its_own_verdict_or_none():
    """Also where nobody says that it was cut."""
    other = []
    for row in corpus():
        kind, text, n = row["kind"], row["text"], row.get("n", 0)
        whole = verdict_of(kind, text, n=n)
        for end in range(len(text) if whole is not None else 0):
            verdict = verdict_of(kind, text[:end], n=n)
            if verdict is not None and verdict != whole:
                other.append((kind, text[:end], verdict, whole))
    assert other == []


def test_what_follows_or_precedes_a_verdict_never_turns_it_into_another():
    """Each readable reply of the corpus with each other text of its kind around it; not
    with tags of reasoning, which make reasoning of what stands before or after them."""
    other = []
    rows = [row for row in corpus() if row["finish_reason"] == "stop" and row["text"]]
    for row in rows:
        kind, text, n = row["kind"], row["text"], row.get("n", 0)
        whole = verdict_of(kind, text, n=n)
        texts = [r["text"] for r in rows if r["kind"] == kind and whole is not None]
        for added in [t for t in texts if len(t) < 400 and not TAG.search(t)]:
            for mark in ("\n", " ", ""):
                for mixed in (text + mark + added, added + mark + text):
                    verdict = verdict_of(kind, mixed, n=n)
                    if verdict is not None and verdict != whole:
                        other.append((kind, mixed, verdict, whole))
    assert other == []


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
    "preference": {"A", "B"},
}
kinds = st.sampled_from(sorted(ALLOWED))


def written(kind, value, text, last=True):
    """A well-formed reply of a kind; text: what its explanation says."""
    if kind == "preference":
        return f"{text}\n<answer>[[{value}]]</answer>"
    fields = list(FORMS[kind].model_fields)
    told = dict(zip(fields, [text, value] if len(fields) > 1 else [value], strict=True))
    return json.dumps(told if last else dict(reversed(told.items())))


@given(kinds.filter(lambda k: k != "preference"), st.text() | marks, st.data())
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
    assert verdict == texts or any(not t.strip() or REFUSAL.match(t) for t in texts)
    assert (
        verdict_of("claims", reply[: data.draw(st.integers(0, len(reply) - 1))]) is None
    )


HUGE = [
    part * (100_000 // len(part))
    for part in ["x", "{", "[", '{"', '{"a": ', '"score: ', "\\", "score:", "<think>"]
    + ["```", "```json", "[[A]]", "<answer>[[A]]</answer> ", "score" + " " * 999, "\n"]
    + ["</think>", "label: ", "{}", '{"score": 1}', "score=", "```a", '"']
]


def test_characters_of_noise_in_their_thousands_are_no_verdict():
    """In time linear in them: a quadratic reader would take hours."""
    readable = []
    for text in HUGE:
        for kind in ("score", "claims", "statements", "annotation", "preference"):
            for reply in (text, text + "\nx", "```json\n" + text, '{"score": "' + text):
                if verdict_of(kind, reply) is not None and kind != "preference":
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
    assert read(Reply(json.dumps(long)), Grade).explanation == long["explanation"]
    assert len(read(Reply(json.dumps({"claims": ["A b."] * 99})), Claims).claims) == 99
    for blank in (" ", "\n", ""):
        assert read(Reply(json.dumps({"claims": [blank]})), Claims) is None
