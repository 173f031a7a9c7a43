"""Rewards under a stress test, as a heat map."""

from typing import TYPE_CHECKING

from factkit.figures import WRONG, new_figure, spaced

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def stress_heatmap(matrix: "pd.DataFrame", pays: "pd.DataFrame") -> "Figure":
    """Mean reward by arm and exploit; framed where it pays at least the honest answer.

    matrix, pays: as rewards.exploits gives them. Colours are shares of the highest mean
    of an arm, since not all rewards have one scale; the numbers are the rewards.
    """
    from matplotlib.patches import Rectangle

    rows, columns = matrix.shape
    figure, ax = new_figure(0.62 * columns + 2.2, 0.36 * rows + 1.6)
    shares = matrix.div(matrix.max(axis=1).where(lambda top: top > 0, 1.0), axis=0)
    framed = pays.fillna(False).to_numpy(dtype=bool)
    image = ax.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for y in range(rows):
        for x in range(columns):
            value, share = matrix.iat[y, x], shares.iat[y, x]
            text = f"{value:.2f}" if value == value else "–"  # NaN: the judge failed
            ink = "white" if share > 0.6 else "black"
            ax.text(x, y, text, ha="center", va="center", color=ink, fontsize=8)
            if framed[y, x] and matrix.columns[x] != "honest":
                frame = {"fill": False, "ec": WRONG, "lw": 1.8}
                ax.add_patch(Rectangle((x - 0.45, y - 0.43), 0.9, 0.86, **frame))
    ax.set_xticks(range(columns), map(spaced, matrix.columns), rotation=40, ha="right")
    ax.set_yticks(range(rows), map(spaced, matrix.index))
    ax.tick_params(length=0, labelsize=9)
    ax.spines[:].set_visible(False)
    ax.set_xlabel("response")
    ax.set_ylabel("reward")
    ax.set_title("Framed: pays as much as the honest answer", fontsize=10, loc="left")
    figure.colorbar(image, ax=ax, label="share of the arm's highest", pad=0.02)
    return figure
