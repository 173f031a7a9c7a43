"""Reading what a judge or an extractor replies: a score, a label, a list, an object.

A reply that can't be read without a guess is `None`: neither a default nor a score.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Verdict:
    """A judge's score. value: None if the judge failed; raw: its reply or the error."""

    value: float | None
    raw: str


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
    scores = set(_scores(_spoken(reply)))
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


OPENING = re.compile(r"[\[{](?P<json>\s*[\"\[{])?")
LABEL_KEYS = ("label", "verdict", "decision", "answer")
MARKS = " \t>#*_-\"'`.,"  # around a label or its key, in prose and Markdown
CUT_LABEL = re.compile(r"(?:```\w*\s*)?\{\s*\"label\"\s*:\s*\"(?P<label>\w+)\"", re.I)


def parse_label(reply: str | None, labels: Sequence[str]) -> str | None:
    """The label that a reply states, None unless it states exactly one of `labels`.

    Counted are `label` fields of JSON objects, with any prose around them; without any,
    a first `label` field of an object that is cut off or malformed after it, or labels
    that have a line for themselves. Letter case is ignored. What stands inside the
    strings of an object does not count, nor what a leading `<think>` part says.
    """
    text = _spoken(reply)
    objects = [value for value in _json_values(text) if isinstance(value, dict)]
    said = [v for o in objects for key, v in o.items() if key.casefold() == "label"]
    if not said and (cut := CUT_LABEL.match(text)):
        said = [cut["label"]]
    if not said and "{" not in text:
        said = [w for line in text.splitlines() if (w := _line_label(line)) in labels]
    stated = {v.casefold().strip() if isinstance(v, str) else None for v in said}
    label = stated.pop() if len(stated) == 1 else None
    return label if label in labels else None


def _line_label(line: str) -> str:
    """What a line says: "supported" of `**Label:** supported`, in lower case."""
    key, _, value = line.casefold().replace("=", ":").rpartition(":")
    return value.strip(MARKS) if key.strip(MARKS) in (*LABEL_KEYS, "") else ""


VERDICT = re.compile(r"<answer>\s*\[\[([AB])\]\]\s*</answer>[\s.*`]*\Z")


def parse_preference(reply: str | None) -> str | None:
    """The letter of `<answer>[[A]]</answer>` or of B, with which a reply has to end.

    What is said before it does not count: it may quote a response.
    """
    found = VERDICT.search(_spoken(reply))
    return found[1] if found else None


OPENING_STRING = re.compile(r"[\[{]\s*\"")
UNCLOSED = re.compile(r"(?:[^\"\\]|\\.)*\\?", re.S)  # a string that was cut
ITEM = re.compile(r"\s*(?:(?P<number>\d+)[.)]|[-*•])\s+(?P<text>\S.*)")


def parse_texts(reply: str | None) -> list[str] | None:
    """The list of texts that a reply gives, None unless it gives exactly one.

    Read are a JSON list of strings, or an object whose one field is such a list, with
    any prose or fence around it; a list that is cut off gives its complete strings, if
    there are any; without JSON, lines that are all numbered 1, 2, … or all bulleted,
    after at most one line that ends in a colon. An empty list must be written as one.
    """
    text = _spoken(reply)
    lists = [found for v in _json_values(text) if (found := _texts(v)) is not None]
    if lists:
        return lists[0] if all(found == lists[0] for found in lists) else None
    return _cut_off(text) if OPENING_STRING.search(text) else _listed_lines(text)


def _texts(value: Any) -> list[str] | None:
    """The strings of a JSON value that is a list of strings, or holds only that."""
    if isinstance(value, dict) and len(value) == 1:
        value = next(iter(value.values()))
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return [item.strip() for item in value if item.strip()]
    return None


def _cut_off(text: str) -> list[str] | None:
    """The complete strings of a JSON list whose end is missing."""
    opening = re.match(r"[^\[]*\[\s*(?=\")", text)
    if not opening:
        return None
    found, at = [], opening.end()
    while text[at : at + 1] == '"':
        try:
            item, at = json.JSONDecoder(strict=False).raw_decode(text, at)
        except ValueError:
            return found if found and UNCLOSED.fullmatch(text, at + 1) else None
        found.append(item.strip())
        between = re.compile(r"\s*(?:,\s*|\Z)").match(text, at)
        if not between:
            return None  # malformed, not cut off
        at = between.end()
    return found if at >= len(text) else None


def _listed_lines(text: str) -> list[str] | None:
    """The texts of numbered or bulleted lines, if there is nothing else."""
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and lines[0].rstrip().endswith(":"):
        lines = lines[1:]
    items = [ITEM.fullmatch(line) for line in lines]
    numbers = [item["number"] for item in items if item]
    counted = [str(i) for i in range(1, len(items) + 1)]
    if not items or None in items or numbers not in (counted, [None] * len(items)):
        return None
    return [item["text"].strip() for item in items if item]


def parse_ratings(reply: str | None, n: int, scale: Sequence[int]) -> list[int] | None:
    """The n ratings that a reply lists, None unless it lists exactly n of the scale.

    Read are a JSON list of whole numbers, or an object whose one field is such a list,
    as `parse_json` finds them. A number in quotes or with a decimal point is a failure.
    """
    value = parse_json(reply)
    if value is None and "{" not in _spoken(reply):
        value = parse_json(reply, "[]")
    if isinstance(value, dict) and len(value) == 1:
        value = next(iter(value.values()))
    if not isinstance(value, list) or len(value) != n:
        return None
    rated = all(type(rating) is int and rating in scale for rating in value)
    return value if rated else None


def parse_json(reply: str | None, brackets: str = "{}") -> Any:
    """What stands from a reply's first opening bracket to its last closing one, read as
    JSON; None if that is not one JSON value or an object in it has a key twice.

    A `<think>` part may come first, and prose or a fence without such brackets stand
    around the value. Takes time linear in the reply's length.
    """
    text = _spoken(reply)
    part = text[text.find(brackets[0]) : text.rfind(brackets[1]) + 1]
    try:
        return json.loads(
            part or "null",
            object_pairs_hook=_without_doubles,
            strict=False,  # a line end in a string hides nothing
        )
    except (ValueError, RecursionError):
        return None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; raises ValueError if it has a key twice."""
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key is given twice")
    return dict(pairs)


def _json_values(text: str) -> Iterator[Any]:
    """The outermost JSON objects and lists in a text, up to one that is malformed.

    A bracket that opens no JSON is prose. Inside malformed JSON nothing is looked for:
    it may stand in a string that quotes a response.
    """
    decoder, at = json.JSONDecoder(strict=False), 0
    while opening := OPENING.search(text, at):
        try:
            value, at = decoder.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            if opening["json"]:
                return
            at = opening.end()
        else:
            yield value


def _spoken(reply: str | None) -> str:
    """A reply without the reasoning that it begins with."""
    text = (reply or "").strip()
    return text.partition("</think>")[2] if text.startswith("<think>") else text
