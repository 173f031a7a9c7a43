"""RLFH's prompts (§4.1): questions to train and to be tested on, biographies.

| set | source | what of it |
|---|---|---|
| hotpotqa | HotpotQA's two splits | 20,000 to train on and 256 to test on, drawn |
| squad_v2 | SQuAD v2's two splits | a question a Wikipedia page, 191 drawn to test on |
| biography | FactScore's 183 names | all, to test on |

Every prompt but a biography keeps its reference answer, which is one of the materials
that RLFH verifies against (Tables 4 to 6). What the paper leaves open is ours:
- the splits that questions are drawn from: both, since the sets are drawn apart here;
- questions of fewer than five words are left out to train, too, and not just to test;
- of a page of SQuAD the first question that its paragraph answers is kept; which page
  is one of the 191 is not stated (the two splits have 477, the development split 35);
- a question of HotpotQA about a page or a person of the other two sets is left out.
The paper leaves out prompts without a Wikipedia page; here none is looked up, as the
three sets were written from pages. The response rates of its biographies are shares of
182 rather than 183.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from factkit.datasets import benchmarks, fact_benchmarks
from factkit.datasets.examples import Example, refuse_overlap
from factkit.datasets.long_form_prompts import Loaded, split_prompts

LEAST_WORDS = 5
SIZES = {"train": 20_000, "test": 256}  # of HotpotQA
SQUAD_QUESTIONS = 191

Sets = dict[str, list[Example]]


def rlfh_prompts(
    paths: Mapping[str, str],
    sizes: Mapping[str, int] = SIZES,
    squad_questions: int = SQUAD_QUESTIONS,
    seed: int = 0,
) -> tuple[Sets, Counter]:
    """The splits that `sizes` names, and counts of "<set>: <why a row was dropped>".

    paths: set → local file; HotpotQA and SQuAD v2 come from the hub without one,
    biography needs FactScore's list of names. sizes: HotpotQA's questions in each
    split; "test" also holds all of the other two sets. `meta["set"]` names the set.
    No entity and no question is in two splits. Raises DataError on a file or hub that
    can't be read, on a missing list of names, and where there are too few questions.
    """
    found = {
        "hotpotqa": hotpotqa(paths.get("hotpotqa", "")),
        "squad_v2": squad_v2(paths.get("squad_v2", ""), squad_questions, seed),
        "biography": fact_benchmarks.load("biography", paths.get("biography", "")),
    }
    asked: Sets = {}
    dropped: Counter = Counter()
    for name, (examples, problems) in found.items():
        asked[name] = [_in_set(e, name) for e in examples]
        dropped.update({f"{name}: {why}": n for why, n in problems.items()})
    others = asked["squad_v2"] + asked["biography"]
    free = _not_about(others, asked["hotpotqa"])
    shared = len(asked["hotpotqa"]) - len(free)
    dropped["hotpotqa: about what another set is about"] = shared
    sets = split_prompts(free, sizes, seed)
    sets["test"] = sets.get("test", []) + others
    refuse_overlap(sets)
    return sets, +dropped


def hotpotqa(path: str = "") -> Loaded:
    """HotpotQA's questions of at least `LEAST_WORDS` words, each question once.

    path: a file in any of HotpotQA's formats; without it both splits of the hub.
    """
    examples, problems = benchmarks.load_all("hotpotqa", path)
    once = _first(examples, lambda e: e.question)
    long = [e for e in once if len(e.question.split()) >= LEAST_WORDS]
    problems["duplicate question"] += len(examples) - len(once)
    problems[f"fewer than {LEAST_WORDS} words"] += len(once) - len(long)
    return long, +problems


def squad_v2(path: str = "", limit: int = SQUAD_QUESTIONS, seed: int = 0) -> Loaded:
    """The first answerable question of each page of SQuAD v2, at most `limit` of them.

    path: a file in SQuAD's format or the hub's; without it both splits of the hub. More
    are drawn from, in their order.
    """
    examples, problems = benchmarks.load_all("squad_v2", path)
    answerable = [e for e in examples if e.label != benchmarks.UNANSWERABLE]
    pages = _first(answerable, lambda e: e.entity)
    problems[benchmarks.UNANSWERABLE] += len(examples) - len(answerable)
    problems["not its page's first question"] += len(answerable) - len(pages)
    drawn = random.Random(f"squad {seed}").sample(range(len(pages)), len(pages))[:limit]
    return [pages[i] for i in sorted(drawn)], +problems


def _first(examples: Sequence[Example], key: Callable[[Example], str]) -> list[Example]:
    """The first example of each key, in any case."""
    first: dict[str, Example] = {}
    for example in examples:
        first.setdefault(key(example).casefold(), example)
    return list(first.values())


def _in_set(example: Example, name: str) -> Example:
    return example.model_copy(update={"meta": example.meta | {"set": name}})


def _not_about(others: Sequence[Example], examples: Sequence[Example]) -> list[Example]:
    """The examples that share neither their entity nor their question with others."""
    taken = {key.casefold() for e in others for key in (e.entity, e.question)}
    return [
        e
        for e in examples
        if not taken & {key.casefold() for key in (e.entity, e.question)}
    ]
