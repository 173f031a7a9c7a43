"""LLM judges of outcome and reasoning (TruthRL Tables 11 and 12).

A judge that fails gives no verdict: neither right nor wrong, and no default.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from factkit import prompts
from factkit.llm import LLM, Request
from factkit.models import Sampling
from factkit.verify.outcome import Outcome, abstains

PREDICTION_LIMIT = 2_000  # characters of a prediction that the judge reads
REASONING_LIMIT = 12_000  # characters: 2,048 tokens, the paper's longest response
REPLY_TOKENS = 256
SCHEMA = {
    "type": "object",
    "properties": {
        "explanation": {"type": "string"},
        "score": {"type": "integer", "enum": [0, 1]},
    },
    "required": ["explanation", "score"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Verdict:
    """A judge's score. value: None if the judge failed; raw: its reply or the error."""

    value: float | None
    raw: str


Row = tuple[str, str | Sequence[str], str]  # question, ground truth(s), text to grade


def judge_outcomes(
    llm: LLM, rows: Sequence[Row], template: str = "judge_outcome"
) -> list[Verdict]:
    """Whether each prediction agrees with its ground truth: 1.0, 0.0 or None.

    rows: (question, ground truth or the list of those accepted, prediction). The judge
    reads the first `PREDICTION_LIMIT` characters of a prediction.
    """
    return _judge(llm, rows, template, "prediction", PREDICTION_LIMIT)


def judge_reasoning(
    llm: LLM, rows: Sequence[Row], template: str = "judge_reasoning"
) -> list[Verdict]:
    """Whether each reasoning leads to the answer: 1.0, 0.0 or None.

    rows: (question, ground truth or the list of those accepted, reasoning). The judge
    reads the first `REASONING_LIMIT` characters of a reasoning.
    """
    return _judge(llm, rows, template, "reasoning", REASONING_LIMIT)


def judged_outcomes(
    llm: LLM,
    responses: Sequence[str],
    answers: Sequence[Sequence[str]],
    questions: Sequence[str],
) -> list[Outcome | None]:
    """The outcome of each final answer, None where the judge failed (TruthRL §4.1).

    An abstention is recognised by rule; all else, even what equals a reference answer,
    goes to the judge.
    """
    rows = list(zip(questions, answers, responses, strict=True))
    abstentions = [abstains(response) for response in responses]
    asked = [row for row, a in zip(rows, abstentions, strict=True) if not a]
    verdicts = iter(judge_outcomes(llm, asked))
    outcomes = {1.0: Outcome.CORRECT, 0.0: Outcome.WRONG, None: None}
    return [
        Outcome.ABSTAIN if a else outcomes[next(verdicts).value] for a in abstentions
    ]


def _judge(
    llm: LLM, rows: Sequence[Row], template: str, graded: str, limit: int
) -> list[Verdict]:
    """One request a row, its last field cut to `limit` characters, and its verdict."""
    text = prompts.template(template)
    version = f"{template}@{sha256(text.encode()).hexdigest()[:8]}"
    requests = []
    for question, truth, answer in rows:
        fields = {
            "question": _quoted(question),
            "ground_truth": _quoted(truth if isinstance(truth, str) else list(truth)),
            graded: _quoted(answer[:limit]),
        }
        message = {"role": "user", "content": prompts.fill(text, **fields)}
        requests.append(
            Request(
                messages=(message,),
                template=version,
                sampling=Sampling(REPLY_TOKENS),
                sample=0,
                schema=SCHEMA,
            )
        )
    replies = llm.run(requests, progress="judging") if requests else []
    return [Verdict(parse_score(r.text), r.text or r.error) for r in replies]


def _quoted(value: str | list[str]) -> str:
    """JSON on one line, so that no text can end its field and go on as our template.

    `<` is escaped: no text can write a chat template's control tokens either.
    """
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


