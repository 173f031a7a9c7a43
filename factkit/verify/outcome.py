"""Rule-based verification of short answers: correct, abstain or wrong.

For what profiles tiny and laptop ask for, a name or a number in a few words. Richer
prose is a judge's (`verify.judge`), which takes from here only whether a response
abstains.

The rule for "I'm not sure, but it is Paris" is the paper's: only a response that
*abstains* is uncertain (TruthRL §2.1), a policy in doubt is told to answer "I don't
know" and nothing else (Table 9), and the judge grades the prediction given (Table 11).
So a response with doubts and an answer is that answer, right or wrong.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple


class Outcome(StrEnum):
    """What a short answer is (TruthRL §2.1)."""

    CORRECT = "correct"
    ABSTAIN = "abstain"
    WRONG = "wrong"


# ---- words


class Word(NamedTuple):
    """A word as compared, whether it was capitalised, and what is before it.

    gap: " ", "-", "/", ":" or "(", and "," for any other break.
    """

    text: str
    capital: bool
    gap: str


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
DATE = re.compile(rf"\b(?:\d\d? {MONTH}|{MONTH}(?: \d\d?)?),? [12]\d{{3}}\b", re.I)
NUMBER = re.compile(r"\d+(?:\.\d+|_\w+)?")  # or a date
WORD = re.compile(r"(?<!\w)\d+\.\d+(?!\w)|\w+(?:'\w+)*")
BREAK = re.compile(r"[/,.;:!?()\[\]—–=]|\s-+\s")
ARTICLES = _set("a an the")


def plain(text: str) -> str:
    """Text on one line with straight apostrophes, without diacritics and quotes."""
    text = unicodedata.normalize("NFKD", re.sub("[’‘]", "'", text))
    text = "".join(c for c in text if not unicodedata.combining(c))
    return " ".join(re.sub(r"[*_`\"“”„$€£]", "", text).split())


def normalise(text: str) -> str:
    """Case-folded text with straight apostrophes, no diacritics, single spaces."""
    return plain(text).casefold()


@lru_cache(maxsize=20_000)
def words(text: str) -> tuple[Word, ...]:
    """The words of an answer, a date one word: "1862_31_mar"."""
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", plain(text))  # "1,500"
    text = DATE.sub(_date, text)
    kept, end = [], 0
    for match in WORD.finditer(text):
        gap = text[end : match.start()]
        kind = "-" if gap == "-" else " "
        if BREAK.search(gap):
            kind = next((mark for mark in "/:(" if mark in gap), ",")
        kept.append(Word(match[0].casefold(), match[0][0].isupper(), kind))
        end = match.end()
    return tuple(kept)


def _date(match: re.Match[str]) -> str:
    *parts, year = re.findall(r"\w+", match[0].casefold())
    return "_".join([year, *sorted(part[:3] for part in parts)])


def _same(wanted: str, given: str) -> bool:
    """Whether a word is the wanted one, or a date of the wanted year."""
    return given == wanted or "_" in given and given.partition("_")[0] == wanted


def _wanted(answer: str) -> list[str]:
    """The words of a reference answer, articles only if there is nothing else."""
    texts = [word.text for word in words(answer)]
    return [text for text in texts if text not in ARTICLES] or texts


# ---- abstention

CLAUSE = re.compile(r"[,.;:!?()—–]+\s*|\bbut\b\s*", re.IGNORECASE)  # its end
OPENS = re.compile(  # an answer after a doubt
    r"\b(?:but|maybe|perhaps|probably|best guess|i (?:think|guess|believe))\b", re.I
)
# "I don't … know": a negation and, among the next five words, one of these
DOUBT = re.compile(
    r"(?:^|\b(?:i|i'm|i've|me|my)\b.*)"
    r"(?:(?:it|is|the|sorry|do|have|there|of|this|that|answer|information) )*"
    r"(?:\b(?:not|no|never|nobody|cannot|dont|unable|lack|beyond)\b|\w+n't\b)"
    r"(?:\W+\w+){0,4}?\W+(?:know\w*|sure|certain|idea|clue|information|data|answer"
    r"|record|recall|remember|say|tell|determined?|find|found|provide|help|able|aware"
    r"|familiar|heard|guess|verify|available)\b"
    r"|\b(?:unknown|unclear|unsure|uncertain|stumped|forgot|insufficient information)"
    r"(?: (?:to me|from .*))?$"
    r"|\b(?:references?|documents?|text|information)\b.*(?:\bnot|n't) (?:mention|say)",
    re.IGNORECASE,
)
# What is no answer: words of courtesy, and clauses that begin so
EMPTY = _set(
    """sorry afraid unfortunately honestly well hmm oh sure okay ok so no and but
    however though that this it is the a an answer i i'm am have to be just thanks"""
)
BESIDE = re.compile(
    r"(?:if|because|as|since|you|please|i (?!think|guess|believe|would))\b", re.I
)


