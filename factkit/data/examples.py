"""The schema of a data set's rows, their files, and the checks on them."""

import codecs
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter

from factkit import UserError
from factkit.run.files import write_atomically

LONG_FORM = "long_form"  # label of requests that need no reference answer
# kinds of requests, `meta["kind"]`: open; for a number of facts; a short question, with
# and without permission to abstain
OPEN, COUNTED, MAY_ABSTAIN, BEST_GUESS = "open", "counted", "may_abstain", "best_guess"
LABELS = ("SUPPORT", "REFUTE", "NOT ENOUGH INFO")  # of claims
MAX_QUESTION_CHARS = 4_000
Row = TypeVar("Row")


class DataError(UserError):
    """A data file can't be used; the message names file, row, value and fix."""


class Example(BaseModel):
    """A question with its reference answers.

    `answers[0]` is the canonical answer, the rest are aliases. `entity` is what the
    question is about: no entity may be in both training and evaluation. `evidence`
    holds the ids of the documents that state the answer.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: str
    question: str
    answers: list[str]
    entity: str
    relation: str = ""
    label: str = ""
    evidence: list[str] = []
    meta: dict[str, Any] = {}


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON lines atomically, byte-equal for equal rows."""
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(lines))


def read_rows(path: Path, kind: type[Row]) -> list[Row]:
    """Read JSON lines as the dataclass or model `kind`.

    Raises DataError on a missing or empty file, and on a row that is not valid.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file; run what writes it first")
    parse, rows = TypeAdapter(kind).validate_json, []
    # str.splitlines would also split inside responses
    content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            rows.append(parse(line))
        except (ValueError, TypeError) as error:
            problem = " ".join(str(error).split())[:240]
            raise DataError(
                f"{path}, row {number}: {problem}; fix it, or remove the file and run "
                "what writes it again"
            ) from None
    if not rows:
        raise DataError(f"{path}: no row; run what writes it again")
    return rows


def write_examples(path: Path, examples: Iterable[Example]) -> None:
    """Write examples as `write_rows`."""
    write_rows(path, (e.model_dump() for e in examples))


def read_examples(path: Path) -> list[Example]:
    """Read JSON lines into examples; DataError as `read_rows`, and on a row that has a
    problem (`find_problem`)."""
    examples: dict[str, Example] = {}
    for number, example in enumerate(read_rows(path, Example), start=1):
        if problem := find_problem(example, examples):
            about = f"{problem}: {example.question[:120]!r}"
            raise DataError(f"{path}, row {number}: {about}; mend the row")
        examples[example.id] = example
    return list(examples.values())


def find_problem(example: Example, seen: Collection[str]) -> str:
    """The name of an example's problem; "" if it has none.

    seen: ids of the examples before it. A question may occur twice in a set: published
    test sets are used whole.
    """
    if not example.question.strip():
        return "empty question"
    if len(example.question) > MAX_QUESTION_CHARS:
        return f"question longer than {MAX_QUESTION_CHARS} characters"
    if example.label != LONG_FORM and not any(a.strip() for a in example.answers):
        return "no reference answer"
    if example.id in seen:
        return "duplicate id"
    return ""


def hash_id(source: str, text: str) -> str:
    """An id for a row without one: a hash of its text."""
    return f"{source}-{digest(text)}"


def digest(text: str) -> str:
    """The first twelve hexadecimal digits of a text's SHA-256."""
    return sha256(text.encode()).hexdigest()[:12]


def with_free_id(example: Example, seen: Collection[str]) -> Example:
    """The example, with the id `<id>-2` … if its id is from `hash_id` and is taken."""
    source, _, _ = example.id.rpartition("-")
    if example.id not in seen or example.id != hash_id(source, example.question):
        return example
    n = next(n for n in range(2, len(seen) + 2) if f"{example.id}-{n}" not in seen)
    return example.model_copy(update={"id": f"{example.id}-{n}"})


def split_in_shares(items: list, sizes: Mapping[str, int]) -> dict[str, list]:
    """Cut items into consecutive parts, in proportion to the sizes."""
    parts, begin, total = {}, 0, 0
    for name, size in sizes.items():
        total += size
        end = round(len(items) * total / sum(sizes.values()))
        parts[name] = items[begin:end]
        begin = end
    return parts


def refuse_overlap(splits: Mapping[str, Sequence[Example]]) -> None:
    """Raise DataError if an entity or a question is in more than one split."""
    owner: dict[str, str] = {}
    for name, examples in splits.items():
        for example in examples:
            for key in (f"entity {example.entity!r}", f"question {example.question!r}"):
                if owner.setdefault(key.casefold(), name) != name:
                    raise DataError(
                        f"{key} is in both {owner[key.casefold()]} and {name} "
                        f"(row {example.id}); split by entity"
                    )
