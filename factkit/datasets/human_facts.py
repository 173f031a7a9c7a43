"""Responses with the atomic facts that people found in them, to measure extractors.

Files as their authors publish them; a user brings them, the kit has none.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Annotated:
    """A response to a prompt, and the facts in it as people wrote them down."""

    prompt: str
    response: str
    facts: list[str]


def factscore(path: Path) -> list[Annotated]:
    """FActScore's annotated biographies (Min et al. 2023); refusals are left out."""
    return [
        Annotated(row["input"], row["output"], facts)
        for row in _rows(path)
        if (facts := list(_human_facts(row)))
    ]


def factool(path: Path) -> list[Annotated]:
    """FacTool's answers to knowledge questions (Chern et al. 2023)."""
    return [
        Annotated(row["prompt"], row["response"], [c["claim"] for c in row["claims"]])
        for row in _rows(path)
        if row["claims"]
    ]


# folder of a benchmark, its file → how it is read
SOURCES: dict[str, Callable[[Path], list[Annotated]]] = {
    "factscore/InstructGPT.jsonl": factscore,
    "factool/knowledge_qa.jsonl": factool,
}


def _human_facts(row: dict) -> Iterator[str]:
    for sentence in row["annotations"] or ():
        for fact in sentence["human-atomic-facts"] or ():
            yield fact["text"]


def _rows(path: Path) -> Iterator[dict]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)
