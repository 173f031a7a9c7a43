"""Claims, the standalone atomic statements of a response, and what supports them.

By a language model here, exactly in `verify.engine`. What cannot be extracted is
`None`, never an empty list; so is a verification that fails. The labels are those of
VeriScore, which Binary RAR compares with (Fig. 12).
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field, ValidationInfo

from factkit.verify import judge
from factkit.verify.judge import SOME, Form, free, up_to, word
from factkit.verify.outcome import Support
from factkit.verify.response import sentences

if TYPE_CHECKING:
    from factkit.verify.llm import LLM

BEFORE, AFTER = 3, 1  # sentences of context
CLAIM_TOKENS = 1536


# What a remark is about where a claim is about the world
TEXT_WORDS = frozenset(
    """advice assistant claim claims content context fact facts greeting heading
    information opinion opinions passage question response sentence speaker statement
    statements text user""".split()
)
# The writer as a subject; in "I Am Legend" and "I, Robot" it is none
FIRST_PERSON = re.compile(r"(?:\A\W*|, )I(?:['’]\w+)? [a-z]")
# A word, or a character of a script without spaces
WORD = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]|[^\W_]+")


def is_claim_of(text: str, sentence: str) -> bool:
    """Whether a text can be a claim of a sentence rather than a remark about it.

    A claim has at least two words and is no question. It shares a content word with
    its sentence (the first four letters: "editing" and "editor") or stands in it word
    for word. It names no sentence, claim, opinion … unless its sentence does, and its
    subject is not "I".

    Of 9,713 facts that people and a model listed for 1,123 sentences of biographies
    (FActScore), 3 are refused. Of 176 remarks such as "No claims." or "The sentence is
    a question.", each tried with 300 of these sentences, 0.05 % pass.
    """
    claim, source = _words(text), _words(sentence)
    if len(claim) < 2 or text.rstrip().endswith("?") or FIRST_PERSON.search(text):
        return False
    verbatim = f" {' '.join(claim)} " in f" {' '.join(source)} "
    about_world = TEXT_WORDS.isdisjoint(set(claim) - set(source))
    return about_world and (verbatim or not _stems(claim).isdisjoint(_stems(source)))


def _words(text: str) -> list[str]:
    plain = unicodedata.normalize("NFKD", text).casefold()
    return WORD.findall("".join(c for c in plain if not unicodedata.combining(c)))


def _stems(words: Sequence[str]) -> set[str]:
    """The first four letters of each word that a remark would not share by chance."""
    from bm25s.stopwords import STOPWORDS_EN_PLUS

    common = {*STOPWORDS_EN_PLUS, "help", "know", "let", "need"} - {"won"}  # of won't
    return {word[:4] for word in words if word not in common}


def _check_claim(text: str, info: ValidationInfo) -> str:
    sentence = (info.context or {}).get("sentence", text)
    if not is_claim_of(text, sentence):
        raise ValueError("a remark, not a claim of the sentence")
    return text


Claimed = Annotated[free(240), Field(pattern=SOME), AfterValidator(_check_claim)]


class Claims(Form):
    """The form of Binary RAR's Fig. 11."""

    claims: up_to(12, Claimed)


@dataclass(frozen=True)
class Claim:
    """A standalone atomic statement, and the sentence it was taken from, verbatim."""

    text: str
    sentence: str


# (prompts, responses) → the claims of each response; None: failed
Extractor = Callable[[Sequence[str], Sequence[str]], list[list[Claim] | None]]


def llm_extractor(llm: "LLM") -> Extractor:
    """A language model, asked once for each sentence of each response, in one batch.

    It sees the prompt and the `BEFORE` and `AFTER` sentences around (as VeriScore does;
    the rules are Binary RAR Fig. 11's). A response of which one sentence failed is
    `None`; one without sentences has no claims. A claim that comes again within a
    response, whatever its letter case and spacing, is left out.
    """

    def extract(prompts, responses) -> list[list[Claim] | None]:
        rows = read_sentences(llm, "extract_claims", Claims, prompts, responses)
        return list(map(without_repeats, rows))

    return extract


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
    replies = judge.ask(llm, template, rows, form, CLAIM_TOKENS, "extracting")
    (key,) = form.model_fields
    texts = (getattr(reply, key, None) for reply in replies)
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


# ---- support

LABEL_TOKENS = 32  # the label alone


class Label(Form):
    """The form of Binary RAR's Fig. 12."""

    label: word(*Support)


# of each claim of each response; None where extraction or verification failed
Supports = list[list[Support | None] | None]
# (claim text, evidence texts, best first) → support; None: failed
ClaimVerifier = Callable[[Sequence[tuple[str, Sequence[str]]]], list[Support | None]]


def llm_claim_verifier(llm: "LLM") -> ClaimVerifier:
    """A language model, asked once a claim with all its evidence (Binary RAR Fig. 12).

    A claim without any evidence is inconclusive by definition and makes no call.
    """
    return labeller(llm, "verify_claim", Label, "claim", Support.INCONCLUSIVE)


def labeller(
    llm: "LLM", template: str, form: type[Form], field: str, otherwise: StrEnum
) -> Callable[[Sequence[tuple[str, Sequence[str]]]], list[StrEnum | None]]:
    """A language model that labels each text, the template's `field`, by its evidence.

    form: with a label of the kind of `otherwise`, which a text without evidence gets.
    """

    def verify(rows: Sequence[tuple[str, Sequence[str]]]) -> list[StrEnum | None]:
        fields = [{"evidence": list(e), field: text} for text, e in rows if e]
        verdicts = judge.ask(llm, template, fields, form, LABEL_TOKENS, "verifying")
        labels = (v and type(otherwise)(v.label) for v in verdicts)
        return [next(labels) if evidence else otherwise for _, evidence in rows]

    return verify


def support_of(
    claims_by_response: Sequence[Sequence[Claim] | None],
    evidence_of: Callable[[int, Claim], Sequence[str]],
    verifier: ClaimVerifier,
) -> Supports:
    """The support of every claim of every response, all verified in one batch.

    claims_by_response: as an extractor gives them; where that is None, so is the
    support. evidence_of: (index of the response, claim) → evidence. Equal claims with
    equal evidence are verified once, also across responses.
    """
    rows = [
        None if claims is None else [(c.text, tuple(evidence_of(i, c))) for c in claims]
        for i, claims in enumerate(claims_by_response)
    ]
    unique = list(dict.fromkeys(row for told in rows for row in told or ()))
    support = dict(zip(unique, verifier(unique) if unique else [], strict=True))
    return [None if told is None else [support[row] for row in told] for told in rows]
