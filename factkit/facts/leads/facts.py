"""The facts that Wikipedia leads state about people, places, works and elements.

They follow from the rules of `questions` and from a lead's one-line description: a
person's occupation, the kind of a place or work. A year gives a century, a country its
continent. Names that more than one lead could mean are left out. A statement that the
leads say nothing exact about is inconclusive. Ours; the papers verify with web pages.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

from factkit.data import assets
from factkit.data.corpus import Document, load_leads
from factkit.data.examples import Example
from factkit.facts.leads import questions
from factkit.facts.leads.questions import BRITISH, plain_title
from factkit.facts.source import Fact, Verification, parse_wordings
from factkit.verify.response import split_sentences

# relation: statement | question that asks for the object; {a}: the object's article
WORDINGS = parse_wordings("""
nationality: {s} was {o}. | What nationality was {s}?
occupation: {s} was {a} {o}. | What did {s} do for a living?
birth_year: {s} was born in {o}. | In which year was {s} born?
death_year: {s} died in {o}. | In which year did {s} die?
century: {s} lived in the {o} century. | In which century did {s} live?
kind: {s} is {a} {o}. | What is {s}?
country: {s} is in {o}. | In which country is {s}?
continent: {s} is in {o}. | On which continent is {s}?
capital_of: {s} is the capital of {o}. | Of which country is {s} the capital?
capital: The capital of {s} is {o}. | What is the capital of {s}?
creator: {s} is by {o}. | Who made {s}?
work_year: {s} came out in {o}. | In which year did {s} come out?
symbol: The symbol of {s} is {o}. | What is the chemical symbol of {s}?
atomic_number: The atomic number of {s} is {o}. | What is the atomic number of {s}?
""")
STATEMENTS = {relation: wording for relation, (wording, _) in WORDINGS.items()}
# relations of which a subject has one object
SINGLE = [r for r in WORDINGS if r not in ("occupation", "kind", "century")]
OPEN_REQUEST = "Tell me about {s}."
NOW = 2024  # the year of the leads
# country → other countries that a place in it may be said to be in
_MAY_BE_IN = {"United Kingdom": questions.UK_NATIONS, "United States": ("Georgia",)}
PERSON = ("nationality", "occupation", "birth_year", "death_year", "century")
# relation of a short question → relation of the fact
_RELATIONS = {
    **dict.fromkeys(("city_country", "place_country", "landmark_country"), "country"),
    **{r: r for r in ("birth_year", "death_year", "nationality", "creator")},
    **{r: r for r in ("work_year", "continent", "atomic_number")},
    "region_country": "country",
    "capital_country": "capital_of",
    "chemical_symbol": "symbol",
}
# fields of work, one per line: a person has hardly an occupation of a field that the
# lead and its description do not mention
_FIELDS = """
painter sculptor printmaker illustrator photographer artist cartoonist designer \
architect engraver
composer singer musician pianist conductor songwriter guitarist violinist cellist \
saxophonist rapper tenor soprano organist singer-songwriter
actor actress filmmaker director dancer choreographer screenwriter comedian producer \
entertainer animator playwright dramatist
writer poet novelist author playwright dramatist essayist journalist critic \
screenwriter satirist translator editor
philosopher theologian mystic logician historian scholar theorist essayist \
sociologist economist linguist educator teacher
physicist mathematician chemist biologist botanist zoologist astronomer geologist \
naturalist scientist engineer inventor physician surgeon psychologist psychiatrist \
anthropologist economist sociologist biochemist logician microbiologist physiologist \
crystallographer statistician geneticist polymath paleontologist psychoanalyst linguist
politician statesman revolutionary activist diplomat jurist lawyer reformer \
abolitionist president leader judge anarchist
general officer admiral soldier commander conquistador marshal warlord
athlete footballer player boxer gymnast cricketer golfer swimmer runner cyclist \
skater driver grandmaster
saint priest bishop friar cleric preacher clergyman monk rabbi theologian mystic \
reformer missionary
businessman entrepreneur magnate merchant banker investor industrialist publisher
explorer navigator aviator astronaut cosmonaut mountaineer conquistador
"""
FIELDS = [field.split() for field in _FIELDS.strip().splitlines()]
OCCUPATIONS = tuple(sorted(set(_FIELDS.split())))
# occupation → narrower ones: a physicist is a scientist
_NARROWER = questions.table("""
    artist=painter|sculptor|printmaker|illustrator|photographer|cartoonist|engraver|
    musician|singer; musician=composer|singer|pianist|conductor|songwriter|guitarist|
    violinist|cellist|saxophonist|rapper|organist|trumpeter|drummer;
    writer=author|novelist|poet|playwright|dramatist|essayist|screenwriter;
    scientist=physicist|chemist|biologist|botanist|zoologist|astronomer|geologist|
    naturalist|biochemist|microbiologist|physiologist|crystallographer|geneticist|
    paleontologist; chemist=biochemist; politician=statesman;
    businessman=entrepreneur|industrialist|magnate|investor""")
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
class Subject:
    """The subject of a lead, with its facts; title and text are the lead's."""

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
    """The subjects by name, and the countries that a statement can name."""

    subjects: dict[str, Subject]
    countries: frozenset[str]

    @cached_property
    def by_key(self) -> dict[tuple[str, str], list[Fact]]:
        """(subject, relation) → facts; only occupations are several."""
        table = defaultdict(list)
        for subject in self.subjects.values():
            for fact in subject.facts:
                table[subject.name, fact.relation].append(fact)
        return dict(table)

    def facts_of(self, name: str) -> tuple[Fact, ...]:
        """A subject's facts, in the order of `STATEMENTS`; none if unknown."""
        return self.subjects[name].facts if name in self.subjects else ()

    def verify(self, fact: Fact) -> Verification:
        """Whether the leads support or contradict a fact."""
        known = self.by_key.get((fact.subject, fact.relation), [])
        names = {name.rstrip(".") for f in known for name in (f.object, *f.others)}
        if fact.object.rstrip(".") in names:
            return "supported"
        subject = self.subjects.get(fact.subject)
        if subject is None:
            return "inconclusive"
        true = known[0].object if known else ""
        match fact.relation:
            case "occupation":
                return _occupation(subject, fact.object)
            case "kind" if not subject.is_person:  # a capital is a city
                city = fact.object == "city"
                city &= (fact.subject, "capital_of") in self.by_key
                return "supported" if city else "inconclusive"
            case "nationality" if not known:
                return _nationality(subject, fact.object)
            case "birth_year" | "century" if not known:
                return self._after_death(fact)
            case "nationality" if {true, fact.object} <= BRITISH:
                return "inconclusive"
            case "death_year" if (fact.subject, "birth_year") in self.by_key:
                return "contradicted"  # of another year, or of somebody alive
            case "country" if (
                fact.object in _MAY_BE_IN.get(true, ())
                or fact.object not in self.countries
            ):
                return "inconclusive"
            case "country" if true in questions.UK_NATIONS:
                whole = fact.object == "United Kingdom"
                return "supported" if whole else "contradicted"
            case "creator" if known and _alike(true, fact.object):
                return "inconclusive"
            case "kind":
                return "contradicted"
        return "contradicted" if known else "inconclusive"

    def _after_death(self, fact: Fact) -> Verification:
        """Verify a birth year or century by the year of death alone."""
        year = int(re.sub(r"\D", "", fact.object))
        if fact.relation == "century":
            year = 100 * (year - 1) + 1
        deaths = self.by_key.get((fact.subject, "death_year"), [])
        too_late = any(year > int(death.object) for death in deaths)
        return "contradicted" if too_late else "inconclusive"


