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
from collections.abc import Sequence
from enum import StrEnum

from factkit.data.spelling import LONGEST, plain, with_digits


class Outcome(StrEnum):
    """What a short answer is (TruthRL §2.1)."""

    CORRECT = "correct"
    ABSTAIN = "abstain"
    WRONG = "wrong"


class Support(StrEnum):
    """What evidence says of a claim (Binary RAR §6.2, VeriScore's labels)."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    INCONCLUSIVE = "inconclusive"


def outcome(response: str, answers: Sequence[str], question: str = "") -> Outcome:
    """The outcome of a short answer against its reference answers.

    Only the response's first line counts. It is correct if it is a reference answer
    framed by words that add no other: after "I think it is …", before "…, which …"
    (TruthRL Table 11: "exactly matches"; a "self-contradictory" prediction is wrong).
    So one that offers several answers or denies the reference is wrong, and so is the
    echoed question. A date gives its year.

    Numbers, dates and signs are compared by value (`spelling.plain`): a number with
    another sign, power of ten, era or currency is another answer, and so is one whose
    spelling is ambiguous. A line of `LONGEST` characters or more is no short answer:
    wrong, unless its beginning abstains.
    """
    line = (response.strip().splitlines() or [""])[0]
    if line and response.strip() in [answer.strip() for answer in answers]:
        return Outcome.CORRECT  # also the song "I Don't Know"
    beginning = plain(line[:LONGEST])
    echo, mark, rest = beginning.rpartition("?")
    offered = _offer(rest if mark and ASKING.match(echo) else beginning)
    if offered is None:
        return Outcome.ABSTAIN
    if len(line) >= LONGEST:
        return Outcome.WRONG
    asked = frozenset(_words(question.replace("percentage", "percent")))
    text = re.sub(r"'s\b", "", offered)
    for answer in map(plain, answers):
        if not CURRENCY.search(text):
            answer = CURRENCY.sub("", answer)
        number = with_digits(answer)
        if _gives(text, answer, asked) or (
            re.search(r"\d", number) and _gives(with_digits(text), number, asked)
        ):
            return Outcome.CORRECT
    return Outcome.WRONG


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
    given, *wanted = (
        " ".join(_without_articles(JOINT.sub(" ", plain(text))))
        for text in (response, *answers)
    )
    correct = any(text and f" {text} " in f" {given} " for text in wanted)
    return Outcome.CORRECT if correct else Outcome.WRONG


# ---- words

JOINT = re.compile(r"(?<=\d)_(?:to|over|colon)_(?=\d)")  # of two numbers


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


WORD = re.compile(r"\w+(?:'\w+)*")
BREAK = re.compile(r"\W*(?:[/,.;:!?()\[\]—–=]|\s-+\s)\W*")  # between phrases
ARTICLES = _set("a an the")
ASKING = re.compile(r"\W*(?:(?:in|on|of) )?(?:what|who|which|when|where|how)\b", re.I)


def normalise(text: str) -> str:
    """Case-folded text in one spelling (`spelling.plain`)."""
    return plain(text).casefold()


def _words(text: str) -> list[str]:
    """The words of a text in lower case, without possessive ends."""
    return WORD.findall(re.sub(r"'s\b", "", plain(text)).casefold())


def _without_articles(text: str) -> list[str]:
    """The words of a text, articles only if there is nothing else."""
    return [word for word in _words(text) if word not in ARTICLES] or _words(text)


# ---- abstention

CLAUSE = re.compile(r"[,.;:!?()—–]+\s*|\bbut\b\s*", re.IGNORECASE)  # its end
OPENS = re.compile(  # an answer after a doubt
    r"\b(?:but|maybe|perhaps|probably|best guess|i (?:think|guess|believe))\b", re.I
)
# "I don't … know": a negation and, among the next five words, one of these
DOUBT = re.compile(
    r"(?:^|\b(?:i|i'm|i've|me|my)\b.*)"
    r"(?:(?:it|is|the|you|sorry|do|have|there|of|this|that|answer|information) )*"
    r"(?:\b(?:not|no|never|nobody|cannot|dont|unable|lack|beyond)\b|\w+n't\b)"
    r"(?:\W+[\w']+){0,4}?\W+(?:know|knows|known|knowledgeable|sure|certain|idea|clue"
    r"|information|data|answer|record|recall|remember|say|tell|determined?|find|found"
    r"|provided?|help|able|aware|familiar|heard|guess|verify|available|specified|given"
    r"|stated|mentioned)(?![\w'])"
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
    return _offer(plain(response[:LONGEST])) is None


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
OPENERS = _set(  # of a phrase that may say anything: "In ancient Turkey"
    """according based from as if in looking given after since because when while though
    with by let to most many for off sure well okay"""
)
PARTICLES = _set("von van de der da di du la le el al of and a an the")  # of names
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
    r"|(?:.*, )?(?:or|nor|versus|as well as)\b"
    r"|.*\b(?:but|yet) (?:it|that) is\b|.*\b(?:maybe|possibly|perhaps|others)\b"
    r"|.*\b(?:below (?:zero|0|freezing)|bce?|before (?:christ|the common))\b"
)


BOUNDS = _set("up over under above below least nearly")  # before a number
NUMBER = re.compile(r"(?:minus_)?(\d+)")
CURRENCY = re.compile(r" (?:dollars|euros|pounds|yen|rupees)\b")
# After a number: it is part of another
PART = re.compile(
    r"(?:hundred|thousand|[mbtr]+illion|lakh|crore|dozen|score|percent|half|halves|third"
    r"|quarter|permille|cent|bp|times|squared|cubed|plus|minus|point|and|below|[xX]"
    r"|four|fif|six|seven|eigh|nin|ten)(?:th)?s?\b"
)


def _gives(text: str, answer: str, asked: frozenset[str]) -> bool:
    """Whether a response gives this reference answer and no other.

    asked: the words of the question, which an answer may repeat.
    """
    body = r"\W+(?:(?:an?|the)\W+)?".join(map(re.escape, _without_articles(answer)))
    # a date gives its year
    matches = re.finditer(rf"(?<!\w){body}(?:_\d+)*(?!\w|'\w)", text, re.IGNORECASE)
    return bool(body) and any(
        _leads(text[: m.start()], m[0], asked) and _ends(text, m, asked)
        for m in matches
    )


def _leads(before: str, answer: str, asked: frozenset[str]) -> bool:
    """Whether what stands before an answer leads to it.

    Other words in lower case may stand there where "is" or the like is beside them.
    """
    before = re.sub(r"(?:\b(?:an?|the)\W+)+$", "", before, flags=re.IGNORECASE)
    gap = re.search(r"\W*$", before)[0]
    every = WORD.findall(before.casefold())
    blocked = any(word in BLOCKED or "n't" in word for word in every)
    if blocked or gap == "-" or "/" in gap:
        return False
    phrases = [WORD.findall(part) for part in BREAK.split(before)]
    words = [w for part in phrases if not _opens(part) for w in part]
    lower = [word.casefold() for word in words]
    new = [i for i, word in enumerate(lower) if word not in FRAME | asked]
    if not new or ":" in gap and len(every) <= 3:
        return True  # "Short answer: …"
    if BREAK.fullmatch(gap) or any(words[i][0].isdigit() for i in new):
        return False
    rest = lower[new[-1] + 1 :]
    if NUMBER.match(answer):
        return bool(rest) and BOUNDS.isdisjoint(lower)  # "Eddy died in"
    passive = rest and new[0] and lower[new[0] - 1] in COPULAS  # "was written by"
    led = passive or not COPULAS.isdisjoint(rest)
    return bool(led) and not any(words[i][0].isupper() for i in new)


def _opens(phrase: Sequence[str]) -> bool:
    return bool(phrase) and phrase[0].casefold() in OPENERS


def _ends(text: str, match: re.Match[str], asked: frozenset[str]) -> bool:
    """Whether what stands after an answer belongs to it, or to another sentence."""
    before, answer, after = text[: match.start()], match[0], text[match.end() :]
    words = WORD.findall(after)
    if not words:
        return True
    tail = ", ".join(" ".join(WORD.findall(part)) for part in BREAK.split(after))
    if re.match(r"-\b|\W*/", after) or DENIED.match(tail.casefold()):
        return False
    if _is_list(after, asked):
        return False
    follows = words[0].casefold()
    if BREAK.match(after) or follows in asked:
        return True
    if number := NUMBER.match(answer):
        is_year = len(number[1]) == 4
        if _is_another(words, is_year):
            return False
        if not is_year or CURRENCY.match(f" {follows}"):
            return not words[0][0].isdigit()  # "26 protons"
    noun = re.search(r"\ban? $", before)  # "a French politician"
    verb = answer[0].isupper() and re.fullmatch("[a-z]{2,}(?:ed|s)", words[0])
    return words[0].islower() and bool(noun or verb or follows in FRAME)


def _is_another(words: Sequence[str], is_year: bool) -> bool:
    """Whether the words after a number make another of it: "2 thirds", "1 of them"."""
    if words[0] in ("of", "out", "that", "to", "who") and not is_year:
        return True
    to_another = words[0] == "to" and words[-1] != "to" and words[1][0].isdigit()
    return to_another or PART.match(words[0].casefold()) is not None


def _is_list(after: str, asked: frozenset[str]) -> bool:
    """Whether another name is set off from an answer: "Paris, Lyon, Nice"."""
    for mark in BREAK.finditer(after):
        words = WORD.findall(BREAK.split(after[mark.end() :])[0])
        item = [word for word in words if word.casefold() not in asked | PARTICLES]
        if item:
            names = all(word[0].isupper() or word[0].isdigit() for word in item)
            known = [word.casefold() in FRAME | asked for word in words]
            aside = words[0] == "not" or words[0].endswith("ly")  # "obviously"
            short = len(words) < 3 and not any(known) and not aside
            return "(" not in mark[0] and (names and not all(known) or short)
    return False
