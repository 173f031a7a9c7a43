"""Statements: what a response states, sentence by sentence (RLFH §3.1.1).

Unlike the claims of `factkit.verify.claims` they keep their hedges, since a hedged one
is rewarded otherwise, and come again where a response repeats them, since each place
has its reward. Extraction is hierarchical: sentences first, then the statements of
each; sentences without any are left out.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from factkit.verify.claims import read_sentences
from factkit.verify.replies import Claimed, Form

if TYPE_CHECKING:
    from factkit.llm import LLM

Stated = list[tuple[str, list[str]]]  # sentences, and the statements of each, if any


class Statements(Form):
    """The form of RLFH's Table 5, of one sentence."""

    statements: list[Claimed]


def llm_statements(
    llm: "LLM", template: str = "extract_statements"
) -> Callable[[Sequence[str], Sequence[str]], list[Stated | None]]:
    """A language model, asked once for each sentence of each response, in one batch.

    As `claims.llm_extractor`: it sees the prompt and the sentences around, and a
    response of which one sentence failed is `None`. The paper has all sentences of a
    response in one call (Table 5).
    """

    def extract(
        prompts: Sequence[str], responses: Sequence[str]
    ) -> list[Stated | None]:
        found = read_sentences(llm, template, Statements, prompts, responses)
        return [
            None if any(texts is None for _, texts in of) else _stating(of)
            for of in found
        ]

    return extract


def _stating(rows: Iterable[tuple[str, list[str]]]) -> Stated:
    """The sentences that state something."""
    return [(sentence, texts) for sentence, texts in rows if texts]
