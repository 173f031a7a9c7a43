"""Labelled claims, read as their authors publish them."""

import json

import pandas as pd
import pytest

from factkit import params
from factkit.datasets import judged_claims
from factkit.datasets.judged_claims import SETS, Judged
from factkit.retrieval import CorpusIndex
from factkit.verify.claims import Support

SHARED = params.ROOT.parent / "shared" / "data"
SUPPORTED, CONTRADICTED, INCONCLUSIVE = Support


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_fever_text_is_read_as_it_is_usually_written(tmp_path):
    row = {"claim": "Ada -LRB- 1903 -- 1990 -RRB- 's .", "evidence": "`` So ''"}
    path = write(tmp_path / "rows.jsonl", row | {"label": "REFUTES"})
    (found,) = judged_claims.read(path)
    assert found == Judged("Ada (1903 – 1990)'s.", ('" So "',), CONTRADICTED)


def test_each_set_s_labels_mean_one_of_three(tmp_path):
    rows = [
        {"claim": "a", "evidence": "b", "stance": "completely-support"},
        {"claim": "a", "evidence": "b", "stance": "irrelevant"},
        {"claim": "a", "evidence": ["b", "c"], "label": "partially_supported"},
        {"claim": "a", "evidence": "b", "label": "NOT ENOUGH INFO"},
    ]
    found = judged_claims.read(write(tmp_path / "rows.jsonl", *rows))
    expected = [SUPPORTED, INCONCLUSIVE, INCONCLUSIVE, INCONCLUSIVE]
    assert [row.support for row in found] == expected
    assert found[2].evidence == ("b", "c")


def test_an_unknown_label_is_refused(tmp_path):
    path = write(
        tmp_path / "x.jsonl", {"claim": "a", "evidence": "b", "label": "MAYBE"}
    )
    with pytest.raises(ValueError, match="MAYBE"):
        judged_claims.read(path)


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


def test_the_entries_of_an_offline_prompt_are_its_last_ones_with_their_titles(tmp_path):
    row = {
        "question": "Ada left.",
        "prompt": [{"content": PROMPT, "role": "user"}],
        "golden_answers": {"label": "SUPPORT", "evidence": ["Ada Arn_sentence_2"]},
    }
    pd.DataFrame([row]).to_parquet(tmp_path / "x.parquet")
    (found,) = judged_claims.read(tmp_path / "x.parquet")
    evidence = ("Ada Arn: Ada left Rome.", "Rome: Rome is old.\nIt lies far.")
    assert found == Judged("Ada left.", evidence, SUPPORTED)


def test_fever_s_evidence_is_searched_for(tmp_path):
    from factkit.retrieval import Chunk

    texts = ["Ada was a poet.", "Bo sailed to Oslo.", "Salt is a mineral."]
    index = CorpusIndex([Chunk(t, t, t, 4) for t in texts])
    path = write(tmp_path / "x.jsonl", {"claim": "Bo sailed.", "label": "SUPPORTS"})
    (found,) = judged_claims.fever(path, index, 1)
    assert found == Judged("Bo sailed.", ("Bo sailed to Oslo.",), SUPPORTED)


@pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared/data")
def test_fever_symmetric_has_each_claim_once_with_either_label():
    rows = judged_claims.read(SHARED / SETS["FEVER-Symmetric"])
    labels = {(row.claim, row.support) for row in rows}
    assert len(rows) == len(labels) == 708
    assert len({row.claim for row in rows}) == 354
