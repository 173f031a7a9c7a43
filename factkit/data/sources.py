"""The public data sets: one table of where each is, and one loader.

Rows come from the Hugging Face hub, an address or a local file, and become examples by
the functions of `questions` and `long_form_prompts`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from factkit.data import assets, rows
from factkit.data.examples import DataError, Example, find_problem, with_free_id
from factkit.data.long_form_prompts import (
    biography,
    in_columns,
    longfact,
    longfact_rows,
    name_rows,
    wild_hallucinations,
    wildchat,
)
from factkit.data.questions import (
    crag,
    gpqa,
    hotpotqa,
    musique,
    nq_open,
    popqa,
    squad_v2,
)
from factkit.data.rows import Row, RowError

Loaded = tuple[list[Example], Counter]


@dataclass(frozen=True)
class Source:
    """Where a set's rows are, and what makes an example of one.

    hub: a Hugging Face id, or the address of a file or of an archive (.zip). file: one
    of the data set's files, in place of a split. splits: the last one is evaluated on.
    once: drop a repeated text, too: for prompts to train on, never for a published test
    set. read: yields the rows at a local path, or at the path that an address was
    downloaded to.
    """

    example: Callable[[Row], Any]
    hub: str
    config: str = ""
    file: str = ""
    splits: tuple[str, ...] = ("train",)
    once: bool = False
    read: Callable[[str], Iterable[Any]] = rows.read_file


BOTH = ("train", "validation")
CRAG = "https://github.com/facebookresearch/CRAG/raw/refs/heads/main/data/"
# LongFact's authors' repository (CC BY 4.0), which has FActScore's names, too (MIT)
AUTHORS = "google-deepmind/long-form-factuality"
COMMIT = "9d27158d198ced0a9d8271a80147cae580614601"
LONGFACT = f"https://github.com/{AUTHORS}/archive/{COMMIT}.zip"
RAW = f"https://raw.githubusercontent.com/{AUTHORS}/{COMMIT}/third_party/factscore/"
SOURCES = {
    # CC BY-NC 4.0. No official copy on the hub. Task 3's 50 pages a question are a tar
    # in parts beside this file (5 pages a question): unpack it and give its path.
    "crag": Source(crag, CRAG + "crag_task_1_and_2_dev_v4.jsonl.bz2"),
    # CC BY-SA 3.0. Its validation split is what papers call its test set (3,610)
    "nq_open": Source(
        nq_open, "google-research-datasets/nq_open", "nq_open", splits=BOTH
    ),
    # CC BY-SA 4.0
    "hotpotqa": Source(hotpotqa, "hotpotqa/hotpot_qa", "distractor", splits=BOTH),
    "musique": Source(musique, "dgslibisey/MuSiQue", splits=BOTH),  # CC BY 4.0
    "popqa": Source(popqa, "akariasai/PopQA", splits=("test",)),  # MIT
    "gpqa": Source(gpqa, "Idavidrein/gpqa", "gpqa_main"),  # CC BY 4.0, gated
    "squad_v2": Source(squad_v2, "rajpurkar/squad_v2", splits=BOTH),  # CC BY-SA 4.0
    "longfact": Source(longfact, LONGFACT, read=longfact_rows()),
    "longfact_objects": Source(longfact, LONGFACT, read=longfact_rows("objects")),
    # CC BY 4.0 (Mishra et al. 2023). A row is one model's passage, and several models
    # answer a prompt. The hub's split "train" is another file.
    "fava": Source(
        in_columns("fava", "prompt"),
        "fava-uw/fava-data",
        file="annotations.json",
        once=True,
    ),
    # CC BY-NC 4.0 (Dubois et al. 2023). The repository is a loading script, which
    # `datasets` no longer runs.
    "alpaca_fact": Source(
        in_columns("alpaca", "instruction", "dataset", more="input"),
        "tatsu-lab/alpaca_farm",
        file="alpaca_farm_evaluation.json",
    ),
    "biography": Source(
        biography, RAW + "labeled_data/prompt_entities.txt", read=name_rows
    ),
    # CC BY-NC 4.0 (Chen et al. 2025). The hub's split "all" is no name of one.
    "factory_hard": Source(
        in_columns("factory", "question"),
        "facebook/FACTORY",
        file="prompts/hard_prompts.jsonl",
    ),
    # CC BY 4.0 (Bayat et al. 2024); tier 1 is hard
    "factbench_hard": Source(
        in_columns("factbench", "user_prompts", "topic_description"),
        "launch/FactBench",
        "version 1.0",
        splits=("tier_1",),
    ),
    # licence not stated
    "wild_hallucinations": Source(
        wild_hallucinations, "wentingzhao/WildHallucinations"
    ),
    "wildchat": Source(wildchat, "allenai/WildChat-1M", once=True),  # ODC-BY
}


def load(
    name: str, path: str = "", limit: int | None = None, all_splits: bool = False
) -> Loaded:
    """Load a set's examples, `limit` at most, and count each reason to drop a row.

    path: a local file of the set's rows (for longfact its folder or one of its files,
    for biography a text file with a name a line). Without it the rows come from the
    hub, streamed if `limit` is given: of the split that is evaluated on, or, with
    `all_splits`, of all, for a paper that splits them itself. Raises DataError on an
    unknown name, on a file or hub that can't be read, and where no row is usable.
    """
    if name not in SOURCES:
        raise DataError(f"{name}: no such data set; known: {', '.join(SOURCES)}")
    source = SOURCES[name]
    if path:
        values = iter(source.read(path))
    else:
        splits = source.splits if all_splits else source.splits[-1:]
        stream = limit is not None
        values = chain.from_iterable(hub_rows(source, s, stream) for s in splits)
    return collect(values, source.example, path or source.hub, limit, source.once)


def collect(
    values: Iterable[Any],
    example: Callable[[Any], Example],
    where: str,
    limit: int | None = None,
    once: bool = False,
) -> Loaded:
    """Make examples of rows, `limit` at most, and count each reason to drop one.

    A row is dropped that is no JSON object in UTF-8 with its source's fields, or whose
    example has a problem (`find_problem`). Raises DataError if no row is usable.
    """
    problems: Counter = Counter()
    examples: dict[str, Example] = {}
    texts: set[str] = set()
    for value in values:
        try:
            if isinstance(value, RowError):
                raise value
            if not isinstance(value, Mapping):
                raise RowError("not a JSON object")
            candidate = with_free_id(example(value), examples)
            if problem := find_problem(candidate, examples):
                raise RowError(problem)
            if once and candidate.question.casefold() in texts:
                raise RowError("duplicate question")
        except RowError as error:
            problems[error.args[0]] += 1
            continue
        examples[candidate.id] = candidate
        texts.add(candidate.question.casefold())
        if len(examples) == limit:
            break
    if not examples:
        raise DataError(f"{where}: no usable row ({dict(problems)})")
    return list(examples.values()), problems


def hub_rows(source: Source, split: str, stream: bool = False) -> Iterator[Any]:
    """Yield the rows of a split of the hub, or of a source's one file."""
    import datasets

    hub = assets.of_hub(source.hub)
    try:
        if source.file:
            yield from rows.read_file(local_file(source))
        elif source.hub.startswith("https://"):
            path, packed = str(local_file(source)), hub.endswith(".zip")
            manager = datasets.DownloadManager()
            yield from source.read(manager.extract(path) if packed else path)
        else:
            config = source.config or None
            yield from datasets.load_dataset(hub, config, split=split, streaming=stream)
    except DataError:
        raise
    except (OSError, ValueError) as error:
        raise _unavailable(hub, source.file or f"split {split!r}", error) from error


def local_file(source: Source, path: str = "") -> Path:
    """The path of a source's one file, downloaded if it is not here; or `path`."""
    import datasets
    from huggingface_hub import hf_hub_download

    if path:
        return rows.existing_path(path)
    hub = assets.of_hub(source.hub)
    try:
        if hub != source.hub:  # here already
            file = str(Path(hub, source.file))
        elif source.file:
            file = hf_hub_download(hub, source.file, repo_type="dataset")
        else:
            file = datasets.DownloadManager().download(hub)
    except (OSError, ValueError) as error:
        raise _unavailable(hub, source.file, error) from error
    return rows.existing_path(file)


def _unavailable(hub: str, part: str, error: Exception) -> DataError:
    return DataError(
        f"{hub}, {part}: {error}; check the name and the network (HF_HUB_OFFLINE=0), "
        "or give the path of a local file"
    )
