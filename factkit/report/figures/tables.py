"""Tables: arms over seeds, ours beside the paper's."""

import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from factkit.answers import UNTRAINED_RULES
from factkit.report import published
from factkit.report.figures import name_arm
from factkit.run import past_runs, runs
from factkit.run.arms import find_papers, untrained_arms
from factkit.run.params import ROOT
from factkit.run.params.stages import RunParams
from factkit.run.results import all_results
from factkit.run.statistics import t_interval

Result = Mapping[str, Any]
RATES = ("truthfulness", "accuracy", "hallucination", "abstention")

# ---- our results


def stored(
    paper: str, p: RunParams, variant: str = ""
) -> dict[str, list[dict[str, Any]]]:
    """Variant → the training runs to draw: this machine's, and reference results with
    the same parameters. Prints them. Raises RunError if `variant` has none."""
    results_of = past_runs.stored(paper, p.profile, ROOT / p.output_dir, beside=True)
    if variant not in results_of:
        sweep = f"python -m factkit sweep {paper} --profile {p.profile}"
        sweep += f" --variant {variant}" * bool(variant)
        sweep += f" --output-dir {p.output_dir}" * (p.output_dir != "outputs")
        raise runs.RunError(f"no results of profile {p.profile}: run {sweep}")
    by_variant = {}
    for name, results in results_of.items():
        trained = [dict(r) for r in results if "prefix" not in r]  # no iterations
        folders = [Path(r["folder"]).parent for r in trained]
        n = folders.count(folders[0])
        on = trained[0]["device"]
        print(f"{name or 'main'}: {n} runs from {runs.relative(folders[0])}, on {on}")
        if others := dict.fromkeys(r["arm"] for r in trained[n:]):
            print(f"    beside them from the reference results: {', '.join(others)}")
        by_variant[name] = add_consistency_rule(trained)
    return by_variant


def add_consistency_rule(results: Sequence[Result]) -> list[Any]:
    """The results, with the metrics of the untrained consistency rule added to the
    first of them.

    A run of the data notebook measures them (`claim_rules.score_consistency`), once for
    all arms. They are added only if the first result was trained from that run's files.
    """
    first, *others = results
    data = find_papers()[first["paper"]].notebooks["data"]
    inputs = {Path(path).name: digest for path, digest in first["inputs"].items()}
    added: dict[str, float] = {}
    for run in all_results(Path(first["folder"]).parents[1] / data):
        if inputs.items() <= run["files"].items():
            measured = run["metrics"].items()
            added = {k: v for k, v in measured if k.startswith("consistency_")}
    return [{**first, "metrics": {**first["metrics"], **added}}, *others]


def compared(paper: str, p: Any) -> list[dict[str, Any]]:
    """`stored` results of the arms and seeds of `p`."""
    named = [(arm, seed) for arm in p.arm_names for seed in p.seed_numbers]
    results = stored(paper, p, p.variant)[p.variant]
    return [r for r in results if (r["arm"], r["seed"]) in named]


def samples(results: Sequence[Result], arm: str) -> list[Path]:
    """The stored answers of an arm, before and after, of the seeds that have some."""
    paths = [Path(r["folder"]) / "samples.jsonl" for r in results if r["arm"] == arm]
    return [path for path in paths if path.exists()]


def read_samples(result: Result) -> pd.DataFrame:
    """The held-out questions of a run, with the answers before and after; an outcome is
    None where the judge failed."""
    text = Path(result["folder"], "samples.jsonl").read_text("utf-8")
    return pd.DataFrame(map(json.loads, text.splitlines()), dtype=object)


