"""Prompts whose answers are long, and GPQA, from the hub or a file to the one schema.

| source | id | entity | relation | answers | meta |
|---|---|---|---|---|---|
| biography (FactScore) | the entity | person | – | none | – |
| wild_hallucinations | the entity | entity | category | none | has a Wikipedia page |
| longfact | hash of the prompt | the id | topic | none | concepts or objects |
| wildchat | conversation_hash | the id | – | the chat's own reply | model |
| gpqa | Record ID | the id | subdomain | the right option's letter | options |

All but GPQA's have the label `LONG_FORM`: `answers`, where there are any, hold one
reference response, to search evidence with, and not the only right answer. What is not
English, toxic, too long or too short is no prompt of ours either: every loader returns
its examples and a count of each reason that a row was dropped for.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from factkit.corpus import Document
from factkit.datasets import rows
from factkit.datasets.examples import (
    LONG_FORM,
    DataError,
    Example,
    made_id,
    numbered,
    problem_of,
    refuse_overlap,
)
from factkit.datasets.rows import Row, RowError

BIOGRAPHY_PROMPT = "Tell me a bio of {entity}."  # FactScore's
ENTITY_PROMPT = "Tell me what you know about {entity}."
WILD_HALLUCINATIONS = "wentingzhao/WildHallucinations"
WILDCHAT = "allenai/WildChat-1M"  # ODC-BY
GPQA = "Idavidrein/gpqa"  # CC BY 4.0, gated: log in to the hub and accept its terms
# characters; ours: a prompt that fits, and a reply with something to check in it
WILDCHAT_PROMPT_CHARS = (15, 2_000)
WILDCHAT_REPLY_CHARS = (200, 8_000)

Loaded = tuple[list[Example], Counter]


# ---- the papers' sources


def biography(path: str, template: str = BIOGRAPHY_PROMPT) -> Loaded:
    """FactScore's people (Min et al. 2023), of which Binary RAR asks biographies.

    path: a text file with a name a line, as FactScore's prompt_entities.txt.
    """

    def lines() -> Iterator[Any]:
        for raw in existing(path).read_bytes().splitlines():
            try:
                yield {"entity": raw.decode("utf-8")}
            except UnicodeDecodeError:
                yield RowError("not UTF-8")

    return collected(lines(), lambda row: _about(row, template), path)


def wild_hallucinations(
    path: str = "", template: str = ENTITY_PROMPT, limit: int | None = None
) -> Loaded:
    """WildHallucinations (Zhao et al. 2024): entities that people asked chatbots about.

    path: a file of the hub's rows as JSON lines; without it, the hub.
    """
    source = _rows(path, WILD_HALLUCINATIONS, limit=limit)
    return collected(
        source, lambda row: _about(row, template), path or WILD_HALLUCINATIONS, limit
    )


def wild_pages(path: str = "", limit: int | None = None) -> dict[str, list[Document]]:
    """The web pages that come with WildHallucinations: prompt id → its documents.

    A page that could not be fetched, or holds no text, is left out. `limit` counts
    rows here.
    """
    pages: dict[str, list[Document]] = {}
    for number, row in enumerate(_rows(path, WILD_HALLUCINATIONS, limit=limit)):
        if number == limit:
            break
        if isinstance(row, Mapping) and isinstance(row.get("entity"), str):
            entity = row["entity"].strip()
            pages.setdefault(entity, _pages(entity, row))
    return pages


def longfact(path: str) -> Loaded:
    """LongFact (Wei et al. 2024): prompts on concepts and on objects, by topic.

    path: its folder or one of its .jsonl files.
    """
    found = existing(path, folder=True)
    files = sorted(found.rglob("*.jsonl")) if found.is_dir() else [found]

    def every() -> Iterator[Any]:
        for file in files:
            kind, _, topic = file.stem.removeprefix("longfact-").partition("_")
            for row in rows.of_file(file):
                good = isinstance(row, Mapping)
                yield {**row, "kind": kind, "topic": topic} if good else row

    def example(row: Row) -> Example:
        prompt = rows.text(row, "prompt").strip()
        name = made_id("longfact", prompt)
        return long_prompt(name, prompt, name, row["topic"], meta={"kind": row["kind"]})

    return collected(every(), example, path)


def wildchat(path: str = "", limit: int | None = None) -> Loaded:
    """WildChat (Zhao et al. 2024): English, harmless first turns with their replies.

    The lengths are in characters (`WILDCHAT_PROMPT_CHARS`, `WILDCHAT_REPLY_CHARS`).
    `keep_factual` filters them further (Binary RAR App. D).
    """
    source = _rows(path, WILDCHAT, limit=limit)
    return collected(source, _wildchat, path or WILDCHAT, limit, once=True)


def gpqa(
    path: str = "",
    config: str = "gpqa_main",
    seed: int = 0,
    limit: int | None = None,
) -> Loaded:
    """GPQA (Rein et al. 2024): four options in an order drawn for each question.

    config: gpqa_main | gpqa_diamond | gpqa_extended. The options stand in the question
    as (A) to (D); `answers` is the right one's letter.
    """
    return collected(
        _rows(path, GPQA, config, limit),
        lambda row: _gpqa(row, seed),
        path or f"{GPQA} {config}",
        limit,
    )


def split_prompts(
    examples: Sequence[Example], sizes: Mapping[str, int], seed: int = 0
) -> dict[str, list[Example]]:
    """Splits of the given sizes, drawn at random, no entity or text in two of them.

    Unlike `curate.splits.split_by_entity` it keeps the mix of kinds as it is.
    Raises DataError if there are too few examples.
    """
    order = list(examples)
    random.Random(f"prompts {seed}").shuffle(order)
    splits: dict[str, list[Example]] = {}
    owner: dict[str, str] = {}  # of an entity or a text
    taken: set[str] = set()  # ids
    for name, size in sizes.items():
        split: list[Example] = []
        for example in order:
            keys = (example.entity.casefold(), example.question.casefold())
            free = example.id not in taken and {owner.get(k, name) for k in keys}
            if len(split) < size and free == {name}:
                split.append(example)
                owner |= dict.fromkeys(keys, name)
                taken.add(example.id)
        if len(split) < size:
            raise DataError(
                f"{name}={size}: only {len(split)} of {len(examples)} prompts are left "
                "for this split; ask for fewer"
            )
        splits[name] = split
    refuse_overlap(splits)
    return splits


# ---- a row's example


def long_prompt(
    name: str,
    prompt: str,
    entity: str,
    relation: str = "",
    answers: Sequence[str] = (),
    meta: Mapping[str, Any] | None = None,
) -> Example:
    """An example with label `LONG_FORM`."""
    return Example(
        id=name,
        question=prompt,
        answers=list(answers),
        entity=entity,
        relation=relation,
        label=LONG_FORM,
        meta=dict(meta or {}),
    )


def _about(row: Row, template: str) -> Example:
    """A prompt about a row's entity."""
    entity = rows.text(row, "entity").strip()
    if not entity:
        raise RowError("empty entity")
    meta = {"wiki": bool(row["wiki"])} if row.get("wiki") is not None else {}
    prompt = template.format(entity=entity)
    return long_prompt(
        entity, prompt, entity, rows.optional(row, "category"), meta=meta
    )


