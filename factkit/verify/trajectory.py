"""Trajectories of a policy that verifies a claim (Veri-R1 §2.2, App. G).

With search (online), the model plans once, then up to three times searches, is given
information by the system and thinks, and finally answers:

    <plan>…</plan>
    <search>query</search> <information>…</information> <think>…</think>
    <answer>
    Label: SUPPORT
    Evidence: [[id]], [[id]]
    </answer>

Offline, the evidence is in the prompt, and the model thinks and answers.

Labels and ids are read tolerantly, so that a slip of form costs only the reward of
form; `is_well_formed` is strict. No tag within the system's information counts: a page
can neither answer nor break the form. All functions take time linear in the text.
"""

import re
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from factkit import prompts
from factkit.data.corpus import Chunk, format_chunks
from factkit.data.examples import LABELS

NEI = LABELS[2]
MAX_SEARCHES = 3  # App. B
INFORMATION, OTHER = "information", "other"
OPEN_INFORMATION, CLOSE_INFORMATION = "<information>", "</information>"
_OPENING = {f"<{kind}>": kind for kind in ("plan", "search", "think", "answer")}

_TAG = re.compile(r"(</?[^\W\d]\w*>)")  # <word> or </word>; neither a < b nor <3>
# The kinds of steps by their first letters
_ONLINE, _OFFLINE = re.compile("p(?:sit+)*a"), re.compile("t+a")
_LABEL = re.compile(r"^[^\S\n]*label\s*:\s*(.*)", re.IGNORECASE | re.MULTILINE)
_LABEL_LINE = re.compile(r"\s*label\s*:[^\n]*\n\s*", re.IGNORECASE)
_EVIDENCE = re.compile(r"\bevidence\s*:", re.IGNORECASE)
_BETWEEN = re.compile(r"\]\s*(?:,\s*)?\[")  # ids of App. G's [[a], [b]]
_SEPARATORS = string.whitespace + ",;"  # of ids
_COMMA = re.compile(r"\]\]\s*,\s*\[\[")


class Turn(NamedTuple):
    """A piece of text after the prompt; in JSON [text, by_model].

    by_model: False for what the system inserts: information in its tags, or the opening
    of an answer that the model did not reach.
    """

    text: str
    by_model: bool


Trajectory = Sequence[Turn]


@dataclass(frozen=True)
class Answer:
    """label: one of LABELS, None if unreadable; evidence: distinct ids, in order."""

    label: str | None
    evidence: tuple[str, ...]


@dataclass
class Step:
    """The text in a pair of tags, or outside of them.

    kind: plan, search, information, think or answer; outside "other". closed: both tags
    are there. tagged: it contains further tags.
    """

    kind: str
    texts: list[str] = field(default_factory=list)
    closed: bool = False
    tagged: bool = False

    @property
    def text(self) -> str:
        """The text without its tags and outer white space."""
        return "".join(self.texts).strip()


def format_information(pieces: Iterable[Chunk]) -> str:
    """Format the chunks found as the system's information (Fig 9), on its own lines."""
    texts = prompts.neutral(format_chunks(pieces))
    return f"\n{OPEN_INFORMATION}\n{texts}\n{CLOSE_INFORMATION}\n"


def parse_steps(trajectory: Trajectory) -> list[Step]:
    """Split a trajectory at the protocol's tags; blank text outside of them is dropped.

    An opening tag ends an open step. But the model's `<answer>` within another step or
    an open `<think>` is text, as are all other tags and the model's `<information>`.
    """
    steps, thinking = [Step(OTHER)], False
    for turn in trajectory:
        if (content := _read_information(turn)) is not None:
            steps += [Step(INFORMATION, [content], closed=True), Step(OTHER)]
            thinking = False
            continue
        for i, token in enumerate(_TAG.split(turn.text)):  # odd tokens are tags
            step = steps[-1]
            inside = thinking or step.kind not in (OTHER, "answer")
            quoted = token == "<answer>" and inside and turn.by_model
            if token in _OPENING and not quoted:
                steps.append(Step(_OPENING[token]))
                thinking = token == "<think>" or (thinking and turn.by_model)
            elif step.kind != OTHER and token == f"</{step.kind}>":
                step.closed = True
                steps.append(Step(OTHER))
            else:
                step.texts.append(token)
                step.tagged |= i % 2 == 1
            thinking &= token != "</think>"
    return [step for step in steps if step.kind != OTHER or step.text]


