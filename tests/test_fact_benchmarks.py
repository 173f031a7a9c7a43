"""Evaluation sets of long-form factuality: their rows, bad rows, the hub's places."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from factkit import params
from factkit.curate import synthetic_prompts as synthetic
from factkit.datasets import fact_benchmarks as benchmarks
from factkit.datasets.examples import DataError
from factkit.datasets.long_form_prompts import LONG_FORM

DATA = params.ROOT.parent / "shared" / "data"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the sample files are not beside the project"
)
FROM_HUB = {  # the column that holds the prompt
    "fava": "prompt",
    "alpaca_fact": "instruction",
    "factory_hard": "question",
    "factbench_hard": "user_prompts",
}
EXTRA = {
    "fava": {"output": "Bo.", "annotated": "<entity>Bo</entity>.", "model": "m"},
    "alpaca_fact": {"input": "", "output": "Bo.", "dataset": "koala"},
    "factory_hard": {"url": "https://en.wikipedia.org/wiki/Bo"},
    "factbench_hard": {"topic_description": "music", "hallucination_score": 0.5},
}


def row(name, prompt, **more):
    return {FROM_HUB[name]: prompt} | EXTRA[name] | more


def json_lines(tmp_path, *rows):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


# ---- rows


@pytest.mark.parametrize("name", FROM_HUB)
def test_a_row_becomes_a_prompt_with_an_id_of_its_own(tmp_path, name):
    path = json_lines(tmp_path, row(name, " Who was Bo?\n"), row(name, "Who was Al?"))
    examples, problems = benchmarks.load(name, path)
    assert [e.question for e in examples] == ["Who was Bo?", "Who was Al?"]
    assert problems == Counter()
    assert {(e.label, len(e.answers)) for e in examples} == {(LONG_FORM, 0)}
    assert all(e.id == e.entity for e in examples)
    assert len({e.id for e in examples}) == 2
    alone = json_lines(tmp_path, row(name, "Who was Al?"))
    assert benchmarks.load(name, alone)[0] == examples[1:]


@pytest.mark.parametrize("name", FROM_HUB)
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"prompt": " "}, "empty question"),
        ({"prompt": None}, "{column}: missing or not text"),
        ({"prompt": 7}, "{column}: missing or not text"),
        ({"prompt": "a" * 4001}, "question longer than 4000 characters"),
        ({"prompt": "Bo \ud83d"}, "{column}: half a character (a lone surrogate)"),
    ],
)
def test_a_bad_row_is_dropped_for_a_named_reason(tmp_path, name, change, problem):
    path = json_lines(tmp_path, row(name, "Who was Bo?"), row(name, **change))
    examples, problems = benchmarks.load(name, path)
    assert [e.question for e in examples] == ["Who was Bo?"]
    assert problems == {problem.format(column=FROM_HUB[name]): 1}


@pytest.mark.parametrize("name", FROM_HUB)
def test_a_file_with_other_columns_is_refused_with_the_missing_one(tmp_path, name):
    path = json_lines(tmp_path, {"text": "Who was Bo?"}, ["Who was Bo?"])
    with pytest.raises(DataError, match=f"no usable row .*{FROM_HUB[name]}: missing"):
        benchmarks.load(name, path)


def test_a_prompt_that_several_models_answered_comes_once(tmp_path):
    rows = [row("fava", "Who was Bo?", model=m) for m in "abc"]
    examples, problems = benchmarks.load("fava", json_lines(tmp_path, *rows))
    assert (len(examples), problems) == (1, {"duplicate question": 2})


@pytest.mark.parametrize("name", sorted(set(FROM_HUB) - {"fava"}))
def test_a_prompt_that_a_set_holds_twice_stays(tmp_path, name):
    path = json_lines(tmp_path, *[row(name, "Who was Bo?")] * 2)
    examples, problems = benchmarks.load(name, path)
    assert len({e.id for e in examples}) == len(examples) == 2
    assert not problems


def test_an_instructions_input_follows_it(tmp_path):
    rows = [
        row("alpaca_fact", "Name its capital.", input="Norway\n"),
        row("alpaca_fact", "Name its capital.", input="Peru"),
        row("alpaca_fact", "Name a capital.", input=None),
    ]
    examples, _ = benchmarks.load("alpaca_fact", json_lines(tmp_path, *rows))
    assert [e.question for e in examples] == [
        "Name its capital.\n\nNorway",
        "Name its capital.\n\nPeru",
        "Name a capital.",
    ]
    assert {e.relation for e in examples} == {"koala"}


def test_a_list_in_json_is_read_as_alpacafarms_file_is_written(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([row("alpaca_fact", "Who was Bo?")], indent=2))
    examples, _ = benchmarks.load("alpaca_fact", str(path))
    assert [e.question for e in examples] == ["Who was Bo?"]


def test_factbenchs_csv_is_read(tmp_path):
    path = tmp_path / "tier_1.csv"
    text = 'topic_description,user_prompts\nmusic,"Who was ""Bo"",\nand when?"\n,Al?\n'
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    examples, problems = benchmarks.load("factbench_hard", str(path))
    assert [(e.question, e.relation) for e in examples] == [
        ('Who was "Bo",\r\nand when?', "music"),
        ("Al?", ""),
    ]
    assert problems == Counter()


def test_a_short_line_of_a_csv_is_a_bad_row(tmp_path):
    path = tmp_path / "tier_1.csv"
    path.write_text("topic_description,user_prompts\nmusic\nmusic,Who was Bo?\n")
    examples, problems = benchmarks.load("factbench_hard", str(path))
    assert len(examples) == 1
    assert problems == {"user_prompts: missing or not text": 1}


def test_a_csv_that_is_not_utf8_is_refused_by_name(tmp_path):
    path = tmp_path / "tier_1.csv"
    path.write_bytes(b"topic_description,user_prompts\nmusic,Who was B\xff?\n")
    with pytest.raises(DataError, match="tier_1.csv: not CSV in UTF-8"):
        benchmarks.load("factbench_hard", str(path))


@pytest.fixture
def longfact_folder(tmp_path):
    for kind in ("concepts", "objects"):
        prompts = [{"prompt": f"What of {kind} {i}?", "canary": "x"} for i in range(3)]
        lines = "".join(f"{json.dumps(p)}\n" for p in prompts)
        (tmp_path / f"longfact-{kind}_music.jsonl").write_text(lines)
    return tmp_path


def test_longfacts_objects_are_told_from_its_concepts(longfact_folder):
    examples, _ = benchmarks.load("longfact_objects", str(longfact_folder))
    assert [e.question for e in examples] == [f"What of objects {i}?" for i in range(3)]
    (longfact_folder / "longfact-objects_music.jsonl").unlink()
    with pytest.raises(DataError, match="no file longfact-objects"):
        benchmarks.load("longfact_objects", str(longfact_folder))


def test_names_become_biography_prompts(tmp_path):
    (tmp_path / "names.txt").write_text("Bo\nAl\nBo\n")
    examples, problems = benchmarks.load("biography", str(tmp_path / "names.txt"))
    assert [e.question for e in examples] == [
        "Tell me a bio of Bo.",
        "Tell me a bio of Al.",
    ]
    assert problems == {"duplicate id": 1}


def test_a_limit_holds_for_every_set(tmp_path, longfact_folder):
    paths = {"longfact_objects": str(longfact_folder)}
    (tmp_path / "names.txt").write_text("Bo\nAl\nCy\n")
    paths["biography"] = str(tmp_path / "names.txt")
    for name in FROM_HUB:
        rows = [row(name, f"Who was {x}?") for x in ("Bo", "Al", "Cy")]
        (tmp_path / name).mkdir()
        paths[name] = json_lines(tmp_path / name, *rows)
    assert sorted(paths) == sorted(benchmarks.NAMES)
    for name, path in paths.items():
        assert len(benchmarks.load(name, path)[0]) == 3
        assert len(benchmarks.load(name, path, limit=2)[0]) == 2
        with pytest.raises(ValueError, match="limit=0"):
            benchmarks.load(name, path, limit=0)


def test_what_is_not_there_is_refused_by_name(tmp_path):
    for name in benchmarks.NAMES:
        with pytest.raises(DataError, match="absent: no such file"):
            benchmarks.load(name, str(tmp_path / "absent"))
    with pytest.raises(DataError, match="factbench: no such .*factbench_hard"):
        benchmarks.load("factbench")


def test_the_table_names_every_set():
    lines = benchmarks.__doc__.splitlines()
    rows = [line.split("|")[1].strip() for line in lines if line.startswith("| ")]
    assert tuple(rows[1:]) == benchmarks.NAMES


# ---- the hub


@pytest.mark.parametrize(
    ("name", "limit", "asked"),
    [
        ("factory_hard", None, ("facebook/FACTORY", None, "hard", False)),
        ("factbench_hard", 1, ("launch/FactBench", "version 1.0", "tier_1", True)),
    ],
)
def test_a_split_comes_from_the_hub(monkeypatch, name, limit, asked):
    import datasets

    def load_dataset(hub, config, split, streaming):
        calls.append((hub, config, split, streaming))
        return [row(name, "Who was Bo?"), row(name, "Who was Al?")]

    calls = []
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    examples, _ = benchmarks.load(name, limit=limit)
    assert calls == [asked]
    assert len(examples) == (limit or 2)


@pytest.mark.parametrize(
    ("name", "hub", "file"),
    [
        ("fava", "fava-uw/fava-data", "annotations.json"),
        ("alpaca_fact", "tatsu-lab/alpaca_farm", "alpaca_farm_evaluation.json"),
    ],
)
def test_a_file_comes_from_the_hub(monkeypatch, tmp_path, name, hub, file):
    import huggingface_hub

    def download(repository, filename, repo_type):
        calls.append((repository, filename, repo_type))
        path = Path(tmp_path / filename)
        path.write_text(json.dumps([row(name, "Who was Bo?")]))
        return str(path)

    calls = []
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    examples, _ = benchmarks.load(name)
    assert calls == [(hub, file, "dataset")]
    assert [e.question for e in examples] == ["Who was Bo?"]


def test_an_unreachable_hub_is_a_data_error_with_the_fix(monkeypatch):
    import datasets
    import huggingface_hub

    def offline(*where, **how):
        raise FileNotFoundError("not in the cache")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    monkeypatch.setattr(datasets, "load_dataset", offline)
    for name in FROM_HUB:
        with pytest.raises(DataError, match="HF_HUB_OFFLINE=0.*path of a local file"):
            benchmarks.load(name)


@pytest.mark.parametrize("name", ["longfact_objects", "biography"])
def test_what_is_not_on_the_hub_needs_a_path(name):
    with pytest.raises(DataError, match=f"{name} is not on the hub; give the path"):
        benchmarks.load(name)


def test_importing_the_loaders_loads_no_library_of_the_hub():
    code = (
        f"import sys, {benchmarks.__name__}, {synthetic.__name__}\n"
        "print({'datasets', 'huggingface_hub', 'datasketch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "set()"


# ---- real rows


@needs_data
def test_longfacts_objects_are_half_of_it_with_its_duplicates():
    whole, problems = benchmarks.load("longfact_objects", str(DATA / "longfact"))
    half, _ = benchmarks.load("longfact_objects", str(DATA / "longfact/objects"))
    assert whole == half
    assert (len(whole), problems) == (1140, {})
    assert len({e.relation for e in whole}) == 38


@needs_data
def test_biography_has_the_papers_183_prompts():
    path = str(DATA / "factscore/prompt_entities.txt")
    assert len(benchmarks.load("biography", path)[0]) == 183


@needs_data
def test_a_synthetic_prompt_near_a_real_evaluation_prompt_is_found_in_its_set(tmp_path):
    objects, _ = benchmarks.load("longfact_objects", str(DATA / "longfact"))
    fava, _ = benchmarks.load("fava", json_lines(tmp_path, row("fava", "Who was Bo?")))
    asked = objects[7].model_copy(update={"id": "new", "entity": "new"})
    found = synthetic.overlaps([asked], {"fava": fava, "longfact_objects": objects})
    assert found == {"new": ("longfact_objects", objects[7])}
