"""Prompt templates, one file each, in our own words; what is said under them."""

import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol


class Question(Protocol):
    """What a template is filled with: an `Example`, say."""

    question: str
    meta: dict[str, Any]


def template(name: str) -> str:
    """The text of a template: a name in this folder, or a path to the user's own file.

    Raises FileNotFoundError naming the templates that there are.
    """
    folder = Path(str(files(__package__)))
    path = folder / f"{name}.txt" if "/" not in name and "." not in name else Path(name)
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.txt")))
        raise FileNotFoundError(f"no prompt template {name!r}; there are: {known}")
    return path.read_text(encoding="utf-8-sig").removesuffix("\n")


def ask(text: str, example: Question) -> str:
    """A template filled with an example's question and, where it has places for them,
    its references and the time it was asked (`meta`; empty if there are none)."""
    fields = {"question": example.question}
    for field in ("references", "query_time"):
        if f"{{{field}}}" in text:
            fields[field] = example.meta.get(field, "")
    return fill(text, **fields)


def reasoned(reasoning: str, answer: str) -> str:
    r"""A response as Table 9 of TruthRL asks for: reasoning, then the boxed answer."""
    return f"<think> {reasoning} </think> \\boxed{{{answer}}}"


def completion_texts(completions: Sequence[str | list[dict[str, str]]]) -> list[str]:
    """The texts of TRL's completions, which are messages where prompts are."""
    return [c if isinstance(c, str) else c[0]["content"] for c in completions]


# Where a control token of a usual chat template begins: ChatML, Llama 2 to 4, Gemma,
# Mistral, Qwen, DeepSeek, GLM
ANGLED = "s|bos|eos|pad|unk|sop|think|start_of_turn|end_of_turn|tool_call|tool_response"
SQUARE = "INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|THINK|gMASK"
CONTROL = re.compile(rf"<(?=[|｜]|/?(?:{ANGLED}|SYS>)>)|\[(?=/?(?:{SQUARE})\])")


def neutral(text: str) -> str:
    """A text in which no chat template's control token is one any more: a space parts
    the first bracket from what follows, as in "< |im_end|>"."""
    return CONTROL.sub(r"\g<0> ", text)


def fill(text: str, **fields: str) -> str:
    """Put the fields, made `neutral`, into a template's {places}; other braces stay as
    they are."""
    for field in fields:
        if text.count(f"{{{field}}}") != 1:
            raise ValueError(f"the template must hold {{{field}}} exactly once")
    parts = {f"{{{field}}}": neutral(value) for field, value in fields.items()}
    return re.sub("|".join(map(re.escape, parts)), lambda m: parts[m[0]], text)
