"""Long-form prompts: real formats, the hub's rows, bad rows; the factual ones."""

import json
from collections import Counter
from pathlib import Path

import datasets
import huggingface_hub
import pytest
from fake_endpoint import answer, prompt_of, serve

from factkit import params, prompts
from factkit.curate.requests import keep_factual
from factkit.datasets.examples import DataError, Example
from factkit.datasets.long_form_prompts import LONG_FORM, SOURCES, load
from factkit.llm import LLM, Endpoint, Limits

DATA = params.ROOT.parent / "shared" / "data"
IN_COLUMNS = {  # the column that holds the prompt
    "fava": "prompt",
    "alpaca_fact": "instruction",
    "factory_hard": "question",
    "factbench_hard": "user_prompts",
}


def json_lines(tmp_path, *rows):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


def chat(i=0, prompt="Who was the composer Bo?", reply="Bo composed. " * 30, **more):
    turns = [("user", prompt), ("assistant", reply), ("user", "Thanks!")]
    return {
        "conversation_hash": f"c{i}",
        "language": "English",
        "toxic": False,
        "redacted": False,
        "conversation": [{"role": r, "content": c} for r, c in turns],
    } | more


def test_a_row_becomes_a_prompt_with_an_id_of_its_own(tmp_path):
    """A prompt may stand twice, but of FAVA's several models answer one."""
    for name, column in IN_COLUMNS.items():
        rows = [{column: text} for text in (" Who was Bo?\n", "Who was Al?")]
        examples, problems = load(name, json_lines(tmp_path, *rows, rows[1]))
        once = {"duplicate question": 1} if name == "fava" else {}
        assert problems == once
        asked = ["Who was Bo?", *["Who was Al?"] * (2 - len(once))]
        assert [e.question for e in examples] == asked
        assert {(e.label, len(e.answers)) for e in examples} == {(LONG_FORM, 0)}
        assert len({e.id for e in examples}) == len(examples)
        assert load(name, json_lines(tmp_path, rows[1]))[0] == examples[1:2]


def test_a_bad_row_is_dropped_for_a_named_reason(tmp_path):
    for name, column in IN_COLUMNS.items():
        for prompt, problem in (
            (" ", "empty question"),
            (None, f"{column}: missing or not text"),
            ("a" * 4001, "question longer than 4000 characters"),
        ):
            path = json_lines(tmp_path, {column: "Who was Bo?"}, {column: prompt})
            examples, problems = load(name, path)
            assert (len(examples), problems) == (1, {problem: 1})


def test_the_files_of_alpacafarm_and_factbench_are_read(tmp_path):
    asked = {"instruction": "Name its capital.", "dataset": "koala"}
    rows = [asked | {"input": "Norway\n"}, asked | {"input": None}]
    (tmp_path / "rows.json").write_text(json.dumps(rows, indent=2))
    examples, _ = load("alpaca_fact", str(tmp_path / "rows.json"))
    questions = [e.question for e in examples]
    assert questions == ["Name its capital.\n\nNorway", "Name its capital."]
    assert {e.relation for e in examples} == {"koala"}
    text = 'topic_description,user_prompts\nmusic,"Who was ""Bo"",\nand when?"\n,Al?\nx'
    path = tmp_path / "tier_1.csv"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    examples, problems = load("factbench_hard", str(path))
    assert [(e.question, e.relation) for e in examples] == [
        ('Who was "Bo",\nand when?', "music"),
        ("Al?", ""),
    ]
    assert problems == {"user_prompts: missing or not text": 1}  # a short line


def test_longfacts_objects_are_told_from_its_concepts(tmp_path):
    for kind in ("concepts", "objects"):
        asked = [{"prompt": f"What of {kind} {i}?", "canary": "x"} for i in range(3)]
        lines = "".join(f"{json.dumps(p)}\n" for p in asked)
        (tmp_path / f"longfact-{kind}_music.jsonl").write_text(lines)
    objects, _ = load("longfact_objects", str(tmp_path))
    assert [e.question for e in objects] == [f"What of objects {i}?" for i in range(3)]
    assert {e.relation for e in objects} == {"music"}
    every, _ = load("longfact", str(tmp_path))
    assert Counter(e.meta["kind"] for e in every) == {"concepts": 3, "objects": 3}
    (tmp_path / "longfact-objects_music.jsonl").unlink()
    with pytest.raises(DataError, match="no file longfact-objects"):
        load("longfact_objects", str(tmp_path))


def test_empty_repeated_and_undecodable_names_are_counted(tmp_path):
    (tmp_path / "names.txt").write_bytes(b"Bo\n \nBo\nB\xff\nAl\n")
    examples, problems = load("biography", str(tmp_path / "names.txt"))
    assert [e.id for e in examples] == ["Bo", "Al"]
    assert examples[0].question == "Tell me a bio of Bo."
    assert problems == {"empty entity": 1, "duplicate id": 1, "not UTF-8": 1}


