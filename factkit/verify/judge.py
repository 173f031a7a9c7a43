"""LLM judges: of outcome and reasoning (TruthRL Tables 11, 12), and of preference.

A verdict is a JSON object of the form that was asked for, or `[[A]]` where the prompt
asks for that. It is the last thing of a reply that ran to its end, and the only one in
it. All else is `None`: neither right nor wrong, neither a default nor a score.
"""

import json
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from factkit import prompts
from factkit.llm import LLM, Reply, Request
from factkit.models import Sampling
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


# In lower case: "I Can't Help Myself" is a song.
REFUSAL = re.compile(
    r"\W*(?:(?:I['’]m|I am)(?: \w+)? sorry\b|I apologi[sz]e\b|Sorry[,.!]|My apologies"
    r"|(?:Unfortunately,? )?(?:I (?:can(?:not|['’]t| not)|won['’]t|do(?: not|n['’]t)) "
    r"[a-z]|(?:I am|I['’]m) (?:unable|not able) to\b)|As an AI\b"
    r"|As a (?:\w+ )?language model\b|(?:None|N/A)\W*\Z"
    r"|(?:There are )?[Nn]o (?:\w+ )?(?:claims|statements)\b"
    r"|(?:The|This) sentence (?:does not|doesn['’]t|(?:contains|makes|has) no)\b)"
)


def _claimed(text: str) -> str:
    if REFUSAL.match(text):
        raise ValueError("a refusal states nothing")
    return text


# a claim or statement, no refusal
Claimed = Annotated[free(240), Field(pattern=SOME), AfterValidator(_claimed)]

FENCE = re.compile(r"```\w*\Z")
TAG = re.compile(r"</?(?:think|thinking|thought|reasoning)>|\[/?THINK\]", re.I)
# A verdict in words before the object, as "**Score:** 1"
IN_WORDS = re.compile(
    r"\b(?:score|rating|label|verdict|decision|final answer)s?\b[^\w:=]*+[:=]\W*+\w",
    re.IGNORECASE,
)


def read(reply: Reply, form: type[F]) -> F | None:
    """The object of this form that a reply ends with; None without exactly one.

    It stands in a fence or begins a line. Prose may come before it, without a brace, a
    tag of reasoning or another verdict, as "Score: 1". No key of an object comes twice.
    """
    prose, brace, rest = (_spoken(reply) or "").partition("{")
    fence = FENCE.search(prose.rstrip())
    if fence:
        prose = prose[: fence.start()]
    quoted = not fence and prose.rpartition("\n")[2].strip()
    if quoted or TAG.search(prose) or IN_WORDS.search(prose):
        return None
    text = (brace + rest).removesuffix("```")
    try:
        value = json.loads(text, strict=False, object_pairs_hook=_without_doubles)
        return form.model_validate(value)
    except (ValueError, RecursionError):
        return None


VERDICT = re.compile(r"<answer>\s*\[\[([AB])\]\]\s*</answer>[\s.*`]*\Z")
LETTER = re.compile(r"\[\[\s*([A-Z])\s*\]\]")


def preferred(reply: Reply) -> str | None:
    """The letter of `<answer>[[A]]</answer>`, or of B, with which a reply has to end;
    None if another letter stands in such brackets before it."""
    text = _spoken(reply) or "<think>"
    verdict = VERDICT.search(text)
    clear = not TAG.search(text) and len(set(LETTER.findall(text))) == 1
    return verdict[1] if verdict and clear else None


def _spoken(reply: Reply) -> str | None:
    """What a reply says after its reasoning; None if either was cut off.

    A chat template that opens the reasoning leaves only the tag that closes it. A reply
    that begins with its object or fence has no reasoning: tags are quoted in it.
    """
    if not reply.finished:
        return None
    text = (reply.text or "").strip()
    if text.startswith(("{", "```")):
        return text
    opened = 0
    for tag in TAG.finditer(text):
        if "/" in tag[0]:
            return text[tag.end() :].strip() if opened < 2 else None
        opened += 1
    return None if opened else text


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; raises ValueError if it has a key twice."""
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


def graded(llm: LLM, template: str, rows: Sequence[Row]) -> list[float | None]:
    """1.0, 0.0 or None each: whether a prediction agrees with its ground truth (Table
    11), or a reasoning leads to the answer (Table 12). template: of `GRADED`."""
    graded_field, limit = GRADED[template]
    fields = [
        {"question": question, "ground_truth": truth, graded_field: answer[:limit]}
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
    replies = ask(llm, "compare_responses", rows, Choice, REPLY_TOKENS, "comparing")
    choices = [read(reply, Choice) for reply in replies]
    return [
        (a.label == "a") / 2 + (b.label == "b") / 2 if a and b else None
        for a, b in zip(choices[::2], choices[1::2], strict=True)
    ]
