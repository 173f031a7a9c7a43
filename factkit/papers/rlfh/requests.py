"""RLFH's questions for training, validation and test (§4.1), and their documents.

| set | source | what of it |
|---|---|---|
| hotpotqa | HotpotQA's two splits | 20,000 to train on and 256 to test on, drawn |
| squad_v2 | SQuAD v2's two splits | a question a Wikipedia page, 191 drawn to test on |
| biography | FactScore's 183 names | all, to test on |

RLFH verifies with reference answers, too (Tables 4 to 6). Ours is what the paper leaves
open: questions are drawn from both splits; training leaves out questions of fewer than
five words, too; a page of SQuAD gives its first answerable question, and 191 pages are
drawn; questions of HotpotQA about pages or people of the other sets are left out. The
paper leaves out prompts without a Wikipedia page, so its biographies are 182; here no
page is looked up, since the sets were written from pages.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from factkit.answers.requests import embedded_sets, file_of, gather, training_sizes
from factkit.data import sources
from factkit.data.corpus import Document
from factkit.data.entry_index import cached_index
from factkit.data.examples import Example, refuse_overlap
from factkit.data.questions import UNANSWERABLE
from factkit.data.sources import Loaded
from factkit.data.splits import Sets, in_set, split_prompts
from factkit.papers.rlfh.arms import RlfhParams
from factkit.papers.rlfh.wikipedia import Wikipedia
from factkit.run.params import ROOT

LEAST_WORDS = 5
SQUAD_QUESTIONS = 191
ANSWERED_SETS = ("hotpotqa", "squad_v2")


def rlfh_sets(p: RlfhParams) -> tuple[Sets, Counter]:
    """train, dev and test questions, and counts of "<set>: <why a row was dropped>".

    No entity is in two of them; `meta["set"]` names the evaluation set. test holds
    p.test_requests of each set, but SQuAD and Biography whole. Raises DataError on a
    file or hub that can't be read, and on too few questions.
    """
    if p.requests != "hotpotqa":
        return embedded_sets(p)
    loaded = {
        "hotpotqa": hotpotqa(file_of(p, "hotpotqa")),
        "squad_v2": squad_v2(file_of(p, "squad_v2"), seed=p.split_seed),
        "biography": sources.load("biography", file_of(p, "biography")),
    }
    dropped = Counter(
        {f"{name}: {why}": n for name, (_, d) in loaded.items() for why, n in d.items()}
    )
    hotpot = [in_set(e, "hotpotqa") for e in loaded.pop("hotpotqa")[0]]
    others = [in_set(e, name) for name, (rows, _) in loaded.items() for e in rows]
    taken = set().union(*map(_topics, others))
    free = [e for e in hotpot if not taken & _topics(e)]
    dropped["hotpotqa: about what another set is about"] = len(hotpot) - len(free)
    sizes = training_sizes(p) | {"dev": p.dev_requests, "test": p.test_requests}
    sets = split_prompts(free, sizes, p.split_seed)
    sets["test"] += others
    refuse_overlap(sets)
    return sets, +dropped


def hotpotqa(path: str = "") -> Loaded:
    """HotpotQA's questions of at least `LEAST_WORDS` words, each question once.

    path: a file in any of HotpotQA's formats; without it both splits of the hub.
    """
    examples, problems = sources.load("hotpotqa", path, all_splits=True)
    once = _first(examples, lambda e: e.question)
    long = [e for e in once if len(e.question.split()) >= LEAST_WORDS]
    problems["duplicate question"] += len(examples) - len(once)
    problems[f"fewer than {LEAST_WORDS} words"] += len(once) - len(long)
    return long, +problems


def squad_v2(path: str = "", seed: int = 0) -> Loaded:
    """The first answerable question of each page of SQuAD v2, of at most
    `SQUAD_QUESTIONS` pages drawn at random.

    path: a file in SQuAD's format or the hub's; without it both splits of the hub.
    """
    examples, problems = sources.load("squad_v2", path, all_splits=True)
    answerable = [e for e in examples if e.label != UNANSWERABLE]
    pages = _first(answerable, lambda e: e.entity)
    problems[UNANSWERABLE] += len(examples) - len(answerable)
    problems["not its page's first question"] += len(answerable) - len(pages)
    order = random.Random(f"squad {seed}").sample(range(len(pages)), len(pages))
    return [pages[i] for i in sorted(order[:SQUAD_QUESTIONS])], +problems


def _first(examples: Sequence[Example], key: Callable[[Example], str]) -> list[Example]:
    """The first example of each key, in any case."""
    first: dict[str, Example] = {}
    for example in examples:
        first.setdefault(key(example).casefold(), example)
    return list(first.values())


def _topics(example: Example) -> set[str]:
    return {example.entity.casefold(), example.question.casefold()}


def rlfh_evidence(
    p: RlfhParams, examples: Sequence[Example], base_answers: Mapping[str, str]
) -> tuple[dict[str, list[Document]], Counter[str]]:
    """Each question's documents, at most p.pages, and how many had which fate.

    base_answers: question id → the policy's answer, which is searched for where there
    is no reference. A short answer finds nothing: for HotpotQA and SQuAD the question
    is searched for, and the answer is a document of its own, as the paper's annotator
    is given it with the passages (Tables 4 to 6). Without p.search_url,
    p.wikipedia_path is searched.
    """
    answered = [e for e in examples if e.meta.get("set") in ANSWERED_SETS]
    questions = {e.id: e.model_copy(update={"answers": [e.question]}) for e in answered}
    queries = [questions.get(e.id, e) for e in examples]
    source: Any = None  # Wikipedia looks titles up, but lists none
    if p.wikipedia_path and not p.search_url:
        wikipedia = Wikipedia(ROOT / p.wikipedia_path)
        index = cached_index(wikipedia, wikipedia.key, "Wikipedia of April 2023")
        source = index, wikipedia
    documents, counts = gather(p, queries, base_answers, source)
    for e in answered:
        if e.id in documents:
            text = f'The answer to "{e.question}" may be "{e.answers[0]}".'
            document = Document(f"{e.id}#answer", e.entity, text, "reference")
            documents[e.id] = [document, *documents[e.id]]
    return documents, counts
