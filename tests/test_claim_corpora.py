"""Corpora: each official format to entries whose ids the claims' evidence has."""

import gzip
import json
import sqlite3
import tracemalloc
import zipfile
from itertools import islice
from pathlib import Path

import pytest

from factkit.datasets.examples import DataError
from factkit.retrieval.entries import shown
from factkit.veri import benchmarks as claim_benchmarks
from factkit.veri import corpora as claim_corpora
from factkit.veri.corpora import entries as entries_of

FEVER_PAGE = {
    "id": "Hook_-LRB-film-RRB-",
    "text": "Hook is a film . It is long .",
    "lines": "0\tHook -LRB- 1991 -RRB- is a film .\tfilm\tFilm\n1\t\n"
    "2\tIt is long .\nlong\tlong\n3\tBo is in it .\tBo\tBo_Berg",
}
EMPTY_PAGE = {"id": "", "text": "", "lines": ""}
FEVEROUS_PAGE = {
    "title": "Sucre\u0301",
    "order": ["sentence_0", "table_0", "sentence_1", "section_0", "sentence_2"],
    "sentence_0": "He sang in [[Oslo_Hall_(old)|the hall]] of [[New_Oslo]].",
    "table_0": {"type": "table", "table": []},
    "sentence_1": "",
    "section_0": {"value": "Life", "level": 1},
    "sentence_2": "He died.",
    "sentence_3": "He was 80.",
}
ABSTRACT = {
    "doc_id": 77,
    "title": "On mice.",
    "abstract": ["Mice age.", "We saw it.", "In 9 mice.", "So do rats."],
    "structured": False,
}


