"""Claims: what of each set's own format is gold, what is dropped for which reason."""

import csv
import gzip
import json
from collections import Counter

import pyarrow
import pytest
from pyarrow import parquet

from factkit import params
from factkit.datasets.examples import DataError, Example
from factkit.veri import benchmarks
from factkit.world.facts import LABELS

DATA = params.ROOT.parent / "shared" / "data"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the sample files are not beside the project"
)
SUPPORT, REFUTE, NEI = LABELS

FEVER = {
    "id": 1,
    "verifiable": "VERIFIABLE",
    "label": "SUPPORTS",
    "claim": "Hook is a film.",
    "evidence": [[[10, 20, "Hook_-LRB-film-RRB-", 0]]],
}
FEVEROUS = {
    "id": 2,
    "label": "REFUTES",
    "claim": "Bo sang.",
    "evidence": [{"content": ["Bo Berg_sentence_3"], "context": {}}],
    "annotator_operations": [],
    "challenge": "Multi-hop Reasoning",
}
EXFEVER = {
    "claim": "Bo, who is an actor, sang.",
    "explanation": "Bo did.",
    "label": "SUPPORT",
    "golden entity": "['Bo_Berg', \"Actor's_Life\"]",
}
SCIFACT = {
    "id": 3,
    "claim": "Mice age.",
    "evidence": {"77": [{"sentences": [1, 4], "label": "CONTRADICT"}]},
    "cited_doc_ids": [77],
}
HOVER = {
    "uid": "u1",
    "claim": "Bo, who is an actor, sang.",
    "supporting_facts": [["Bo Berg", 0], ["Tom &amp; Al", 2], ["Bo Berg", 1]],
    "label": "SUPPORTED",
    "num_hops": 2,
    "hpqa_id": "x",
}
VERI_R1 = {
    "id": "10041",
    "claim": "Bo sang.",
    "label": "REFUTE",
    "evidence": ["Bo Berg_sentence_6"],
    "source": "feverous",
}
ROWS = {
    "fever": FEVER,
    "feverous": FEVEROUS,
    "exfever": EXFEVER,
    "scifact": SCIFACT,
    "hover": HOVER,
    "veri_r1": VERI_R1,
}


@pytest.fixture
def load(tmp_path):
    """Loads rows that are written in a set's own kind of file."""

    def loaded(name, *rows):
        suffix = {"exfever": "csv", "hover": "json"}.get(name, "jsonl")
        path = tmp_path / f"{name}.{suffix}"
        if suffix == "csv":
            with path.open("w", newline="") as file:
                lines = csv.DictWriter(file, list(EXFEVER))
                lines.writeheader()
                lines.writerows(rows)
        elif suffix == "json":
            path.write_text(json.dumps(rows))
        else:
            path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return benchmarks.load(name, str(path))

    return loaded


# ---- what a row becomes


def test_a_row_becomes_a_claim_with_its_label_and_gold_evidence(load):
    gold = {
        "fever": (SUPPORT, ["Hook (film)_sentence_0"], "Hook (film)"),
        "feverous": (REFUTE, ["Bo Berg_sentence_3"], "Bo Berg"),
        "exfever": (SUPPORT, ["Bo Berg", "Actor's Life"], "Bo Berg"),
        "scifact": (
            REFUTE,
            ["doc_id=77_sentence_1", "doc_id=77_sentence_4"],
            "doc_id=77",
        ),
        "hover": (SUPPORT, ["Bo Berg", "Tom & Al"], "Bo Berg"),
        "veri_r1": (REFUTE, ["Bo Berg_sentence_6"], "Bo Berg"),
    }
    assert gold.keys() == ROWS.keys() == benchmarks.SOURCES.keys()
    for name, (label, evidence, entity) in gold.items():
        (example,), problems = load(name, ROWS[name])
        assert problems == Counter()
        assert (example.question, example.label) == (ROWS[name]["claim"], label)
        assert example.answers == [label]
        assert (example.evidence, example.entity) == (evidence, entity)
        assert example.meta == {"set": "feverous" if name == "veri_r1" else name}


def test_all_of_fevers_sets_of_evidence_are_gold(load):
    sets = [
        [[10, 20, "Telemundo", 0]],
        [[11, 21, "Telemundo", 4], [11, 21, "Hispanic_and_Latino_Americans", 0]],
        [[12, 22, "Telemundo", 0]],
    ]
    (example,), _ = load("fever", FEVER | {"evidence": sets})
    assert example.evidence == [
        "Telemundo_sentence_0",
        "Telemundo_sentence_4",
        "Hispanic and Latino Americans_sentence_0",
    ]


def test_a_claim_may_lack_evidence_where_information_is_lacking(load):
    unknown = {"label": NEI, "evidence": [[[1, None, None, None]]]}
    for name, row in (
        ("fever", FEVER | unknown),
        ("scifact", SCIFACT | {"evidence": {}}),
    ):
        (example,), _ = load(name, row)
        assert (example.label, example.evidence) == (NEI, [])
        assert example.entity == example.id


