"""Learning to Reason's requests: for SFT, for DPO and RL, to choose by, to test on.

§2.1 and App. A of the paper; the small profiles have requests of their own. Each one's
`meta["set"]` names the evaluation set that it belongs to or is like.
"""

import random
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from factkit.curate.requests import (
    Sets,
    file_of,
    in_set,
    keep_factual,
    lead_sets,
    split_prompts,
    world_sets,
)
from factkit.datasets import long_form_prompts
from factkit.datasets.examples import Example
from factkit.reason.synthetic_prompts import synthetic_prompts
from factkit.verify.verifier import judge_llm

if TYPE_CHECKING:
    from factkit.llm import LLM
    from factkit.reason.arms import ReasonParams

CALLS = 1.5  # of the writing model for each prompt wanted: some are dropped
# prompts that the paper evaluates on, of sets of which it takes a part (App. A)
PART = {"longfact_objects": 250, "fava": 141, "alpaca_fact": 241}
FACTUAL = ("fava", "alpaca_fact")  # parts chosen for seeking facts
DIVERSE = 2_000  # WildChat's prompts that demonstrations are drawn from


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
            return lead_sets(p), Counter()
    return _synthetic_sets(p)


def _synthetic_sets(p: "ReasonParams") -> tuple[Sets, Counter]:
    """Prompts that a model writes (§2.1), and the paper's evaluation sets (App. A).

    It is shown LongFact's concepts, since its objects are an evaluation set.
    """
    llm = judge_llm(p, p.judge_model, p.judge_url)
    tests = {}
    for name in p.eval_sets.split():
        examples, _ = long_form_prompts.load(name, file_of(p, name))
        tests[name] = evaluated(name, examples, p, llm)
    longfact, _ = long_form_prompts.load("longfact", file_of(p, "longfact"))
    concepts = [e for e in longfact if e.meta["kind"] == "concepts"]
    diverse, _ = long_form_prompts.load("wildchat", file_of(p, "wildchat"), DIVERSE)
    sizes = {"train": p.train_requests, "sft": p.sft_requests, "dev": p.dev_requests}
    calls = round(CALLS * sum(sizes.values()))
    written, dropped = synthetic_prompts(llm, concepts, diverse, calls, tests)
    prompts = [in_set(e, "synthetic") for e in written]
    sets = split_prompts(prompts, sizes, p.split_seed)
    test = [in_set(e, name) for name, examples in tests.items() for e in examples]
    return sets | {"test": test}, dropped


def evaluated(
    name: str, rows: Sequence[Example], p: "ReasonParams", llm: "LLM"
) -> list[Example]:
    """The prompts of an evaluation set that are evaluated on, p.test_requests at most.

    Of a set of which the paper takes a part that is published nowhere, as many as it
    takes are drawn from all (a set goes by topic: its first ones are of few), and where
    its part was chosen for seeking facts, from those that do so by the LLM (ours). A
    file that holds no more than the part is taken as it is.
    """
    part = PART.get(name, len(rows))
    if name in FACTUAL and len(rows) > part:
        rows = keep_factual(llm, rows)[0]
    n = min(part, p.test_requests, len(rows))
    return random.Random(f"evaluated {name}").sample(rows, n)