def statement(fact: Fact) -> str:
    """The sentence that states a fact, which `reader` can read."""
    article = "an" if re.match("(?i)[aeiou](?!ni)", fact.object) else "a"
    value = f"the {fact.object}" if _THE.match(fact.object) else fact.object
    subject = fact.subject
    if fact.relation in ("capital", "symbol", "atomic_number"):
        subject = name_within(subject)
    sentence = STATEMENTS[fact.relation].format(s=subject, o=value, a=article)
    return sentence[0].upper() + sentence[1:].replace("..", ".")


def question(fact: Fact, wording: int = 0) -> str:
    """The short question that a fact's object answers; it has one wording."""
    return WORDINGS[fact.relation][1].format(s=name_within(fact.subject))


def name_within(subject: str) -> str:
    """A subject's name within a sentence: "The Louvre" → "the Louvre"."""
    return re.sub("^The (?=Museum|.* (?:Museum|Republic)|[A-Z])", "the ", subject)


@cache
def load() -> Leads:
    """The embedded leads' facts."""
    return of_documents(load_leads())


def of_documents(documents: Sequence[Document]) -> Leads:
    """The facts of leads: of subjects with two facts or more and a unique name."""
    elements = assets.verified("elements")
    by_lead = defaultdict(list)
    for example in questions.lead_questions(documents, elements)[0]:
        by_lead[example.entity].append(example)
    names = Counter(plain_title(d.title)[0].casefold() for d in documents)
    drafts = {
        document.title: list(_facts(document, by_lead[document.title]))
        for document in documents
        if names[plain_title(document.title)[0].casefold()] == 1
    }
    all_facts = [fact for facts in drafts.values() for fact in facts]
    continents = {f.subject: f.object for f in all_facts if f.relation == "continent"}
    continents |= dict.fromkeys((*questions.UK_NATIONS, "United Kingdom"), "Europe")
    capitals = {f.object: f for f in all_facts if f.relation == "capital_of"}
    order, subjects = list(STATEMENTS), {}
    for document in documents:
        facts = drafts.get(document.title, [])
        facts = [*facts, *_further(facts, continents, capitals)]
        if len({f.relation for f in facts}) > 1:
            facts = sorted(dict.fromkeys(facts), key=lambda f: order.index(f.relation))
            name, description = facts[0].subject, questions.description(document)
            subjects[name] = Subject(
                name, document.title, document.text, description, tuple(facts)
            )
    index = questions.LeadIndex(documents, elements)
    return Leads(subjects, frozenset(index.countries))


