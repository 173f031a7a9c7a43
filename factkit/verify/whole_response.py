"""Verdicts on whole responses in one look: contradiction, factuality, quality.

`contradictions` is the verifier behind Binary RAR's reward (§3.3, Eq. 5): one call a
response instead of one for each sentence and claim. A judge that fails gives the value
`None`. Nothing of a response is cut: what the judge does not read, it cannot judge.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from factkit.verify import judge
from factkit.verify.claims import Extractor, Support
from factkit.verify.replies import Verdict, parse_preference, parse_score
from factkit.verify.support import ClaimVerifier

if TYPE_CHECKING:
    from factkit.llm import LLM
    from factkit.world import World

REPLY_TOKENS = 512
ANSWER_TOKENS = 2048  # of a judge that writes an answer of its own first
RATINGS = range(11)

# rows of (prompt, response, evidence texts, best first)
ResponseJudge = Callable[[Sequence[tuple[str, str, Sequence[str]]]], list[Verdict]]


def contradictions(llm: "LLM", template: str = "judge_contradiction") -> ResponseJudge:
    """Whether nothing in a response contradicts its evidence: 1.0, 0.0 or None.

    Omissions are no errors, nor is what is unsupported but uncontradicted (Binary RAR
    §3.3 and Fig. 9).
    """
    return _judge(llm, template, (0, 1), with_evidence=True)


def ratings(llm: "LLM", template: str = "rate_factuality") -> ResponseJudge:
    """How surely a response holds no error, 0–10 or None (Binary RAR §6.2, Fig. 10)."""
    return _judge(llm, template, RATINGS, with_evidence=True)


def quality(llm: "LLM", template: str = "judge_quality") -> ResponseJudge:
    """How helpful, relevant and detailed a response is, 0–10 or None.

    Without evidence. Binary RAR's LM judge; the paper prints no prompt, this is ours.
    """
    return _judge(llm, template, RATINGS, with_evidence=False)


def preferences(llm: "LLM", template: str = "judge_relevance") -> ResponseJudge:
    """Whether a response is better than the judge's own: 1.0, 0.0 or None.

    R_rel of Learning to Reason for Factuality (§3.1.1, Fig. 9): the judge, there the
    base model, answers first and then compares. The response is always A, so that a
    judge that favours a position favours all responses alike. Without evidence.
    """
    value = {"A": 1.0, "B": 0.0, None: None}

    def judged(rows: Sequence[tuple[str, str, Sequence[str]]]) -> list[Verdict]:
        fields = [{"question": prompt, "response": r} for prompt, r, _ in rows]
        said = judge.ask(llm, template, fields, None, ANSWER_TOKENS)
        return [
            Verdict(value[parse_preference(r.text)], r.text or r.error) for r in said
        ]

    return judged


def world_contradictions(world: "World") -> ResponseJudge:
    """Exact in the fact world: 0.0 if it contradicts a sentence, else 1.0.

    The evidence is not looked at. raw: the first sentence that is contradicted, or "".
    """
    from factkit.world import sentences, verify

    def judged(rows: Sequence[tuple[str, str, Sequence[str]]]) -> list[Verdict]:
        verdicts = []
        for _, response, _ in rows:
            stated = sentences(response)
            wrong = (s for s in stated if verify(world, s) == "contradicted")
            first = next(wrong, "")
            verdicts.append(Verdict(0.0 if first else 1.0, first))
        return verdicts

    return judged


def claim_contradictions(
    extractor: Extractor, verifier: ClaimVerifier
) -> ResponseJudge:
    """From single claims, for verifiers that read only pairs: 0.0 if the evidence
    contradicts a claim, else 1.0.

    None if the claims could not be extracted, or if none is contradicted but the
    verification of some failed. raw: the first claim that is contradicted, or why None.
    """

    def judged(rows: Sequence[tuple[str, str, Sequence[str]]]) -> list[Verdict]:
        claims = extractor([prompt for prompt, _, _ in rows], [r for _, r, _ in rows])
        texts = [[] if of is None else [c.text for c in of] for of in claims]
        pairs = [
            (text, evidence)
            for of, (_, _, evidence) in zip(texts, rows, strict=True)
            for text in of
        ]
        support = iter(verifier(pairs) if pairs else [])
        return [
            Verdict(None, "claim extraction failed")
            if found is None
            else _all_in_all({text: next(support) for text in of})
            for found, of in zip(claims, texts, strict=True)
        ]

    return judged


def _all_in_all(support: Mapping[str, Support | None]) -> Verdict:
    """The verdict on a response from the support of its claims, which all differ."""
    for text, of in support.items():
        if of is Support.CONTRADICTED:
            return Verdict(0.0, text)
    if None in support.values():
        return Verdict(None, "claim verification failed")
    return Verdict(1.0, "")


def _judge(
    llm: "LLM", template: str, scores: Sequence[int], with_evidence: bool
) -> ResponseJudge:
    """One request a row, and the score that its reply states."""
    schema = _schema(scores)

    def judged(rows: Sequence[tuple[str, str, Sequence[str]]]) -> list[Verdict]:
        fields = [
            {"question": prompt, "response": response}
            | ({"evidence": list(evidence)} if with_evidence else {})
            for prompt, response, evidence in rows
        ]
        said = judge.ask(llm, template, fields, schema, REPLY_TOKENS)
        return [Verdict(parse_score(r.text, scores), r.text or r.error) for r in said]

    return judged


def _schema(scores: Sequence[int]) -> dict[str, Any]:
    """Of a reply: the reasoning first, so that the score follows from it."""
    score = {"type": "integer", "enum": list(scores)}
    return {
        "type": "object",
        "properties": {"REASONING": {"type": "string"}, "SCORE": score},
        "required": ["REASONING", "SCORE"],
        "additionalProperties": False,
    }
