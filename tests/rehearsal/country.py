"""An invented country: what every miniature set of the rehearsal asks and claims.

Towns, people who were born and died there, and the books they wrote. A page tells of
one of them, in sentences that state a fact each, so that questions, claims, evidence,
web pages and search results agree and a judge can really verify. All is drawn from one
seed; nothing is copied from a real data set.
"""

import random
from dataclasses import dataclass
from functools import cached_property

COUNTRY = "Orvania"
FIRST = "Alda Bero Cilia Dorin Elke Fanto Gisla Haro Ilva Joran Kesta Lumo".split()
FIRST += "Mirta Nevo Odila Paro Quilla Runo Selka Tavo Ulla Vesto".split()
LAST = "Abrin Brask Corvel Dunnow Elstrap Farrod Gildun Hostrel Irmeth Jolvar".split()
LAST += "Kambrel Lindock Morvath Nesterol Ostrum Pellgar Quend Rastow Sorvig".split()
STEMS = "Arv Bel Cor Dun Esk Fal Gor Hel Ist Jor".split()
ENDS = "aby holm".split()
RIVERS = "Little Orva,Green Tessel,Mundra,Old Karst,Sillen".split(",")
GOODS = "blue glass,salted plums,tin whistles,clay lamps,walnut oil".split(",")
TRADES = "poet,novelist,botanist,historian,cartographer".split(",")
ADJECTIVES = "Silent Crooked Seventh Amber Hollow Northern Borrowed Patient".split()
NOUNS = "Orchard Ferry Lantern Bridge Winter Clock Harbour Meadow".split()
KINDS = "novel,travel book,collection of poems,play".split(",")


@dataclass(frozen=True)
class Town:
    name: str
    river: str
    founded: int
    goods: str


@dataclass(frozen=True)
class Person:
    name: str
    trade: str
    born: int
    birthplace: Town
    died: int


@dataclass(frozen=True)
class Work:
    name: str
    kind: str
    author: Person
    published: int
    setting: Town


@dataclass(frozen=True)
class Page:
    """What an encyclopedia says of a subject; `sentences` state one fact each."""

    title: str
    sentences: tuple[str, ...]
    subject: Town | Person | Work

    @property
    def text(self) -> str:
        return " ".join(self.sentences)


class Country:
    """20 towns, 64 people and a book by each of them: 148 pages."""

    def __init__(self, seed: int = 0) -> None:
        rng = random.Random(f"country {seed}")
        self.towns = [
            Town(
                name=stem + end,
                river=rng.choice(RIVERS),
                founded=rng.randrange(1100, 1500),
                goods=rng.choice(GOODS),
            )
            for stem in STEMS
            for end in ENDS
        ]
        names = rng.sample([f"{first} {last}" for first in FIRST for last in LAST], 64)
        self.people = []
        for name in names:
            born = rng.randrange(1700, 1900)
            self.people.append(
                Person(
                    name=name,
                    trade=rng.choice(TRADES),
                    born=born,
                    birthplace=rng.choice(self.towns),
                    died=born + rng.randrange(50, 90),
                )
            )
        titles = [f"The {first} {last}" for first in ADJECTIVES for last in NOUNS]
        self.works = [
            Work(
                name=title,
                kind=rng.choice(KINDS),
                author=person,
                published=person.born + rng.randrange(22, 48),
                setting=rng.choice(self.towns),
            )
            for title, person in zip(rng.sample(titles, 64), self.people, strict=True)
        ]

    @cached_property
    def pages(self) -> list[Page]:
        """Works, people, towns."""
        return [
            *map(self._of_work, self.works),
            *map(self._of_person, self.people),
            *map(self._of_town, self.towns),
        ]

    @cached_property
    def by_title(self) -> dict[str, Page]:
        return {page.title: page for page in self.pages}

    def work_by(self, person: Person) -> Work:
        return self.works[self.people.index(person)]

    def _of_work(self, work: Work) -> Page:
        name, author = work.name, work.author
        sentences = (
            f"{name} is a {work.kind} by the {author.trade} {author.name}.",
            f"{name} was first published in {work.published}.",
            f"{name} is set in the town of {work.setting.name}.",
            f"Readers in {COUNTRY} still know {name} by its opening line.",
        )
        return Page(name, sentences, work)

    def _of_person(self, person: Person) -> Page:
        name, work = person.name, self.work_by(person)
        sentences = (
            f"{name} was a {person.trade} from {COUNTRY}.",
            f"{name} was born in {person.birthplace.name} in {person.born}.",
            f"{name} wrote the {work.kind} {work.name}, published in {work.published}.",
            f"{name} died in {person.died} at the age of {person.died - person.born}.",
        )
        return Page(name, sentences, person)

    def _of_town(self, town: Town) -> Page:
        natives = [p.name for p in self.people if p.birthplace == town]
        born = f" {', '.join(natives)} came from here." if natives else ""
        sentences = (
            f"{town.name} is a town in {COUNTRY} on the river {town.river}.",
            f"{town.name} was founded in {town.founded}.",
            f"{town.name} is known for its {town.goods}.",
            f"The market of {town.name} is held every seventh day.{born}",
        )
        return Page(town.name, sentences, town)

    # ---- one fact, put as a question or as a claim

    def facts(self) -> list["Fact"]:
        """Every fact that a sentence states, in the pages' order."""
        facts = []
        for page in self.pages:
            match page.subject:
                case Work() as work:
                    rows = [
                        (0, "author", work.author.name, f"Who wrote {work.name}?"),
                        (
                            1,
                            "publication",
                            str(work.published),
                            f"In which year was {work.name} first published?",
                        ),
                        (
                            2,
                            "setting",
                            work.setting.name,
                            f"In which town is {work.name} set?",
                        ),
                    ]
                case Person() as person:
                    rows = [
                        (
                            0,
                            "occupation",
                            person.trade,
                            f"What is {person.name}'s occupation?",
                        ),
                        (
                            1,
                            "place of birth",
                            person.birthplace.name,
                            f"In what town was {person.name} born?",
                        ),
                        (
                            3,
                            "death",
                            str(person.died),
                            f"In what year did {person.name} die?",
                        ),
                    ]
                case Town() as town:
                    rows = [
                        (
                            0,
                            "river",
                            town.river,
                            f"On which river does {town.name} lie?",
                        ),
                        (
                            1,
                            "founding",
                            str(town.founded),
                            f"In which year was the town of {town.name} founded?",
                        ),
                        (
                            2,
                            "product",
                            town.goods,
                            f"What is the town of {town.name} known for?",
                        ),
                    ]
            facts += [Fact(page, *row) for row in rows]
        return facts

    def other(self, fact: "Fact", rng: random.Random) -> str:
        """A wrong object for a fact: another one of its kind."""
        objects = {f.object for f in self.facts() if f.relation == fact.relation}
        return rng.choice(sorted(objects - {fact.object}))


@dataclass(frozen=True)
class Fact:
    """sentence: the number of the page's sentence that states it."""

    page: Page
    sentence: int
    relation: str
    object: str
    question: str

    @property
    def statement(self) -> str:
        return self.page.sentences[self.sentence]

    def false(self, other: str) -> str:
        """The statement with another object in the place of its own."""
        subject, _, rest = self.statement.partition(self.page.title)
        return subject + self.page.title + rest.replace(self.object, other)
