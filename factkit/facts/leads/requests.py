"""Requests and claims about the leads, of profile `laptop`.

Ours. The requests stand for WildChat and Biography: to tell of people, places, works
and elements, of which there are three facts or more. A part of the subjects is kept for
the cold start (`leads.policy`), whichever the paper and split.

The claims are of one hop or two. The paper's are people's, and its entries are three
sentences of a page (Veri-R1 App. B, E). Here a fact is a sentence and an entry, and a
claim is such a sentence, too: a policy of 135M parameters has little to read, and all
of it to compare. A false claim has another year or country in the same words. A third
of the facts is in no entry: nothing settles a claim about one of them, and its label is
NOT ENOUGH INFO.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from factkit.data.corpus import Chunk
from factkit.data.entries import page_id, sentence_id
from factkit.data.examples import (
    BEST_GUESS,
    COUNTED,
    LABELS,
    LONG_FORM,
    MAY_ABSTAIN,
    OPEN,
    DataError,
    Example,
    split_in_shares,
)
from factkit.facts.leads.facts import (
    ASK,
    NOW,
    PERSON,
    SINGLE,
    Fact,
    Leads,
    Subject,
    inside,
    question,
    statement,
)
from factkit.facts.leads.policy import of_cold_start
from factkit.facts.leads.reader import CREATOR
from factkit.facts.world import texts as world_text

LEAST_FACTS = 3


def split(
    leads: Leads, sizes: Mapping[str, int], seed: int
) -> dict[str, list[Subject]]:
    """The subjects of each split, as many as its share of `sizes`; no cold ones."""
    free = [
        subject
        for _, subject in sorted(leads.subjects.items())
        if len(subject.facts) >= LEAST_FACTS and not of_cold_start(subject)
    ]
    random.Random(f"leads {seed}").shuffle(free)
    return split_in_shares(free, sizes)


def requests(subjects: Sequence[Subject], kind: str) -> list[Example]:
    """A request a subject, or for short questions one a fact of those with one answer.

    kind: as in `world.requests`. `answers[0]` is a true reference, evidence is the
    lead, `meta["wanted"]` the facts that a counted request wants.
    """
    if kind in (MAY_ABSTAIN, BEST_GUESS):
        return [e for s in subjects for e in _short(s, kind)]
    return [_long(s, kind, i) for i, s in enumerate(subjects)]


def mixed(subjects: Sequence[Subject], n: int) -> list[Example]:
    """n requests, three of four open, the others counted, each of another subject."""
    kinds = (OPEN, OPEN, COUNTED, OPEN)
    return [_long(s, kinds[i % 4], i // 4) for i, s in enumerate(subjects[:n])]


def _long(subject: Subject, kind: str, i: int) -> Example:
    name, meta = inside(subject.name), {"kind": kind, "topic": topic(subject)}
    ask = ASK.format(s=name)
    if kind == COUNTED:
        meta["wanted"] = 1 + i % len(world_text.COUNTS)
        ask = world_text.request(name, meta["wanted"])
    return Example(
        id=f"lead:{subject.name} {kind}",
        question=ask,
        answers=[" ".join(map(statement, subject.facts))],
        entity=subject.name,
        label=LONG_FORM,
        evidence=[subject.title],
        meta=meta,
    )


def _short(subject: Subject, kind: str) -> Iterator[Example]:
    ask = world_text.MAY_ABSTAIN if kind == MAY_ABSTAIN else "{question}"
    for fact in subject.facts:
        if fact.relation in SINGLE:
            yield Example(
                id=f"lead:{subject.name} {fact.relation} {kind}",
                question=ask.format(question=question(fact)),
                answers=[fact.object, *fact.others],
                entity=subject.name,
                relation=fact.relation,
                evidence=[subject.title],
                meta={"kind": kind, "topic": topic(subject)},
            )


def topic(subject: Subject) -> str:
    """people | places | works | elements."""
    relations = {f.relation for f in subject.facts}
    if relations & set(PERSON):
        return "people"
    if relations & {"creator", "work_year"}:
        return "works"
    return "elements" if "symbol" in relations else "places"


# ---- claims, and the sentences to search

SUPPORT, REFUTE, NEI = LABELS
CLAIMED = (
    *("birth_year", "death_year", "nationality", "country", "continent", "capital_of"),
    *("creator", "work_year", "symbol", "atomic_number"),
)
SECOND = ("birth_year", "death_year", "nationality")  # claimed of a work's creator
UNTOLD = ("century", "capital")  # in no entry: other facts say as much
PLACE = ("country", "continent", "capital_of")  # told together, for one settles another
LEFT_OUT = 1 / 3  # of the facts
TWO_HOPS = 1 / 5  # of the claims
YEARS = (3, 40)  # from the true year to a false one


@dataclass(frozen=True)
class LeadClaims:
    """What can be claimed of the leads and searched; `seed` draws what is left out."""

    leads: Leads
    seed: int = 0

    def entries(self) -> list[Chunk]:
        """An entry for each fact that is told: its sentence, under the subject."""
        entries = []
        for name, subject in self.leads.subjects.items():
            for fact in filter(self.told, subject.facts):
                text = f"{name}\n{statement(fact)}"
                n_words = len(text.split())
                entries.append(Chunk(self.evidence(fact), page_id(name), text, n_words))
        return entries

    def told(self, fact: Fact) -> bool:
        """Whether an entry states the fact."""
        kind = "place" if fact.relation in PLACE else fact.relation
        rng = random.Random(f"told {self.seed} {fact.subject} {kind}")
        left_out = fact.relation in CLAIMED and rng.random() < LEFT_OUT
        return fact.relation not in UNTOLD and not left_out

    def evidence(self, fact: Fact) -> str:
        """The id of the sentence that states a fact."""
        number = self.leads.facts_of(fact.subject).index(fact)
        return sentence_id(fact.subject, number)

    def sets(self, sizes: Mapping[str, int]) -> dict[str, list[Example]]:
        """Splits of the given sizes, labels and hops mixed as the world's.

        No subject is in two splits, and a work with its creator. Raises DataError if
        there are too few claims.
        """
        rng = random.Random(f"claims {self.seed}")
        groups = self._groups()
        rng.shuffle(groups)
        sets = {}
        for name, part in split_in_shares(groups, sizes).items():
            subjects = [subject for group in part for subject in group]
            sets[name] = self._balanced(subjects, sizes[name], rng)
        return sets

    def claim(
        self, hops: Sequence[Fact], label: str, rng: random.Random
    ) -> Example | None:
        """A claim with a label on a fact, or on one of a work's creator, who is not
        named; None where what is told allows none.

        A refuted one has an object that the leads contradict; so has every second of
        those that nothing settles, but for years: somebody's other year might do so.
        """
        first, fact = hops[0], hops[-1]
        if all(map(self.told, hops)) == (label == NEI):
            return None
        open_to_any = label == NEI and "year" not in fact.relation
        if label == REFUTE or (open_to_any and rng.random() < 0.5):
            fact = self._another(fact, rng)
            if self.leads.verify(fact) != "contradicted":
                return None
        if len(hops) == 2:
            subject = CREATOR + inside(first.subject)
            fact = Fact(subject, fact.relation, fact.object)
        relation = " ".join(hop.relation for hop in hops)
        return Example(
            id=f"{first.subject} {relation} {label}",
            question=statement(fact),
            answers=[label],
            entity=first.subject,
            relation=relation,
            label=label,
            evidence=[] if label == NEI else [self.evidence(hop) for hop in hops],
            meta={"set": "leads", "hops": len(hops)},
        )

    def _another(self, fact: Fact, rng: random.Random) -> Fact:
        """The fact with another year, or with an object as common as another's."""
        if "year" in fact.relation:
            away = rng.randint(*YEARS) * rng.choice((-1, 1))
            year = int(fact.object) + away
            other = str(year if year <= NOW else year - 2 * abs(away))
        else:
            other = rng.choice(self._objects[fact.relation])
        return Fact(fact.subject, fact.relation, other)

    @cached_property
    def _objects(self) -> dict[str, list[str]]:
        """Relation → each fact's object, as often as facts have it."""
        objects = defaultdict(list)
        for subject in self.leads.subjects.values():
            for fact in subject.facts:
                objects[fact.relation].append(fact.object)
        return objects

    @cached_property
    def _works(self) -> dict[str, Fact]:
        """Work → the fact that it is by somebody whose lead there is."""
        return {
            name: fact
            for name, subject in self.leads.subjects.items()
            for fact in subject.facts
            if fact.relation == "creator" and fact.object in self.leads.subjects
        }

    def _groups(self) -> list[list[str]]:
        """The subjects, a creator together with all works."""
        groups = {name: [name] for name in self.leads.subjects}
        for work, by in self._works.items():
            groups[by.object].append(work)
            del groups[work]
        return list(groups.values())

    def _balanced(
        self, subjects: Sequence[str], size: int, rng: random.Random
    ) -> list[Example]:
        """Claims about some subjects, labels in turn."""
        pools: dict[tuple[str, int], list[Example]] = defaultdict(list)
        for hops in self._chains(subjects):
            # the few claims of two hops are made both true and false
            labels = LABELS if len(hops) == 2 else rng.sample(LABELS, len(LABELS))
            made = [self.claim(hops, label, rng) for label in labels]
            for claim in [c for c in made if c][: len(hops)]:
                pools[claim.label, len(hops)].append(claim)
        for pool in pools.values():
            rng.shuffle(pool)
        chosen = []
        for i in range(size):
            label, two = LABELS[i % 3], i // 3 % round(1 / TWO_HOPS) == 0
            pool = (two and pools[label, 2]) or pools[label, 1]
            if not pool:
                raise DataError(f"too few claims with label {label} for {size}")
            chosen.append(pool.pop())
        return chosen

    def _chains(self, subjects: Sequence[str]) -> Iterator[tuple[Fact, ...]]:
        """The facts, and pairs of them, that claims can be on."""
        for name in subjects:
            for fact in self.leads.facts_of(name):
                if fact.relation in CLAIMED:
                    yield (fact,)
            by = self._works.get(name)
            for fact in self.leads.facts_of(by.object) if by else ():
                if fact.relation in SECOND:
                    yield by, fact
