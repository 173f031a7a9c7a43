"""Retrieval requests a second by the search service, with 16 clients at a time.

Run with `python tests/benchmarks/bench_search.py`. The server is the real one, in a
thread of this process, over the entries of an eighth of the leads; a request has one
query or 16, top 3. Both indexes take turns, so that a busy machine slows both. Beside
the time that passes stands the processor's, of server and clients together.
"""

import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from retriever import serving_index

from factkit.corpus import Chunk, Index, load_leads
from factkit.retrieval.bm25 import CorpusIndex, tokenize
from factkit.retrieval.entry_index import EntryIndex, build_index
from factkit.search import Search, over_http
from factkit.search_service import document_entries

CLIENTS, REQUESTS, TURNS, TERMS, TOP_K = 16, 96, 3, 10, 3


def rates(searches: list[Search], asked: list[list[str]]) -> tuple[float, float]:
    """Requests a second and a processor second, where each client makes its share."""

    def client(number: int) -> None:
        for some in asked[number :: len(searches)]:
            searches[number](some, TOP_K)

    with ThreadPoolExecutor(len(searches)) as pool:
        start, used = time.perf_counter(), time.process_time()
        list(pool.map(client, range(len(searches))))
        passed, took = time.perf_counter() - start, time.process_time() - used
    return len(asked) / passed, len(asked) / took


def measure(
    indexes: dict[str, Index], asked: list[list[str]]
) -> dict[str, tuple[float, float]]:
    """The medians of TURNS turns' rates, by index."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in indexes}
    for turn in range(TURNS + 1):
        for name, index in indexes.items():
            with serving_index(index) as url:
                of_turn = rates([over_http(url) for _ in range(CLIENTS)], asked)
            if turn:  # the first one warms up
                found[name].append(of_turn)
    return {
        name: tuple(map(median, zip(*turns, strict=True)))
        for name, turns in found.items()
    }


def batches(entries: list[Chunk], size: int) -> list[list[str]]:
    """Requests of so many queries of TERMS words, drawn from the entries' text."""
    words = [word for entry in entries for word in tokenize(entry.text)]
    rng = random.Random(0)
    return [
        [" ".join(rng.choices(words, k=TERMS)) for _ in range(size)]
        for _ in range(REQUESTS)
    ]


def main() -> None:
    """Print requests and queries a second for each index and size of a request."""
    entries = [e for lead in load_leads()[::8] for e in document_entries(lead)]
    with tempfile.TemporaryDirectory() as folder:
        indexes = {
            "CorpusIndex": CorpusIndex(entries),
            "EntryIndex": EntryIndex(
                build_index(entries, Path(folder) / "leads", "leads")
            ),
        }
        print(f"{len(entries)} entries, {CLIENTS} clients, {TERMS}-word queries")
        for size in (1, 16):
            found = measure(indexes, batches(entries, size))
            for name, (passed, processor) in found.items():
                print(
                    f"{name:11} {size:2} queries a request: {passed:4.0f} requests/s, "
                    f"{processor:4.0f} a processor second (medians of {TURNS})"
                )


if __name__ == "__main__":
    main()
