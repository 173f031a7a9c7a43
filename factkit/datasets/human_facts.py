"""Responses with the atomic facts that people found in them, to measure extractors.

Files as their authors publish them; a user brings them, the kit has none.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from factkit.datasets import rows


@dataclass(frozen=True)
class Annotated:
    """A response to a prompt, and the facts in it as people wrote them down."""

    prompt: str
    response: str
    facts: list[str]


def factscore(path: Path) -> list[Annotated]:
    """FActScore's annotated biographies (Min et al. 2023); refusals are left out."""
    annotated = []
    for row in rows.of_file(path):
        sentences = row["annotations"] or ()
        facts = [fact for s in sentences for fact in s["human-atomic-facts"] or ()]
        if facts:
            texts = [fact["text"] for fact in facts]
            annotated.append(Annotated(row["input"], row["output"], texts))
    return annotated


def factool(path: Path) -> list[Annotated]:
    """FacTool's answers to knowledge questions (Chern et al. 2023)."""
    return [
        Annotated(row["prompt"], row["response"], [c["claim"] for c in row["claims"]])
        for row in rows.of_file(path)
        if row["claims"]
    ]


# folder of a benchmark, its file → how it is read
SOURCES: dict[str, Callable[[Path], list[Annotated]]] = {
    "factscore/InstructGPT.jsonl": factscore,
    "factool/knowledge_qa.jsonl": factool,
}
