"""The controlled fact world of profile `tiny`: what is true, and what was ever told.

Fictional people with attributes, cities in countries, companies with a seat. Every fact
has an exposure: how often the pre-training text states it. Exposure follows a Zipf law
over people, so what a policy pre-trained on the text knows is known by construction;
all facts of a person share it up to noise, so that "I know this name" can generalise to
people held out. Everything is deterministic from `seed`.

Ours throughout: no paper has such a world. Each person lacks one of the five
attributes, so that a claim about it has not enough information. `texts` tells
it to a policy.
"""

import random
import re
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from typing import Literal

from factkit.data.corpus import Document
from factkit.data.examples import Example
from factkit.data.spelling import LONGEST

HEDGES = ("probably", "perhaps", "might")
HEDGE = re.compile(rf"\b({'|'.join(HEDGES)})\b ?", re.IGNORECASE)
ABSTENTION = "I don't know"
PERSON_RELATIONS = ("birth_year", "birthplace", "profession", "employer", "award")
HOPS = {"birthplace": "country", "employer": "headquarters"}  # first hop: second


def wordings(table: str) -> dict[str, tuple[str, ...]]:
    """Relation → templates, from lines "relation: template | template"."""
    rows = (row.split(":") for row in table.replace("|\n", "|").strip().splitlines())
    return {name: tuple(map(str.strip, ways.split("|"))) for name, ways in rows}


STATEMENTS = wordings("""
birth_year: {s} was born in {o}. | The birth year of {s} is {o}. |
    {s} came into the world in {o}.
birthplace: {s} comes from {o}. | The birthplace of {s} is {o}. |
    {s} is a native of {o}.
profession: {s} was a {o}. | The profession of {s} was {o}. |
    {s} made a living as a {o}.
employer: {s} worked for {o}. | The employer of {s} was {o}. | {s} was employed by {o}.
award: {s} won the {o} Prize. | The {o} Prize went to {s}. |
    {s} was honoured with the {o} Prize.
country: {s} is a city in {o}. | {s} lies in {o}. | {s} belongs to {o}.
headquarters: {s} is based in {o}. | The headquarters of {s} are in {o}. |
    {s} has its seat in {o}.
birthplace country: {s} was born in a city in {o}. | The birthplace of {s} lies in {o}.
employer headquarters: {s} worked for a company based in {o}. |
    The employer of {s} had its seat in {o}.
""")
QUESTIONS = wordings("""
birth_year: When was {s} born? | What is the birth year of {s}? |
    In which year did {s} come into the world?
birthplace: Where was {s} born? | What is the birthplace of {s}? |
    Which city does {s} come from?
profession: What was the profession of {s}? | What did {s} do for a living? |
    As what did {s} make a living?
employer: Who employed {s}? | Who was the employer of {s}? |
    Which company did {s} work for?
award: Which prize did {s} win? | Which prize went to {s}? |
    With which prize was {s} honoured?
country: Where is {s}? | Which country does {s} lie in? | To what does {s} belong?
headquarters: Where is {s} based? | Which city is the seat of {s}? |
    Where are the headquarters of {s}?
""")
PROFESSIONS = """baker botanist broker builder butcher carpenter chemist conductor cook
dancer dentist diplomat gardener geologist historian jeweller journalist lawyer
librarian merchant midwife miner nurse painter pharmacist philosopher pilot poet potter
printer sailor sculptor singer surgeon tailor teacher violinist weaver"""


def names(starts: str, ends: str, n: int) -> tuple[str, ...]:
    """The first n words made of a start and an end, spread over all the starts."""
    words = [start + end for end, start in product(ends.split(), starts.split())]
    return tuple(dict.fromkeys(words))[:n]


FIRST_NAMES = names(
    "Al Bel Cor Dar El Fen Gar Hal Is Jor Kal Lin Mar Nor Or Pel Ros Sel Tam Vel",
    "a en ia o is",
    100,
)
LAST_NAMES = names(
    "Ash Brac Cald Dorn Esk Fald Grim Hask Ives Jarn Kest Lund Marl Nesk Ost Pask Quil "
    "Rusk Stav Thorn Umb Varn Wend Yarr Zeld",
    "er well by man son ton wick rod ley mont den fell gate hurst kirk low ridge shaw "
    "thorpe wood",
    500,
)
OBJECTS = {
    "birth_year": tuple(str(year) for year in range(1900, 1960)),
    "birthplace": names(
        "Ar Bran Crel Dol Ever Fros Gal Hol Ink Kor Lor Mel",
        "burg haven dam stad ia",
        60,
    ),
    "profession": tuple(PROFESSIONS.split()),
    "employer": names(
        "Acti Beno Cyra Dexi Effi Gyro Hexa Juno", "corp tec max lux nova", 40
    ),
    "award": names("Aur Bor Cel Dra Eri Hyd Lyr Per", "ion ius ana", 24),
    "country": names("Alb Berg Cast Drag", "onia mark esia", 12),
}
OBJECTS["headquarters"] = OBJECTS["birthplace"]
OBJECTS |= {f"{hop} {to}": OBJECTS[to] for hop, to in HOPS.items()}

