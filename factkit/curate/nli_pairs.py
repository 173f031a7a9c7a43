"""Pairs of evidence and claim with a label, made from leads, for the embedded verifier.

Ours: no paper says how to make them. A claim is a shortened, reworded sentence of a
lead. A contradiction exchanges a year, number, name, kind or opposite for a like one,
or negates. It does so in claim and evidence alike, so that each claim stands beside an
evidence that supports it and one that contradicts it, and tells nothing by itself
(Schuster et al. 2019 write evaluation data in that way by hand).
"""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from factkit.corpus import Document
from factkit.curate.like_words import MONTHS, SMALL_WORDS, WORD, LikeWords
from factkit.curate.rewriting import (
    BE,
    NUMBER,
    negate,
    other_number,
    replaced,
    resolved,
    reworded,
    sentences,
    shorten,
    with_articles,
    without_brackets,
)
from factkit.datasets.leads import DEMONYMS, plain_title

LABELS = ("supported", "contradicted", "inconclusive")
SUPPORTED, CONTRADICTED, INCONCLUSIVE = range(3)
LONGEST = 50  # words of an evidence
_LIFE = re.compile(r"\((?:(\d{4}) ?[–-] ?(\d{4})|[Bb]orn:? (\d{4}))\)$")


@dataclass(frozen=True)
class Pair:
    """Evidence, claim and what the one says of the other: an index of `LABELS`.

    entity: the document's id, by which to split. kind: how the pair was made.
    """

    evidence: str
    claim: str
    label: int
    entity: str
    kind: str


def nli_pairs(
    documents: Sequence[Document], like: LikeWords, seed: int
) -> Iterator[list[Pair]]:
    """Groups of pairs that belong together: four by an exchange, or one.

    Deterministic from the documents, their order, `like` and the seed.
    """
    for document in documents:
        # of its own, so that no document's pairs depend on the others
        rng = random.Random(f"{seed} {document.id}")
        yield from _of_document(document, like, rng)


def _of_document(
    document: Document, like: LikeWords, rng: random.Random
) -> Iterator[list[Pair]]:
    name, kind = plain_title(document.title)[0], _kind(document)
    texts = [s for s in sentences(document.text) if 5 <= len(s.split()) <= LONGEST]
    claimed = [resolved(text, name, kind) for text in texts]

    def four(how: str, e1: str, c1: str, e2: str, c2: str) -> list[Pair]:
        """Each claim with the evidence for and against it, some negated, reworded."""
        rows = [(e1, c1, 0), (e2, c2, 0), (e1, c2, 1), (e2, c1, 1)]
        # so that a denial isn't always wrong, nor said of what the text denies
        if how != "negation" and rng.random() < 0.4 and (no := negate(c2, like, rng)):
            rows = [(e2, c2, 0), (e1, c2, 1), (e1, no, 0), (e2, no, 1)]
        seed = rng.random()
        return [
            Pair(e, reworded(c, name, like, random.Random(seed)), y, document.id, how)
            for e, c, y in rows
        ]

    def none(how: str, evidence: str, claim: str) -> list[Pair]:
        claim = reworded(claim, name, like, rng)
        return [Pair(evidence, claim, INCONCLUSIVE, document.id, how)]

    for i, whole in enumerate(claimed):
        if not whole:
            continue
        evidence, claim = _window(texts, i, rng), shorten(whole, rng)
        if found := exchange(claim, evidence, name, like, rng):
            yield four("exchange", evidence, claim, *found)
        negated = negate(claim, like, rng), negate(evidence, like, rng)
        if rng.random() < 0.4 and all(negated):
            yield four("negation", evidence, claim, negated[1], negated[0])
        if _n_words(claim) + 5 <= _n_words(whole):
            yield none("detail", claim, without_brackets(whole))
        others = [*texts[:i], *texts[i + 1 :]]
        for stated in [claim, found[1] if found else whole]:
            elsewhere = (
                _window(others, rng.randrange(len(others)), rng) if others else ""
            )
            if elsewhere and not _overlap(stated, elsewhere, name):
                yield none("same subject", elsewhere, stated)
    if (
        texts
        and claimed[0]
        and re.match(rf"(?:The |An? )?{re.escape(name)}\b", texts[0])
    ):
        for how, *texts_of_four in _of_first(document, texts[0], name, like, rng):
            yield four(how, *texts_of_four)
        for relative in like.kin.get(document.id, [])[:1]:
            yield none("other subject", sentences(relative.text)[0], claimed[0])


