"""The evaluation prompts of Learning to Reason for Factuality (§4.1, App. A).

| name | source | prompt | the paper's part |
|---|---|---|---|
| longfact_objects | LongFact's folder, from its authors | prompt | 250 of 1,140 |
| fava | fava-uw/fava-data, annotations.json | prompt | 141 of 200 |
| alpaca_fact | tatsu-lab/alpaca_farm, a file | instruction, input | 241 of 805 |
| biography | FactScore's prompt_entities.txt | the names | all 183 |
| factory_hard | facebook/FACTORY, split hard | question | all |
| factbench_hard | launch/FactBench, split tier_1 | user_prompts | all 532 |

Three of the parts are published nowhere that we know of: FLAME (Lin et al. 2024) chose
the prompts of FAVA and of AlpacaFarm that seek facts, LongFact's authors drew 250 of
LongFact-Objects (their code shuffles with seed 1, but in the order in which their file
system listed the topics). Without a file of the chosen rows `load` gives all prompts of
such a set; `curate.factual.keep_factual` is a substitute for FLAME's choice.

Of FAVA, AlpacaFarm, FACTORY and FactBench no row was at hand to try. The names of their
repositories, files, splits and columns are those of the sets' cards and, for the
columns of all but FACTORY, of public code that reads them. A file with other columns
has no usable row: an error says which column was missing.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from factkit.datasets import rows
from factkit.datasets.examples import DataError, Example, made_id
from factkit.datasets.long_form_prompts import (
    Loaded,
    biography,
    collected,
    existing,
    long_prompt,
    longfact,
)
from factkit.datasets.rows import Row

NAMES = (
    "longfact_objects",
    "fava",
    "alpaca_fact",
    "biography",
    "factory_hard",
    "factbench_hard",
)
# CC BY 4.0. The hub's split "train" is another file: synthetic texts with errors.
FAVA = "fava-uw/fava-data", "annotations.json"
# CC BY-NC 4.0. The repository is a loading script, which `datasets` no longer runs.
ALPACA_FARM = "tatsu-lab/alpaca_farm", "alpaca_farm_evaluation.json"
FACTORY = "facebook/FACTORY", "", "hard"  # CC BY-NC 4.0
FACTBENCH = "launch/FactBench", "version 1.0", "tier_1"  # CC BY 4.0; tier 1 is hard


def load(name: str, path: str = "", limit: int | None = None) -> Loaded:
    """An evaluation set's prompts, `limit` at most, and a count of each row dropped.

    name: one of `NAMES`. path: a local file of the set's rows, as JSON, JSON lines or
    CSV; without it the rows come from the hub. longfact_objects and biography, which
    have no place there, need it: LongFact's folder, FactScore's list of names.
    Raises DataError on an unknown name, a file or hub that can't be read, and where no
    row is usable; ValueError if limit < 1.
    """
    match name:
        case "longfact_objects":
            return _first(_objects(_needed(name, path)), limit)
        case "biography":
            return _first(biography(_needed(name, path)), limit)
        case "fava":
            found = _given(path) if path else _hub_file(*FAVA)
            return collected(found, _fava, path or FAVA[0], limit, once=True)
        case "alpaca_fact":
            found = _given(path) if path else _hub_file(*ALPACA_FARM)
            return collected(found, _alpaca, path or ALPACA_FARM[0], limit)
        case "factory_hard":
            found = _given(path) if path else _hub_split(*FACTORY, limit)
            return collected(found, _factory, path or FACTORY[0], limit)
        case "factbench_hard":
            found = _given(path) if path else _hub_split(*FACTBENCH, limit)
            return collected(found, _factbench, path or FACTBENCH[0], limit)
    raise DataError(f"{name}: no such evaluation set; known: {', '.join(NAMES)}")


# ---- a row's example


def _fava(row: Row) -> Example:
    """FAVA (Mishra et al. 2024): a row is one model's passage.

    A prompt that several models answered is dropped but once, as a duplicate.
    """
    return _asked("fava", rows.text(row, "prompt"))


def _alpaca(row: Row) -> Example:
    """AlpacaFarm's evaluation set (Dubois et al. 2023): instruction and any input."""
    parts = rows.text(row, "instruction").strip(), rows.optional(row, "input").strip()
    prompt = "\n\n".join(part for part in parts if part)
    return _asked("alpaca", prompt, rows.optional(row, "dataset"))


def _factory(row: Row) -> Example:
    """FACTORY (Chen et al. 2025)."""
    return _asked("factory", rows.text(row, "question"))


def _factbench(row: Row) -> Example:
    """FactBench (Bayat et al. 2024); the relation is the prompt's topic."""
    topic = rows.optional(row, "topic_description")
    return _asked("factbench", rows.text(row, "user_prompts"), topic)


def _asked(source: str, prompt: str, relation: str = "") -> Example:
    """An example with a hash of its prompt as id, which stands for its entity, too."""
    prompt = prompt.strip()
    name = made_id(source, prompt)
    return long_prompt(name, prompt, name, relation)


# ---- sources


def _objects(path: str) -> Loaded:
    """LongFact's prompts on objects: with those on concepts it has another half."""
    examples, problems = longfact(path)
    found = [e for e in examples if e.meta["kind"] == "objects"]
    if not found:
        raise DataError(f"{path}: no file longfact-objects_….jsonl in it")
    return found, problems


def _first(loaded: Loaded, limit: int | None) -> Loaded:
    examples, problems = loaded
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit}; it must be at least 1, or None for all")
    return examples[:limit], problems


def _needed(name: str, path: str) -> str:
    if not path:
        raise DataError(f"{name} is not on the hub; give the path of its files")
    return path


def _given(path: str) -> Iterator[Any]:
    """The rows of a local file."""
    file = existing(path)
    return _csv_rows(file) if file.suffix.casefold() == ".csv" else rows.of_file(file)


def _csv_rows(file: Path) -> Iterator[dict[str, Any]]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            yield from csv.DictReader(lines)
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{file}: not CSV in UTF-8: {error}; fetch the file again"
        ) from None


def _hub_split(
    hub: str, config: str, split: str, limit: int | None
) -> Iterator[dict[str, Any]]:
    return rows.of_hub(hub, config, split, stream=limit is not None)


def _hub_file(hub: str, name: str) -> Iterator[Any]:
    """The rows of one file of a data set on the hub."""
    from huggingface_hub import hf_hub_download

    try:
        file = hf_hub_download(hub, name, repo_type="dataset")
    except OSError as error:
        raise DataError(
            f"{hub}, {name}: {error}; check the network (HF_HUB_OFFLINE=0), or give "
            "the path of a local file"
        ) from error
    return rows.of_file(Path(file))
