"""Prompts whose answers are long, to train on and to be evaluated on.

All have the label `LONG_FORM`. `answers` is empty but for WildChat, where it holds the
chat's own reply: a reference to search evidence with, not the only right answer.

All but longfact, wildchat and wild_hallucinations are evaluation sets of Learning to
Reason for Factuality (§4.1, App. A). It takes 250 of LongFact-Objects' 1,140, 141 of
FAVA's 200 and 241 of AlpacaFarm's 805, and publishes nowhere which: `load` gives all;
for FLAME's choice of the last two (Lin et al. 2024) `curate.requests.keep_factual` is a
substitute.

Of FAVA, AlpacaFarm, FACTORY and FactBench no row was at hand to try: the names of their
files, splits and columns are those of the sets' cards and of public code.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from factkit.data import rows
from factkit.data.corpus import Document
from factkit.data.examples import LONG_FORM, DataError, Example, made_id
from factkit.data.rows import Loaded, Row, RowError, Source

# characters; ours: a prompt that fits, and a reply with something to check in it
WILDCHAT_CHARS = {"prompt": (15, 2_000), "reply": (200, 8_000)}


def long_prompt(
    name: str, prompt: str, entity: str, relation: str = "", **more: Any
) -> Example:
    """An example with label `LONG_FORM`, without answers if none are among `more`."""
    own = {"answers": [], "relation": relation, "label": LONG_FORM} | more
    return Example(id=name, question=prompt, entity=entity, **own)


def _in_columns(source: str, prompt: str, relation: str = "", more: str = ""):
    """What reads a prompt and its relation from columns of these names.

    more: a column that may hold text to add to the prompt. A hash of the prompt is the
    id, and stands for the entity, too.
    """

    def example(row: Row) -> Example:
        parts = rows.text(row, prompt).strip(), rows.optional(row, more).strip()
        text = "\n\n".join(part for part in parts if part)
        name = made_id(source, text)
        return long_prompt(name, text, name, rows.optional(row, relation))

    return example


def _longfact(row: Row) -> Example:
    """LongFact (Wei et al. 2024): prompts on concepts and on objects, by topic."""
    example = _in_columns("longfact", "prompt", "topic")(row)
    return example.model_copy(update={"meta": {"kind": row["kind"]}})


def _longfact_rows(kind: str = "") -> Callable[[str], Iterator[Any]]:
    """What reads the files of a kind, objects or concepts, in a folder, or one file."""

    def read(path: str) -> Iterator[Any]:
        folder = rows.existing(path, folder=True)
        files = sorted(folder.rglob("*.jsonl")) if folder.is_dir() else [folder]
        if folder.is_dir():
            files = [file for file in files if file.match(f"longfact-{kind}*.jsonl")]
        if not files:
            raise DataError(f"{path}: no file longfact-{kind}… in it")
        for file in files:
            own, _, topic = file.stem.removeprefix("longfact-").partition("_")
            for row in rows.of_file(file):
                good = isinstance(row, Mapping)
                yield {**row, "kind": own, "topic": topic} if good else row

    return read


def _biography(row: Row) -> Example:
    """FactScore's people (Min et al. 2023), of which Binary RAR asks biographies."""
    entity = row["entity"].strip()
    if not entity or "\ufffd" in entity:
        raise RowError("not UTF-8" if entity else "empty entity")
    return long_prompt(entity, f"Tell me a bio of {entity}.", entity)


def _wild(row: Row) -> Example:
    """WildHallucinations (Zhao et al. 2024): entities that people asked chatbots about,
    under its prompt."""
    entity = rows.text(row, "entity").strip()
    prompt = f"In a paragraph, could you tell me what you know about {entity}?"
    name = f"wild_hallucinations {entity}"
    return long_prompt(name, prompt, entity, rows.optional(row, "category"))


def wild_pages(entities: Collection[str]) -> dict[str, list[Document]]:
    """WildHallucinations' own evidence: entity → the texts of its web pages, each once.

    All 7,917 rows are 1.4 GB: only the pages of `entities` are kept.
    """
    pages = {}
    source = SOURCES["wild_hallucinations"]
    for row in rows.values(source, "wild_hallucinations", "", source.splits):
        entity = (row.get("entity") or "").strip() if isinstance(row, Mapping) else ""
        if entity in entities:
            texts = {page["text"]: page["url"] for page in rows.objects(row, "info")}
            texts.pop("", None)
            pages[entity] = [
                Document(made_id(entity, text), url, text, url)
                for text, url in texts.items()
            ]
    return pages


def _names(path: str) -> Iterator[Row]:
    """The names of a text file, one a line."""
    lines = rows.whole(rows.open_text, rows.existing(path))
    return ({"entity": line.rstrip("\r\n")} for line in lines)


def _wildchat(row: Row) -> Example:
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
    return long_prompt(name, prompt, name, answers=[reply])


# LongFact's authors' repository (CC BY 4.0), which has FActScore's names, too (MIT)
AUTHORS = "google-deepmind/long-form-factuality"
COMMIT = "9d27158d198ced0a9d8271a80147cae580614601"
LONGFACT = f"https://github.com/{AUTHORS}/archive/{COMMIT}.zip"
NAMES = (
    f"https://raw.githubusercontent.com/{AUTHORS}/{COMMIT}"
    "/third_party/factscore/labeled_data/prompt_entities.txt"
)
SOURCES = {
    "longfact": Source(_longfact, LONGFACT, read=_longfact_rows()),
    "longfact_objects": Source(_longfact, LONGFACT, read=_longfact_rows("objects")),
    # CC BY 4.0 (Mishra et al. 2023). A row is one model's passage: a prompt that
    # several answered is dropped but once. The hub's split "train" is another file.
    "fava": Source(
        _in_columns("fava", "prompt"),
        "fava-uw/fava-data",
        file="annotations.json",
        once=True,
    ),
    # CC BY-NC 4.0 (Dubois et al. 2023). The repository is a loading script, which
    # `datasets` no longer runs.
    "alpaca_fact": Source(
        _in_columns("alpaca", "instruction", "dataset", more="input"),
        "tatsu-lab/alpaca_farm",
        file="alpaca_farm_evaluation.json",
    ),
    "biography": Source(_biography, NAMES, read=_names),
    "factory_hard": Source(  # CC BY-NC 4.0 (Chen et al. 2025)
        _in_columns("factory", "question"),
        "facebook/FACTORY",
        file="prompts/hard_prompts.jsonl",  # the hub's split "all" is no name of one
    ),
    "factbench_hard": Source(  # CC BY 4.0 (Bayat et al. 2024); tier 1 is hard
        _in_columns("factbench", "user_prompts", "topic_description"),
        "launch/FactBench",
        "version 1.0",
        splits=("tier_1",),
    ),
    "wild_hallucinations": Source(  # licence not stated
        _wild, "wentingzhao/WildHallucinations"
    ),
    "wildchat": Source(_wildchat, "allenai/WildChat-1M", once=True),  # ODC-BY
}


def load(name: str, path: str = "", limit: int | None = None) -> Loaded:
    """A set's prompts; see `rows.load`.

    path: a file of the set's rows as JSON, JSON lines or CSV; for longfact its folder
    or one of its files, for biography a text file with a name a line.
    """
    return rows.load(SOURCES, name, path, limit)
