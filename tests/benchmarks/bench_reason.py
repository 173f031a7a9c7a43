"""Seconds a response of Learning to Reason's whole reward, at batch 64.

Measured: `reason.rewards.score_responses` without (fact) and with the judge of
relevance (fact_relevance, Eq. 2); beside it VeriScore, which judges no relevance.
Endpoint, environment and stand-ins are those of `bench_veriscore`; caches begin empty,
and medians count. An answer is `LEADS` Wikipedia leads: about as many claims as the
paper's policy makes (Table 2: 39.8). No response shares evidence or claims.

Not measured: what a call takes on a GPU and under load, the web, the reward service's
HTTP, and the package beyond `SAMPLE` responses, where it slows down.

13 minutes on 2 cores. `--quick`: 4 responses of one lead, one round, no package.
"""

import sys
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

import bench_veriscore as veriscore
import pandas as pd

from factkit.run import params

if TYPE_CHECKING:
    from factkit.papers.reason.rewards import PreferenceEngine

RESPONSES, LEADS, ROUNDS, SAMPLE = 64, 6, 3, 2
Case = tuple[str, int, int]  # arm, responses, calls at once


class ReasonedBatch(veriscore.Batch):
    """A batch whose responses reason before they answer."""

    def score(self, arm: str, engine: "PreferenceEngine", *rows: Sequence[str]) -> None:
        """Score ids, prompts and answers, behind as much reasoning, by Eq. 2.

        Raises AssertionError unless each has claims, all are supported, and the answer
        is preferred where that counts, as the endpoint makes them.
        """
        from factkit.papers.reason.rewards import WEIGHTS, counts, score_responses
        from factkit.verify.response import format_response

        ids, prompts, answers = rows
        responses = [format_response(a, a) for a in answers]
        found = score_responses(arm, engine, ids, prompts, responses)
        for of in found:
            f, t = counts(of.supports) or (0, 0)
            assert f == t > 0 and (of.wins or not WEIGHTS[arm][1]), "a call failed"

    def engine(self, llm) -> "PreferenceEngine":
        """The engine of a run with a judge."""
        from factkit.papers.reason.rewards import PreferenceEngine

        claims = super().engine(llm)
        shared = ("extract", "verify", "pieces", "search", "claim_chunks")
        parts = {name: getattr(claims, name) for name in shared}
        return PreferenceEngine(**parts, llm=llm)


def compare(batch: ReasonedBatch, cases: list[Case], rounds: int, sample: int) -> None:
    """Print each case's medians, and its ratio to the package's (sample=0: none)."""
    seen = defaultdict(list)  # case → (seconds, CPU seconds, calls) of each round
    latency_s = veriscore.LATENCY_S
    with veriscore.endpoint(latency_s) as url:
        batch.run("fact_relevance", url, 1)  # imports
        for _ in range(rounds):
            for arm, n, at_once in cases:
                wall, cpu, totals = batch.run(arm, url, n, at_once)
                seen[arm, n, at_once].append((wall, cpu, totals.calls))
                print(f"    {arm} {n} at {at_once}: {wall:.1f} s")
            if sample:
                wall, calls = veriscore.time_package(batch.rows[:sample], url)
                print(f"    package {sample}: {wall:.1f} s")
                seen["package", sample, 1].append((wall, float("nan"), calls))
    rows = [(*case, *map(median, zip(*of, strict=True))) for case, of in seen.items()]
    columns = "arm responses at_once batch_s cpu_s calls_each".split()
    table = pd.DataFrame(rows, columns=columns)
    table["calls_each"] /= table.responses
    table["s_each"] = table.batch_s / table.responses
    if sample:
        table["ratio"] = table.s_each.iloc[-1] / table.s_each
    print(f"{1e3 * latency_s:.0f} ms a call; medians of {rounds}; each: a response")
    print(table.to_string(index=False, na_rep="–", float_format="%.2f"))


def main(quick: bool) -> None:
    """Compare at `CONCURRENCY` and at that of h100_full."""
    n, leads_each, rounds = (4, 1, 1) if quick else (RESPONSES, LEADS, ROUNDS)
    most = params.load("reason", "h100_full").judge_concurrency
    cases = [(arm, n, veriscore.CONCURRENCY) for arm in ("fact", "fact_relevance")]
    cases += [("fact_relevance", n, most), ("fact_relevance", 1, most)]
    sample = SAMPLE if not quick and veriscore.installed() else 0
    compare(ReasonedBatch(n, leads_each), cases, rounds, sample)
    if not sample:
        print("without the VeriScore package: --quick, or it can't be installed here")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv[1:])
