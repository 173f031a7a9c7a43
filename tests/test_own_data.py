"""A user's own rows and documents: what is read, dropped and refused; the splits."""

import json
import re

import pandas as pd
import pytest
from small_tokenizers import of_words
from tokenizers import pre_tokenizers

from factkit import UserError
from factkit.data import own
from factkit.data.bm25 import CorpusIndex
from factkit.data.examples import DataError, refuse_overlap
from factkit.data.own import Fields
from factkit.data.search import in_process
from factkit.data.splits import split_prompts
from factkit.facts.own.source import open_source
from factkit.gpu import services
from factkit.run import params, runs, sweeps
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
        (1815.0, ["1815"]),
        (1.5, ["1.5"]),
        (float("nan"), None),
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
        "a longer than 4000 characters": 1,
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
    numbers = [row | {"town": "ABC".find(row["town"])} for row in rows]
    numbered = load(write_lines(tmp_path / "b.jsonl", numbers))[0]
    assert {e.entity for e in numbered} == {"-1", "0", "1", "2"}
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


def word_tokenizer():
    """A token a word."""
    splitter = pre_tokenizers.Whitespace()
    return of_words("?", splitter=splitter, unk_token="?", eos_token="?")


def test_a_question_s_reference_is_the_own_document_that_answers_it(towns):
    from factkit.papers.truthrl import data

    examples, _ = data.open_questions(towns).load()
    read = data.with_references({"train": examples}, towns, word_tokenizer())["train"]
    titles = [e.meta["references"].partition(":")[0] for e in read]
    assert titles == [e.entity for e in examples]
    assert all(e.meta["answer_in_references"] for e in read)


def test_check_shows_what_was_read_and_two_prompts_as_the_policy_reads_them(
    towns, tmp_path
):
    from factkit.report import own_data

    folder = tmp_path / "policy"
    word_tokenizer().save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "llama"}', "utf-8")
    (folder / "model.safetensors").write_bytes(b"")
    p = towns.model_copy(update={"policy": str(folder)})
    rows, groups, splits, documents, answers, *prompts = own_data.describe(p)
    assert rows.endswith("40 read, 40 kept") and groups.endswith("20 by town")
    assert "train_questions=16 + dev_questions=8" in splits
    assert "20 kept" in documents and len(prompts) == 2
    assert answers == f"ok  answers of more than {p.max_completion_length} tokens: 0"
    for prompt in prompts:
        town = re.search(r"of (Town\d+)\?\nAnswer:", prompt)[1]
        assert f"References:\n{town}: The mayor of {town} is" in prompt
    rows = [{"question": f"Who is {i}?", "answer": "a b c"} for i in range(40)]
    write_lines(ROOT / p.questions_path, rows)
    short = {"max_completion_length": 2, "group_field": ""}
    assert "NO  answers of more than 2 tokens: 40; raise max_completion" in "\n".join(
        own_data.describe(p.model_copy(update=short))
    )


def test_own_sizes_are_held_against_rows_and_groups_before_anything_loads(towns):
    assert all(fine for *_, fine, _ in open_source(towns).checks(towns))
    services.preflight(towns)
    more = towns.model_copy(update={"test_questions": 20})
    with pytest.raises(UserError, match="40 rows in 20 groups.*train_questions: 13"):
        services.preflight(more)
    one_group = towns.model_copy(update={"group_field": "answer"})
    assert all(fine for *_, fine, _ in open_source(one_group).checks(one_group))


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


def test_a_sweep_makes_the_data_anew_once_a_file_has_changed(towns):
    sweep = sweeps.Sweep("truthrl", towns, ["prompting"], [0])
    assert not sweep.has_changed_data()  # there are none yet
    with runs.start("10_truthrl_data", towns) as run:
        run.finish({})
    assert not sweep.has_changed_data()
    path = ROOT / towns.documents_path / "0.md"
    path.write_text("# Town0\n\nThe mayor is new.", "utf-8")
    assert sweep.has_changed_data()


# ---- requests and claims


