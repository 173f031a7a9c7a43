"""Sentences of leads made to stand alone: the subject named, later clauses cut.

Rules for the leads of Wikipedia that know no grammar: where one would guess, a sentence
is left out and the reason given.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from factkit.corpus import Document
from factkit.curate.like_words import SMALL_WORDS, WORD
from factkit.curate.rewriting import resolved, sentences, without_brackets
from factkit.datasets.lead_prompts import kind_of
from factkit.datasets.leads import plain_title
from factkit.verify.clauses import ADVERB, PAST, VERB

SHORTEST, LONGEST = 6, 26  # words of a claim
LONGEST_WHAT = 16  # words that say what a lead is about

BE = r"(?:is|was|are|were)"
_VERB = (
    rf"(?:{VERB}|\b(?:encompass(?:es)?|forms?|separates?|shares?|represents?|varies|vary"
    r"|gained|helped|combines?|comprises?|stretch(?:es)?|extends?|drains?|flows?|rises?"
    r"|measures?|spans?|grows?|derives?|connects?|employs?|accounts?|ranks?|dates?"
    r"|belongs?|consists?|contains?|covers?|includes?|remains?|borders?|uses?|plays?"
    r"|developed|introduced|published|composed|directed|starred|created|discovered"
    r"|established|founded|invented|performed|recorded|worked|lived|ruled)\b)"
)
_PREDICATE = re.compile(rf"(?:'s(?: [a-z-]+){{1,3}})? {ADVERB}(?P<verb>{_VERB})")
SORT = re.compile(
    r"\b(film|novel|book|album|song|opera|play|poem|painting|symphony|musical|city|town"
    r"|capital|river|lake|island|mountain|volcano|desert|country|state|province|region"
    r"|continent|war|battle|treaty|company|university|museum|newspaper|band|dynasty"
    r"|empire|temple|palace|bridge|tower|game|series|festival|disease|planet|family"
    r"|genus|order|phylum)\b",
    re.IGNORECASE,
)
_HEAD_ENDS = re.compile(
    r"\b(?:in|of|by|from|between|near|on|that|which|who|against|for|during|under|with|at"
    r"|to|among)\b"
)
_FULL_NAME = re.compile(rf"(?!In |At |As )[^.;:]{{2,120}}?(?=,? {BE} (?:an?|the) )")
_FRONTED = re.compile(
    r"((?:In|On|At|During|After|Before|By|From|Since|Until|Throughout|Between|Following"
    r"|Despite|As|With|For|Under|Upon|Born|Educated|Because of|Due to) [^,]{3,60}), "
    r"(.+)"
)
_IMPERSONAL = re.compile(
    rf"It (?:{BE}|has been|can be|may be) (?:\w+ly )?\w+ (?:that|to)\b"
)
_OF_A_PERSON, _OF_A_THING = ("He ", "She ", "His ", "Her "), ("It ", "Its ")
_OF_THINGS = ("They ", "Their ")
_ASIDE = re.compile(rf"^,[^;]{{2,90}}?, (?={ADVERB}{BE}\b)")
_ALSO = re.compile(
    rf"(^|\b(?:{BE}|has|had|have|can)) also (?!known|called|spelled|referred)"
)
_LATER = re.compile(  # a clause that a claim does without
    r",? [–—] .*|;.*|, (?:which|who|whose|whom|where|when|while|although|though|because"
    r"|but|whereas|making|including|with|such as|notably|particularly|especially"
    r"|before|after|until|since|as|due|known|located|followed|based|along|alongside"
    r"|despite|having|being|becoming|[a-z]{3,}ing"
    rf"|and (?:{BE}|has|have|had|he|she|it|they|later|also|then))\b.*"
)
_DEFINING = re.compile(r",? (?:who|which|that|where)\b")
_ALONE = re.compile(
    r"\b(?:only|first|last|most|\w+est|of the (?:two|three|four|five))\b"
)
_UNCLEAR = re.compile(
    r"[\n:;\[\]()–—“”{}]|\.\.|\bc\. |\b(?:this|these|those|such|latter|former|however"
    r"|therefore|thus|hence|instead|otherwise|here|others?|another|respectively|we|you"
    r"|our|same|similarly|likewise|not|never|nor|neither)\b|\bbetween (?!.* and )"
    r"|\bthe (?:country|nation|city|town|state|island|province|region|area|district"
    r"|book|film|novel|band|company|team|series|game|war|group|work|term|word|name|concept"
    r"|field|dynasty|kingdom|empire|period|era|award|prize|event|building|genre|project)\b"
    r"(?! (?:of|in|on|that|with|from|between|[A-Z]))"
)
_WHAT = re.compile(rf"(?:[ ,][^.;]{{0,160}}?)?,? {BE} ((?:an?|the) .+)")
_WHAT_ENDS = re.compile(
    r",(?!\d)|;| [–—]| (?:who|which|that|where|whose|when|because|known|considered"
    r"|regarded|best known|commonly known|famous|noted|and (?:one|the|an?|its))\b"
)
_WHAT_IS_LONG = re.compile(
    r" (?:between|via|with|comprising|consisting|situated|founded|centered|centred|off"
    r"|along|established|bordered|spanning|by|designed|used|spoken|during|from)\b"
)
_DEFINED = re.compile(" (?:who|which|that|where|whose|known|to)\\b")
_NO_WHAT = re.compile(r"(?:an?|the) (?:name|term|word|list|type|kind|form)\b")


@dataclass(frozen=True)
class Lead:
    """A lead, and how it names what it is on.

    name: the title without its disambiguation. subject: how its sentences begin, as in
    "The Nile"; "" if they don't. sort: of what it is, as in "river", or "".
    """

    title: str
    name: str
    subject: str
    pronouns: tuple[str, ...]
    person: bool
    sort: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Claim:
    """A true claim without its full stop; subject: where in it that stands."""

    lead: Lead
    number: int
    text: str
    subject: tuple[int, int]


def sentences_of(document: Document) -> tuple[str, ...]:
    """A document's sentences, each on one line."""
    return tuple(" ".join(s.split()) for s in sentences(document.text))


