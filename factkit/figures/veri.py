"""Figures of Veri-R1, drawn from results and training curves."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from factkit.arms import untrained
from factkit.evaluate.claim_verification import SHORT
from factkit.figures import (
    ARM_COLOURS,
    LINES,
    PUBLISHED,
    bars,
    look,
    mean_and_range,
    new_figure,
    percent_axis,
    tables,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Results = Sequence[Mapping[str, Any]]
MAIN = ("instruct", "sft", "offline_rl", "online_rl")  # Table 1
SCALES = ("instruct", "online_rl", "larger")  # Fig 5e–f
ABLATED = ("online_rl", "without_evidence", "without_validity")  # Fig 4
HATCHES = ("", "//", "..", "xx", "\\\\", "--")
METRICS = {
    "joint_accuracy": "joint accuracy",
    "verification_accuracy": "verification\naccuracy",
    "label_accuracy": "label accuracy",
    "evidence_score": "evidence score",
    "checkable_evidence_score": "evidence score\n(not of NEI)",
    "evidence_cover": "evidence cover",
}
REWARDED = ("checkable_evidence_score", "verification_accuracy", "evidence_cover")
TOLD = {short: said.replace(" INFO", "\nINFO") for said, short in SHORT.items()}
LEGEND = {"frameon": False, "fontsize": 8}


# Runs


def reward_curves(
    curves: Mapping[str, Sequence["pd.DataFrame"]], window: int = 5
) -> "Figure":
    """Fig 4: evidence score, verification accuracy and evidence cover by step.

    The evidence score is of SUPPORT and REFUTE: the paper's training claims all have
    gold evidence, while our NOT ENOUGH INFO claims have none to find.

    curves: arm → the metrics.csv of each seed. The line is the mean over seeds of a
    running mean of `window` steps, the band their range. A panel says what no run
    logged.
    """
    import pandas as pd

    figure, axes = new_figure(11.0, 3.4, columns=len(REWARDED))
    for ax, column in zip(axes, REWARDED, strict=True):
        for i, (arm, frames) in enumerate(curves.items()):
            series = [
                f.set_index("step")[column].rolling(window, min_periods=1).mean()
                for f in frames
                if column in f
            ]
            if series:
                table = pd.concat(series, axis=1).sort_index()
                low, high = table.min(axis=1), table.max(axis=1)
                colour, style, _ = look(i)
                mean = table.mean(axis=1)
                ax.plot(mean.index, mean, ls=style, color=colour, label=spaced(arm))
                ax.fill_between(mean.index, low, high, color=colour, alpha=0.15, lw=0)
        if not ax.lines:
            say(ax, "not logged")
        ax.set_xlabel("GRPO step")
        ax.set_ylim(bottom=0)
        percent_axis(ax, f"{_flat(METRICS[column])} of rollouts")
    _legend_below(figure)
    return figure


def learning_curve(curve: "pd.DataFrame", window: int = 5) -> "Figure":
    """Reward, rates, and searches of the rollouts, by step of one run.

    curve: its metrics.csv; a panel says if it has none of its quantities. The lines are
    running means of `window` steps, the faint ones the steps themselves: each has only
    a few claims.
    """
    panels = {
        "mean reward": {"reward": "reward"},
        "evidence": {
            n: _flat(METRICS[n]) for n in ("checkable_evidence_score", "evidence_cover")
        },
        "claims": {
            "label_accuracy": "label right",
            "verification_accuracy": "… and all evidence cited",
            "format_share": "well formed",
        },
        "searches a claim": {"searches": "searches"},
    }
    figure, axes = new_figure(12.0, 3.2, columns=len(panels))
    for ax, (label, names) in zip(axes, panels.items(), strict=True):
        for i, (column, name) in enumerate(names.items()):
            if column in curve:
                smooth = curve[column].rolling(window, min_periods=1).mean()
                style = {"ls": LINES[i], "color": ARM_COLOURS[i]}
                ax.plot(curve.step, smooth, label=name, **style)
                ax.plot(curve.step, curve[column], lw=0.8, alpha=0.3, **style)
        ax.set_xlabel("GRPO step")
        ax.set_ylabel(label)
        if len(names) > 1:
            ax.set_ylim(0, 1.02)
            percent_axis(ax, label)
        if not ax.lines:
            say(ax, "not logged")
        elif len(names) > 1:
            ax.legend(**LEGEND, loc="lower left", bbox_to_anchor=(0, 1))
    axes[-1].set_ylim(bottom=0)
    return figure


def main_arms(results: Results, arms: Sequence[str] = MAIN) -> "Figure":
    """Tables 1 and 3: the metrics after training, a bar an arm.

    Bars are means over seeds, error bars 95 % t intervals. Dotted: before training.
    Grey lines: the paper's (Qwen2.5), means over its five sets; it has no cover.
    """
    groups = _groups(results, arms)
    figure, ax = new_figure(9.5, 3.8)
    _bars(ax, groups, METRICS, {name: _published(name) for name in METRICS})
    percent_axis(ax, "test claims")
    ax.set_ylim(0, 1)
    _legend_below(figure)
    return figure


def by_label(results: Results, arms: Sequence[str] = MAIN) -> "Figure":
    """Tables 2, 7 and 8: joint, verification and label accuracy of each gold label.

    As `main_arms`. Grey lines: Table 2's means over the paper's sets of three labels;
    Tables 7 and 8 have misprints (tests/test_veri_published.py) and are not drawn.
    """
    groups = _groups(results, arms)
    figure, axes = new_figure(12.0, 3.6, columns=3)
    for ax, metric in zip(axes, list(METRICS)[:3], strict=True):
        names = {f"{label}_{metric}": said for label, said in TOLD.items()}
        joint = metric == "joint_accuracy"
        paper = {f"{label}_{metric}": _published_of(label) for label in TOLD}
        _bars(ax, groups, names, paper if joint else {})
        percent_axis(ax, _flat(METRICS[metric]))
        ax.set_xlabel("gold label")
        ax.set_ylim(0, 1)
    _legend_below(figure)
    return figure


def precision_and_recall(results: Results, arms: Sequence[str] = SCALES) -> "Figure":
    """Fig 5e–f: recall and precision of each label, a bar an arm, as `main_arms`."""
    groups = _groups(results, arms)
    figure, axes = new_figure(9.5, 3.6, columns=2)
    for ax, metric in zip(axes, ("recall", "precision"), strict=True):
        _bars(ax, groups, {f"{label}_{metric}": said for label, said in TOLD.items()})
        percent_axis(ax, metric)
        ax.set_ylim(0, 1)
    axes[0].set_xlabel("gold label")
    axes[1].set_xlabel("label said")
    _legend_below(figure)
    return figure


def before_and_after(
    before: Mapping[str, float],
    after: Mapping[str, float],
    spans: Mapping[str, bars.Spans],
) -> "Figure":
    """The metrics, and joint accuracy of each label, before and after; bars:
    intervals over claims.

    spans: `base` and `after` → metric → (low, high), of those that have one.
    """
    whole = {name: said.replace(" ", "\n") for name, said in METRICS.items()}
    labels = {f"{label}_joint_accuracy": said for label, said in TOLD.items()}
    figure = bars.before_and_after(before, after, spans, (whole, labels))
    percent_axis(figure.axes[0], "test claims")
    percent_axis(figure.axes[1], "joint accuracy")
    figure.axes[1].set_xlabel("gold label")
    for ax in figure.axes:
        ax.set_ylim(0, 1)
    figure.axes[-1].legend(**LEGEND, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
    return figure


# Bars


def _bars(
    ax: "Axes",
    groups: Mapping[str, Results],
    metrics: Mapping[str, str],
    paper: Mapping[str, Mapping[str, float]] | None = None,
) -> None:
    """At each metric (name → label) a bar an arm; paper: metric → arm → its value."""
    width = 0.84 / max(len(groups), 1)
    for i, (arm, runs) in enumerate(groups.items()):
        at = {x: (i + 0.5) * width - 0.42 + x for x in range(len(metrics))}
        found = {x: _mean(runs, name) for x, name in enumerate(metrics)}
        found = {x: of for x, of in found.items() if of}
        style = {"color": look(i)[0], "hatch": _hatch(i), "ec": "black", "lw": 0.5}
        ax.bar(
            [at[x] for x in found],
            [mean for mean, _ in found.values()],
            0.94 * width,
            yerr=[half for _, half in found.values()] if len(runs) > 1 else None,
            capsize=2,
            label=spaced(arm),
            **style,
        )
        for x, name in enumerate(metrics):
            ends = at[x] - width / 2, at[x] + width / 2
            if before := _mean(runs, f"before_{name}"):
                _mark(ax, before[0], ends, "black", ":", "before training")
            value = (paper or {}).get(name, {}).get(arm)
            if value is not None:
                _mark(ax, value, ends, PUBLISHED, "-", "paper (Qwen2.5)")
    if not groups:
        say(ax, "no results")
    ax.set_xticks(range(len(metrics)), metrics.values(), fontsize=8)


def _mark(ax: "Axes", value: float, ends: tuple, colour: str, style: Any, label: str):
    ax.hlines(value, *ends, colour, style, lw=2.5 if style == "-" else 1.5, label=label)


def _mean(runs: Results, name: str) -> tuple[float, float] | None:
    """Mean and half-width of a metric over the runs that have it, None without any."""
    values = [r["metrics"][name] for r in runs if name in r["metrics"]]
    return mean_and_range(values) if values else None


def _published(metric: str) -> dict[str, float]:
    """Arm → the paper's value of a metric, the mean over its five sets."""
    if metric == "evidence_score":
        return _means(3, "")
    return _means(1, f"_{metric}")


