"""Requests of a run that papers share: the embedded sources' sets, the filter for
factual requests, and the evidence of requests."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated

from factkit.data import evidence
from factkit.data.bm25 import CorpusIndex
from factkit.data.corpus import Chunk, Document, Index
from factkit.data.examples import MAX_QUESTION_CHARS, Example
from factkit.data.sources import Loaded
from factkit.data.splits import Sets
from factkit.facts.source import open_source
from factkit.run import files
from factkit.run.params import ROOT
from factkit.run.params.data import RequestParams
from factkit.verify import judge
from factkit.verify.llm import LLM
from factkit.verify.replies import Form, limit_text, match_word

Source = tuple[Index, Mapping[str, Document]]  # of evidence: its search, its documents

# files in p.requests_path; any other set may be there as <name>.jsonl
FILES = {
    "longfact": "longfact",
    "longfact_objects": "longfact",
    "biography": "prompt_entities.txt",
    "hotpotqa": "hotpotqa.json",
    "squad_v2": "squad_v2.json",
}


def embedded_sets(p: RequestParams) -> tuple[Sets, Counter[str]]:
    """The requests of the source `p.requests` for each split, p.test_requests of each
    evaluation set, and counts of those dropped."""
    sizes = {"test": p.test_requests, "dev": p.dev_requests, **training_sizes(p)}
    source = open_source(p.requests, p)
    return source.request_sets(sizes), source.dropped()


def training_sizes(p: RequestParams) -> dict[str, int]:
    """Training split → number of requests."""
    names = [name for name in p.splits if name not in ("dev", "test")]
    return {name: getattr(p, f"{name}_requests") for name in names}


def file_of(p: RequestParams, name: str) -> str:
    """The file of a set in p.requests_path; "" for the hub."""
    path = ROOT / p.requests_path / FILES.get(name, f"{name}.jsonl")
    return str(path) if p.requests_path and path.exists() else ""


class Factual(Form):
    """The form of the filter's reply."""

    reason: Annotated[str, limit_text(200)] = ""
    label: Annotated[str, match_word("yes", "no")]


def keep_factual(llm: LLM, examples: Sequence[Example]) -> Loaded:
    """The prompts that ask for verifiable facts, by an LLM (Binary RAR §4.2, App. D).

    Returns them with the counts "kept", "not factual" and "failed": a prompt without a
    readable answer of the LLM is dropped, too.
    """
    fields = [
        {"prompt": e.question, "response": "".join(e.answers[:1])[:MAX_QUESTION_CHARS]}
        for e in examples
    ]
    replies = judge.ask_all(llm, "filter_factual", fields, Factual, 128, "filtering")
    labels = [getattr(reply, "label", "failed") for reply in replies]
    counts = Counter({"kept": labels.count("yes"), "not factual": labels.count("no")})
    counts["failed"] = labels.count("failed")
    return [e for e, x in zip(examples, labels, strict=True) if x == "yes"], counts


def gather(
    p: RequestParams,
    examples: Sequence[Example],
    base_answers: Mapping[str, str] = {},
    source: Source | None = None,
) -> tuple[dict[str, list[Document]], Counter[str]]:
    """The documents of each request, at most p.pages, and counts of the outcomes.

    base_answers: request id → the base policy's answer, which is searched for where a
    request has no reference; without one a user's own request is searched for. The
    documents are from the web with p.search_url (Binary RAR App. C), else from
    `source`, by default the documents of `p.requests`; those that state the answer come
    first.
    """

    def query(example: Example) -> str:
        return example.question if p.has_own_data else ""

    examples = [
        e
        if any(e.answers)
        else e.model_copy(update={"answers": [base_answers.get(e.id, query(e))]})
        for e in examples
    ]
    if p.search_url:
        from factkit.data import web

        cache = files.cache_dir() / "web"
        return web.run_online(examples, p.search_url, cache, p.pages, p.least_pages)
    if source is None:
        documents = open_source(p.requests, p).documents()
        chunks = [Chunk(d.id, d.id, d.text, 0) for d in documents]
        source = CorpusIndex(chunks), {d.id: d for d in documents}
    index, by_id = source
    return evidence.build_offline(examples, index, by_id, p.pages, p.least_pages)