def test_a_chat_s_first_turn_is_a_prompt_or_dropped_for_a_named_reason(tmp_path):
    """Its reply is the reference."""
    al = "Who was Al, then?"
    for bad, problem in (
        (chat(1, language="French"), "not English"),
        (chat(1, toxic=True), "toxic or redacted"),
        (chat(1, prompt="hi"), "prompt too short"),
        (chat(1, prompt=al, reply="Al " * 5000), "reply too long"),
        (chat(1, conversation=[]), "no first turn with a reply"),
        (chat(1, conversation="hi"), "conversation: not a list of objects"),
        (chat(1), "duplicate question"),
    ):
        (example,), problems = load("wildchat", json_lines(tmp_path, chat(), bad))
        assert problems == {problem: 1}
        assert example.question == "Who was the composer Bo?"
        assert example.answers == [("Bo composed. " * 30).strip()]


def test_what_is_not_there_is_refused_by_name(tmp_path, monkeypatch):
    def offline(*where, **how):
        raise FileNotFoundError("not in the cache")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    monkeypatch.setattr(datasets, "load_dataset", offline)
    for name, source in SOURCES.items():
        with pytest.raises(DataError, match="absent: no such file"):
            load(name, str(tmp_path / "absent"))
        fix = "HF_HUB_OFFLINE=0.*path of a local file"
        fix = fix if source.hub else f"{name} is not on the hub; give the path"
        with pytest.raises(DataError, match=fix):
            load(name)
    with pytest.raises(DataError, match="climate: no such data set; known: longfact"):
        load("climate")


def test_splits_and_files_come_from_the_hub(monkeypatch, tmp_path):
    calls = []

    def load_dataset(hub, config, split, streaming):
        calls.append((hub, config, split, streaming))
        return [{"question": q, "user_prompts": q} for q in ("Who was Bo?", "And Al?")]

    def download(repository, filename, repo_type):
        calls.append((repository, filename, repo_type))
        path = Path(tmp_path / filename)
        path.write_text(json.dumps([{"prompt": "Who?", "instruction": "Who?"}]))
        return str(path)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert len(load("factory_hard")[0]) == 2
    assert len(load("factbench_hard", limit=1)[0]) == 1
    assert load("fava")[0][0].question == load("alpaca_fact")[0][0].question == "Who?"
    assert calls == [
        ("facebook/FACTORY", None, "hard", False),
        ("launch/FactBench", "version 1.0", "tier_1", True),
        ("fava-uw/fava-data", "annotations.json", "dataset"),
        ("tatsu-lab/alpaca_farm", "alpaca_farm_evaluation.json", "dataset"),
    ]


@pytest.mark.skipif(not DATA.is_dir(), reason="no sample files beside the project")
def test_the_real_files_have_the_papers_prompts():
    people, problems = load("biography", str(DATA / "factscore/prompt_entities.txt"))
    assert (len(people), problems) == (183, Counter())
    assert people[0].entity == people[0].id == "Kang Ji-hwan"
    every, problems = load("longfact", str(DATA / "longfact"))
    assert (len({e.id for e in every}), problems) == (2280, {})
    assert not any("canary" in json.dumps(e.model_dump()) for e in every)
    objects, _ = load("longfact_objects", str(DATA / "longfact"))
    assert (len(objects), len({e.relation for e in objects})) == (1140, 38)


def test_the_filter_keeps_what_the_llm_calls_factual_and_counts_the_rest():
    replies = {
        "About a": '{"reason": "history", "label": "yes"}',
        "About b": '{"reason": "a poem", "label": "no"}',
        "About c": "I can't say.",
        "About d": '{"reason": "both", "label": "maybe"}',
    }

    def behave(body, attempt):
        row = prompt_of(body).rpartition("\nPrompt: ")[2]
        return answer(next(text for key, text in replies.items() if key in row))

    examples = [
        Example(id=n, question=f"About {n}", answers=[f"reply {n}"], entity=n)
        for n in "abcd"
    ]
    with serve(behave) as server:
        llm = LLM(Endpoint(server.url, "m", "k"), limits=Limits(attempts=1))
        kept, counts = keep_factual(llm, examples)
    assert [e.id for e in kept] == ["a"]
    assert counts == {"kept": 1, "not factual": 1, "failed": 2}
    assert sum('"reply a"' in prompt for prompt in server.prompts()) == 1
    lines = prompts.template("filter_factual").splitlines()  # its own examples
    labels = [json.loads(line)["label"] for line in lines if line.startswith("{")]
    assert set(labels) == {"yes", "no"}
