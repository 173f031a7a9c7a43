"""Claims: the standalone atomic statements that a response makes.

Read by a language model here, exactly in `verify.exact`. What cannot be extracted is
`None`, never an empty list.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import correlation
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

    def extract(
        prompts: Sequence[str], responses: Sequence[str]
    ) -> list[list[Claim] | None]:
        found = read_sentences(llm, template, Claims, prompts, responses)
        return [without_repeats(of) for of in found]

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
    split = [sentences(response) for response in responses]
    rows = [
        {
            "question": prompt,
            "before": of[max(0, i - BEFORE) : i],
            "sentence": sentence,
            "after": of[i + 1 : i + 1 + AFTER],
        }
        for prompt, of in zip(prompts, split, strict=True)
        for i, sentence in enumerate(of)
    ]
    replies = judge.ask(llm, template, rows, form, REPLY_TOKENS, "extracting")
    (key,) = form.model_fields
    lists = [read(reply, form) for reply in replies]
    texts = iter([None if of is None else getattr(of, key) for of in lists])
    return [[(sentence, next(texts)) for sentence in of] for of in split]


def without_repeats(
    texts: Sequence[tuple[str, list[str] | None]],
) -> list[Claim] | None:
    """The claims of (sentence, texts) without repeats, None if one failed."""
    claims: dict[str, Claim] = {}
    for sentence, found in texts:
        if found is None:
            return None
        for text in found:
            plain = " ".join(text.split())
            claims.setdefault(plain.casefold(), Claim(plain, sentence))
    return list(claims.values())


FUNCTION_WORDS = frozenset(
    """a an the his her its their this several many various some two three four five
    six seven eight nine ten one both numerous in on at for with by from to as into
    between against about under over through during until after before since alongside
    of and or but that which who he she it they him them is are was were be been being
    has have had s also there""".split()
)


def agreement(
    ours: Sequence[Sequence[str]],
    human: Sequence[Sequence[str]],
    least_f1: float = 0.5,
) -> dict[str, float]:
    """How claims agree with human atomic facts of the same responses, row by row.

    A claim and a fact match if the F1 of their sets of words is at least `least_f1`;
    letter case, punctuation and function words (articles, pronouns, prepositions,
    auxiliaries) don't count. recall: share of all human facts that some claim of the
    same response matches; precision: share of all claims that some fact matches;
    count_correlation: Pearson's, between the numbers a response (NaN if constant);
    claims, facts: means a response. Ours; matches are not one to one.
    """
    found, right, n_facts, n_claims = 0, 0, 0, 0
    for claims, facts in zip(ours, human, strict=True):
        a, b = [_content(c) for c in claims], [_content(f) for f in facts]
        found += sum(any(_f1(c, f) >= least_f1 for c in a) for f in b)
        right += sum(any(_f1(c, f) >= least_f1 for f in b) for c in a)
        n_facts, n_claims = n_facts + len(b), n_claims + len(a)
    counts = [[len(row) for row in rows] for rows in (ours, human)]
    constant = any(len(set(of)) < 2 for of in counts)
    return {
        "recall": found / n_facts if n_facts else float("nan"),
        "precision": right / n_claims if n_claims else float("nan"),
        "count_correlation": float("nan") if constant else correlation(*counts),
        "claims": n_claims / len(ours) if ours else 0.0,
        "facts": n_facts / len(human) if human else 0.0,
    }


def _content(text: str) -> frozenset[str]:
    words = frozenset(re.findall(r"\w+", text.casefold()))
    return words - FUNCTION_WORDS or words


def _f1(one: frozenset[str], other: frozenset[str]) -> float:
    return 2 * len(one & other) / max(len(one) + len(other), 1)
