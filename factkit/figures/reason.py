"""Figures of Learning to Reason for Factuality, drawn from results and curves."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from factkit.figures import (
    ARM_COLOURS,
    CORRECT,
    LINES,
    PUBLISHED,
    WRONG,
    bars,
    look,
    mean_and_range,
    new_figure,
    percent_axis,
    tables,
)
from factkit.rewards.reason import WEIGHTS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Results = Sequence[Mapping[str, Any]]
HATCHES = ("", "//", "..", "xx", "\\\\", "--")
# claims a response, 0 of one that states none (§4.1: F of each response)
DETAIL, UNSUPPORTED = "correct_claims_per_question", "incorrect_claims_per_question"
RELEVANCE = 0.1  # μ of the arms that trade precision for detail by λ (Table 2)


def learning_curve(curve: "pd.DataFrame") -> "Figure":
    """Reward, words, claims and rates of the rollouts, by step of one run.

    curve: its metrics.csv; a quantity that it lacks, as wins with μ = 0, is left out.
    """
    panels = {
        "mean reward": {"reward": "reward"},
        "words a response": {
            "reasoning_words": "reasoning",
            "answer_words": "answer",
        },
        "claims a response": {
            "total_claims": "all",
            "supported_claims": "supported",
        },
        "share": {
            "precision": "claims: supported",
            "wins": "answers: preferred",
            "malformed": "responses: malformed",
        },
    }
    figure, axes = new_figure(12.0, 3.2, columns=len(panels))
    for ax, (label, names) in zip(axes, panels.items(), strict=True):
        for i, (column, name) in enumerate(names.items()):
            if column in curve:
                style = {"ls": LINES[i], "color": ARM_COLOURS[i], "label": name}
                ax.plot(curve.step, curve[column], **style)
        ax.set_ylabel(label)
        ax.set_xlabel("GRPO step")
        if len(names) > 1:
            ax.set_ylim(bottom=0)
            style = {"frameon": False, "fontsize": 8, "loc": "lower left"}
            ax.legend(**style, bbox_to_anchor=(0, 1))
    axes[-1].set_ylim(0, 1)
    percent_axis(axes[-1], "share")
    return figure


def lengths(
    curves: Mapping[str, Sequence["pd.DataFrame"]], window: int = 5
) -> "Figure":
    """Fig 2: words of reasoning and of the answer by step, a line an arm.

    curves: arm → the metrics.csv of each seed. The line is the mean over seeds of a
    running mean of `window` steps, the band their range.
    """
    import pandas as pd

    figure, axes = new_figure(9.5, 3.4, columns=2)
    panels = {"reasoning_words": "reasoning", "answer_words": "answer"}
    for ax, (column, name) in zip(axes, panels.items(), strict=True):
        for i, (arm, frames) in enumerate(curves.items()):
            series = [
                f.set_index("step")[column].rolling(window, min_periods=1).mean()
                for f in frames
                if column in f
            ]
            if not series:
                continue
            table = pd.concat(series, axis=1).sort_index()
            low, high = table.min(axis=1), table.max(axis=1)
            colour, style, _ = look(i)
            mean = table.mean(axis=1)
            ax.plot(table.index, mean, ls=style, color=colour, label=_spaced(arm))
            ax.fill_between(table.index, low, high, color=colour, alpha=0.15, lw=0)
        ax.set_xlabel("GRPO step")
        ax.set_ylabel(f"words of the {name}")
        ax.set_ylim(bottom=0)
    _legend_below(figure)
    return figure


def reasoning_lengths(lengths: Sequence[int], label: str) -> "Figure":
    """Fig 3: how many responses have reasoning of how many words; dashed: the median.

    lengths: words of each response's reasoning. label: whose they are.
    """
    from statistics import median

    figure, ax = new_figure(5, 3)
    ax.set_xlabel(f"words of the reasoning, {_spaced(label)}")
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
    ax.legend(frameon=False, fontsize=8)
    return figure


def strategy_shares(results: Results) -> dict[str, dict[str, float]]:
    """Arm → strategy → share of responses, from the metrics strategy_<name>; means over
    the seeds that have any, for which a name that they lack is 0."""
    shares = {}
    for arm, runs in tables.by_arm(results).items():
        found = [_numbers(r["metrics"], "strategy_") for r in runs]
        found = [of for of in found if of]
        names = dict.fromkeys(name for of in found for name in of)
        if names:
            shares[arm] = {
                name: sum(of.get(name, 0.0) for of in found) / len(found)
                for name in names
            }
    return shares


def strategies(
    shares_by_arm: Mapping[str, Mapping[str, float]], top: int = 20
) -> "Figure":
    """Fig 4: the share of responses that use each strategy, a bar an arm.

    shares_by_arm: arm → strategy → share. Shown are the `top` strategies by their mean
    over the arms, the most frequent uppermost.
    """
    names = dict.fromkeys(name for of in shares_by_arm.values() for name in of)
    total = {n: sum(of.get(n, 0.0) for of in shares_by_arm.values()) for n in names}
    shown = sorted(names, key=lambda name: (-total[name], name))[:top]
    height = 0.8 / len(shares_by_arm)
    row = max(0.3, 0.13 * len(shares_by_arm))  # inches
    figure, ax = new_figure(7.0, row * len(shown) + 1.2)
    for i, (arm, of) in enumerate(shares_by_arm.items()):
        ax.barh(
            [y + (i + 0.5) * height - 0.4 for y in range(len(shown))],
            [of.get(name, 0.0) for name in shown],
            height,
            color=look(i)[0],
            hatch=HATCHES[(i + i // len(ARM_COLOURS)) % len(HATCHES)],
            ec="black",
            lw=0.5,
            label=_spaced(arm),
        )
    ax.set_yticks(range(len(shown)), [_spaced(name) for name in shown], fontsize=9)
    ax.set_ylim(len(shown) - 0.4, -0.6)
    percent_axis(ax, "responses that use it", "x")
    _legend_below(figure)
    return figure


def precision_and_detail(
    results: Results, published: "pd.DataFrame | None" = None
) -> "Figure":
    """Precision against detail, a mark an arm; on the right, the paper's.

    published: by default `tables.published(2, "reason")`. Marks are means over seeds,
    bars 95 % t intervals. The arms with μ = 0.1 are joined in the order of λ. The
    panels' scales differ.
    """
    published = tables.published(2, "reason") if published is None else published
    groups = tables.by_arm(_measured(results, "factual_precision", DETAIL))
    figure, (ours, paper) = new_figure(9.5, 4.0, columns=2)
    found = {
        arm: [
            mean_and_range([r["metrics"][name] for r in runs])
            for name in ("factual_precision", DETAIL)
        ]
        for arm, runs in groups.items()
    }
    theirs = {
        row.arm: [(row.precision / 100, 0.0), (row.supported, 0.0)]
        for row in published.itertuples()
    }
    order = {arm: i for i, arm in enumerate(dict.fromkeys((*found, *theirs)))}
    _points(ours, found, order)
    _points(paper, theirs, order, PUBLISHED)
    for ax, title in ((ours, "here"), (paper, "paper, 8B, mean of six data sets")):
        percent_axis(ax, "precision: supported of all claims", "x")
        ax.set_ylabel("supported claims a response")
        ax.set_title(title, fontsize=10, loc="left")
        ax.margins(0.12)
    _legend_below(figure)
    return figure


def _points(
    ax: "Axes",
    found: Mapping[str, Sequence[tuple[float, float]]],
    order: Mapping[str, int],
    colour: str = "",
) -> None:
    """Marks at (mean, half-width) of x and y, those of one μ joined by λ.

    order: arm → place, which decides how it looks. colour: of all, or each its own.
    """
    joined = sorted(
        (arm for arm in found if WEIGHTS.get(arm, (0, 0))[1] == RELEVANCE),
        key=lambda arm: WEIGHTS[arm][0],
    )
    path = [[mean for mean, _ in found[arm]] for arm in joined]
    if path:
        label = f"μ = {RELEVANCE:g}, in the order of λ"
        ax.plot(*zip(*path, strict=True), color=PUBLISHED, lw=1, zorder=1, label=label)
    for arm in sorted(found, key=order.get):
        (x, dx), (y, dy) = found[arm]
        own, _, marker = look(order[arm])
        ax.errorbar(
            x,
            y,
            yerr=dy or None,
            xerr=dx or None,
            color=colour or own,
            marker=marker,
            ms=7,
            mec="black",
            mew=0.6,
            ls="",
            capsize=2,
            elinewidth=0.8,
            label=_weighted(arm),
        )


def by_set(results: Results) -> "pd.DataFrame":
    """Table 1: precision, detail and win rate by arm on each evaluation set and on
    average; rates in per cent, means over seeds ± 95 % t intervals."""
    import pandas as pd

    end, others = "_win_rate", ("before_", "dev_", "least_")
    prefixes = {
        name.removesuffix(end) + "_": name.removesuffix(end).replace("_", " ")
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
            (of, measure): tables.spread(
                [r["metrics"].get(prefix + name) for r in runs], factor
            )
            for prefix, of in prefixes.items()
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
    label = "paper (8B, six data sets)"
    for x, arm in enumerate(groups):
        if arm in theirs:
            ax.hlines(theirs[arm], x - 0.4, x + 0.4, PUBLISHED, lw=3, label=label)
            label = None
    ax.axhline(0.5, color="black", ls="--", lw=1)
    ax.set_ylim(0, 1)
    percent_axis(ax, "preferred to the base policy's answer")
    ax.legend(frameon=False, fontsize=8, bbox_to_anchor=(1.0, 1.0), loc="upper left")
    return figure


def claims(results: Results) -> "Figure":
    """Supported and unsupported claims a response by arm; grey lines: the paper's."""
    parts = (
        (DETAIL, "supported", CORRECT),
        (UNSUPPORTED, "unsupported", WRONG),
    )
    paper = {
        row.arm: (row.supported + row.unsupported, row.supported)
        for row in tables.published(2, "reason").itertuples()
    }
    groups = tables.by_arm(_measured(results, DETAIL, UNSUPPORTED))
    return bars.claims(groups, parts, paper, "claims a response")


