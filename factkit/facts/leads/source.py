"""The leads as a source of requests and claims (`facts.source.FactSource`).

Requests are about people, places, works and elements with three facts or more. Some of
the subjects are kept for the cold start (`leads.policy`), whatever the paper and split.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from factkit.data import assets
from factkit.data.corpus import load_leads
from factkit.data.examples import COUNTED, LONG_FORM, OPEN, Example, split_in_shares
from factkit.data.sources import Loaded
from factkit.data.splits import Sets, in_set
from factkit.facts.leads import facts
from factkit.facts.leads.claims import LeadClaims
from factkit.facts.leads.facts import OPEN_REQUEST, PERSON, SINGLE
from factkit.facts.leads.policy import is_of_cold_start
from factkit.facts.leads.questions import lead_questions
from factkit.facts.source import DEV_SHARE, Fact, FactSource, sample_texts
from factkit.run.params.stages import PolicyParams

LEAST_FACTS = 3


@dataclass(frozen=True)
class LeadSource(LeadClaims, FactSource):
    """The leads, with the requests and claims about their subjects."""

    seed: int = 0

    request_prefix = "lead:"
    long_label = LONG_FORM
    open_requests = (OPEN_REQUEST,)
    statement = staticmethod(facts.statement)
    question = staticmethod(facts.question)
    name_within = staticmethod(facts.name_within)

    def asked_facts(self, subject: str) -> list[Fact]:
        """The facts with one right answer."""
        return [fact for fact in self.facts_of(subject) if fact.relation in SINGLE]

    def evidence(self, subject: str) -> list[str]:
        """The title of the lead."""
        return [self.leads.subjects[subject].title]

    def describe(self, subject: str, fact: Fact | None = None) -> dict[str, Any]:
        """The topic: people | places | works | elements."""
        relations = {f.relation for f in self.facts_of(subject)}
        if relations & set(PERSON):
            return {"topic": "people"}
        if relations & {"creator", "work_year"}:
            return {"topic": "works"}
        return {"topic": "elements" if "symbol" in relations else "places"}

    def questions(self) -> Loaded:
        """The questions of `leads.questions`."""
        return lead_questions(load_leads(), assets.verified("elements"))

    def split(
        self, sizes: Mapping[str, int], dev_share: float = DEV_SHARE
    ) -> dict[str, list[str]]:
        """The subjects in the ratio of the sizes; none of the cold start."""
        free = [
            name
            for name, subject in sorted(self.leads.subjects.items())
            if len(subject.facts) >= LEAST_FACTS and not is_of_cold_start(name)
        ]
        random.Random(f"leads {self.seed}").shuffle(free)
        return split_in_shares(free, sizes)

    def mixed_requests(self, subjects: Sequence[str], n: int) -> list[Example]:
        """n requests, three in four open and the others counted, each about another
        subject."""
        requests = self.requests(subjects[:n], OPEN)
        # of every four subjects the third; the counts go on from one to the next
        requests[2::4] = self.requests(subjects[2:n:4], COUNTED)
        return requests

    def request_sets(self, sizes: Mapping[str, int]) -> Sets:
        """Requests about people, and about all else: two evaluation sets."""
        parts = self.split({**sizes, "test": 2 * sizes["test"]})
        test = self.requests(parts.pop("test"), OPEN)
        sets = {k: self.mixed_requests(part, sizes[k]) for k, part in parts.items()}
        people = [e for e in test if e.meta["topic"] == "people"]
        others = [e for e in test if e.meta["topic"] != "people"]
        sets["test"] = people[: sizes["test"]] + others[: sizes["test"]]
        return {
            name: [
                in_set(e, "people" if e.meta["topic"] == "people" else "other")
                for e in examples
            ]
            for name, examples in sets.items()
        }

    def held_out_texts(self, subjects: Sequence[str]) -> list[str]:
        """Some of the subjects' leads."""
        return sample_texts([self.leads.subjects[name].text for name in subjects])


@cache
def _open_leads(seed: int, claim_seed: int) -> LeadSource:
    return LeadSource(facts.load(), claim_seed, seed)


def open_source(p: PolicyParams) -> LeadSource:
    """The leads, split by `p.split_seed`, with the claims of `p.world_seed`."""
    # a paper about claims has no split_seed
    return _open_leads(getattr(p, "split_seed", 0), p.world_seed)
