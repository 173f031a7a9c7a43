"""Figures of Binary RAR, drawn from results."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from factkit.figures import (
    ABSTAIN,
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
    widen,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from factkit.retrieval.evidence import Coverage

Results = Sequence[Mapping[str, Any]]
UTILITY = ("win_rate", "format_following")  # the first that the results have is drawn
LABELS = {
    "win_rate": "preferred to the base policy's answer",
    "format_following": "answers of the form asked for",
}
# variant, its model in the paper, table, the table's columns → our metrics
OTHER_MODELS = (
    (
        *("qwen3-4b", "Qwen3-4B", 2),
        {"biography": "hallucination_rate", "popqa": "short_hallucination"},
    ),
    ("qwen3-4b", "Qwen3-4B", 3, {"alpaca_eval": "win_rate"}),
    ("qwen3-4b", "Qwen3-4B", 4, {"popqa": "best_guess_accuracy"}),
    (
        *("tulu3-8b", "Tulu3-8B", 5),
        {"biography": "hallucination_rate", "alpaca_eval": "win_rate"},
    ),
    ("", "Qwen3-8B", 6, {"aime25": "aime25"}),
    ("qwen3-4b", "Qwen3-4B", 6, {"aime25": "aime25"}),
)
# (arm, total, correct) of the paper's biographies (§6.1)
PAPER_CLAIMS = {"base": (30.0, 8.8), "binary_rar": (13.6, 8.6)}


def drawn_scores(
    scores: Sequence[Sequence[float]], label: str = "VeriScore"
) -> "Figure":
    """A score of a request's responses: the mean of each request, and its spread.

    scores: for each request those of its responses.
    """
    known = [s for s in scores if s]
    means = sorted(sum(s) / len(s) for s in known)
    gaps = sorted(max(s) - min(s) for s in known)
    fig, ax = new_figure(5, 3)
    for values, colour, name in (
        (means, CORRECT, "mean of a request's responses"),
        (gaps, PUBLISHED, "best − worst of a request"),
    ):
        share = [100 * (i + 1) / len(values) for i in range(len(values))]
        ax.step(values, share, where="post", color=colour, label=name)
    ax.set_xlabel(label)
    ax.set_ylabel("requests up to this (%)")
    ax.legend(frameon=False, fontsize=8)
    return fig


def retrieval_coverage(
    covered: "Mapping[tuple[bool, int], Coverage]", paper: float = 0.53
) -> "Figure":
    """Share of responses with an error whose contradiction is among the k chunks.

    covered: (request in the query, k) → coverage. paper: Binary RAR's, A.3.
    """
    fig, ax = new_figure(5, 3)
    most = max(k for _, k in covered)
    searched = {True: "request and response", False: "response alone"}
    for (asked, label), style in zip(searched.items(), LINES, strict=False):
        shares = [covered[asked, k].share for k in range(1, most + 1)]
        ax.plot(range(1, most + 1), shares, ls=style, marker="o", ms=4, label=label)
    ax.axhline(paper, color=PUBLISHED, lw=1, label="paper, 8 chunks (A.3)")
    ax.set_xlabel("chunks retrieved")
    ax.set_ylim(0, 1.02)
    percent_axis(ax, "errors with evidence")
    ax.legend(frameon=False, fontsize=8, title="searched for", title_fontsize=8)
    return fig


def learning_curve(curve: "pd.DataFrame") -> "Figure":
    """The rollouts' mean reward and length, by step of one run."""
    figure, axes = new_figure(9.0, 2.8, columns=2)
    axes[0].plot(curve.step, curve.reward, color=CORRECT)
    axes[0].set_ylabel("mean reward")
    axes[1].plot(curve.step, curve["completions/mean_length"], color=CORRECT)
    axes[1].set_ylabel("tokens a response")
    axes[1].set_ylim(bottom=0)
    for ax in axes:
        ax.set_xlabel("GRPO step")
    return figure


def before_and_after(
    before: Mapping[str, float],
    after: Mapping[str, float],
    spans: Mapping[str, Mapping[str, tuple[float, float]]],
) -> "Figure":
    """Rates and claims a question before and after; bars: intervals over requests.

    spans: `base` and `after` → metric → (low, high), of those that have one.
    """
    rates = {
        "hallucination_rate": "long answers:\nwrong claims",
        "short_hallucination": "short answers:\nwrong",
        "short_abstention": "short answers:\nabstained",
        "best_guess_accuracy": "best guesses:\nright",
    }
    claims = {
        "correct_claims_per_question": "correct claims",
        "incorrect_claims_per_question": "other claims",
    }
    figure = bars.before_and_after(before, after, spans, (rates, claims))
    percent_axis(figure.axes[0], "held-out requests")
    figure.axes[1].set_ylabel("claims a question")
    return figure


