"""The paper's claims and corpora: what of each format is gold, which ids entries have,
what is dropped or refused for which reason."""

import json
import sqlite3
import zipfile
from collections import Counter
from itertools import islice

import pyarrow
import pytest
from pyarrow import parquet

from factkit.datasets.examples import LABELS, DataError
from factkit.retrieval.entries import shown
from factkit.veri import benchmarks

SUPPORT, REFUTE, NEI = LABELS


def row(name, label=SUPPORT, evidence=("Bo_sentence_0",), **fields):
    """A published row."""
    gold = {"label": label, "evidence": list(evidence)}
    own = {"id": "7", "question": " Bo sang.", "golden_answers": gold}
    return own | {"data_source": name, "ability": "fact-checking"} | fields


@pytest.fixture
def load(tmp_path):
    """Loads rows that are written as the published files are."""

    def loaded(*rows):
        path = tmp_path / "rows.parquet"
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        return benchmarks.load(path)

    return loaded


def lines(*rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows)


# ---- claims


def test_a_row_becomes_a_claim_with_its_label_and_gold_evidence(load):
    """The ids are those that the set's corpus has; SciFact's rows are numbered."""
    hook = "Hook_-LRB-film-RRB-_sentence_"
    for published, own_id, label, gold, hops in (
        (
            row("fever", "SUPPORTS", [f"{hook}0", f"{hook}3", f"{hook}0"]),
            "fever-7",
            SUPPORT,
            ["Hook (film)_sentence_0", "Hook (film)_sentence_3"],
            1,
        ),
        (row("fever", NEI, []), "fever-7", NEI, [], 1),
        (
            row("feverous", REFUTE, ["Sucre\u0301_sentence_3"]),
            "feverous-7",
            REFUTE,
            ["Sucré_sentence_3"],
            1,
        ),
        (
            row("exfever", evidence=["Bo Berg", "A [b]"], id="exfever_7"),
            "exfever-7",
            SUPPORT,
            ["Bo Berg", "A (b)"],
            2,
        ),
        (
            row("scifact", REFUTE, ["doc_id=77_sentence_0"], id=7),
            "scifact-7",
            REFUTE,
            ["doc_id=77_sentence_0"],
            1,
        ),
        (
            row("hover", "SUPPORTED", ["A &amp; B_sentence_0", "A &amp; B_sentence_2"]),
            "hover-7",
            SUPPORT,
            ["A & B"],
            2,
        ),
    ):
        (example,), problems = load(published)
        assert (example.id, example.question) == (own_id, "Bo sang.")
        assert (example.label, example.answers) == (label, [label]), own_id
        assert example.evidence == gold and problems == Counter()
        assert example.entity == (gold[0].partition("_sentence")[0] if gold else own_id)
        assert example.meta == {"set": published["data_source"], "hops": hops}


def test_what_hover_does_not_support_may_be_refuted_or_lack_information(load):
    (example,), _ = load(row("hover", "NOT_SUPPORTED"))
    assert (example.label, example.answers) == (NEI, [NEI, REFUTE])


def test_a_bad_row_is_dropped_for_a_named_reason(load):
    for bad, problem in (
        (row("fever", "MAYBE"), "label: 'MAYBE' is none that is known"),
        (row("fever", evidence=[]), "no evidence"),
        (row("feverous", evidence=[None]), "evidence: "),
        (row("feverous", question=" "), "empty question"),
        (row("scifact", id=None), "id: "),
        (row("hover", golden_answers=None), "golden_answers: "),
        (row("nq"), "data_source: none of fever, feverous, exfever"),
        (row("fever", id="8"), "duplicate id"),
    ):
        good = row("fever", id="8")
        examples, problems = load(good, {"id": "9"} | bad)
        assert len(examples) == problems.total() == 1
        assert next(iter(problems)).startswith(problem), problem


def test_a_file_of_something_else_is_refused_with_what_is_wrong(load, tmp_path):
    with pytest.raises(DataError, match="rows.parquet: no usable row"):
        load({"text": "x"})
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
    return {line.id: line.text for entry in entries for line in shown(entry)}


def corpora(folder):
    """Each corpus's file, of a page or two."""
    pages = folder / "wiki-pages"
    pages.mkdir()
    (pages / "wiki-001.jsonl").write_text(lines({"id": "", "lines": ""}, FEVER_PAGE))
    (folder / "corpus.jsonl").write_text(lines(ABSTRACT))
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


def test_a_corpus_shows_its_sentences_or_pages_by_their_ids(tmp_path):
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
    for name, path in corpora(tmp_path).items():
        entries = list(benchmarks.entries(name, path))
        assert texts(entries) == expected[name]
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
        ("{", "not JSON"),
    ):
        path.write_text(lines(ABSTRACT) + row)
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
