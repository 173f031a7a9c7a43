"""Reading what a policy does to verify a claim: its trajectory (Veri-R1 §2.2, App. G).

With search (online), the model plans once, then up to three times searches, is given
information and thinks, and at last answers; the system writes the information:

    <plan>…</plan>
    <search>query</search> <information>…</information> <think>…</think>
    <answer>
    Label: SUPPORT
    Evidence: [[id]], [[id]]
    </answer>

Offline, the evidence is in the prompt, and the model thinks and answers.

Labels and ids are read tolerantly, so that a slip of form costs the reward of form
alone; `well_formed` is strict. But an answer inside of another step is no answer, and
an evidence list with anything but ids in it cites nothing. What the system writes as
information is never searched for tags: a page can neither answer nor break the form.
Everything here takes time linear in the text and raises on none.
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
_OPENS = {f"<{kind}>": kind for kind in ("plan", "search", "think", "answer")}

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
    """A piece of what follows the prompt; in JSON [text, by_model].

    by_model: False for what the system inserts: information in its tags, or, where the
    model has not come to it, an opening of the answer.
    """

    text: str
    by_model: bool


Trajectory = Sequence[Turn]


@dataclass(frozen=True)
class Answer:
    """label: one of LABELS, None if unreadable; evidence: ids, each once, in order."""

    label: str | None
    evidence: tuple[str, ...]


@dataclass
class Step:
    """What a pair of tags holds (plan, search, information, think or answer), or what
    stands outside of them ("other").

    closed: both tags are there. tagged: it holds further tags.
    """

    kind: str
    texts: list[str] = field(default_factory=list)
    closed: bool = False
    tagged: bool = False

    @property
    def text(self) -> str:
        """Without its tags and outer space."""
        return "".join(self.texts).strip()


def information(pieces: Iterable[Chunk]) -> str:
    """What the system inserts of what was found (Fig 9), with the lines around it."""
    texts = prompts.neutral(format_chunks(pieces))
    return f"\n{OPEN_INFORMATION}\n{texts}\n{CLOSE_INFORMATION}\n"


def steps(trajectory: Trajectory) -> list[Step]:
    """The trajectory cut at the protocol's tags.

    A tag that opens a step ends one that was left open, but for the model's `<answer>`,
    which is text inside of another step or of a `<think>` without its end. Other tags,
    the model's own `<information>` too, are text. "other" is left out if it is space.
    """
    made, thinking = [Step(OTHER)], False
    for turn in trajectory:
        if (information := _information(turn)) is not None:
            made += [Step(INFORMATION, [information], closed=True), Step(OTHER)]
            thinking = False
            continue
        for i, token in enumerate(_TAG.split(turn.text)):  # every second one is a tag
            step = made[-1]
            inside = thinking or step.kind not in (OTHER, "answer")
            if token in _OPENS and not (
                token == "<answer>" and inside and turn.by_model
            ):
                made.append(Step(_OPENS[token]))
                thinking = token == "<think>" or (thinking and turn.by_model)
            elif step.kind != OTHER and token == f"</{step.kind}>":
                step.closed = True
                made.append(Step(OTHER))
            else:
                step.texts.append(token)
                step.tagged |= i % 2 == 1
            thinking &= token != "</think>"
    return [step for step in made if step.kind != OTHER or step.text]


def queries(trajectory: Trajectory) -> list[str]:
    """What the model searched for."""
    return [s.text for s in steps(trajectory) if s.kind == "search" and s.closed]


def forced(trajectory: Trajectory) -> bool:
    """Whether the system had to open the answer: it wrote more than information."""
    theirs = [turn for turn in trajectory if not turn.by_model and turn.text.strip()]
    return any(_information(turn) is None for turn in theirs)


def answer_of(trajectory: Trajectory) -> Answer:
    """The label and the evidence of the last `<answer>…</answer>`.

    The system may have opened it, and have written `Label:`, too. Without one that is
    closed there is neither label nor evidence.

    Label: SUPPORT, REFUTE or NOT ENOUGH INFO in any case and spacing, alone between one
    `Label:` at a line's start and the line's end or `Evidence:`. Anything else is None:
    NEI and SUPPORTS are no labels of the protocol, and of two labels none is chosen.
    Evidence: the ids in all that follows `Evidence:`, as `[[a]], [[b]]`, commas or not,
    or as App. G has them, `[[a], [b]]`; none where anything but ids, commas, semicolons
    and white space follows. A comma may be part of an id: `[[a, b]]` is one. An id
    holds no `[[`, `]]` or `], [`.
    """
    answers = [s.text for s in steps(trajectory) if s.kind == "answer" and s.closed]
    text = answers[-1] if answers else ""
    _, *rest = _EVIDENCE.split(text, maxsplit=1)
    return Answer(_label(text), tuple(dict.fromkeys(_ids("".join(rest)))))


def well_formed(
    trajectory: Trajectory, online: bool, max_searches: int = MAX_SEARCHES
) -> bool:
    """R_format's rules (§2.3, the protocol of Fig 9 and 10).

    - The model writes `<plan>`, `<search>`, `<think>`, `<answer>` and the tags that
      close them, one step after the other, and the system `<information>`. Any other
      `<word>` or `</word>` of the model's, its own `<information>` too, breaks the
      form; a bare `<` does not. (§2.3 would pass an `<information>` that follows a
      `</search>`, since the public code can't tell who wrote it; we can.)
    - Online: plan (search information think) … answer. Each information is thought
      about, at once; in more than one `<think>` if the model likes. No search at all is
      of the form ("repeat until conclusion"), more than max_searches are not. Offline:
      `<think>`, one or more, and the answer.
    - Outside of tags, after the answer too, is only space. Steps may be empty.
    - The answer is a `Label:` line that can be read and `Evidence:` with
      `[[id]], [[id]]`, nothing else. NOT ENOUGH INFO may have no evidence, with nothing
      after `Evidence:`; the other two are defined by the evidence that they cite.
    - The system did not have to open the answer.
    """
    made = steps(trajectory)
    if forced(trajectory) or not all(s.closed and not s.tagged for s in made):
        return False
    order = "".join(step.kind[0] for step in made)
    if not (_ONLINE if online else _OFFLINE).fullmatch(order):
        return False
    return order.count("s") <= max_searches and _formed_answer(made[-1].text)


def _formed_answer(text: str) -> bool:
    """Whether an answer is a label line and a list of evidence, and nothing else."""
    head, *rest = _EVIDENCE.split(text, maxsplit=1)
    label = _label(head)
    if not label or not rest or not _LABEL_LINE.fullmatch(head):
        return False
    written = rest[0].strip()
    if not written:
        return label == NEI
    # with anything else around or between the ids, the two read it differently
    return [part.strip() for part in _COMMA.split(written[2:-2])] == _ids(written)


def _label(text: str) -> str | None:
    lines = _LABEL.findall(text)
    if len(lines) != 1:
        return None
    label = " ".join(_EVIDENCE.split(lines[0])[0].upper().split())
    return label if label in LABELS else None


def _ids(written: str) -> list[str]:
    """The ids of an evidence list, as often as they are there; none of another text."""
    *closed, rest = written.split("]]")
    groups = [text.rpartition("[[") for text in closed]
    between = "".join(before for before, _, _ in groups) + rest
    if between.strip(_SEPARATORS) or not all(opened for _, opened, _ in groups):
        return []
    ids = [id for _, _, group in groups for id in _BETWEEN.split(group)]
    return [id.strip() for id in ids if id.strip()]


def _information(turn: Turn) -> str | None:
    """What the system tells in the tags of information; None for any other turn."""
    text = turn.text.strip()
    shown = text.startswith(OPEN_INFORMATION) and text.endswith(CLOSE_INFORMATION)
    if turn.by_model or not shown:
        return None
    return text.removeprefix(OPEN_INFORMATION).removesuffix(CLOSE_INFORMATION)
