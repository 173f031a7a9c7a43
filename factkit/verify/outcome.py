"""Outcomes of short answers by rules: correct, abstain or wrong.

For names and numbers in a few words, as profiles tiny and laptop request. Longer prose
needs a judge (`verify.judge`), which uses only `abstains` from here.

A response with doubts and an answer is that answer, right or wrong, as in the paper:
only a response that *abstains* is uncertain (TruthRL §2.1), the prompt asks for "I
don't know" alone (Table 9), and the judge grades the prediction (Table 11).
"""

import re
from collections.abc import Sequence
from enum import StrEnum

from factkit.data.spelling import LONGEST, plain, with_digits


class Outcome(StrEnum):
    """The outcomes of a short answer (TruthRL §2.1)."""

    CORRECT = "correct"
    ABSTAIN = "abstain"
    WRONG = "wrong"


class Support(StrEnum):
    """The labels of a claim by its evidence (Binary RAR §6.2, as VeriScore's)."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    INCONCLUSIVE = "inconclusive"


def grade_by_rules(
    response: str, answers: Sequence[str], question: str = ""
) -> Outcome:
    """Grade a short answer against its reference answers.

    Only the first line counts. It is correct if it is a reference answer framed by
    words that add no other: after "I think it is …", before "…, which …" (TruthRL Table
    11: "exactly matches"; a "self-contradictory" prediction is wrong). Several answers,
    a denied reference and the repeated question are wrong. A date gives its year.

    Numbers, dates and signs are compared by value (`spelling.plain`): another sign,
    power of ten, era or currency is another answer, and so is an ambiguous spelling. A
    line of `LONGEST` characters is wrong, unless its beginning abstains.
    """
    line = (response.strip().splitlines() or [""])[0]
    if line and response.strip() in [answer.strip() for answer in answers]:
        return Outcome.CORRECT  # also the song "I Don't Know"
    beginning = plain(line[:LONGEST])
    echo, mark, rest = beginning.rpartition("?")
    offered = _find_answer(rest if mark and ASKING.match(echo) else beginning)
    if offered is None:
        return Outcome.ABSTAIN
    if len(line) >= LONGEST:
        return Outcome.WRONG
    asked = frozenset(_split_words(question.replace("percentage", "percent")))
    text = re.sub(r"'s\b", "", offered)
    for answer in map(plain, answers):
        if not CURRENCY.search(text):
            answer = CURRENCY.sub("", answer)
        number = with_digits(answer)
        if _states(text, answer, asked) or (
            re.search(r"\d", number) and _states(with_digits(text), number, asked)
        ):
            return Outcome.CORRECT
    return Outcome.WRONG


def grade_by_exact_match(
    response: str, answers: Sequence[str], question: str = ""
) -> Outcome:
    """Grade by equality with a reference answer: Table 7's rule-based verifier."""
    if abstains(response):
        return Outcome.ABSTAIN
    correct = response.strip() in [answer.strip() for answer in answers]
    return Outcome.CORRECT if correct else Outcome.WRONG


def grade_by_containment(
    response: str, answers: Sequence[str], question: str = ""
) -> Outcome:
    """Grade by whether the response contains a reference answer as whole words."""
    if abstains(response):
        return Outcome.ABSTAIN
    given, *wanted = (
        " ".join(_drop_articles(JOINT.sub(" ", plain(text))))
        for text in (response, *answers)
    )
    correct = any(text and f" {text} " in f" {given} " for text in wanted)
    return Outcome.CORRECT if correct else Outcome.WRONG


# ---- words

JOINT = re.compile(r"(?<=\d)_(?:to|over|colon)_(?=\d)")  # of two numbers
WORD = re.compile(r"\w+(?:'\w+)*")
BREAK = re.compile(r"\W*(?:[/,.;:!?()\[\]—–=]|\s-+\s)\W*")  # between phrases
ARTICLES = frozenset("a an the".split())
ASKING = re.compile(r"\W*(?:(?:in|on|of) )?(?:what|who|which|when|where|how)\b", re.I)


def _split_words(text: str) -> list[str]:
    """Split a text into words in lower case, without possessive endings."""
    return WORD.findall(re.sub(r"'s\b", "", plain(text)).casefold())


def _drop_articles(text: str) -> list[str]:
    """Split a text into words, articles only if it has no others."""
    words = _split_words(text)
    return [word for word in words if word not in ARTICLES] or words


# ---- abstention

CLAUSE_END = re.compile(r"[,.;:!?()—–]+\s*|\bbut\b\s*", re.IGNORECASE)
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
# Not answers: words of courtesy, and clauses that begin in this way
EMPTY = frozenset(
    """sorry afraid unfortunately honestly well hmm oh sure okay ok so no and but
    however though that this it is the a an answer i i'm am have to be just
    thanks""".split()
)
BESIDE = re.compile(
    r"(?:if|because|as|since|you|please|i (?!think|guess|believe|would))\b", re.I
)


def abstains(response: str) -> bool:
    """Whether a response says that it does not know, and gives no answer."""
    return _find_answer(plain(response[:LONGEST])) is None