def extract_queries(trajectory: Trajectory) -> list[str]:
    """Extract the model's search queries."""
    steps = parse_steps(trajectory)
    return [step.text for step in steps if step.kind == "search" and step.closed]


def is_forced(trajectory: Trajectory) -> bool:
    """Whether the system had to open the answer: it wrote more than information."""
    texts = [turn for turn in trajectory if not turn.by_model and turn.text.strip()]
    return any(_read_information(turn) is None for turn in texts)


def parse_answer(trajectory: Trajectory) -> Answer:
    """Read the label and the evidence of the last closed answer.

    Label: SUPPORT, REFUTE or NOT ENOUGH INFO in any case and spacing, alone between one
    `Label:` at a line's start and the line's end or `Evidence:`. All else is None, also
    NEI, SUPPORTS and two labels.
    Evidence: the ids after `Evidence:`, as `[[a]], [[b]]`, with or without commas, or
    as in App. G, `[[a], [b]]`; none if anything but ids, commas, semicolons and white
    space follows. An id may contain commas, but no `[[`, `]]` or `], [`.
    """
    steps = reversed(parse_steps(trajectory))
    text = next((s.text for s in steps if s.kind == "answer" and s.closed), "")
    evidence = "".join(_EVIDENCE.split(text, maxsplit=1)[1:])
    return Answer(_read_label(text), tuple(dict.fromkeys(_read_ids(evidence))))


def is_well_formed(
    trajectory: Trajectory, online: bool, max_searches: int = MAX_SEARCHES
) -> bool:
    """Whether a trajectory obeys the rules of R_format (§2.3, Fig 9 and 10).

    - Online: plan (search information think …) … answer, with none to max_searches
      searches. Offline: think … answer. "…" repeats the step or group before it.
    - All steps are closed and only white space is outside of them. They may be empty.
    - The model's steps contain no other `<word>` or `</word>`, not even `<information>`
      (§2.3 would accept it after `</search>`: the public code cannot tell who wrote
      it). A bare `<` is allowed.
    - The answer is a readable `Label:` line and `Evidence:` with `[[id]], [[id]]`; only
      NOT ENOUGH INFO may have none. The system did not have to open the answer.
    """
    steps = parse_steps(trajectory)
    if is_forced(trajectory) or not all(s.closed and not s.tagged for s in steps):
        return False
    order = "".join(step.kind[0] for step in steps)
    if not (_ONLINE if online else _OFFLINE).fullmatch(order):
        return False
    return order.count("s") <= max_searches and _is_formed_answer(steps[-1].text)


def _is_formed_answer(text: str) -> bool:
    head, *rest = _EVIDENCE.split(text, maxsplit=1)
    label = _read_label(head)
    if not label or not rest or not _LABEL_LINE.fullmatch(head):
        return False
    evidence = rest[0].strip()
    if not evidence:
        return label == NEI
    # the two differ where there is other text around or between the ids
    ids = [part.strip() for part in _COMMA.split(evidence[2:-2])]
    return ids == _read_ids(evidence)


def _read_label(text: str) -> str | None:
    lines = _LABEL.findall(text)
    if len(lines) != 1:
        return None
    label = " ".join(_EVIDENCE.split(lines[0])[0].upper().split())
    return label if label in LABELS else None


def _read_ids(evidence: str) -> list[str]:
    """Read the ids, with repeats; none if there is other text."""
    *closed, rest = evidence.split("]]")
    groups = [text.rpartition("[[") for text in closed]
    between = "".join(before for before, _, _ in groups) + rest
    if between.strip(_SEPARATORS) or not all(opened for _, opened, _ in groups):
        return []
    ids = [id for _, _, group in groups for id in _BETWEEN.split(group)]
    return [id.strip() for id in ids if id.strip()]


def _read_information(turn: Turn) -> str | None:
    """Read what the system gives in the tags of information; None for other turns."""
    text = turn.text.strip()
    tagged = text.startswith(OPEN_INFORMATION) and text.endswith(CLOSE_INFORMATION)
    if turn.by_model or not tagged:
        return None
    return text.removeprefix(OPEN_INFORMATION).removesuffix(CLOSE_INFORMATION)
