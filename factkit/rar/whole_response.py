"""Verdicts on whole responses in one look: contradiction, factuality, quality.

`contradictions` is the verifier behind Binary RAR's reward (§3.3, Eq. 5): one call a
response instead of one for each sentence and claim. A judge that fails gives the value
`None`. Nothing of a response is cut: what the judge does not read, it cannot judge.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from factkit.retrieval.evidence import EvidenceCache, query_of
from factkit.verify import engine, judge
from factkit.verify.engine import ClaimEngine
from factkit.verify.exact import ExactEngine
from factkit.verify.replies import Form, Verdict, read, whole
from factkit.verify.verifier import judge_llm

if TYPE_CHECKING:
    from factkit.llm import LLM
    from factkit.rar.arms import RarParams

REPLY_TOKENS = 512


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


@dataclass(frozen=True, kw_only=True)
class EvidenceEngine(ClaimEngine):
    """Binary RAR's: claims, and whole responses held against evidence.

    whole: the cache that a whole response is held against, of 512-token chunks in the
    paper; with_prompt: whether a response is searched for together with its prompt.
    """

    contradiction: ResponseJudge
    rate: ResponseJudge
    judge: ResponseJudge
    whole: EvidenceCache
    whole_chunks: int = 8
    with_prompt: bool = True

    def no_contradiction(self, ids, prompts, responses) -> list[float | None]:
        """1.0 if nothing contradicts the evidence, else 0.0 (Eq. 5)."""
        return _values(self.contradiction(self._with_evidence(ids, prompts, responses)))

    def rating(self, ids, prompts, responses) -> list[float | None]:
        """Factuality by the evidence, 0–10 (§6.2)."""
        return _values(self.rate(self._with_evidence(ids, prompts, responses)))

    def quality(self, ids, prompts, responses) -> list[float | None]:
        """Quality without evidence, 0–10 (§4.3)."""
        rows = zip(prompts, responses, strict=True)
        return _values(self.judge([(prompt, text, ()) for prompt, text in rows]))

    def _with_evidence(self, ids, prompts, responses) -> list[tuple]:
        """Rows of prompt, response and the texts of C(x, y), best first."""
        rows = []
        for i, prompt, response in zip(ids, prompts, responses, strict=True):
            query = query_of(prompt, response, self.with_prompt)
            hits = self.whole.search(i, query, self.whole_chunks)
            rows.append((prompt, response, [hit.chunk.text for hit in hits]))
        return rows


def _values(verdicts: Sequence[Verdict]) -> list[float | None]:
    return [verdict.value for verdict in verdicts]


Engine = ExactEngine | EvidenceEngine


def engine_of(p: "RarParams") -> Engine:
    """The engine that `p.verifier` names."""
    if p.verifier != "judge":
        return engine.exact_engine(p)
    evidence, tokenizer = engine.stored_evidence(p)
    llm = judge_llm(p, p.judge_model, p.judge_url)
    return EvidenceEngine(
        **engine.claim_parts(p, evidence, tokenizer),
        contradiction=contradictions(llm),
        rate=ratings(llm),
        judge=quality(llm),
        whole=EvidenceCache(evidence, tokenizer, p.whole_chunk_tokens),
        whole_chunks=p.whole_chunks,
        with_prompt=p.query_with_prompt,
    )


def contradictions(llm: "LLM", template: str = "judge_contradiction") -> ResponseJudge:
    """Whether nothing in a response contradicts its evidence: 1.0, 0.0 or None.

    Omissions are no errors, nor is what is unsupported but uncontradicted (Binary RAR
    §3.3 and Fig. 9).
    """
    return _judge(llm, template, Check, with_evidence=True)


def ratings(llm: "LLM", template: str = "rate_factuality") -> ResponseJudge:
    """How surely a response holds no error, 0–10 or None (Binary RAR §6.2, Fig. 10)."""
    return _judge(llm, template, Rating, with_evidence=True)


def quality(llm: "LLM", template: str = "judge_quality") -> ResponseJudge:
    """How helpful, relevant and detailed a response is, 0–10 or None.

    Without evidence. Binary RAR's LM judge; the paper prints no prompt, this is ours.
    """
    return _judge(llm, template, Rating, with_evidence=False)


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
