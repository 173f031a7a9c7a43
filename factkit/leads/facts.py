"""The facts that Wikipedia leads state exactly: of people, places, works, elements.

From the short questions' rules (`factkit.leads.questions`), and from a lead's one-line
description: what a person did, what sort of place or work it is. A year gives a
century, a country its continent. What more than one lead could mean is left out.

A verdict is one of three: a statement that the leads say nothing exact about is
inconclusive. Ours throughout; the papers hold claims against web pages.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from factkit import assets
from factkit.corpus import Document, load_leads
from factkit.datasets.examples import Example
from factkit.leads import questions
from factkit.leads.questions import BRITISH, plain_title
from factkit.verify.sentences import sentences
from factkit.world.facts import Verification

# relation → how a statement has it; {a}: the article that the object takes
STATEMENTS = {
    "nationality": "{s} was {o}.",
    "occupation": "{s} was {a} {o}.",
    "birth_year": "{s} was born in {o}.",
    "death_year": "{s} died in {o}.",
    "century": "{s} lived in the {o} century.",
    "kind": "{s} is {a} {o}.",
    "country": "{s} is in {o}.",
    "continent": "{s} is in {o}.",
    "capital_of": "{s} is the capital of {o}.",
    "capital": "The capital of {s} is {o}.",
    "creator": "{s} is by {o}.",
    "work_year": "{s} came out in {o}.",
    "symbol": "The symbol of {s} is {o}.",
    "atomic_number": "The atomic number of {s} is {o}.",
}
NOW = 2024  # of the leads
# country → of what is in it, what else it may be said to be in
_MAY_BE_IN = {"United Kingdom": questions.UK_NATIONS, "United States": ("Georgia",)}
PERSON = ("nationality", "occupation", "birth_year", "death_year", "century")
# relation of a short question → of the fact
_AS = {relation: relation for relation in ("birth_year", "death_year", "nationality")}
_AS |= {r: r for r in ("creator", "work_year", "continent", "atomic_number")}
_AS |= {f"{what}_country": "country" for what in ("city", "place", "landmark")}
_AS |= {"region_country": "country", "capital_country": "capital_of"}
_AS |= {"chemical_symbol": "symbol"}
# fields of work: who is said to have been of one was hardly of another that neither
# description nor lead has a word of
_FIELDS = {
    field: words.split()
    for field, words in {
        "arts": "painter sculptor printmaker illustrator photographer artist "
        "cartoonist designer architect engraver",
        "music": "composer singer musician pianist conductor songwriter guitarist "
        "violinist cellist saxophonist rapper tenor soprano organist singer-songwriter",
        "stage": "actor actress filmmaker director dancer choreographer screenwriter "
        "comedian producer entertainer animator playwright dramatist",
        "letters": "writer poet novelist author playwright dramatist essayist "
        "journalist critic screenwriter satirist translator editor",
        "thought": "philosopher theologian mystic logician historian scholar theorist "
        "essayist sociologist economist linguist educator teacher",
        "science": "physicist mathematician chemist biologist botanist zoologist "
        "astronomer geologist naturalist scientist engineer inventor physician surgeon "
        "psychologist psychiatrist anthropologist economist sociologist biochemist "
        "logician microbiologist physiologist crystallographer statistician "
        "geneticist polymath paleontologist psychoanalyst linguist",
        "politics": "politician statesman revolutionary activist diplomat jurist "
        "lawyer reformer abolitionist president leader judge anarchist",
        "war": "general officer admiral soldier commander conquistador marshal warlord",
        "sport": "athlete footballer player boxer gymnast cricketer golfer swimmer "
        "runner cyclist skater driver grandmaster",
        "religion": "saint priest bishop friar cleric preacher clergyman monk rabbi "
        "theologian mystic reformer missionary",
        "business": "businessman entrepreneur magnate merchant banker investor "
        "industrialist publisher",
        "travel": "explorer navigator aviator astronaut cosmonaut mountaineer "
        "conquistador",
    }.items()
}
OCCUPATIONS = tuple(sorted({word for words in _FIELDS.values() for word in words}))
# an occupation → narrower ones: whoever is a physicist is a scientist
_NARROWER = {
    broad: words.split()
    for broad, words in {
        "artist": "painter sculptor printmaker illustrator photographer cartoonist "
        "engraver musician singer",
        "musician": "composer singer pianist conductor songwriter guitarist violinist "
        "cellist saxophonist rapper organist trumpeter drummer",
        "writer": "author novelist poet playwright dramatist essayist screenwriter",
        "scientist": "physicist chemist biologist botanist zoologist astronomer "
        "geologist naturalist biochemist microbiologist physiologist crystallographer "
        "geneticist paleontologist",
        "chemist": "biochemist",
        "politician": "statesman",
        "businessman": "entrepreneur industrialist magnate investor",
    }.items()
}
SAME = {"actress": "actor", "filmmaker": "director", "author": "writer"}
_KINDS = re.compile(
    r"(?i)\b(city|river|lake|volcano|island|desert|plateau|peninsula|tower|museum|"
    r"temple|university|skyscraper|bridge|church|palace|country|state|province|film|"
    r"novel|play|poem|painting|sculpture|opera|ballet|symphony|album|song)\b"
)


_THE = re.compile(
    r"United|Netherlands|Philippines|Bahamas|Maldives|Gambia|Solomon|Marshall|"
    r"(?:Czech|Dominican|Central African|Democratic) Republic|Republic of|Soviet"
)


@dataclass(frozen=True)
class Fact:
    """(subject, relation, object); `others`: what else the object is called."""

    subject: str
    relation: str
    object: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Subject:
    """What a lead is about, with its facts; title and text are the lead's."""

    name: str
    title: str
    text: str
    description: str
    facts: tuple[Fact, ...]

    @property
    def is_person(self) -> bool:
        return any(f.relation in PERSON for f in self.facts)


