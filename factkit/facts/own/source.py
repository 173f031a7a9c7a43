"""A user's own data as a `FactSource`, and its checks; no fact is known exactly."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from factkit import Check
from factkit.data import own
from factkit.data.corpus import Chunk, Document
from factkit.data.entries import page_entry, page_id
from factkit.data.examples import DataError
from factkit.data.own import Fields
from factkit.data.sources import Loaded
from factkit.data.splits import Sets, in_set, split_by_entity
from factkit.facts.source import FactSource
from factkit.run.params.own import OWN, OwnDataParams
from factkit.run.paths import ROOT

MAKERS = {"questions": own.question, "requests": own.request}


@dataclass(frozen=True)
class OwnSource(FactSource):
    """The rows of a file and the documents of a folder.

    kind: of the rows: questions | requests | claims. documents_path: a folder or a
    file; None without documents. seed: of the splits.
    """

    path: Path
    kind: str
    fields: Fields
    documents_path: Path | None = None
    seed: int = 0

    @cached_property
    def loaded(self) -> Loaded:
        """The examples, and how many rows were dropped for which reason."""
        if self.kind == "claims":
            make = partial(own.claim, pages=self._pages())
            return own.load_rows(self.path, self.fields, make)
        return own.load_rows(self.path, self.fields, MAKERS[self.kind])

    def split_rows(self, sizes: Mapping[str, int]) -> Sets:
        """The rows of each split, no group in two of them."""
        return split_by_entity(self.loaded[0], sizes, self.seed)

    def questions(self) -> Loaded:
        """The questions, with short answers."""
        return self.loaded

    def dropped(self) -> Counter:
        """How many rows were dropped for which reason."""
        return self.loaded[1]

    def request_sets(self, sizes: Mapping[str, int]) -> Sets:
        """The requests, all of one evaluation set."""
        sets = self.split_rows(sizes)
        return {name: [in_set(e, OWN) for e in rows] for name, rows in sets.items()}

    def claim_sets(self, sizes: Mapping[str, int]) -> Sets:
        """The claims, labels in turn as long as there are some of each."""
        return self.split_rows(sizes)

    def entries(self) -> list[Chunk]:
        """An entry for each document. Raises DataError if two have one title."""
        entries = {}
        for document in self.corpus():
            entry = page_entry(document.title, document.text)
            if entry.id in entries:
                raise DataError(
                    f"{self.documents_path}: two documents are titled {entry.id!r}: "
                    "claims name their evidence by titles"
                )
            entries[entry.id] = entry
        return list(entries.values())

    def _pages(self) -> dict[str, str]:
        """The title and the id of each document, in lower case → its entry's id."""
        pages = {entry.id.casefold(): entry.id for entry in self.entries()}
        for document in self.corpus():
            entry = page_id(document.title)
            pages |= {name.casefold(): entry for name in (document.title, document.id)}
        return pages

    def load_documents(self) -> tuple[list[Document], Counter]:
        """The documents, and how many were dropped for which reason. Raises DataError
        without documents."""
        if self.documents_path is None:
            raise DataError("documents_path: name the folder with your documents")
        return own.load_documents(self.documents_path)

    def corpus(self) -> list[Document]:
        """The documents."""
        return self.load_documents()[0]

    def checks(self, p: OwnDataParams) -> list[Check]:
        """Checks of the rows, their groups and splits, and the documents. Raises
        DataError on a file that can't be used."""
        examples, dropped = self.loaded
        read = len(examples) + sum(dropped.values())
        counts = f"{read} read, {len(examples)} kept{_list_reasons(dropped)}"
        checks = [(f"own rows {p.own_path}", counts, True, "")]
        groups = len({example.entity.casefold() for example in examples})
        found = f"{groups} by {p.group_field or 'the first document of the evidence'}"
        if groups == len(examples):
            found = "every row is one: two about one thing may be in two splits: name "
            found += "what they are about by group_field"
        checks.append(("own groups", found, True, ""))
        sizes = split_sizes(p)
        wanted = " + ".join(f"{key}={size}" for key, size in sizes.items())
        try:
            self.split_rows(sizes)
            checks.append(("own splits", wanted, True, ""))
        except DataError as error:
            share = 0.9 * len(examples) / sum(sizes.values())
            fits = {key: max(int(size * share), 1) for key, size in sizes.items()}
            fewer = ", ".join(f"{key}: {size}" for key, size in fits.items())
            found = f"{wanted} of {len(examples)} rows in {groups} groups: {error}"
            checks.append(("own splits", found, False, f"for instance {fewer}"))
        if p.documents_path:
            documents, lost = self.load_documents()
            words = sum(len(document.text.split()) for document in documents)
            found = f"{len(documents)} kept, {words:,} words{_list_reasons(lost)}"
            checks.append((f"own documents {p.documents_path}", found, True, ""))
        return checks


def split_sizes(p: Any) -> dict[str, int]:
    """The parameter of each split's size → its value."""
    keys = [f"{name}_{p.rows_of[0]}" for name in p.splits]
    return {key: getattr(p, key) for key in keys}


def _list_reasons(dropped: Counter) -> str:
    reasons = [f"{n} {reason}" for reason, n in dropped.most_common() if n]
    return f"; dropped: {', '.join(reasons)}" if reasons else ""


def open_source(p: Any) -> OwnSource:
    """The files that `p` names, split by `p.split_seed`."""
    fields = Fields(
        question=p.question_field,
        answer=p.answer_field,
        separator=p.answer_separator,
        group=p.group_field,
        evidence=getattr(p, "evidence_field", ""),  # of claims
    )
    documents = ROOT / p.documents_path if p.documents_path else None
    # a paper about claims has no split_seed
    seed = getattr(p, "split_seed", 0)
    return OwnSource(  # type: ignore[abstract]  # it has no exact facts
        ROOT / p.own_path, p.rows_of[0], fields, documents, seed
    )