def _published_of(label: str) -> dict[str, float]:
    """Arm → the joint accuracy of a label in Table 2, the mean over the sets with
    three labels."""
    return _means(2, f"_{label}", without="hover_")


def _means(table: int, end: str, without: str = "-") -> dict[str, float]:
    """Arm → the mean of a table's columns with that end, as a fraction; of Qwen."""
    rows = tables.published(table, "veri")
    rows = rows[rows.model.isin(tables.PAPER_DEFAULT["model"])].set_index("arm")
    values = rows.drop(columns="model")
    names = [c for c in values if c.endswith(end) and not c.startswith(without)]
    return (values[names].mean(axis=1) / 100).dropna().to_dict()


def _groups(results: Results, arms: Sequence[str]) -> dict[str, Results]:
    """The results of the arms that there are, in the order of `arms`; one of an arm
    that is one policy whatever the seed."""
    groups = {arm: [r for r in results if r["arm"] == arm] for arm in arms}
    groups |= {arm: groups[arm][:1] for arm in untrained() if arm in groups}
    return {arm: runs for arm, runs in groups.items() if runs}


def _hatch(i: int) -> str:
    """Of the bars of the arm at place i: another where its colour comes again."""
    return HATCHES[(i + i // len(ARM_COLOURS)) % len(HATCHES)]


# Words


def spaced(name: str) -> str:
    return name.replace("_", " ")


def _flat(label: str) -> str:
    return label.replace("\n", " ")


def say(ax: "Axes", text: str) -> None:
    style = {"transform": ax.transAxes, "ha": "center", "va": "center"}
    ax.text(0.5, 0.5, text, **style, color="#555555")


def _legend_below(figure: "Figure") -> None:
    """One legend of what any of the panels shows."""
    shown = {}
    for ax in figure.axes:
        handles, labels = ax.get_legend_handles_labels()
        shown |= {
            label: handle
            for label, handle in zip(labels, handles, strict=True)
            if label not in shown
        }
    style = LEGEND | {"loc": "outside lower center", "ncols": 6}
    figure.legend(shown.values(), shown.keys(), **style)
