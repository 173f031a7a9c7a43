"""The paper's claims and corpora: what of each format is gold, which ids entries have,
what is dropped or refused for which reason."""

import gzip
import json
import sqlite3
import zipfile
from collections import Counter
from itertools import islice

import pyarrow
import pytest
from pyarrow import parquet

from factkit.data.entries import split_entry
from factkit.data.examples import LABELS, DataError
from factkit.papers.veri import benchmarks

SUPPORT, REFUTE, NEI = LABELS
ROWS = {  # a published row of each set, and the evidence that is made of it
    "fever": (
        {"id": "1", "claim": "Hook is a film.", "label": "SUPPORT"},
        ["Hook_-LRB-film-RRB-_sentence_0", "Bo_Berg_sentence_3"],
        ["Hook (film)_sentence_0", "Bo Berg_sentence_3"],
    ),
    "feverous": (
        {"id": "10041", "claim": "Bo sang.", "label": "REFUTE"},
        ["Bo_sentence_3", "Sucre\u0301_sentence_0", "Bo_sentence_3"],
        ["Bo_sentence_3", "Sucré_sentence_0"],
    ),
    "exfever": (
        {"id": "exfever_7", "claim": "Bo, an actor, sang.", "label": "SUPPORT"},
        ["Bo Berg", "Actor's Life"],
        ["Bo Berg", "Actor's Life"],
    ),
    "scifact": (
        {"id": 3, "claim": "Mice age.", "label": "REFUTE"},
        ["doc_id=77_sentence_0", "doc_id=77_sentence_3"],
        ["doc_id=77_sentence_0", "doc_id=77_sentence_3"],
    ),
    "hover": (
        {"id": "u1", "claim": "Bo, an actor, sang.", "label": "SUPPORTED"},
        ["Bo Berg_sentence_0", "Tom &amp; Al_sentence_2", "Bo Berg_sentence_1"],
        ["Bo Berg", "Tom & Al"],
    ),
}


def row_of(name, **changes):
    """A published row, as JSON lines have it."""
    row, evidence, _ = ROWS[name]
    return row | {"source": name, "evidence": evidence} | changes


@pytest.fixture
def load(tmp_path):
    """Loads rows that are written as JSON lines."""

    def loaded(*rows):
        path = tmp_path / "rows.jsonl"
        path.write_text(lines(*rows), "utf-8")
        return benchmarks.load(path)

    return loaded


def lines(*rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows)


# ---- claims


def test_a_published_row_becomes_a_claim_with_its_label_and_gold_evidence(load):
    assert ROWS.keys() == benchmarks.CORPUS_OF.keys()
    labels = {"SUPPORT": SUPPORT, "SUPPORTED": SUPPORT, "REFUTE": REFUTE}
    for name, (row, _, evidence) in ROWS.items():
        (example,), problems = load(row_of(name))
        assert problems == Counter()
        own_id = str(row["id"]).removeprefix("exfever_")
        assert (example.id, example.question) == (f"{name}-{own_id}", row["claim"])
        label = labels[row["label"]]
        assert (example.label, example.answers) == (label, [label])
        assert example.evidence == evidence
        assert example.entity == evidence[0].partition("_sentence")[0]
        hops = 2 if name in ("exfever", "hover") else 1
        assert example.meta == {"set": name, "hops": hops}


def test_a_claim_may_lack_evidence_where_information_is_lacking(load):
    for name in ("fever", "scifact"):
        (example,), _ = load(row_of(name, label=NEI, evidence=[]))
        assert (example.label, example.evidence) == (NEI, [])


def test_what_hover_does_not_support_may_be_refuted_or_lack_information(load):
    (example,), _ = load(row_of("hover", label="NOT_SUPPORTED"))
    assert (example.label, example.answers) == (NEI, [NEI, REFUTE])


