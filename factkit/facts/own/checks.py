"""Checks of a user's own data: what is read, kept and dropped, and whether it is enough
for the splits."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from factkit import Check
from factkit.data.examples import DataError
from factkit.facts.own.source import open_source
from factkit.run.params.own import OwnDataParams


def split_sizes(p: Any) -> dict[str, int]:
    """The parameter of each split's size → its value."""
    keys = [f"{name}_{p.rows_of[0]}" for name in p.splits]
    return {key: getattr(p, key) for key in keys}


def own_data(p: OwnDataParams) -> list[Check]:
    """The rows, their groups and splits, and the documents. Raises DataError on a file
    that can't be used."""
    examples, dropped = (source := open_source(p)).loaded
    rows = f"own rows {p.own_path}"
    read = len(examples) + sum(dropped.values())
    counts = f"{read} read, {len(examples)} kept{_reasons(dropped)}"
    checks = [(rows, counts, True, "")]
    groups = len({example.entity.casefold() for example in examples})
    found = f"{groups} by {p.group_field or 'the first document of the evidence'}"
    if groups == len(examples):
        found = "every row is one: two about one thing may be in two splits: name what "
        found += "they are about by group_field"
    checks.append(("own groups", found, True, ""))
    sizes = split_sizes(p)
    wanted = " + ".join(f"{key}={size}" for key, size in sizes.items())
    try:
        source.split_rows(sizes)
        checks.append(("own splits", wanted, True, ""))
    except DataError as error:
        share = 0.9 * len(examples) / sum(sizes.values())
        fits = {key: max(int(size * share), 1) for key, size in sizes.items()}
        fewer = ", ".join(f"{key}: {size}" for key, size in fits.items())
        found = f"{wanted} of {len(examples)} rows in {groups} groups: {error}"
        checks.append(("own splits", found, False, f"for instance {fewer}"))
    if p.documents_path:
        documents, lost = source.load_documents()
        words = sum(len(document.text.split()) for document in documents)
        found = f"{len(documents)} kept, {words:,} words{_reasons(lost)}"
        checks.append((f"own documents {p.documents_path}", found, True, ""))
    return checks


def _reasons(dropped: Mapping[str, int]) -> str:
    """ "; dropped: 3 duplicate question, 1 not UTF-8", or "" if none was dropped."""
    rows = [f"{n} {reason}" for reason, n in Counter(dropped).most_common() if n]
    return f"; dropped: {', '.join(rows)}" if rows else ""
