"""Benchmarks to the one schema: the hub's shapes, bad rows and files."""

import bz2
import codecs
import gzip
import json
import lzma
import re

import datasets
import huggingface_hub
import pytest

from factkit.data import pages
from factkit.data.examples import DataError
from factkit.data.pages import Passages, crag_pages
from factkit.data.sources import load
from factkit.run.params import ROOT


def crag_row(i=0, **more):
    page = {
        "page_name": "Bo",
        "page_url": "http://b.org",
        "page_snippet": "bo &amp; co",
        "page_result": "<html><style>p{}</style><p>Bo <b>is</b></p>here</html>",
    }
    return {
        "interaction_id": f"c{i}",
        "query": f"who is bo {i}?",
        "answer": "bo",
        "alt_ans": ["Bo Li", "BO"],
        "question_type": "simple",
        "query_time": "03/19/2024, 23:28:32 PT",
        "domain": "open",
        "static_or_dynamic": "static",
        "split": 0,
        "search_results": [page],
    } | more


def paragraph(title, text, supporting):
    return {"title": title, "paragraph_text": text, "is_supporting": supporting}


# a row of each source as the hub has it
HUB = {
    "crag": crag_row(),
    "nq_open": {"question": "who is bo", "answer": ["Bo", "Bo Li"]},
    "hotpotqa": {
        "id": "h0",
        "question": "Is Ann Ed's?",
        "answer": "yes",
        "type": "bridge",
        "level": "hard",
        "supporting_facts": {"title": ["Ed", "Ann", "Ed"], "sent_id": [0, 1, 0]},
    },
    "musique": {
        "id": "2hop__1_2",
        "question": "Where was Ed's wife born?",
        "answer": "Oslo",
        "answer_aliases": ["Christiania", "oslo"],
        "paragraphs": [
            paragraph("X", "No.", False),
            paragraph("Ann", "Oslo.", True),
        ],
    },
    "popqa": {
        "id": 7,
        "question": "Who wrote It?",
        "subj": "It",
        "prop": "author",
        "obj": "Stephen King",
        "possible_answers": '["Stephen King", "King"]',
        "s_pop": 12,
    },
    "squad_v2": {
        "id": "s0",
        "title": "Steam_engine",
        "context": "Watt built it.",
        "question": "Who built it?",
        "answers": {"text": ["Watt", "Watt"], "answer_start": [0, 0]},
    },
}


def write(folder, rows, name="rows.jsonl"):
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)


def one(tmp_path, name, **more):
    """The example of the hub's row of a source, with some fields replaced."""
    return load(name, write(tmp_path, [HUB[name] | more]))[0][0]


# ---- the hub's shapes


def test_a_hub_row_becomes_an_example_of_its_subject(tmp_path):
    """The canonical answer comes first, aliases once."""
    examples = {name: one(tmp_path, name) for name in HUB}
    assert {name: (e.answers, e.entity) for name, e in examples.items()} == {
        "crag": (["bo", "Bo Li"], "c0"),
        "nq_open": (["Bo", "Bo Li"], examples["nq_open"].id),
        "hotpotqa": (["yes"], "Ed"),
        "musique": (["Oslo", "Christiania"], "Ann"),
        "popqa": (["Stephen King", "King"], "It"),
        "squad_v2": (["Watt"], "Steam engine"),
    }
    assert examples["crag"].meta == {"query_time": "03/19/2024, 23:28:32 PT"}


def test_questions_without_an_answer_are_labelled(tmp_path):
    assert one(tmp_path, "crag", answer="i don't know").label == "unanswerable"
    made = one(tmp_path, "crag", answer="invalid question", alt_ans=[])
    assert (made.label, made.answers) == ("false_premise", ["invalid question"])
    made = one(tmp_path, "squad_v2", answers={"text": [], "answer_start": []})
    assert (made.label, made.answers) == ("unanswerable", ["unanswerable"])


# ---- files


def test_what_is_not_there_or_broken_is_refused_by_name(tmp_path):
    with pytest.raises(DataError, match="absent.jsonl: no such file"):
        load("crag", str(tmp_path / "absent.jsonl"))
    with pytest.raises(DataError, match="rows.jsonl: no usable row .*answer: missing"):
        load("crag", write(tmp_path, [{"text": "x"}]))
    for content in (b'[{"question": "a', b'{"data": 3}', b"[\xff]"):
        (tmp_path / "rows.json").write_bytes(content)
        with pytest.raises(DataError, match="rows.json"):
            load("crag", str(tmp_path / "rows.json"))


