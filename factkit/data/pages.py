"""Documents that come with the data sets: CRAG's and WildHallucinations' web pages, and
Wikipedia of 2018."""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from factkit.data import rows, sources
from factkit.data.corpus import Chunk, Document
from factkit.data.examples import DataError, digest, hash_id
from factkit.data.rows import Row, RowError
from factkit.data.sources import Source
from factkit.run import files

PLAIN_TEXT_VERSION = 1  # of `plain_text`, by which CRAG's texts are cached


def crag_pages(path: str = "") -> dict[str, list[Document]]:
    """CRAG's question id → its pages' texts, or the search's snippets, each once.

    All of CRAG is gigabytes of HTML: its texts are kept in the cache folder, by the
    file's SHA-256. A damaged row has no pages.
    """
    file = sources.local_file(sources.SOURCES["crag"], path)
    name = f"{files.file_checksum(file)}-{PLAIN_TEXT_VERSION}.jsonl"
    cached = files.cache_dir() / "crag" / name
    if not cached.exists():
        cached.parent.mkdir(parents=True, exist_ok=True)
        pages = _crag_pages(file).items()
        lines = (json.dumps([i, [vars(d) for d in own]]) + "\n" for i, own in pages)
        files.write_atomically(cached, "".join(lines))
    by_id = rows.read_json_lines(cached)
    return {i: [Document(**d) for d in documents] for i, documents in by_id}


def _crag_pages(file: Path) -> dict[str, list[Document]]:
    pages = {}
    for row in rows.read_file(file):
        with suppress(RowError, AttributeError):
            texts: dict[str, Document] = {}
            for page in map(_page, rows.objects(row, "search_results")):
                texts.setdefault(page.text, page)
            texts.pop("", None)
            pages[rows.text(row, "interaction_id")] = list(texts.values())
    return pages


def _page(page: Row) -> Document:
    url = rows.text(page, "page_url")
    title = rows.text(page, "page_name").strip() or url
    text = plain_text(rows.optional(page, "page_result"))
    text = text or plain_text(rows.optional(page, "page_snippet"))
    source = f"{url} (page of CRAG, CC BY-NC 4.0)"
    return Document(f"{title} {digest(text)}", title, text, source)


def plain_text(markup: str) -> str:
    """The text of a web page without its scripts and styles, a line for each piece."""
    from lxml import etree, html

    if not markup.strip():
        return ""
    page = html.fromstring(markup.encode(), parser=html.HTMLParser(encoding="utf-8"))
    etree.strip_elements(page, "script", "style", etree.Comment, with_tail=False)
    lines = (" ".join(piece.split()) for piece in page.itertext())
    return "\n".join(line for line in lines if line)


def wild_pages(entities: Collection[str]) -> dict[str, list[Document]]:
    """WildHallucinations' own evidence: entity → the texts of its web pages, each once.

    All 7,917 rows are 1.4 GB: only the pages of `entities` are kept.
    """
    pages = {}
    source = sources.SOURCES["wild_hallucinations"]
    for row in sources.hub_rows(source, source.splits[-1]):
        entity = (row.get("entity") or "").strip() if isinstance(row, Mapping) else ""
        if entity in entities:
            texts = {page["text"]: page["url"] for page in rows.objects(row, "info")}
            texts.pop("", None)
            pages[entity] = [
                Document(hash_id(entity, text), url, text, url)
                for text, url in texts.items()
            ]
    return pages


class Passages:
    """The 21 million 100-word passages of DPR's 2018 dump, as Search-R1 searches them
    (TruthRL App. C: NQ, HotpotQA and MuSiQue), each short enough for a chunk.

    path: JSON lines {id, contents}; without it the file comes from the hub. Each
    iteration reads it anew, so that none of its 14 GB stays in memory. The first line
    of contents is the title in quotes. It stays in the text: a passage from the middle
    of an article says "he", and Search-R1's E5 index has seen the title as well. key:
    the file's SHA-256. Raises DataError if the file is unavailable, and on a row that
    is not of this kind.
    """

    def __init__(self, path: str = "") -> None:
        self.path = sources.local_file(WIKI_2018, path)
        self.key = files.file_checksum(self.path)

    def __iter__(self) -> Iterator[Chunk]:
        for number, row in enumerate(rows.read_file(self.path), start=1):
            try:
                yield _passage(row)
            except (ValueError, LookupError, TypeError, AttributeError):
                raise DataError(
                    f"{self.path}, row {number} is not JSON {{id, contents}} with the "
                    "title on the contents' first line; mend the row"
                ) from None


def _passage(row: Row) -> Chunk:
    title, text = row["contents"].split("\n", 1)
    title = title.strip().removeprefix('"').removesuffix('"')
    number = str(row["id"])
    return Chunk(number, number, f"{title}\n{text}", len(text.split()))


WIKI_2018 = Source(  # 5 GB, CC BY-SA 3.0
    _passage, "PeterJinGo/wiki-18-corpus", file="wiki-18.jsonl.gz"
)