def _pages(entity: str, row: Row) -> list[Document]:
    found = row.get("info")
    good = [
        page
        for page in (found if isinstance(found, list) else [])
        if isinstance(page, Mapping)
        and page.get("status_code", 200) == 200
        and isinstance(page.get("text"), str)
        and page["text"].strip()
    ]
    return [
        Document(
            f"{entity} {i}",
            entity,
            page["text"].strip(),
            f"{page.get('url') or 'the web'} (page of WildHallucinations)",
        )
        for i, page in enumerate(good)
    ]


def _wildchat(row: Row) -> Example:
    """The first turn of a chat, with its reply as the reference."""
    if rows.text(row, "language") != "English":
        raise RowError("not English")
    if row.get("toxic") or row.get("redacted"):
        raise RowError("toxic or redacted")
    turns = rows.objects(row, "conversation")[:2]
    if [turn.get("role") for turn in turns] != ["user", "assistant"]:
        raise RowError("no first turn with a reply")
    prompt, reply = (rows.text(turn, "content").strip() for turn in turns)
    for what, text, (least, most) in (
        ("prompt", prompt, WILDCHAT_PROMPT_CHARS),
        ("reply", reply, WILDCHAT_REPLY_CHARS),
    ):
        if not least <= len(text) <= most:
            raise RowError(f"{what} too {'short' if len(text) < least else 'long'}")
    name = rows.text(row, "conversation_hash")
    meta = {"model": rows.optional(row, "model")}
    return long_prompt(name, prompt, name, answers=[reply], meta=meta)


def _gpqa(row: Row, seed: int) -> Example:
    name = rows.text(row, "Record ID")
    right = rows.text(row, "Correct Answer").strip()
    wrong = [rows.text(row, f"Incorrect Answer {i}").strip() for i in (1, 2, 3)]
    options = [right, *wrong]
    if not all(options) or len(set(options)) < len(options):
        raise RowError("an option is empty or given twice")
    random.Random(f"gpqa {seed} {name}").shuffle(options)
    lettered = "\n".join(f"({x}) {o}" for x, o in zip("ABCD", options, strict=True))
    return Example(
        id=name,
        question=f"{rows.text(row, 'Question').strip()}\n{lettered}",
        answers=["ABCD"[options.index(right)]],
        entity=name,
        relation=rows.optional(row, "Subdomain"),
        meta={"options": options},
    )


# ---- loading


def _rows(
    path: str, hub: str, config: str = "", limit: int | None = None
) -> Iterator[Any]:
    if path:
        return rows.of_file(existing(path))
    return rows.of_hub(hub, config, "train", stream=limit is not None)


def existing(path: str, folder: bool = False) -> Path:
    """The file, or with `folder` also the folder, at a path; DataError if none is."""
    found = Path(path)
    if found.is_file() or (folder and found.is_dir()):
        return found
    raise DataError(f"{path}: no such file{' or folder' if folder else ''}")


def collected(
    values: Iterable[Any],
    example: Callable[[Any], Example],
    where: str,
    limit: int | None = None,
    once: bool = False,
) -> Loaded:
    """The examples of rows, `limit` at most, and a count of each reason to drop one.

    once: a text that is there already is dropped, too: for prompts to train on, never
    for a published test set. Raises DataError if no row is usable, ValueError if
    limit < 1.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit}; it must be at least 1, or None for all")
    examples: list[Example] = []
    problems: Counter = Counter()
    seen: set[str] = set()
    texts: set[str] = set()
    for value in values:
        try:
            if isinstance(value, RowError):
                raise value
            if not isinstance(value, Mapping | Document):
                raise RowError("not a JSON object")
            made = numbered(example(value), seen)
            if problem := problem_of(made, seen):
                raise RowError(problem)
            if once and made.question.casefold() in texts:
                raise RowError("duplicate question")
        except RowError as error:
            problems[error.args[0]] += 1
            continue
        examples.append(made)
        seen.add(made.id)
        texts.add(made.question.casefold())
        if len(examples) == limit:
            break
    if not examples:
        raise DataError(f"{where}: no usable row ({dict(problems)})")
    return examples, problems