def abstains(response: str) -> bool:
    """Whether a response says that it doesn't know, and gives no answer besides."""
    return _offer(plain(response)) is None


def _offer(text: str) -> str | None:
    """The part of a response that gives an answer, None if it abstains: before the
    first clause that doubts, or after a "but" or a guess."""
    breaks = list(CLAUSE.finditer(text))
    starts = [0, *(match.end() for match in breaks)]
    ends = [*(match.start() for match in breaks), len(text)]
    clauses = [text[a:b].strip() for a, b in zip(starts, ends, strict=True)]
    doubts = [bool(DOUBT.search(clause)) for clause in clauses]
    if not any(doubts):
        return text
    first = doubts.index(True)
    if any(map(_tells, clauses[:first])):
        return text[: ends[first - 1]]
    for i in range(first + 1, len(clauses)):
        led = OPENS.search(text, ends[first], ends[i])
        if led and _tells(clauses[i]) and not doubts[i]:
            return _offer(text[starts[i] :])
    return None


def _tells(clause: str) -> bool:
    """Whether a clause may hold an answer."""
    empty = EMPTY.issuperset(re.findall(r"[\w']+", clause.casefold()))
    return not empty and not BESIDE.match(clause)


# ---- outcomes

ASKING = re.compile(r"\W*(?:(?:in|on|of) )?(?:what|who|which|when|where|how)\b", re.I)


def outcome(response: str, answers: Sequence[str], question: str = "") -> Outcome:
    """The outcome of a short answer against its reference answers.

    Only the response's first line counts. It is correct if it is a reference answer
    framed by words that add no other: after "I think it is …", before "…, which …"
    (TruthRL Table 11: "exactly matches"; a "self-contradictory" prediction is wrong).
    So one that offers several answers or denies the reference is wrong, and so is the
    echoed question. A date gives its year.
    """
    line = (response.strip().splitlines() or [""])[0]
    if line and response.strip() in [answer.strip() for answer in answers]:
        return Outcome.CORRECT  # also the song "I Don't Know"
    echo, mark, rest = plain(line).rpartition("?")
    offered = _offer(rest if mark and ASKING.match(echo) else plain(line))
    if offered is None:
        return Outcome.ABSTAIN
    given, asked = words(offered), frozenset(w.text for w in words(question))
    correct = any(_gives(given, _wanted(answer), asked) for answer in answers)
    return Outcome.CORRECT if correct else Outcome.WRONG


def exact(response: str, answers: Sequence[str], question: str = "") -> Outcome:
    """The outcome by string matching alone: Table 7's rule-based verifier.

    Correct only if the response, stripped, is a reference answer letter by letter.
    """
    if abstains(response):
        return Outcome.ABSTAIN
    correct = response.strip() in [answer.strip() for answer in answers]
    return Outcome.CORRECT if correct else Outcome.WRONG


def contains(response: str, answers: Sequence[str], question: str = "") -> Outcome:
    """The outcome by containment, as many open-domain scores have it: correct if a
    reference answer occurs in the response as whole words, whatever else it says."""
    if abstains(response):
        return Outcome.ABSTAIN
    given = _spaced(w.text for w in words(response) if w.text not in ARTICLES)
    wanted = filter(None, map(_wanted, answers))
    correct = any(_spaced(texts) in given for texts in wanted)
    return Outcome.CORRECT if correct else Outcome.WRONG


def _spaced(texts: Iterable[str]) -> str:
    return f" {' '.join(texts)} "


# ---- whether other words only frame an answer

