"""Reading responses into statements that the leads' facts decide.

By patterns on the sentences about one subject, so that a verdict is exact. What no
pattern reads stays a statement in its own words, which is inconclusive. Ours;
02_verifiers measures on responses read by hand how often the patterns miss or misread.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from factkit.data.spelling import LONGEST
from factkit.facts.leads.facts import (
    OCCUPATIONS,
    STATEMENTS,
    Leads,
    statement,
)
from factkit.facts.leads.questions import (
    CONTINENTS,
    COUNTRY_ALIASES,
    DEMONYMS,
    SHORT_NAMES,
)
from factkit.facts.source import Fact, Verification
from factkit.verify.outcome import abstains

_HEDGE = re.compile(
    r"(?i)\b(?:probably|perhaps|possibly|maybe|most likely|likely|I (?:believe|think)"
    r"(?: that)?|(?-i:might|may|could)(?= have been\b| be\b)),? ?"
)
_HEDGED = "Perhaps "
_MODAL = re.compile(r"\b(?:have been|be)\b")  # what a hedge leaves of its verb
_DENIED = re.compile(r"(?i)\b(?:not|never|no|n't|nor|neither|unknown)\b|n't\b")
_YEAR = r"(1\d{3}|20[0-2]\d)"
# up to a year, unless it may be of something else
_UP_TO = (
    r"\b(?:(?!\b(?:before|after|until|since|again|his|her|their|whose|where|when|who|"
    r"and|father|mother)\b)[^;])*?\b"
)
_BORN = re.compile(rf"(?i)\bborn{_UP_TO}{_YEAR}\b")
_DIED = re.compile(
    r"(?i)(?:\b(?:died|passed away|was killed|(?:his|her) death)|^death)"
    rf"{_UP_TO}{_YEAR}\b"
)
_ANOTHER = re.compile(  # whose birth and death are not the subject's
    r"(?i)\b(?:his|her|its|their|whose|(?:\w*father|\w*mother|wife|husband|son|daughter|"
    r"brother|sister|student|pupil|friend)(?! and a\b)(?:'s|’s)?)\b"
)
_SPAN = re.compile(
    r"(?i)\((?![^()]*\b(?:r|reign\w*|rul\w*|in office|president|active|fl)\b)"
    rf"[^()]*?\b{_YEAR} ?[–—-] ?[^()]*?\b{_YEAR}\)"
)
_BORN_IN = re.compile(rf"(?i)\((?:born|b\.)[^()]*?\b{_YEAR}\)")
_CENTURY = re.compile(
    r"(?i)^(?:(?:lived|lives|worked|flourished|was active|was born)\b[^;]*?|"
    r"(?:was|is|became) (?:an?|the|one of the) (?:[\w-]+ ){0,4}?)"
    r"\b(\d{1,2}(?:st|nd|rd|th))[ -]century\b"
)
_WHEN_WORK = re.compile(
    r"(?i)(?<![\w-])(?:came out|released|published|premiered|performed|appeared)"
    rf"{_UP_TO}(?:in|of) (?:[^;]*? )??{_YEAR}\b"
)
_OF_YEAR = re.compile(rf"^(?:is|was) (?:an?|the) {_YEAR}\b")
_CAPITAL = r"[A-ZÀ-ÖØ-ÞĀĆČĐĒĞİŁŌŚŞŠŪŻŽ]"  # letter
_PARTICLE = r"(?:de|da|di|del|della|der|den|van|von|la|le|el|al|ibn|of|the|y)"
_NAME = (
    rf"(?:{_PARTICLE} )*{_CAPITAL}[\w.'’-]*"
    rf"(?: (?:{_PARTICLE} )*{_CAPITAL}[\w.'’-]*)*"
)
_BY = re.compile(  # "a novel by the American writer Herman Melville"
    r"(?:^is|^was|\b(?:written|painted|composed|directed|created|authored|sculpted|designed|"
    r"made|drawn|film|novel|book|play|poem|painting|sculpture|opera|ballet|symphony|"
    r"album|song|work|story|fresco|drama|comedy|tragedy|epic|musical|concerto)) by "
    rf"(?:(?:an?|the) )?(?:(?:{'|'.join(DEMONYMS)}|(?!{_PARTICLE}\b)[a-z][\w-]*|"
    rf"{_CAPITAL}[\w-]+(?= (?:{'|'.join(OCCUPATIONS)}) )) )*"
    rf"((?>{_NAME}))(?! (?:and|&) {_CAPITAL})"
)
_BASED = re.compile(r"\b(?:based|adapted|inspired|adaptation|about|from|after)\b")
_FORMER = re.compile(r"\b(?:once|former|formerly|previous|previously|ancient|old)\b")
_CAPITAL_OF = re.compile(
    r"^(?:is|was|became)\b[^;]*?\bcapital(?: city| and [\w ]*?city)? of (?:the )?(.+)$"
)
_ITS_CAPITAL = re.compile(rf"capital(?: city)? is (?:the city of )?({_NAME})(?:, .*)?$")
_LOCATED = re.compile(
    r"^(?:(?:is|was|are|were)(?: also| now| partly| a| part)*"
    r" (?:an?|the|one|in|on|within|of|located|situated|found)\b|"
    r"(?:lies|stands|sits|rises|located|situated)\b)"
)
_ELSEWHERE = re.compile(  # what follows does not say where the subject is
    r"\b(?:near|border\w*|with|from|to|between|close|opposite|than|against|by|for|off|"
    r"along|across|where|when|before|after|since|until|outside|like|and (?=[a-z]))\b|"
    r"(?<!the )\b\w*(?:north|south|east|west)\w* of\b"
)
_IS_IN = re.compile(r"\b(?:in|of|within|on)\b (.*)$")
_WITHIN = re.compile(r"(?:(?:North|South|East|West)\w*ern|Republic of(?: the)?) $")
_PART = re.compile(r"(?:(?:North|South|East|West)\w*|Central) $")
_SYMBOL = re.compile(r"\bsymbol\b(?: is| of \w+ is)?:? [\"'“]?([A-Z][a-z]?)\b")
_NUMBER = re.compile(r"\batomic number\b\D{0,25}?(\d{1,3})\b")
_IS_A = (
    r"(?:is|was) (?:an?|the) (?:(?!(?:in|of|on|at|by|for|near|from|with)\b)[\w-]+,? )*?"
)
_TO_THE_END = ("creator", "capital", "symbol", "atomic_number")
_FORMS = {
    "symbol": "[A-Z][a-z]?",
    "century": r"\d+(?:st|nd|rd|th)",
    "creator": f"{_NAME}(?:, {_NAME})?",
    "capital": f"{_NAME}(?:, {_NAME})?",
}
_BE = r"(?:was|is|were|are|became|worked as|served as)"
_NOUNS = re.compile(rf"^(?:{_BE}) (?:also )?(an? |the |one of the )?([^;]*)")
_OF_A_WORK = re.compile(r"\b(?:born|died)\b|\bof [\"“]")  # or of a life
_NOUNS_END = re.compile(
    r"\b(?:who|which|that|known|best|born|from|in|for|by|and was|of|at|to|with|on|"
    r"under|during|between|his|her|whose)\b|, (?:\w+ )?\w+ing\b"
)
_CLAUSES = re.compile(
    r"; | (?=who (?:was|is|died|lived|worked|wrote)\b)"
    r"|, (?:and |but )?(?=(?:who|which|where|born|died|best|known|is|was|has|had)\b)"
    r"|,? and (?=(?:was|is|has|had|died|lived|worked|wrote|won|served|came)\b)"
)
_PRONOUN = re.compile(r"(?i)(?:he|she|it|they|(his|her|its|their))\b")
_OWN = re.compile(r" (?:(?:chemical )?symbol|atomic number|capital|death)\b")
_ABBREVIATED = re.compile(r"(?<![a-z] is )\b([A-Z]|Mr|Dr|St|Mrs|Jr)\. (?=[A-Z])")
_ENDS = re.compile(r"(?<=[.!?])[\"”]?\s+|\n+|</?\w+>|(?<!\S)> ")  # of sentences
_DOT = "\u2024"
_PLAIN = {
    relation: re.compile(
        re.escape(way)
        .replace(r"\{s\}", "(?P<s>.+?)")
        .replace(r"\{o\}", "(?:the )?(?P<o>.+)")
        .replace(r"\{a\}", "an?")
    )
    for relation, way in STATEMENTS.items()
}


@dataclass(frozen=True)
class LeadReader:
    """Reads responses about the subjects of `leads` (`facts.source.FactReader`)."""

    leads: Leads

    def sentences(self, text: str, about: str = "") -> list[str]:
        """The sentences of a text about a subject, by lines and full stops.

        A full stop in the subject's name or after an initial ends no sentence; tags are
        left out.
        """
        if "." in about:
            text = text.replace(about, about.replace(".", _DOT))
        text = _ABBREVIATED.sub(rf"\1{_DOT} ", text)
        parts = _ENDS.split(text)
        return [s.replace(_DOT, ".").strip() for s in parts if s.strip()]

    def statements(self, sentence: str, about: str = "") -> list[str]:
        """The statements of a sentence about a subject: of facts as `facts.statement`
        words them, after "Perhaps" if hedged; else the sentence in its own words.

        [] for a question, an abstention, and less than two words. A sentence of more
        than `LONGEST` characters is not read.
        """
        if len(sentence) > LONGEST:
            return [sentence]
        hedge = _HEDGED if _HEDGE.search(sentence) else ""
        plain = _MODAL.sub("was", _HEDGE.sub("", sentence)) if hedge else sentence
        plain = " ".join(plain.split()).strip(" *-•")
        if plain.endswith("?") or len(plain.split()) < 2 or abstains(plain):
            return []
        facts = self._facts(plain, about)
        if not re.search(r"[.!\"”)]$", plain):  # a name may be cut off
            facts = [None if f and f.relation in _TO_THE_END else f for f in facts]
        statements = [hedge + statement(f) for f in dict.fromkeys(facts) if f]
        return [*statements, sentence] if None in facts else statements

    def parse(self, text: str) -> tuple[Fact, bool] | None:
        """The fact that a statement states and whether it hedges; None if it is in its
        own words."""
        hedged = text.startswith(_HEDGED)
        text = text.removeprefix(_HEDGED)
        for relation, pattern in _PLAIN.items() if len(text) <= LONGEST else ():
            match = pattern.fullmatch(text)
            if match and self._fits(relation, match["o"]):
                subject = self._subjects.get(match["s"].casefold(), match["s"])
                value = match["o"]
                if relation in ("country", "capital_of"):
                    value = self._countries.get(value, value)
                return Fact(subject, relation, value), hedged
        return None

    def verify(self, text: str) -> Verification:
        """Whether the leads support or contradict a statement."""
        parsed = self.parse(text)
        return self.leads.verify(parsed[0]) if parsed else "inconclusive"

    def answer(self, subject: str, relation: str, text: str) -> str:
        """The statement that a short answer makes, "" if it is of another kind."""
        if not text or abstains(text):
            return ""
        if relation in ("country", "capital_of"):
            text = text.removeprefix("The ").removeprefix("the ")
        sentence = statement(Fact(subject, relation, text))
        return sentence if self.parse(sentence) else ""

    def facts_of(self, subject: str) -> tuple[Fact, ...]:
        """The facts of a subject."""
        return self.leads.facts_of(subject)

    @cached_property
    def _subjects(self) -> dict[str, str]:
        """Names in small letters, with and without "the" → the subjects' names."""
        names = {}
        for name in self.leads.subjects:
            names[name.casefold()] = name
            names[name.casefold().removeprefix("the ")] = name
        return names

    @cached_property
    def _countries(self) -> dict[str, str]:
        aliases = {a: c for c, names in COUNTRY_ALIASES.items() for a in names}
        return {c: c for c in self.leads.countries} | aliases | SHORT_NAMES

    @cached_property
    def _kinds(self) -> list[str]:
        """The kinds of places, works and elements, the longest first."""
        facts = (f for s in self.leads.subjects.values() for f in s.facts)
        names_of = ((f.object, *f.others) for f in facts if f.relation == "kind")
        kinds = {kind for names in names_of for kind in names}
        return sorted(kinds, key=lambda kind: (-len(kind), kind))

    @cached_property
    def _places(self) -> re.Pattern[str]:
        names = sorted([*self._countries, *CONTINENTS], key=len, reverse=True)
        return re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b(?! [A-Z])")

    def _fits(self, relation: str, value: str) -> bool:
        """Whether an object is of the relation's kind (relations share wordings)."""
        words = {
            "nationality": DEMONYMS,
            "occupation": OCCUPATIONS,
            "continent": CONTINENTS,
            "country": self._countries,
            "capital_of": self._countries,
            "kind": self._kinds,
        }
        if relation in words:
            return value in words[relation]
        return re.fullmatch(_FORMS.get(relation, r"\d+"), value) is not None

    def _facts(self, plain: str, about: str) -> list[Fact | None]:
        """The facts of a sentence, with None for each clause that is not read."""
        subject, predicate = self._split(plain.rstrip("."), about)
        if subject is None or _DENIED.search(predicate):
            return [None]
        facts: list[Fact | None] = []
        is_person = self._is_person(subject)
        life = _BORN_IN.match(predicate) or _SPAN.match(predicate)
        if life and is_person:
            years = zip(("birth_year", "death_year"), life.groups(), strict=False)
            facts += [Fact(subject, relation, year) for relation, year in years]
        read = self._life if is_person else self._thing
        predicate, previous = re.sub(r" ?\([^()]*\)", "", predicate), ""
        for clause in map(str.strip, _CLAUSES.split(predicate)):
            known = []
            if not (re.match("who|which|where", clause) and self._names(previous)):
                known = [*read(subject, re.sub("^(?:who|which|where) ", "", clause))]
            facts += known or ([None] if len(clause.split()) > 1 else [])
            previous = clause
        return facts

    def _names(self, clause: str) -> bool:
        """Whether "who …" after the clause may be about somebody else."""
        names = set(re.findall(rf"\b{_CAPITAL}\w+", self._places.sub("", clause)))
        return bool(names - set(DEMONYMS)) or _ANOTHER.search(clause) is not None

    def _split(self, plain: str, about: str) -> tuple[str | None, str]:
        """The subject of a sentence, None if unknown, and the rest of the sentence."""
        inverted = re.match(
            r"(?i)(the (?:chemical )?symbol|the atomic number|the capital"
            r"(?: city)?) (?:of|for) (?:the )?(.+?) (is .+)",
            plain,
        )
        if inverted:
            attribute = inverted[1].lower().removeprefix("the ")
            subject = self._subjects.get(inverted[2].casefold())
            return subject, f"{attribute} {inverted[3]}"
        pronoun = _PRONOUN.match(plain)
        if pronoun and about:
            predicate = plain[pronoun.end() :]
            is_other = pronoun[1] and not _OWN.match(predicate)
            return None if is_other else about, predicate.strip()
        words = plain.split()
        for n in range(min(len(words), 9), 0, -1):
            start = " ".join(words[:n]).rstrip(",")
            predicate = " ".join(words[n:])
            name = re.sub("['’]s$", "", start)
            if name != start and not _OWN.match(f" {predicate}"):
                continue
            name = re.sub(
                r"(?i)^the (?:film|novel|album|song|play|element|city(?: of)?) ",
                "",
                name,
            )
            if name.casefold() in self._subjects:
                return self._subjects[name.casefold()], predicate
        for name in self._also(about):
            match = re.match(rf"{re.escape(name)}(?:, | )(.*)", plain)
            if match and (name[:4] != "The " or re.match(f"{_BE}|lies|has", match[1])):
                return about, match[1]
        return None, plain

    def _also(self, about: str) -> list[str]:
        """Other names of a subject: the last name, the part before a comma, an
        element's symbol, "The city"."""
        names = [about.split(", ")[0]] if ", " in about else []
        names += about.split()[-1:] if self._is_person(about) else []
        for fact in self.facts_of(about):
            names += [fact.object] if fact.relation == "symbol" else []
            names += [f"The {fact.object}"] if fact.relation == "kind" else []
        return names

    def _is_person(self, name: str) -> bool:
        return name in self.leads.subjects and self.leads.subjects[name].is_person

    def _life(self, subject: str, clause: str) -> Iterator[Fact]:
        """The facts of a clause on a person."""
        if match := _CENTURY.match(clause):
            yield Fact(subject, "century", match[1])
        for relation, pattern in (("birth_year", _BORN), ("death_year", _DIED)):
            match = pattern.search(clause)
            if match and not _ANOTHER.search(clause[: match.start()]):
                yield Fact(subject, relation, match[1])
        for kind in self._kinds:
            if re.fullmatch(f"(?:is|was) an? {kind}", clause):
                yield Fact(subject, "kind", kind)
        nouns = _NOUNS.match(clause)
        if not nouns or _OF_A_WORK.search(clause):
            return
        phrase = _NOUNS_END.split(nouns[2])[0]
        before = ".*" if nouns[1] else ""
        for demonym in DEMONYMS:
            if re.match(rf"{before}(?<!-)\b{demonym}\b(?!-)", phrase):
                yield Fact(subject, "nationality", demonym)
        for word in dict.fromkeys(re.findall(r"[\w-]+", phrase.lower())):
            if nouns[1] == "one of the ":
                word = word.removesuffix("s")
            if word in OCCUPATIONS:
                yield Fact(subject, "occupation", word)

    def _thing(self, subject: str, clause: str) -> Iterator[Fact]:
        """The facts of a clause on a place, a work or an element."""
        relations = {f.relation for f in self.leads.facts_of(subject)}
        if match := _ITS_CAPITAL.match(clause):
            yield Fact(subject, "capital", match[1])
        if match := _SYMBOL.search(clause):
            yield Fact(subject, "symbol", match[1])
        if match := _NUMBER.search(clause):
            yield Fact(subject, "atomic_number", match[1])
        if "creator" in relations or "work_year" in relations:
            match = _BY.search(clause)
            if match and not _BASED.search(clause[: match.start()]):
                yield Fact(subject, "creator", match[1].rstrip("."))
            if match := _WHEN_WORK.search(clause) or _OF_YEAR.match(clause):
                yield Fact(subject, "work_year", match[1])
        elif not _FORMER.search(clause):
            yield from self._where(subject, clause)
        yield from self._kind(subject, clause)

    def _where(self, subject: str, clause: str) -> Iterator[Fact]:
        """Where a place is, and what it is the capital of."""
        if match := _CAPITAL_OF.search(clause):
            if place := self._places.match(match[1]):
                country = self._countries.get(place[0], place[0])
                yield Fact(subject, "capital_of", country)
            return
        place = _IS_IN.search(_ELSEWHERE.split(clause)[0])
        if not place or not _LOCATED.match(clause):
            return
        for match in self._places.finditer(place[1]):
            name, before = match[0], place[1][: match.start()]
            within = _PART if name in CONTINENTS else _WITHIN
            longer = re.search(rf"{_CAPITAL}[\w.'’-]* (?:of (?:the )?)?$", before)
            if not longer or within.search(before):
                relation = "continent" if name in CONTINENTS else "country"
                yield Fact(subject, relation, self._countries.get(name, name))

    def _kind(self, subject: str, clause: str) -> Iterator[Fact]:
        """The kinds of a thing, by nouns: "a soft, yellow element"."""
        kinds: list[str] = []
        for kind in self._kinds:
            is_part = any(kind in longer for longer in kinds)
            if not is_part and re.match(rf"{_IS_A}{kind}\b", clause):
                kinds.append(kind)
                yield Fact(subject, "kind", kind)