def test_of_feverouss_evidence_what_is_sentences_only_is_gold(load):
    sets = [
        {"content": ["Bo_sentence_3", "Bo_cell_0_1_2"]},
        {"content": ["Bo_sentence_3", "Al_sentence_0"]},
        {"content": ["Al_sentence_0", "Al_sentence_1"]},
    ]
    (example,), _ = load("feverous", FEVEROUS | {"evidence": sets})
    assert example.evidence == ["Bo_sentence_3", "Al_sentence_0", "Al_sentence_1"]


def test_a_claim_of_feverous_with_other_evidence_is_dropped_by_name(load):
    """So is the empty first row of its files."""
    others = "cell_0_1_2 header_cell_0_0_0 item_0_4 table_caption_0 section_1 title"
    bad = [
        FEVEROUS
        | {"id": name, "evidence": [{"content": ["Bo_sentence_3", f"Bo_{name}"]}]}
        for name in others.split()
    ]
    empty = {"id": "", "label": "", "claim": "", "evidence": [], "challenge": ""}
    examples, problems = load("feverous", empty, FEVEROUS, *bad)
    assert [e.id for e in examples] == ["feverous-2"]
    assert problems == {"no evidence of sentences only": 6, "empty question": 1}


def test_evidence_for_and_against_a_claim_of_scifact_is_no_label(load):
    for_it = [{"sentences": [0], "label": "SUPPORT"}]
    both = SCIFACT | {"id": 9, "evidence": SCIFACT["evidence"] | {"78": for_it}}
    examples, problems = load("scifact", SCIFACT, both)
    assert len(examples) == 1
    assert problems == {"evidence for and against the claim": 1}


def test_what_hover_does_not_support_may_be_refuted_or_lack_information(load):
    more = HOVER | {"uid": "u2", "num_hops": 3}
    (example,), problems = load("hover", HOVER | {"label": "NOT_SUPPORTED"}, more)
    assert example.label == NEI
    assert example.answers == [NEI, REFUTE]
    assert problems == {"not of 2 hops": 1}


def test_published_evidence_has_the_ids_of_its_sets_own_loader(load):
    for source, label, evidence, gold in (
        ("fever", "SUPPORTS", ["A_-LRB-b-RRB-_sentence_1"], ["A (b)_sentence_1"]),
        ("hover", "SUPPORTED", ["A_sentence_0", "A_sentence_2"], ["A"]),
        ("hover", "SUPPORTED", ["A &amp; B_sentence_0"], ["A & B"]),
        ("exfever", "SUPPORT", ["A", "B", "A"], ["A", "B"]),
        ("scifact", "SUPPORT", ["doc_id=7_sentence_0"], ["doc_id=7_sentence_0"]),
        ("feverous", "SUPPORT", ["Sucre\u0301_sentence_4"], ["Sucré_sentence_4"]),
    ):
        row = VERI_R1 | {"source": source, "label": label, "evidence": evidence}
        (example,), _ = load("veri_r1", row)
        assert (example.evidence, example.meta) == (gold, {"set": source})
        assert example.label == SUPPORT


def test_published_rows_are_read_packed_and_from_parquet_alike(load, tmp_path):
    plain = load("veri_r1", VERI_R1)
    packed = tmp_path / "rows.jsonl.gz"
    packed.write_bytes(gzip.compress(json.dumps(VERI_R1).encode()))
    assert benchmarks.load("veri_r1", str(packed)) == plain
    table = {
        "id": VERI_R1["id"],
        "question": VERI_R1["claim"],
        "golden_answers": {k: VERI_R1[k] for k in ("evidence", "label")},
        "data_source": VERI_R1["source"],
        "prompt": [{"role": "user", "content": "Verify"}],
    }
    file = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.Table.from_pylist([table]), file)
    assert benchmarks.load("veri_r1", str(file)) == plain


# ---- bad rows and files


