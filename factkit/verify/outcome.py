"""Rule-based verification of short answers: correct, abstain or wrong."""

import re
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache

from factkit.verify.abstention import offer
from factkit.verify.framing import ends, leads
from factkit.verify.values import ARTICLES, Word, is_number, plain, same, words


class Outcome(StrEnum):
    """What a short answer is (TruthRL §2.1)."""

    CORRECT = "correct"
    ABSTAIN = "abstain"
    WRONG = "wrong"


ASKING = re.compile(
    r"\W*(?:(?:question|q|you asked)\W+)?(?:(?:in|on|at|to|for|of|from|by) )?"
    r"(?:what|who|whom|whose|which|when|where|why|how)\b",
    re.IGNORECASE,
)
CERTAIN = re.compile(
    r"\b(?:without (?:a |any )?|no |little |beyond )(?:doubt|question)\b|\b100 ?%",
    re.IGNORECASE,
)
ABOUT = frozenset(  # may stand before a number in a reference
    """about approximately around nearly almost roughly over monday tuesday wednesday
    thursday friday saturday sunday""".split()
)


def normalise(text: str) -> str:
    """Case-folded text with straight apostrophes, no diacritics, single spaces."""
    return " ".join(plain(text).casefold().split())


def abstains(response: str) -> bool:
    """Whether a response says that it doesn't know, and gives no answer besides."""
    return offer(plain(response)) is None


def outcome(response: str, answers: Sequence[str], question: str = "") -> Outcome:
    """The outcome of a short answer against its reference answers.

    Only the response's first line counts. Doubts beside an answer don't make it an
    abstention (`abstention.offer`). An answer is correct if it is a reference answer,
    dates and numbers compared as such, framed by words that add no other: after "I
    think it is …", before "…, because …" (TruthRL Table 11: "exactly matches", a number
    "almost exactly", a "self-contradictory" prediction is wrong). So one that offers
    several answers or denies the reference is wrong, and so is the echoed question.
    """
    line = (response.strip().splitlines() or [""])[0]
    if line and response.strip() in [answer.strip() for answer in answers]:
        return Outcome.CORRECT  # also the song "I Don't Know"
    said = offer(_without_echo(plain(line), question))
    if said is None:
        return Outcome.ABSTAIN
    given, asked = words(CERTAIN.sub("", said)), _asked(question)
    if any(_gives(given, answer, asked) for answer in answers):
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
    said = [w.text for w in words(response)]
    kept = [w for w in said if w not in ARTICLES]
    wanted = [[w.text for w in _wanted(answer)] for answer in answers]
    found = any(
        w and f" {' '.join(w)} " in f" {' '.join(there)} "
        for w in wanted
        for there in (kept, said)
    )
    return Outcome.CORRECT if found else Outcome.WRONG


@lru_cache(maxsize=100_000)
def _wanted(answer: str) -> tuple[Word, ...]:
    """The words of a reference answer without articles, or "about" before a number."""
    every = words(answer)
    kept = tuple(w for w in every if w.text not in ARTICLES) or every
    vague = len(kept) > 1 and kept[0].text in ABOUT and is_number(kept[1].text)
    return kept[1:] if vague else kept


@lru_cache(maxsize=100_000)
def _asked(question: str) -> frozenset[str]:
    """The words of a question: an answer may repeat them. A capital is a city."""
    texts = frozenset(w.text for w in words(question))
    return texts | {"city"} if "capital" in texts else texts


def _without_echo(said: str, question: str) -> str:
    """A response without the question that it repeats."""
    echo, mark, rest = said.rpartition("?")
    if mark and ASKING.match(echo):
        return rest
    bare = plain(question).rstrip(" ?").casefold()
    start = said.casefold().find(bare) if bare else -1
    return said[:start] + said[start + len(bare) :] if start >= 0 else said


def _gives(said: tuple[Word, ...], answer: str, asked: frozenset[str]) -> bool:
    """Whether the words of a response give this reference answer and no other."""
    wanted, units = _wanted(answer), frozenset()
    if wanted and is_number(wanted[0].text) and len(wanted) <= 3:
        rest = wanted[1:]
        if not any(w.capital or is_number(w.text) for w in rest):
            wanted, units = wanted[:1], frozenset(w.text for w in rest)
    if not wanted:
        return False
    articles = any(w.text in ARTICLES for w in wanted)
    kept = [i for i, w in enumerate(said) if articles or w.text not in ARTICLES]
    for start in range(len(kept) - len(wanted) + 1):
        at = kept[start : start + len(wanted)]
        if (
            all(same(w.text, said[i].text) for w, i in zip(wanted, at, strict=True))
            and leads(said[: at[0]], said[at[0]], wanted, asked)
            and ends(
                said[at[-1] + 1 :],
                said[at[0] - 1].text if at[0] else "",
                *(wanted, units, asked),
            )
        ):
            return True
    return False
