"""Tables: arms over seeds, ours beside the paper's, responses coloured by outcome."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from factkit import arms
from factkit.evaluate.long_form import Checked
from factkit.figures import mean_and_range
from factkit.stored_runs import apart, with_iterations
from factkit.verify.claims import Support
from factkit.verify.outcome import Outcome
from factkit.verify.response import answers

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler

RULE = "relation_rule"  # no arm: the untrained baseline of `short_form.relation_rule`
Result = Mapping[str, Any]
RATES = ("truthfulness", "accuracy", "hallucination", "abstention")
SHOWN = {  # of a paper's results, at a glance
    "truthrl": RATES,
    "rar": (
        *("hallucination_rate", "short_hallucination", "short_abstention"),
        *("win_rate", "best_guess_accuracy", "format_following"),
    ),
    "reason": ("factual_precision", "win_rate", "response_rate", "malformed"),
    "rlfh": ("factual_precision", "response_rate"),
    "veri": (
        *("joint_accuracy", "verification_accuracy", "label_accuracy"),
        *("evidence_score", "checkable_evidence_score", "evidence_cover"),
    ),
}
PAPER_DEFAULT = {
    "setting": ["with retrieval"],
    "model": [
        *("Llama3.1-8B-Inst", "Qwen3-8B", "Vicuna-7B"),
        *("Qwen2.5-3B-Instruct", "Qwen2.5-7B-Instruct"),
    ],
    "dataset": ["CRAG"],
    "judge": ["Llama3.3-70B-Inst"],
}
BACKGROUND = {
    Outcome.CORRECT: "background-color: #cfe2f3",
    Outcome.ABSTAIN: "background-color: #eeeeee; font-style: italic",
    Outcome.WRONG: "background-color: #f9d5c3",
}

SUPPORT_BACKGROUND = {
    Support.SUPPORTED: "background-color: #cfe2f3",
    Support.INCONCLUSIVE: "background-color: #eeeeee",
    Support.CONTRADICTED: "background-color: #f9d5c3",
}
SERIOUS = {kind: i for i, kind in enumerate(SUPPORT_BACKGROUND)}


def outcome_colours(table: "pd.DataFrame", outcome_of: Mapping[str, str]) -> "Styler":
    """Colour response columns by their outcome: blue correct, grey abstains, red wrong.

    outcome_of: response column → the column that holds its outcome.
    """
    style = table.style.hide(axis="index")
    for column, outcome_column in outcome_of.items():
        colours = [BACKGROUND[Outcome(o)] for o in table[outcome_column]]
        style = style.apply(lambda _, c=colours: c, subset=[column])
    return style


def claim_colours(rows: Sequence[tuple[str, Checked, Checked]]) -> "Styler":
    """Requests with two answers each, a claim's sentence in the colour of its support:
    blue supported, red contradicted, grey neither; what is no claim has none."""
    import pandas as pd

    table = pd.DataFrame(
        [(escape(prompt), _coloured(b), _coloured(a)) for prompt, b, a in rows],
        columns=["request", "before", "after"],
    )
    style = table.style.hide(axis="index")
    return style.set_properties(**{"text-align": "left", "vertical-align": "top"})


def _coloured(row: Checked) -> str:
    """An answer as HTML, its sentences marked by what was found of their claims."""
    (answer,) = answers([row.response])
    worst: dict[str, Support] = {}
    for claim, support in zip(row.claims or (), row.supports, strict=True):
        if support and SERIOUS[support] >= SERIOUS.get(worst.get(claim.sentence), -1):
            worst[claim.sentence] = support
    if not worst:
        return escape(answer)
    longest = sorted(worst, key=len, reverse=True)  # one may hold another
    parts = re.split(f"({'|'.join(map(re.escape, longest))})", answer)
    return "".join(
        f'<span style="{SUPPORT_BACKGROUND[worst[part]]}">{escape(part)}</span>'
        if part in worst
        else escape(part)
        for part in parts
    )


def published(table: int, paper: str = "truthrl") -> "pd.DataFrame":
    """A table of the paper as it was printed, in per cent; a row an arm."""
    import pandas as pd

    name = f"{paper}_table{table}.csv"
    return pd.read_csv(str(files("factkit") / "published" / name))


def test_sets(paper: str) -> "pd.DataFrame":
    """How many items of each test set the paper has and ours, and why they differ.

    ours: of the whole public file, as our loader gives it, where we had the file.
    """
    import pandas as pd

    path = str(files("factkit") / "published" / "test_sets.csv")
    rows = pd.read_csv(path, dtype=str, keep_default_na=False)
    rows = rows[rows.paper == paper].drop(columns="paper").set_index("set")
    names = {"n": "the paper's", "loaded": "ours, whole", "why": "why they differ"}
    return rows.rename(columns=names)


def results_table(
    results: Sequence[Mapping[str, Any]],
    names: Sequence[str] = RATES,
    arms: Sequence[str] = (),
) -> "pd.DataFrame":
    """A row an arm: mean over seeds of each metric in per cent, ± the 95 % interval.

    names: metrics, by default the four rates. arms: which, by default all. Where the
    results hold the rule by relation, it has a row.
    """
    import pandas as pd

    rows = {}
    for arm, runs in by_arm(with_rule(results, names)).items():
        if arms and arm not in (*arms, RULE):
            continue
        row: dict[str, Any] = {"seeds": len(runs)}
        runs = policies(arm, runs)
        row |= {name: spread([r["metrics"].get(name) for r in runs]) for name in names}
        rows[arm] = row
    return pd.DataFrame(rows).T.rename_axis("arm")


def counts_table(
    results: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> "pd.DataFrame":
    """As `results_table`, of metrics that are no fractions: claims, words."""
    import pandas as pd

    rows = {
        arm: {
            name: spread([r["metrics"].get(name) for r in runs], factor=1)
            for name in names
        }
        for arm, runs in by_arm(results).items()
    }
    return pd.DataFrame(rows).T.rename_axis("arm")


def spread(values: Sequence[float | None], factor: float = 100) -> str:
    """Values as "mean ± half-width of the 95 % t interval"; fractions in per cent."""
    given = [factor * v for v in values if v is not None]
    if not given:
        return "–"
    mean, half = mean_and_range(given)
    return f"{mean:.1f} ± {half:.1f}" if len(given) > 1 else f"{mean:.1f}"


def beside_paper(
    results: Sequence[Mapping[str, Any]],
    table: int,
    metrics: Mapping[str, str],
    paper: str = "truthrl",
    **chosen: str,
) -> "pd.DataFrame":
    """Ours beside one of the paper's tables, for the arms in both; in per cent.

    metrics: column of the published table → our metric. Of tables with several models,
    data sets or settings, the paper's main one is shown (`PAPER_DEFAULT`), or the one
    chosen, as by setting="without retrieval".
    """
    import pandas as pd

    theirs = published(table, paper)
    wanted = PAPER_DEFAULT | {
        column: [value] for column, value in chosen.items() if value
    }
    for column, values in wanted.items():
        if column in theirs:
            theirs = theirs[theirs[column].isin(values)]
    theirs = theirs.set_index("arm")
    ours = by_arm(with_rule(with_iterations(results), [*metrics.values()]))
    ours = {arm: policies(arm, runs) for arm, runs in ours.items()}
    rows = {
        arm: {("paper", c): "–" if arm == RULE else theirs.at[arm, c] for c in metrics}
        | {
            ("ours", c): spread([r["metrics"].get(m) for r in ours[arm]])
            for c, m in metrics.items()
        }
        for arm in (*theirs.index, RULE)
        if arm in ours
    }
    return pd.DataFrame(rows).T.rename_axis("arm")


def with_rule(
    results: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> list[Mapping[str, Any]]:
    """The results, and the untrained rule by relation as one more, of one seed.

    It depends on the questions alone and is stored with every arm. Nothing is added if
    no result holds one of `names` for it.
    """
    for r in results:
        metrics = {
            name: r["metrics"][f"{RULE}_{name}"]
            for name in names
            if f"{RULE}_{name}" in r["metrics"]
        }
        if metrics:
            return [*results, {**r, "arm": RULE, "metrics": metrics}]
    return list(results)


def by_arm(results: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Results of training runs grouped by arm, in the order that the paper tells.

    Runs of one arm with other parameters are an arm of their own (`stored_runs.apart`).
    """
    if all("params" in r and "paper" in r for r in results):
        results = apart(results)
    names = {r["arm"] for r in results}
    of_papers = [name for paper in arms.PAPERS for name in arms.table(paper)]
    known = dict.fromkeys(["base", "instruct", "prompting", RULE, *of_papers])
    order = [name for name in known if name in names]
    order += sorted(names - set(order))
    return {name: [r for r in results if r["arm"] == name] for name in order}


def policies(arm: str, runs: list[Result]) -> list[Result]:
    """The runs of an arm that are policies of their own: one, where it is untrained."""
    return runs[:1] if arm in arms.untrained() else runs


def by_prefix(
    metrics: Mapping[str, float], arms: Sequence[str], prefix: str
) -> list[dict[str, Any]]:
    """The metrics <arm>_<prefix>_<name> of a comparison, as a result for each arm."""
    return [
        {
            "arm": arm,
            "metrics": {
                key.removeprefix(f"{arm}_"): value
                for key, value in metrics.items()
                if key.startswith(f"{arm}_{prefix}_")
            },
        }
        for arm in arms
    ]


def stacked(parts: Mapping[str, "pd.DataFrame"]) -> "pd.DataFrame":
    """The parts that have rows, one above the other under their names."""
    import pandas as pd

    filled = {name: part for name, part in parts.items() if len(part)}
    return pd.concat(filled) if filled else pd.DataFrame()