def test_a_bad_row_is_dropped_for_a_named_reason(load):
    short = {"evidence": [[["A", 0]]]}
    unnumbered = {"evidence": [[[1, 2, "A", None]]]}
    for name, change, problem in (
        ("fever", {"claim": None}, "claim: missing or not text"),
        ("fever", {"claim": " "}, "empty question"),
        ("fever", {"label": "MAYBE"}, "label: 'MAYBE' is none that is known"),
        ("fever", {"label": None}, "label: missing or not text"),
        ("fever", {"id": None}, "id: missing or not a number"),
        ("fever", {"evidence": []}, "no evidence"),
        ("fever", {"evidence": {}}, "evidence: not a list of lists"),
        ("fever", short, "evidence: not [annotation, evidence, page, sentence]"),
        ("fever", unnumbered, "evidence: a sentence's number is missing or below 0"),
        ("feverous", {"evidence": [[]]}, "evidence: not a list of objects"),
        ("feverous", {"evidence": [{}]}, "content: not a list of texts"),
        ("exfever", {"golden entity": "Bo"}, "golden entity: not a list of titles"),
        ("exfever", {"golden entity": "[1]"}, "golden entity: missing or not text"),
        ("exfever", {"golden entity": "[]"}, "no evidence"),
        ("scifact", {"evidence": None}, "evidence: missing or not an object"),
        (
            "scifact",
            {"evidence": {"7": [{"label": "SUPPORT"}]}},
            "sentences: not a list of numbers",
        ),
        (
            "hover",
            {"supporting_facts": [7]},
            "supporting_facts: not pairs of title and sentence",
        ),
        ("hover", {"supporting_facts": []}, "no evidence"),
        (
            "veri_r1",
            {"source": "nq"},
            "source: none of fever, feverous, exfever, scifact, hover",
        ),
        ("veri_r1", {"evidence": None}, "evidence: not a list of texts"),
        ("veri_r1", {"golden_answers": None}, "source: missing or not text"),
        ("veri_r1", {"claim": "Bo \ud83d"}, "claim: half a character (a lone"),
    ):
        good = ROWS[name]
        named = {k: "9" for k in ("id", "uid") if k in good}
        bad = good | named | {"claim": "Another."} | change
        examples, problems = load(name, good, bad)
        assert len(examples) == problems.total() == 1
        assert next(iter(problems)).startswith(problem)


def test_a_file_of_something_else_is_refused_with_what_is_wrong(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "x"}\nnot JSON\n')
    for name in benchmarks.SOURCES:
        with pytest.raises(DataError, match="rows.jsonl: no usable row"):
            benchmarks.load(name, str(path))
        with pytest.raises(DataError, match="absent: no such file"):
            benchmarks.load(name, str(tmp_path / "absent"))
        with pytest.raises(DataError, match=f"{name} is not on the hub"):
            benchmarks.load(name, "")
    with pytest.raises(DataError, match="climate: no such data set.*exfever, scifact"):
        benchmarks.load("climate", "x")


def test_a_damaged_file_is_refused_by_name(tmp_path):
    (tmp_path / "x.csv").write_bytes(b"claim,label,golden entity\nBo \xff,,['Bo']\n")
    with pytest.raises(DataError, match="x.csv: not CSV in UTF-8.*fetch"):
        benchmarks.load("exfever", str(tmp_path / "x.csv"))
    path = tmp_path / "train.parquet"
    for content in (b"", b"PAR1 no more of it", b"{}"):
        path.write_bytes(content)
        with pytest.raises(DataError, match="train.parquet: no parquet file.*again"):
            benchmarks.load("veri_r1", str(path))
    parquet.write_table(pyarrow.table({"id": ["1"], "question": ["x"]}), path)
    with pytest.raises(DataError, match="no usable row .*source: missing"):
        benchmarks.load("veri_r1", str(path))


# ---- balance


def claims(**numbers):
    return [
        Example(
            id=f"{label}{i}",
            question=f"{label} {i}?",
            answers=[label],
            entity="x",
            label=label,
        )
        for label, n in zip(LABELS, numbers.values(), strict=True)
        for i in range(n)
    ]


def test_labels_are_drawn_alike_and_a_seed_draws_the_same_claims():
    every = claims(support=9, refute=5, nei=20)
    drawn = benchmarks.balanced(every, 5, seed=1)
    assert Counter(e.label for e in drawn) == dict.fromkeys(LABELS, 5)
    assert drawn == benchmarks.balanced(every, 5, seed=1)
    assert drawn != benchmarks.balanced(every, 5, seed=2)
    assert drawn == [e for e in every if e in drawn]


def test_a_label_that_is_short_is_named():
    with pytest.raises(DataError, match="5 claims a label: there are 4 with 'REFUTE'"):
        benchmarks.balanced(claims(support=9, refute=4, nei=20), 5)


def test_two_labels_can_be_drawn_of_a_set_without_the_third():
    drawn = benchmarks.balanced(
        claims(support=3, refute=0, nei=4), 3, labels=(SUPPORT, NEI)
    )
    assert Counter(e.label for e in drawn) == {SUPPORT: 3, NEI: 3}


# ---- real rows


@needs_data
def test_every_real_row_is_a_claim_or_a_repetition():
    repeated = {"duplicate id": 1095}
    for name, file, labels, problems in (
        ("fever", "paper_dev.jsonl", (3333, 3333, 3333), {}),
        ("exfever", "mini_test.csv", (326, 353, 321), {}),
        ("veri_r1", "train_online.slim.jsonl.gz", (2937, 2723, 1437), repeated),
    ):
        examples, dropped = benchmarks.load(name, str(DATA / name / file))
        counts = Counter(e.label for e in examples)
        assert counts == dict(zip(LABELS, labels, strict=True))
        assert dropped == problems
        assert all(e.evidence or e.label == NEI for e in examples)
