"""Claims, the standalone atomic statements of a response, and what supports them.

A language model extracts and verifies them here; `answers.engine` has an exact engine.
What failed is None, never an empty list. The labels are those of VeriScore, which
Binary RAR compares with (Fig. 12).
"""

import re
import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationInfo

from factkit.verify import calls, judge
from factkit.verify.llm import LLM
from factkit.verify.outcome import Support
from factkit.verify.replies import (
    NON_BLANK,
    Form,
    limit_items,
    limit_text,
    match_word,
)
from factkit.verify.response import split_sentences

BEFORE, AFTER = 3, 1  # sentences of context
CLAIM_TOKENS, LABEL_TOKENS = 1536, 32  # of a reply

# Subjects of remarks on the text itself; a claim is about the world
TEXT_WORDS = frozenset(
    """advice assistant claim claims content context fact facts greeting heading
    information opinion opinions passage question response sentence speaker statement
    statements text user""".split()
)
# The writer as a subject, unlike "I Am Legend" and "I, Robot"
FIRST_PERSON = re.compile(r"(?:\A\W*|, )I(?:['’]\w+)? [a-z]")
# A word, or a character of a script without spaces
WORD = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]|[^\W_]+")


@dataclass(frozen=True)
class Claim:
    """A standalone atomic statement, and the sentence it was taken from, verbatim."""

    text: str
    sentence: str


# (prompt, response) → the claims of a response; None: failed
Extractor = Callable[[str, str], Awaitable[list[Claim] | None]]
# (text, evidence texts, best first) → its support; None: failed
ClaimVerifier = Callable[[str, Sequence[str]], Awaitable[Support | None]]
# of each claim of a response; None where extraction or verification failed
Supports = Sequence[Support | None] | None


# ---- extraction


def is_claim_of(text: str, sentence: str) -> bool:
    """Whether a text can be a claim of a sentence rather than a remark about it.

    A claim has at least two words and is no question. It shares a content word with
    its sentence (the first four letters: "editing" and "editor") or occurs in it
    verbatim. It mentions a sentence, claim or opinion only if its sentence does, and
    its subject is not "I".

    Of 9,713 facts that people and a model listed for 1,123 sentences of biographies
    (FActScore), 3 are refused. Of 176 remarks such as "No claims." or "The sentence is
    a question.", each tried with 300 of these sentences, 0.05 % pass.
    """
    claim, source = _split_words(text), _split_words(sentence)
    if len(claim) < 2 or text.rstrip().endswith("?") or FIRST_PERSON.search(text):
        return False
    verbatim = f" {' '.join(claim)} " in f" {' '.join(source)} "
    about_world = TEXT_WORDS.isdisjoint(set(claim) - set(source))
    return about_world and (verbatim or not _stem(claim).isdisjoint(_stem(source)))


def _split_words(text: str) -> list[str]:
    plain = unicodedata.normalize("NFKD", text).casefold()
    return WORD.findall("".join(c for c in plain if not unicodedata.combining(c)))


def _stem(words: Sequence[str]) -> set[str]:
    """Cut each word to four letters, without words that a remark shares by chance."""
    from bm25s.stopwords import STOPWORDS_EN_PLUS

    common = {*STOPWORDS_EN_PLUS, "help", "know", "let", "need"} - {"won"}  # of won't
    return {word[:4] for word in words if word not in common}


def _check_claim(text: str, info: ValidationInfo) -> str:
    if not is_claim_of(text, (info.context or {}).get("sentence", text)):
        raise ValueError("a remark, not a claim of the sentence")
    return text


ClaimText = Annotated[
    str, limit_text(240), Field(pattern=NON_BLANK), AfterValidator(_check_claim)
]


class Claims(Form):
    """The form of Binary RAR's Fig. 11."""

    claims: Annotated[list[ClaimText], limit_items(12)]


async def extract_claims(llm: LLM, prompt: str, response: str) -> list[Claim] | None:
    """Extract the claims of a response by the rules of Binary RAR Fig. 11.

    None if one of its sentences failed; no claims if it has no sentences. Claims that
    repeat within the response are merged.
    """
    texts = await extract_texts(llm, "extract_claims", Claims, prompt, response)
    return merge_claims(texts)


async def extract_texts(
    llm: LLM, template: str, form: type[Form], prompt: str, response: str
) -> list[tuple[str, list[str] | None]]:
    """List the texts that a model extracts from each sentence of a response.

    Each sentence is one request, which shows the prompt and the `BEFORE` and `AFTER`
    sentences around it, as VeriScore's do. Returns pairs of sentence and texts, None
    where the request failed.

    template: with the fields question, before, sentence and after. form: its only field
    is the list.
    """
    sentences = split_sentences(response)
    rows = [
        {
            "question": prompt,
            "before": sentences[max(0, i - BEFORE) : i],
            "sentence": sentence,
            "after": sentences[i + 1 : i + 1 + AFTER],
        }
        for i, sentence in enumerate(sentences)
    ]
    replies = await calls.gather(
        judge.ask(llm, template, row, form, CLAIM_TOKENS) for row in rows
    )
    (key,) = form.model_fields
    texts = [getattr(reply, key, None) for reply in replies]
    return list(zip(sentences, texts, strict=True))


def merge_claims(texts: Sequence[tuple[str, list[str] | None]]) -> list[Claim] | None:
    """Merge (sentence, texts) to claims, the first of those that differ in letter case
    or spacing only. None if one list of texts is None."""
    claims: dict[str, Claim] = {}
    for sentence, listed in texts:
        if listed is None:
            return None
        for text in listed:
            plain = " ".join(text.split())
            claims.setdefault(plain.casefold(), Claim(plain, sentence))
    return list(claims.values())


# ---- support


class Label(Form):
    """The form of Binary RAR's Fig. 12."""

    label: Annotated[Support, match_word(*Support)]


@dataclass(frozen=True)
class LabelPrompt:
    """How a text is labelled.

    template: with the fields evidence and `field`, the text's. form: with the field
    `label`. default: the label of a text without evidence, by definition.
    """

    template: str
    field: str
    form: type[Form]
    default: StrEnum


CLAIM_LABEL = LabelPrompt("verify_claim", "claim", Label, Support.INCONCLUSIVE)


async def label_text(
    llm: LLM, text: str, evidence: Sequence[str], prompt: LabelPrompt = CLAIM_LABEL
) -> Any:
    """Label a text by one request with all its evidence (Binary RAR Fig. 12).

    Without evidence nothing is asked. None: it failed.
    """
    if not evidence:
        return prompt.default
    row = {"evidence": list(evidence), prompt.field: text}
    reply = await judge.ask(llm, prompt.template, row, prompt.form, LABEL_TOKENS)
    return getattr(reply, "label", None)


async def check_response(
    prompt: str,
    response: str,
    extract: Extractor,
    evidence_of: Callable[[str], Sequence[str]],
    verify: ClaimVerifier,
) -> tuple[list[Claim] | None, Supports]:
    """Extract a response's claims and verify each. evidence_of: a claim's text → its
    evidence."""
    claims = await extract(prompt, response)
    if claims is None:
        return None, None
    texts = [claim.text for claim in claims]
    supports = await calls.gather(verify(text, evidence_of(text)) for text in texts)
    return claims, supports