def read_lead(document: Document) -> Lead:
    """A document of `corpus.load_leads`, read."""
    name, suffix = plain_title(document.title)
    head = _HEAD_ENDS.split(re.split(r"[,(]", document.meta["description"])[0])[0]
    kind, sort = kind_of(document), SORT.search(head)
    person = kind == "person"
    if suffix:  # "Second Symphony (Mahler)" would be odd in a sentence
        fits = person or kind == "work"
        fits = fits and re.fullmatch("[a-z0-9 -]+", suffix)
        subject = f"The {suffix} {name}" if fits else ""
    else:
        subject = name if person else _as_written(name, document.text)
    words = head.split() if person else [sort[1]] if sort else []
    verb = re.search(rf"\b{BE}\b", document.text)
    many = bool(verb) and verb[0] in ("are", "were")
    return Lead(
        title=document.title,
        name=name,
        subject="" if "," in name else subject,  # "Birmingham, Alabama"
        pronouns=_OF_A_PERSON if person else _OF_THINGS if many else _OF_A_THING,
        person=person,
        sort=words[-1].lower() if words else "",
        sentences=sentences_of(document),
    )


def _as_written(name: str, text: str) -> str:
    """The name as the lead begins, "The Nile" or "Starlings"; "" if it doesn't."""
    start = re.match("(?:The |An? )?", text).end()
    found = text[start : start + len(name)]
    same = found.lower() == name.lower() if name[1:].islower() else found == name
    if not same:
        return ""
    end = re.compile(r"(?:e?s)?\b(?!-| [A-Z])").match(text, start + len(name))
    return text[: end.end()] if end else ""


def told(lead: Lead) -> Iterator[tuple[int, str, str]]:
    """Each sentence's number, the sentence up to its subject, named, and the rest.

    Both are "" where the sentence is not, or not surely, on the lead's subject.
    """
    last, clear = lead.name.split()[-1], False
    for number, sentence in enumerate(lead.sentences):
        plain = " ".join(without_brackets(without_brackets(sentence)).split())
        start, rest = _named(lead, plain, clear) if number else _first(lead, plain)
        yield number, start, rest
        clear = bool(start)
        if lead.person:  # a sentence that mentions the person leaves "he" clear as well
            clear = clear or not {"he", "she", last}.isdisjoint(WORD.findall(plain))


