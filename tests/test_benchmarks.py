"""Benchmarks to the one schema: real formats, the hub's shapes, and bad rows."""

import bz2
import gzip
import json
from collections import Counter

import pytest

from factkit import params
from factkit.corpus import wikipedia_2018
from factkit.datasets import benchmarks
from factkit.datasets.benchmarks import BENCHMARKS, load, load_pages
from factkit.datasets.examples import DataError, read_examples, write_examples
from factkit.datasets.html_text import plain_text

DATA = params.ROOT.parent / "shared" / "data"
FILES = {
    "crag": "crag/dev_data_10.trimmed.jsonl",
    "nq_open": "nq_open/NQ-open.efficientqa.dev.1.1.jsonl",
    "hotpotqa": "hotpotqa/hotpot_dev_v1_simplified.json",
    "musique": "musique/musique_sample30.jsonl",
    "popqa": "popqa/popqa_sample20.jsonl",
    "squad_v2": "squad_v2/dev-v2.0.json",
}
# what the files hold, less what is dropped for a reason
GOOD = {
    "crag": (9, {"no reference answer": 1}),
    "nq_open": (1800, {}),
    "hotpotqa": (7405, {}),
    "musique": (30, {}),
    "popqa": (20, {}),
    "squad_v2": (6078, {}),
}
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the sample files are not beside the project"
)


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


