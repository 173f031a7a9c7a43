"""Figures of Learning to Reason for Factuality, drawn from results."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from factkit.papers.reason.arms import WEIGHTS
from factkit.report import figures, published
from factkit.report.figures import arm_panels, tables

Results = Sequence[Mapping[str, Any]]
# claims a response, 0 of one that states none (§4.1: F of each response)
DETAIL, UNSUPPORTED = "correct_claims_per_question", "incorrect_claims_per_question"
RELEVANCE = 0.1  # μ of the arms that trade precision for detail by λ (Table 2)


def precision_and_detail(results: Results) -> Figure:
    """Precision against detail, one mark per arm, beside the paper's Table 2: means
    over seeds with 95 % t intervals. A line joins the arms with μ = 0.1 by λ."""
    names = ("factual_precision", DETAIL)
    groups = tables.by_arm(_measured(results, *names))
    here = {
        arm: [m for name in names if (m := arm_panels.mean_of(runs, name))]
        for arm, runs in groups.items()
    }
    paper = {
        row.arm: [(row.precision / 100, 0.0), (row.supported, 0.0)]
        for row in published.read_table(2, "reason").itertuples()
    }
    places = {arm: i for i, arm in enumerate(dict.fromkeys((*here, *paper)))}
    by_detail = [a for a, w in WEIGHTS.items() if w == (w.detail, RELEVANCE, 0)]
    figure, axes = figures.new_figure(9.5, 4.0, columns=2)
    for ax, marks, runs, colour, title in (
        (axes[0], here, groups, "", "here"),
        (axes[1], paper, {}, figures.PUBLISHED, "paper, 8B, mean of six data sets"),
    ):
        path = [marks[arm] for arm in by_detail if arm in marks]
        xs, ys = ([mark[axis][0] for mark in path] for axis in (0, 1))
        style = {"color": figures.PUBLISHED, "lw": 1, "zorder": 1}
        ax.plot(xs, ys, **style, label=f"μ = {RELEVANCE:g}, in the order of λ")
        for arm in sorted(marks, key=places.__getitem__):
            x, y = marks[arm]
            name = figures.format_name(figures.name_arm(arm, runs.get(arm, ())))
            figures.point(ax, x, y, places[arm], name + _weights(arm), colour)
        figures.percent_axis(ax, "precision: supported of all claims", "x")
        ax.set_ylabel("supported claims a response")
        ax.set_title(title, fontsize=10, loc="left")
        ax.margins(0.12)
    figures.legend_below(figure)
    return figure


def by_set(results: Results) -> pd.DataFrame:
    """Table 1: precision, detail and win rate by arm and evaluation set; rates in per
    cent, means over seeds ± 95 % t intervals."""
    end, others = "_win_rate", ("before_", "dev_", "least_")
    prefixes = {
        name.removesuffix(end) + "_": figures.format_name(name.removesuffix(end))
        for r in results
        for name in r["metrics"]
        if name.endswith(end) and not name.startswith(others)
    } | {"": "average"}
    measures = {
        "precision": ("factual_precision", 100),
        "detail": (DETAIL, 1),
        "win rate": ("win_rate", 100),
    }
    rows = {
        figures.name_arm(arm, runs): {
            (name_of_set, measure): tables.spread(
                [r["metrics"].get(prefix + name) for r in runs], factor
            )
            for prefix, name_of_set in prefixes.items()
            for measure, (name, factor) in measures.items()
        }
        for arm, runs in tables.by_arm(results).items()
    }
    return pd.DataFrame(rows).T.rename_axis("arm")


def win_rates(results: Results) -> Figure:
    """Win rate over the base policy by arm: means over seeds with 95 % t intervals;
    grey: the paper's (Table 2); dashed: 50 %."""
    groups = tables.by_arm(_measured(results, "win_rate"))
    figure, ax = arm_panels.stacked(groups, [("win_rate", "here", figures.CORRECT)])
    theirs = published.read_table(2, "reason").set_index("arm").win_rate / 100
    values = [[theirs[arm]] if arm in theirs else [] for arm in groups]
    arm_panels.mark(ax, values, "paper (8B, six data sets)")
    ax.axhline(0.5, color="black", ls="--", lw=1)
    ax.set_ylim(0, 1)
    figures.percent_axis(ax, "preferred to the base policy's answer")
    ax.legend(**figures.LEGEND, **figures.BESIDE)
    return figure


def strategies(results: Results, arms: Sequence[str]) -> Figure | None:
    """Fig 4: the share of responses with each strategy of reasoning, one bar per arm,
    the 20 most frequent strategies; None without an arm that has any."""
    # the metrics strategy_<name>; a name that a seed's responses lack is a share of 0
    rows = pd.DataFrame([r["metrics"] for r in results], [r["arm"] for r in results])
    rows = rows.filter(regex="^strategy_").dropna(how="all").fillna(0)
    rows = rows.rename(columns=lambda name: name.removeprefix("strategy_"))
    shares = rows.groupby(level=0).mean().T  # (strategies, arms)
    groups = tables.by_arm(results)
    titles = {arm: figures.name_arm(arm, groups[arm]) for arm in arms if arm in shares}
    shares = shares[[*titles]].rename(columns=titles)
    if not shares.size:
        return None
    order = shares.sum(axis=1).sort_values(ascending=False, kind="stable").index
    names = list(order[:20])  # the most frequent at the top
    figure, ax = figures.new_figure(7.0, 0.3 * len(names) + 1.2)
    height = 0.8 / len(shares.columns)
    for i, arm in enumerate(shares):
        ys = [y + (i + 0.5) * height - 0.4 for y in range(len(names))]
        label = figures.format_name(arm)
        ax.barh(ys, shares.loc[names, arm], height, **figures.bar_style(i), label=label)
    ax.set_yticks(range(len(names)), map(figures.format_name, names), fontsize=9)
    ax.set_ylim(len(names) - 0.4, -0.6)
    figures.percent_axis(ax, "responses that use it", "x")
    figures.legend_below(figure)
    return figure


def claims(results: Results) -> Figure:
    """Supported and unsupported claims per response by arm; grey: the paper's."""
    parts = (
        (DETAIL, "supported", figures.CORRECT),
        (UNSUPPORTED, "unsupported", figures.WRONG),
    )
    paper = {
        row.arm: (row.supported + row.unsupported, row.supported)
        for row in published.read_table(2, "reason").itertuples()
    }
    groups = tables.by_arm(_measured(results, DETAIL, UNSUPPORTED))
    return arm_panels.claims(groups, parts, paper, "claims a response")


def _measured(results: Results, *names: str) -> list[Mapping[str, Any]]:
    return [r for r in results if all(name in r["metrics"] for name in names)]


def _weights(arm: str) -> str:
    if arm not in WEIGHTS:
        return ""
    detail, relevance, reasoning = WEIGHTS[arm]
    last = f", ν {reasoning:g}" if reasoning else ""
    return f" (λ {detail:g}, μ {relevance:g}{last})"
