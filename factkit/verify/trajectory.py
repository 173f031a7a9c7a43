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
alone; ids are compared as they stand, and `well_formed` is strict. What the system
writes as information is never searched for tags: a page can neither answer nor break
the form. Everything here takes time linear in the text and raises on none.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from factkit import prompts
from factkit.retrieval.chunks import Chunk, listed
from factkit.world.facts import LABELS

NEI = LABELS[2]
MAX_SEARCHES = 3  # App. B
INFORMATION, OTHER = "information", "other"
_OPENS = {f"<{kind}>": kind for kind in ("plan", "search", "think", "answer")}
OPEN_INFORMATION, CLOSE_INFORMATION = "<information>", "</information>"

_TAG = re.compile(r"(</?[^\W\d]\w*>)")  # <word> or </word>; neither a < b nor <3>
# The kinds of steps by their first letters
_ONLINE, _OFFLINE = re.compile("p(?:sit+)*a"), re.compile("t+a")
_LABEL = re.compile(r"^[^\S\n]*label\s*:\s*(.*)", re.IGNORECASE | re.MULTILINE)
_LABEL_LINE = re.compile(r"\s*label\s*:[^\n]*\n\s*", re.IGNORECASE)
_EVIDENCE = re.compile(r"\bevidence\s*:", re.IGNORECASE)
_BETWEEN = re.compile(r"\]\s*(?:,\s*)?\[")  # ids of App. G's [[a], [b]]
_COMMA = re.compile(r"\]\]\s*,\s*\[\[")


