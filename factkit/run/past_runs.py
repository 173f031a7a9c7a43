"""Stored results of training runs; an arm with several settings has several names."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from factkit.run import arms, folders, runs

Result = Mapping[str, Any]


def stored(
    paper: str, profile: str, root: Path | None, beside: bool = False
) -> dict[str, list[Result]]:
    """Variant → results of a paper's training runs at a profile; "" is the main one.

    root: the folder of the user's runs. A variant without runs there gets the reference
    results, marked by `reference`: True; root None: the reference results alone,
    without that mark. beside: add to the user's runs of a variant the reference results
    with the same parameters; where an arm has both, those are `<arm> (reference)`.
    """
    by_variant = _read_variants(paper, profile, runs.REFERENCE)
    if root is None:
        return {name: with_iterations(rs) for name, rs in by_variant.items()}
    for name, results in by_variant.items():
        by_variant[name] = [{**r, "reference": True} for r in results]
    for name, own in _read_variants(paper, profile, root).items():
        trained = {r["arm"] for r in own}
        others = [
            {**r, "arm": f"{r['arm']} (reference)" if r["arm"] in trained else r["arm"]}
            for r in by_variant.get(name, ())
            if beside and _alike(paper, r, own[0])
        ]
        by_variant[name] = [*own, *others]
    return {name: with_iterations(results) for name, results in by_variant.items()}


def _read_variants(paper: str, profile: str, root: Path) -> dict[str, list[Result]]:
    """Variant → results of a paper's arms below a folder, without a user's own
    rewards."""
    by_variant = {}
    for folder in sorted(root.glob(f"{profile}*")):
        name, _, variant = folder.name.partition("-")
        found = runs.all_results(*folder.glob(f"*_{paper}_train"))
        results = [r for r in found if not r["arm"].startswith(f"{runs.OWN}/")]
        if name == profile and results:
            by_variant[variant] = separate_settings(results)
    return by_variant


def _alike(paper: str, result: Result, other: Result) -> bool:
    """Whether the parameters that an arm depends on have the same values in another
    run."""
    arm = arms.find_papers()[paper].arms.get(result["arm"])
    if arm is None:  # with other settings
        return False
    ours, theirs = result["params"], other["params"]
    own = folders.SERVICE_KEYS | {"arm", "arms", "seed", "seeds", "output_dir"}
    keys = (arm.reads.model_fields.keys() & ours.keys() & theirs.keys()) - own
    return all(ours[key] == theirs[key] for key in keys)


def separate_settings(results: Sequence[Result]) -> list[Result]:
    """The results, with an arm's name for each of its settings.

    Seeds of one arm belong together if their parameters, inputs and reward are the
    same. The most frequent setting keeps the arm's name; another one is named after
    what differs, as `ternary (beta=0.01)`, so that no table averages the two.
    """
    by_arm: dict[tuple, list[Result]] = {}
    for r in results:
        setting = (r["paper"], r["profile"], r.get("variant"))
        by_arm.setdefault((*setting, r["arm"]), []).append(r)
    named: list[Result] = []
    for runs_of_arm in by_arm.values():
        settings = [_read_settings(r) for r in runs_of_arm]
        usual = max(settings, key=settings.count)
        for r, own in zip(runs_of_arm, settings, strict=True):
            keys = sorted(own.keys() | usual.keys())
            other = [f"{k}={own.get(k)}" for k in keys if own.get(k) != usual.get(k)]
            name = f"{r['arm']} ({', '.join(other)})" if other else r["arm"]
            named.append({**r, "arm": name})
    return named


def _read_settings(result: Result) -> dict[str, Any]:
    """The parameters, inputs and reward of a run, without its seed."""
    paper = arms.find_papers()[result["paper"]]
    arm = paper.arms.get(result["arm"])
    reads = arm.reads if arm else paper.parameters
    keys = reads.model_fields.keys() - {"seed", "arm", "output_dir"}
    keys -= folders.SERVICE_KEYS
    settings = {k: v for k, v in result["params"].items() if k in keys}
    digests = result.get("inputs", {}).items()
    settings |= {f"input {Path(path).name}": digest[:8] for path, digest in digests}
    for trainer, recipe in result.get("recipe", {}).items():
        settings |= {k: v for k, v in recipe.items() if k.startswith("make_")}
        if trainer == "verl":
            settings["trainer"] = f"verl {recipe['verl_overrides']}".rstrip()
    return settings


def with_iterations(results: Sequence[Result]) -> list[Result]:
    """The results, and those of an arm that trains several times once more for each of
    its iterations.

    They are counted as in TruthRL's Table 4, from the model of the first one: the
    second iteration of `iterative_dpo` is `iterative_dpo_1`.
    """
    more = []
    for r in results:
        iterations: dict[int, dict[str, float]] = {}
        for name, value in r["metrics"].items():
            if match := re.fullmatch(r"iteration_(\d+)_(.+)", name):
                iterations.setdefault(int(match[1]), {})[match[2]] = value
        for i, metrics in sorted(iterations.items())[1:]:
            arm = re.sub(r"^\w+", rf"\g<0>_{i - 1}", r["arm"])
            own = {"arm": arm, "prefix": f"iteration_{i}_"}
            more.append({**r, **own, "metrics": metrics})
    return [*results, *more]
