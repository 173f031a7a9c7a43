"""Reading what a judge or an extractor replies: the one verdict that it ends with.

A verdict is a JSON object of the form that was asked for, or `[[A]]` where the prompt
asks for that. It is the last thing of a reply that ran to its end, and the only one in
it. All else is `None`: neither a default nor a score.
"""

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from factkit.llm import Reply


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


Text = Annotated[str, Field(pattern=r"\S")]
Claimed = Annotated[Text, AfterValidator(_claimed)]  # a claim or statement, no refusal

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