PLAIN = "".join(json.dumps(crag_row(i)) + "\n" for i in range(30)).encode()


def packed_and_damaged():
    """Name → a set of which a part is missing, or that holds something else."""
    half = PLAIN.index(b"\n", len(PLAIN) // 2) + 1
    for name, pack in (("gz", gzip.compress), ("bz2", bz2.compress)):
        whole, parts = pack(PLAIN), [pack(PLAIN[:half]), pack(PLAIN[half:])]
        yield f"half.{name}", whole[: len(whole) // 2]
        yield f"without end.{name}", whole[:-1]
        yield f"flipped.{name}", whole[:60] + bytes([whole[60] ^ 4]) + whole[61:]
        yield f"more after it.{name}", whole + b"more"
        yield f"second cut.{name}", parts[0] + parts[1][:-9]
        yield f"second none.{name}", parts[0] + b"X" + parts[1][1:]
    yield "last line cut.jsonl", PLAIN[:-9]
    yield "lines.json", PLAIN[:-9]
    yield "list.json", b"[" + PLAIN.replace(b"}\n", b"},")[:-40]
    yield "deep.json", b"[" * 100_000 + b"]" * 100_000
    yield "utf16.jsonl", PLAIN.decode().encode("utf-16")
    yield "zip.jsonl", b"PK\x03\x04" + PLAIN
    yield "xz.jsonl", lzma.compress(PLAIN)


def test_a_file_that_is_not_whole_is_refused_and_never_loads_short(tmp_path):
    for name, content in packed_and_damaged():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=re.escape(name)):
            print(name, load("crag", str(tmp_path / name)))


def test_a_file_in_two_parts_or_with_a_byte_order_mark_loads_whole(tmp_path):
    marked = codecs.BOM_UTF8 + PLAIN
    for name, content in {
        "parts.gz": gzip.compress(PLAIN[:9]) + gzip.compress(PLAIN[9:]),
        "parts.bz2": bz2.compress(PLAIN[:9]) + bz2.compress(PLAIN[9:]),
        "marked.gz": gzip.compress(marked),
        "marked.jsonl": marked,
        "marked.json": marked,
        "list.json": codecs.BOM_UTF8 + b"[" + PLAIN.replace(b"}\n", b"},")[:-1] + b"]",
    }.items():
        (tmp_path / name).write_bytes(content)
        examples, problems = load("crag", str(tmp_path / name))
        assert (len(examples), problems) == (30, {}), name


CSV = "Record ID,Question,Correct Answer," + ",".join(
    f"Incorrect Answer {n}" for n in (1, 2, 3)
)


def test_a_csv_file_s_cells_are_read_whole_or_the_file_is_refused(tmp_path):
    path, long = tmp_path / "rows.csv", "x" * 300_000
    text = f'{CSV},Page\nNA,Größe?,a,b,c,d,"{long}"\nnull,How?,a,b,c,d,\n'
    for content in (text.encode(), text.encode("utf-8-sig")):
        for pack in (bytes, gzip.compress):
            path.write_bytes(pack(content))
            examples, problems = load("gpqa", str(path))
            assert ([e.id for e in examples], problems) == (["NA", "null"], {})
    for content, problem in (
        (text.encode("cp1252"), "not UTF-8"),
        (text.encode("utf-16"), "written in UTF-16"),
        (text.replace(",", ";").encode(), "separated by commas"),
        (text.replace(",", "\t").encode(), "separated by commas"),
        (text.replace("Page", "Question").encode(), "separated by commas"),
        (text.replace("How?", "How, when?").encode(), "line 3 has more cells"),
        (text.encode()[:-5], "its last line is cut off"),
        (text.encode() + b'id,"unclosed', "unexpected end of data"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=f"rows.csv: .*{problem}"):
            load("gpqa", str(path))


AWKWARD = ROOT / "../shared/data/awkward"


@pytest.mark.skipif(not AWKWARD.is_dir(), reason="no ../shared/data/awkward")
def test_awkward_files_load_whole_or_are_refused_with_the_reason():
    outcomes = {}
    for path in sorted(AWKWARD.glob("d_*.csv")):
        try:
            outcomes[path.stem] = len(load("gpqa", str(path))[0])
        except DataError as error:
            outcomes[path.stem] = "UTF-8" if "UTF-8" in str(error) else "columns"
    read = {"d_plain": 12, "d_long_cell": 12}
    assert outcomes == read | {"d_cp1252": "UTF-8", "d_semicolon": "columns"}
    examples, _ = load("popqa", str(AWKWARD / "f_ids.jsonl"))
    assert len(examples) == 52 and {"NA", "None"} <= {e.id for e in examples}


# ---- the hub


def test_one_split_or_all_come_from_the_hub_streamed_when_there_is_a_limit(monkeypatch):
    calls = []

    def fake(*where, **how):
        calls.append((*where, how["split"], how["streaming"]))
        return [HUB["nq_open"], HUB["nq_open"] | {"question": "who is cy"}]

    monkeypatch.setattr(datasets, "load_dataset", fake)
    hub = ("google-research-datasets/nq_open", "nq_open")
    assert len(load("nq_open", limit=1)[0]) == 1
    assert len(load("nq_open", all_splits=True)[0]) == 4
    splits = [(*hub, name, False) for name in ("train", "validation")]
    assert calls == [(*hub, "validation", True), *splits]


def test_an_unreachable_hub_is_a_data_error_with_the_fix(monkeypatch):
    def offline(*where, **how):
        raise ConnectionError("Couldn't reach the hub")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    with pytest.raises(DataError, match="akariasai/PopQA.*give the path of a local"):
        load("popqa")
    with pytest.raises(DataError, match="wiki-18-corpus.*give the path of a local"):
        Passages()


# ---- bad rows


def test_a_bad_row_is_dropped_and_counted_by_its_problem(tmp_path):
    bad = {
        "not UTF-8": b'{"query": "\xff"}',
        "not JSON": b'{"interaction_id": "c1", "que',
        "not a JSON object": b"[1, 2]",
        "duplicate id": crag_row(0, query="who was bo then?"),
        "empty question": crag_row(1, query="  "),
        "no reference answer": crag_row(1, answer="nan"),
        "answer: missing or not text": crag_row(1, answer=3),
        "alt_ans: not a list of texts": crag_row(1, alt_ans="bo, bob"),
        "question longer than 4000 characters": crag_row(1, query="x" * 5000),
        "query: half a character (a lone surrogate)": crag_row(1, query="\ud800"),
    }
    same = crag_row(7, query=crag_row(0)["query"].upper())  # a question twice is none
    rows = [crag_row(0), *bad.values(), same]
    lines = [r if isinstance(r, bytes) else json.dumps(r).encode() for r in rows]
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join(lines))
    examples, problems = load("crag", str(tmp_path / "rows.jsonl"))
    assert [e.id for e in examples] == ["c0", "c7"]
    assert problems == dict.fromkeys(bad, 1)


# ---- pages


def test_a_page_is_its_text_without_markup_or_else_its_snippet_each_once(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("FACTKIT_CACHE", str(tmp_path))
    base = crag_row()["search_results"][0]
    script = "<html><script>x()</script></html>"
    for found, texts in (
        ([{}], ["Bo\nis\nhere"]),
        *(([{"page_result": empty}], ["bo & co"]) for empty in ("", script, None)),
        ([{"page_result": "", "page_snippet": ""}], []),
        ([{}, {"page_name": "Cy", "page_url": "http://c.org"}], ["Bo\nis\nhere"]),
    ):
        row = crag_row(search_results=[base | page for page in found])
        path = write(tmp_path, [row])
        documents = crag_pages(path)["c0"]
        with monkeypatch.context() as cached:  # what was made of HTML is kept
            cached.setattr(pages, "plain_text", None)
            assert crag_pages(path)["c0"] == documents
        assert [d.text for d in documents] == texts


# ---- Wikipedia of 2018


def test_wikipedia_passage_keeps_its_title_and_a_bad_row_is_refused(tmp_path):
    path = tmp_path / "wiki.jsonl.gz"
    good = {"id": "0", "contents": '"Aaron"\nAaron is a prophet.\nHe speaks.'}
    for bad in ({"id": "1"}, {"id": "1", "contents": "no title"}, [1]):
        path.write_bytes(
            gzip.compress(f"{json.dumps(good)}\n{json.dumps(bad)}".encode())
        )
        passages = iter(Passages(str(path)))
        assert next(passages).text == "Aaron\nAaron is a prophet.\nHe speaks."
        with pytest.raises(DataError, match="wiki.jsonl.gz, row 2"):
            next(passages)
    with pytest.raises(DataError, match="absent.jsonl"):
        Passages("absent.jsonl")
