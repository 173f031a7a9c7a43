"""Figures 5 to 8 of Veri-R1: how sure a policy is of its labels, and of which rightly.

A confidence is the probability that a policy gives the label it writes; the paper calls
it a logit, and draws it on a logarithmic scale in its appendix.
"""

from collections.abc import Mapping, Sequence
from math import exp, log
from typing import TYPE_CHECKING

import numpy as np

from factkit.evaluate.claim_verification import HIGH, LOW, SHORT, Verified
from factkit.figures import (
    ABSTAIN,
    ARM_COLOURS,
    CORRECT,
    LINES,
    PUBLISHED,
    look,
    new_figure,
    percent_axis,
)
from factkit.figures.veri import LEGEND, TOLD, say, spaced
from factkit.verify.trajectory import LABELS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# (label said, whether it is right, its probability) of answers that have both
Answers = list[tuple[str, bool, float]]
AnswersByArm = Mapping[str, Answers]
FLOOR = -30.0  # ln p of the first bin, which holds what is lower


def answers_of(rows: Sequence[Verified]) -> Answers:
    """The answers of verified claims."""
    return [
        (said, row.right(said), row.label_probability)
        for row in rows
        if (said := row.answer.label) and row.label_probability is not None
    ]


def stored_answers(items: "pd.DataFrame") -> Answers:
    """The answers of a run's items.csv."""
    found = []
    for label, short in SHORT.items():
        name = f"{short}_confidence"
        if name in items:
            of = items[items[name].notna()]
            pairs = zip(of["label_accuracy"], of[name], strict=True)
            found += [(label, right == 1, sure) for right, sure in pairs]
    return found


def label_probabilities(answers: AnswersByArm) -> "Figure":
    """Fig 5a–b: how likely the labels are that each arm writes, by label.

    Shares of the answers with that label, in bins of 5 %. Dotted: where confidence
    stops being low and starts being high. Answers without a label or a probability are
    left out.
    """
    edges = np.arange(21) / 20
    figure, axes = _panels(answers)
    for ax, (arm, known) in zip(axes, answers.items(), strict=True):
        for i, label in enumerate(LABELS):
            found = [p for said, _, p in known if said == label]
            if found:
                share = np.histogram(np.clip(found, 0, 1), edges)[0] / len(found)
                style = {"color": ARM_COLOURS[i], "ls": LINES[i], "lw": 1.6}
                name = f"{label} (n = {len(found)})"
                ax.stairs(share, edges, **style, baseline=None, label=name)
        for limit in (LOW, HIGH):
            ax.axvline(limit, color=PUBLISHED, ls=":", lw=1)
        ax.set_xlim(0, 1)
        ax.set_ylim(bottom=0)
        ax.set_xlabel("probability of the label that is written")
        percent_axis(ax, "answers with the label")
        ax.set_title(spaced(arm), fontsize=10, loc="left")
        if known:
            ax.legend(**LEGEND, loc="upper left")
        else:
            say(ax, "no label has a probability")
    return figure


def label_log_probabilities(answers: AnswersByArm) -> "Figure":
    """Figs 6–8: the logarithm of the same probabilities, a panel a label.

    Shares are on a logarithmic scale, for answers of low confidence are rare.
    """
    figure, axes = new_figure(11.0, 3.4, columns=len(LABELS))
    lowest = min((p for of in answers.values() for *_, p in of), default=1.0)
    least = min(log(max(lowest, exp(FLOOR))), -1.0)
    edges = np.linspace(least, 0.0, 31)
    for ax, label in zip(axes, LABELS, strict=True):
        for i, (arm, of) in enumerate(answers.items()):
            found = [p for said, _, p in of if said == label]
            if found:
                logs = np.clip(np.log(np.maximum(found, exp(FLOOR))), least, 0)
                share = np.histogram(logs, edges)[0] / len(found)
                colour, style, _ = look(i)
                name = f"{spaced(arm)} (n = {len(found)})"
                looks = {"color": colour, "ls": style, "lw": 1.6, "label": name}
                ax.stairs(np.where(share > 0, share, np.nan), edges, **looks)
        ax.set_title(label, fontsize=10, loc="left")
        ax.set_xlabel("ln of the label's probability")
        ax.set_xlim(least, 0)
        _log_percent(ax, "answers with the label")
        if ax.patches:
            ax.legend(**LEGEND, loc="upper left")
        else:
            say(ax, "no such answers")
    return figure


def accuracy_by_confidence(answers: AnswersByArm) -> "Figure":
    """Fig 5c–d: how many of the labels written with low (< 0.85) and with high
    (> 0.95) confidence are right, by label.

    The number of answers stands on each bar; those between are told below.
    """
    figure, axes = _panels(answers)
    tiers = (
        ("low: below 85 %", -0.2, ABSTAIN, lambda p: p < LOW),
        ("high: above 95 %", 0.2, CORRECT, lambda p: p > HIGH),
    )
    for ax, (arm, known) in zip(axes, answers.items(), strict=True):
        said = [[of for of in known if of[0] == label] for label in LABELS]
        for name, shift, colour, inside in tiers:
            found = [[right for _, right, p in of if inside(p)] for of in said]
            share = [sum(of) / len(of) if of else 0.0 for of in found]
            places = [x + shift for x in range(len(LABELS))]
            style = {"color": colour, "ec": "black", "lw": 0.6, "label": name}
            drawn = ax.bar(places, share, 0.38, **style)
            ax.bar_label(drawn, [f"n={len(of)}" for of in found], fontsize=8, padding=2)
        between = [sum(LOW <= p <= HIGH for *_, p in of) for of in said]
        names = [
            f"{s}\n({n} between)" for s, n in zip(TOLD.values(), between, strict=True)
        ]
        ax.set_xticks(range(len(LABELS)), names, fontsize=8)
        ax.set_xlabel(f"label said · {spaced(arm)}")
        ax.set_ylim(0, 1.1)
        percent_axis(ax, "labels that are right")
    handles = axes[0].get_legend_handles_labels()
    style = LEGEND | {"loc": "outside upper center", "ncols": 2}
    figure.legend(*handles, **style, title="confidence", title_fontsize=8)
    return figure


def _panels(answers: AnswersByArm) -> tuple:
    """A figure with a panel an arm. Raises ValueError without an arm."""
    if not answers:
        raise ValueError("no arm's answers to draw")
    n = len(answers)
    figure, _ = new_figure(4.2 * n + 0.4, 3.6, columns=n)
    return figure, figure.axes


def _log_percent(ax: "Axes", label: str) -> None:
    """A logarithmic y axis that shows fractions as per cent."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    ax.set_yscale("log")
    ax.set_ylim(top=1.3)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_ylabel(f"{label} (%)")