@dataclass(frozen=True)
class Turn:
    """A piece of what follows the prompt.

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


def from_rows(rows: Sequence[Sequence]) -> list[Turn]:
    """The trajectory of its JSON, [[text, by_model], …]. Raises ValueError on another
    shape."""
    turns = [Turn(*row) for row in rows if len(row) == 2]
    typed = all(isinstance(t.text, str) and isinstance(t.by_model, bool) for t in turns)
    if len(turns) != len(rows) or not typed:
        raise ValueError(f"no [[text, by_model], …]: {str(rows)[:120]}")
    return turns


def as_rows(trajectory: Trajectory) -> list[list]:
    """[[text, by_model], …], for JSON."""
    return [[turn.text, turn.by_model] for turn in trajectory]


def information(pieces: Iterable[Chunk]) -> str:
    """What the system inserts of what was found (Fig 9), with the lines around it."""
    texts = prompts.neutral(listed(pieces))
    return f"\n{OPEN_INFORMATION}\n{texts}\n{CLOSE_INFORMATION}\n"


# ---- steps


def steps(trajectory: Trajectory) -> list[tuple[str, str]]:
    """(kind, text) of each step: plan, search, information, think, answer or other.

    Texts are without their tags and outer space. A tag that opens a step ends one that
    was left open. "other" is what stands outside of the protocol's tags, with any tags
    in it (an `<information>` of the model's own, too); it is left out if it is space.
    """
    parts = [(part.kind, part.text.strip()) for part in _parts(trajectory)]
    return [(kind, text) for kind, text in parts if kind != OTHER or text]


def plan(trajectory: Trajectory) -> str:
    """The text of the first plan, "" without one."""
    return next(iter(_closed(trajectory, "plan")), "")


def queries(trajectory: Trajectory) -> list[str]:
    """What the model searched for."""
    return _closed(trajectory, "search")


def thoughts(trajectory: Trajectory) -> list[str]:
    """The texts of the model's thinking, in order."""
    return _closed(trajectory, "think")


def forced(trajectory: Trajectory) -> bool:
    """Whether the system had to open the answer: it wrote more than information."""
    theirs = [turn.text for turn in trajectory if not turn.by_model]
    return any(text.strip() and _information(text) is None for text in theirs)


# ---- the answer


def answer_of(trajectory: Trajectory) -> Answer:
    """The label and the evidence of the last `<answer>…</answer>`.

    The system may have opened it, and have written `Label:`, too. Without one that is
    closed there is neither label nor evidence.

    Label: SUPPORT, REFUTE or NOT ENOUGH INFO in any case and spacing, alone between one
    `Label:` at a line's start and the line's end or `Evidence:`. Anything else is None:
    NEI and SUPPORTS are no labels of the protocol, and of two labels none is chosen.
    Evidence: the ids in all that follows `Evidence:`, as `[[a]], [[b]]`, commas or not,
    or as App. G has them, `[[a], [b]]`. A comma may be part of an id: `[[a, b]]` is
    one. An id holds no `[[`, `]]` or `], [`.
    """
    said = (_closed(trajectory, "answer") or [""])[-1]
    _, _, listed = _split(said)
    return Answer(_label(said), tuple(dict.fromkeys(_ids(listed))))


def _label(said: str) -> str | None:
    found = _LABEL.findall(said)
    if len(found) != 1:
        return None
    label = " ".join(_split(found[0])[0].upper().split())
    return label if label in LABELS else None


def _ids(listed: str) -> list[str]:
    """The ids of an evidence list, as often as they are there."""
    groups = [before.rpartition("[[") for before in listed.split("]]")[:-1]]
    ids = [id for _, opened, of in groups if opened for id in _BETWEEN.split(of)]
    return [id.strip() for id in ids if id.strip()]


def _split(said: str) -> tuple[str, str, str]:
    """What stands before the first `Evidence:`, it, and what follows."""
    found = _EVIDENCE.search(said)
    if not found:
        return said, "", ""
    return said[: found.start()], found[0], said[found.end() :]


# ---- the form


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
    parts = _parts(trajectory)
    if forced(trajectory) or not all(part.sound for part in parts):
        return False
    order = "".join(part.kind[0] for part in parts if part.kind != OTHER)
    if not (_ONLINE if online else _OFFLINE).fullmatch(order):
        return False
    said = next(part.text for part in parts if part.kind == "answer")
    return order.count("s") <= max_searches and _of_the_form(said)


def _of_the_form(said: str) -> bool:
    """Whether an answer is a label line and a list of evidence, and nothing else."""
    head, _, listed = _split(said)
    label, listed = _label(head), listed.strip()
    if not label or not _LABEL_LINE.fullmatch(head):
        return False
    if not listed:
        return label == NEI and bool(_EVIDENCE.search(said))
    # with anything else around or between the ids, the two read it differently
    return [item.strip() for item in _COMMA.split(listed[2:-2])] == _ids(listed)


# ---- parts


@dataclass
class _Part:
    """What a pair of tags holds, or what stands outside of any (OTHER)."""

    kind: str
    texts: list[str] = field(default_factory=list)
    closed: bool = False
    tagged: bool = False  # it holds further tags

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def sound(self) -> bool:
        whole = self.closed or (self.kind == OTHER and not self.text.strip())
        return whole and not self.tagged


def _parts(trajectory: Trajectory) -> list[_Part]:
    """The trajectory cut at the protocol's tags; other tags are text."""
    found = [_Part(OTHER)]
    for text, by_model in _joined(trajectory):
        shown = None if by_model else _information(text)
        if shown is not None:
            found += [_Part(INFORMATION, [shown], closed=True), _Part(OTHER)]
            continue
        for i, token in enumerate(_TAG.split(text)):  # every second one is a tag
            now = found[-1]
            if token in _OPENS:
                found.append(_Part(_OPENS[token]))
            elif now.kind != OTHER and token == f"</{now.kind}>":
                now.closed = True
                found.append(_Part(OTHER))
            else:
                now.texts.append(token)
                now.tagged |= i % 2 == 1
    return found


def _closed(trajectory: Trajectory, kind: str) -> list[str]:
    """The texts of the steps of a kind that both tags stand around."""
    parts = _parts(trajectory)
    return [part.text.strip() for part in parts if part.kind == kind and part.closed]


def _joined(trajectory: Trajectory) -> Iterator[tuple[str, bool]]:
    """(text, by_model), what the model wrote in one go in one piece."""
    for by_model, turns in groupby(trajectory, key=lambda turn: turn.by_model):
        texts = [turn.text for turn in turns]
        yield from [("".join(texts), True)] if by_model else [(t, False) for t in texts]


def _information(text: str) -> str | None:
    """What a text in the tags of information holds; None if it is something else."""
    text = text.strip()
    if not (text.startswith(OPEN_INFORMATION) and text.endswith(CLOSE_INFORMATION)):
        return None
    return text[len(OPEN_INFORMATION) : -len(CLOSE_INFORMATION)]
