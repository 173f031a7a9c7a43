"""Verification without a model, where every fact is known: the fact world, the leads.

A `Reader` reads a sentence into statements and knows which are true; the engine makes
of it what rewards and evaluation ask for, and RLFH's annotator its feedback. Nothing
fails, so no verdict is None.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from factkit.datasets.examples import Example
from factkit.verify import preference, whole_response
from factkit.verify.claims import Claim, Extractor, Support, without_repeats
from factkit.verify.feedback import Annotator, Sentence, Statement, Truth
from factkit.verify.support import ClaimVerifier
from factkit.world import facts as worlds

if TYPE_CHECKING:
    from factkit.evaluate.long_form import Search
    from factkit.verify.engine import Supports


class Reader(Protocol):
    """What is stated, and what is true. about: the subject that was asked about."""

    def sentences(self, text: str, about: str) -> list[str]:
        """The sentences of a text."""

    def statements(self, sentence: str, about: str) -> list[str]:
        """The statements of a sentence, each a sentence of its own."""

    def parse(self, text: str) -> tuple[Any, bool] | None:
        """A statement's fact (subject, relation, object) and whether it hedges."""

    def verify(self, text: str) -> worlds.Verification:
        """What the facts say of a statement."""

    def answer(self, subject: str, relation: str, text: str) -> str:
        """The statement that a short answer makes, "" if it is none."""

    def facts_of(self, subject: str) -> Sequence[Any]:
        """The facts that there are to tell of a subject."""


@dataclass(frozen=True)
class WorldReader:
    """The fact world's own parser; it reads only what a wording of a fact is."""

    world: worlds.World

    def sentences(self, text: str, about: str) -> list[str]:
        return worlds.sentences(text)

    def statements(self, sentence: str, about: str) -> list[str]:
        return worlds.statements(self.world, sentence)

    def parse(self, text: str) -> tuple[worlds.Fact, bool] | None:
        return worlds.parse(self.world, text)

    def verify(self, text: str) -> worlds.Verification:
        return worlds.verify(self.world, text)

    def answer(self, subject: str, relation: str, text: str) -> str:
        said = worlds.statement(worlds.Fact(subject, relation, text))
        return said if self.parse(said) else ""

    def facts_of(self, subject: str) -> list[worlds.Fact]:
        return self.world.facts_of(subject)