@dataclass(frozen=True)
class Leads:
    """The subjects by their names, and the countries that a statement can name."""

    subjects: dict[str, Subject]
    countries: frozenset[str]

    @cached_property
    def by_key(self) -> dict[tuple[str, str], list[Fact]]:
        """(subject, relation) → its facts: only occupations are several."""
        table = defaultdict(list)
        for subject in self.subjects.values():
            for fact in subject.facts:
                table[subject.name, fact.relation].append(fact)
        return dict(table)

    def _after_death(self, fact: Fact) -> Verification:
        """Of a birth or a century of which only the death's year is known."""
        year = int(re.sub(r"\D", "", fact.object))
        if fact.relation == "century":
            year = 100 * (year - 1) + 1
        deaths = self.by_key.get((fact.subject, "death_year"), [])
        too_late = any(year > int(death.object) for death in deaths)
        return "contradicted" if too_late else "inconclusive"

    def facts_of(self, name: str) -> tuple[Fact, ...]:
        """A subject's facts, in the order of `STATEMENTS`; none if it is unknown."""
        return self.subjects[name].facts if name in self.subjects else ()

    def verify(self, fact: Fact) -> Verification:
        """What the leads say of a fact."""
        known = self.by_key.get((fact.subject, fact.relation), [])
        named = {name.rstrip(".") for f in known for name in (f.object, *f.others)}
        if fact.object.rstrip(".") in named:
            return "supported"
        subject = self.subjects.get(fact.subject)
        if subject is None:
            return "inconclusive"
        match fact.relation:
            case "occupation":
                return _occupation(subject, fact.object)
            case "kind" if subject.is_person:
                return "contradicted"
            case "kind":  # a thing is of many kinds; a capital is a city
                city = fact.object == "city"
                city &= (fact.subject, "capital_of") in self.by_key
                return "supported" if city else "inconclusive"
            case "nationality" if not known:
                return _nationality(subject, fact.object)
            case "birth_year" | "century" if not known:
                return self._after_death(fact)
            case "nationality" if {known[0].object, fact.object} <= BRITISH:
                return "inconclusive"
            case "death_year" if self.by_key.get((fact.subject, "birth_year")):
                return "contradicted"  # of another year, or of somebody alive
            case "country" if known and fact.object in _MAY_BE_IN.get(
                known[0].object, ()
            ):
                return "inconclusive"
            case "country" if fact.object not in self.countries:
                return "inconclusive"
            case "country" if known and known[0].object in questions.UK_NATIONS:
                whole = fact.object == "United Kingdom"
                return "supported" if whole else "contradicted"
            case "creator" if known and _alike(known[0].object, fact.object):
                return "inconclusive"
        return "contradicted" if known else "inconclusive"


