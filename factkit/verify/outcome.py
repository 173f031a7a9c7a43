"""Rule-based verification of short answers: correct, abstain or wrong."""

import re
import unicodedata
from collections.abc import Sequence
from enum import StrEnum


class Outcome(StrEnum):
    """What a short answer is (TruthRL §2.1)."""

    CORRECT = "correct"
    ABSTAIN = "abstain"
    WRONG = "wrong"


ABSTENTION = re.compile(
    r"\b(i (do not|don't|dont) (really )?know|i am not (sure|certain)|i'm not (sure|"
    r"certain)|not sure|no idea|i (cannot|can't|can not) (answer|say|tell|determine)"
    r"|unsure|uncertain|unknown|(it is|it's) not known)\b"
)
# Words that frame an answer without adding to it: "It was in Paris." is "Paris".
FRAME = frozenset(
    "it its he she they his her is was were are be been in of on at by to from"
    " for as that this which answer answers called named known city country place year"
    " name".split()
)
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")


def normalise(text: str) -> str:
    """Case-folded text with straight apostrophes, no diacritics, single spaces."""
    text = unicodedata.normalize("NFKD", text.replace("’", "'").replace("‘", "'"))
    text = "".join(c for c in text if not unicodedata.combining(c))
    return " ".join(text.casefold().split())


def abstains(response: str) -> bool:
    """Whether a response says that it doesn't know."""
    return ABSTENTION.search(normalise(response)) is not None


def outcome(response: str, answers: Sequence[str], question: str = "") -> Outcome:
    """The outcome of a short answer against its reference answers.

    Only the response's first line counts. A numeric reference is compared as a number
    and must be the only number of its kind in the response. Otherwise the response,
    without framing words and words of the question, must be one of the answers: a
    response that offers several is therefore wrong, and so is an empty one.
    """
    line = (response.strip().splitlines() or [""])[0]
    if abstains(line):
        return Outcome.ABSTAIN
    if any(_matches(line, answer, question) for answer in answers):
        return Outcome.CORRECT
    return Outcome.WRONG


def exact(response: str, answers: Sequence[str], question: str = "") -> Outcome:
    """The outcome by string matching alone: Table 7's rule-based verifier.

    Correct only if the response, stripped, is a reference answer letter by letter:
    no aliases of wording, no framing words, no numbers compared as numbers.
    """
    if abstains(response):
        return Outcome.ABSTAIN
    found = response.strip() in [answer.strip() for answer in answers]
    return Outcome.CORRECT if found else Outcome.WRONG


def contains(response: str, answers: Sequence[str], question: str = "") -> Outcome:
    """The outcome by containment, as many open-domain scores have it: correct if a
    reference answer occurs in the response as whole words, whatever else it says."""
    if abstains(response):
        return Outcome.ABSTAIN
    said = _words(response), re.findall(r"\w+", normalise(response))
    wanted = [_words(answer) for answer in answers]
    found = any(
        words and f" {' '.join(words)} " in f" {' '.join(there)} "
        for words in wanted
        for there in said
    )
    return Outcome.CORRECT if found else Outcome.WRONG


def _matches(line: str, answer: str, question: str) -> bool:
    """Whether one line of response gives this reference answer and no other."""
    if NUMBER.fullmatch(answer.strip()):
        given = {_number(n) for n in NUMBER.findall(line)} - {
            _number(n) for n in NUMBER.findall(question)
        }
        if _is_year(answer):  # a date also holds a day
            given = {n for n in given if n >= 100}
        return given == {_number(answer)}
    ignored = FRAME | set(_words(question))
    wanted = _words(answer)
    said = [w for w in _words(line) if w not in ignored or w in wanted]
    return wanted == said


def _words(text: str) -> list[str]:
    """Normalised words without articles and possessive endings."""
    words = re.findall(r"\w+", normalise(text).replace("'s ", " "))
    return [w for w in words if w not in ("a", "an", "the")] or words


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _is_year(text: str) -> bool:
    return re.fullmatch(r"1\d{3}|20\d{2}", text.strip()) is not None
