"""What stored runs hold: their items, and which of them belong together."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit import arms, params, statistics

if TYPE_CHECKING:
    import pandas as pd

Result = Mapping[str, Any]


def read_items(folder: Path | str) -> "pd.DataFrame | None":
    """The items that a run stored, a row an item, a column a metric; None without."""
    path = Path(folder) / "items.csv"
    return _items(path, path.stat().st_mtime_ns).copy() if path.is_file() else None


@functools.lru_cache(maxsize=1000)
def _items(path: Path, _changed: int) -> "pd.DataFrame":
    import pandas as pd

    table = pd.read_csv(path, index_col="item", dtype={"item": str})
    return table.drop(columns=["arm", "seed"])


def item_values(
    table: "pd.DataFrame", metric: str, prefix: str = ""
) -> statistics.Items:
    """Item → (value, weight) of those that count in a metric.

    prefix: of the columns' names, as of an iteration's metrics.
    """
    values = table[prefix + metric]
    weight = statistics.WEIGHTS.get(metric)
    weights = table[prefix + weight] if weight else values.notna().astype(float)
    kept = values.notna() & weights.notna()
    pairs = zip(values[kept], weights[kept], strict=True)
    return dict(zip(table.index[kept], pairs, strict=True))


def apart(results: Sequence[Result]) -> list[Result]:
    """The results, each arm that was run in several ways under several names.

    Seeds of one arm belong together if their parameters, inputs and reward are the
    same. The way that most of them were run keeps the arm's name; another is named
    after it with what differs, as `ternary (beta=0.01)`: no table averages the two.
    """
    by_arm: dict[tuple, list[Result]] = {}
    for r in results:
        setting = (r["paper"], r["profile"], r.get("variant"))
        by_arm.setdefault((*setting, r["arm"]), []).append(r)
    named = []
    for runs_of_arm in by_arm.values():
        ways = [_way(r) for r in runs_of_arm]
        usual = max(ways, key=ways.count)
        for r, way in zip(runs_of_arm, ways, strict=True):
            differing = [
                f"{k}={way.get(k)}"
                for k in sorted(way.keys() | usual.keys())
                if way.get(k) != usual.get(k)
            ]
            name = f"{r['arm']} ({', '.join(differing)})" if differing else r["arm"]
            named.append({**r, "arm": name})
    return named


def _way(result: Result) -> dict[str, Any]:
    """How a run was made, whatever its seed: parameters, inputs, reward."""
    arm = arms.table(result["paper"]).get(result["arm"])
    reads = arm.reads if arm else params.class_of(result["paper"])
    keys = set(reads.model_fields)
    keys -= {"seed", "arm", "output_dir"}
    way = {k: v for k, v in result["params"].items() if k in keys}
    digests = result.get("inputs", {}).items()
    way |= {f"input {Path(path).name}": digest[:8] for path, digest in digests}
    for recipe in result.get("recipe", {}).values():
        way |= {k: v for k, v in recipe.items() if k.startswith("make_")}
    return way


def with_iterations(results: Sequence[Result]) -> list[Result]:
    """The results, and those of iterative DPO once more for each of its iterations."""
    more = []
    for r in results:
        numbers = {k.split("_")[1] for k in r["metrics"] if k.startswith("iteration_")}
        for i in sorted(numbers):
            prefix = f"iteration_{i}_"
            metrics = {
                name.removeprefix(prefix): value
                for name, value in r["metrics"].items()
                if name.startswith(prefix)
            }
            arm = {"arm": f"iterative_dpo_{i}", "metrics": metrics, "prefix": prefix}
            more.append({**r, **arm})
    return [*results, *more]
