"""Short answers as words that can be compared: dates and numbers in one form."""

import re
import unicodedata
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

ARTICLES = frozenset(("a", "an", "the"))
MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
DAY, YEAR = r"(?:\d{1,2}(?:st|nd|rd|th)?\b\.?)", r"(?:[12]\d{3}\b)"
DATE = re.compile(
    rf"\b(?:{DAY} (?:of )?{MONTH}(?:(?: of|,)? {YEAR})?"
    rf"|{MONTH} (?:the )?{DAY}(?:,? {YEAR})?|{MONTH},? {YEAR}"
    rf"|{YEAR}([-/.])\d{{1,2}}\1\d{{1,2}}\b|\d{{1,2}}([-/.])\d{{1,2}}\2{YEAR})",
    re.IGNORECASE,
)
SCALED = re.compile(r"(\d+(?:\.\d+)?) (1000(?:000){0,3})\b")
WORD = re.compile(r"(?<!\w)-?\d+\.\d+(?!\w)|(?<!\S)-\d+|\w+(?:'\w+)*")
INITIALS = re.compile(r"\b(?:[A-Z]\.\s?){2,}")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
A_DATE = re.compile(r"(\d*)_(\d+)_(\d*)")  # `plain` leaves no other underscore
BREAK = re.compile(r"[/,.;:!?()\[\]—–=]|\s-+\s|\n")


class Word(NamedTuple):
    """A word of an answer: as compared, whether it was capitalised, what is before it.

    gap: " "; "-" between joined words; "/", ":", "(", and "," for any other break.
    """

    text: str
    capital: bool
    gap: str


def plain(text: str) -> str:
    """Text with straight apostrophes and without diacritics, quotes and emphasis."""
    text = text.replace("’", "'").replace("‘", "'").replace("–", " – ")
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text)
        text = "".join(c for c in text if not unicodedata.combining(c))
    return re.sub(r"[*_`\"“”„$€£]|\s+", _space, text).strip()


@lru_cache(maxsize=20_000)
def words(text: str) -> tuple[Word, ...]:
    """The words of an answer, numbers in digits, a date one word ("1868_12_9").

    The possessive ending is dropped, and so are the full stops of initials.
    """
    from text_to_num import alpha2digit

    text = INITIALS.sub(lambda m: re.sub(r"\W", "", m[0]) + " ", plain(text))
    text = text.replace("%", " percent").replace("&", " and ")
    parts = re.split(r"(\b[oO]\b)", text)  # the library reads the letter as zero
    digits = "".join(p if p in "oO" else alpha2digit(p, "en", 0) for p in parts)
    if any(c.isdigit() for c in digits):
        digits = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", digits)
        digits = re.sub(r"\b(1[1-9]|20) (\d\d)\b(?! \d)", r"\1\2", digits)
        digits = SCALED.sub(lambda m: f"{float(m[1]) * int(m[2]):.0f}", digits)
        digits = DATE.sub(lambda m: _date(m[0]), digits)
    found, end = [], 0
    for match in WORD.finditer(digits):
        gap = digits[end : match.start()]
        joined = gap if gap == "-" else " "
        word = match[0].removesuffix("'s").removesuffix("'")
        form = _number(word) if NUMBER.fullmatch(word) else word.casefold()
        if form:
            kind = joined
            if BREAK.search(gap):
                kind = next((mark for mark in "/:(" if mark in gap), ",")
            found.append(Word(form, word[0].isupper(), kind))
        end = match.end()
    return tuple(found)


def is_number(word: str) -> bool:
    """Whether a word is a number or a date."""
    return bool(NUMBER.fullmatch(word) or A_DATE.fullmatch(word))


def same(wanted: str, said: str) -> bool:
    """Whether a word says what is wanted: the same, or a date that holds it.

    A year is given by a date of that year, a date without a year by one with it; a
    date is not given by its year alone.
    """
    date = A_DATE.fullmatch(said)
    if date is None or wanted == said:
        return wanted == said
    parts = A_DATE.fullmatch(wanted)
    if parts is None:
        return wanted == date[1]
    return all(w in ("", s) for w, s in zip(parts.groups(), date.groups(), strict=True))


def _space(match: re.Match[str]) -> str:
    return " " if match[0].isspace() else ""


def _number(text: str) -> str:
    value = float(text)
    return str(int(value)) if value.is_integer() else str(value)


@lru_cache(maxsize=20_000)
def _date(text: str) -> str:
    """A date as year_month_day, of which the year or day may be missing; else the text.

    12/09/1868 is 9 December, as the paper writes its dates (Table 9); 9.12.1868 is too.
    """
    from dateutil import parser

    clean = re.sub(r"(?i)\bthe\b", "", text)
    try:
        read = [
            parser.parse(clean, default=default, dayfirst="." in clean[:6])
            for default in (datetime(2000, 1, 1), datetime(2004, 2, 2))
        ]
    except (ValueError, OverflowError):
        return text
    parts = ((getattr(d, name) for d in read) for name in ("year", "month", "day"))
    return "_".join(str(a) if a == b else "" for a, b in parts)
