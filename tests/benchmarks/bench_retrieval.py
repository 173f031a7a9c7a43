"""Query latency of bm25s against rank-bm25, side by side on one corpus.

Run with `python tests/benchmarks/bench_retrieval.py`. The two take turns query by
query, so that a busy machine slows both; both searches are those of
`factkit.retrieval.bm25`, which sorts and cuts alike.
"""

import random
import time
from statistics import median

from factkit.corpus import Chunk, load_leads
from factkit.retrieval.bm25 import CorpusIndex, PromptIndex, tokenize

QUERIES, TERMS, TOP_K = 50, 40, 20


def seconds(action) -> float:
    """Wall-clock seconds of one call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def queries(chunks: list[Chunk], n: int, terms: int, seed: int = 0) -> list[str]:
    """n queries of `terms` words, each drawn from the corpus's running text."""
    words = [word for chunk in chunks for word in tokenize(chunk.text)]
    rng = random.Random(seed)
    return [" ".join(rng.choices(words, k=terms)) for _ in range(n)]


def compare(chunks: list[Chunk]) -> dict[str, list[float]]:
    """Seconds of each query, by library; raises AssertionError if the hits differ."""
    corpus, prompt = CorpusIndex(chunks), PromptIndex(chunks)
    corpus.search("warm", 1), prompt.search("up", 1)
    times = {"bm25s": [], "rank-bm25": []}
    for query in queries(chunks, QUERIES, TERMS):
        assert corpus.search(query, TOP_K) == prompt.search(query, TOP_K)
        times["bm25s"].append(seconds(lambda q=query: corpus.search(q, TOP_K)))
        times["rank-bm25"].append(seconds(lambda q=query: prompt.search(q, TOP_K)))
    return times


def main() -> None:
    """Print medians in milliseconds and their ratio."""
    leads = load_leads()
    chunks = [Chunk(f"{lead.id}#0", lead.id, lead.text, 0) for lead in leads]
    medians = {name: median(t) * 1e3 for name, t in compare(chunks).items()}
    print(f"{len(chunks)} documents, {TERMS}-term queries, top {TOP_K}")
    for name, ms in medians.items():
        print(f"{name:10} {ms:8.2f} ms (median of {QUERIES})")
    print(f"{'ratio':10} {medians['rank-bm25'] / medians['bm25s']:8.0f} x")


if __name__ == "__main__":
    main()