def _of_first(
    document: Document, first: str, name: str, like: LikeWords, rng: random.Random
) -> Iterator[tuple[str, str, str, str, str]]:
    """(how, e1, c1, e2, c2) from the sentence that says what the subject is."""
    kin = like.kin.get(document.id, [])
    for other in rng.sample(kin, min(4, len(kin))):
        start = sentences(other.text)[0]
        their = plain_title(other.title)[0]
        moved = re.sub(rf"\b{re.escape(their)}\b", lambda _: name, start)
        if moved == start or _n_words(moved) > LONGEST:
            continue
        verb = found[0] if (found := BE.search(first)) else "is"
        own, others = (
            _as_claim(name, verb, _what(d)) if rng.random() < 0.6 else shorten(s, rng)
            for d, s in ((document, first), (other, moved))
        )
        # "writer" contradicts no "poet"; what shares no word mostly does contradict
        if not (_overlap(own, moved, name) or _overlap(others, first, name)):
            if rng.random() < 0.2:
                own, others = (BE.sub(r"\1 only", c, count=1) for c in (own, others))
            yield "kin", first, own, moved, others
    if life := _LIFE.search(document.meta["description"]):
        years = int(life[1] or life[3]), int(life[2]) if life[2] else None
        for _ in range(2):
            yield from _dates(first, name, years, rng)
    for demonym in set(re.findall("|".join(DEMONYMS), first)) if life else ():
        other = rng.choice([d for d in DEMONYMS if d != demonym])
        claims = [rng.choice([d, f"from {DEMONYMS[d][0]}"]) for d in (demonym, other)]
        texts = (first, replaced(first, demonym, other))
        own, others = (f"{name} was {claim}." for claim in claims)
        yield "nationality", texts[0], own, texts[1], others


def _kind(document: Document) -> str:
    """The noun of a description: "German chemist (1868–1934)" → "chemist"."""
    stop = r",| (?:of|in|by|for|that|used|with|from|on|who|which|to|and)\b"
    words = re.split(stop, _what(document))[0].split()
    return words[-1].lower() if words else ""


def _what(document: Document) -> str:
    return re.sub(r"\s*\([^()]*\)", "", document.meta["description"]).strip()


def _as_claim(name: str, verb: str, what: str) -> str:
    """ "Alloy of copper and tin" → "Bronze is an alloy of copper and tin." """
    first, *_ = what.split(" ")
    if first not in DEMONYMS and first[1:].islower():
        what = first.lower() + what[len(first) :]
    the = re.match(r"(?:\w+est|capital|king|queen|first|last|emperor)\b", what)
    article = "" if verb in ("are", "were") else "the " if the else "a "
    return with_articles(f"{name} {verb} {article}{what}.")


def _window(texts: Sequence[str], i: int, rng: random.Random) -> str:
    """A sentence, half the time with some of those around it."""
    first, last = i, i + 1
    while rng.random() < 0.5:
        wider = max(first - 1, 0), last
        if rng.random() < 0.5:
            wider = first, min(last + 1, len(texts))
        if _n_words(" ".join(texts[slice(*wider)])) > LONGEST:
            break
        first, last = wider
    return " ".join(texts[first:last])


