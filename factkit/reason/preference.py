"""Whether an answer is preferred to the reference policy's: R_rel of Learning to Reason
for Factuality (§3.1.1).

By a judge here, the paper's way; `exact.ExactEngine.preferred` stands in for one where
no model is good enough to judge.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from factkit.verify import engine, judge
from factkit.verify.engine import ClaimEngine
from factkit.verify.exact import ExactEngine
from factkit.verify.replies import preferred
from factkit.verify.verifier import judge_llm

if TYPE_CHECKING:
    from factkit.llm import LLM
    from factkit.reason.arms import ReasonParams

ANSWER_TOKENS = 2048  # of a judge that writes an answer of its own first
WINS = {"A": 1.0, "B": 0.0, None: None}

# (ids, prompts, answers) → 1.0 preferred, 0.0 not, None: the judge failed
Preference = Callable[[Sequence[str], Sequence[str], Sequence[str]], list[float | None]]


@dataclass(frozen=True, kw_only=True)
class PreferenceEngine(ClaimEngine):
    """Claims, and preference to the reference policy's answer."""

    preferred: Preference


Engine = ExactEngine | PreferenceEngine


def engine_of(p: "ReasonParams") -> Engine:
    """The engine that `p.verifier` names.

    The judge of preference writes y_ref itself (App. G), so that it is the base policy,
    where p.relevance_model names it.
    """
    if p.verifier != "judge":
        return engine.exact_engine(p)
    model, url = p.relevance_model or p.judge_model, p.relevance_url or p.judge_url
    parts = engine.claim_parts(p, *engine.stored_evidence(p))
    return PreferenceEngine(**parts, preferred=preferences(judge_llm(p, model, url)))


def preferences(llm: "LLM", template: str = "judge_relevance") -> Preference:
    """Whether a response is better than the judge's own.

    The judge, in the paper the base model, answers first and then compares (Fig. 9).
    The response is always A, so that a judge that favours a position favours all
    responses alike. Without evidence.
    """

    def prefer(
        ids: Sequence[str], prompts: Sequence[str], answers: Sequence[str]
    ) -> list[float | None]:
        rows = zip(prompts, answers, strict=True)
        fields = [{"question": prompt, "response": answer} for prompt, answer in rows]
        replies = judge.ask(llm, template, fields, None, ANSWER_TOKENS)
        return [WINS[preferred(reply)] for reply in replies]

    return prefer
