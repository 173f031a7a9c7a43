"""Veri-R1's trajectories in a notebook, to step through: HTML that needs no script.

Each step is a `<details>` element whose summary tells what came of it. Styles are
inline and of the kinds that JupyterLab's sanitiser keeps; a mark and a word say what a
colour says.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from factkit.figures import PAGE
from factkit.verify.trajectory import (
    INFORMATION,
    NEI,
    Trajectory,
    answer_of,
    forced,
    steps,
)

if TYPE_CHECKING:
    from IPython.display import HTML

ENTRY = re.compile(r"^\[\[(.+?)\]\]: ?", re.MULTILINE)  # opens one that was found
LEFT = "text-align: left; line-height: 1.5"
TEXT = f"white-space: pre-wrap; {LEFT}"
STEP = "border: 1px solid #bbbbbb; margin: 3px 0px; background-color: white"
SUMMARY = f"cursor: pointer; padding: 3px 8px; background-color: #f4f4f4; {LEFT}"
BODY = f"padding: 3px 12px; {TEXT}"
CELL = f"vertical-align: top; padding: 4px 8px; border: 1px solid #dddddd; {LEFT}"
TABLE = "border-collapse: collapse; table-layout: fixed; width: 100%"
ROW = '<tr style="background-color: white">{}</tr>'
RIGHT, WRONG, MISSED = ("✓", "#cfe2f3"), ("✗", "#f9d5c3"), ("○", "#eeeeee")
BEGINNING = 60  # characters of a step that its summary shows


def trajectory_view(
    claim: str,
    label: str,
    gold: Sequence[str],
    trajectory: Trajectory,
    rewards: Mapping[str, float] | None = None,
) -> "HTML":
    """A claim's trajectory, to open step by step: plan, searches, thoughts, answer.

    label, gold: the claim's label and the ids of its evidence. A search tells which
    gold entries it found, the score what of the answer is right, wrong and missed.
    rewards: name → value, told in their order.
    """
    from IPython.display import HTML

    walked = _walked(label, gold, trajectory, rewards)
    return HTML(PAGE.format(f"{_head(claim, label, gold)}{walked}"))


def side_by_side(
    claim: str,
    label: str,
    gold: Sequence[str],
    trajectories: Mapping[str, Trajectory],
    rewards: Mapping[str, Mapping[str, float]] | None = None,
) -> "HTML":
    """Fig 11: trajectories of one claim in columns, each as `trajectory_view` has it.

    trajectories: arm → trajectory; rewards: arm → its rewards, of those that have some.
    """
    from IPython.display import HTML

    of = rewards or {}
    names = [f'<th style="{CELL}">{escape(name)}</th>' for name in trajectories]
    cells = [
        f'<td style="{CELL}">{_walked(label, gold, trajectory, of.get(name))}</td>'
        for name, trajectory in trajectories.items()
    ]
    rows = "".join(ROW.format("".join(row)) for row in (names, cells))
    table = f'<table style="{TABLE}">{rows}</table>'
    return HTML(PAGE.format(f"{_head(claim, label, gold)}{table}"))


def _head(claim: str, label: str, gold: Sequence[str]) -> str:
    ids = ", ".join(f"[[{i}]]" for i in gold) or "none"
    lines = {"Claim": claim, "Gold label": label, "Gold evidence": ids}
    told = "\n".join(f"<b>{name}:</b> {escape(of)}" for name, of in lines.items())
    return _line(told)


def _walked(
    label: str,
    gold: Sequence[str],
    trajectory: Trajectory,
    rewards: Mapping[str, float] | None,
) -> str:
    """The steps of a trajectory and its score."""
    made, found = [], {}
    for number, (kind, text, information) in enumerate(_merged(trajectory), 1):
        told, body = _beginning(text), _line(escape(text))
        if information is not None:
            entries = _entries(information)
            told += f" · {_recall(entries, gold)}"
            body += _listed(entries, gold, found) or _line(escape(information))
            found |= entries
        elif kind == "search":
            told += " · not answered"
        elif kind == "other":
            told += f" · {_marked(WRONG, 'outside of the tags')}"
        made.append(_step(f"{number} · <b>{kind}</b> {told}", body))
    return "".join(made) + _score(label, gold, trajectory, found, rewards)


def _merged(trajectory: Trajectory) -> list[tuple[str, str, str | None]]:
    """(kind, text, information) of each step: a search has what the system answered."""
    merged: list[tuple[str, str, str | None]] = []
    for kind, text in steps(trajectory):
        if kind != INFORMATION:
            merged.append((kind, text, None))
        elif merged and merged[-1][0] == "search" and merged[-1][2] is None:
            merged[-1] = ("search", merged[-1][1], text)
        else:
            merged.append((kind, "", text))
    return merged


def _entries(information: str) -> dict[str, str]:
    """Id → text of the entries in an information."""
    parts = ENTRY.split(information)
    return {i: text.strip() for i, text in zip(parts[1::2], parts[2::2], strict=True)}


def _recall(entries: Collection[str], gold: Sequence[str]) -> str:
    """How much of the gold evidence is among the entries."""
    if not gold:
        return f"{len(entries)} entries; there is no gold one"
    n = sum(i in entries for i in gold)
    return _marked(RIGHT if n else WRONG, f"{n} of {len(gold)} gold entries found")


def _listed(
    entries: Mapping[str, str], gold: Collection[str], before: Collection[str]
) -> str:
    """The entries of a search, the gold ones marked, and those known from before."""
    lines = []
    for i, text in entries.items():
        notes = [_marked(RIGHT, "gold")] if i in gold else []
        notes += ["seen before"] if i in before else []
        told = " · ".join([f"<b>[[{escape(i)}]]</b>", *notes])
        lines.append(_line(f"{told}\n{escape(text)}"))
    return "".join(lines)


def _score(
    label: str,
    gold: Sequence[str],
    trajectory: Trajectory,
    found: Collection[str],
    rewards: Mapping[str, float] | None,
) -> str:
    """What of the answer is right: label, evidence by id, and the rewards."""
    said = answer_of(trajectory)
    missed = [i for i in gold if i not in said.evidence]
    groups = (
        (RIGHT, "gold, cited", [i for i in said.evidence if i in gold]),
        (WRONG, "cited, not gold", [i for i in said.evidence if i not in gold]),
        (MISSED, "gold, found, not cited", [i for i in missed if i in found]),
        (MISSED, "gold, not found, not cited", [i for i in missed if i not in found]),
    )
    if not any(kind == INFORMATION for kind, _ in steps(trajectory)):  # offline
        groups = (*groups[:2], (MISSED, "gold, not cited", missed))
    marks = [(mark, name, i) for mark, name, ids in groups for i in ids]
    lines = [f"{_marked(mark, name)} [[{escape(i)}]]" for mark, name, i in marks]
    if label == NEI:
        lines.append(f"{NEI} needs no evidence.")
    if forced(trajectory):
        lines.append(_marked(WRONG, "the system had to open the answer"))
    if rewards:
        told = [f"{name.replace('_', ' ')} {v:.3g}" for name, v in rewards.items()]
        lines.append(f"<b>Rewards:</b> {escape(' · '.join(told))}")
    right = _marked(RIGHT if said.label == label else WRONG, said.label or "no label")
    counts = [
        f"{sign} {sum(mark[0] == sign for mark, *_ in marks)}"
        for sign, _ in (RIGHT, WRONG, MISSED)
    ]
    summary = f"<b>score</b> · {right} · evidence: {', '.join(counts)}"
    return _step(summary, "".join(map(_line, lines)), opened=True)


def _step(summary: str, body: str, opened: bool = False) -> str:
    """A step to open; both are HTML."""
    attribute = " open" if opened else ""
    head = f'<summary style="{SUMMARY}">{summary}</summary>'
    return f'<details{attribute} style="{STEP}">{head}{body}</details>'


def _line(html: str) -> str:
    return f'<div style="{BODY}">{html}</div>'


def _marked(mark: tuple[str, str], text: str) -> str:
    sign, colour = mark
    style = f"background-color: {colour}; padding: 0px 4px; border-radius: 3px"
    return f'<span style="{style}">{sign} {escape(text)}</span>'


def _beginning(text: str) -> str:
    """The first words of a text, on one line."""
    line = " ".join(text.split())
    return escape(line if len(line) <= BEGINNING else f"{line[:BEGINNING]}…")