def test_published_rows_are_read_packed_and_from_parquet_alike(load, tmp_path):
    row = row_of("feverous")
    plain = load(row)
    packed, file = tmp_path / "packed.jsonl.gz", tmp_path / "rows.parquet"
    packed.write_bytes(gzip.compress(json.dumps(row).encode()))
    table = {
        "id": row["id"],
        "question": row["claim"],
        "golden_answers": {k: row[k] for k in ("evidence", "label")},
        "data_source": row["source"],
    }
    parquet.write_table(pyarrow.Table.from_pylist([table]), file)
    for path in (packed, file):
        assert benchmarks.load(path) == plain


def test_a_bad_row_is_dropped_for_a_named_reason(load):
    for change, problem in (
        ({"label": "MAYBE"}, "label: 'MAYBE' is none that is known"),
        ({"evidence": []}, "no evidence"),
        ({"evidence": "Bo"}, "evidence: "),
        ({"claim": " "}, "empty question"),
        ({"source": "nq"}, "source: none of fever, feverous, exfever"),
        ({"claim": "Bo \ud83d"}, "claim: half a character (a lone"),
    ):
        good = row_of("feverous")
        examples, problems = load(good, good | {"id": "9", "claim": "B"} | change)
        assert len(examples) == problems.total() == 1
        assert next(iter(problems)).startswith(problem), change


def test_a_file_of_something_else_is_refused_with_what_is_wrong(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "x"}\nnot JSON\n', "utf-8")
    with pytest.raises(DataError, match="rows.jsonl: no usable row"):
        benchmarks.load(path)
    (tmp_path / "train.parquet").write_bytes(b"PAR1 no more of it")
    with pytest.raises(DataError, match="train.parquet: damaged, or not.*again"):
        benchmarks.load(tmp_path / "train.parquet")


# ---- corpora

FEVER_PAGE = {
    "id": "Hook_-LRB-film-RRB-",
    "lines": "0\tHook -LRB- 1991 -RRB- is a film .\tfilm\tFilm\n1\t\n"
    "2\tIt is long .\nlong\tlong\n3\tBo is in it .\tBo\tBo_Berg",
}
FEVEROUS_PAGE = {
    "sentence_0": "He sang in [[Oslo_Hall_(old)|the hall]] of [[New_Oslo]].",
    "table_0": {"type": "table", "table": []},
    "sentence_1": "",
    "sentence_3": "He was 80.",
}
ABSTRACT = {"doc_id": 77, "title": "On mice.", "abstract": ["Mice.", "", "9.", "Rats."]}
TABLES = {
    "feverous_wikiv1.db": "wiki(id, data)",
    "wiki_wo_links.db": "documents(id, text)",
}


def database(path, name, rows):
    """A corpus's SQLite file."""
    with sqlite3.connect(path) as made:
        made.execute(f"CREATE TABLE {TABLES[name]}")
        table = TABLES[name].partition("(")[0]
        made.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)
    made.close()
    return path


def texts(entries):
    return {line.id: line.text for entry in entries for line in split_entry(entry)}


def corpora(folder):
    """Each corpus's file, of a page or two."""
    pages = folder / "wiki-pages"
    pages.mkdir()
    (pages / "wiki-001.jsonl").write_text(
        lines({"id": "", "lines": ""}, FEVER_PAGE), "utf-8"
    )
    (folder / "corpus.jsonl").write_text(lines(ABSTRACT), "utf-8")
    rows = {
        "feverous_wikiv1.db": [("Sucre\u0301", json.dumps(FEVEROUS_PAGE))],
        "wiki_wo_links.db": [
            ("Bo Berg", "Bo sang."),
            ("Tom &amp; Al", "A duo."),
            ("No", " "),
        ],
    }
    for name, of_name in rows.items():
        database(folder / name, name, of_name)
    return {name: folder / name for name in benchmarks.CORPORA}


