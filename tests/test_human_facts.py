"""Human atomic facts, read as their authors publish them."""

import json

from factkit.datasets.human_facts import SOURCES, Annotated


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_facts_of_all_sentences_are_read_and_refusals_left_out(tmp_path):
    sentences = [
        {"human-atomic-facts": [{"text": "Ann sings."}, {"text": "Ann is ten."}]},
        {"human-atomic-facts": None},  # not relevant
    ]
    said = {"input": "Who is Ann?", "output": "A singer.", "annotations": sentences}
    refused = {"input": "Who is Bob?", "output": "I don't know.", "annotations": None}
    path = write(tmp_path / "x.jsonl", said, refused)
    assert SOURCES["factscore/InstructGPT.jsonl"](path) == [
        Annotated("Who is Ann?", "A singer.", ["Ann sings.", "Ann is ten."])
    ]


def test_factools_claims_are_its_facts(tmp_path):
    row = {"prompt": "q", "response": "r"}
    claims = [{"claim": "Mars is red", "label": True}]
    path = write(tmp_path / "x.jsonl", row | {"claims": claims}, row | {"claims": []})
    assert SOURCES["factool/knowledge_qa.jsonl"](path) == [
        Annotated("q", "r", ["Mars is red"])
    ]
