"""LLM judges of outcome and reasoning (TruthRL Tables 11 and 12).

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
from factkit.verify.replies import Form, Verdict, read, whole

PREDICTION_LIMIT = 2_000  # characters of a prediction that the judge reads
REASONING_LIMIT = 12_000  # characters: 2,048 tokens, the paper's longest response
REPLY_TOKENS = 256
# `<`, control tokens' square bracket, and the line ends that JSON leaves as they are
ESCAPED = re.compile(r"<|\[(?=/?[A-Z_]+\]|gMASK\])|[\x7f-\x9f\u2028\u2029]")


class Grade(Form):
    """The form of Tables 11 and 12."""

    explanation: str = ""
    score: whole(range(2))


Row = tuple[str, str | Sequence[str], str]  # question, ground truth(s), text to grade


def judge_outcomes(
    llm: LLM, rows: Sequence[Row], template: str = "judge_outcome"
) -> list[Verdict]:
    """Whether each prediction agrees with its ground truth: 1.0, 0.0 or None.

    rows: (question, ground truth or the list of those accepted, prediction). The judge
    reads the first `PREDICTION_LIMIT` characters of a prediction.
    """
    return _judge(llm, rows, template, "prediction", PREDICTION_LIMIT)


def judge_reasoning(
    llm: LLM, rows: Sequence[Row], template: str = "judge_reasoning"
) -> list[Verdict]:
    """Whether each reasoning leads to the answer: 1.0, 0.0 or None.

    rows: (question, ground truth or the list of those accepted, reasoning). The judge
    reads the first `REASONING_LIMIT` characters of a reasoning.
    """
    return _judge(llm, rows, template, "reasoning", REASONING_LIMIT)


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
    abstentions = [abstains(response) for response in responses]
    asked = [row for row, a in zip(rows, abstentions, strict=True) if not a]
    verdicts = iter(judge_outcomes(llm, asked))
    outcomes = {1.0: Outcome.CORRECT, 0.0: Outcome.WRONG, None: None}
    return [
        Outcome.ABSTAIN if a else outcomes[next(verdicts).value] for a in abstentions
    ]


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
    schema = None if form is None else form.model_json_schema()
    text = prompts.template(template)
    version = f"{template}@{sha256(text.encode()).hexdigest()[:8]}"
    requests = []
    for row in rows:
        fields = {name: quoted(value) for name, value in row.items()}
        message = {"role": "user", "content": prompts.fill(text, **fields)}
        requests.append(
            Request(
                messages=(message,),
                template=version,
                sampling=Sampling(reply_tokens),
                sample=0,
                schema=schema,
            )
        )
    return llm.run(requests, progress=progress) if requests else []


def quoted(value: str | Sequence[str]) -> str:
    """JSON on one line, so that no text can end its field and go on as our template.

    `<` is escaped, and the bracket of `[INST]` and its like: no text can write a chat
    template's control tokens either.
    """
    text = json.dumps(
        value if isinstance(value, str) else list(value), ensure_ascii=False
    )
    return ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _judge(
    llm: LLM, rows: Sequence[Row], template: str, graded: str, limit: int
) -> list[Verdict]:
    """The score of each row, whose last field is cut to `limit` characters."""
    fields = [
        {"question": question, "ground_truth": truth, graded: answer[:limit]}
        for question, truth, answer in rows
    ]
    replies = ask(llm, template, fields, Grade, REPLY_TOKENS)
    grades = [read(reply, Grade) for reply in replies]
    return [
        Verdict(None if grade is None else float(grade.score), r.text or r.error)
        for grade, r in zip(grades, replies, strict=True)
    ]
