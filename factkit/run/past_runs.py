"""Stored results of training runs; an arm that was run in several ways, told apart."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from factkit.run import arms, folders, params, runs

Result = Mapping[str, Any]


def stored(
    paper: str, profile: str, root: Path | None, beside: bool = False
) -> dict[str, list[Result]]:
    """Variant → results of a paper's training runs at a profile; "" is the main one.

    root: the folder of the user's runs. A variant without runs below it has the
    reference results, each marked by `reference`: True. None: the reference results
    alone, without that mark. beside: add to a variant's own runs the reference results
    of arms that were run with the same parameters; an arm that has both keeps its name
    for the user's runs, and the reference is `<arm> (reference)`.
    """
    by_variant = _read_variants(paper, profile, runs.REFERENCE)
    if root is None:
        return {name: with_iterations(rs) for name, rs in by_variant.items()}
    for name, results in by_variant.items():
        by_variant[name] = [r | {"reference": True} for r in results]
    for name, own in _read_variants(paper, profile, root).items():
        trained = {r["arm"] for r in own}
        others = [
            r | {"arm": f"{r['arm']} (reference)" if r["arm"] in trained else r["arm"]}
            for r in by_variant.get(name, ())
            if beside and _alike(paper, r, own[0])
        ]
        by_variant[name] = own + others
    return {name: with_iterations(results) for name, results in by_variant.items()}


def _read_variants(paper: str, profile: str, root: Path) -> dict[str, list[Result]]:
    """Variant → results of a paper's arms below a folder, as `apart`; none of a user's
    own rewards."""
    by_variant = {}
    for folder in sorted(root.glob(f"{profile}*")):
        name, _, variant = folder.name.partition("-")
        found = runs.all_results(*folder.glob(f"[1-6][12]_{paper}_train"))
        results = [r for r in found if not r["arm"].startswith(f"{runs.OWN}/")]
        if name == profile and results:
            by_variant[variant] = apart(results)
    return by_variant


def _alike(paper: str, result: Result, other: Result) -> bool:
    """Whether all that an arm depends on was set as in another arm's run."""
    arm = arms.table(paper).get(result["arm"])
    if arm is None:  # an arm in another way
        return False
    ours, theirs = result["params"], other["params"]
    own = folders.SERVICE_KEYS | {"arm", "arms", "seed", "seeds", "output_dir"}
    keys = (arm.reads.model_fields.keys() & ours.keys() & theirs.keys()) - own
    return all(ours[key] == theirs[key] for key in keys)


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
            keys = sorted(way.keys() | usual.keys())
            other = [f"{k}={way.get(k)}" for k in keys if way.get(k) != usual.get(k)]
            name = f"{r['arm']} ({', '.join(other)})" if other else r["arm"]
            named.append({**r, "arm": name})
    return named


def _way(result: Result) -> dict[str, Any]:
    """How a run was made, whatever its seed: parameters, inputs, reward."""
    arm = arms.table(result["paper"]).get(result["arm"])
    reads = arm.reads if arm else params.class_of(result["paper"])
    keys = (
        set(reads.model_fields) - {"seed", "arm", "output_dir"} - folders.SERVICE_KEYS
    )
    way = {k: v for k, v in result["params"].items() if k in keys}
    digests = result.get("inputs", {}).items()
    way |= {f"input {Path(path).name}": digest[:8] for path, digest in digests}
    for trainer, recipe in result.get("recipe", {}).items():
        way |= {k: v for k, v in recipe.items() if k.startswith("make_")}
        if trainer == "verl":
            way["trainer"] = f"verl {recipe['verl_overrides']}".rstrip()
    return way


def with_iterations(results: Sequence[Result]) -> list[Result]:
    """The results, and those of iterative DPO once more for each of its iterations.

    They are counted as in TruthRL's Table 4, from a model that DPO has trained: that is
    what our first iteration makes, so that the second one is iterative_dpo_1.
    """
    more = []
    for r in results:
        iterations: dict[int, dict[str, float]] = {}
        for name, value in r["metrics"].items():
            if match := re.fullmatch(r"iteration_(\d+)_(.+)", name):
                iterations.setdefault(int(match[1]), {})[match[2]] = value
        for i, metrics in sorted(iterations.items())[1:]:
            arm = r["arm"].replace("iterative_dpo", f"iterative_dpo_{i - 1}", 1)
            own = {"arm": arm, "prefix": f"iteration_{i}_"}
            more.append({**r, **own, "metrics": metrics})
    return [*results, *more]
