"""Claims about the leads, of one hop or two, and a script that verifies them.

Ours. The claims of Veri-R1 are people's, and its entries are three sentences of a page
(App. B, E). Here an entry is a sentence that states a fact, and so is a claim: a policy
of 135M parameters has little to read and all of it to compare. A false claim has
another year or country in the same words. A third of the facts is in no entry: claims
about these have the label NOT ENOUGH INFO. A third of the claims has two hops: it names
a work or a place and is about the work's creator or the place's country.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from factkit.data.corpus import Chunk
from factkit.data.entries import page_id, sentence_id
from factkit.data.examples import LABELS, DataError, Example, split_in_shares
from factkit.facts.leads.facts import NOW, name_within, statement
from factkit.facts.leads.reader import LeadReader
from factkit.facts.script import TAUGHT, Found, search_and_verify
from factkit.facts.source import Fact, Find
from factkit.verify.trajectory import Turn

_, REFUTE, NEI = LABELS
CLAIMED = tuple(
    """birth_year death_year nationality country continent capital_of creator work_year
    symbol atomic_number""".split()
)
SECOND_HOPS = {  # relation of the first hop → those of the second
    "creator": ("birth_year", "death_year", "nationality"),
    "country": ("continent",),
}
UNNAMED = {"creator": "The creator of ", "country": "The country of "}  # begin claims
REDUNDANT = ("century", "capital")  # in no entry: other facts say as much
PLACE = ("country", "continent", "capital_of")  # stated together: one implies another
LEFT_OUT = 1 / 3  # of the facts
TWO_HOPS = 3  # of so many claims one has two hops
YEARS = (3, 40)  # from the true year to a false one


@dataclass(frozen=True)
class LeadClaims(LeadReader):
    """The leads, with claims and the entries to search.

    claim_seed: of the claims, and of the facts that no entry states.
    """

    claim_seed: int = 0

    def entries(self) -> list[Chunk]:
        """An entry for each fact that is stated: the subject, then the sentence."""
        entries = []
        for name, subject in self.leads.subjects.items():
            for fact in filter(self.is_stated, subject.facts):
                text = f"{name}\n{statement(fact)}"
                n_words = len(text.split())
                entries.append(
                    Chunk(self.sentence_id_of(fact), page_id(name), text, n_words)
                )
        return entries

    def is_stated(self, fact: Fact) -> bool:
        """Whether an entry states the fact."""
        kind = "place" if fact.relation in PLACE else fact.relation
        rng = random.Random(f"told {self.claim_seed} {fact.subject} {kind}")
        left_out = fact.relation in CLAIMED and rng.random() < LEFT_OUT
        return not left_out and not self._is_redundant(fact)

    def _is_redundant(self, fact: Fact) -> bool:
        """Whether other facts say as much: a place's country says its continent."""
        has_country = (fact.subject, "country") in self.leads.by_key
        of_a_place = fact.relation == "continent" and has_country
        return fact.relation in REDUNDANT or of_a_place

    def sentence_id_of(self, fact: Fact) -> str:
        """The id of the sentence that states a fact."""
        number = self.leads.facts_of(fact.subject).index(fact)
        return sentence_id(fact.subject, number)

    def claim_sets(self, sizes: Mapping[str, int]) -> dict[str, list[Example]]:
        """Splits of the given sizes, with the labels in turn.

        No subject is in two splits; a work and its creator are in one, as are a place
        and its country. Raises DataError if there are too few claims.
        """
        rng = random.Random(f"claims {self.claim_seed}")
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
        """A claim with the label, about a fact or one of an unnamed creator or country;
        None if the entries allow none.

        A refuted claim has an object that the leads contradict; so has every second one
        without enough information, except for years, which another year would settle.
        """
        first, fact = hops[0], hops[-1]
        if all(map(self.is_stated, hops)) == (label == NEI):
            return None
        may_be_false = label == NEI and "year" not in fact.relation
        if label == REFUTE or (may_be_false and rng.random() < 0.5):
            fact = self._swap_object(fact, rng)
            if self.leads.verify(fact) != "contradicted":
                return None
        if len(hops) == 2:
            subject = UNNAMED[first.relation] + name_within(first.subject)
            fact = Fact(subject, fact.relation, fact.object)
        relation = " ".join(hop.relation for hop in hops)
        return Example(
            id=f"{first.subject} {relation} {label}",
            question=statement(fact),
            answers=[label],
            entity=first.subject,
            relation=relation,
            label=label,
            evidence=[] if label == NEI else [self.sentence_id_of(hop) for hop in hops],
            meta={"set": "leads", "hops": len(hops)},
        )

    def _swap_object(self, fact: Fact, rng: random.Random) -> Fact:
        """The fact with another year, or with the object of a random other fact."""
        if "year" in fact.relation:
            shift = rng.randint(*YEARS) * rng.choice((-1, 1))
            year = int(fact.object) + shift
            other = str(year if year <= NOW else year - 2 * abs(shift))
        else:
            other = rng.choice(self._objects[fact.relation])
        return Fact(fact.subject, fact.relation, other)

    @cached_property
    def _objects(self) -> dict[str, list[str]]:
        """Relation → the object of each fact."""
        objects = defaultdict(list)
        for subject in self.leads.subjects.values():
            for fact in subject.facts:
                objects[fact.relation].append(fact.object)
        return objects

    @cached_property
    def _first_hops(self) -> dict[str, Fact]:
        """Work or place → the fact of its creator or country, if that is a subject."""
        return {
            name: fact
            for name, subject in self.leads.subjects.items()
            for fact in subject.facts
            if fact.relation in SECOND_HOPS
            and fact.object in self.leads.subjects
            # of a capital two entries state the country
            and (name, "capital_of") not in self.leads.by_key
        }

    def _groups(self) -> list[list[str]]:
        """The subjects, a creator with the works and a country with the places."""
        groups = defaultdict(list)
        for name in self.leads.subjects:
            first = self._first_hops.get(name)
            groups[first.object if first else name].append(name)
        return list(groups.values())

    def _balanced(
        self, subjects: Sequence[str], size: int, rng: random.Random
    ) -> list[Example]:
        """Claims about some subjects, labels in turn."""
        pools: dict[tuple[str, str], list[Example]] = defaultdict(list)
        for hops in self._chains(subjects):
            # of the few pairs of hops, two claims each
            labels = LABELS if len(hops) == 2 else rng.sample(LABELS, len(LABELS))
            claims = [self.claim(hops, label, rng) for label in labels]
            for claim in list(filter(None, claims))[: len(hops)]:
                kind = hops[0].relation if len(hops) == 2 else ""
                pools[claim.label, kind].append(claim)
        for pool in pools.values():
            rng.shuffle(pool)
        chosen = []
        for i in range(size):
            label = LABELS[i % 3]
            of_two_hops = [kind for kind in SECOND_HOPS if pools[label, kind]]
            kinds = (i // 3 % TWO_HOPS == 0 and of_two_hops) or [""]
            pool = pools[label, rng.choice(kinds)]
            if not pool:
                raise DataError(f"too few claims with label {label} for {size}")
            chosen.append(pool.pop())
        return chosen

    def _chains(self, subjects: Sequence[str]) -> Iterator[tuple[Fact, ...]]:
        """The facts and pairs of facts that claims can be about."""
        for name in subjects:
            for fact in self.leads.facts_of(name):
                if fact.relation in CLAIMED and not self._is_redundant(fact):
                    yield (fact,)
            if first := self._first_hops.get(name):
                for fact in self.leads.facts_of(first.object):
                    if fact.relation in SECOND_HOPS[first.relation]:
                        yield first, fact

    def write_trajectory(
        self, claim: str, find: Find, rng: random.Random
    ) -> list[Turn]:
        """The trajectory of the script with `TAUGHT` habits."""
        return search_and_verify(ClaimReader(self), claim, find, TAUGHT, rng)

    def hops_of(self, claim: str) -> list[Fact]:
        """The facts that a claim rests on, by its wording alone.

        The last one has the claimed object; of two hops, the first lacks its object,
        and so the second its subject. Raises ValueError if it is no claim on the leads.
        """
        parsed = self.parse(claim)
        if parsed is None:
            raise ValueError(f"{claim!r} is no claim on the leads")
        fact = parsed[0]
        for relation, phrase in UNNAMED.items():
            if fact.subject.startswith(phrase):
                named = fact.subject.removeprefix(phrase)
                names = {name_within(name): name for name in self.leads.subjects}
                first = Fact(names.get(named, named), relation, "")
                return [first, Fact("", fact.relation, fact.object)]
        return [fact]


class ClaimReader:
    """Reads and writes the leads' sentences for the script (`script.Reader`)."""

    def __init__(self, reader: LeadClaims) -> None:
        self.reader = reader
        self.hops = reader.hops_of

    def fact(self, text: str) -> Fact | None:
        parsed = self.reader.parse(text)
        return parsed[0] if parsed else None

    def plan(self, hops: Sequence[Fact]) -> str:
        return ", ".join(hop.relation.replace("_", " ") for hop in hops)

    def query(self, subject: str, hop: Fact) -> str:
        return statement(Fact(subject, hop.relation, hop.object))

    def thought(self, subject: str, hop: Fact, found: Found | None) -> str:
        """The objects claimed and found, where, and whether they are the same: without
        that last word a small policy learns the labels' form and guesses which, and
        without the entry's id it can't tell which of several it read."""
        text = f"Claim: {hop.object}. " if hop.object else ""
        if found is None:
            return f"{text}Found: nothing."
        piece, fact = found
        text += f"Found: {fact.object} [[{piece.id}]]."
        if hop.object:
            text += " Same." if hop.object == fact.object else " Different."
        return text

    def tag(self, name: str, text: str) -> str:
        return f"<{name}>{text}</{name}>"