def by_exposure(
    found: Mapping[str, Mapping[int, Mapping[str, float]]],
) -> "Figure":
    """Correct and other claims a question, by how often the person was read of.

    found: `base` and `after` → lower edge of the bin → metrics.
    """
    figure, axes = new_figure(9.0, 2.8, columns=2)
    for ax, name, label in (
        (axes[0], "correct_claims_per_question", "correct claims a question"),
        (axes[1], "incorrect_claims_per_question", "other claims a question"),
    ):
        for (key, bins), style in zip(found.items(), LINES, strict=False):
            colour = PUBLISHED if key == "base" else WRONG
            colour = CORRECT if key != "base" and ax is axes[0] else colour
            places = range(len(bins))
            ax.plot(
                places,
                [m[name] for m in bins.values()],
                marker="o",
                ls=style,
                color=colour,
                label="before" if key == "base" else key,
            )
            ax.set_xticks(places, [f"≥ {edge}" if edge else "0" for edge in bins])
        ax.set_xlabel("times that the policy read of the person")
        ax.set_ylabel(label)
        ax.set_ylim(bottom=0)
        ax.legend(frameon=False, fontsize=8)
    return figure


def trade_off(results: Results) -> "Figure":
    """Fig 4: hallucination in long answers against utility, a mark an arm.

    Marks are means over seeds, bars 95 % t intervals. Better is left and up.
    """
    figure, ax = new_figure(6.4, 4.2)
    utility = _utility(results)
    for i, (arm, runs) in enumerate(tables.by_arm(results).items()):
        have = [r["metrics"] for r in runs if "hallucination_rate" in r["metrics"]]
        if not have:
            continue
        x, dx = mean_and_range([m["hallucination_rate"] for m in have])
        y, dy = mean_and_range([m[utility] for m in have])
        colour, _, marker = look(i)
        error = {
            "xerr": dx or None,
            "yerr": dy or None,
            "capsize": 2,
            "elinewidth": 0.8,
        }
        name = arm.replace("_", " ")
        ax.errorbar(x, y, **error, color=colour, marker=marker, ls="", label=name)
    widen(ax, 0.05)
    percent_axis(ax, "hallucination rate of long answers", "x")
    percent_axis(ax, LABELS[utility])
    ax.legend(frameon=False, fontsize=8, bbox_to_anchor=(1.0, 1.0), loc="upper left")
    return figure


def _utility(results: Results) -> str:
    """The first of UTILITY that the results measured."""
    return next(name for name in UTILITY if all(name in r["metrics"] for r in results))


def claims(results: Results) -> "Figure":
    """Fig 3: correct and other claims a question by arm; grey lines: the paper's.

    A refusal has 0 of them, as in the paper's public code: leaving details out counts.
    """
    parts = (
        ("correct_claims_per_question", "correct", CORRECT),
        ("incorrect_claims_per_question", "other", WRONG),
    )
    groups = tables.by_arm(results)
    both = set(PAPER_CLAIMS) <= set(groups)
    return bars.claims(groups, parts, PAPER_CLAIMS if both else {}, "claims a question")


def other_models(found: Mapping[str, Results]) -> "pd.DataFrame":
    """The paper's tables of its other models (Tables 2–5) and of AIME25 (Table 6), with
    ours where there are runs, and else why there are none.

    found: variant → results; "" is the main one.
    """
    import pandas as pd

    parts = {}
    for variant, model, table, columns in OTHER_MODELS:
        theirs = tables.published(table, "rar")
        theirs = theirs[theirs["model"] == model].set_index("arm")
        have = [
            r
            for r in found.get(variant, ())
            if all(metric in r["metrics"] for metric in columns.values())
        ]
        if have:
            shown = tables.beside_paper(have, table, columns, "rar", model=model)
        else:
            shown = pd.concat({"paper": theirs[list(columns)]}, axis=1)
            shown["ours", ""] = f"not reproduced: {_why(variant, columns)}"
        parts[f"Table {table}, {model}"] = shown
    return pd.concat(parts)


def _why(variant: str, columns: Mapping[str, str]) -> str:
    if "aime25" in columns:
        return "needs a policy that reasons, and aime25 in utility_benchmarks"
    return f"no run of h100_full's variant {variant}"