def _first(lead: Lead, plain: str) -> tuple[str, str]:
    """The first sentence, which gives a name in full: "Juliette Nadia Boulanger"."""
    if plain.startswith(lead.subject):
        return lead.subject, plain[len(lead.subject) :]
    full = _FULL_NAME.match(plain)
    if full and lead.name.split()[-1] in full[0]:
        return lead.subject, plain[full.end() :].lstrip(",")
    return "", ""


def _named(lead: Lead, plain: str, clear: bool) -> tuple[str, str]:
    """A later sentence; clear: whether the one before leaves a pronoun clear."""
    subject, last, front = lead.subject, lead.name.split()[-1], ""
    fronted = _FRONTED.fullmatch(plain)
    if fronted and fronted[2].startswith(("he ", "she ", "it ", "they ", lead.name)):
        front, plain = f"{fronted[1]}, ", fronted[2][0].upper() + fronted[2][1:]
    text = plain
    if plain.startswith(lead.pronouns):
        unclear = not clear or _IMPERSONAL.match(plain)
        text = "" if unclear else resolved(plain, subject, "")
    elif lead.person and WORD.findall(plain)[:1] == [last]:
        text = subject + plain[len(last) :]
    elif lead.sort and plain.startswith(f"The {lead.sort} "):
        text = resolved(plain, subject, lead.sort)
    rest = text[len(subject) :]
    if not text.startswith(subject) or rest[:1] not in (" ", ",", "'"):
        return "", ""
    return front + (_inside(subject) if front else subject), rest


def _inside(subject: str) -> str:
    """A subject as it is written after a comma, its article small."""
    article = re.match("(?:The|An?) ", subject)
    return subject[0].lower() + subject[1:] if article else subject


def claim_of(lead: Lead, number: int, start: str, rest: str) -> Claim | str:
    """A short claim from a sentence cut in two after its subject; or why there's none.

    Left out are what stands in commas between subject and "is", and later clauses.
    """
    rest = _ASIDE.sub(" ", rest).rstrip(".")
    if len(f"{start}{rest}".split()) > 2 * SHORTEST:
        rest = re.sub(",? (?:and|or|but)$", "", _LATER.sub("", rest))
    defining = _DEFINING.search(rest)
    if defining and len(f"{start}{rest}".split()) > LONGEST:
        alone = _ALONE.search(rest[: defining.start()])
        rest = rest if alone else rest[: defining.start()]
    rest = _ALSO.sub(r"\1 ", rest).replace("  ", " ")
    text, predicate = start + rest, _PREDICATE.match(rest)
    if not predicate:
        return "no verb after the subject"
    said, verb = rest[predicate.end() :], predicate["verb"]
    if re.search(rf", {BE} ", said) and not re.search(rf" and {BE} ", said):
        return "cut in the wrong place"
    one = lead.subject.startswith(("A ", "An "))  # "A mango originated in Asia"
    if one and (verb.endswith("ed") or verb in PAST.split()):
        return "unclear on its own"
    if (
        _UNCLEAR.search(f"{start[: -len(lead.subject)]} {said}")
        or text.count('"') % 2
        or lead.subject in said
    ):
        return "unclear on its own"
    if not SHORTEST <= len(text.split()) <= LONGEST:
        return "too short or too long"
    if text.split()[-1].lower() in SMALL_WORDS:
        return "cut in the wrong place"
    return Claim(lead, number, text, (len(start) - len(lead.subject), len(start)))


def what_it_is(lead: Lead) -> str:
    """What its first sentence says that a lead is about: "an English film director"."""
    first = without_brackets(without_brackets(lead.sentences[0]))
    found = _WHAT.match(_first(lead, " ".join(first.split()))[1])
    if not found:
        return ""
    whole = found[1].rstrip(".")
    ends = [end.start() for end in _WHAT_ENDS.finditer(whole)] + [len(whole)]
    what = next((whole[:end] for end in ends if len(whole[:end].split()) > 2), "")
    if len(what.split()) > LONGEST_WHAT or _UNCLEAR.search(what):
        what = _WHAT_IS_LONG.split(what)[0]
    defined = _DEFINED.match(whole[len(what) :])
    bad = _UNCLEAR.search(what) or _NO_WHAT.match(what)
    if bad or (defined and _ALONE.search(what)):
        return ""
    words = what.split()
    open_end = words[-1].lower() in SMALL_WORDS or words[-1].endswith(("ing", "ed"))
    return what if 3 <= len(words) <= LONGEST_WHAT and not open_end else ""
