"""The paper's claims and corpora: what of each format is gold, which ids entries have,
what is dropped or refused for which reason."""

import csv
import gzip
import json
import sqlite3
import zipfile
from collections import Counter
from itertools import islice

import pyarrow
import pytest
from pyarrow import parquet

from factkit.data.entries import shown
from factkit.data.examples import LABELS, DataError, Example
from factkit.papers.veri import benchmarks

SUPPORT, REFUTE, NEI = LABELS
ROWS = {
    "fever": {
        "id": 1,
        "label": "SUPPORTS",
        "claim": "Hook is a film.",
        "evidence": [
            [[10, 20, "Hook_-LRB-film-RRB-", 0]],
            [[11, 21, "Hook_-LRB-film-RRB-", 3], [12, 22, "Bo", 0]],
        ],
    },
    "feverous": {
        "id": 2,
        "label": "REFUTES",
        "claim": "Bo sang.",
        "evidence": [
            {"content": ["Bo_sentence_3", "Bo_cell_0_1_2"]},
            {"content": ["Bo_sentence_3", "Sucre\u0301_sentence_0"], "context": {}},
        ],
        "challenge": "Multi-hop Reasoning",
    },
    "exfever": {
        "claim": "Bo, who is an actor, sang.",
        "label": "SUPPORT",
        "golden entity": "['Bo_Berg', \"Actor's_Life\"]",
    },
    "scifact": {
        "id": 3,
        "claim": "Mice age.",
        "evidence": {"77": [{"sentences": [0, 3], "label": "CONTRADICT"}]},
    },
    "hover": {
        "uid": "u1",
        "claim": "Bo, who is an actor, sang.",
        "supporting_facts": [["Bo Berg", 0], ["Tom &amp; Al", 2], ["Bo Berg", 1]],
        "label": "SUPPORTED",
        "num_hops": 2,
    },
    "veri_r1": {
        "id": "10041",
        "claim": "Bo sang.",
        "label": "REFUTE",
        "evidence": ["Bo Berg_sentence_6"],
        "source": "feverous",
    },
}


@pytest.fixture
def load(tmp_path):
    """Loads rows that are written in a set's own kind of file."""

    def loaded(name, *rows):
        path = tmp_path / f"{name}.{'csv' if name == 'exfever' else 'jsonl'}"
        if name == "exfever":
            with path.open("w", newline="", encoding="utf-8") as file:
                table = csv.DictWriter(file, list(ROWS[name]))
                table.writeheader()
                table.writerows(rows)
        else:
            path.write_text(lines(*rows), "utf-8")
        return benchmarks.load(name, str(path))

    return loaded


def lines(*rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows)


# ---- claims


def test_a_row_becomes_a_claim_with_its_label_and_gold_evidence(load):
    """All of FEVER's sets of evidence are gold, of FEVEROUS's those of sentences."""
    hook = "Hook (film)"
    gold = {
        "fever": (
            SUPPORT,
            [f"{hook}_sentence_0", f"{hook}_sentence_3", "Bo_sentence_0"],
        ),
        "feverous": (REFUTE, ["Bo_sentence_3", "Sucré_sentence_0"]),
        "exfever": (SUPPORT, ["Bo Berg", "Actor's Life"]),
        "scifact": (REFUTE, ["doc_id=77_sentence_0", "doc_id=77_sentence_3"]),
        "hover": (SUPPORT, ["Bo Berg", "Tom & Al"]),
        "veri_r1": (REFUTE, ["Bo Berg_sentence_6"]),
    }
    assert gold.keys() == ROWS.keys() == benchmarks.SOURCES.keys()
    for name, (label, evidence) in gold.items():
        (example,), problems = load(name, ROWS[name])
        assert problems == Counter()
        assert (example.question, example.label) == (ROWS[name]["claim"], label)
        assert (example.answers, example.evidence) == ([label], evidence)
        assert example.entity == evidence[0].partition("_sentence")[0]
        own = "feverous" if name == "veri_r1" else name
        hops = 2 if own in ("exfever", "hover") else 1
        assert example.meta == {"set": own, "hops": hops}


def test_a_claim_may_lack_evidence_where_information_is_lacking(load):
    unknown = {"label": NEI, "evidence": [[[1, None, None, None]]]}
    for name, change in (("fever", unknown), ("scifact", {"evidence": {}})):
        (example,), _ = load(name, ROWS[name] | change)
        assert (example.label, example.evidence) == (NEI, [])


def test_what_hover_does_not_support_may_be_refuted_or_lack_information(load):
    row = ROWS["hover"] | {"label": "NOT_SUPPORTED"}
    (example,), problems = load("hover", row, row | {"uid": "u2", "num_hops": 3})
    assert (example.label, example.answers) == (NEI, [NEI, REFUTE])
    assert problems == {"not of 2 hops": 1}


