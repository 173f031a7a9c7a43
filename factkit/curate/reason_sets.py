"""Learning to Reason's requests: for SFT, for DPO and RL, to choose by, to test on.

§2.1 and App. A of the paper; the small profiles have requests of their own. Each one's
`meta["set"]` names the evaluation set that it belongs to or is like.
"""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from factkit.curate.small_sets import Sets, in_set, lead_sets, world_sets
from factkit.curate.synthetic_prompts import synthetic_prompts
from factkit.datasets import fact_benchmarks
from factkit.datasets.long_form_prompts import longfact, split_prompts, wildchat
from factkit.verify.verifier import judge_llm

if TYPE_CHECKING:
    from factkit.params import ReasonParams

CALLS = 1.5  # of the writing model for each prompt wanted: some are dropped
DIVERSE = 2_000  # WildChat's prompts that demonstrations are drawn from
# in p.requests_path, what is not on the hub; any other set may be there as <name>.jsonl
FILES = {
    "longfact": "longfact",
    "longfact_objects": "longfact",
    "biography": "prompt_entities.txt",
}


def reason_sets(p: "ReasonParams") -> tuple[Sets, Counter]:
    """sft, train, dev and test requests, and counts of what was dropped.

    No entity is in two of them. test holds p.test_requests of each evaluation set, or
    as many as there are.
    """
    match p.requests:
        case "world":
            # Eq. 2 is the same for all that a policy makes up about people it never
            # read of, and for saying nothing
            return world_sets(p, familiar=True), Counter()
        case "leads":
            return lead_sets(p)
    return _synthetic_sets(p)


def _synthetic_sets(p: "ReasonParams") -> tuple[Sets, Counter]:
    """Prompts that a model writes (§2.1), and the paper's evaluation sets (App. A).

    It is shown LongFact's concepts, since its objects are an evaluation set.
    """
    found = {
        name: fact_benchmarks.load(name, _file(p, name), p.test_requests)[0]
        for name in p.eval_sets.split()
    }
    shown = longfact(_file(p, "longfact") or "longfact")[0]
    concepts = [e for e in shown if e.meta["kind"] == "concepts"]
    diverse, _ = wildchat(_file(p, "wildchat"), limit=DIVERSE)
    n = p.sft_requests + p.train_requests + p.dev_requests
    llm = judge_llm(p, p.judge_model, p.judge_url)
    calls = round(CALLS * n)
    written, dropped = synthetic_prompts(llm, concepts, diverse, calls, found)
    sizes = {"train": p.train_requests, "sft": p.sft_requests, "dev": p.dev_requests}
    sets = split_prompts([in_set(e, "synthetic") for e in written], sizes)
    test = [in_set(e, name) for name, rows in found.items() for e in rows]
    return sets | {"test": test}, dropped


def _file(p: "ReasonParams", name: str) -> str:
    """Where p.requests_path has the rows of a source; "" for the hub."""
    if not p.requests_path:
        return ""
    file = FILES.get(name, f"{name}.jsonl")
    path = Path(p.requests_path) / file
    return str(path) if path.exists() else ""
