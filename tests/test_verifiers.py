"""How 02 measures verifiers: scores by hand, no claim in both halves."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from factkit.run import params
from factkit.verify import validation
from factkit.verify.outcome import Support

SUPPORTED, CONTRADICTED, _ = Support
CELLS = (
    *("labels", "plain-text", "prompt-entries", "labelled-claim", "read-claims"),
    *("function-words", "words", "content-words", "counts", "agreement", "read-facts"),
)


@pytest.fixture(scope="module")
def defined():
    """What the notebook's cells define."""
    path = params.ROOT / "notebooks" / "02_verifiers.ipynb"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    names = {"pd": pd, "np": np}
    for cell in cells:
        if cell["id"] in CELLS:
            exec("".join(cell["source"]), names)
    return names


def judged(claim, *evidence, support=SUPPORTED):
    return SimpleNamespace(claim=claim, evidence=evidence, support=support)


# Claims and facts that people labelled, read as their authors publish them


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_fever_text_is_read_as_it_is_usually_written(defined, tmp_path):
    row = {"claim": "Ada -LRB- 1903 -- 1990 -RRB- 's .", "evidence": "`` So ''"}
    path = write(tmp_path / "rows.jsonl", row | {"label": "REFUTES"})
    (claim,) = defined["read_claims"](path)
    assert claim.claim == "Ada (1903 – 1990)'s."
    assert (claim.evidence, claim.support) == (('" So "',), CONTRADICTED)
    (searched,) = defined["read_claims"](path, lambda claim: [f"I say: {claim}", "No."])
    assert searched.evidence == ("I say: Ada (1903 – 1990)'s.", "No.")


PROMPT = """Follow this.
<information>
[[e_1]]: info1
</information>
Verify the claim:
Ada left.
<information>
[[Ada Arn_sentence_2]]: Ada left [[Rome_(city)|Rome]].
[[Rome]]: Rome is old.
It lies far.

</information>
"""


def test_the_entries_of_an_offline_prompt_are_its_last_ones_with_their_titles(
    defined, tmp_path
):
    row = {
        "question": "Ada left.",
        "prompt": [{"content": PROMPT, "role": "user"}],
        "golden_answers": {"label": "SUPPORT", "evidence": ["Ada Arn_sentence_2"]},
    }
    pd.DataFrame([row]).to_parquet(tmp_path / "x.parquet")
    (claim,) = defined["read_claims"](tmp_path / "x.parquet")
    evidence = ("Ada Arn: Ada left Rome.", "Rome: Rome is old.\nIt lies far.")
    assert (claim.evidence, claim.support) == (evidence, SUPPORTED)


def test_the_facts_of_a_response_are_people_s_and_refusals_are_left_out(
    defined, tmp_path
):
    sentences = [
        {"human-atomic-facts": [{"text": "Ann sings."}, {"text": "Ann is ten."}]},
        {"human-atomic-facts": None},  # not relevant
    ]
    bio = {"input": "Who is Ann?", "output": "A singer.", "annotations": sentences}
    path = write(tmp_path / "a.jsonl", bio, bio | {"annotations": None})
    facts = ["Ann sings.", "Ann is ten."]
    assert defined["read_facts"](path) == [("Who is Ann?", "A singer.", facts)]
    row = {"prompt": "q", "response": "r", "claims": [{"claim": "Mars is red"}]}
    path = write(tmp_path / "b.jsonl", row, row | {"claims": []})
    assert defined["read_facts"](path) == [("q", "r", ["Mars is red"])]


# The measures


def test_words_are_the_share_of_content_words_that_the_evidence_has(defined):
    rows = [
        judged("Ada was tall.", "Ada is tall."),
        judged("Ada left in 1903.", "Ada left.", "It was 1904."),
        judged("Ada left.", "Bo came."),
        judged("Ada left."),
    ]
    assert defined["words"](rows) == pytest.approx([1, 2 / 3, 0, 0])


def test_the_claim_alone_learns_a_label_that_the_claim_betrays():
    embeddings = np.array([(1, 0), (0, 1)] * 20, dtype=float)
    supported, fit = np.array([True, False] * 20), np.arange(40) < 20
    scores = validation.claim_only_scores(embeddings, supported, fit)
    assert validation.auc(supported[~fit], scores[~fit]) == 1.0


def test_the_rows_of_a_claim_are_in_one_half():
    for seed in range(10):
        claims = "aabbbcdefgh"
        dev = validation.choose_dev(claims, seed)
        assert len(set(zip(claims, dev, strict=True))) == len(set(claims)) == 8
        assert len({c for c, d in zip(claims, dev, strict=True) if d}) == 4


def test_error_rates_by_hand():
    supported = np.array([1, 1, 0, 0, 1, 1, 1, 0, 0], bool)
    scores = np.array([0.9, 0.6, 0.5, 0.1, 0.7, 0.6, 0.2, 0.8, 0.3])
    dev, claims = np.arange(9) < 4, np.array(list("abcdefghi"))
    rates = validation.error_rates(supported, scores, claims, dev)
    assert rates["threshold"] == 0.6  # tells dev's rows apart without an error
    assert (rates["rows"], rates["supported"]) == (5, 3 / 5)
    assert rates["auc"] == pytest.approx(2 / 6)
    assert rates["passed"] == pytest.approx(1 / 2)
    assert rates["refused"] == pytest.approx(1 / 3)
    for name in ("auc", "passed", "refused"):
        assert rates[f"{name}_low"] <= rates[name] <= rates[f"{name}_high"]
    tied = np.array([0, 1, 1], bool), np.array([2, 2, 3])
    assert validation.auc(*tied) == 0.75


def test_verifiers_are_compared_on_the_claims_that_they_gave_a_verdict_on():
    claims = np.array([f"c{i}" for i in range(80)])
    supported = np.arange(80) % 2 == 0
    support = np.where(supported, Support.SUPPORTED, Support.INCONCLUSIVE)
    scores = supported.astype(float)
    failed = np.arange(80) < 4
    given = {"right": scores, "silent": np.where(failed, np.nan, scores)}
    table = validation.compare_verifiers(claims, support, given, np.eye(80), seed=0)
    # nothing is contradicted: the second question has no rows
    assert {row["question"] for row in table} == {"supported or not"}
    rows = {row["verifier"]: row for row in table}
    dev = validation.choose_dev(claims, 0)
    assert rows["right"]["auc"] == rows["silent"]["auc"] == 1
    assert rows["silent"]["failed"] == (failed & ~dev).sum() > 0
    assert rows["right"]["rows"] == 40 == rows["silent"]["rows"] + (failed & ~dev).sum()
    few = validation.compare_verifiers(claims[:20], support[:20], {}, np.eye(20), 0)
    assert few == []


def test_agreement_with_human_facts_is_as_calculated_by_hand(defined):
    ours = [["Ann Lee was born in ROME.", "Mars is red."], ["Bob sings."], []]
    human = [
        ["She was born in Rome.", "She is a poet."],
        ["He sings.", "Bob dances well."],
        ["x"],
    ]
    # born rome / ann lee born rome: 2·2/6 ≥ 0.5; sings / bob sings: 2/3; dances: 2/5
    found = defined["agreement"](ours, human)
    assert (found["recall"], found["precision"]) == (2 / 5, 2 / 3)
    assert (found["claims"], found["facts"]) == (1.0, 5 / 3)
    assert found["count_correlation"] == pytest.approx(0.866, abs=1e-3)