def own_values(tmp_path, towns, paper):
    """The values of a long-form paper or of Veri-R1 for 40 own rows."""
    key = "claims" if paper == "veri" else "requests"
    values = {key: "own", f"{key}_path": str(tmp_path / f"{key}.jsonl")}
    values |= {f"{name}_{key}": 8 for name in ("train", "dev", "test")}
    values |= {"policy": "smollm2-135m-instruct", "group_field": "town"}
    values |= {"documents_path": towns.documents_path, "output_dir": str(tmp_path)}
    values |= {"verifier": "judge", "judge_model": "m", "judge_url": "http://localhost"}
    values |= {"rl_batch_size": 16, "num_generations": 4, "minibatches": 1}
    if paper == "rar":
        values["utility_benchmarks"] = "win_rate"
    if paper == "reason":
        values |= {"sft_requests": 8, "relevance_model": "", "relevance_url": ""}
    return values


@pytest.mark.assets
@pytest.mark.parametrize("paper", ["rar", "reason", "rlfh"])
def test_own_requests_are_split_by_group_with_own_documents_as_evidence(
    paper, towns, tmp_path
):
    from factkit.answers.requests import gather
    from factkit.papers.rar.requests import request_sets
    from factkit.papers.reason.requests import reason_sets
    from factkit.papers.rlfh.requests import rlfh_sets

    rows = [
        {"question": f"Tell me {what} of Town{i}.", "town": f"Town{i}"}
        for i in range(20)
        for what in ("the river", "the mayor")
    ]
    write_lines(tmp_path / "requests.jsonl", [*rows, rows[0]])
    values = own_values(tmp_path, towns, paper) | {"answer_field": ""}
    p = params.load(paper, "laptop", values)
    assert all(fine for *_, fine, _ in open_source(p).checks(p))
    make = {"rar": request_sets, "reason": reason_sets, "rlfh": rlfh_sets}[paper]
    sets, *_, dropped = make(p)
    assert dropped == {"duplicate question": 1}
    assert {name: len(part) for name, part in sets.items()} == dict.fromkeys(
        p.splits, 8
    )
    refuse_overlap(sets)
    assert {e.meta["kind"] for part in sets.values() for e in part} == {"open"}
    examples = [e for part in sets.values() for e in part]
    evidence, _ = gather(p, examples)
    assert all(evidence[e.id][0].title == e.entity for e in examples)


def claim_rows():
    """For each town a claim of each label; then what is dropped."""
    rows = []
    for i in range(20):
        about = {"town": f"Town{i}", "evidence": [f"Town{i}"]}
        rows += [
            {"question": f"Town{i} has Mayor{i}.", "answer": "supports", **about},
            {"question": f"Town{i} has no river.", "answer": "REFUTED", **about},
            {"question": f"Town{i} is big.", "answer": "not enough info"}
            | {"town": f"Town{i}", "evidence": None},
        ]
    return rows


def test_own_claims_have_documents_as_gold_evidence_and_entries(towns, tmp_path):
    from factkit.papers.veri.data import claim_sets

    bad = [
        {"question": "A.", "answer": "maybe", "evidence": "Town1"},
        {"question": "B.", "answer": "SUPPORT", "evidence": "Town99"},
        {"question": "C.", "answer": "SUPPORT", "evidence": ""},
    ]
    write_lines(tmp_path / "claims.jsonl", [*claim_rows(), *bad])
    values = own_values(tmp_path, towns, "veri") | {"train_claims": 12}
    values |= {"dev_claims": 6, "test_claims": 9, "sft_trajectories": 8}
    p = params.load("veri", "laptop", values)
    open_source(p).checks(p)
    sets, entries, dropped = claim_sets(p)
    refuse_overlap(sets)
    assert {k: len(v) for k, v in sets.items()} == {"train": 12, "dev": 6, "test": 9}
    labels = [e.label for e in sets["train"]]
    assert {labels.count(label) for label in set(labels)} == {4}
    titles = {entry.id for entry in entries}
    for e in (e for part in sets.values() for e in part):
        assert e.evidence == ([] if e.label == "NOT ENOUGH INFO" else [e.entity])
        assert {*e.evidence} <= titles and e.meta["set"] == "own"
    assert dropped == {
        "answer: 'maybe' is none of SUPPORT, REFUTE, NOT ENOUGH INFO": 1,
        "evidence: no document 'Town99'": 1,
        "no evidence": 1,
    }


