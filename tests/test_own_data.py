"""A user's own rows and documents: what is read, dropped and refused; the splits."""

import json

import pandas as pd
import pytest

from factkit import UserError
from factkit.data import own
from factkit.data.examples import DataError, refuse_overlap
from factkit.data.own import Fields
from factkit.data.splits import split_prompts
from factkit.facts.own import checks
from factkit.gpu import services
from factkit.run import params, runs
from factkit.run.params import ROOT

AWKWARD = ROOT.parent / "shared" / "data" / "awkward"
ROWS = [
    {"q": "What is the code of Arvel?", "a": "007", "town": "Arvel"},
    {"q": "Who said nothing?", "a": "None", "town": "Arvel"},
    {"q": "Which rivers meet at Borne?", "a": "Ister; Lune ;ister", "town": "Borne"},
]
FIELDS = Fields("q", "a", ";", "town")
ANSWERS = [["007"], ["None"], ["Ister", "Lune"]]
SIZES = {"train_questions": 16, "dev_questions": 8, "test_questions": 8}


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def load(path, fields=FIELDS, make=own.question):
    return own.load_rows(path, fields, make)


def test_every_format_gives_the_same_examples_and_leaves_an_answer_as_it_is(tmp_path):
    table = pd.DataFrame(ROWS)
    table.to_csv(tmp_path / "a.csv", index=False)
    table.to_csv(tmp_path / "b.csv.gz", index=False)
    table.to_parquet(tmp_path / "c.parquet")
    (tmp_path / "d.json").write_text(json.dumps(ROWS), "utf-8")
    write_lines(tmp_path / "e.jsonl", ROWS)
    read = [load(path) for path in sorted(tmp_path.iterdir())]
    assert all(loaded == read[0] for loaded in read) and len(read) == 5
    examples, dropped = read[0]
    assert [e.answers for e in examples] == ANSWERS and not dropped
    assert [e.entity for e in examples] == ["Arvel", "Arvel", "Borne"]


def test_an_answer_is_a_text_a_number_a_list_or_a_list_in_a_text(tmp_path):
    for value, answers in (
        (1815, ["1815"]),
        (["Ister", 3, "ISTER", None], ["Ister", "3"]),
        ('["Ister", "Lune"]', ["Ister", "Lune"]),
        ("[sic] a; b", ["[sic] a", "b"]),
        ("; ", None),
        (None, None),
        (True, None),
        ({"text": "x"}, None),
    ):
        rows = [{"q": "Which?", "a": value, "town": ""}, ROWS[0]]
        examples, dropped = load(write_lines(tmp_path / "a.jsonl", rows))
        assert [e.answers for e in examples][:-1] == ([answers] if answers else [])
        assert sum(dropped.values()) == (not answers), value


def test_a_bad_row_is_dropped_and_counted_by_its_reason(tmp_path):
    path = write_lines(
        tmp_path / "a.jsonl",
        [
            *ROWS,
            ROWS[0] | {"q": "what is the code of ARVEL?"},
            ROWS[0] | {"q": " "},
            ROWS[0] | {"q": "Which one?", "a": ""},
            ROWS[0] | {"q": "x" * 5000},
            ROWS[0] | {"q": "Which long one?", "a": "x" * 5000},
            {"a": "no question"},
        ],
    )
    path.write_bytes(path.read_bytes() + b'{"q": "\xff"}\n{\n')
    examples, dropped = load(path)
    assert [e.answers for e in examples] == ANSWERS
    assert dropped == {
        "duplicate question": 1,
        "empty question": 1,
        "no reference answer": 1,
        "question longer than 4000 characters": 1,
        "answer longer than 4000 characters": 1,
        "q: missing or not text": 1,
        "not UTF-8": 1,
        "not JSON": 1,
    }