HOTPOT_CONTEXT = {
    "title": ["Ann", "Ed", "Far"],
    "sentences": [["Ann sings.", " She is Ed's."], ["Ed acts."], ["Far away."]],
}
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
        "context": HOTPOT_CONTEXT,
    },
    "musique": {
        "id": "2hop__1_2",
        "question": "Where was Ed's wife born?",
        "answer": "Oslo",
        "answer_aliases": ["Christiania", "oslo"],
        "answerable": True,
        "paragraphs": [
            {"idx": 0, "title": "X", "paragraph_text": "No.", "is_supporting": False},
            {
                "idx": 1,
                "title": "Ann",
                "paragraph_text": "Oslo.",
                "is_supporting": True,
            },
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
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def one(tmp_path, name, **more):
    """The example of the hub's row of a source, with some fields replaced."""
    path = write(tmp_path, [HUB[name] | more])
    return load(name, path, bad_rows="refuse")[0][0]


# ---- the sources' own files


@needs_data
@pytest.mark.parametrize("name", FILES)
def test_sample_file_gives_the_known_count_and_drops(name):
    examples, problems = load(name, str(DATA / FILES[name]))
    assert (len(examples), dict(problems)) == GOOD[name]


@needs_data
@pytest.mark.parametrize("name", FILES)
def test_sample_file_survives_being_written_and_read_back(name, tmp_path):
    examples, _ = load(name, str(DATA / FILES[name]))
    write_examples(tmp_path / "out.jsonl", examples)
    assert read_examples(tmp_path / "out.jsonl") == (examples, Counter())


@needs_data
def test_crag_sample_answers_its_false_premise_with_invalid_question():
    examples, _ = load("crag", str(DATA / FILES["crag"]))
    (false,) = [e for e in examples if e.label == "false_premise"]
    assert false.answers[0] == "invalid question"
    assert false.answers[1].startswith("rory mcilroy has never won")


@needs_data
def test_crag_sample_has_two_answered_comparison_questions():
    examples, _ = load("crag", str(DATA / FILES["crag"]))
    assert [e.answers for e in examples if e.relation == "comparison"] == [
        *(["yes"], ["universal pictures"])
    ]


@needs_data
def test_crag_sample_pages_are_distinct_text_with_an_address():
    pages = load_pages("crag", str(DATA / FILES["crag"]))
    for documents in pages.values():
        assert 1 <= len({d.text for d in documents}) == len(documents) <= 5
        assert all(d.source.startswith("http") for d in documents)


@needs_data
def test_squad_sample_evidence_is_its_paragraph():
    examples, _ = load("squad_v2", str(DATA / FILES["squad_v2"]))
    pages = load_pages("squad_v2", str(DATA / FILES["squad_v2"]))
    for example in examples:
        (page,) = pages[example.id]
        assert example.evidence == ([] if example.label else [page.id])
        assert example.label or example.answers[0] in page.text


# ---- the hub's shapes


@pytest.mark.parametrize("name", HUB)
def test_hub_row_becomes_an_example(tmp_path, name):
    assert one(tmp_path, name).answers


def test_canonical_answer_comes_first_and_aliases_once(tmp_path):
    assert one(tmp_path, "crag").answers == ["bo", "Bo Li"]
    assert one(tmp_path, "musique").answers == ["Oslo", "Christiania"]
    assert one(tmp_path, "popqa").answers == ["Stephen King", "King"]


@pytest.mark.parametrize("given", ['["King"]', "['King']", ["King"]])
def test_popqa_answers_may_be_a_list_or_a_string_of_one(tmp_path, given):
    answers = one(tmp_path, "popqa", possible_answers=given, obj=None).answers
    assert answers == ["King"]


def test_crag_keeps_what_its_prompt_and_tables_need(tmp_path):
    meta = one(tmp_path, "crag").meta
    assert meta["query_time"] == "03/19/2024, 23:28:32 PT"
    assert (meta["domain"], meta["static_or_dynamic"]) == ("open", "static")


def test_crag_answer_i_dont_know_is_labelled_unanswerable(tmp_path):
    assert one(tmp_path, "crag", answer="i don't know").label == "unanswerable"


def test_crag_invalid_question_is_a_false_premise_and_stands_once(tmp_path):
    made = one(tmp_path, "crag", answer="invalid question", alt_ans=[])
    assert (made.label, made.answers) == ("false_premise", ["invalid question"])


def test_impossible_squad_question_is_answered_by_unanswerable(tmp_path):
    made = one(tmp_path, "squad_v2", answers={"text": [], "answer_start": []})
    assert (made.label, made.answers) == ("unanswerable", ["unanswerable"])
    assert made.evidence == []


def test_entity_is_the_subject_where_the_source_has_one(tmp_path):
    entities = {name: one(tmp_path, name).entity for name in HUB}
    made = entities.pop("nq_open")
    assert made.startswith("nq-")
    assert entities == {
        "crag": "c0",
        "hotpotqa": "Ed",
        "musique": "Ann",
        "popqa": "It",
        "squad_v2": "Steam engine",
    }


@pytest.mark.parametrize("name", ["hotpotqa", "musique"])
def test_evidence_names_the_supporting_documents(tmp_path, name):
    path = write(tmp_path, [HUB[name]])
    ((example,), _), pages = load(name, path), load_pages(name, path)
    found = {d.title for d in pages[example.id] if d.id in example.evidence}
    assert found == {"hotpotqa": {"Ann", "Ed"}, "musique": {"Ann"}}[name]


def test_hotpotqa_of_the_authors_file_equals_the_hubs(tmp_path):
    columns = HOTPOT_CONTEXT
    pairs = [list(p) for p in zip(columns["title"], columns["sentences"], strict=True)]
    facts = [["Ed", 0], ["Ann", 1], ["Ed", 0]]
    theirs = one(tmp_path, "hotpotqa", context=pairs, supporting_facts=facts)
    assert theirs == one(tmp_path, "hotpotqa")


def test_question_without_an_id_gets_the_same_one_in_any_order(tmp_path):
    rows = [{"question": f"who is {i}", "answer": ["x"]} for i in range(3)]
    forth, _ = load("nq_open", write(tmp_path, rows))
    back, _ = load("nq_open", write(tmp_path, rows[::-1]))
    assert forth == back[::-1]


def test_every_benchmark_names_an_evaluation_split_and_a_licence():
    for benchmark in BENCHMARKS.values():
        assert benchmark.hub and benchmark.evaluation and benchmark.licence


# ---- files


@pytest.mark.parametrize("pack", [bz2.compress, gzip.compress, bytes])
def test_packed_file_is_read_whatever_its_name(tmp_path, pack):
    path = tmp_path / "file-without-suffix"
    path.write_bytes(pack(json.dumps(crag_row()).encode()))
    assert load("crag", str(path))[0][0].id == "c0"


@pytest.mark.parametrize("shape", ["list", "data", "lines"])
def test_json_file_may_hold_a_list_data_or_lines(tmp_path, shape):
    rows = [crag_row(0), crag_row(1)]
    text = {
        "list": json.dumps(rows),
        "data": json.dumps({"data": rows}),
        "lines": "\n".join(map(json.dumps, rows)),
    }[shape]
    (tmp_path / "rows.json").write_text(text)
    assert len(load("crag", str(tmp_path / "rows.json"))[0]) == 2


def test_split_selects_rows_where_one_file_holds_several(tmp_path):
    path = write(tmp_path, [crag_row(0, split=0), crag_row(1, split=1)])
    assert [e.id for e in load("crag", path, split="1")[0]] == ["c1"]


def test_split_of_a_file_that_is_one_split_is_refused(tmp_path):
    path = write(tmp_path, [HUB["nq_open"]])
    with pytest.raises(DataError, match="split='train'.*leave it empty"):
        load("nq_open", path, split="train")


def test_limit_counts_good_rows_and_stops(tmp_path):
    rows = [crag_row(0, answer="nan"), *(crag_row(i) for i in range(1, 5))]
    examples, problems = load("crag", write(tmp_path, rows), limit=2)
    assert ([e.id for e in examples], problems.total()) == (["c1", "c2"], 1)


def test_limit_below_one_is_refused_by_value(tmp_path):
    with pytest.raises(ValueError, match="limit=0"):
        load("crag", write(tmp_path, [crag_row()]), limit=0)


@pytest.mark.parametrize("name", ["nq_open", "hotpotqa"])
def test_a_question_that_a_test_set_holds_twice_stays_and_has_two_ids(tmp_path, name):
    rows = [HUB[name] | {"id": None} for _ in range(3)]
    examples, problems = load(name, write(tmp_path, rows))
    first, *more = [e.id for e in examples]
    assert (more, problems) == ([f"{first}-2", f"{first}-3"], Counter())
    assert len({e.entity for e in examples}) == 1


def test_equal_questions_with_ids_of_their_own_both_stay(tmp_path):
    rows = [crag_row(0), crag_row(1, query=crag_row(0)["query"].upper()), crag_row(0)]
    examples, problems = load("crag", write(tmp_path, rows))
    assert ([e.id for e in examples], problems) == (["c0", "c1"], {"duplicate id": 1})


def test_unknown_benchmark_is_refused_with_the_known_ones():
    with pytest.raises(DataError, match="triviaqa: no such benchmark; known: crag"):
        load("triviaqa")


@pytest.mark.parametrize("content", [b'[{"question": "a', b'{"data": 3}', b"[\xff]"])
def test_broken_json_file_is_refused_by_name(tmp_path, content):
    (tmp_path / "rows.json").write_bytes(content)
    with pytest.raises(DataError, match="rows.json"):
        load("crag", str(tmp_path / "rows.json"))


def test_missing_file_is_refused_by_path(tmp_path):
    with pytest.raises(DataError, match="absent.jsonl: no such file"):
        load("crag", str(tmp_path / "absent.jsonl"))


def test_file_without_a_usable_row_is_refused(tmp_path):
    path = write(tmp_path, [{"text": "something else"}])
    with pytest.raises(DataError, match="no usable row .*must hold crag's rows"):
        load("crag", path)


# ---- the hub


def test_hub_rows_are_streamed_when_there_is_a_limit(monkeypatch):
    import datasets

    asked = []

    def fake(*where, **how):
        asked.append((*where, how["split"], how["streaming"]))
        return [HUB["nq_open"], HUB["nq_open"] | {"question": "who is cy"}]

    monkeypatch.setattr(datasets, "load_dataset", fake)
    hub = ("google-research-datasets/nq_open", "nq_open")
    assert len(load("nq_open", limit=1)[0]) == 1
    assert len(load("nq_open", split="train")[0]) == 2
    assert asked == [(*hub, "validation", True), (*hub, "train", False)]


def test_crag_comes_from_its_authors_file(tmp_path, monkeypatch):
    import datasets

    path = write(tmp_path, [crag_row(0, split=0), crag_row(1, split=1)], "0a1b")
    monkeypatch.setattr(
        datasets.DownloadManager, "download", lambda self, url: path if url else ""
    )
    assert [e.id for e in load("crag")[0]] == ["c1"]
    assert [e.id for e in load("crag", split="0")[0]] == ["c0"]


def test_every_question_of_both_splits_has_its_pages(tmp_path, monkeypatch):
    import datasets

    path = write(tmp_path, [crag_row(0, split=0), crag_row(1, split=1)], "0a1b")
    monkeypatch.setattr(datasets.DownloadManager, "download", lambda self, url: path)
    asked, _ = benchmarks.load_all("crag")
    assert load_pages("crag").keys() == {e.id for e in asked} == {"c0", "c1"}


def test_unreachable_hub_is_a_data_error_with_the_fix(monkeypatch):
    import datasets

    def offline(*where, **how):
        raise ConnectionError("Couldn't reach the hub")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(DataError, match="akariasai/PopQA.*give the path of a local"):
        load("popqa")


# ---- bad rows

BAD = {
    "not UTF-8": b'{"query": "\xff"}',
    "not JSON": b'{"interaction_id": "c1", "que',
    "not a JSON object": b"[1, 2]",
    "duplicate id": crag_row(0, query="who was bo then?"),
    "empty question": crag_row(1, query="  "),
    "no reference answer": crag_row(1, answer="nan"),
    "answer: missing or not text": crag_row(1, answer=3),
    "query: missing or not text": crag_row(1, query=None),
    "alt_ans: not a list of texts": crag_row(1, alt_ans="bo, bob"),
    "question longer than": crag_row(1, query="x" * 5000),
    "half a character": crag_row(1, query="\ud800"),
}


def bad_file(tmp_path, problem):
    bad = BAD[problem]
    line = bad if isinstance(bad, bytes) else json.dumps(bad).encode()
    path = tmp_path / "rows.jsonl"
    path.write_bytes(json.dumps(crag_row()).encode() + b"\n" + line)
    return str(path)


@pytest.mark.parametrize("problem", BAD)
def test_bad_row_is_refused_by_file_row_and_reason(tmp_path, problem):
    with pytest.raises(DataError, match="rows.jsonl, row 2.*mend the row") as error:
        load("crag", bad_file(tmp_path, problem), bad_rows="refuse")
    assert problem in str(error.value)


@pytest.mark.parametrize("problem", BAD)
def test_bad_row_is_dropped_and_counted_if_asked(tmp_path, problem):
    examples, problems = load("crag", bad_file(tmp_path, problem))
    assert (len(examples), problems.total()) == (1, 1)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("nq_open", "answer", "Bo"),
        ("hotpotqa", "context", {"title": ["Ed"], "sentences": []}),
        ("hotpotqa", "context", [["Ed"]]),
        ("hotpotqa", "supporting_facts", 3),
        ("musique", "paragraphs", ["text"]),
        ("musique", "answer_aliases", [1]),
        ("popqa", "possible_answers", "King"),
        ("popqa", "id", None),
        ("squad_v2", "answers", None),
        ("squad_v2", "is_impossible", "no"),
        ("squad_v2", "answers", {"text": "Watt"}),
    ],
)
def test_wrongly_typed_field_is_named(tmp_path, name, field, value):
    path = write(tmp_path, [HUB[name] | {field: value}])
    with pytest.raises(DataError, match=f"row 1: ({field}|text): "):
        load(name, path, bad_rows="refuse")