def test_two_documents_of_one_title_are_no_evidence_of_claims(towns, tmp_path):
    (ROOT / towns.documents_path / "more.md").write_text("# Town1\n\nMore.", "utf-8")
    write_lines(tmp_path / "claims.jsonl", claim_rows())
    p = params.load("veri", "laptop", own_values(tmp_path, towns, "veri"))
    with pytest.raises(DataError, match="two documents are titled 'Town1'"):
        open_source(p).checks(p)


def test_own_requests_and_claims_need_documents_and_a_judge(towns, tmp_path):
    for name, rows in (("requests", ROWS), ("claims", claim_rows())):
        write_lines(tmp_path / f"{name}.jsonl", rows)
    for paper, values, message in (
        ("rar", {"documents_path": ""}, "needs documents_path or search_url"),
        ("rar", {"search_url": "http://localhost"}, "leave the other empty"),
        ("rar", {"verifier": "leads"}, "set verifier=judge"),
        ("rar", {"utility_benchmarks": "best_guess_accuracy"}, "no short questions"),
        ("reason", {"eval_sets": "fava"}, "eval_sets must be empty"),
        ("rlfh", {"wikipedia_path": "wiki.db"}, "wikipedia_path must be empty"),
        ("veri", {"documents_path": ""}, "claims=own needs documents_path"),
        ("veri", {"verifier": "leads"}, "and verifier=judge"),
        ("veri", {"claims_path": str(tmp_path)}, "must be a file"),
        ("veri", {"claims": "leads"}, "must be a folder|read only with claims=own"),
    ):
        own = own_values(tmp_path, towns, paper) | values
        with pytest.raises(params.ParamError, match=message):
            params.load(paper, "laptop", own)


# ---- the example that ships

EXAMPLE = ROOT / "notebooks" / "own_example"
REQUESTS = Fields("request", "", group="place")


def test_the_example_s_claims_are_searched_for_in_its_documents():
    from factkit.papers.veri import data

    values = {"claims": "own", "claims_path": str(EXAMPLE / "claims.csv")}
    values |= {"documents_path": str(EXAMPLE / "documents"), "question_field": "claim"}
    values |= {"answer_field": "label", "verifier": "judge", "judge_model": "m"}
    values |= {"train_claims": 48, "dev_claims": 12, "test_claims": 18}
    p = params.load("veri", "laptop", values | {"sft_trajectories": 8})
    sets, entries, dropped = data.claim_sets(p)
    assert len(entries) == 15 and not dropped
    refuse_overlap(sets)
    search = in_process(CorpusIndex(entries))
    given = data.offline_evidence(sets["test"], entries, search, 2)
    texts = {e.id: {chunk.id for chunk in given[e.id]} for e in sets["test"]}
    assert all({*e.evidence} <= texts[e.id] for e in sets["test"])
    assert {len(ids) for ids in texts.values()} <= {2, 3}


def test_the_example_is_whole_and_states_most_answers_but_not_all():
    p = params.load("truthrl", "laptop", variant="own")
    source = open_source(p)
    examples, dropped = source.loaded
    documents, lost = source.load_documents()
    assert (len(examples), len(documents), dropped + lost) == (210, 15, {})
    assert all(fine for *_, fine, _ in open_source(p).checks(p))
    texts = {document.title: document.text for document in documents}
    stated = [e.answers[0] in texts[e.entity] for e in examples]
    assert sum(stated) == 11 * 15
    requests = own.load_rows(EXAMPLE / "requests.jsonl", REQUESTS, own.request)
    assert len(requests[0]) == 45 and not requests[1]


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
