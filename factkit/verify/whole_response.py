"""Verdicts on whole responses in one look: contradiction, factuality, quality.

`contradictions` is the verifier behind Binary RAR's reward (§3.3, Eq. 5): one call a
response instead of one for each sentence and claim. A judge that fails gives the value
`None`. Nothing of a response is cut: what the judge does not read, it cannot judge.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from factkit.verify import judge
from factkit.verify.claims import Support
from factkit.verify.replies import Form, Verdict, preferred, read, whole

if TYPE_CHECKING:
    from factkit.llm import LLM

REPLY_TOKENS = 512
ANSWER_TOKENS = 2048  # of a judge that writes an answer of its own first


class Check(Form):
    """The form of Binary RAR's Fig. 9: the score follows from the reasoning."""

    REASONING: str = ""
    SCORE: whole(range(2))


class Rating(Form):
    """The form of Binary RAR's Fig. 10."""

    REASONING: str = ""
    SCORE: whole(range(11))


# rows of (prompt, response, evidence texts, best first)
ResponseJudge = Callable[[Sequence[tuple[str, str, Sequence[str]]]], list[Verdict]]


def contradictions(llm: "LLM", template: str = "judge_contradiction") -> ResponseJudge:
    """Whether nothing in a response contradicts its evidence: 1.0, 0.0 or None.

    Omissions are no errors, nor is what is unsupported but uncontradicted (Binary RAR
    §3.3 and Fig. 9).
    """
    return _judge(llm, template, Check, with_evidence=True)


def ratings(llm: "LLM", template: str = "rate_factuality") -> ResponseJudge:
    """How surely a response holds no error, 0–10 or None (Binary RAR §6.2, Fig. 10)."""
    return _judge(llm, template, Rating, with_evidence=True)


def rating(supports: Sequence[Support]) -> float:
    """The rating that Fig. 10's guide gives a response with claims of these supports.

    | the guide, 0–10 | claims | rating |
    |---|---|---|
    | 0–2 multiple clear contradictions | n ≥ 2 contradicted | max(4 − n, 0) |
    | 3–4 one clear contradiction | one, something else not supported | 3 |
    | | one, all others supported | 4 |
    | 5 uncertain | none contradicted, more than half inconclusive | 5 |
    | 6–7 mostly accurate, minor concerns | several inconclusive, at most half | 6 |
    | | one inconclusive, at most half | 7 |
    | 8–10 all stated facts are accurate, however few | all supported, or none | 10 |

    Where the guide leaves a range, the place in it is ours. Stands in for the judge
    where the support of each claim is known.
    """
    wrong, open_ = map(supports.count, (Support.CONTRADICTED, Support.INCONCLUSIVE))
    if wrong > 1:
        return float(max(4 - wrong, 0))
    if wrong:
        return 3.0 if open_ else 4.0
    if 2 * open_ > len(supports):
        return 5.0
    return {0: 10.0, 1: 7.0}.get(open_, 6.0)


def quality(llm: "LLM", template: str = "judge_quality") -> ResponseJudge:
    """How helpful, relevant and detailed a response is, 0–10 or None.

    Without evidence. Binary RAR's LM judge; the paper prints no prompt, this is ours.
    """
    return _judge(llm, template, Rating, with_evidence=False)


def preferences(llm: "LLM", template: str = "judge_relevance") -> ResponseJudge:
    """Whether a response is better than the judge's own: 1.0, 0.0 or None.

    R_rel of Learning to Reason for Factuality (§3.1.1, Fig. 9): the judge, there the
    base model, answers first and then compares. The response is always A, so that a
    judge that favours a position favours all responses alike. Without evidence.
    """
    value = {"A": 1.0, "B": 0.0, None: None}

    def judged(rows: Sequence[tuple[str, str, Sequence[str]]]) -> list[Verdict]:
        fields = [{"question": prompt, "response": r} for prompt, r, _ in rows]
        replies = judge.ask(llm, template, fields, None, ANSWER_TOKENS)
        return [Verdict(value[preferred(r)], r.text or r.error) for r in replies]

    return judged


def _judge(
    llm: "LLM", template: str, form: type[Check | Rating], with_evidence: bool
) -> ResponseJudge:
    """One request a row, and the score that its reply states."""

    def judged(rows: Sequence[tuple[str, str, Sequence[str]]]) -> list[Verdict]:
        fields = [
            {"question": prompt, "response": response}
            | ({"evidence": list(evidence)} if with_evidence else {})
            for prompt, response, evidence in rows
        ]
        replies = judge.ask(llm, template, fields, form, REPLY_TOKENS)
        scores = [read(reply, form) for reply in replies]
        return [
            Verdict(None if score is None else float(score.SCORE), r.text or r.error)
            for score, r in zip(scores, replies, strict=True)
        ]

    return judged