def _find_answer(text: str) -> str | None:
    """Find the part of a response that answers: before the first clause of doubt, or
    after a "but" or a guess. None if it abstains."""
    breaks = list(CLAUSE_END.finditer(text))
    starts = [0, *(match.end() for match in breaks)]
    ends = [*(match.start() for match in breaks), len(text)]
    clauses = [text[a:b].strip() for a, b in zip(starts, ends, strict=True)]
    doubts = [bool(DOUBT.search(clause)) for clause in clauses]
    if not any(doubts):
        return text
    first = doubts.index(True)
    if any(map(_may_answer, clauses[:first])):
        return text[: ends[first - 1]]
    for i in range(first + 1, len(clauses)):
        led = OPENS.search(text, ends[first], ends[i])
        if led and _may_answer(clauses[i]) and not doubts[i]:
            return _find_answer(text[starts[i] :])
    return None


def _may_answer(clause: str) -> bool:
    empty = EMPTY.issuperset(re.findall(r"[\w']+", clause.casefold()))
    return not empty and not BESIDE.match(clause)


# ---- whether other words only frame an answer

# These add nothing to it: "It was in Paris."
FRAME = ARTICLES | frozenset(
    """it it's its he she they we you i i'm i'd his her their our my your me one this
    that that's these there is was are were be been being am in of on at by to from for
    as with who what which if answer answers response question q called named known city
    country place year name number element final correct right best true think believe
    guess say said suppose know sure would will could may might must should have has had
    do does did let let's ought going go just most very quite pretty well hmm so then
    yes too also indeed actually clearly probably likely possibly maybe perhaps surely
    certainly definitely based according about around because since whose where when
    while after before during until became won wrote made played led gave took
    seems""".split()
)
COPULAS = frozenset("is was are were".split())
OPENERS = frozenset(  # of a phrase that may say anything: "In ancient Turkey"
    """according based from as if in looking given after since because when while though
    with by let to most many for off sure well okay""".split()
)
PARTICLES = frozenset(
    "von van de der da di du la le el al of and a an the".split()
)  # of names
# Before an answer: it is denied, or another is given.
BLOCKED = frozenset(
    """not no never cannot neither nor or either both between except than unlike hardly
    doubt wrong false incorrect instead others nobody versus rather without but and
    almost far""".split()
)
# After an answer: it is denied, or another is given.
DENIED = re.compile(
    r"(?:, (?:which|it|that) )?(?:(?:is|was|are|were|does|did) ?)?"
    r"(?:n't|not|never|false|wrong|incorrect)\b(?! only)"
    r"|(?:.*, )?(?:or|nor|versus|as well as)\b"
    r"|.*\b(?:but|yet) (?:it|that) is\b|.*\b(?:maybe|possibly|perhaps|others)\b"
    r"|.*\b(?:below (?:zero|0|freezing)|bce?|before (?:christ|the common))\b"
)
BOUNDS = frozenset("up over under above below least nearly".split())  # before a number
NUMBER = re.compile(r"(?:minus_)?(\d+)")
CURRENCY = re.compile(r" (?:dollars|euros|pounds|yen|rupees)\b")
# After a number: it is part of another number
PART = re.compile(
    r"(?:hundred|thousand|[mbtr]+illion|lakh|crore|dozen|score|percent|half|halves|third"
    r"|quarter|permille|cent|bp|times|squared|cubed|plus|minus|point|and|below|[xX]"
    r"|four|fif|six|seven|eigh|nin|ten)(?:th)?s?\b"
)


def _states(text: str, answer: str, asked: frozenset[str]) -> bool:
    """Whether a response states this answer and no other. asked: the question's words,
    which the response may repeat."""
    body = r"\W+(?:(?:an?|the)\W+)?".join(map(re.escape, _drop_articles(answer)))
    # a date gives its year
    matches = re.finditer(rf"(?<!\w){body}(?:_\d+)*(?!\w|'\w)", text, re.IGNORECASE)
    return bool(body) and any(
        _leads_to(text[: m.start()], m[0], asked) and _ends_at(text, m, asked)
        for m in matches
    )


def _leads_to(before: str, answer: str, asked: frozenset[str]) -> bool:
    """Whether the text before an answer introduces it. Other words in lower case may
    occur there beside "is", "was" or the like."""
    before = re.sub(r"(?:\b(?:an?|the)\W+)+$", "", before, flags=re.IGNORECASE)
    gap = re.split(r"\w", before)[-1]
    every = WORD.findall(before.casefold())
    blocked = any(word in BLOCKED or "n't" in word for word in every)
    if blocked or gap == "-" or "/" in gap:
        return False
    phrases = [WORD.findall(part) for part in BREAK.split(before)]
    started = [p for p in phrases if not p or p[0].casefold() not in OPENERS]
    words = [word for phrase in started for word in phrase]
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


def _ends_at(text: str, match: re.Match[str], asked: frozenset[str]) -> bool:
    """Whether the text after an answer belongs to it, or to another sentence."""
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
    """Whether a number is part of another with the words after it: "2 thirds"."""
    if words[0] in ("of", "out", "that", "to", "who") and not is_year:
        return True
    to_another = words[0] == "to" and words[-1] != "to" and words[1][0].isdigit()
    return to_another or PART.match(words[0].casefold()) is not None


def _is_list(after: str, asked: frozenset[str]) -> bool:
    """Whether another name follows an answer: "Paris, Lyon, Nice"."""
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