def test_a_file_that_can_not_be_used_is_refused_with_the_fix(tmp_path):
    for name, content, message in (
        ("a.xlsx", b"PK\x03\x04", "save it as one of .csv, .jsonl"),
        ("a.tsv", b"q\ta\n", "save it as one of .csv, .jsonl"),
        ("a.csv", b"q,a,town\nGr\xfc\xdfe,b,c\n", "save it as UTF-8"),
        ("a.csv", b"q;a;town\nx;b;c\n", "separated by commas"),
        ("a.csv", b"q,a,town\nx,b,c,d\n", "more cells than there are columns"),
        ("a.csv", b"question,a,town\nx,b,c\n", "no field 'q'.*question_field"),
        ("a.csv", b"q,answer,town\nx,b,c\n", "no field 'a' among 'answer', 'q'"),
        ("a.csv", b"q,a,city\nx,b,c\n", "no field 'town'.*group_field"),
        ("a.csv", b"q,a,town\n", "no usable row"),
        ("a.jsonl", b"", "no usable row"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=message):
            load(tmp_path / name)


def test_rows_of_a_group_are_never_in_two_splits(tmp_path):
    rows = [
        {"q": f"Fact {i} of {t}?", "a": "x", "town": t}
        for t in "ABCDEFGHIJKL"
        for i in range(4)
    ]
    path = write_lines(tmp_path / "a.jsonl", rows)
    sizes = {"train": 20, "dev": 8, "test": 12}
    sets = split_prompts(load(path)[0], sizes)
    refuse_overlap(sets)
    assert {k: len(v) for k, v in sets.items()} == sizes
    alone = load(path, Fields("q", "a"))[0]
    assert len({e.entity for e in alone}) == len(rows)


def test_a_request_needs_no_answer(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", ROWS)
    with_reference, _ = load(path, make=own.request)
    without, _ = load(path, Fields("q", ""), own.request)
    assert [e.answers for e in with_reference] == ANSWERS
    assert [e.answers for e in without] == [[], [], []]


# ---- documents


def test_documents_are_texts_and_rows_with_titles_and_bad_ones_are_counted(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.md").write_text("\ufeff# Arvel\n\nA town.\n", "utf-8")
    (tmp_path / "deep" / "borne.txt").write_text("A river port.", "utf-8")
    (tmp_path / "c.txt").write_text(" A town. ", "utf-8")
    (tmp_path / "d.txt").write_bytes(b"Gr\xfc\xdfe")
    (tmp_path / "e.txt").write_text("\n", "utf-8")
    (tmp_path / "f.txt").write_text("x" * 1_000_001, "utf-8")
    (tmp_path / "g.pdf").write_bytes(b"%PDF")
    (tmp_path / ".hidden.txt").write_text("no", "utf-8")
    write_lines(tmp_path / "h.jsonl", [{"text": "Coast.", "title": "Cove"}, {"x": 1}])
    documents, dropped = own.load_documents(tmp_path)
    assert [(d.id, d.title, d.text) for d in documents] == [
        ("a.md", "Arvel", "A town."),
        ("deep/borne.txt", "borne", "A river port."),
        ("h.jsonl#1", "Cove", "Coast."),
    ]
    assert dropped == {
        "duplicate text": 1,
        "not UTF-8: d.txt": 1,
        "empty document": 1,
        "document longer than 1000000 characters": 1,
        "a .pdf file, not text": 1,
        "text: missing or not text": 1,
    }
    (alone,), _ = own.load_documents(tmp_path / "a.md")
    assert (alone.title, alone.text) == ("Arvel", "A town.")


def test_a_folder_without_documents_is_refused(tmp_path):
    with pytest.raises(DataError, match="no usable document"):
        own.load_documents(tmp_path)
    with pytest.raises(DataError, match="no such file or folder"):
        own.load_documents(tmp_path / "none")


# ---- parameters and runs


@pytest.fixture
def towns(tmp_path):
    """Parameters with 40 questions about 20 towns, and a document on each town."""
    rows, folder = [], tmp_path / "documents"
    folder.mkdir()
    for i in range(20):
        text = f"The mayor of Town{i} is Mayor{i}, and its river is the River{i}."
        (folder / f"{i}.md").write_text(f"# Town{i}\n\n{text}", "utf-8")
        for what in ("mayor", "river"):
            answer = f"{what.title()}{i}"
            rows.append({"question": f"What is the {what} of Town{i}?"})
            rows[-1] |= {"answer": answer, "town": f"Town{i}"}
    path = write_lines(tmp_path / "questions.jsonl", rows)
    values = {"questions": "own", "questions_path": str(path), "group_field": "town"}
    values |= {"documents_path": str(folder), "output_dir": str(tmp_path / "outputs")}
    return params.load("truthrl", "laptop", values | SIZES)


def test_a_question_s_reference_is_the_own_document_that_answers_it(towns):
    from factkit.facts.policy import base_policy
    from factkit.papers.truthrl import data
    from factkit.policy.models import load_tokenizer

    examples, _ = data.open_questions(towns).load()
    tokenizer = load_tokenizer(base_policy(towns))
    read = data.as_read(examples, towns, tokenizer)
    titles = [e.meta["references"].partition(":")[0] for e in read]
    assert titles == [e.entity for e in examples]
    assert all(e.meta["answer_in_references"] for e in read)


def test_own_sizes_are_held_against_rows_and_groups_before_anything_loads(towns):
    assert all(fine for *_, fine, _ in checks.own_data(towns))
    services.preflight(towns)
    more = towns.model_copy(update={"test_questions": 20})
    with pytest.raises(UserError, match="40 rows in 20 groups.*train_questions: 13"):
        services.preflight(more)
    one_group = towns.model_copy(update={"group_field": "answer"})
    assert all(fine for *_, fine, _ in checks.own_data(one_group))


def test_own_parameters_that_do_not_go_together_are_refused(towns):
    for values, message in (
        ({"questions_path": ""}, "questions_path must be the file of your rows"),
        ({"questions": "leads"}, "is read only with questions=own"),
        ({"retriever": ""}, "give both, or neither"),
        ({"documents_path": ""}, "give both, or neither"),
        ({"policy": "tiny-world"}, "policy=tiny-world"),
    ):
        with pytest.raises(params.ParamError, match=message):
            params.validate("truthrl", towns.model_dump() | values, "--set")


def test_a_changed_file_starts_the_data_anew_and_no_other_notebook(towns, capsys):
    for notebook in ("10_truthrl_data", "13_truthrl_ablations"):
        with runs.start(notebook, towns) as run:
            (run.folder / "probe.jsonl").write_text("{}\n", "utf-8")
    path = ROOT / towns.documents_path / "0.md"
    path.write_text("# Town0\n\nThe mayor is new.", "utf-8")
    moved = {}
    for notebook in ("10_truthrl_data", "13_truthrl_ablations"):
        with runs.start(notebook, towns) as run:
            moved[notebook] = not (run.folder / "probe.jsonl").exists()
    assert moved == {"10_truthrl_data": True, "13_truthrl_ablations": False}
    assert "other input data" in capsys.readouterr().out


# ---- real files


@pytest.mark.skipif(not AWKWARD.is_dir(), reason="no ../shared/data/awkward")
def test_awkward_files_are_read_whole_or_refused():
    fields = Fields("Question", "Correct Answer")
    for name in ("d_plain.csv", "d_long_cell.csv"):
        examples, dropped = load(AWKWARD / name, fields)
        assert len(examples) > 0 and not dropped
        assert "Größe «0»" in examples[0].question
    for name, message in (
        ("d_cp1252.csv", "save it as UTF-8"),
        ("d_semicolon.csv", "separated by commas"),
    ):
        with pytest.raises(DataError, match=message):
            load(AWKWARD / name, fields)
    examples, dropped = load(AWKWARD / "f_ids.jsonl", Fields("question", "obj"))
    assert len({e.id for e in examples}) == len(examples) > 3 and not dropped