# They add nothing to it: "It was in Paris."
FRAME = ARTICLES | _set(
    """it it's its he she they we you i i'm i'd his her their our my your me one this
    that that's these there is was are were be been being am in of on at by to from for
    as with who what which if answer answers response question q called named known city
    country place year name number element final correct right best true think believe
    guess say said suppose know sure would will could may might must should have has had
    do does did let let's ought going go just most very quite pretty well hmm so then
    yes too also indeed actually clearly probably likely possibly maybe perhaps surely
    certainly definitely based according about around because since whose where when
    while after before during until became won wrote made played led gave took seems"""
)
COPULAS = _set("is was are were")
# Before an answer, these turn it down or set another beside it.
BLOCKED = _set(
    """not no never cannot neither nor or either both between except than unlike hardly
    doubt wrong false incorrect instead others nobody versus rather without but and
    almost far"""
)
# After an answer: it is denied, or another follows.
DENIED = re.compile(
    r"(?:, (?:which|it|that) )?(?:(?:is|was|are|were|does|did) ?)?"
    r"(?:n't|not|never|false|wrong|incorrect)\b(?! only)"
    r"|(?:, )?(?:nor|versus|as well as)\b"
    r"|.*\b(?:but|yet) (?:it|that) is\b|.*\b(?:or|maybe|possibly|perhaps|others)\b"
)
VERB = re.compile(r"[a-z]{2,}(?:ed|s)")


def _gives(given: Sequence[Word], wanted: Sequence[str], asked: frozenset[str]) -> bool:
    """Whether the words of a response give this reference answer and no other.

    asked: the words of the question, which an answer may repeat.
    """
    kept = [i for i, word in enumerate(given) if word.text not in ARTICLES]
    for k in range(len(kept) - len(wanted) + 1 if wanted else 0):
        at = kept[k : k + len(wanted)]
        if all(_same(text, given[i].text) for text, i in zip(wanted, at, strict=True)):
            first, left, right = given[at[0]], given[: at[0]], given[at[-1] + 1 :]
            if _leads(left, first, asked) and _ends(right, first, asked):
                return True
    return False


def _leads(left: Sequence[Word], first: Word, asked: frozenset[str]) -> bool:
    """Whether what stands before an answer's first word leads to it.

    Other words in lower case may stand there where "is" or the like is beside them.
    """
    while left and left[-1].text in ARTICLES:
        left, first = left[:-1], first._replace(gap=left[-1].gap)
    blocked = any(word.text in BLOCKED or "n't" in word.text for word in left)
    if blocked or first.gap in ("/", "-"):
        return False
    new = [i for i, word in enumerate(left) if not _known(word, asked)]
    if not new or first.gap == ":" and len(left) <= 3:
        return True  # "Short answer: …"
    others, rest = [left[i] for i in new], left[new[-1] + 1 :]
    if first.gap != " " or any(NUMBER.fullmatch(word.text) for word in others):
        return False
    if NUMBER.fullmatch(first.text):
        return bool(rest)  # "Eddy died in"
    passive = rest and new[0] and left[new[0] - 1].text in COPULAS  # "was written by"
    copula = any(word.text in COPULAS for word in rest)
    return bool(passive or copula) and not any(word.capital for word in others)


def _ends(right: Sequence[Word], first: Word, asked: frozenset[str]) -> bool:
    """Whether what stands after an answer belongs to it, or to another sentence."""
    if not right:
        return True
    after = right[0]
    tail = "".join(f"{', ' if w.gap in ',:(' else ''}{w.text} " for w in right)
    if after.gap in ("/", "-") or DENIED.match(tail):
        return False
    breaks = [i for i, word in enumerate(right) if word.gap in ",:("]
    start, end = [*breaks, len(right), len(right)][:2]
    item = [word for word in right[start:end] if word.text not in asked]
    names = all(word.capital or NUMBER.fullmatch(word.text) for word in item)
    if item and item[0].gap != "(" and (names or len(item) == 1 and not first.capital):
        return all(word.text in FRAME for word in item)  # "Paris, Lyon, Nice"
    if after.gap in (",", ":", "("):
        return True
    if after.capital:
        return after.text in asked
    return _known(after, asked) or bool(first.capital and VERB.fullmatch(after.text))


def _known(word: Word, asked: frozenset[str]) -> bool:
    return word.text in FRAME or word.text in asked