def test_bad_article_of_squad_is_dropped_and_the_next_is_read(tmp_path):
    good = HUB["squad_v2"]
    paragraph = {"context": good["context"], "qas": [good]}
    articles = [
        {"title": "A", "paragraphs": [{"qas": []}]},
        {"title": "Steam_engine", "paragraphs": [paragraph]},
    ]
    path = tmp_path / "squad.json"
    path.write_text(json.dumps({"version": "v2.0", "data": articles}))
    examples, problems = load("squad_v2", str(path))
    assert ([e.id for e in examples], problems.total()) == (["s0"], 1)


@pytest.mark.parametrize("pack", [bz2.compress, gzip.compress])
def test_file_cut_short_keeps_its_whole_rows_and_counts_the_loss(tmp_path, pack):
    # rows that don't compress, so that the first are in the first half
    import random

    noise = random.Random(0)
    rows = [crag_row(i, domain=noise.randbytes(50_000).hex()) for i in range(30)]
    data = pack("\n".join(map(json.dumps, rows)).encode())
    (tmp_path / "cut.jsonl.x").write_bytes(data[: len(data) * 3 // 4])
    examples, problems = load("crag", str(tmp_path / "cut.jsonl.x"))
    assert 1 <= len(examples) < 30
    assert problems["file cut short or damaged"] == 1


# ---- pages


def pages_of(tmp_path, *pages):
    base = crag_row()["search_results"][0]
    path = write(tmp_path, [crag_row(search_results=[base | page for page in pages])])
    return load_pages("crag", path)["c0"]


def test_page_is_its_text_without_markup_and_style(tmp_path):
    assert [d.text for d in pages_of(tmp_path, {})] == ["Bo is\nhere"]


@pytest.mark.parametrize("empty", ["", "<html><script>x()</script></html>", None])
def test_page_without_text_falls_back_to_its_snippet(tmp_path, empty):
    assert [d.text for d in pages_of(tmp_path, {"page_result": empty})] == ["bo & co"]


def test_page_without_text_and_snippet_is_no_document(tmp_path):
    assert pages_of(tmp_path, {"page_result": "", "page_snippet": ""}) == []


def test_pages_with_the_same_text_are_one_document(tmp_path):
    other = {"page_name": "Cy", "page_url": "http://c.org"}
    assert [d.title for d in pages_of(tmp_path, {}, other)] == ["Bo"]


def test_row_with_bad_pages_is_dropped_from_the_pages_only(tmp_path):
    rows = [crag_row(0, search_results=["x"]), crag_row(1)]
    path = write(tmp_path, rows)
    assert list(load_pages("crag", path)) == ["c1"]
    assert len(load("crag", path)[0]) == 2


def test_source_without_documents_says_so(tmp_path):
    with pytest.raises(DataError, match="nq_open has no documents"):
        load_pages("nq_open", write(tmp_path, [HUB["nq_open"]]))


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<p>a</p><p>b</p>", "a\nb"),
        ("H<sub>2</sub>O", "H2O"),
        ("<li>a<li>b", "a\nb"),
        ("<script>if (a < b) {}</script>a", "a"),
        ("<style>p {}", ""),
        ("<!-- no -->AT&amp;T", "AT&T"),
        ("1 < 2 and\u00a0 3", "1 < 2 and 3"),
        ("", ""),
    ],
)
def test_markup_becomes_lines_of_text(markup, text):
    assert plain_text(markup) == text


