"""Figures of Veri-R1, drawn from results beside the published numbers."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from factkit.figures import bars, legend_below, new_figure, percent_axis, tables
from factkit.veri.evaluate import SHORT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Results = Sequence[Mapping[str, Any]]
MAIN = ("instruct", "sft", "offline_rl", "online_rl")  # Table 1
SCALES = ("instruct", "online_rl", "larger")  # Fig 5e–f
ABLATED = ("online_rl", "without_evidence", "without_validity")  # Fig 4
METRICS = {
    "joint_accuracy": "joint accuracy",
    "verification_accuracy": "verification\naccuracy",
    "label_accuracy": "label accuracy",
    "evidence_score": "evidence score",
    "checkable_evidence_score": "evidence score\n(not of NEI)",
    "evidence_cover": "evidence cover",
}
REWARDED = {  # the evidence score of SUPPORT and REFUTE: NEI has no gold evidence
    "checkable_evidence_score": "evidence score (not of NEI) of rollouts",
    "verification_accuracy": "verification accuracy of rollouts",
    "evidence_cover": "evidence cover of rollouts",
}
TOLD = {short: said.replace(" INFO", "\nINFO") for said, short in SHORT.items()}
PAPER = "paper (Qwen2.5)"


def main_arms(results: Results) -> "Figure":
    """Tables 1 and 3: the metrics after training, a bar an arm.

    Bars are means over seeds, error bars 95 % t intervals. Dotted: before training.
    Grey lines: the paper's (Qwen2.5), means over its five sets; it has no cover.
    """
    groups = _groups(results, MAIN)
    figure, ax = new_figure(9.5, 3.8)
    paper = {name: _means(1, f"_{name}") for name in METRICS}
    paper["evidence_score"] = _means(3, "")
    bars.grouped(ax, groups, METRICS, paper, PAPER)
    percent_axis(ax, "test claims")
    ax.set_ylim(0, 1)
    legend_below(figure, 6)
    return figure


def by_label(results: Results) -> "Figure":
    """Tables 2, 7 and 8: joint, verification and label accuracy of each gold label.

    As `main_arms`. Grey lines: Table 2's means over the paper's sets of three labels;
    Tables 7 and 8 have misprints (tests/test_veri_published.py) and are not drawn.
    """
    groups = _groups(results, MAIN)
    three = {label: _means(2, f"_{label}", without="hover_") for label in TOLD}
    paper = {f"{label}_joint_accuracy": values for label, values in three.items()}
    figure, axes = new_figure(12.0, 3.6, columns=3)
    for ax, metric in zip(axes, list(METRICS)[:3], strict=True):
        names = {f"{label}_{metric}": said for label, said in TOLD.items()}
        bars.grouped(ax, groups, names, paper, PAPER)
        percent_axis(ax, METRICS[metric].replace("\n", " "))
        ax.set_xlabel("gold label")
        ax.set_ylim(0, 1)
    legend_below(figure, 6)
    return figure


def precision_and_recall(results: Results) -> "Figure":
    """Fig 5e–f: recall and precision of each label, a bar an arm, as `main_arms`."""
    groups = _groups(results, SCALES)
    figure, axes = new_figure(9.5, 3.6, columns=2)
    for ax, metric in zip(axes, ("recall", "precision"), strict=True):
        names = {f"{label}_{metric}": said for label, said in TOLD.items()}
        bars.grouped(ax, groups, names)
        percent_axis(ax, metric)
        ax.set_ylim(0, 1)
    axes[0].set_xlabel("gold label")
    axes[1].set_xlabel("label said")
    legend_below(figure, 6)
    return figure


def _means(table: int, end: str, without: str = "-") -> dict[str, float]:
    """Arm → the mean of a table's columns with that end, as a fraction; of Qwen."""
    rows = tables.published(table, "veri")
    rows = rows[rows.model.isin(tables.PAPER_DEFAULT["model"])].set_index("arm")
    values = rows.drop(columns="model")
    names = [c for c in values if c.endswith(end) and not c.startswith(without)]
    return (values[names].mean(axis=1) / 100).dropna().to_dict()


def _groups(results: Results, arms: Sequence[str]) -> dict[str, Results]:
    """The results of these arms; one of an arm that is one policy whatever the seed."""
    groups = tables.by_arm([r for r in results if r["arm"] in arms])
    return {arm: tables.policies(arm, runs) for arm, runs in groups.items()}
