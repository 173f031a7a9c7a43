"""The strict reader of what judges, extractors and annotators reply.

A reply must end normally and be one JSON object of the requested form. White space, one
code fence around the object and one closed block of reasoning before it are allowed.
Any other reply is a `Failure`: never a verdict, a default or a score.
"""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.types import GetPydanticSchema

from factkit.verify.failures import Failure
from factkit.verify.llm import Reply

# At least one visible character, also for servers that match the pattern in full
NON_BLANK = r"^[\s\S]*\S[\s\S]*$"


def _require_all(schema: dict[str, Any]) -> None:
    """Require every field of a JSON schema, and remove titles and docstrings."""
    schema["required"] = list(schema["properties"])
    for part in (schema, *schema["properties"].values()):
        for key in ("title", "description", "default"):
            part.pop(key, None)


class Form(BaseModel):
    """Base class of the forms of replies: no other fields and no type conversion.

    `model_json_schema`, with the fields in order, is sent to endpoints that support it.
    """

    model_config = ConfigDict(
        strict=True, extra="forbid", json_schema_extra=_require_all
    )


F = TypeVar("F", bound=Form)


def limit_text(characters: int) -> Any:
    """Request at most this many characters, at least one of them visible.

    A reply of two characters per token (ours) then ends within its token limit. The
    reader accepts any length. The pattern makes vLLM choose llguidance: strings of
    bounded length in xgrammar cannot contain quotation marks.
    """
    return Field(json_schema_extra={"pattern": NON_BLANK, "maxLength": characters})


def limit_items(items: int) -> Any:
    """Request a list of at most this many items; the reader accepts any number."""
    return Field(json_schema_extra={"maxItems": items})


def limit_integer(numbers: range) -> Any:
    """Accept an integer of this range, without quotes or decimal point."""
    schema: dict[str, Any] = {"enum": list(numbers)}
    return Field(ge=numbers[0], le=numbers[-1], json_schema_extra=schema)


def match_word(*words: str) -> Any:
    """Accept one of these words, here in lower case, in any letter case."""
    lower = BeforeValidator(lambda v: v.lower() if isinstance(v, str) else v)
    return GetPydanticSchema(
        lambda _, handler: handler.generate_schema(Annotated[Literal[*words], lower])
    )


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
ASCII_CASE = re.IGNORECASE | re.ASCII  # not "ı" for "i", nor "ſ" for "s"
OPENING = re.compile("|".join(map(re.escape, REASONING)), ASCII_CASE)
CLOSING = re.compile("|".join(map(re.escape, REASONING.values())), ASCII_CASE)
FENCE = re.compile(r"```\w*\s*(\{.*\})\s*```", re.DOTALL)


def read_reply(
    reply: Reply, form: type[F], row: Mapping[str, Any] | None = None
) -> F | Failure:
    """Read the one object that a reply consists of.

    row: the fields of the prompt, for the validators of `form` that compare with them.
    """
    if reply.text is None:
        return Failure(*reply.error.removeprefix("not called: ").partition(": ")[::2])
    if not reply.finished:
        return Failure(f"cut off ({reply.finish_reason})", reply.text)
    try:
        text = _strip_reasoning(reply.text.strip())
        fence = FENCE.fullmatch(text)
        value = json.loads(
            fence[1] if fence else text, strict=False, object_pairs_hook=_make_object
        )
    except (ValueError, RecursionError):
        return Failure("not one JSON object alone", reply.text)
    try:
        return form.model_validate(value, context=row)
    except ValidationError:
        return Failure(f"not of the form {form.__name__}", reply.text)


def _strip_reasoning(text: str) -> str:
    """Remove a block of reasoning. Raises ValueError if other text precedes the object.

    A chat template that opens the reasoning itself leaves only the closing tag. A text
    that begins with its object has no reasoning: its strings may quote any tag.
    """
    if text.startswith(("{", "```")):
        return text
    closing = CLOSING.search(text)
    if not closing:
        raise ValueError("text before the object")
    reasoning = text[: closing.start()].lower()
    opening = OPENING.findall(reasoning)
    if opening and (
        not reasoning.startswith(opening[0])
        or [REASONING[tag] for tag in opening] != [closing[0].lower()]
    ):
        raise ValueError("reasoning within or before reasoning")
    return text[closing.end() :].strip()


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object. Raises ValueError if a key occurs twice."""
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key is given twice")
    return dict(pairs)