# ---- Wikipedia of 2018


def wiki_file(tmp_path, *rows):
    path = tmp_path / "wiki.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    return str(path)


def test_wikipedia_passage_keeps_its_title_in_the_text(tmp_path):
    row = {"id": "0", "contents": '"Aaron"\nAaron is a prophet.\nHe speaks.'}
    (document,) = wikipedia_2018(wiki_file(tmp_path, row))
    assert (document.id, document.title) == ("0", "Aaron")
    assert document.text == "Aaron\nAaron is a prophet.\nHe speaks."


@pytest.mark.parametrize(
    "row", [{"id": "1"}, {"id": "1", "contents": "no title"}, [1], {"contents": "a\nb"}]
)
def test_wikipedia_row_of_another_kind_is_refused_by_number(tmp_path, row):
    good = {"id": "0", "contents": '"A"\nb'}
    with pytest.raises(DataError, match="wiki.jsonl.gz, row 2"):
        list(wikipedia_2018(wiki_file(tmp_path, good, row)))


def test_missing_wikipedia_file_is_refused_by_path():
    with pytest.raises(DataError, match="absent.jsonl"):
        list(wikipedia_2018("absent.jsonl"))


def test_unreachable_wikipedia_is_a_data_error_with_the_fix(monkeypatch):
    import huggingface_hub

    def offline(*where, **how):
        raise FileNotFoundError("not in the cache; check the connection")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    with pytest.raises(DataError, match="wiki-18-corpus.*or give a file's path"):
        next(wikipedia_2018())


def test_importing_the_loaders_loads_no_library_of_the_hub():
    import subprocess
    import sys

    code = f"import sys, {benchmarks.__name__}; print('datasets' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False"
