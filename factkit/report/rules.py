"""Untrained rules that stored results lack, computed from what is stored beside them.

A table compares each trained arm with rules that need no training. Runs store most of
them. Older runs do not have all, and the consistency rule is measured once for all
arms, by the run of the data notebook.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from factkit.answers import calibration, claim_rules, long_form
from factkit.facts.leads import facts as leads
from factkit.facts.leads.reader import LeadReader
from factkit.report.figures import tables
from factkit.run.arms import untrained_arms
from factkit.run.past_runs import Result
from factkit.run.results import read_items
from factkit.verify.outcome import Outcome

# truthfulness of an item → its outcome
OUTCOMES = {1.0: Outcome.CORRECT, 0.0: Outcome.ABSTAIN, -1.0: Outcome.WRONG}


def add_rules(results: Sequence[Result]) -> list[Any]:
    """The results of one setting, some with the metrics of untrained rules added."""
    results = add_confidence_rule(add_claim_rules(results))
    return tables.add_consistency_rule(results)


def add_claim_rules(results: Sequence[Result]) -> list[Any]:
    """The results, with `first_claim` and, for Wikipedia leads, `century_rule` added to
    the first that has the base policy's answers, if no run stored these rules.

    They are computed from samples.jsonl where the stored precision is the mean over
    these samples and not over sets.
    """
    name = "factual_precision"
    for i, r in enumerate(results):
        path = Path(r.get("folder", ""), "samples.jsonl")
        before = r["metrics"].get(f"before_{name}")
        if before is None or not path.exists():
            continue
        base = [row for row, _ in long_form.read_samples(path)]
        if not math.isclose(long_form.scores(base)[name], before):
            continue
        rules = {"first_claim": claim_rules.first_claim(base)}
        if r.get("params", {}).get("verifier") == "leads":
            reader = LeadReader(leads.load())
            rules["century_rule"] = claim_rules.century_rule(base, reader)
        added = {
            f"{rule}_{metric}": value
            for rule, rows in rules.items()
            if not any(f"{rule}_{name}" in other["metrics"] for other in results)
            for metric, value in claim_rules.score_rule(base, rows).items()
        }
        new = {**r, "metrics": {**r["metrics"], **added}}
        return [*results[:i], new, *results[i + 1 :]]
    return list(results)


def add_confidence_rule(results: Sequence[Result]) -> list[Any]:
    """The results, the rule `confidence_rule` added to the first of an untrained arm
    with confidences, from its items, if no run stored it."""
    if any("confidence_rule_accuracy" in r["metrics"] for r in results):
        return list(results)
    for i, r in enumerate(results):
        untrained = r["arm"] in untrained_arms() and "folder" in r
        items = read_items(r["folder"]) if untrained else None
        if items is None or not {"confidence", "truthfulness"} <= {*items}:
            continue
        judged = items.dropna(subset="truthfulness")
        outcomes = [OUTCOMES[t] for t in judged["truthfulness"]]
        added = calibration.confidence_rule(outcomes, [*judged["confidence"]])
        new = {**r, "metrics": {**r["metrics"], **added}}
        return [*results[:i], new, *results[i + 1 :]]
    return list(results)