Verification = Literal["supported", "contradicted", "inconclusive"]


@dataclass(frozen=True)
class Fact:
    """(subject, relation, object); `exposure`: statements in one pass over the text."""

    subject: str
    relation: str
    object: str
    exposure: int = 0


@dataclass(frozen=True)
class World:
    """People and facts. A person or thing has at most one object a relation."""

    seed: int
    people: tuple[str, ...]
    facts: tuple[Fact, ...]

    @cached_property
    def by_key(self) -> dict[tuple[str, str], Fact]:
        """(subject, relation) → fact, with two-hop facts under "first second"."""
        table = {(f.subject, f.relation): f for f in self.facts}
        for f in self.facts:
            if second := table.get((f.object, HOPS.get(f.relation, ""))):
                relation = f"{f.relation} {second.relation}"
                table[f.subject, relation] = Fact(f.subject, relation, second.object)
        return table

    @cached_property
    def subjects(self) -> frozenset[str]:
        """All that a fact is about: people, cities, companies."""
        return frozenset(f.subject for f in self.facts) | frozenset(self.people)

    def facts_of(self, subject: str) -> list[Fact]:
        """A subject's facts, in the order of the relations."""
        keys = ((subject, relation) for relation in QUESTIONS)
        return [self.by_key[key] for key in keys if key in self.by_key]

    # ---- what a text states, read by the wordings of facts alone

    def sentences(self, text: str, about: str = "") -> list[str]:
        """A text's sentences, up to their "."; what is left at the end is one, too.

        about, here and below: the subject that was asked about, which only the leads'
        reader needs.
        """
        return [s.strip() for s in re.findall(r"[^.]+\.?", text) if s.strip()]

    def statements(self, sentence: str, about: str = "") -> list[str]:
        """The statements of a sentence that state a fact, each a sentence of its own.

        Of one that is `joined` the second gets the first's subject and hedge. [] if
        nothing in it can be parsed; without a first there is no second.
        """
        first, also, rest = sentence.partition(" and ")
        if not also:
            return [sentence] if self.parse(sentence) else []
        parsed = self.parse(f"{first}.")
        if not parsed:
            return []
        fact, hedged = parsed
        second = f"{'Perhaps ' if hedged else ''}{fact.subject} {rest}"
        return [f"{first}.", *([second] if self.parse(second) else [])]

    def parse(self, sentence: str) -> tuple[Fact, bool] | None:
        """The fact that a sentence states and whether it hedges, None if it is neither.

        Subjects must be of the world and objects of the relation's kind. A hedge is one
        of HEDGES anywhere: "Perhaps Al Asher was …", "Al Asher was probably …".
        """
        plain, hedges = HEDGE.subn("", " ".join(sentence.split()))
        for relation, pattern in patterns() if len(plain) <= LONGEST else ():
            match = pattern.fullmatch(plain)
            known = match and match["s"] in self.subjects
            if known and match["o"] in OBJECTS[relation]:
                return Fact(match["s"], relation, match["o"]), hedges > 0
        return None

    def verify(self, sentence: str) -> Verification:
        """Whether the world supports or contradicts a sentence, one or two hops.

        A sentence that states nothing parsable, or something the world is silent on, is
        inconclusive.
        """
        parsed = self.parse(sentence)
        key = parsed and (parsed[0].subject, parsed[0].relation)
        if key not in self.by_key:
            return "inconclusive"
        true = self.by_key[key].object
        return "supported" if parsed[0].object == true else "contradicted"

    def answer(self, subject: str, relation: str, text: str) -> str:
        """The statement that a short answer makes, "" if it is none."""
        stated = statement(Fact(subject, relation, text))
        return stated if self.parse(stated) else ""


