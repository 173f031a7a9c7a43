"""Evidence withheld from a share of the prompts (ours; TruthRL retrieves only).

Whether to answer shall follow from the text in the prompt alone. Of one half of each
relation's questions the answer is cut out of the text, of the other half the words
beside the answer. A mark stands for what is cut. The title, the text's length and rank
and the place of the mark then say nothing about whether the answer is there.
"""

import random
from collections.abc import Sequence

from factkit.data.bm25 import ARTICLES, WORD
from factkit.data.examples import Example, digest
from factkit.data.spelling import fold

MARK = "…"
LEAST_QUESTIONS = 12  # of a relation, so that its half is one
Span = tuple[int, int]  # of characters, [start, end)


def withhold(examples: Sequence[Example], share: float) -> list[Example]:
    """The questions whose references state the answer, a share of each relation with
    the answer cut out.

    examples: with `meta["references"]`, one text after its title. Left out are
    questions whose answer the title states, and relations of fewer than
    `LEAST_QUESTIONS`. Which ones are withheld follows from the ids alone.
    `meta["answer_in_references"]` says whether the answer is left in the text.
    """
    by_relation: dict[str, list[tuple[Example, Example]]] = {}
    for example in examples:
        if pair := _cut_both_ways(example):
            by_relation.setdefault(example.relation, []).append(pair)
    chosen: dict[str, Example] = {}
    for pairs in by_relation.values():
        if len(pairs) < LEAST_QUESTIONS:
            continue
        pairs.sort(key=lambda pair: digest(f"withheld {pair[0].id}"))
        n = round(share * len(pairs))
        chosen |= {e.id: e for e, _ in pairs[n:]} | {e.id: e for _, e in pairs[:n]}
    return [chosen[e.id] for e in examples if e.id in chosen]


def _cut_both_ways(example: Example) -> tuple[Example, Example] | None:
    """The example with its answer left in the text, and with its answer cut out.

    None where the text does not state the answer, or one of the cuts is not possible.
    """
    title, colon, text = example.meta["references"].partition(": ")
    spans = locate_answers(example.answers, text)
    beside = _spans_beside(text, spans, random.Random(f"beside {example.id}"))
    with_answer, without = _cut(text, beside), _cut(text, spans)
    if (
        not locate_answers(example.answers, with_answer)
        or locate_answers(example.answers, without)
        or locate_answers(example.answers, title)
        or len(beside) < len(spans)
    ):
        return None
    return (
        _with_references(example, title + colon + with_answer, stated=True),
        _with_references(example, title + colon + without, stated=False),
    )


def locate_answers(answers: Sequence[str], text: str) -> list[Span]:
    """Where a text has an answer's words in a row, the longest answers first.

    Words are compared as in `answer_in_chunks`: without diacritics and articles.
    """
    words = [(_fold(m[0]), m.span()) for m in WORD.finditer(text)]
    words = [(word, span) for word, span in words if word not in ARTICLES]
    spans: list[Span] = []
    for phrase in sorted(map(_phrase, answers), key=len, reverse=True):
        for i in range(len(words) - len(phrase) + 1):
            row = words[i : i + len(phrase)]
            span = row[0][1][0], row[-1][1][1]
            if [word for word, _ in row] == phrase and _is_free(span, spans):
                spans.append(span)
    return spans


def _phrase(answer: str) -> list[str]:
    words = map(_fold, WORD.findall(answer))
    return [word for word in words if word not in ARTICLES]


def _fold(word: str) -> str:
    return fold(word).casefold()


def _is_free(span: Span, taken: Sequence[Span]) -> bool:
    return all(span[1] <= start or span[0] >= end for start, end in taken)


def _with_references(example: Example, references: str, stated: bool) -> Example:
    meta = {"references": references, "answer_in_references": stated}
    return example.model_copy(update={"meta": example.meta | meta})


def _cut(text: str, spans: Sequence[Span]) -> str:
    """The text with a mark for each of the spans."""
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + MARK + text[end:]
    return text


def _spans_beside(text: str, spans: Sequence[Span], rng: random.Random) -> list[Span]:
    """For each span, one of as many words right before or right after it.

    Fewer where a span has no such words that are free on either side.
    """
    words = [m.span() for m in WORD.finditer(text)]
    chosen: list[Span] = []
    for start, end in spans:
        before = [word for word in words if word[1] <= start]
        after = [word for word in words if word[0] >= end]
        n = len(words) - len(before) - len(after)
        runs = [run for run in (before[-n:], after[:n]) if len(run) == n]
        sides = [(run[0][0], run[-1][1]) for run in runs]
        if free := [side for side in sides if _is_free(side, [*spans, *chosen])]:
            chosen.append(rng.choice(free))
    return chosen