# In an object a string closes where something structural or the end follows its quote:
# apostrophes and stray quotes inside it don't close it, escaped quotes never do.
CLOSING = {
    quote: re.compile(rf"(?<!\\)(?:\\\\)*{quote}(?=\s*(?:[,:}}\]]|$))")
    for quote in "\"'"
}
OBJECT = re.compile(r"\{(?=\s*(?:[\"']|\w+\s*:))")
# The next brace, or what may come before a key or a string.
MARK = re.compile(r"(?P<mark>[{}]|[\[,:](?=\s*[\"'])|,(?=\s*score\b))\s*", re.I)
# A stray quote in an explanation may hide the beginning of a key in a string.
SCORE_KEY = re.compile(r"(?:^|,\s*[\"'])score\Z", re.I)
BARE_SCORE_KEY = re.compile(r"score\b", re.I)
COLON = re.compile(r"\s*:")
VALUE = re.compile(r"\s*:\s*([\"']?)([+-]?[0-9]+(?:\.[0-9]+)?)\1(?=\s*(?:[,}`]|$))")
# Outside objects: `score: 1` where a line, a sentence or a quoted field begins.
IN_PROSE = re.compile(
    r"(?:^[ \t>#*_\-\"'`]*|[.;!?][ \t]+[*_\"'`]*|,\s*[\"'])(?:(?:final|overall) )?"
    r"score[*_\"'` \t]*[:=][*_\"'` \t]*(?P<value>[+-]?[0-9]+(?:\.[0-9]+)?)",
    re.I | re.M,
)
# … and what may follow it: not "/10", " out of 5" or " or 0".
AFTER_IN_PROSE = re.compile(
    r"[*_\"'`]*(?:[ \t]*(?:$|[(}])|[,;.!)][*_\"'`]*[ \t]*(?:$|(?<=[ \t])[^\s0-9]))",
    re.M,
)


def parse_score(
    reply: str | None, allowed: Sequence[float] = (0.0, 1.0)
) -> float | None:
    """The score that a judge's reply states, None unless it states one allowed number.

    Counted are `score` fields of JSON objects, also malformed or cut off after the
    score, with any prose around them, and outside objects `score: 1` at the beginning
    of a line or sentence. A number may be quoted. Not counted are words ("correct",
    "True"), numbers without their key, what a leading `<think>` part says, nested
    objects, and whatever stands inside the strings of an object. Scores that differ,
    and any that can't be read or isn't in `allowed`, leave no score. Takes time linear
    in the reply's length.
    """
    text = (reply or "").strip()
    if text.startswith("<think>"):
        text = text.partition("</think>")[2]
    scores = set(_scores(text))
    score = scores.pop() if len(scores) == 1 else None
    return score if score in allowed else None


def _scores(text: str) -> Iterator[float | None]:
    """Every score that a reply states, in order; None for one that can't be read."""
    depth = at = 0
    while at < len(text):
        if depth == 0:
            begin = OBJECT.search(text, at)
            yield from _prose_scores(text[at : begin.start()] if begin else text[at:])
            if not begin:
                return
            at = begin.start()
        mark = MARK.search(text, at)
        if not mark:
            return
        kind, at = mark["mark"], mark.end()
        if kind in "{}":
            depth += 1 if kind == "{" else -1
        if text[at : at + 1] in ("'", '"') and kind != "}":
            closing = CLOSING[text[at]].search(text, at + 1)
            if not closing:
                return  # cut off inside a string
            key = SCORE_KEY.search(text[at + 1 : closing.end() - 1])
            at = closing.end()
        elif key := BARE_SCORE_KEY.match(text, at):
            at = key.end()
        if key and depth == 1 and COLON.match(text, at):
            value = VALUE.match(text, at)
            yield float(value[2]) if value else None


def _prose_scores(text: str) -> Iterator[float | None]:
    """The scores that stand outside objects; None for a number that goes on."""
    for found in IN_PROSE.finditer(text):
        ends = AFTER_IN_PROSE.match(text, found.end())
        yield float(found["value"]) if ends else None