def short_answers(results: Results) -> "Figure":
    """Fig 2: short questions that allow abstaining: correct, wrong, abstained."""
    parts = (
        ("short_accuracy", "correct", CORRECT),
        ("short_hallucination", "wrong", WRONG),
        ("short_abstention", "abstained", ABSTAIN),
    )
    figure, ax = bars.stacked(tables.by_arm(results), parts)
    percent_axis(ax, "held-out short questions")
    ax.set_ylim(0, 1)
    ax.legend(frameon=False, fontsize=8, bbox_to_anchor=(1.0, 1.0), loc="upper left")
    return figure


def trajectories(results: Results, arms: Sequence[str]) -> "Figure":
    """Hallucination against utility of the policies kept while training, by arm.

    On the dev requests, of the first seed; a number says after how many updates.
    """
    figure, ax = new_figure(5.4, 4.0)
    utility = _utility(results)
    shown = [r for r in results if r["arm"] in arms]
    first = {r["arm"]: r for r in reversed(shown)}
    for i, (arm, run) in enumerate(first.items()):
        _trajectory(ax, run, utility, look(i), arm.replace("_", " "))
    percent_axis(ax, "hallucination rate of long answers", "x")
    percent_axis(ax, LABELS[utility])
    ax.legend(frameon=False, fontsize=8)
    return figure


def betas(by_beta: Mapping[float, Results], arms: Sequence[str]) -> "Figure":
    """Fig 5: the same for several KL coefficients, a panel an arm, a line a β."""
    figure, axes = new_figure(4.6 * len(arms), 3.8, columns=len(arms))
    for ax in figure.axes[1:]:
        ax.sharex(figure.axes[0])
        ax.sharey(figure.axes[0])
    for ax, arm in zip(figure.axes, arms, strict=True):
        for i, (beta, results) in enumerate(sorted(by_beta.items())):
            runs = [r for r in results if r["arm"] == arm]
            if runs:
                utility = _utility(runs)
                _trajectory(ax, runs[0], utility, look(i), f"β = {beta:g}")
                percent_axis(ax, LABELS[utility])
        percent_axis(ax, "hallucination rate of long answers", "x")
        ax.set_title(arm.replace("_", " "), fontsize=10)
        ax.legend(frameon=False, fontsize=8)
    return figure


def _trajectory(
    ax: "Axes",
    run: Mapping[str, Any],
    utility: str,
    style: tuple[str, Any, str],
    name: str,
) -> None:
    """One run's policies as a line from the base policy on. style: see `look`."""
    metrics = run["metrics"]
    steps = {
        key.split("_")[1]
        for key in metrics
        if key.startswith("dev_") and key.endswith(utility)
    }
    order = sorted(steps, key=lambda s: -1 if s == "base" else int(s))
    points = [
        (metrics[f"dev_{s}_hallucination_rate"], metrics[f"dev_{s}_{utility}"], s)
        for s in order
        if f"dev_{s}_hallucination_rate" in metrics
    ]
    if not points:  # nobody responded
        return
    xs, ys, labels = zip(*points, strict=True)
    colour, _, marker = style
    ax.plot(xs, ys, marker=marker, ms=4, color=colour, label=name)
    for x, y, label in points:
        ax.annotate(label, (x, y), xytext=(4, 4), textcoords="offset points", size=7)


def exposure_by_arm(results: Results, arms: Sequence[str]) -> "Figure":
    """Correct and other claims a question, by how often the person was read of."""
    figure, axes = new_figure(9.0, 3.0, columns=2)
    groups = tables.by_arm([r for r in results if r["arm"] in arms])
    for i, (arm, runs) in enumerate(groups.items()):
        colour, style, _ = look(i)
        kinds = [f"{k}_claims_per_question" for k in ("correct", "incorrect")]
        for ax, kind in zip(axes, kinds, strict=True):
            edges = _edges(runs[0]["metrics"], kind)
            means = [
                sum(r["metrics"][f"exposure_{e}_{kind}"] for r in runs) / len(runs)
                for e in edges
            ]
            name = arm.replace("_", " ")
            ax.plot(means, ls=style, marker="o", color=colour, label=name)
            ax.set_xticks(range(len(edges)), [f"≥ {e}" if e else "0" for e in edges])
    for ax, label in zip(axes, ("correct", "other"), strict=True):
        ax.set_xlabel("times that the policy read of the person")
        ax.set_ylabel(f"{label} claims a question")
        ax.set_ylim(bottom=0)
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def _edges(metrics: Mapping[str, float], name: str) -> list[int]:
    """The lower edges of the exposure bins that a run has."""
    keys = [k for k in metrics if k.startswith("exposure_") and k.endswith(f"_{name}")]
    return sorted(int(k.split("_")[1]) for k in keys if k.split("_")[1].isdigit())
