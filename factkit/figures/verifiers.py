"""What verifiers are worth on claims that people labelled."""

from typing import TYPE_CHECKING

from factkit.figures import look, new_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def aucs(table: "pd.DataFrame") -> "Figure":
    """AUC by set, a panel a question, with intervals; at 0.5 a coin.

    table: as 02 makes it, with a column `set`.
    """
    names = list(dict.fromkeys(table["verifier"]))
    questions = list(dict.fromkeys(table["question"]))
    figure, _ = new_figure(8.0, 3.8, columns=len(questions))
    for ax, question in zip(figure.axes, questions, strict=True):
        of = table[table["question"] == question]
        sets = list(dict.fromkeys(of["set"]))[::-1]
        for i, name in enumerate(names):
            rows = of[of["verifier"] == name]
            up = 0.16 * ((len(names) - 1) / 2 - i)
            ends = rows["auc"] - rows["auc_low"], rows["auc_high"] - rows["auc"]
            colour, _, marker = look(i)
            style = {"color": colour, "marker": marker, "ls": "", "ms": 5, "lw": 1}
            at = [sets.index(s) + up for s in rows["set"]]
            ax.errorbar(rows["auc"], at, xerr=ends, label=name, **style)
        ax.axvline(0.5, color="black", lw=0.6)
        ax.set_yticks(range(len(sets)), sets)
        ax.set(xlabel=f"AUC, {question}", xlim=(0.4, 1), ylim=(-0.5, len(sets) - 0.5))
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False)
    return figure
