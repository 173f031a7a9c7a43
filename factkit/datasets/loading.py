"""One path for every public set: a file or the hub, its rows, examples."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from factkit.corpus import Document
from factkit.datasets import rows
from factkit.datasets.examples import DataError, Example, numbered, problem_of
from factkit.datasets.rows import Row, RowError

Loaded = tuple[list[Example], Counter]


@dataclass(frozen=True)
class Source:
    """Where a set's rows are, and what they mean.

    hub: a Hugging Face id, or the address of a file; "" for a set that is not there.
    file: one of the data set's files, in place of a split. splits: the last one is
    evaluated on. split_field: tells the splits of one file apart. once: a text that is
    there already is dropped, too: for prompts to train on, never for a published test
    set. read: the rows at a local path. pages: the documents that come with a row.
    """

    example: Callable[[Row], Example]
    hub: str = ""
    config: str = ""
    file: str = ""
    splits: tuple[str, ...] = ("train",)
    split_field: str = ""
    once: bool = False
    read: Callable[[str], Iterable[Any]] = rows.of_file
    pages: Callable[[Row], list[Document]] | None = None


def load(
    sources: Mapping[str, Source],
    name: str,
    path: str = "",
    split: str = "",
    limit: int | None = None,
) -> Loaded:
    """A set's examples, `limit` at most, and a count of each reason to drop a row.

    path: a local file of the set's rows; without it they come from the hub, streamed if
    `limit` is given. split: by default the one that is evaluated on; for a file, all of
    it. Raises DataError on an unknown name or split, a file or hub that can't be read,
    and where no row is usable; ValueError if limit < 1.
    """
    source = named(sources, name)
    return collected(
        values(source, name, path, split, limit is not None),
        source.example,
        path or source.hub,
        limit,
        source.once,
    )


def named(sources: Mapping[str, Source], name: str) -> Source:
    """The source of that name; DataError if there is none."""
    if name not in sources:
        raise DataError(f"{name}: no such data set; known: {', '.join(sources)}")
    return sources[name]


def values(
    source: Source, name: str, path: str = "", split: str = "", stream: bool = False
) -> Iterator[Any]:
    """A file's or a split's rows, a RowError in place of one that can't be read."""
    field = source.split_field
    if path and split and not field:
        raise DataError(
            f"split={split!r}: a file of {name} is one split; leave it empty"
        )
    if not path and not source.hub:
        raise DataError(f"{name} is not on the hub; give the path of its files")
    if path:
        read = source.read(path)
    else:
        split = split or source.splits[-1]
        read = rows.of_hub(source.hub, source.config, split, stream, source.file)
    for row in read:
        of_one = field and split and isinstance(row, Mapping)
        if not of_one or str(row.get(field)) == split:
            yield row


def collected(
    values: Iterable[Any],
    example: Callable[[Any], Example],
    where: str,
    limit: int | None = None,
    once: bool = False,
) -> Loaded:
    """The examples of rows, `limit` at most, and a count of each reason to drop one.

    A row is dropped that is no JSON object in UTF-8 with its source's fields, or whose
    example has a problem (`examples.problem_of`). Raises DataError if no row is usable.
    """
    problems: Counter = Counter()
    pairs = converted(values, example, problems, limit, once)
    examples = [example for example, _ in pairs]
    if not examples:
        raise DataError(f"{where}: no usable row ({dict(problems)})")
    return examples, problems


def converted(
    values: Iterable[Any],
    example: Callable[[Any], Example],
    problems: Counter,
    limit: int | None = None,
    once: bool = False,
) -> Iterator[tuple[Example, Row]]:
    """The examples of `collected`, each with its row; counts into `problems`."""
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit}; it must be at least 1, or None for all")
    seen: set[str] = set()
    texts: set[str] = set()
    for value in values:
        try:
            if isinstance(value, RowError):
                raise value
            if not isinstance(value, Mapping):
                raise RowError("not a JSON object")
            made = numbered(example(value), seen)
            if problem := problem_of(made, seen):
                raise RowError(problem)
            if once and made.question.casefold() in texts:
                raise RowError("duplicate question")
        except RowError as error:
            problems[error.args[0]] += 1
            continue
        seen.add(made.id)
        texts.add(made.question.casefold())
        yield made, value
        if len(seen) == limit:
            return
