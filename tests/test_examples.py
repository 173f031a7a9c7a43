"""Data files: what a bad row gets, and that splits can't leak."""

import json

import pytest

from factkit.data.examples import (
    DataError,
    Example,
    read_examples,
    refuse_overlap,
    write_examples,
)


def example(i=0, **more):
    row = {
        "id": f"q{i}",
        "question": f"Who is {i}?",
        "answers": ["x"],
        "entity": str(i),
    }
    return Example(**row | more)


def test_what_is_written_is_read_back_a_question_that_stands_twice_too(tmp_path):
    rows = [example(i, relation="r", meta={"n": 1}) for i in range(3)]
    rows.append(example(3, question="WHO is 0?"))
    write_examples(tmp_path / "a.jsonl", rows)
    assert read_examples(tmp_path / "a.jsonl") == rows


BAD = {
    "Invalid JSON: invalid unicode": b'{"id": "\xff"}',
    "Invalid JSON: EOF": b'{"id": ',
    "empty question": example(1, question=" ").model_dump_json().encode(),
    "no reference answer": example(1, answers=[""]).model_dump_json().encode(),
    "duplicate id": example(0).model_dump_json().encode(),
    "question longer": example(1, question="x" * 5000).model_dump_json().encode(),
    "answers": json.dumps(example(1).model_dump() | {"answers": "x"}).encode(),
    "id Field required": b"{}",
    "colour": json.dumps(example(1).model_dump() | {"colour": 1}).encode(),
}


def test_a_bad_row_is_refused_by_file_row_and_reason(tmp_path):
    path = tmp_path / "rows.jsonl"
    for problem, line in BAD.items():
        path.write_bytes(example(0).model_dump_json().encode() + b"\n" + line)
        with pytest.raises(DataError, match="rows.jsonl, row 2") as error:
            read_examples(path)
        assert problem in str(error.value)


def test_a_missing_or_empty_file_is_refused(tmp_path):
    path = tmp_path / "rows.jsonl"
    with pytest.raises(DataError, match="rows.jsonl: no such file"):
        read_examples(path)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="rows.jsonl: no row"):
        read_examples(path)


def test_an_entity_or_a_question_in_two_splits_is_refused_whatever_its_case():
    train = [example(1, entity="Ada")]
    with pytest.raises(DataError, match="ADA.*train and test"):
        refuse_overlap({"train": train, "test": [example(2, entity="ADA")]})
    with pytest.raises(DataError, match="split by entity"):
        refuse_overlap({"train": train, "test": [example(2, question="who is 1?")]})
