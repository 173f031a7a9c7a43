"""Figures 5 to 8 of Veri-R1: how sure a policy is of its labels, and of which rightly.

A confidence is the probability that a policy gives the label it writes; the paper calls
it a logit, and draws it on a logarithmic scale in its appendix.
"""

from collections.abc import Mapping, Sequence
from math import exp, log
from typing import TYPE_CHECKING

import numpy as np

from factkit.figures import (
    ABSTAIN,
    ARM_COLOURS,
    CORRECT,
    LEGEND,
    LINES,
    PUBLISHED,
    look,
    new_figure,
    percent_axis,
    say,
    spaced,
)
from factkit.veri.evaluate import HIGH, LOW, SHORT, Verified
from factkit.veri.figures import TOLD
from factkit.verify.trajectory import LABELS

if TYPE_CHECKING:
    import pandas as pd
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
    answers = []
    for label, short in SHORT.items():
        name = f"{short}_confidence"
        if name in items:
            rows = items[items[name].notna()]
            pairs = zip(rows["label_accuracy"], rows[name], strict=True)
            answers += [(label, right == 1, sure) for right, sure in pairs]
    return answers


def label_probabilities(answers: AnswersByArm) -> "Figure":
    """Fig 5a–b: how likely the labels are that each arm writes, by label.

    Shares of the answers with that label, in bins of 5 %. Dotted: where confidence
    stops being low and starts being high. Answers without a label or a probability are
    left out.
    """
    edges = np.arange(21) / 20
    figure, _ = new_figure(4.2 * len(answers) + 0.4, 3.6, columns=len(answers))
    for ax, (arm, known) in zip(figure.axes, answers.items(), strict=True):
        for i, label in enumerate(LABELS):
            sure = [p for said, _, p in known if said == label]
            if sure:
                share = np.histogram(np.clip(sure, 0, 1), edges)[0] / len(sure)
                style = {"color": ARM_COLOURS[i], "ls": LINES[i], "lw": 1.6}
                name = f"{label} (n = {len(sure)})"
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
    lowest = min((p for known in answers.values() for *_, p in known), default=1.0)
    least = min(log(max(lowest, exp(FLOOR))), -1.0)
    edges = np.linspace(least, 0.0, 31)
    for ax, label in zip(axes, LABELS, strict=True):
        for i, (arm, known) in enumerate(answers.items()):
            sure = [p for said, _, p in known if said == label]
            if sure:
                logs = np.clip(np.log(np.maximum(sure, exp(FLOOR))), least, 0)
                share = np.histogram(logs, edges)[0] / len(sure)
                colour, style, _ = look(i)
                name = f"{spaced(arm)} (n = {len(sure)})"
                looks = {"color": colour, "ls": style, "lw": 1.6, "label": name}
                ax.stairs(np.where(share > 0, share, np.nan), edges, **looks)
        ax.set_title(label, fontsize=10, loc="left")
        ax.set_xlabel("ln of the label's probability")
        ax.set_xlim(least, 0)
        ax.set_yscale("log")
        ax.set_ylim(top=1.3)
        ax.set_ylabel("answers with the label (%)")
        ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}")
        ax.yaxis.set_minor_formatter("")
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
    figure, _ = new_figure(4.2 * len(answers) + 0.4, 3.6, columns=len(answers))
    tiers = (
        ("low: below 85 %", -0.2, ABSTAIN, lambda p: p < LOW),
        ("high: above 95 %", 0.2, CORRECT, lambda p: p > HIGH),
    )
    for ax, (arm, known) in zip(figure.axes, answers.items(), strict=True):
        by_label = [[a for a in known if a[0] == label] for label in LABELS]
        for name, shift, colour, inside in tiers:
            tier = [[right for _, right, p in rows if inside(p)] for rows in by_label]
            share = [sum(rights) / len(rights) if rights else 0.0 for rights in tier]
            places = [x + shift for x in range(len(LABELS))]
            style = {"color": colour, "ec": "black", "lw": 0.6, "label": name}
            drawn = ax.bar(places, share, 0.38, **style)
            counts = [f"n={len(rights)}" for rights in tier]
            ax.bar_label(drawn, counts, fontsize=8, padding=2)
        between = [sum(LOW <= p <= HIGH for *_, p in rows) for rows in by_label]
        names = [
            f"{s}\n({n} between)" for s, n in zip(TOLD.values(), between, strict=True)
        ]
        ax.set_xticks(range(len(LABELS)), names, fontsize=8)
        ax.set_xlabel(f"label said · {spaced(arm)}")
        ax.set_ylim(0, 1.1)
        percent_axis(ax, "labels that are right")
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(),
        **LEGEND,
        loc="outside upper center",
        ncols=2,
        title="confidence",
        title_fontsize=8,
    )
    return figure
