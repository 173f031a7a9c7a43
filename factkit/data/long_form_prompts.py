"""Making examples of the rows of sets of prompts with long answers.

All have the label `LONG_FORM`. `answers` is empty except for WildChat, where it has the
chat's reply: a reference to search evidence with, not the only correct answer.

All but longfact, wildchat and wild_hallucinations are evaluation sets of Learning to
Reason for Factuality (§4.1, App. A). It takes 250 of LongFact-Objects' 1,140, 141 of
FAVA's 200 and 241 of AlpacaFarm's 805, and publishes nowhere which: all are loaded; for
FLAME's choice of the last two (Lin et al. 2024) `answers.requests.keep_factual` is a
substitute.

Not tried on real rows: FAVA, AlpacaFarm, FACTORY and FactBench. The names of their
files, splits and columns are from the sets' cards and public code.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from factkit.data import rows
from factkit.data.examples import LONG_FORM, DataError, Example, hash_id
from factkit.data.rows import Row, RowError

# characters (ours): a prompt that fits, and a reply with something to check
WILDCHAT_CHARS = {"prompt": (15, 2_000), "reply": (200, 8_000)}


def long_form_example(
    name: str, prompt: str, entity: str, relation: str = "", **more: Any
) -> Example:
    """An example with label `LONG_FORM`, without answers if none are among `more`."""
    fields = {"answers": [], "relation": relation, "label": LONG_FORM} | more
    return Example(id=name, question=prompt, entity=entity, **fields)


def in_columns(
    source: str, prompt: str, relation: str = "", more: str = ""
) -> Callable[[Row], Example]:
    """Make a function that makes examples of columns of these names.

    more: a column that may hold text to append to the prompt. A hash of the prompt is
    the id and the entity.
    """

    def example(row: Row) -> Example:
        parts = rows.text(row, prompt).strip(), rows.optional(row, more).strip()
        text = "\n\n".join(part for part in parts if part)
        name = hash_id(source, text)
        return long_form_example(name, text, name, rows.optional(row, relation))

    return example


def longfact(row: Row) -> Example:
    """LongFact (Wei et al. 2024): prompts on concepts and on objects, by topic."""
    example = in_columns("longfact", "prompt", "topic")(row)
    return example.model_copy(update={"meta": {"kind": row["kind"]}})


def longfact_rows(kind: str = "") -> Callable[[str], Iterator[Any]]:
    """Make a reader of one file, or of a folder's files of a kind (objects …)."""

    def read(path: str) -> Iterator[Any]:
        folder = rows.existing_path(path, folder=True)
        files = sorted(folder.rglob("*.jsonl")) if folder.is_dir() else [folder]
        if folder.is_dir():
            files = [file for file in files if file.match(f"longfact-{kind}*.jsonl")]
        if not files:
            raise DataError(f"{path}: no file longfact-{kind}… in it")
        for file in files:
            file_kind, _, topic = file.stem.removeprefix("longfact-").partition("_")
            for row in rows.read_file(file):
                if isinstance(row, Mapping):
                    row = {**row, "kind": file_kind, "topic": topic}
                yield row

    return read


def biography(row: Row) -> Example:
    """FactScore's people (Min et al. 2023), whose biographies Binary RAR asks for."""
    entity = row["entity"].strip()
    if not entity or "\ufffd" in entity:
        raise RowError("not UTF-8" if entity else "empty entity")
    return long_form_example(entity, f"Tell me a bio of {entity}.", entity)


def wild_hallucinations(row: Row) -> Example:
    """WildHallucinations (Zhao et al. 2024): entities that people asked chatbots about,
    under its prompt."""
    entity = rows.text(row, "entity").strip()
    prompt = f"In a paragraph, could you tell me what you know about {entity}?"
    name = f"wild_hallucinations {entity}"
    return long_form_example(name, prompt, entity, rows.optional(row, "category"))


def name_rows(path: str) -> Iterator[Row]:
    """Yield rows of the names in a text file, one a line."""
    lines = rows.read_whole(rows.open_text, rows.existing_path(path))
    return ({"entity": line.rstrip("\r\n")} for line in lines)


def wildchat(row: Row) -> Example:
    """WildChat (Zhao et al. 2024): an English, harmless first turn with its reply.

    `keep_factual` filters them further (Binary RAR App. D).
    """
    if rows.text(row, "language") != "English":
        raise RowError("not English")
    if row.get("toxic") or row.get("redacted"):
        raise RowError("toxic or redacted")
    turns = rows.objects(row, "conversation")[:2]
    if [turn.get("role") for turn in turns] != ["user", "assistant"]:
        raise RowError("no first turn with a reply")
    prompt, reply = (rows.text(turn, "content").strip() for turn in turns)
    for part, text in (("prompt", prompt), ("reply", reply)):
        least, most = WILDCHAT_CHARS[part]
        if not least <= len(text) <= most:
            raise RowError(f"{part} too {'short' if len(text) < least else 'long'}")
    name = rows.text(row, "conversation_hash")
    return long_form_example(name, prompt, name, answers=[reply])