def test_published_evidence_has_the_ids_of_its_sets_own_loader(load):
    """SciFact's rows are numbered, the others' ids are texts."""
    for name, own_id, label, evidence, gold in (
        ("hover", "7", "SUPPORTED", ["A &amp; B_sentence_0"] * 2, ["A & B"]),
        ("exfever", "exfever_7", SUPPORT, ["Bo", "Al"], ["Bo", "Al"]),
        ("scifact", 7, SUPPORT, ["doc_id=77_sentence_0"], ["doc_id=77_sentence_0"]),
    ):
        row = {"id": own_id, "claim": "x", "source": name, "label": label}
        (example,), _ = load("veri_r1", row | {"evidence": evidence})
        assert (example.id, example.label) == (f"{name}-7", SUPPORT)
        assert example.evidence == gold
        hops = 1 if name == "scifact" else 2
        assert example.meta == {"set": name, "hops": hops}


def test_published_rows_are_read_packed_and_from_parquet_alike(load, tmp_path):
    row = ROWS["veri_r1"]
    plain = load("veri_r1", row)
    packed, file = tmp_path / "rows.jsonl.gz", tmp_path / "rows.parquet"
    packed.write_bytes(gzip.compress(json.dumps(row).encode()))
    table = {
        "id": row["id"],
        "question": row["claim"],
        "golden_answers": {k: row[k] for k in ("evidence", "label")},
        "data_source": row["source"],
    }
    parquet.write_table(pyarrow.Table.from_pylist([table]), file)
    for path in (packed, file):
        assert benchmarks.load("veri_r1", str(path)) == plain


def test_a_bad_row_is_dropped_for_a_named_reason(load):
    """So is the empty first row of FEVEROUS's files, and evidence in tables."""
    both = ROWS["scifact"]["evidence"] | {"7": [{"sentences": [1], "label": "SUPPORT"}]}
    for name, change, problem in (
        ("fever", {"label": "MAYBE"}, "label: 'MAYBE' is none that is known"),
        ("fever", {"evidence": []}, "no evidence"),
        ("fever", {"evidence": [[[1, 2, "A", None]]]}, "evidence: "),
        ("feverous", {"evidence": [{"content": ["A_item_0"]}]}, "no evidence of sent"),
        ("feverous", {"claim": "", "label": "", "evidence": []}, "empty question"),
        ("exfever", {"golden entity": "Bo"}, "golden entity: not a list of texts"),
        ("scifact", {"evidence": {"7": [{"label": "SUPPORT"}]}}, "sentences: "),
        ("scifact", {"evidence": both}, "evidence for and against the claim"),
        ("hover", {"supporting_facts": [7]}, "supporting_facts: not pairs of title"),
        ("veri_r1", {"source": "nq"}, "source: none of fever, feverous, exfever"),
        ("veri_r1", {"claim": "Bo \ud83d"}, "claim: half a character (a lone"),
    ):
        good = ROWS[name]
        named = {k: "9" for k in ("id", "uid") if k in good}
        examples, problems = load(name, good, good | named | {"claim": "B"} | change)
        assert len(examples) == problems.total() == 1
        assert next(iter(problems)).startswith(problem), (name, change)


def test_a_file_of_something_else_is_refused_with_what_is_wrong(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "x"}\nnot JSON\n', "utf-8")
    with pytest.raises(DataError, match="rows.jsonl: no usable row"):
        benchmarks.load("fever", str(path))
    (tmp_path / "train.parquet").write_bytes(b"PAR1 no more of it")
    with pytest.raises(DataError, match="train.parquet: damaged, or not.*again"):
        benchmarks.load("veri_r1", str(tmp_path / "train.parquet"))


def test_labels_are_drawn_alike_and_one_that_is_short_is_named():
    every = [
        Example(id=f"{y}{i}", question="q", answers=[y], entity="x", label=y)
        for y, n in zip(LABELS, (9, 5, 20), strict=True)
        for i in range(n)
    ]
    two = benchmarks.balanced(every, 9, (SUPPORT, NEI))
    assert Counter(e.label for e in two) == {SUPPORT: 9, NEI: 9}
    with pytest.raises(DataError, match="6 claims a label: there are 5 with 'REFUTE'"):
        benchmarks.balanced(every, 6)


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


def test_a_corpus_shows_the_gold_evidence_of_its_sets_claims(tmp_path, load):
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
    gold = {e for name in ROWS for e in load(name, ROWS[name])[0][0].evidence}
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