def statement(fact: Fact) -> str:
    """The sentence that states a fact, as `reader` reads it back."""
    article = "an" if re.match("(?i)[aeiou](?!ni)", fact.object) else "a"
    value = f"the {fact.object}" if _THE.match(fact.object) else fact.object
    subject = fact.subject
    if fact.relation in ("capital", "symbol", "atomic_number"):
        subject = inside(subject)
    sentence = STATEMENTS[fact.relation].format(s=subject, o=value, a=article)
    return sentence[0].upper() + sentence[1:].replace("..", ".")


def inside(name: str) -> str:
    """A subject's name inside a sentence: "The Louvre" → "the Louvre"."""
    return re.sub("^The (?=Museum|.* (?:Museum|Republic)|[A-Z])", "the ", name)


@cache
def load() -> Leads:
    """The embedded leads' facts."""
    return of_documents(load_leads())


def of_documents(documents: Sequence[Document]) -> Leads:
    """The facts of leads: subjects with two of them or more, of a name of their own."""
    elements = assets.verified("elements")
    by_lead = defaultdict(list)
    for example in questions.lead_questions(documents, elements)[0]:
        by_lead[example.entity].append(example)
    names = Counter(plain_title(d.title)[0].casefold() for d in documents)
    drafts: dict[str, list[Fact]] = {}
    for document in documents:
        if names[plain_title(document.title)[0].casefold()] == 1:
            drafts[document.title] = list(_facts(document, by_lead[document.title]))
    every = [fact for facts in drafts.values() for fact in facts]
    continents = {f.subject: f.object for f in every if f.relation == "continent"}
    continents |= dict.fromkeys((*questions.UK_NATIONS, "United Kingdom"), "Europe")
    capitals = {f.object: f for f in every if f.relation == "capital_of"}
    order = list(STATEMENTS)
    subjects = {}
    for document in documents:
        facts = drafts.get(document.title, [])
        facts = [*facts, *_further(facts, continents, capitals)]
        if len({f.relation for f in facts}) > 1:
            facts = sorted(dict.fromkeys(facts), key=lambda f: order.index(f.relation))
            name, description = facts[0].subject, questions.description(document)
            subjects[name] = Subject(
                name, document.title, document.text, description, tuple(facts)
            )
    return Leads(subjects, frozenset(questions.World(documents, elements).countries))


def _name(document: Document, is_element: bool) -> str:
    """How a sentence begins with it: without what the title has in brackets, with "The"
    where the lead has it; an element in small letters."""
    name = plain_title(document.title)[0]
    if is_element:
        return name.lower()
    name = questions.with_article(name, document.text)
    return name[0].upper() + name[1:]


def _facts(document: Document, examples: Sequence[Example]) -> Iterator[Fact]:
    """What the questions on a lead and its description say."""
    relations = {e.relation for e in examples}
    is_element = "chemical_symbol" in relations
    name = _name(document, is_element)
    for example in examples:
        if relation := _AS.get(example.relation):
            first, *others = example.answers
            if relation in ("country", "capital_of"):
                first, others = _country(example.answers)
            yield Fact(name, relation, first, tuple(others))
    description = questions.description(document)
    if relations & {"birth_year", "death_year"}:
        yield from _life(name, description, examples)
    elif examples and (
        noun := _KINDS.search(re.split(r"\b(?:in|by|of)\b", description)[0])
    ):
        kind = noun[1].lower()
        yield Fact(name, "kind", kind, ("movie",) if kind == "film" else ())
    elif is_element:
        yield Fact(name, "kind", "chemical element", ("element",))


