"""Claims and facts that people labelled, read as their authors publish them."""

import json

import pandas as pd

from factkit.datasets.annotated import Annotated, Judged, annotated, judged
from factkit.verify.claims import Support

SUPPORTED, CONTRADICTED, INCONCLUSIVE = Support


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_fever_text_is_read_as_it_is_usually_written(tmp_path):
    row = {"claim": "Ada -LRB- 1903 -- 1990 -RRB- 's .", "evidence": "`` So ''"}
    path = write(tmp_path / "rows.jsonl", row | {"label": "REFUTES"})
    assert judged(path) == [Judged("Ada (1903 – 1990)'s.", ('" So "',), CONTRADICTED)]
    (searched,) = judged(path, lambda claim: [f"I say: {claim}", "No."])
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


def test_the_entries_of_an_offline_prompt_are_its_last_ones_with_their_titles(tmp_path):
    row = {
        "question": "Ada left.",
        "prompt": [{"content": PROMPT, "role": "user"}],
        "golden_answers": {"label": "SUPPORT", "evidence": ["Ada Arn_sentence_2"]},
    }
    pd.DataFrame([row]).to_parquet(tmp_path / "x.parquet")
    evidence = ("Ada Arn: Ada left Rome.", "Rome: Rome is old.\nIt lies far.")
    assert judged(tmp_path / "x.parquet") == [Judged("Ada left.", evidence, SUPPORTED)]


def test_the_facts_of_a_response_are_people_s_and_refusals_are_left_out(tmp_path):
    sentences = [
        {"human-atomic-facts": [{"text": "Ann sings."}, {"text": "Ann is ten."}]},
        {"human-atomic-facts": None},  # not relevant
    ]
    bio = {"input": "Who is Ann?", "output": "A singer.", "annotations": sentences}
    refused = bio | {"annotations": None}
    assert annotated(write(tmp_path / "a.jsonl", bio, refused)) == [
        Annotated("Who is Ann?", "A singer.", ["Ann sings.", "Ann is ten."])
    ]
    row = {"prompt": "q", "response": "r", "claims": [{"claim": "Mars is red"}]}
    path = write(tmp_path / "b.jsonl", row, row | {"claims": []})
    assert annotated(path) == [Annotated("q", "r", ["Mars is red"])]
