"""LLM judges: of outcome and reasoning (TruthRL Tables 11, 12), and of preference.

A verdict is a JSON object of the form that was asked for. A reply that ends normally
and consists of that object alone is read; any other is asked for once more and then
`None`: neither right nor wrong, neither a default nor a score.
"""

import json
import re
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from factkit import prompts
from factkit.policy.decoding import Sampling
from factkit.run.results import JUDGEMENTS
from factkit.verify.llm import LLM, Reply, Request, shorten
from factkit.verify.outcome import Outcome, abstains
from factkit.verify.response import answers as final_answers

# ---- what a judge or an extractor replies


def _asked(schema: dict[str, Any]) -> None:
    """Ask for every field, also one that a reply may leave out, without our words."""
    schema["required"] = list(schema["properties"])
    for part in (schema, *schema["properties"].values()):
        for key in ("title", "description", "default"):
            part.pop(key, None)


class Form(BaseModel):
    """What a reply has to hold: these fields and no other, of just these types.

    `model_json_schema` is what an endpoint is asked for, in the order of the fields.
    """

    model_config = ConfigDict(strict=True, extra="forbid", json_schema_extra=_asked)


F = TypeVar("F", bound=Form)


def whole(numbers: Sequence[int]) -> Any:
    """The type of a whole number in this range: not in quotes, without a point."""
    bounds = Field(ge=min(numbers), le=max(numbers))
    return Annotated[int, bounds, Field(json_schema_extra={"enum": list(numbers)})]


def word(*words: str) -> Any:
    """The type of one of these words in any letter case."""
    lower = BeforeValidator(lambda v: v.lower() if isinstance(v, str) else v)
    return Annotated[Literal[*words], lower]


# At least one character that shows, also where a pattern has to match all of the text
SOME = r"^[\s\S]*\S[\s\S]*$"


def free(most: int) -> Any:
    """The type of free text, of which a judge is asked for `most` characters at most.

    So a reply ends within its tokens, at two characters a token (ours); what comes is
    read at any length. With the pattern beside it vLLM's default takes llguidance:
    xgrammar's strings of a given length can hold no quotation mark.
    """
    return Annotated[str, Field(json_schema_extra={"pattern": SOME, "maxLength": most})]


def up_to(most: int, kind: Any) -> Any:
    """The type of a list of which a judge is asked for so many entries at most."""
    return Annotated[list[kind], Field(json_schema_extra={"maxItems": most})]


# Opening tag → closing tag of reasoning, as current chat templates write them
REASONING = {
    **{
        f"<{tag}>": f"</{tag}>"
        for tag in "think thinking thought reason reasoning analysis reflection "
        "seed:think mm:think longcat_think ifm|think ifm|think_fast".split()
    },
    "[think]": "[/think]",
    "◁think▷": "◁/think▷",
    "<|start_thinking|>": "<|end_thinking|>",
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|inner_prefix|>": "<|inner_suffix|>",
    "<|think:start|>": "<|think:end|>",
    "<|channel>thought": "<channel|>",
    "<|channel|>analysis<|message|>": "<|channel|>final<|message|>",
}
OPENING = re.compile("|".join(map(re.escape, REASONING)), re.IGNORECASE)
CLOSING = re.compile("|".join(map(re.escape, REASONING.values())), re.IGNORECASE)
FENCE = re.compile(r"```\w*\s*(\{.*\})\s*```", re.DOTALL)


def read(reply: Reply, form: type[F], row: Mapping[str, Any] | None = None) -> F | None:
    """The object of this form that a reply consists of, or None.

    The reply has to end normally and to be one JSON object. Besides the object it may
    hold white space, one code fence around the object, and one closed block of
    reasoning before them. row: the fields of the prompt that the form is checked with.
    """
    value = _parse(reply, row, form)
    return None if isinstance(value, Failure) else value


class Failure(NamedTuple):
    """Why a reply gives no verdict, and what the server or the model wrote."""

    cause: str
    text: str


def _parse(reply: Reply, row: Mapping[str, Any] | None, form: type[F]) -> F | Failure:
    if reply.text is None:
        return Failure(*reply.error.removeprefix("not called: ").partition(": ")[::2])
    if not reply.finished:
        return Failure(f"cut off ({reply.finish_reason})", reply.text)
    try:
        value = json.loads(
            _without_reasoning(reply.text.strip()),
            strict=False,
            object_pairs_hook=_unique_keys,
        )
    except (ValueError, RecursionError):
        return Failure("not one JSON object alone", reply.text)
    try:
        return form.model_validate(value, context=row)
    except ValidationError:
        return Failure(f"not of the form {form.__name__}", reply.text)


