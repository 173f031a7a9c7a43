"""LLM judges: of outcome and reasoning (TruthRL Tables 11, 12), and of preference.

A judge that fails gives no verdict: neither right nor wrong, and no default.
"""

import json
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256

from factkit import prompts
from factkit.llm import LLM, Reply, Request
from factkit.models import Sampling
from factkit.verify.outcome import Outcome, abstains
from factkit.verify.replies import Form, read, whole, word
from factkit.verify.response import answers as final_answers

PREDICTION_LIMIT = 2_000  # characters of a prediction that the judge reads
REASONING_LIMIT = 12_000  # characters: 2,048 tokens, the paper's longest response
REPLY_TOKENS = 256
# `<`, control tokens' square bracket, and the line ends that JSON leaves as they are
ESCAPED = re.compile(r"<|\[(?=/?[A-Z_]+\]|gMASK\])|[\x7f-\x9f\u2028\u2029]")

Row = tuple[str, str | Sequence[str], str]  # question, ground truth(s), text to grade


class Grade(Form):
    """The form of Tables 11 and 12."""

    explanation: str = ""
    score: whole(range(2))


class Choice(Form):
    """The form of a comparison."""

    reason: str = ""
    label: word("a", "b")


def ask(
    llm: LLM,
    template: str,
    rows: Sequence[Mapping[str, str | Sequence[str]]],
    form: type[Form] | None,
    reply_tokens: int,
    progress: str = "judging",
) -> list[Reply]:
    """One greedy request a row, all in one batch, and the replies.

    rows: a template's fields; each arrives as JSON on one line (`quoted`). form: of a
    reply, asked of endpoints that take a schema; None for a template that asks for
    another end than an object.
    """
    text = prompts.template(template)
    version = f"{template}@{sha256(text.encode()).hexdigest()[:8]}"
    requests = [
        Request(
            messages=({"role": "user", "content": message},),
            template=version,
            sampling=Sampling(reply_tokens),
            sample=0,
            schema=form and form.model_json_schema(),
        )
        for row in rows
        for message in [
            prompts.fill(text, **{name: quoted(value) for name, value in row.items()})
        ]
    ]
    return llm.run(requests, progress=progress) if requests else []


def quoted(value: str | Sequence[str]) -> str:
    """JSON on one line, so that no text can end its field and go on as our template.

    `<` is escaped, and the bracket of `[INST]` and its like: no text can write a chat
    template's control tokens either.
    """
    plain = value if isinstance(value, str) else list(value)
    text = json.dumps(plain, ensure_ascii=False)
    return ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def judge_outcomes(llm: LLM, rows: Sequence[Row]) -> list[float | None]:
    """Whether each prediction, cut to `PREDICTION_LIMIT` characters, agrees with its
    ground truth or one of those accepted: 1.0, 0.0 or None (Table 11)."""
    return _scores(llm, rows, "judge_outcome", "prediction", PREDICTION_LIMIT)


def judge_reasoning(llm: LLM, rows: Sequence[Row]) -> list[float | None]:
    """Whether each reasoning, cut to `REASONING_LIMIT` characters, leads to the answer:
    1.0, 0.0 or None (Table 12)."""
    return _scores(llm, rows, "judge_reasoning", "reasoning", REASONING_LIMIT)


def _scores(
    llm: LLM, rows: Sequence[Row], template: str, graded: str, limit: int
) -> list[float | None]:
    fields = [
        {"question": question, "ground_truth": truth, graded: answer[:limit]}
        for question, truth, answer in rows
    ]
    replies = ask(llm, template, fields, Grade, REPLY_TOKENS)
    grades = [read(reply, Grade) for reply in replies]
    return [None if grade is None else float(grade.score) for grade in grades]


def judged_outcomes(
    llm: LLM,
    responses: Sequence[str],
    answers: Sequence[Sequence[str]],
    questions: Sequence[str],
) -> list[Outcome | None]:
    """The outcome of each final answer, None where the judge failed (TruthRL §4.1).

    An abstention is recognised by rule; all else, even what equals a reference answer,
    goes to the judge.
    """
    rows = list(zip(questions, answers, responses, strict=True))
    given = [row for row in rows if not abstains(row[2])]
    scores = iter(judge_outcomes(llm, given))
    outcomes = {1.0: Outcome.CORRECT, 0.0: Outcome.WRONG, None: None}
    return [
        Outcome.ABSTAIN if abstains(r) else outcomes[next(scores)] for r in responses
    ]


def compare(
    llm: LLM, prompts: Sequence[str], ours: Sequence[str], theirs: Sequence[str]
) -> list[float | None]:
    """How often the judge prefers our response: 1.0, 0.5 (one order each) or 0.0.

    The judge sees each pair in both orders, all in one batch, so that a liking for the
    first place cancels. Reasoning is not shown. None where the judge failed in either
    order.
    """
    pairs = zip(prompts, final_answers(ours), final_answers(theirs), strict=True)
    rows = [
        {"prompt": prompt, "response_a": first, "response_b": second}
        for prompt, a, b in pairs
        for first, second in ((a, b), (b, a))
    ]
    replies = ask(llm, "compare_responses", rows, Choice, REPLY_TOKENS, "comparing")
    choices = [read(reply, Choice) for reply in replies]
    return [
        (a.label == "a") / 2 + (b.label == "b") / 2 if a and b else None
        for a, b in zip(choices[::2], choices[1::2], strict=True)
    ]
