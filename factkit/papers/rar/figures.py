"""Figures of Binary RAR, drawn from results."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from factkit.report import figures
from factkit.report.figures import arm_panels, tables

Results = Sequence[Mapping[str, Any]]
LEAST_SPAN = 0.05  # of the axes; so small differences look small
# arm → (total, correct) of the paper's biographies (§6.1)
PAPER_CLAIMS = {"base": (30.0, 8.8), "binary_rar": (13.6, 8.6)}
WRONG_RATE = "hallucination_rate"


def retrieval_coverage(shares: Mapping[str, Sequence[float]]) -> Figure:
    """The share of errors whose evidence is retrieved, by the number of chunks; grey:
    the paper's (A.3). shares: what is searched for → `evaluate.coverage`."""
    figure, ax = figures.new_figure(5, 3)
    for (label, values), line in zip(shares.items(), figures.LINES, strict=False):
        ks = range(1, len(values) + 1)
        ax.plot(ks, values, ls=line, marker="o", ms=4, label=label)
    ax.axhline(0.53, color=figures.PUBLISHED, lw=1, label="paper, 8 chunks (A.3)")
    ax.set_xlabel("chunks retrieved")
    ax.set_ylim(0, 1.02)
    figures.percent_axis(ax, "errors with evidence")
    ax.legend(**figures.LEGEND, title="searched for", title_fontsize=8)
    return figure


def theorem_1(table: pd.DataFrame) -> Figure:
    """The optimum by closed form (lines) and by optimisation (circles) over β, and the
    largest difference between them. table: from `theorem.compare`."""
    figure, (ax, gap_ax) = figures.new_figure(9.5, 3.6, columns=2)
    for number, rows in table.groupby("response"):
        correct = rows.reward.iloc[0] == 1
        colour = figures.CORRECT if correct else figures.WRONG
        name = f"response {number + 1}, {'error-free' if correct else 'with an error'}"
        style = figures.LINES[number % len(figures.LINES)]
        ax.plot(rows.beta, rows.closed_form, ls=style, color=colour, label=name)
        ax.plot(rows.beta, rows.optimised, "o", ms=5, mfc="none", color=colour)
        at = rows.reference.iloc[0]  # at the right edge
        ax.axhline(at, 0.97, color=figures.PUBLISHED, lw=2, label="reference")
    ax.set_xscale("log")
    ax.set_ylim(bottom=0)
    figures.percent_axis(ax, "probability of the response")
    gaps = (table.closed_form - table.optimised).abs().groupby(table.beta).max()
    gap_ax.loglog(gaps.index, gaps.clip(lower=1e-17), "o-", color="black", ms=4, lw=1)
    limit = {"color": figures.PUBLISHED, "ls": "--", "lw": 1}
    gap_ax.axhline(1e-6, **limit, label="agreement wanted")
    gap_ax.set_ylabel("largest difference of a probability")
    for panel in (ax, gap_ax):
        panel.set_xlabel("KL coefficient β")
    figures.legend_below(figure)
    return figure


def trade_off(results: Results) -> Figure:
    """Fig 4: hallucination in long answers against utility, one mark per arm: means
    over seeds with 95 % t intervals. Better is left and up."""
    figure, ax = figures.new_figure(6.4, 4.2)
    utility = _label(ax, results)
    for i, (arm, runs) in enumerate(tables.by_arm(results).items()):
        answering = [r for r in runs if WRONG_RATE in r["metrics"]]
        x = arm_panels.mean_of(answering, WRONG_RATE)
        y = arm_panels.mean_of(answering, utility)
        if x and y:
            label = figures.format_name(figures.name_arm(arm, runs))
            figures.point(ax, x, y, place=i, label=label)
    for axis in (ax.xaxis, ax.yaxis):
        low, high = axis.get_view_interval()
        lacking = max(LEAST_SPAN - (high - low), 0) / 2
        axis.set_view_interval(low - lacking, high + lacking, ignore=True)
    ax.legend(**figures.LEGEND, **figures.BESIDE)
    return figure


def _label(ax: Axes, results: Results) -> str:
    """Label the axes; return the metric of utility: the win rate if all results have
    it, else the form of answers."""
    figures.percent_axis(ax, "hallucination rate of long answers", "x")
    if all("win_rate" in r["metrics"] for r in results):
        figures.percent_axis(ax, "preferred to the base policy's answer")
        return "win_rate"
    figures.percent_axis(ax, "answers of the form asked for")
    return "format_following"


def claims(results: Results) -> Figure:
    """Fig 3: correct and other claims per question by arm (a refusal has 0, as in the
    paper's public code); grey lines: the paper's."""
    parts = (
        ("correct_claims_per_question", "correct", figures.CORRECT),
        ("incorrect_claims_per_question", "other", figures.WRONG),
    )
    groups = tables.by_arm(results)
    paper = PAPER_CLAIMS if set(PAPER_CLAIMS) <= set(groups) else {}
    return arm_panels.claims(groups, parts, paper, "claims a question")


def trajectories(panels: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Figure:
    """Fig 5: hallucination against utility of the policies stored during training, on
    dev requests. panels: title → name of a line → its run. Numbers are updates."""
    figure, _ = figures.new_figure(
        max(5.4, 4.6 * len(panels)), 3.8, columns=len(panels)
    )
    for ax in figure.axes[1:]:
        ax.sharex(figure.axes[0])
        ax.sharey(figure.axes[0])
    for ax, (title, runs) in zip(figure.axes, panels.items(), strict=True):
        for i, (name, run) in enumerate(runs.items()):
            _trajectory(ax, run["metrics"], _label(ax, [run]), i, name)
        ax.set_title(title, fontsize=10)
        ax.legend(**figures.LEGEND)
    figure.draw_without_rendering()  # places the panels
    for ax in figure.axes:
        written: list[Bbox] = []
        for text in ax.texts:
            box = text.get_window_extent()
            text.set_visible(not any(map(box.overlaps, written)))
            written += [box] * text.get_visible()
    return figure


def _trajectory(
    ax: Axes, metrics: Mapping[str, float], utility: str, place: int, name: str
) -> None:
    """Draw one run's policies with scored answers as a line from the base policy on."""
    steps = [
        k.split("_")[1] for k in metrics if k.startswith("dev_") and k.endswith(utility)
    ]
    steps = [step for step in steps if f"dev_{step}_{WRONG_RATE}" in metrics]
    steps.sort(key=lambda step: -1 if step == "base" else int(step))
    xs = [metrics[f"dev_{step}_{WRONG_RATE}"] for step in steps]
    ys = [metrics[f"dev_{step}_{utility}"] for step in steps]
    if not steps:
        return
    colour, _, marker = figures.arm_style(place)
    ax.plot(xs, ys, marker=marker, ms=4, color=colour, label=name)
    for x, y, step in zip(xs, ys, steps, strict=True):
        ax.annotate(step, (x, y), xytext=(4, 4), textcoords="offset points", size=7)
