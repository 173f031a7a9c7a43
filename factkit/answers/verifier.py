"""Who tells correct from wrong in a run: rules, string matching, or a judge.

A run stops when its judge or verifier fails on too many responses.
"""

import json
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from factkit.run import files, params, serving
from factkit.verify import judge, response
from factkit.verify.outcome import Outcome, contains, exact, outcome

if TYPE_CHECKING:
    from factkit.run.params.stages import JudgeParams, QuestionParams
    from factkit.verify.llm import LLM

RULES = {"rules": outcome, "exact": exact, "contains": contains}

# (responses, reference answers, questions) → outcomes; None where a judge failed
Verifier = Callable[
    [Sequence[str], Sequence[Sequence[str]], Sequence[str]], list[Outcome | None]
]
# (responses, question ids, reference answers, questions) → quality in [0, 1], or None
ReasoningJudge = Callable[
    [Sequence[str], Sequence[str], Sequence[Sequence[str]], Sequence[str]],
    list[float | None],
]


def verifier(p: "QuestionParams", name: str = "") -> Verifier:
    """The verifier `name`, by default `p.verifier`, of whole responses.

    name: rules | exact | contains | judge, or <model>@<url> for another judge. The
    final answer is taken out of a boxed response first; without a box it is "", wrong.
    """
    name = name or p.verifier
    model, _, url = name.partition("@")
    llm = None
    if name not in RULES:
        llm = judge_llm(p, model if url else p.judge_model, url or p.judge_url)

    def verify(responses, answers, questions) -> list[Outcome | None]:
        boxed = p.answer_format == "boxed"
        final = [response.final_answer(text, boxed) for text in responses]
        if llm:
            return judge.judged_outcomes(llm, final, answers, questions)
        return list(map(RULES[name], final, answers, questions))

    return verify


def reasoning_judge(p: "QuestionParams") -> ReasoningJudge | None:
    """Quality of the reasoning of whole responses (§4.6): exact in the fact world,
    else the judge's. None where responses are plain answers."""
    if p.answer_format == "plain":
        return None
    if p.questions == "world":
        from factkit.facts.world import facts as world

        made = world.build_world(people=p.world_people, seed=p.world_seed)
        return lambda responses, ids, answers, questions: [
            world.reasoning_quality(made, i, response.reasoning(r))
            for r, i in zip(responses, ids, strict=True)
        ]
    if p.verifier != "judge":
        raise params.ParamError(
            f"verifier={p.verifier}: outside the fact world, reasoning needs a judge: "
            "set verifier=judge, judge_model and judge_url"
        )
    llm = judge_llm(p, p.judge_model, p.judge_url)

    def quality(responses, ids, answers, questions) -> list[float | None]:
        thoughts = map(response.reasoning, responses)
        rows = list(zip(questions, answers, thoughts, strict=True))
        return judge.graded(llm, "judge_reasoning", rows)

    return quality


def judge_llm(p: "JudgeParams", model: str, url: str, cached: bool = True) -> "LLM":
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