def by_arm(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Results by arm, in the paper's order. Runs with other parameters are an arm of
    their own (`past_runs.separate_settings`)."""
    if all("params" in r and "paper" in r for r in results):
        results = past_runs.separate_settings(results)
    tables = [list(paper.arms) for paper in find_papers().values()]
    known = [table[0] for table in tables] + [*UNTRAINED_RULES.values()]  # untrained
    known += [name for table in tables for name in table]
    names = {r["arm"] for r in results}
    known = [beside for name in known for beside in (name, f"{name} (reference)")]
    order = dict.fromkeys([n for n in known if n in names] + sorted(names - {*known}))
    return {name: [r for r in results if r["arm"] == name] for name in order}


def policies(arm: str, group: list[Result]) -> list[Result]:
    """The runs of an arm with different policies: one if it is untrained."""
    untrained = arm.removesuffix(" (reference)") in untrained_arms()
    return group[:1] if untrained else group


def policies_of(
    results: Sequence[Result], wanted: Sequence[str]
) -> dict[str, list[Result]]:
    """The `policies` of these arms, by arm."""
    groups = by_arm([r for r in results if r["arm"] in wanted])
    return {arm: policies(arm, group) for arm, group in groups.items()}


def rule_results(results: Sequence[Result]) -> list[Result]:
    """Results of the untrained rules, as of arms that UNTRAINED_RULES names, with the
    metrics `before` them.

    They depend only on the questions and the base policy's answers, so those of the
    first run are enough.
    """
    by_rule: dict[str, Result] = {}
    for (rule, arm), r in itertools.product(UNTRAINED_RULES.items(), results):
        before, metrics = (
            {n.removeprefix(p): v for n, v in r["metrics"].items() if n.startswith(p)}
            for p in ("before_", f"{rule}_")
        )
        if metrics:
            new = {"arm": arm, "metrics": metrics, "before": before}
            by_rule.setdefault(arm, {**r, **new})
    return list(by_rule.values())


def with_rules(results: Sequence[Result], names: Sequence[str]) -> list[Result]:
    """The results, and those of the untrained rules with one of these metrics."""
    rules = rule_results(results)
    return [*results, *(r for r in rules if any(n in r["metrics"] for n in names))]


def values(group: Sequence[Result], name: str) -> list[float]:
    """A metric of the runs that have it."""
    return [r["metrics"][name] for r in group if name in r["metrics"]]


def spread(given: Sequence[float | None], factor: float = 100) -> str:
    """Values as "mean ± half-width of the 95 % t interval"; fractions in per cent."""
    scaled = [factor * v for v in given if v is not None]
    if not scaled:
        return "–"
    mean, half = t_interval(scaled)
    return f"{mean:.1f} ± {half:.1f}" if len(scaled) > 1 else f"{mean:.1f}"


def means(results: Sequence[Result], names: Sequence[str] = ()) -> dict[str, float]:
    """<arm>_<metric> → mean over the seeds that have it.

    names: metrics, default: all but dev, before-training, exposure and rules' metrics.
    """
    others = ("dev_", "before_", "exposure_", *(f"{rule}_" for rule in UNTRAINED_RULES))
    every = sorted({name for r in results for name in r["metrics"]})
    names = names or [name for name in every if not name.startswith(others)]
    return {
        f"{name_arm(arm, group)}_{name}": t_interval(measured)[0]
        for arm, group in by_arm(results).items()
        for name in names
        if (measured := values(group, name))
    }


def results_table(
    results: Sequence[Result],
    names: Sequence[str] = RATES,
    arms: Sequence[str] = (),
    factor: float = 100,
) -> pd.DataFrame:
    """One row per arm: mean over seeds of each metric ± the 95 % interval.

    arms: default all. factor: 100 for per cent, 1 for counts; metrics per question are
    always counts. The untrained rules have a row if the results have them.
    """
    factors = {n: 1 if n.endswith("_per_question") else factor for n in names}
    rows = {
        name_arm(arm, group): {"seeds": len(group)}
        | {n: spread(values(policies(arm, group), n), factors[n]) for n in names}
        for arm, group in by_arm(with_rules(results, names)).items()
        if not arms or arm in (*arms, *UNTRAINED_RULES.values())
    }
    return pd.DataFrame(rows).T.rename_axis("arm")


def beside_paper(
    results: Sequence[Result],
    table: int,
    metrics: Mapping[str, str],
    paper: str,
    counts: Collection[str] = (),
    **chosen: str,
) -> pd.DataFrame:
    """Ours beside one of the paper's tables, for the arms in both; in per cent.

    metrics: column of the published table → our metric. counts: columns that are no
    fractions. chosen: see `published.select_rows`.
    """
    theirs = published.select_rows(table, paper, **chosen).set_index("arm")
    results = past_runs.with_iterations(results)
    ours = by_arm(with_rules(results, [*metrics.values()]))
    rows: dict[str, dict[tuple[str, str], Any]] = {}
    for arm in (*theirs.index, *UNTRAINED_RULES.values()):
        group = policies(arm, ours.get(arm, []))
        printed = (
            theirs.loc[arm] if arm in theirs.index else dict.fromkeys(metrics, "–")
        )
        row = {("paper", c): printed[c] for c in metrics}
        for column, metric in metrics.items():
            factor = 1 if metric in counts else 100
            row["ours", column] = spread(values(group, metric), factor)
        rows |= {name_arm(arm, group): row} if group else {}
    return pd.DataFrame(rows).T.rename_axis("arm")


def in_words(results: Sequence[Result], names: Sequence[str]) -> str:
    """Sentences with the arms of the highest and lowest mean of each metric."""
    sentences = []
    for name in names:
        by_mean = {
            100 * t_interval(measured)[0]: name_arm(arm, group)
            for arm, group in by_arm(results).items()
            if (measured := values(group, name))
        }
        if by_mean:
            ends = (max(by_mean), min(by_mean))
            most, least = (f"{by_mean[mean]} ({mean:.1f} %)" for mean in ends)
            words = name.replace("_", " ")
            sentences.append(f"{words}: most of {most}, least of {least}.")
    return "\n".join(sentences)


def stacked(parts: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The parts that have rows, one above the other under their names."""
    filled = {name: part for name, part in parts.items() if len(part)}
    return pd.concat(filled) if filled else pd.DataFrame()