def _country(answers: Sequence[str]) -> tuple[str, list[str]]:
    """The part of the United Kingdom before the whole, as a lead has it."""
    nations = [a for a in answers if a in questions.UK_NATIONS]
    first = nations[0] if nations else answers[0]
    return first, [a for a in answers if a != first]


def _life(name: str, description: str, examples: Sequence[Example]) -> Iterator[Fact]:
    """Occupations and centuries of a person."""
    words = re.findall(r"[\w-]+", description.split("(")[0].lower())
    for word in dict.fromkeys(words):
        if word in OCCUPATIONS:
            same = {SAME.get(word, word)} | {k for k, v in SAME.items() if v == word}
            yield Fact(name, "occupation", word, tuple(sorted(same - {word})))
    years = [int(e.answers[0]) for e in examples if "_year" in e.relation]
    if "(born" in description.lower():
        years.append(NOW)
    if len(years) == 2:
        middle = century(sum(years) // 2)
        others = {century(year) for year in years} - {middle}
        yield Fact(name, "century", middle, tuple(sorted(others)))


def _further(
    facts: Sequence[Fact], continents: Mapping[str, str], capitals: Mapping[str, Fact]
) -> Iterator[Fact]:
    """A place's country and continent by what it is the capital of or in, and a
    country's capital."""
    if not facts:
        return
    name, relations = facts[0].subject, {f.relation for f in facts}
    wholes = [f for f in facts if f.relation in ("country", "capital_of")]
    if "country" not in relations:
        yield from (Fact(name, "country", f.object, f.others) for f in wholes)
    if wholes and "continent" not in relations and wholes[0].object in continents:
        yield Fact(name, "continent", continents[wholes[0].object])
    if capital := capitals.get(name):
        city, *land = capital.subject.split(", ")  # "San José, Costa Rica"
        yield Fact(name, "capital", city, (capital.subject,) if land else ())


def _alike(known: str, stated: str) -> bool:
    """Whether two names may be one's: a part of the other, or of one last name."""
    a, b = known.split(), stated.split()
    return a[-1] == b[-1] or set(a) <= set(b) or set(b) <= set(a)


def _nationality(subject: Subject, demonym: str) -> Verification:
    """Where the leads have none, or two: supported if the lead begins with it."""
    first = sentences(subject.text)[0]
    begins = re.search(rf"\b(?:is|was) an? (?:[\w-]+ )?{demonym}\b(?!-)", first)
    return "supported" if begins else "inconclusive"


def _occupation(subject: Subject, occupation: str) -> Verification:
    """Supported if the description or the lead's first sentence has the word or a
    narrower one, contradicted if the lead has none of their fields."""
    if not subject.is_person:
        return "inconclusive"
    words = {occupation, *_NARROWER.get(SAME.get(occupation, occupation), ())}
    first = f"{subject.description} {sentences(subject.text)[0]}".lower()
    if re.search(rf"\b(?:{'|'.join(sorted(words))})\b", first):
        return "supported"
    text = f"{subject.description} {subject.text}".lower()
    fields = [field for field in _FIELDS.values() if words & set(field)]
    near = "|".join(word for field in fields for word in field)
    own = any(f.relation == "occupation" for f in subject.facts)
    if not fields or not own or re.search(rf"\b(?:{near})s?\b", text):
        return "inconclusive"
    return "contradicted"


def century(year: int) -> str:
    """1867 → "19th"."""
    number = (year - 1) // 100 + 1
    ending = {21: "st", 1: "st", 2: "nd", 3: "rd"}.get(number, "th")
    return f"{number}{ending}"
