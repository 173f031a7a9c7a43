"""Reading a response into statements that the leads' facts decide, each with what it
was read from.

One reader for the claims of Binary RAR and Learning to Reason and the statements of
RLFH. By patterns on the sentences of one subject, so that a verdict is exact; what no
pattern reads stays a statement in its own words, which is inconclusive: never right and
never wrong. Ours; how often it misses and misreads is measured on responses read by
hand (02_verifiers).
"""

import re
from dataclasses import dataclass
from functools import cached_property

from factkit.datasets.leads import CONTINENTS, COUNTRY_ALIASES, DEMONYMS, SHORT_NAMES
from factkit.leads.facts import OCCUPATIONS, STATEMENTS, Fact, Leads, statement
from factkit.world import Verification

_HEDGE = re.compile(
    r"(?i)\b(?:probably|perhaps|possibly|maybe|most likely|likely|I (?:believe|think)"
    r"(?: that)?|(?-i:might|may|could)(?= have been\b| be\b)),? ?"
)
_HEDGED = "Perhaps "
_MODAL = re.compile(r"\b(?:have been|be)\b")  # what a hedge leaves of its verb
_DENIED = re.compile(r"(?i)\b(?:not|never|no|n't|nor|neither|unknown)\b|n't\b")
_YEAR = r"(1\d{3}|20[0-2]\d)"
_BORN = re.compile(rf"(?i)\bborn\b[^;]*?\b{_YEAR}\b")
_DIED = re.compile(rf"(?i)\b(?:died|death|passed away|killed)\b[^;]*?\b{_YEAR}\b")
_SPAN = re.compile(rf"\([^()]*?\b{_YEAR} ?[–—-] ?[^()]*?\b{_YEAR}\)")
_CENTURY = re.compile(r"\b(\d{1,2}(?:st|nd|rd|th))[ -]century\b", re.I)
_WHEN_WORK = re.compile(
    rf"(?i)\b(?:came out|released|published|performed|premiered|written|recorded|"
    rf"painted|composed|appeared|made|directed)\b[^;]*?\b(?:in|of) [^;]*?{_YEAR}\b"
)
_BY = re.compile(
    r"\bby ((?:[A-Z][\w.'’-]*|de|da|van|von|of|the)"
    r"(?: (?:[A-Z][\w.'’-]*|de|da|van|von|del|la|le|el))*)"
)
_CAPITAL_OF = re.compile(r"(?i)\bcapital(?: city| and [\w ]*?city)? of (?:the )?(.+)$")
_IS_IN = re.compile(r"\b(?:in|of|within|on)\b (.*)$")
_SYMBOL = re.compile(r"\bsymbol\b(?: is| of \w+ is)?:? [\"'“]?([A-Z][a-z]?)\b")
_NUMBER = re.compile(r"\batomic number\b\D{0,25}?(\d{1,3})\b")
_BE = r"(?:was|is|were|are|became|worked as|served as)"
_NOUNS = re.compile(rf"^(?:{_BE}) (?:also )?(an? |the |one of the )?([^;]*)")
_NOUNS_END = re.compile(
    r"\b(?:who|which|that|known|best|born|from|in|for|by|and was)\b"
)
_CLAUSES = re.compile(
    r"; | (?=who (?:was|is|died|lived|worked|wrote)\b)"
    r"|, (?:and |but )?(?=(?:who|which|where|born|died|best|known|is|was|has|had)\b)"
    r"|,? and (?=(?:was|is|has|had|died|lived|worked|wrote|won|served|came)\b)"
)
_PRONOUN = re.compile(r"(?i)(?:he|she|it|they|his|her|its|their)\b")
_ABBREVIATED = re.compile(r"(?<![a-z] is )\b([A-Z]|Mr|Dr|St|Mrs|Jr)\. (?=[A-Z])")
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
    """Reads what a policy says of the subjects of `leads`."""

    leads: Leads

    def sentences(self, text: str, about: str = "") -> list[str]:
        """The sentences of a text on the subject `about`, one a line or by full stops.

        Full stops inside the subject's name and after initials end none.
        """
        if "." in about:
            text = text.replace(about, about.replace(".", _DOT))
        text = _ABBREVIATED.sub(rf"\1{_DOT} ", text)
        found = re.split(r"(?<=[.!?])[\"”]?\s+|\n+", text)
        return [s.replace(_DOT, ".").strip() for s in found if s.strip()]

    def statements(self, sentence: str, about: str = "") -> list[str]:
        """The standalone statements of a sentence on `about`: a fact's as
        `facts.statement` has it, hedged ones after "Perhaps"; else in its own words.

        [] for a question, and for less than two words.
        """
        plain = _MODAL.sub("was", _HEDGE.sub("", sentence))
        plain = " ".join(plain.split()).strip(" *-•")
        if plain.endswith("?") or len(plain.split()) < 2:
            return []
        hedge = _HEDGED if _HEDGE.search(sentence) else ""
        found = dict.fromkeys(self._facts(plain, about))
        return [hedge + statement(f) for f in found if f] + [
            sentence for f in found if f is None
        ]

    def parse(self, text: str) -> tuple[Fact, bool] | None:
        """The fact that a statement of `statements` states and whether it hedges; None
        if that is in its own words."""
        hedged = text.startswith(_HEDGED)
        text = text.removeprefix(_HEDGED)
        for relation, pattern in _PLAIN.items():
            match = pattern.fullmatch(text)
            if match and self._fits(relation, match["o"]):
                subject = self._subjects.get(match["s"].casefold(), match["s"])
                return Fact(subject, relation, match["o"]), hedged
        return None

    def verify(self, text: str) -> Verification:
        """What the leads say of a statement of `statements`."""
        parsed = self.parse(text)
        return self.leads.verify(parsed[0]) if parsed else "inconclusive"

    def answer(self, subject: str, relation: str, text: str) -> str:
        """The statement that a short answer makes, "" if it is not of the kind."""
        said = statement(Fact(subject, relation, text)) if text else ""
        return said if said and self.parse(said) else ""

    def facts_of(self, subject: str) -> tuple[Fact, ...]:
        """The facts that the lead of a subject states."""
        return self.leads.facts_of(subject)

    @cached_property
    def _subjects(self) -> dict[str, str]:
        """Each subject's name in small letters, with and without "the"."""
        names = {}
        for name in self.leads.subjects:
            names[name.casefold()] = name
            names[name.casefold().removeprefix("the ")] = name
        return names

    @cached_property
    def _countries(self) -> dict[str, str]:
        aliases = {a: c for c, of in COUNTRY_ALIASES.items() for a in of}
        return dict.fromkeys(self.leads.countries) | aliases | SHORT_NAMES

    @cached_property
    def _places(self) -> re.Pattern[str]:
        names = sorted([*self._countries, *CONTINENTS], key=len, reverse=True)
        return re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b(?! Ocean| Sea)")

    def _fits(self, relation: str, value: str) -> bool:
        """Whether an object is of the relation's kind: some share a wording."""
        match relation:
            case "nationality":
                return value in DEMONYMS
            case "occupation":
                return value in OCCUPATIONS
            case "continent":
                return value in CONTINENTS
            case "country":
                return value in self._countries
            case "birth_year" | "death_year" | "work_year":
                return value.isdigit()
        return True

    def _facts(self, plain: str, about: str) -> list[Fact | None]:
        """The facts of a sentence; None for a clause that none was read from."""
        subject, rest = self._split(plain.rstrip("."), about)
        if subject is None or _DENIED.search(rest):
            return [None]
        found: list[Fact | None] = []
        for match in _SPAN.finditer(rest):
            found += [Fact(subject, "birth_year", match[1])]
            found += [Fact(subject, "death_year", match[2])]
        rest = re.sub(r" ?\([^()]*\)", "", rest)
        for clause in _CLAUSES.split(rest):
            read = list(self._clause(subject, clause.strip()))
            found += read or ([None] if len(clause.split()) > 1 else [])
        return found

    def _split(self, plain: str, about: str) -> tuple[str | None, str]:
        """A sentence's subject and what is said of it; None for one that is unknown."""
        turned = re.match(
            r"(?i)(the (?:chemical )?symbol|the atomic number|the capital"
            r"(?: city)?) (?:of|for) (?:the )?(.+?) (is .+)",
            plain,
        )
        if turned:
            name = self._subjects.get(turned[2].casefold())
            if "capital" in turned[1].lower():
                return name, f"capital {turned[3]}"
            return name or None, f"{turned[1].lower()} {turned[3]}"
        if _PRONOUN.match(plain) and about:
            return about, _PRONOUN.sub("", plain, count=1).strip()
        words = plain.split()
        for n in range(min(len(words), 9), 0, -1):
            name = " ".join(words[:n]).rstrip(",").removesuffix("'s").removesuffix("’s")
            name = re.sub(
                r"(?i)^the (?:film|novel|album|song|play|element|city of) ", "", name
            )
            if name.casefold() in self._subjects:
                return self._subjects[name.casefold()], " ".join(words[n:])
        last = about.split()[-1:] if self._is_person(about) else []
        if last and words[0].rstrip(",") == last[0]:
            return about, " ".join(words[1:])
        return None, plain

    def _is_person(self, name: str) -> bool:
        return name in self.leads.subjects and self.leads.subjects[name].is_person

    def _clause(self, subject: str, clause: str):
        """The facts of a clause of which the subject is known."""
        clause = re.sub(r"^(?:who|which|where) ", "", clause)
        if match := _CENTURY.search(clause):
            yield Fact(subject, "century", match[1])
        if self._is_person(subject):
            yield from self._life(subject, clause)
        else:
            yield from self._thing(subject, clause)

    def _life(self, subject: str, clause: str):
        if match := _BORN.search(clause):
            yield Fact(subject, "birth_year", match[1])
        if match := _DIED.search(clause):
            yield Fact(subject, "death_year", match[1])
        nouns = _NOUNS.match(clause)
        if not nouns or re.search(r"\b(?:born|died)\b", clause):
            return
        said = _NOUNS_END.split(nouns[2])[0]
        for demonym in DEMONYMS:
            if re.search(rf"\b{demonym}\b", said):
                yield Fact(subject, "nationality", demonym)
        for word in dict.fromkeys(re.findall(r"[\w-]+", said.lower())):
            if word in OCCUPATIONS:
                yield Fact(subject, "occupation", word)

    def _thing(self, subject: str, clause: str):
        relations = {f.relation for f in self.leads.facts_of(subject)}
        if clause.startswith("capital is "):
            yield Fact(subject, "capital", clause.removeprefix("capital is "))
            return
        if match := _SYMBOL.search(clause):
            yield Fact(subject, "symbol", match[1])
        if match := _NUMBER.search(clause):
            yield Fact(subject, "atomic_number", match[1])
        if "creator" in relations or "work_year" in relations:
            if match := _BY.search(clause):
                yield Fact(subject, "creator", match[1].rstrip("."))
            if match := _WHEN_WORK.search(clause):
                yield Fact(subject, "work_year", match[1])
        elif match := _CAPITAL_OF.search(clause):
            if place := self._places.match(match[1]):
                yield Fact(
                    subject, "capital_of", self._countries.get(place[0]) or place[0]
                )
        elif "kind" in relations or relations & {"country", "continent"}:
            match = _IS_IN.search(clause)
            for place in dict.fromkeys(self._places.findall(match[1] if match else "")):
                relation = "continent" if place in CONTINENTS else "country"
                yield Fact(subject, relation, self._countries.get(place) or place)
        for kind in self.leads.objects["kind"]:
            if re.match(rf"(?:is|was) (?:an?|the) (?:[\w-]+ )*?{kind}\b", clause):
                yield Fact(subject, "kind", kind)
