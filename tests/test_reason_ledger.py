"""The claims on Learning to Reason: of arms and metrics that there are, and with the
paper's own numbers."""

import pandas as pd
import pytest

from factkit import ledger, params
from factkit.datasets import world_prompts as wp
from factkit.reason import evaluate as reasoned
from factkit.reason.arms import ARMS
from factkit.verify.exact import ExactEngine, WorldReader
from factkit.verify.response import written
from factkit.world import facts as w

REASON_ARMS = tuple(ARMS)

CLAIMS = ledger.claims("reason")
MEASURED = [c for c in CLAIMS if not c.not_here]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """What the train notebook measures of one response in the fact world."""
    world = w.build_world(3, people=30)
    person = world.people[0]
    (example, *_) = wp.requests(world, [person], wp.OPEN)
    example = example.model_copy(update={"meta": example.meta | {"set": wp.OPEN}})
    said = {example.id: written("t", w.biography(world, person))}
    p, engine = (
        params.load("reason", "tiny"),
        ExactEngine(WorldReader(world), {example.id: example}),
    )
    path = tmp_path_factory.mktemp("claims") / "claims.jsonl"
    decide = reasoned.compare(p, engine)
    rows = [example], said, said, engine, decide, p, path
    found, _ = reasoned.measure(*rows)
    curve = pd.DataFrame({"reasoning_words": [1.0, 2.0], "answer_words": [1.0, 2.0]})
    return found | reasoned.over_base(found, found, [wp.OPEN]) | reasoned.growth(curve)


def test_each_claim_is_of_arms_and_metrics_that_are_measured(measured):
    for claim in MEASURED:
        for setting, arm, metric in claim.arms:
            assert (setting, arm) == ("", arm), claim.claim
            assert arm in REASON_ARMS, claim.claim
            assert metric in measured, claim.claim


def test_each_claim_has_its_words_and_stands_once_or_says_why_it_is_not_measured():
    assert all(c.claim and c.where and c.paper for c in CLAIMS)
    assert len({c.claim for c in CLAIMS}) == len(CLAIMS)
    assert all(bool(c.not_here) != bool(c.metric) for c in CLAIMS)
    asked = [(c.arms, c.least, c.most) for c in MEASURED]
    assert all(asked.count(one) == 1 for one in asked)
