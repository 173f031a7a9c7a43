"""Claims: the standalone atomic statements that a response makes.

Read by a language model here, exactly in `verify.exact`. What cannot be extracted is
`None`, never an empty list.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from factkit.verify import judge
from factkit.verify.replies import Claimed, Form, read
from factkit.verify.sentences import sentences

if TYPE_CHECKING:
    from factkit.llm import LLM

BEFORE, AFTER = 3, 1  # sentences of context
REPLY_TOKENS = 768


class Claims(Form):
    """The form of Binary RAR's Fig. 11."""

    claims: list[Claimed]


@dataclass(frozen=True)
class Claim:
    """A standalone atomic statement, and the sentence it was taken from, verbatim."""

    text: str
    sentence: str


class Support(StrEnum):
    """What evidence says of a claim (Binary RAR §6.2, VeriScore's labels)."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    INCONCLUSIVE = "inconclusive"


# (prompts, responses) → the claims of each response; None: failed
Extractor = Callable[[Sequence[str], Sequence[str]], list[list[Claim] | None]]


def llm_extractor(llm: "LLM", template: str = "extract_claims") -> Extractor:
    """A language model, asked once for each sentence of each response, in one batch.

    It sees the prompt and the `BEFORE` and `AFTER` sentences around (as VeriScore does;
    the rules are Binary RAR Fig. 11's). A response of which one sentence failed is
    `None`; one without sentences has no claims. A claim that comes again within a
    response, whatever its letter case and spacing, is left out.
    """
    return lambda prompts, responses: list(
        map(without_repeats, read_sentences(llm, template, Claims, prompts, responses))
    )


def read_sentences(
    llm: "LLM",
    template: str,
    form: type[Form],
    prompts: Sequence[str],
    responses: Sequence[str],
) -> list[list[tuple[str, list[str] | None]]]:
    """Each sentence of each response, and the texts that a language model lists for it;
    None where it failed. One request a sentence, all in one batch.

    template: one with the fields question, before, sentence and after. form: its one
    field is the list.
    """
    split = list(map(sentences, responses))
    rows = [
        {
            "question": prompt,
            "before": told[max(0, i - BEFORE) : i],
            "sentence": sentence,
            "after": told[i + 1 : i + 1 + AFTER],
        }
        for prompt, told in zip(prompts, split, strict=True)
        for i, sentence in enumerate(told)
    ]
    replies = judge.ask(llm, template, rows, form, REPLY_TOKENS, "extracting")
    (key,) = form.model_fields
    texts = (getattr(read(reply, form), key, None) for reply in replies)
    return [[(sentence, next(texts)) for sentence in told] for told in split]


def without_repeats(
    texts: Sequence[tuple[str, list[str] | None]],
) -> list[Claim] | None:
    """The claims of (sentence, texts) without repeats, None if one failed."""
    claims: dict[str, Claim] = {}
    for sentence, listed in texts:
        if listed is None:
            return None
        for text in listed:
            plain = " ".join(text.split())
            claims.setdefault(plain.casefold(), Claim(plain, sentence))
    return list(claims.values())
