"""LLM judges of outcomes, of reasoning (TruthRL Tables 11, 12) and of preference.

A judgement is None where the judge failed: neither right nor wrong, nor a default.
"""

import json
import re
import warnings
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from typing import Annotated, Any, TypeVar

from factkit import prompts
from factkit.policy.decoding import Sampling
from factkit.run.results import JUDGEMENTS
from factkit.verify import calls
from factkit.verify.failures import RECENT_FAILURES, Failure, describe_failures
from factkit.verify.llm import LLM, Reply, Request
from factkit.verify.outcome import Outcome, abstains
from factkit.verify.replies import (
    F,
    Form,
    limit_integer,
    limit_text,
    match_word,
    read_reply,
)
from factkit.verify.response import extract_answers

# template → the field of the text that it grades, and how many characters are read
GRADED_FIELDS = {
    "judge_outcome": ("prediction", 2_000),
    "judge_reasoning": ("reasoning", 12_000),  # 2,048 tokens: the paper's longest
}
REPLY_TOKENS = 256
# `<`, the bracket of control tokens, and line ends that JSON does not escape
ESCAPED = re.compile(r"<|\[(?=/?[A-Z_]+\]|gMASK\])|[\x7f-\x9f\u2028\u2029]")

T = TypeVar("T")
Row = tuple[str, str | Sequence[str], str]  # question, ground truth(s), text to grade


class Grade(Form):
    """The reply's form in Tables 11 and 12."""

    explanation: Annotated[str, limit_text(400)] = ""
    score: Annotated[int, limit_integer(range(2))]


class Choice(Form):
    """The form of a comparison."""

    reason: Annotated[str, limit_text(400)] = ""
    label: Annotated[str, match_word("a", "b")]


async def ask(
    llm: LLM,
    template: str,
    row: Mapping[str, str | Sequence[str]],
    form: type[F],
    reply_tokens: int,
) -> F | None:
    """Ask about a row by one greedy request, awaited within `run_all`. None: it failed.

    A reply that ends normally but cannot be read is requested once more, with the reply
    in the chat.

    row: a template's fields, each inserted by `quote`. form: requested from endpoints
    that support JSON schemas, and checked with the row.
    """
    text, version, schema = _read_form(template, form)
    fields = {name: quote(value) for name, value in row.items()}
    message = {"role": "user", "content": prompts.fill(text, **fields)}
    request = Request((message,), version, Sampling(reply_tokens), schema=schema)
    JUDGEMENTS["asked"] += 1
    reply = await llm.complete(request)
    value = read_reply(reply, form, row)
    if isinstance(value, Failure) and reply.finished:
        JUDGEMENTS["asked_again"] += 1
        second = await llm.complete(_request_again(request, reply))
        if second.text is not None:  # else the first reply is the cause
            value = read_reply(second, form, row)
    if isinstance(value, Failure):
        JUDGEMENTS["failed"] += 1
        RECENT_FAILURES.append(value)
        return None
    return value


@cache
def _read_form(template: str, form: type[Form]) -> tuple[str, str, dict[str, Any]]:
    """Text and version of a template of the kit, and the schema of the replies."""
    text = prompts.template(template)
    version = f"{template}@{sha256(text.encode()).hexdigest()[:8]}"
    return text, version, form.model_json_schema()


def run_all(work: Iterable[Coroutine[Any, Any, T]], progress: str) -> list[T]:
    """`calls.run_all`, with one warning that counts repeated requests and failures."""
    before = JUDGEMENTS.copy()
    values = calls.run_all(work, progress)
    asked, again, failed = (
        JUDGEMENTS[name] - before[name] for name in ("asked", "asked_again", "failed")
    )
    if again or failed:
        failures = list(RECENT_FAILURES)[-failed:] if failed else []
        warnings.warn(
            f"{progress}: asked again for {again} of {asked} replies, "
            f"{failed} failed{describe_failures(failures)}",
            stacklevel=2,
        )
    return values


def ask_all(
    llm: LLM,
    template: str,
    rows: Iterable[Mapping[str, str | Sequence[str]]],
    form: type[F],
    reply_tokens: int,
    progress: str = "judging",
) -> list[F | None]:
    """`ask` about all rows at the same time."""
    work = [ask(llm, template, row, form, reply_tokens) for row in rows]
    return run_all(work, progress)


def _request_again(request: Request, reply: Reply) -> Request:
    first = {"role": "assistant", "content": prompts.neutral(reply.text or "")}
    order = {"role": "user", "content": prompts.template("reply_in_json")}
    return replace(request, messages=(*request.messages, first, order))


def quote(value: str | Sequence[str]) -> str:
    """Format a field as JSON on one line, so that its text cannot end the field.

    `<` and the bracket of tokens such as `[INST]` are escaped, so that the text cannot
    contain a chat template's control tokens.
    """
    plain = value if isinstance(value, str) else list(value)
    text = json.dumps(plain, ensure_ascii=False)
    return ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def grade_responses(llm: LLM, template: str, rows: Sequence[Row]) -> list[float | None]:
    """Return 1.0, 0.0 or None per row: whether a prediction agrees with its ground
    truth (`judge_outcome`, Table 11), or reasoning leads to it (`judge_reasoning`,
    Table 12)."""
    graded_field, limit = GRADED_FIELDS[template]
    fields = [
        {"question": question, "ground_truth": truth, graded_field: text[:limit]}
        for question, truth, text in rows
    ]
    grades = ask_all(llm, template, fields, Grade, REPLY_TOKENS)
    return [None if grade is None else float(grade.score) for grade in grades]


def judge_outcomes(
    llm: LLM,
    responses: Sequence[str],
    answers: Sequence[Sequence[str]],
    questions: Sequence[str],
) -> list[Outcome | None]:
    """Judge the outcome of each final answer (TruthRL §4.1).

    Abstentions are recognised by rule. The judge grades all other answers, including
    those that equal a reference answer.
    """
    rows = list(zip(questions, answers, responses, strict=True))
    graded = [row for row in rows if not abstains(row[2])]
    scores = iter(grade_responses(llm, "judge_outcome", graded))
    outcomes = {1.0: Outcome.CORRECT, 0.0: Outcome.WRONG, None: None}
    return [
        Outcome.ABSTAIN if abstains(r) else outcomes[next(scores)] for r in responses
    ]


def compare_responses(
    llm: LLM, prompts: Sequence[str], ours: Sequence[str], theirs: Sequence[str]
) -> list[float | None]:
    """Return how often the judge prefers our response: 1.0, 0.5 (one order) or 0.0.

    The judge sees each pair in both orders, all in one batch, so that a position bias
    cancels. Reasoning is not shown. None if the judge failed in either order.
    """
    pairs = zip(prompts, extract_answers(ours), extract_answers(theirs), strict=True)
    rows = [
        {"prompt": prompt, "response_a": first, "response_b": second}
        for prompt, a, b in pairs
        for first, second in ((a, b), (b, a))
    ]
    choices = ask_all(llm, "compare_responses", rows, Choice, REPLY_TOKENS, "comparing")
    return [
        (a.label == "a") / 2 + (b.label == "b") / 2 if a and b else None
        for a, b in zip(choices[::2], choices[1::2], strict=True)
    ]
