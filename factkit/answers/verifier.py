"""Who verifies the responses of a run: rules, the exact facts, or a judge.

Only this module reads `p.verifier`; `engine` has the verifiers of long answers.
"""

import json
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from factkit.facts.source import FactReader, open_source
from factkit.run import files, params, serving
from factkit.run.params.stages import JudgeParams, PolicyParams
from factkit.verify import judge, response
from factkit.verify.llm import LLM
from factkit.verify.outcome import (
    Outcome,
    grade_by_containment,
    grade_by_exact_match,
    grade_by_rules,
)

if TYPE_CHECKING:
    from factkit.run.params.data import QuestionParams

RULES = {
    "rules": grade_by_rules,
    "exact": grade_by_exact_match,
    "contains": grade_by_containment,
}

Texts = Sequence[str]
# (responses, reference answers, questions) → outcomes; None where a judge failed
Verifier = Callable[[Texts, Sequence[Texts], Texts], list[Outcome | None]]
# (responses, question ids, reference answers, questions) → quality in [0, 1], or None
ReasoningJudge = Callable[[Texts, Texts, Sequence[Texts], Texts], list[float | None]]


def has_judge(p: JudgeParams) -> bool:
    """Whether a model verifies."""
    return p.verifier == "judge"


def judge_of(p: JudgeParams) -> LLM | None:
    """The judge of `p`; None where rules or the exact facts verify."""
    return judge_llm(p, p.judge_model, p.judge_url) if has_judge(p) else None


def facts_of(p: PolicyParams) -> FactReader:
    """The facts that `p.verifier` names: world | leads."""
    return open_source(p.verifier, p)


def verifier(p: PolicyParams, name: str = "") -> Verifier:
    """The verifier `name`, by default `p.verifier`, of short answers.

    name: rules | exact | contains | judge, or <model>@<url> for another judge; the
    facts that `p.verifier` names stand for rules. The final answer is taken out of a
    boxed response first; without a box it is "", wrong. A stated confidence is no part
    of an answer. Raises ValueError on another name.
    """
    name = name or p.verifier
    model, _, url = name.partition("@")
    if not url and name not in (*RULES, "judge", p.verifier):
        raise ValueError(f"verifier {name!r}: there are {', '.join(RULES)}, judge")
    llm = None
    if url or name == "judge":
        llm = judge_llm(p, model if url else p.judge_model, url or p.judge_url)
    rule = RULES.get(name, grade_by_rules)

    def verify(
        responses: Texts, answers: Sequence[Texts], questions: Texts
    ) -> list[Outcome | None]:
        boxed = p.answer_format == "boxed"
        if p.states_confidence:
            responses = [response.split_confidence(text)[0] for text in responses]
        final = [response.extract_answer(text, boxed) for text in responses]
        if llm:
            return judge.judge_outcomes(llm, final, answers, questions)
        return list(map(rule, final, answers, questions))

    return verify


def reasoning_judge(p: "QuestionParams") -> ReasoningJudge | None:
    """The quality of the reasoning of responses (TruthRL §4.6): exact where the source
    of the questions knows it, else the judge's. None where responses are plain answers.
    """
    if p.answer_format == "plain":
        return None
    source = open_source(p.questions, p)
    llm = None if source.grades_reasoning else judge_of(p)
    if not (llm or source.grades_reasoning):
        raise params.ParamError(
            f"verifier={p.verifier}: outside the fact world, reasoning needs a judge: "
            "set verifier=judge, judge_model and judge_url"
        )

    def quality(
        responses: Texts, ids: Texts, answers: Sequence[Texts], questions: Texts
    ) -> list[float | None]:
        thoughts = [response.extract_reasoning(text) for text in responses]
        if llm:
            rows = list(zip(questions, answers, thoughts, strict=True))
            return judge.grade_responses(llm, "judge_reasoning", rows)
        return list(map(source.reasoning_quality, ids, thoughts))

    return quality


def judge_llm(p: JudgeParams, model: str, url: str, cached: bool = True) -> LLM:
    """The judge `model` at `url`, with the cache, limits and request fields of `p`."""
    from factkit.verify import llm

    limits = llm.Limits(
        concurrency=p.judge_concurrency,
        timeout_s=p.judge_timeout,
        max_calls=p.judge_max_calls or None,
    )
    endpoint = llm.Endpoint(
        url,
        model,
        key=serving.read_token(p.judge_key),
        headers=read_headers(p.judge_headers),
        extra=json.loads(p.judge_extra or "{}"),
        thinking_tokens=p.judge_thinking_tokens,
    )
    return llm.LLM(endpoint, files.cache_dir() / "llm" if cached else None, limits)


def read_headers(variable: str) -> dict[str, str]:
    """The headers in an environment variable, a JSON object of texts; none without its
    name. Raises ParamError, which does not show the content, if it holds none."""
    if not variable:
        return {}
    try:
        content = os.environ.get(variable, "")
        return TypeAdapter(dict[str, str]).validate_json(content, strict=True)
    except ValidationError:
        raise params.ParamError(
            f"judge_headers={variable}: the variable must hold a JSON object of texts, "
            f'as export {variable}=\'{{"X-Team": "facts"}}\''
        ) from None
