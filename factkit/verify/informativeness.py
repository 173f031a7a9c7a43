"""How informative a statement is, 1 to 5 (RLFH §3.1.3, Tables 4 and 7), by rules alone:
what the kit has where no language model rates.

Words are compared by their stems, without hedges, function words and words of asking
("tell", "describe"). A question's entity is its names and numbers, or all its words if
it has none; what it asks by are its other words. The first rule that fits decides:

- 1: it says again what an earlier statement of the response has said, or nothing that
  the question does not say, unless that gives a choice or is one of yes and no;
- 2: it shares no word with the entity;
- 5: it answers the question. It has more than half of the words that are asked by, and
  a number or date that the question lacks ("when", "how many"), a name ("who", "where")
  or else any word; given a choice, none need be new. Where nothing in particular is
  asked ("Who was …?", "Tell me about …"), it says what something is: "… was a poet";
- 4: it has a number, a date or a name that the question lacks;
- 3: else.

What rules can't see: which fact matters, paraphrases ("wrote", "written by"), and that
a name is another's. Truth and hedges play no part.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from factkit.verify.claims import FUNCTION_WORDS
from factkit.verify.hedges import without_hedges

ASKING = frozenset(
    """who whom whose what which when where why how do does did can could will would
    should please tell give describe explain write discuss list name provide share show
    say know me my you your i we us about like some any more everything something facts
    information details biography bio life story paragraph sentence sentences summary
    short brief briefly question answer following""".split()
)
MONTHS = frozenset(
    """january february march april may june july august september october november
    december""".split()
)
NUMBERS = frozenset(
    """two three four five six seven eight nine ten eleven twelve dozen hundred thousand
    million billion""".split()
)
LEFT_OUT = FUNCTION_WORDS - NUMBERS
WORD = re.compile(r"[^\W_]+(?:[.,'’][^\W_]+)*")
POSSESSIVE = re.compile(r"['’]s$")
SUFFIX = re.compile(r"(?<=...)(?:ing|ed|es|s|e)$")
INITIAL = re.compile(r"(?:^|[.?!:\n])\W*\w")
ASKS_NUMBER = re.compile(
    r"\bwhen\b|\bhow (?:many|much|old|long|tall|high|far|big|large|deep|wide|heavy"
    r"|fast|often)\b|\b(?:what|which) (?:year|date|day|month|decade|century|number)\b",
    re.IGNORECASE,
)
ASKS_NAME = re.compile(r"\b(?:who|whom|whose|where)\b", re.IGNORECASE)
CHOICE = re.compile(
    r"\bor\b|(?:^|[.?!,]\s+)(?:is|are|was|were|do|does|did|has|have|had|can|could)\b",
    re.IGNORECASE,
)
IDENTITY = re.compile(r"\b(?:is|are|was|were) (?:an?|the|one of)\b")


def ratings(question: str, statements: Sequence[str]) -> list[int]:
    """The informativeness of each statement of a response, 1–5, by the rules above."""
    asked, seen, found = _ask(question), set(), []
    for statement in statements:
        same = _read(without_hedges(statement)).stems
        found.append(1 if same in seen else _rating(statement, asked))
        seen.add(same)
    return found


@dataclass(frozen=True)
class _Text:
    """A text's stems in order, and those that are names, numbers and months."""

    stems: tuple[str, ...]
    names: frozenset[str]
    numbers: frozenset[str]


@dataclass(frozen=True)
class _Question:
    """said: all its stems; entity, asked: of these, as above; number, name: whether it
    asks for one; choice: whether an answer may be in it."""

    said: frozenset[str]
    entity: frozenset[str]
    asked: frozenset[str]
    number: bool
    name: bool
    choice: bool


def _read(text: str, left_out: frozenset[str] = LEFT_OUT) -> _Text:
    found = [POSSESSIVE.sub("", word) for word in WORD.findall(text)]
    kept = [word for word in found if word.casefold() not in left_out]
    stems = [SUFFIX.sub("", word.casefold()) for word in kept]
    numbers, names = set(), set()
    for word, stem in zip(kept, stems, strict=True):
        month = word.istitle() and word.casefold() in MONTHS
        if month or word[0].isdigit() or word.casefold() in NUMBERS:
            numbers.add(stem)
        elif word[0].isupper():
            names.add(stem)
    return _Text(tuple(stems), frozenset(names), frozenset(numbers))


def _ask(question: str) -> _Question:
    plain = INITIAL.sub(lambda found: found[0].lower(), question)
    read = _read(plain, LEFT_OUT | ASKING)
    said, named = frozenset(read.stems), read.names | read.numbers
    return _Question(
        said,
        entity=named or said,
        asked=said - named if named or len(said) > 1 else frozenset(),
        number=ASKS_NUMBER.search(question) is not None,
        name=ASKS_NAME.search(question) is not None,
        choice=CHOICE.search(question) is not None,
    )


def _rating(statement: str, question: _Question) -> int:
    """The rating of a statement that is no repeat."""
    plain = without_hedges(statement)
    text = _read(plain)
    if question.said.issuperset(text.stems) and not question.choice:
        return 1
    if question.entity.isdisjoint(text.stems):
        return 2
    if _answers(plain, text, question):
        return 5
    return 4 if (text.numbers | text.names) - question.said else 3


def _answers(statement: str, text: _Text, question: _Question) -> bool:
    stems = frozenset(text.stems)
    if not question.asked and not question.choice:
        return IDENTITY.search(statement) is not None
    if question.asked:
        enough = 2 * len(question.asked & stems) > len(question.asked)
    else:  # "Is Ben Nevis in Scotland?"
        enough = question.entity <= stems
    wanted = text.numbers if question.number else text.names if question.name else stems
    return enough and (question.choice or not wanted <= question.said)
