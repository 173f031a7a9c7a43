"""The fact world of profile `tiny`: made-up people, cities and companies.

Every fact has an exposure: how often the pre-training text (`texts`) states it. So what
a policy knows is known by construction. Each person lacks one of five attributes, so
that a claim about it has not enough information. Everything is deterministic from
`seed`. Ours: no paper has such a world.
"""

import random
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from typing import Any, Literal

from factkit.data.corpus import Document
from factkit.data.examples import Example
from factkit.data.sources import Loaded
from factkit.data.spelling import LONGEST
from factkit.facts.source import Fact, FactSource, Verification, parse_wordings

Exposure = Literal["person", "fact"]
HEDGES = ("probably", "perhaps", "might")
HEDGE = re.compile(rf"\b({'|'.join(HEDGES)})\b ?", re.IGNORECASE)
ABSTENTION = "I don't know"
PERSON_RELATIONS = ("birth_year", "birthplace", "profession", "employer", "award")
UNTOLD_SHARE = 0.35  # of the facts about people where exposure is each fact's own
EXPOSURE_MEDIAN = 8.0  # of the others there
HOPS = {"birthplace": "country", "employer": "headquarters"}  # first hop: second


STATEMENTS = parse_wordings("""
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
QUESTIONS = parse_wordings("""
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


def make_names(starts: str, ends: str, n: int) -> tuple[str, ...]:
    """The first n words made of a start and an end, spread over all the starts."""
    words = [start + end for end, start in product(ends.split(), starts.split())]
    return tuple(dict.fromkeys(words))[:n]


FIRST_NAMES = make_names(
    "Al Bel Cor Dar El Fen Gar Hal Is Jor Kal Lin Mar Nor Or Pel Ros Sel Tam Vel",
    "a en ia o is",
    100,
)
LAST_NAMES = make_names(
    "Ash Brac Cald Dorn Esk Fald Grim Hask Ives Jarn Kest Lund Marl Nesk Ost Pask Quil "
    "Rusk Stav Thorn Umb Varn Wend Yarr Zeld",
    "er well by man son ton wick rod ley mont den fell gate hurst kirk low ridge shaw "
    "thorpe wood",
    500,
)
OBJECTS = {
    "birth_year": tuple(str(year) for year in range(1900, 1960)),
    "birthplace": make_names(
        "Ar Bran Crel Dol Ever Fros Gal Hol Ink Kor Lor Mel",
        "burg haven dam stad ia",
        60,
    ),
    "profession": tuple(PROFESSIONS.split()),
    "employer": make_names(
        "Acti Beno Cyra Dexi Effi Gyro Hexa Juno", "corp tec max lux nova", 40
    ),
    "award": make_names("Aur Bor Cel Dra Eri Hyd Lyr Per", "ion ius ana", 24),
    "country": make_names("Alb Berg Cast Drag", "onia mark esia", 12),
}
VAGUE = {  # in the place of an object: says nothing that could be verified
    "birth_year": "some year",
    "birthplace": "some city",
    "profession": "specialist",
    "employer": "some company",
    "award": "great",
}
OBJECTS["headquarters"] = OBJECTS["birthplace"]
OBJECTS |= {f"{hop} {to}": OBJECTS[to] for hop, to in HOPS.items()}

BIOGRAPHY_QUESTIONS = ("Who was {s}?", "Tell me about {s}.")


def statement(fact: Fact, wording: int = 0) -> str:
    """A sentence that states the fact, in one of its wordings (modulo their number)."""
    wordings = STATEMENTS[fact.relation]
    return wordings[wording % len(wordings)].format(s=fact.subject, o=fact.object)


def join_statements(first: Fact, second: Fact, wording: int = 0) -> str:
    """A sentence that states two facts of one subject: "… and was a baker."

    wording: of the first fact; 0 and 2 begin with the subject.
    """
    predicate = statement(second).removeprefix(f"{second.subject} ")
    return f"{statement(first, wording).removesuffix('.')} and {predicate}"


def question(fact: Fact, wording: int = 0) -> str:
    """A question that the fact's object answers."""
    wordings = QUESTIONS[fact.relation]
    return wordings[wording % len(wordings)].format(s=fact.subject)


def document_id(fact: Fact) -> str:
    """The id of the document that states the fact; its words are in the vocabulary."""
    return f"{fact.subject} {fact.relation}"


@cache
def patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """(relation, regular expression with groups s and o) of each wording."""
    return tuple(
        (relation, re.compile(re.sub(r"\\{([so])\\}", r"(?P<\1>.+)", re.escape(way))))
        for relation, ways in STATEMENTS.items()
        for way in ways
    )


@dataclass(frozen=True)
class World(FactSource):
    """People and facts. A subject has at most one object per relation.

    exposure: whether it is drawn for a `person` or for each `fact` (`build_world`).
    """

    seed: int
    people: tuple[str, ...]
    facts: tuple[Fact, ...]
    exposure: Exposure = "person"

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

    # ---- reading, by the wordings of facts alone

    def sentences(self, text: str, about: str = "") -> list[str]:
        """A text's sentences, up to their "."; what is left at the end is one, too."""
        return [s.strip() for s in re.findall(r"[^.]+\.?", text) if s.strip()]

    def statements(self, sentence: str, about: str = "") -> list[str]:
        """The statements of a sentence that state a fact, each a sentence of its own.

        Those joined by "and" get the subject and hedge of the first part, whether or
        not that states a fact: "Al Asher was born in some year and was a baker."
        """
        first, *predicates = sentence.split(" and ")
        if not predicates:
            return [sentence] if self.parse(sentence) else []
        plain, hedges = HEDGE.subn("", first)
        parsed = self.parse(f"{first}.")
        subject = parsed[0].subject if parsed else self._find_subject(plain)
        whose = f"{'Perhaps ' if hedges else ''}{subject}"
        *between, last = predicates
        texts = [f"{first}.", *(f"{whose} {p}." for p in between), f"{whose} {last}"]
        return [text for text in texts if self.parse(text)]

    def _find_subject(self, text: str) -> str:
        """The first person or thing that a text names, "" if it names none."""
        found = [(text.find(s), -len(s), s) for s in self.subjects if s in text]
        return min(found, default=(0, 0, ""))[2]

    def parse(self, sentence: str) -> tuple[Fact, bool] | None:
        """The fact that a sentence states and whether it hedges, None if it is neither.

        Subjects must be of the world and objects of the relation's kind. A hedge is one
        of HEDGES anywhere: "Perhaps Al Asher was …", "Al Asher was probably …".
        """
        plain, hedges = HEDGE.subn("", " ".join(sentence.split()))
        for relation, pattern in patterns() if len(plain) <= LONGEST else ():
            match = pattern.fullmatch(plain)
            if not match or match["s"] not in self.subjects:
                continue
            if match["o"] in OBJECTS[relation]:
                return Fact(match["s"], relation, match["o"]), hedges > 0
        return None

    def verify(self, sentence: str) -> Verification:
        """Whether the world supports or contradicts a sentence, of one or two hops.

        A sentence that can't be parsed, or states what the world is silent on, is
        inconclusive.
        """
        parsed = self.parse(sentence)
        if parsed is None:
            return "inconclusive"
        fact, _ = parsed
        true = self.by_key.get((fact.subject, fact.relation))
        if true is None:
            return "inconclusive"
        return "supported" if fact.object == true.object else "contradicted"

    def answer(self, subject: str, relation: str, text: str) -> str:
        """The statement that a short answer makes, "" if it makes none."""
        sentence = statement(Fact(subject, relation, text))
        return sentence if self.parse(sentence) else ""

    # ---- requests

    grades_reasoning = True
    open_requests = BIOGRAPHY_QUESTIONS
    statement = staticmethod(statement)
    question = staticmethod(question)

    def evidence(self, subject: str) -> list[str]:
        """The ids of the documents about a subject."""
        return [document_id(fact) for fact in self.facts_of(subject)]

    def describe(self, subject: str, fact: Fact | None = None) -> dict[str, Any]:
        """The exposure of a fact, or the mean of a person's."""
        if fact:
            return {"exposure": fact.exposure}
        exposures = [fact.exposure for fact in self.facts_of(subject)]
        return {"exposure": round(sum(exposures) / 4)}

    # ---- questions and documents

    def questions(self) -> Loaded:
        """A short question for each fact about a person, wordings in turn."""
        people = set(self.people)
        examples = [
            Example(
                id=document_id(fact),
                question=question(fact, i),
                answers=[fact.object],
                entity=fact.subject,
                relation=fact.relation,
                evidence=[document_id(fact)],
                meta={"exposure": fact.exposure, "reasoning": statement(fact)},
            )
            for i, fact in enumerate(self.facts)
            if fact.subject in people
        ]
        return examples, Counter()

    def documents(self) -> list[Document]:
        """A document of one sentence for each fact, whatever its exposure."""
        source = f"world-{self.seed}"
        return [
            Document(document_id(fact), fact.subject, statement(fact), source)
            for fact in self.facts
        ]

    def contradicting_documents(self, sentence: str) -> set[str]:
        """The ids of the documents that together contradict a sentence, one per hop;
        none if they don't."""
        parsed = self.parse(sentence)
        if parsed is None or self.verify(sentence) != "contradicted":
            return set()
        fact, _ = parsed
        ids, subject = set(), fact.subject
        for hop in fact.relation.split():
            true = self.by_key[subject, hop]
            ids.add(document_id(true))
            subject = true.object
        return ids

    def reasoning_quality(self, question_id: str, reasoning: str) -> float:
        """1 if reasoning states the fact that a question asks for and nothing false.

        question_id: as in `questions`. The papers ask a model (TruthRL Table 12).
        """
        sentences = self.sentences(reasoning)
        facts = [parsed[0] for s in sentences if (parsed := self.parse(s))]
        answered = any(document_id(fact) == question_id for fact in facts)
        false = any(self.verify(s) == "contradicted" for s in sentences)
        return float(answered and not false)


def build_world(
    seed: int = 0, *, people: int = 500, exposure: Exposure = "person"
) -> World:
    """A world of `people` people with four facts each, and of cities and companies.

    exposure: "person": the person of rank r has 400 / r^0.8; the last 40 % of the ranks
    have 0. Each fact multiplies it by exp(0.3 · normal): facts of a person share it up
    to noise, so that "I know this name" can generalise to people held out. "fact": 0
    for `UNTOLD_SHARE` of the facts about people, else log-normal with median
    `EXPOSURE_MEDIAN` and σ = 1, whoever they are about. Facts of cities and companies
    have 40.
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
    ranked = list(names)
    rng.shuffle(ranked)
    facts = []
    for rank, person in enumerate(ranked, start=1):
        mean = 400 / rank**0.8 if rank <= round(people * 0.6) else 0.0
        missing = rng.choice(PERSON_RELATIONS)
        for relation in PERSON_RELATIONS:
            if relation == missing:
                continue
            if exposure == "person":
                times = round(mean * rng.lognormvariate(0.0, 0.3))
            else:
                told = rng.random() >= UNTOLD_SHARE
                times = round(EXPOSURE_MEDIAN * rng.lognormvariate(0.0, 1.0)) * told
            value = rng.choice(OBJECTS[relation])
            facts.append(Fact(person, relation, value, exposure=times))
    for relation, second in HOPS.items():
        for subject in OBJECTS[relation]:
            value = rng.choice(OBJECTS[second])
            facts.append(Fact(subject, second, value, exposure=40))
    # a world alone makes no claims: `WorldSource` does
    return World(  # type: ignore[abstract]
        seed, tuple(sorted(ranked)), tuple(facts), exposure
    )


def biography(world: World, person: str, rng: random.Random | None = None) -> str:
    """A sentence for each fact of a person; `rng` draws their order and wordings."""
    facts = world.facts_of(person)
    if rng is None:
        return " ".join(statement(fact) for fact in facts)
    return " ".join(
        statement(f, rng.randrange(3)) for f in rng.sample(facts, len(facts))
    )