@dataclass(frozen=True)
class ExactEngine:
    """`engine.Engine` of all papers on long answers.

    examples: prompt id → the prompt; references: → the reference policy's answer.
    """

    facts: Reader
    examples: Mapping[str, Example]
    references: Mapping[str, str] = field(default_factory=dict)

    def no_contradiction(self, ids, prompts, responses) -> list[float | None]:
        found = self.supports(ids, prompts, responses)
        return [float(Support.CONTRADICTED not in of) for of in found]

    def rating(self, ids, prompts, responses) -> list[float | None]:
        """`whole_response.rating` of the claims' supports."""
        return list(map(whole_response.rating, self.supports(ids, prompts, responses)))

    def quality(self, ids, prompts, responses) -> list[float | None]:
        """How well a request is answered, 0–10, true or not.

        Of the sentences, the share that states something of the subject, times the
        number of different relations told, of those there are or the wanted ones;
        halved if another number of sentences than wanted. What an LM judge is to the
        papers: it likes detail and keeping to the point, and does not know what is
        true. A short answer is worth 10 if it is of the asked kind.
        """
        rows = zip(ids, responses, strict=True)
        return [self._quality(self.examples[i], response) for i, response in rows]

    def relevance(self, ids, prompts, responses) -> list[float | None]:
        """How far a response keeps to its subject, in [0, 1]: the share of its
        sentences that state something of it, true or not; halved if it has another
        number than wanted. How much it says does not count."""
        scores = []
        for i, response in zip(ids, responses, strict=True):
            told, on_topic = self._told(self.examples[i], response)
            asked = _as_many(self.examples[i], told)
            scores.append(asked * len(on_topic) / max(len(told), 1))
        return scores

    def preferred(self, ids, prompts, responses) -> list[float | None]:
        prefer = preference.at_least_as(self.relevance, self.references)
        return prefer(ids, prompts, responses)

    def supports(self, ids, prompts, responses) -> "Supports":
        return [
            [Support(self.facts.verify(c.text)) for c in self.claims(i, r)]
            for i, r in zip(ids, responses, strict=True)
        ]

    @property
    def reader(self) -> "tuple[Extractor, Search, ClaimVerifier]":
        about = {e.question: e.entity for e in self.examples.values()}

        def extract(prompts, responses) -> list[list[Claim] | None]:
            rows = zip(prompts, responses, strict=True)
            return [self._stated(r, about.get(prompt, "")) for prompt, r in rows]

        return (
            extract,
            lambda prompt_id, query, k: [],
            lambda rows: [Support(self.facts.verify(claim)) for claim, _ in rows],
        )

    def claims(self, prompt_id: str, response: str) -> list[Claim]:
        """The statements of a response, in each wording once; a short answer's with
        its question."""
        example = self.examples[prompt_id]
        if example.relation:
            short = response.strip().removesuffix(".")
            said = self.facts.answer(example.entity, example.relation, short)
            if said:
                return [Claim(said, response.strip())]
        return self._stated(response, example.entity)

    def _stated(self, response: str, about: str) -> list[Claim]:
        sentences = self.facts.sentences(response, about)
        return without_repeats(
            [(s, self.facts.statements(s, about)) for s in sentences]
        )

    def _told(self, example: Example, response: str) -> tuple[list, list]:
        """The sentences of a response, and the relations of the first fact of those
        that state one of the subject."""
        told = self.facts.sentences(response, example.entity)
        parsed = [
            [self.facts.parse(s) for s in self.facts.statements(t, example.entity)]
            for t in told
        ]
        first = [next(filter(None, of), None) for of in parsed]
        return told, [
            f[0].relation for f in first if f and f[0].subject == example.entity
        ]

    def _quality(self, example: Example, response: str) -> float:
        if example.relation:
            claims = self.claims(example.id, response)
            stated = [self.facts.parse(c.text) for c in claims]
            asked = (example.entity, example.relation)
            return 10.0 * (
                asked in [(f[0].subject, f[0].relation) for f in stated if f]
            )
        told, on_topic = self._told(example, response)
        if not on_topic:
            return 0.0
        there = {f.relation for f in self.facts.facts_of(example.entity)}
        wanted = example.meta.get("wanted") or len(there)
        detail = min(len(set(on_topic)) / wanted, 1.0)
        share = len(on_topic) / len(told)
        return float(round(10 * detail * _as_many(example, told) * share))


def _as_many(example: Example, told: Sequence[str]) -> float:
    """1, or ½ if a request wants another number of sentences."""
    return 1.0 if example.meta.get("wanted") in (None, len(told)) else 0.5


def annotator(facts: Reader, examples: Mapping[str, Example]) -> Annotator:
    """RLFH's feedback (§3.1), exact.

    A statement is vague where the facts are silent. Informativeness (ours): 5, of the
    subject that was asked about; 2, of something else, or more than the number of facts
    that was asked for, or unread; 1, stated before in the same response.
    """

    def annotate(ids, prompts, responses) -> list[list[Sentence] | None]:
        return [
            _feedback(facts, examples[i], response)
            for i, response in zip(ids, responses, strict=True)
        ]

    return annotate


def _feedback(facts: Reader, asked: Example, response: str) -> list[Sentence]:
    seen: set[tuple[str, ...]] = set()
    wanted = asked.meta.get("wanted", float("inf"))
    found = []
    for sentence in facts.sentences(response, asked.entity):
        statements = []
        for text in facts.statements(sentence, asked.entity):
            fact, hedged = facts.parse(text) or (None, False)
            key = (fact.subject, fact.relation) if fact else (text,)
            if fact and fact.relation == "occupation":  # one may have several
                key = (*key, fact.object)
            useful = fact and fact.subject == asked.entity and len(seen) < wanted
            informative = 1 if key in seen else 5 if useful else 2
            seen.add(key)
            truth = _truth(facts.verify(text), hedged)
            statements.append(Statement(text, truth, informative))
        if statements:
            found.append(Sentence(sentence, tuple(statements)))
    return found


def _truth(verified: worlds.Verification, hedged: bool) -> Truth:
    match verified:
        case "supported":
            return Truth.HEDGED_CORRECT if hedged else Truth.CORRECT
        case "contradicted":
            return Truth.HEDGED_WRONG if hedged else Truth.WRONG
    return Truth.VAGUE