def _without_reasoning(text: str) -> str:
    """A reply from its object on, without the fence around it.

    A chat template that opens the reasoning itself leaves only the closing tag. A reply
    that begins with its object has no reasoning: its texts may quote any tag. Raises
    ValueError if the reasoning is not one closed block.
    """
    if not text.startswith(("{", "```")):
        closing = CLOSING.search(text)
        if not closing:
            raise ValueError("text before the object")
        reasoning, text = text[: closing.start()], text[closing.end() :].strip()
        opening = [match[0].lower() for match in OPENING.finditer(reasoning)]
        if opening and (
            not reasoning.lower().startswith(opening[0])
            or [REASONING[tag] for tag in opening] != [closing[0].lower()]
        ):
            raise ValueError("reasoning within or before reasoning")
    fence = FENCE.fullmatch(text)
    return fence[1] if fence else text


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Raises ValueError if it has a key twice."""
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key is given twice")
    return dict(pairs)


# ---- what it is asked

# template → the field of the text that it grades, and how many characters are read
GRADED = {
    "judge_outcome": ("prediction", 2_000),
    "judge_reasoning": ("reasoning", 12_000),  # 2,048 tokens: the paper's longest
}
REPLY_TOKENS = 256
# `<`, control tokens' square bracket, and the line ends that JSON leaves as they are
ESCAPED = re.compile(r"<|\[(?=/?[A-Z_]+\]|gMASK\])|[\x7f-\x9f\u2028\u2029]")

Row = tuple[str, str | Sequence[str], str]  # question, ground truth(s), text to grade


class Grade(Form):
    """The form of Tables 11 and 12."""

    explanation: free(400) = ""
    score: whole(range(2))


class Choice(Form):
    """The form of a comparison."""

    reason: free(400) = ""
    label: word("a", "b")


def ask(
    llm: LLM,
    template: str,
    rows: Sequence[Mapping[str, str | Sequence[str]]],
    form: type[F],
    reply_tokens: int,
    progress: str = "judging",
) -> list[F | None]:
    """Ask about each row by one greedy request, and read the replies; None: it failed.

    All requests are one batch. A reply that ends normally but cannot be read is asked
    for a second time, with the reply shown, in one more batch. One warning per batch
    counts the replies asked for again and the causes of failure.

    rows: a template's fields; each arrives as JSON on one line (`quoted`). form: of a
    reply, asked of endpoints that take a schema, and checked with the row.
    """
    text = prompts.template(template)
    version = f"{template}@{sha256(text.encode()).hexdigest()[:8]}"
    requests = [
        Request(
            messages=({"role": "user", "content": message},),
            template=version,
            sampling=Sampling(reply_tokens),
            sample=0,
            schema=form.model_json_schema(),
        )
        for row in rows
        for message in [
            prompts.fill(text, **{name: quoted(value) for name, value in row.items()})
        ]
    ]
    replies = llm.run(requests, progress=progress) if requests else []
    values = [_parse(*pair, form) for pair in zip(replies, rows, strict=True)]
    failed = [i for i, value in enumerate(values) if isinstance(value, Failure)]
    unread = [i for i in failed if replies[i].finished]
    again = [_ask_again(requests[i], replies[i]) for i in unread]
    second = llm.run(again, progress="asking again") if again else []
    for i, reply in zip(unread, second, strict=True):
        if reply.text is not None:  # else the first reply is the cause
            values[i] = _parse(reply, rows[i], form)
    failures = [value for value in values if isinstance(value, Failure)]
    RECENT_FAILURES.extend(failures)
    JUDGEMENTS.update(asked=len(rows), asked_again=len(unread), failed=len(failures))
    if failed:
        warnings.warn(
            f"{template}: asked again for {len(unread)} of {len(rows)} replies, "
            f"{len(failures)} failed{causes(failures)}",
            stacklevel=2,
        )
    return [None if isinstance(value, Failure) else value for value in values]


def _ask_again(request: Request, reply: Reply) -> Request:
    """The request, followed by the reply and by the order to give the object alone."""
    first = {"role": "assistant", "content": prompts.neutral(reply.text or "")}
    order = {"role": "user", "content": prompts.template("reply_in_json")}
    return replace(request, messages=(*request.messages, first, order))


MOST_JUDGE_FAILURES = 0.05  # of the responses; more, and a run fails
FEWEST_RESPONSES = 200  # before the share of failures can fail a run
RECENT_FAILURES: deque[Failure] = deque(maxlen=1_000)  # of this process


def causes(failures: Iterable[Failure] | None = None) -> str:
    """The three commonest causes, each with its count and an example, after a colon;
    empty without failures. failures: by default the latest of this process."""
    failures = list(RECENT_FAILURES if failures is None else failures)
    examples = dict(reversed(failures))  # the first of each cause
    counts = Counter(cause for cause, _ in failures).most_common(3)
    parts = [
        f"{n} × {cause} ({shorten(' '.join(examples[cause].split()), 120)})"
        for cause, n in counts
    ]
    return f": {'; '.join(parts)}".replace(" ()", "") if parts else ""


def quoted(value: str | Sequence[str]) -> str:
    """JSON on one line, so that no text can end its field and go on as our template.

    `<` is escaped, and the bracket of `[INST]` and its like: no text can write a chat
    template's control tokens either.
    """
    plain = value if isinstance(value, str) else list(value)
    text = json.dumps(plain, ensure_ascii=False)
    return ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def graded(llm: LLM, template: str, rows: Sequence[Row]) -> list[float | None]:
    """1.0, 0.0 or None each: whether a prediction agrees with its ground truth (Table
    11), or a reasoning leads to the answer (Table 12). template: of `GRADED`."""
    graded_field, limit = GRADED[template]
    fields = [
        {"question": question, "ground_truth": truth, graded_field: answer[:limit]}
        for question, truth, answer in rows
    ]
    grades = ask(llm, template, fields, Grade, REPLY_TOKENS)
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
    scores = iter(graded(llm, "judge_outcome", given))
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
    choices = ask(llm, "compare_responses", rows, Choice, REPLY_TOKENS, "comparing")
    return [
        (a.label == "a") / 2 + (b.label == "b") / 2 if a and b else None
        for a, b in zip(choices[::2], choices[1::2], strict=True)
    ]


def failed_share(values: Sequence[object], name: str) -> float:
    """The share of None among an evaluation's values. Raises ValueError above 5 %."""
    share = list(values).count(None) / max(len(values), 1)
    if share > MOST_JUDGE_FAILURES:
        raise ValueError(
            f"{name}: {share:.1%} of {len(values)}, at most {MOST_JUDGE_FAILURES:.0%} "
            f"may fail{causes()}. See to the judge's endpoint and run again"
        )
    return share
