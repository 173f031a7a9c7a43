"""A user's own data as a `FactSource`: no fact is known exactly."""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit.data import own
from factkit.data.corpus import Chunk, Document, chunk_documents
from factkit.data.examples import DataError
from factkit.data.own import Fields
from factkit.data.sources import Loaded
from factkit.facts.source import FactSource
from factkit.run.paths import ROOT

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class OwnSource(FactSource):
    """The rows of a file and the documents of a folder.

    documents_path: a folder or a file; None without documents. seed: of the splits.
    """

    path: Path
    fields: Fields
    documents_path: Path | None = None
    seed: int = 0

    def questions(self) -> Loaded:
        """Questions with short answers."""
        return own.load_rows(self.path, self.fields, own.question)

    def passages(self, tokenizer: "PreTrainedTokenizerBase", size: int) -> list[Chunk]:
        """Chunks of the documents, each after the title: a second chunk says "it"."""
        documents = self.load_documents()[0]
        titles = {document.id: document.title for document in documents}
        return [
            replace(chunk, text=f"{titles[chunk.doc_id]}: {chunk.text.strip()}")
            for chunk in chunk_documents(documents, tokenizer, size)
        ]

    def load_documents(self) -> tuple[list[Document], Counter]:
        """The documents, and how many were dropped for which reason. Raises DataError
        without documents."""
        if self.documents_path is None:
            raise DataError("documents_path: name the folder with your documents")
        return own.load_documents(self.documents_path)

    def documents(self) -> list[Document]:
        """The documents, each after its title."""
        return [
            replace(d, text=f"{d.title}: {d.text}") for d in self.load_documents()[0]
        ]


def open_source(p: Any) -> OwnSource:
    """The files that `p` names, split by `p.split_seed`."""
    fields = Fields(p.question_field, p.answer_field, p.answer_separator, p.group_field)
    documents = ROOT / p.documents_path if p.documents_path else None
    # a paper about claims has no split_seed
    seed = getattr(p, "split_seed", 0)
    return OwnSource(  # type: ignore[abstract]  # it has no exact facts
        ROOT / p.own_path, fields, documents, seed
    )