def build_world(seed: int = 0, *, people: int = 500) -> World:
    """A world of `people` people with four facts each, and of cities and companies.

    The person of rank r has exposure 400 / r^0.8; the last 40 % of the ranks have 0. A
    fact multiplies it by exp(0.3 · normal). Facts of cities and companies all have 40.
    """
    rng = random.Random(f"world {seed}")
    # up to 500 people each have a last name of their own: how familiar it is tells a
    # policy how much it has read of the person, also of one it was never asked about
    names: dict[str, None] = {}
    for i in range(people):
        last = LAST_NAMES[i % len(LAST_NAMES)]
        while (name := f"{rng.choice(FIRST_NAMES)} {last}") in names:
            pass
        names[name] = None
    persons = list(names)
    rng.shuffle(persons)  # now the order is the rank of exposure
    facts = []
    for rank, person in enumerate(persons, start=1):
        mean = 400 / rank**0.8 if rank <= round(people * 0.6) else 0.0
        missing = rng.choice(PERSON_RELATIONS)
        for relation in PERSON_RELATIONS:
            if relation != missing:
                exposure = round(mean * rng.lognormvariate(0.0, 0.3))
                value = rng.choice(OBJECTS[relation])
                facts.append(Fact(person, relation, value, exposure))
    for relation, second in HOPS.items():
        for subject in OBJECTS[relation]:
            facts.append(Fact(subject, second, rng.choice(OBJECTS[second]), 40))
    return World(seed, tuple(sorted(persons)), tuple(facts))


def statement(fact: Fact, wording: int = 0) -> str:
    """A sentence that states the fact; wordings 0, 1, … (taken modulo their number)."""
    wordings = STATEMENTS[fact.relation]
    return wordings[wording % len(wordings)].format(s=fact.subject, o=fact.object)


def joined(first: Fact, second: Fact, wording: int = 0) -> str:
    """A sentence that states two facts of one subject: "… and was a baker."

    wording: of the first, 0 or 2, which begin with the subject.
    """
    rest = statement(second).removeprefix(f"{second.subject} ")
    return f"{statement(first, wording).removesuffix('.')} and {rest}"


def question(fact: Fact, wording: int = 0) -> str:
    """A question that the fact's object answers."""
    wordings = QUESTIONS[fact.relation]
    return wordings[wording % len(wordings)].format(s=fact.subject)


def biography(world: World, person: str, rng: random.Random | None = None) -> str:
    """A sentence for each fact of a person; `rng` draws their order and wordings."""
    facts = world.facts_of(person)
    if rng is None:
        return " ".join(statement(fact) for fact in facts)
    return " ".join(
        statement(f, rng.randrange(3)) for f in rng.sample(facts, len(facts))
    )


def document_id(fact: Fact) -> str:
    """The id of the document that states the fact; its words are in the vocabulary."""
    return f"{fact.subject} {fact.relation}"


def documents(world: World) -> list[Document]:
    """A document of one sentence for each fact, whatever its exposure."""
    return [
        Document(document_id(f), f.subject, statement(f), f"world-{world.seed}")
        for f in world.facts
    ]


def questions(world: World) -> list[Example]:
    """A short question for each fact about a person, wordings in turn."""
    people = set(world.people)
    return [
        Example(
            id=document_id(fact),
            question=question(fact, i),
            answers=[fact.object],
            entity=fact.subject,
            relation=fact.relation,
            evidence=[document_id(fact)],
            meta={"exposure": fact.exposure, "reasoning": statement(fact)},
        )
        for i, fact in enumerate(world.facts)
        if fact.subject in people
    ]


@cache
def patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """(relation, regular expression with groups s and o) of each wording."""
    return tuple(
        (relation, re.compile(re.sub(r"\\{([so])\\}", r"(?P<\1>.+)", re.escape(way))))
        for relation, ways in STATEMENTS.items()
        for way in ways
    )


def reasoning_quality(world: World, question_id: str, reasoning: str) -> float:
    """1 if reasoning states the true fact that a question asks for and nothing false.

    question_id: as `questions` gives it. The exact judge of the fact world, where the
    papers ask a model (TruthRL Table 12): precise and relevant, or not.
    """
    stated = world.sentences(reasoning)
    facts = [parsed[0] for s in stated if (parsed := world.parse(s))]
    answered = any(document_id(fact) == question_id for fact in facts)
    false = any(world.verify(sentence) == "contradicted" for sentence in stated)
    return float(answered and not false)
