"""Where facts come from: `FactSource`, and how one is opened by its name.

A source knows facts and makes what the papers ask about them: questions, requests,
claims, documents, and responses read and verified without a model. Two are embedded in
the kit, each in a package of this room: `world`, the made-up world of profile `tiny`,
and `leads`, the Wikipedia leads of profile `laptop`. A third package, `own`, reads a
user's files. Of these and of public data sets no fact is known exactly; each paper
loads its public ones, and `PublicSource` stands for them.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, Protocol

from factkit import Check
from factkit.data.corpus import Chunk, Document, chunk_documents, load_leads
from factkit.data.examples import COUNTED, MAY_ABSTAIN, OPEN, DataError, Example
from factkit.facts.requests import COUNTS, MAY_ABSTAIN_REQUEST, count_request
from factkit.run.params.stages import PolicyParams

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from factkit.data.sources import Loaded
    from factkit.data.splits import Sets
    from factkit.verify.trajectory import Turn

Find = Callable[[str], Sequence[Chunk]]  # a query → the best entries
Verification = Literal["supported", "contradicted", "inconclusive"]
HELD_OUT = 100  # texts for the perplexity
DOUBTED_KEPT = 0.5  # of the doubted statements, the share that is answered
DEV_SHARE = 0.1  # of the subjects, where they are split by fixed shares


@dataclass(frozen=True)
class Fact:
    """A fact (subject, relation, object).

    others: further names of the object. exposure: how often the pre-training text
    states the fact (fact world).
    """

    subject: str
    relation: str
    object: str
    others: tuple[str, ...] = ()
    exposure: int = 0


class FactReader(Protocol):
    """Reads responses into statements and verifies them.

    about: the subject that the request asks about.
    """

    def sentences(self, text: str, about: str = "") -> list[str]:
        """The sentences of a text."""

    def statements(self, sentence: str, about: str = "") -> list[str]:
        """The statements of a sentence, each one a sentence that can stand alone."""

    def parse(self, statement: str) -> tuple[Fact, bool] | None:
        """The fact that a statement states and whether it hedges, if it is readable."""

    def verify(self, statement: str) -> Verification:
        """Whether the facts support or contradict a statement."""

    def answer(self, subject: str, relation: str, text: str) -> str:
        """The statement that a short answer makes; "" if it makes none."""

    def facts_of(self, subject: str) -> Sequence[Fact]:
        """The facts of a subject, in the order of the relations."""

    def statement(self, fact: Fact) -> str:
        """The sentence that states a fact."""


class FactSource(FactReader, Protocol):
    """Facts, and everything that papers ask about them; subjects are given by name.

    The methods with a body are those of a source without exact facts.
    seed: of splits and samples. grades_reasoning: whether it has `reasoning_quality`.
    open_requests: the wordings of an open request, with {s} for the subject.
    request_prefix: of the ids of requests. long_label: the label of long requests.
    """

    seed: int
    grades_reasoning: bool = False
    open_requests: Sequence[str] = ()
    request_prefix: str = ""
    long_label: str = ""

    def questions(self) -> "Loaded":
        """Short questions, and how many were dropped for which reason."""

    def corpus(self) -> list[Document]:
        """The documents, by default the leads."""
        return load_leads()

    def passages(self, tokenizer: "PreTrainedTokenizerBase", size: int) -> list[Chunk]:
        """The corpus as chunks of at most `size` tokens, for retrieval, each after its
        title: a second chunk says "he"."""
        corpus = self.corpus()
        titles = {document.id: document.title for document in corpus}
        return [
            replace(chunk, text=f"{titles[chunk.doc_id]}: {chunk.text.strip()}")
            for chunk in chunk_documents(corpus, tokenizer, size)
        ]

    def documents(self) -> list[Document]:
        """The corpus to search for evidence, each document after its title, so that a
        chunk says whom it is about."""
        return [replace(d, text=f"{d.title}: {d.text}") for d in self.corpus()]

    def contradicting_documents(self, statement: str) -> set[str]:
        """The ids of the documents that together contradict a statement."""
        return set()

    def checks(self, p: Any) -> list[Check]:
        """Checks of data that a user brings, before a run of `p`."""
        return []

    # ---- requests

    def dropped(self) -> Counter[str]:
        """How many rows were dropped for which reason; none where all are made."""
        return Counter()

    def split(
        self, sizes: Mapping[str, int], dev_share: float = DEV_SHARE
    ) -> dict[str, list[str]]:
        """The subjects of each split, none in two splits.

        sizes: requests per split. dev_share: for a source that splits by fixed shares.
        """

    def requests(self, subjects: Sequence[str], kind: str) -> list[Example]:
        """The requests of a kind about each subject; `answers[0]` is a true reference.

        kind: open (tell of a subject) | counted (tell one, two or three facts:
        `meta["wanted"]`) | may_abstain, best_guess (a short question per fact, with and
        without leave to abstain). Ours: they stand for WildChat, Biography, PopQA and
        IFEval (Binary RAR §4).
        """
        make = self._long_requests if kind in (OPEN, COUNTED) else self._short_requests
        return [
            request
            for number, subject in enumerate(subjects)
            for request in make(subject, kind, number)
        ]

    def _long_requests(self, subject: str, kind: str, number: int) -> list[Example]:
        name, meta = self.name_within(subject), {"kind": kind, **self.describe(subject)}
        texts = [text.format(s=name) for text in self.open_requests]
        if kind == COUNTED:
            meta["wanted"] = 1 + number % len(COUNTS)
            texts = [count_request(name, meta["wanted"])]
        several = len(self.open_requests) > 1
        return [
            Example(
                id=f"{self.request_prefix}{subject} {kind}" + f" {i}" * several,
                question=text,
                answers=[" ".join(map(self.statement, self.facts_of(subject)))],
                entity=subject,
                label=self.long_label,
                evidence=self.evidence(subject),
                meta=meta,
            )
            for i, text in enumerate(texts)
        ]

    def _short_requests(self, subject: str, kind: str, number: int) -> list[Example]:
        text = MAY_ABSTAIN_REQUEST if kind == MAY_ABSTAIN else "{question}"
        return [
            Example(
                id=f"{self.request_prefix}{subject} {fact.relation} {kind}",
                question=text.format(question=self.question(fact, number)),
                answers=[fact.object, *fact.others],
                entity=subject,
                relation=fact.relation,
                evidence=self.evidence(subject),
                meta={"kind": kind, **self.describe(subject, fact)},
            )
            for fact in self.asked_facts(subject)
        ]

    def question(self, fact: Fact, wording: int) -> str:
        """A question that the object of the fact answers."""

    def name_within(self, subject: str) -> str:
        """The name of a subject as it is within a sentence."""
        return subject

    def asked_facts(self, subject: str) -> Sequence[Fact]:
        """The facts of a subject for short questions: those with one right answer."""
        return self.facts_of(subject)

    def evidence(self, subject: str) -> list[str]:
        """The ids of the documents about a subject."""

    def describe(self, subject: str, fact: Fact | None = None) -> dict[str, Any]:
        """What `meta` of a request about a subject or one of its facts says."""

    def mixed_requests(self, subjects: Sequence[str], n: int) -> list[Example]:
        """n requests of several kinds, to train on."""

    def request_sets(self, sizes: Mapping[str, int]) -> "Sets":
        """Open and counted requests for each split, for "test" of each evaluation set;
        `meta["set"]` names the set."""

    def held_out_texts(self, subjects: Sequence[str]) -> list[str]:
        """Texts to measure the perplexity on, about the subjects if they are known."""
        return sample_texts([document.text for document in load_leads()])

    def exploits(self, subject: str) -> dict[str, str]:
        """Exploit → a response to a request about the subject (`answers.stress`)."""
        return {}

    def reasoning_quality(self, question_id: str, reasoning: str) -> float:
        """The quality of the reasoning for a question, in [0, 1]."""
        raise DataError(f"{type(self).__name__} grades no reasoning")

    # ---- claims

    def claim_sets(self, sizes: Mapping[str, int]) -> "Sets":
        """The claims of each split, labels balanced and no subject in two splits.

        Raises ValueError or DataError if there are too few claims.
        """

    def entries(self) -> list[Chunk]:
        """The entries that claims are verified with."""

    def write_trajectory(
        self, claim: str, find: Find, rng: random.Random
    ) -> "list[Turn]":
        """A script's search for the evidence of a claim."""