def _facts(document: Document, examples: Sequence[Example]) -> Iterator[Fact]:
    """The facts by the questions on a lead and by its description.

    The subject's name begins sentences: without the title's brackets, with "The" if the
    lead has it; that of an element is in small letters.
    """
    relations = {e.relation for e in examples}
    is_element = "chemical_symbol" in relations
    name = plain_title(document.title)[0]
    if is_element:
        name = name.lower()
    else:
        name = questions.with_article(name, document.text)
        name = name[0].upper() + name[1:]
    for example in examples:
        if relation := _RELATIONS.get(example.relation):
            answers = example.answers
            if relation in ("country", "capital_of"):  # England before the whole
                answers = sorted(answers, key=lambda a: a not in questions.UK_NATIONS)
            first, *others = dict.fromkeys(answers)
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
    """The country and continent of a place by what it is in or the capital of; the
    capital of a country."""
    relations = {f.relation for f in facts}
    wholes = [f for f in facts if f.relation in ("country", "capital_of")]
    if "country" not in relations:
        yield from (Fact(f.subject, "country", f.object, f.others) for f in wholes)
    if wholes and "continent" not in relations and wholes[0].object in continents:
        yield Fact(facts[0].subject, "continent", continents[wholes[0].object])
    if facts and (capital := capitals.get(facts[0].subject)):
        city, *land = capital.subject.split(", ")  # "San José, Costa Rica"
        others = (capital.subject,) if land else ()
        yield Fact(facts[0].subject, "capital", city, others)


def _alike(known: str, stated: str) -> bool:
    """Whether two names may mean one person: by their parts or their last name."""
    a, b = known.split(), stated.split()
    return a[-1] == b[-1] or set(a) <= set(b) or set(b) <= set(a)


def _nationality(subject: Subject, demonym: str) -> Verification:
    """Supported if the lead begins with it (the leads have none, or two)."""
    first = split_sentences(subject.text)[0]
    begins = re.search(rf"\b(?:is|was) an? (?:[\w-]+ )?{demonym}\b(?!-)", first)
    return "supported" if begins else "inconclusive"


def _occupation(subject: Subject, occupation: str) -> Verification:
    """Supported if the description or the lead's first sentence has the occupation or a
    narrower one; contradicted if the lead has none of their fields."""
    if not subject.is_person:
        return "inconclusive"
    words = {occupation, *_NARROWER.get(SAME.get(occupation, occupation), ())}
    first = f"{subject.description} {split_sentences(subject.text)[0]}".lower()
    if re.search(rf"\b(?:{'|'.join(sorted(words))})\b", first):
        return "supported"
    near = [word for field in FIELDS if words & set(field) for word in field]
    text = f"{subject.description} {subject.text}".lower()
    has_occupation = any(f.relation == "occupation" for f in subject.facts)
    if (
        not near
        or not has_occupation
        or re.search(rf"\b(?:{'|'.join(near)})s?\b", text)
    ):
        return "inconclusive"
    return "contradicted"


def in_centuries(facts: Iterable[Fact]) -> list[Fact]:
    """The facts, each once, with the century in place of a year of birth or death.

    Of several centuries the first stays.
    """
    stated: dict[Fact | str, Fact] = {}
    for fact in facts:
        if fact.relation in ("birth_year", "death_year"):
            value = century(int(fact.object))
            fact = replace(fact, relation="century", object=value)
        stated.setdefault("century" if fact.relation == "century" else fact, fact)
    return list(stated.values())


def century(year: int) -> str:
    """1867 → "19th"."""
    number = (year - 1) // 100 + 1
    ending = {21: "st", 1: "st", 2: "nd", 3: "rd"}.get(number, "th")
    return f"{number}{ending}"