def before_and_after(
    before: Mapping[str, float],
    after: Mapping[str, float],
    spans: Mapping[str, Mapping[str, tuple[float, float]]],
) -> "Figure":
    """Rates, claims and words a response before and after; bars: intervals over
    requests.

    spans: `base` and `after` → metric → (low, high), of those that have one.
    """
    rates = {
        "factual_precision": "precision",
        "win_rate": "preferred\nto the base's",
        "malformed": "malformed",
    }
    claims = {DETAIL: "supported", UNSUPPORTED: "unsupported"}
    words = {"reasoning_words": "reasoning", "answer_words": "answer"}
    figure = bars.before_and_after(before, after, spans, (rates, claims, words))
    percent_axis(figure.axes[0], "held-out requests")
    figure.axes[1].set_ylabel("claims a response")
    figure.axes[2].set_ylabel("words a response")
    return figure


def _measured(results: Results, *names: str) -> list[Mapping[str, Any]]:
    """The results that have all of these metrics."""
    return [r for r in results if all(name in r["metrics"] for name in names)]


def _numbers(metrics: Mapping[str, float], prefix: str) -> dict[str, float]:
    """The metrics <prefix><name>, by name."""
    return {
        key.removeprefix(prefix): value
        for key, value in metrics.items()
        if key.startswith(prefix)
    }


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _weighted(arm: str) -> str:
    """An arm's name with its λ and μ, if it has a reward."""
    if arm not in WEIGHTS:
        return _spaced(arm)
    detail, relevance = WEIGHTS[arm]
    return f"{_spaced(arm)} (λ {detail:g}, μ {relevance:g})"


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
    figure.legend(
        shown.values(),
        shown.keys(),
        loc="outside lower center",
        ncols=4,
        frameon=False,
        fontsize=8,
    )