def test_a_corpus_shows_the_gold_evidence_of_its_sets_claims(tmp_path):
    expected = {
        "wiki-pages": {
            "Hook (film)_sentence_0": "Hook ( 1991 ) is a film .",
            "Hook (film)_sentence_2": "It is long .",
            "Hook (film)_sentence_3": "Bo is in it .",
        },
        "feverous_wikiv1.db": {
            "Sucré_sentence_0": "He sang in the hall of New Oslo.",
            "Sucré_sentence_3": "He was 80.",
        },
        "corpus.jsonl": {
            "doc_id=77_sentence_0": "Mice.",
            "doc_id=77_sentence_2": "9.",
            "doc_id=77_sentence_3": "Rats.",
        },
        "wiki_wo_links.db": {"Bo Berg": "Bo sang.", "Tom & Al": "A duo."},
    }
    gold = {e for _, _, evidence in ROWS.values() for e in evidence}
    for name, path in corpora(tmp_path).items():
        entries = list(benchmarks.entries(name, path))
        assert texts(entries) == expected[name]
        assert gold & set(texts(entries))
        assert (entries[0].text.partition("\n")[0] == "On mice.") == (name[0] == "c")
        for page in {entry.doc_id for entry in entries}:
            own = [entry for entry in entries if entry.doc_id == page]
            assert list(benchmarks.entries(name, path, {page, "Gus"})) == own


def test_of_a_database_the_other_pages_are_not_read(tmp_path):
    rows = [("Bo", json.dumps({"sentence_0": "Bo sang."})), ("Al", "damaged")]
    path = database(tmp_path / "feverous_wikiv1.db", "feverous_wikiv1.db", rows)
    (entry,) = benchmarks.entries("feverous_wikiv1.db", path, {"Bo"})
    assert entry.text == "Bo\nBo sang."
    with pytest.raises(DataError, match="row 2"):
        list(benchmarks.entries("feverous_wikiv1.db", path))


def test_fevers_pages_are_read_from_their_zip(tmp_path):
    path = tmp_path / "wiki-pages.zip"
    with zipfile.ZipFile(path, "w") as made:
        for n, row in ((2, {"id": "Al", "lines": "0\tAl ."}), (1, FEVER_PAGE)):
            made.writestr(f"wiki-pages/wiki-00{n}.jsonl", lines(row))
            made.writestr(f"__MACOSX/wiki-pages/._wiki-00{n}.jsonl", b"\0")
    found = [e.doc_id for e in benchmarks.entries("wiki-pages", path)]
    assert found == ["Hook (film)", "Hook (film)", "Al"]


def test_a_bad_row_is_refused_with_its_number_once_it_is_reached(tmp_path):
    path = tmp_path / "corpus.jsonl"
    for row, problem in (
        (lines(ABSTRACT | {"doc_id": None}), "doc_id: "),
        ("{\n", "not JSON"),
    ):
        path.write_text(lines(ABSTRACT) + row, "utf-8")
        entries = benchmarks.entries("corpus.jsonl", path)
        assert len(list(islice(entries, 2))) == 2
        with pytest.raises(DataError, match=f"corpus.jsonl, row 2: {problem}.*mend"):
            list(entries)


def test_what_is_no_corpus_is_refused_with_what_it_should_be(tmp_path):
    other = database(tmp_path / "a.db", "feverous_wikiv1.db", [("A", "{}")])
    (tmp_path / "w.db").write_bytes(b"SQLite format 3\0 no more of it")
    for name, path, problem in (
        ("wiki_wo_links.db", other, r"a.db: .*documents\(id, text\).*no such"),
        ("wiki_wo_links.db", tmp_path / "w.db", "w.db: no SQLite file"),
        ("wiki-pages", tmp_path, r"no folder or zip with files wiki-\*.jsonl"),
        ("feverous_wikiv1.db", tmp_path / "absent", "absent: no such file"),
    ):
        with pytest.raises(DataError, match=problem):
            list(benchmarks.entries(name, path))