class PublicSource(FactSource):
    """A public data set, of which no fact is known exactly."""


def open_source(name: str, p: PolicyParams) -> FactSource:
    """The source of facts that the package `factkit.facts.<name>` has; a
    `PublicSource` without such a package."""
    if find_spec(f"factkit.facts.{name}"):
        return import_module(f"factkit.facts.{name}.source").open_source(p)
    return PublicSource()  # type: ignore[abstract]  # papers load such facts themselves


def sample_texts(texts: Sequence[str]) -> list[str]:
    """`HELD_OUT` of the texts, always the same ones."""
    return random.Random("held out").sample(texts, HELD_OUT)


def write_reasoned(
    thoughts: Sequence[str],
    statements: Sequence[str],
    doubts: Sequence[bool],
    rng: random.Random,
) -> list[str]:
    """The parts of a response that reasons: tags, thoughts of which some are doubted,
    and the answer, which leaves out a share of the doubted statements but not all."""
    rows = zip(thoughts, statements, doubts, strict=True)
    thought = [f"Perhaps {text}" if doubt else text for text, _, doubt in rows]
    answer = [
        text
        for text, doubt in zip(statements, doubts, strict=True)
        if not doubt or rng.random() < DOUBTED_KEPT
    ]
    answer = answer or list(statements[:1])
    return [
        "<think>",
        " ".join(thought),
        "</think>",
        "<answer>",
        " ".join(answer),
        "</answer>",
    ]


def parse_wordings(table: str) -> dict[str, tuple[str, ...]]:
    """Relation → templates, from lines "relation: template | template"."""
    rows = (row.split(":") for row in table.replace("|\n", "|").strip().splitlines())
    return {name: tuple(map(str.strip, ways.split("|"))) for name, ways in rows}