def exchange(
    claim: str, evidence: str, name: str, like: LikeWords, rng: random.Random
) -> tuple[str, str] | None:
    """(evidence, claim) with something that both say exchanged; None if there's none.

    What replaces it occurs in neither; the subject's name stays.
    """
    said = f" {' '.join(WORD.findall(evidence))} "
    words = WORD.findall(claim)
    own = set(WORD.findall(name.lower()))
    found: list[tuple[str, Sequence[str], float]] = []
    for size in (1, 2, 3, 4):
        for start in range(len(words) - size + 1):
            part = words[start : start + size]
            phrase = " ".join(part)
            if f" {phrase} " in said and not own & {word.lower() for word in part}:
                weight, others = _weighted(like, phrase)
                found.append((phrase, others, weight))
    numbers = set(NUMBER.findall(evidence))
    found += [
        (number, [other_number(number, rng)], 3.0)
        for number in NUMBER.findall(claim)
        if number in numbers
    ]
    found = [(old, others, weight) for old, others, weight in found if weight]
    if not found:
        return None
    old, others, _ = rng.choices(found, [weight for *_, weight in found])[0]
    new = rng.choice(others)
    changed = replaced(evidence, old, new), replaced(claim, old, new)
    used = new.lower() in f"{evidence} {claim}".lower()
    return None if used or evidence in changed or claim in changed else changed


def _weighted(like: LikeWords, phrase: str) -> tuple[float, Sequence[str]]:
    if phrase.lower() in SMALL_WORDS and phrase not in like.tables:
        return 0.0, ()
    return like.alternatives(phrase)


def _dates(
    first: str, name: str, years: tuple[int, int | None], rng: random.Random
) -> Iterator[tuple[str, str, str, str, str]]:
    """Invented dates of birth and death in brackets, and a claim on one of them."""
    verb = BE.search(first)
    if not verb:
        return
    dates = [
        (rng.randint(1, 28), rng.choice(MONTHS), year + rng.randint(-9, 9))
        for year in years
        if year
    ]
    changed = rng.randrange(len(dates))
    moved = dates[changed][2] + rng.choice([-1, 1]) * rng.choice(
        [1, 2, 4, 8, 10, 20, 50, 100]
    )
    new = (rng.randint(1, 28), rng.choice(MONTHS), moved)
    both = [dates, [*dates[:changed], new, *dates[changed + 1 :]]]
    bracket = rng.choice(
        ["{0} – {1}", "born {0}, died {1}"] if years[1] else ["born {0}"]
    )
    written, short = rng.choice([_day_first, _month_first]), rng.random() < 0.2
    show = (lambda date: str(date[2])) if short else written
    shown = [bracket.format(*map(show, these)) for these in both]
    e1, e2 = (f"{first[: verb.start()]}({s}) {first[verb.start() :]}" for s in shown)
    event = ("was born", "died")[changed]
    ways = [lambda d: f"in {d[2]}", lambda d: f"in the {d[2] // 10}0s"]
    if not short:
        ways += [lambda d: f"on {_month_first(d)}", lambda d: f"in {d[1]} {d[2]}"]
    way = rng.choice(ways)
    c1, c2 = (f"{name} {event} {way(d)}." for d in (dates[changed], new))
    if c1 != c2:
        yield "date", e1, c1, e2, c2


def _day_first(date: tuple[int, str, int]) -> str:
    return f"{date[0]} {date[1]} {date[2]}"


def _month_first(date: tuple[int, str, int]) -> str:
    return f"{date[1]} {date[0]}, {date[2]}"


def _overlap(claim: str, text: str, name: str) -> bool:
    """Whether a text has at least 60 % of a claim's content words, the name aside."""
    own = SMALL_WORDS | set(WORD.findall(name.lower()))
    said = set(WORD.findall(claim.lower())) - own
    return len(said & set(WORD.findall(text.lower()))) >= 0.6 * len(said)


def _n_words(text: str) -> int:
    return len(text.split())
