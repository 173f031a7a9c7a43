"""Parameters of a user's own data: files, and the names of their fields."""

import hashlib
from typing import ClassVar, Self

from pydantic import BaseModel, model_validator

from factkit.run.files import file_checksum, list_files
from factkit.run.params import fields
from factkit.run.paths import ROOT

OWN = "own"  # the source of questions, requests or claims
OWN_DATA = "own data"  # among a run's inputs: the checksum of the user's files


class OwnDataParams(BaseModel):
    """A user's own rows and documents (`facts.own`).

    data_notebook: it reads them. rows_of: the parameter that is `own` for the user's
    rows, and the one with the path of their file.
    """

    data_notebook: ClassVar[str]
    rows_of: ClassVar[tuple[str, str]]
    question_field: fields.Text = "question"  # with the question, request or claim
    answer_field: fields.Text = "answer"  # with one answer, a list, or a claim's label
    answer_separator: fields.Text = ""  # between the answers in one text
    group_field: fields.Text = ""  # empty: each row is a group of its own
    documents_path: fields.DataPath = ""

    @property
    def has_own_data(self) -> bool:
        return getattr(self, self.rows_of[0]) == OWN

    @property
    def own_path(self) -> str:
        """The path of the user's own rows; empty where the rows are not."""
        return getattr(self, self.rows_of[1]) if self.has_own_data else ""

    def own_checksum(self) -> str:
        """The SHA-256 of the user's files, by their names and contents."""
        digest = hashlib.sha256()
        for path in filter(None, (self.own_path, self.documents_path)):
            for file in list_files(ROOT / path):
                name = file.relative_to(ROOT / path)
                digest.update(f"{name} {file_checksum(file)}\n".encode())
        return digest.hexdigest()

    @model_validator(mode="after")
    def _own_rows_have_a_file(self) -> Self:
        source, path = self.rows_of
        if self.has_own_data and not self.own_path:
            raise ValueError(f"{path} must be the file of your rows with {source}=own")
        if self.has_own_data and getattr(self, "policy", "") == "tiny-world":
            raise ValueError(
                f"policy=tiny-world reads the fact world's words alone: with "
                f"{source}=own name smollm2-135m-instruct, a folder or a hub name"
            )
        for name, field in OwnDataParams.model_fields.items():
            if not self.has_own_data and getattr(self, name) != field.default:
                raise ValueError(f"{name} is read only with {source}=own")
        return self
