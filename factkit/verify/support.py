"""What evidence says of single claims: supported, contradicted or inconclusive.

By a language model here, exactly in `verify.exact`. A verification that fails is
`None`. The labels are those of VeriScore, which Binary RAR compares with (Fig. 12).
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from factkit.verify import judge
from factkit.verify.claims import Claim, Support
from factkit.verify.replies import Form, read, word

if TYPE_CHECKING:
    from factkit.llm import LLM

REPLY_TOKENS = 32  # the label alone


class Label(Form):
    """The form of Binary RAR's Fig. 12."""

    label: word(*Support)


# of each claim of each response; None where extraction or verification failed
Supports = list[list[Support | None] | None]
# (claim text, evidence texts, best first) → support; None: failed
ClaimVerifier = Callable[[Sequence[tuple[str, Sequence[str]]]], list[Support | None]]


def llm_claim_verifier(llm: "LLM", template: str = "verify_claim") -> ClaimVerifier:
    """A language model, asked once a claim with all its evidence (Binary RAR Fig. 12).

    A claim without any evidence is inconclusive by definition and makes no call.
    """
    return labeller(llm, template, Label, "claim", Support.INCONCLUSIVE)


def labeller(
    llm: "LLM", template: str, form: type[Form], field: str, otherwise: StrEnum
) -> Callable[[Sequence[tuple[str, Sequence[str]]]], list[StrEnum | None]]:
    """A language model that labels each text, the template's `field`, by its evidence.

    form: with a label of the kind of `otherwise`, which a text without evidence gets.
    """

    def verify(rows: Sequence[tuple[str, Sequence[str]]]) -> list[StrEnum | None]:
        fields = [{"evidence": list(e), field: text} for text, e in rows if e]
        replies = judge.ask(llm, template, fields, form, REPLY_TOKENS, "verifying")
        verdicts = (read(reply, form) for reply in replies)
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