def lines(*rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def database(path, statement, rows):
    with sqlite3.connect(path) as made:
        made.execute(statement)
        marks = ", ".join("?" * len(rows[0]))
        table = statement.split()[2].partition("(")[0]
        made.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
    made.close()
    return str(path)


def feverous_db(path, rows):
    return database(path, "CREATE TABLE wiki(id PRIMARY KEY, data json)", rows)


def hover_db(path, rows):
    return database(path, "CREATE TABLE documents(id PRIMARY KEY, text)", rows)


def texts(entries):
    return {line.id: line.text for entry in entries for line in shown(entry)}


# ---- formats


def test_fevers_sentences_keep_their_numbers_and_lose_links_and_escapes(tmp_path):
    path = tmp_path / "wiki-001.jsonl"
    path.write_text(lines(EMPTY_PAGE, FEVER_PAGE))
    entries = list(entries_of("wiki-pages", str(path)))
    assert [e.id for e in entries] == [
        "Hook (film)_sentences_0_2",
        "Hook (film)_sentences_3_5",
    ]
    assert texts(entries) == {
        "Hook (film)_sentence_0": "Hook ( 1991 ) is a film .",
        "Hook (film)_sentence_2": "It is long .",
        "Hook (film)_sentence_3": "Bo is in it .",
    }


def test_fevers_pages_are_read_as_they_are_packed(tmp_path):
    other = FEVER_PAGE | {"id": "Al", "lines": "0\tAl ."}
    files = {"wiki-002.jsonl": lines(other), "wiki-001.jsonl": lines(FEVER_PAGE)}
    with zipfile.ZipFile(tmp_path / "wiki-pages.zip", "w") as made:
        for name, text in files.items():
            made.writestr(f"wiki-pages/{name}", text)
            made.writestr(f"__MACOSX/wiki-pages/._{name}", b"\0")
    text = files["wiki-001.jsonl"] + files["wiki-002.jsonl"]
    (tmp_path / "wiki.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    folder = tmp_path / "wiki-pages"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    for packed in ("wiki-pages.zip", "wiki.jsonl.gz", "wiki-pages"):
        entries = entries_of("wiki-pages", str(tmp_path / packed))
        assert [e.doc_id for e in entries] == ["Hook (film)", "Hook (film)", "Al"]


def test_feverouss_pages_are_read_from_lines_and_from_the_database_alike(tmp_path):
    path = tmp_path / "pages.jsonl"
    path.write_text(lines(FEVEROUS_PAGE))
    plain = list(entries_of("feverous_wikiv1.db", str(path)))
    assert texts(plain) == {
        "Sucré_sentence_0": "He sang in the hall of New Oslo.",
        "Sucré_sentence_2": "He died.",
        "Sucré_sentence_3": "He was 80.",
    }
    without = {k: v for k, v in FEVEROUS_PAGE.items() if k != "title"}
    rows = [(FEVEROUS_PAGE["title"], json.dumps(without))]
    found = entries_of("feverous_wikiv1.db", feverous_db(tmp_path / "w.db", rows))
    assert list(found) == plain


def test_an_abstracts_entries_have_its_title_and_its_documents_number(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text(lines(ABSTRACT))
    first, second = entries_of("corpus.jsonl", str(path))
    assert first.text == "On mice.\nMice age.\nWe saw it.\nIn 9 mice."
    assert texts([second]) == {"doc_id=77_sentence_3": "So do rats."}


def test_a_page_of_hovers_is_one_entry(tmp_path):
    rows = [("Bo Berg", "Bo sang. He died."), ("Tom &amp; Al", "A duo."), ("No", " ")]
    entries = list(entries_of("wiki_wo_links.db", hover_db(tmp_path / "w.db", rows)))
    assert texts(entries) == {"Bo Berg": "Bo sang. He died.", "Tom & Al": "A duo."}


# ---- the claims' evidence is in them


def fever_claim(folder):
    (folder / "wiki-001.jsonl").write_text(lines(FEVER_PAGE))
    sets = [[[1, 2, FEVER_PAGE["id"], 2]], [[1, 3, FEVER_PAGE["id"], 3]]]
    row = {"id": 1, "claim": "Hook.", "label": "SUPPORTS", "evidence": sets}
    return row, entries_of("wiki-pages", str(folder / "wiki-001.jsonl"))


def feverous_claim(folder):
    rows = [(FEVEROUS_PAGE["title"], json.dumps(FEVEROUS_PAGE))]
    content = [f"{FEVEROUS_PAGE['title']}_sentence_{i}" for i in (0, 3)]
    evidence = [{"content": content, "context": {}}]
    row = {"id": 1, "claim": "Bo.", "label": "REFUTES", "evidence": evidence}
    return row, entries_of("feverous_wikiv1.db", feverous_db(folder / "w.db", rows))


def scifact_claim(folder):
    (folder / "corpus.jsonl").write_text(lines(ABSTRACT))
    evidence = {"77": [{"sentences": [0, 3], "label": "SUPPORT"}]}
    row = {"id": 1, "claim": "Mice.", "evidence": evidence}
    return row, entries_of("corpus.jsonl", str(folder / "corpus.jsonl"))


def hover_claim(folder):
    rows = [("Bo Berg", "Bo sang."), ("Tom &amp; Al", "A duo.")]
    row = {"uid": "1", "claim": "Bo.", "label": "SUPPORTED", "num_hops": 2}
    row["supporting_facts"] = [["Bo Berg", 0], ["Tom &amp; Al", 0]]
    return row, entries_of("wiki_wo_links.db", hover_db(folder / "w.db", rows))


def test_a_claims_gold_evidence_is_shown_by_its_corpus(tmp_path):
    made = {
        "fever": fever_claim,
        "feverous": feverous_claim,
        "scifact": scifact_claim,
        "hover": hover_claim,
    }
    for name, claim in made.items():
        (tmp_path / name).mkdir()
        row, corpus = claim(tmp_path / name)
        path = tmp_path / name / "claims.jsonl"
        path.write_text(lines(row))
        (example,), _ = claim_benchmarks.load(name, str(path))
        entries = list(corpus)
        assert len(example.evidence) == 2
        assert set(example.evidence) <= set(texts(entries))


# ---- bad rows and files


def test_a_bad_row_is_refused_with_its_number_once_it_is_reached(tmp_path):
    fever, feverous, scifact = "wiki-pages", "feverous_wikiv1.db", "corpus.jsonl"
    good = {fever: FEVER_PAGE, feverous: FEVEROUS_PAGE, scifact: ABSTRACT}
    path = tmp_path / "rows.jsonl"
    for corpus, line, problem in (
        (fever, '{"id": "A"}', "lines: missing or not text"),
        (fever, '["A"]', "not a JSON object"),
        (feverous, '{"sentence_0": "A."}', "title: missing or not text"),
        (feverous, '{"title": "A", "sentence_0": 7}', "sentence_0: missing or not"),
        (scifact, lines(ABSTRACT | {"doc_id": None}), "doc_id: missing or not a num"),
        (scifact, lines(ABSTRACT | {"abstract": "A."}), "abstract: not a list of te"),
        (scifact, "{", "not JSON"),
    ):
        path.write_text(lines(good[corpus]) + line)
        entries = entries_of(corpus, str(path))
        assert len(list(islice(entries, 2))) == 2
        with pytest.raises(DataError, match=f"rows.jsonl, row 2: {problem}.*mend"):
            list(entries)


def test_a_row_of_a_database_that_is_not_json_is_refused_with_its_number(tmp_path):
    rows = [("A", json.dumps({"sentence_0": "A."})), ("B", "{"), ("C", None)]
    path = feverous_db(tmp_path / "w.db", rows[:2])
    with pytest.raises(DataError, match="w.db, row 2: not JSON"):
        list(entries_of("feverous_wikiv1.db", path))
    path = feverous_db(tmp_path / "x.db", rows[::2])
    with pytest.raises(DataError, match="x.db, row 2: not JSON"):
        list(entries_of("feverous_wikiv1.db", path))


def test_a_text_of_hovers_that_is_none_is_refused_with_its_number(tmp_path):
    path = hover_db(tmp_path / "w.db", [("A", "A."), ("B", None)])
    with pytest.raises(DataError, match="w.db, row 2: text: missing or not text"):
        list(entries_of("wiki_wo_links.db", path))


def test_a_database_of_other_tables_is_refused_with_the_one_it_needs(tmp_path):
    feverous = feverous_db(tmp_path / "a.db", [("A", "{}")])
    hover = hover_db(tmp_path / "b.db", [("A", "A.")])
    with pytest.raises(DataError, match=r"a.db: .*documents\(id, text\).*no such"):
        list(entries_of("wiki_wo_links.db", feverous))
    with pytest.raises(DataError, match=r"b.db: .*wiki\(id, data\).*no such"):
        list(entries_of("feverous_wikiv1.db", hover))


def test_a_damaged_database_is_refused_by_name(tmp_path):
    path = tmp_path / "w.db"
    path.write_bytes(claim_corpora.SQLITE + b"no more of it")
    with pytest.raises(DataError, match="w.db: no SQLite file"):
        list(entries_of("wiki_wo_links.db", str(path)))


def test_a_damaged_zip_is_refused_by_name(tmp_path):
    path = tmp_path / "wiki-pages.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("wiki-001.jsonl", lines(FEVER_PAGE))
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"is a film", b"is a folm"))
    with pytest.raises(
        DataError, match="wiki-001.jsonl, row 1: file cut short or.*fetch"
    ):
        list(entries_of("wiki-pages", str(path)))


def test_what_is_no_corpus_is_refused_with_what_it_should_be(tmp_path):
    with pytest.raises(DataError, match=r"no file wiki-\*.jsonl in it"):
        list(entries_of("wiki-pages", str(tmp_path)))
    (tmp_path / "x.txt").write_text("x")
    with pytest.raises(DataError, match="wiki_wo_links.db"):
        list(entries_of("wiki_wo_links.db", str(tmp_path / "x.txt")))
    with pytest.raises(DataError, match="absent: no such file"):
        list(entries_of("feverous_wikiv1.db", str(tmp_path / "absent")))


@pytest.mark.parametrize("corpus", ["wiki-pages", "wiki_wo_links.db"])
def test_a_corpus_is_never_in_memory_as_a_whole(tmp_path, corpus):
    text = "long" * 2_500
    if corpus == "wiki_wo_links.db":
        path = hover_db(tmp_path / "w.db", [(f"B{i}", text) for i in range(500)])
    else:
        path = str(tmp_path / "wiki-001.jsonl")
        pages = ({"id": f"B{i}", "lines": f"0\t{text}"} for i in range(500))
        Path(path).write_text(lines(*pages))
    tracemalloc.start()
    count = sum(1 for _ in entries_of(corpus, path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 500
    assert peak < 1_000_000  # bytes, of 5 million
