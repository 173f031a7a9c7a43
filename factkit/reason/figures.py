"""Figures of Learning to Reason for Factuality, drawn from results."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from factkit.figures import (
    BESIDE,
    CORRECT,
    LEGEND,
    PUBLISHED,
    WRONG,
    bar_look,
    bars,
    legend_below,
    new_figure,
    percent_axis,
    point,
    spaced,
    tables,
)
from factkit.reason.rewards import WEIGHTS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Results = Sequence[Mapping[str, Any]]
# claims a response, 0 of one that states none (§4.1: F of each response)
DETAIL, UNSUPPORTED = "correct_claims_per_question", "incorrect_claims_per_question"
RELEVANCE = 0.1  # μ of the arms that trade precision for detail by λ (Table 2)


def reasoning_lengths(lengths: Sequence[int], label: str) -> "Figure":
    """Fig 3: how many responses have reasoning of how many words; dashed: the median.

    lengths: words of each response's reasoning. label: whose they are.
    """
    from statistics import median

    figure, ax = new_figure(5, 3)
    ax.set_xlabel(f"words of the reasoning, {spaced(label)}")
    ax.set_ylabel("responses")
    if not lengths:  # nobody reasons
        return figure
    least, most = min(lengths), max(lengths)
    width = (most - least) // 30 + 1  # whole words
    edges = [n - 0.5 for n in range(least, most + width + 1, width)]
    ax.hist(lengths, edges, color=CORRECT)
    middle = median(lengths)
    style = {"color": "black", "ls": "--", "lw": 1.2}
    ax.axvline(middle, **style, label=f"median: {middle:g}")
    ax.legend(**LEGEND)
    return figure


def strategy_shares(results: Results, arms: Sequence[str]) -> "pd.DataFrame":
    """Share of responses by strategy, a row an arm, from the metrics strategy_<name>;
    means over the seeds that have any, for which a name that they lack is 0."""
    import pandas as pd

    rows = [
        {
            name.removeprefix("strategy_"): value
            for name, value in r["metrics"].items()
            if name.startswith("strategy_")
        }
        | {"arm": r["arm"]}
        for r in results
    ]
    rows = [row for row in rows if len(row) > 1 and row["arm"] in arms]
    table = pd.DataFrame(rows or {"arm": []}).fillna(0)
    return table.groupby("arm").mean().reindex([a for a in arms if a in set(table.arm)])


def strategies(shares: "pd.DataFrame", top: int = 20) -> "Figure":
    """Fig 4: the share of responses that use each strategy, a bar an arm.

    shares: as `strategy_shares` has them. Shown are the `top` strategies by their mean
    over the arms, the most frequent uppermost.
    """
    ordered = shares[sorted(shares)].sum().sort_values(ascending=False, kind="stable")
    names = list(ordered.index[:top])
    height = 0.8 / len(shares)
    row = max(0.3, 0.13 * len(shares))  # inches
    figure, ax = new_figure(7.0, row * len(names) + 1.2)
    for i, (arm, of_arm) in enumerate(shares.iterrows()):
        places = [y + (i + 0.5) * height - 0.4 for y in range(len(names))]
        ax.barh(places, of_arm[names], height, **bar_look(i), label=spaced(arm))
    ax.set_yticks(range(len(names)), map(spaced, names), fontsize=9)
    ax.set_ylim(len(names) - 0.4, -0.6)
    percent_axis(ax, "responses that use it", "x")
    legend_below(figure)
    return figure


def precision_and_detail(results: Results) -> "Figure":
    """Precision against detail, a mark an arm; on the right, the paper's (Table 2).

    Marks are means over seeds, bars 95 % t intervals. The arms with μ = 0.1 are joined
    in the order of λ. The panels' scales differ.
    """
    names = ("factual_precision", DETAIL)
    groups = tables.by_arm(_measured(results, *names))
    here = {
        arm: tuple(bars.mean_of(runs, name) for name in names)
        for arm, runs in groups.items()
    }
    theirs = {
        row.arm: ((row.precision / 100, 0.0), (row.supported, 0.0))
        for row in tables.published(2, "reason").itertuples()
    }
    order = {arm: i for i, arm in enumerate(dict.fromkeys((*here, *theirs)))}
    figure, (ours, paper) = new_figure(9.5, 4.0, columns=2)
    _points(ours, here, order)
    _points(paper, theirs, order, PUBLISHED)
    for ax, title in ((ours, "here"), (paper, "paper, 8B, mean of six data sets")):
        percent_axis(ax, "precision: supported of all claims", "x")
        ax.set_ylabel("supported claims a response")
        ax.set_title(title, fontsize=10, loc="left")
        ax.margins(0.12)
    legend_below(figure)
    return figure


def _points(
    ax: "Axes",
    at: Mapping[str, tuple],
    order: Mapping[str, int],
    colour: str = "",
) -> None:
    """Marks at (mean, half-width) of x and y, those of one μ joined by λ.

    order: arm → place, which decides how it looks. colour: of all, or each its own.
    """
    joined = sorted(
        (arm for arm in at if WEIGHTS.get(arm, (0, 0))[1] == RELEVANCE),
        key=lambda arm: WEIGHTS[arm][0],
    )
    if joined:
        path = zip(*[[mean for mean, _ in at[arm]] for arm in joined], strict=True)
        label = f"μ = {RELEVANCE:g}, in the order of λ"
        ax.plot(*path, color=PUBLISHED, lw=1, zorder=1, label=label)
    for arm in sorted(at, key=order.get):
        point(ax, *at[arm], order[arm], _weighted(arm), colour)


def by_set(results: Results) -> "pd.DataFrame":
    """Table 1: precision, detail and win rate by arm on each evaluation set and on
    average; rates in per cent, means over seeds ± 95 % t intervals."""
    import pandas as pd

    end, others = "_win_rate", ("before_", "dev_", "least_")
    prefixes = {
        name.removesuffix(end) + "_": spaced(name.removesuffix(end))
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
        arm: {
            (name_of_set, measure): tables.spread(
                [r["metrics"].get(prefix + name) for r in runs], factor
            )
            for prefix, name_of_set in prefixes.items()
            for measure, (name, factor) in measures.items()
        }
        for arm, runs in tables.by_arm(results).items()
    }
    return pd.DataFrame(rows).T.rename_axis("arm")


def win_rates(results: Results) -> "Figure":
    """Win rate over the base policy by arm; grey marks: the paper's (Table 2).

    Bars are means over seeds, error bars 95 % t intervals; at the dashed line an answer
    is as often preferred as the base policy's.
    """
    groups = tables.by_arm(_measured(results, "win_rate"))
    figure, ax = bars.stacked(groups, [("win_rate", "here", CORRECT)])
    theirs = tables.published(2, "reason").set_index("arm").win_rate / 100
    values = [[theirs[arm]] if arm in theirs else [] for arm in groups]
    bars.mark(ax, values, "paper (8B, six data sets)")
    ax.axhline(0.5, color="black", ls="--", lw=1)
    ax.set_ylim(0, 1)
    percent_axis(ax, "preferred to the base policy's answer")
    ax.legend(**LEGEND, **BESIDE)
    return figure


def claims(results: Results) -> "Figure":
    """Supported and unsupported claims a response by arm; grey lines: the paper's."""
    parts = ((DETAIL, "supported", CORRECT), (UNSUPPORTED, "unsupported", WRONG))
    paper = {
        row.arm: (row.supported + row.unsupported, row.supported)
        for row in tables.published(2, "reason").itertuples()
    }
    groups = tables.by_arm(_measured(results, DETAIL, UNSUPPORTED))
    return bars.claims(groups, parts, paper, "claims a response")


def _measured(results: Results, *names: str) -> list[Mapping[str, Any]]:
    """The results that have all of these metrics."""
    return [r for r in results if all(name in r["metrics"] for name in names)]


def _weighted(arm: str) -> str:
    """An arm's name with its λ and μ, if it has a reward."""
    if arm not in WEIGHTS:
        return spaced(arm)
    detail, relevance = WEIGHTS[arm]
    return f"{spaced(arm)} (λ {detail:g}, μ {relevance:g})"
