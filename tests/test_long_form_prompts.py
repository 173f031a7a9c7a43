"""Long-form prompts: real formats, the hub's rows, bad rows; the factual ones."""

import json
from collections import Counter
from pathlib import Path

import datasets
import huggingface_hub
import pytest
from fake_endpoint import answer, prompt_of, serve

from factkit import params, prompts
from factkit.backends import Endpoint
from factkit.curate import factual
from factkit.datasets.examples import DataError, Example
from factkit.datasets.long_form_prompts import LONG_FORM, SOURCES, load
from factkit.llm import LLM, Limits

DATA = params.ROOT.parent / "shared" / "data"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the sample files are not beside the project"
)
IN_COLUMNS = {  # the column that holds the prompt
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
    return {IN_COLUMNS[name]: prompt} | EXTRA[name] | more


def json_lines(tmp_path, *rows):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


def chat(
    i=0, prompt="Who was the composer Bo?", reply="Bo was a composer. " * 20, **more
):
    turns = [("user", prompt), ("assistant", reply), ("user", "Thanks!")]
    return {
        "conversation_hash": f"c{i}",
        "model": "m",
        "language": "English",
        "toxic": False,
        "redacted": False,
        "conversation": [{"role": r, "content": c} for r, c in turns],
    } | more


# ---- rows of named columns


def test_a_row_becomes_a_prompt_with_an_id_of_its_own(tmp_path):
    for name in IN_COLUMNS:
        rows = row(name, " Who was Bo?\n"), row(name, "Who was Al?")
        examples, problems = load(name, json_lines(tmp_path, *rows))
        assert [e.question for e in examples] == ["Who was Bo?", "Who was Al?"]
        assert problems == Counter()
        assert {(e.label, len(e.answers)) for e in examples} == {(LONG_FORM, 0)}
        assert all(e.id == e.entity for e in examples)
        assert len({e.id for e in examples}) == 2
        alone = json_lines(tmp_path, row(name, "Who was Al?"))
        assert load(name, alone)[0] == examples[1:]


def test_a_bad_row_is_dropped_for_a_named_reason(tmp_path):
    for name, column in IN_COLUMNS.items():
        for prompt, problem in (
            (" ", "empty question"),
            (None, f"{column}: missing or not text"),
            (7, f"{column}: missing or not text"),
            ("a" * 4001, "question longer than 4000 characters"),
            ("Bo \ud83d", f"{column}: half a character (a lone surrogate)"),
        ):
            path = json_lines(tmp_path, row(name, "Who was Bo?"), row(name, prompt))
            examples, problems = load(name, path)
            assert [e.question for e in examples] == ["Who was Bo?"]
            assert problems == {problem: 1}
        path = json_lines(tmp_path, {"text": "Who was Bo?"}, ["Who was Bo?"])
        with pytest.raises(DataError, match=f"no usable row .*{column}: missing"):
            load(name, path)


def test_a_prompt_that_a_set_holds_twice_stays_but_several_models_answer_one(tmp_path):
    for name in IN_COLUMNS:
        path = json_lines(tmp_path, *(row(name, "Who was Bo?", model=m) for m in "ab"))
        examples, problems = load(name, path)
        assert len({e.id for e in examples}) == len(examples)
        repeated = {"duplicate question": 1} if name == "fava" else {}
        assert (len(examples), problems) == (2 - len(repeated), repeated)


def test_an_instructions_input_follows_it(tmp_path):
    rows = [
        row("alpaca_fact", "Name its capital.", input="Norway\n"),
        row("alpaca_fact", "Name a capital.", input=None),
    ]
    path = tmp_path / "rows.json"  # as AlpacaFarm's file is written
    path.write_text(json.dumps(rows, indent=2))
    examples, _ = load("alpaca_fact", str(path))
    asked = [e.question for e in examples]
    assert asked == ["Name its capital.\n\nNorway", "Name a capital."]
    assert {e.relation for e in examples} == {"koala"}


def test_factbenchs_csv_is_read(tmp_path):
    path = tmp_path / "tier_1.csv"
    text = 'topic_description,user_prompts\nmusic,"Who was ""Bo"",\nand when?"\n,Al?\nx'
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    examples, problems = load("factbench_hard", str(path))
    assert [(e.question, e.relation) for e in examples] == [
        ('Who was "Bo",\r\nand when?', "music"),
        ("Al?", ""),
    ]
    assert problems == {"user_prompts: missing or not text": 1}  # a short line


# ---- sets with files of their own


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


def test_a_chats_first_turn_is_the_prompt_and_its_reply_the_reference(tmp_path):
    examples, _ = load("wildchat", json_lines(tmp_path, chat()))
    assert examples[0].question == "Who was the composer Bo?"
    assert examples[0].answers == [("Bo was a composer. " * 20).strip()]


def test_a_chat_that_is_no_prompt_is_dropped_for_a_named_reason(tmp_path):
    al = "Who was Al, then?"
    for bad, problem in (
        (chat(1, language="French"), "not English"),
        (chat(1, toxic=True), "toxic or redacted"),
        (chat(1, redacted=True), "toxic or redacted"),
        (chat(1, prompt="hi"), "prompt too short"),
        (chat(1, prompt="a" * 2001), "prompt too long"),
        (chat(1, prompt=al, reply="Al."), "reply too short"),
        (chat(1, prompt=al, reply="Al " * 5000), "reply too long"),
        (chat(1, conversation=[]), "no first turn with a reply"),
        (chat(1, conversation="hi"), "conversation: not a list of objects"),
        (chat(0, prompt=al), "duplicate id"),
        (chat(1), "duplicate question"),
        (["a"], "not a JSON object"),
    ):
        examples, problems = load("wildchat", json_lines(tmp_path, chat(), bad))
        assert len(examples) == 1
        assert problems == {problem: 1}


# ---- places


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


@needs_data
def test_the_real_files_have_the_papers_prompts():
    people, problems = load("biography", str(DATA / "factscore/prompt_entities.txt"))
    assert (len(people), problems) == (183, Counter())
    assert people[0].question == "Tell me a bio of Kang Ji-hwan."
    assert people[0].entity == people[0].id == "Kang Ji-hwan"
    every, problems = load("longfact", str(DATA / "longfact"))
    assert (len({e.id for e in every}), problems) == (2280, {})
    assert len({e.question for e in every}) == 2271
    assert not any("canary" in json.dumps(e.model_dump()) for e in every)
    objects, _ = load("longfact_objects", str(DATA / "longfact"))
    assert objects == load("longfact_objects", str(DATA / "longfact/objects"))[0]
    assert len(objects) == 1140
    assert len({e.relation for e in objects}) == 38


# ---- the filter by an LLM


def filtered(behave, names):
    examples = [
        Example(id=n, question=f"About {n}", answers=[f"reply {n}"], entity=n)
        for n in names
    ]
    with serve(behave) as server:
        llm = LLM(Endpoint(server.url, "m", "k"), limits=Limits(attempts=1))
        return factual.keep_factual(llm, examples), server


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

    (kept, counts), server = filtered(behave, "abcd")
    assert [e.id for e in kept] == ["a"]
    assert counts == {"kept": 1, "not factual": 1, "failed": 2}
    assert sum('"reply a"' in prompt for prompt in server.prompts()) == 1
    (kept, counts), server = filtered(behave, "")
    assert (kept, counts.total(), server.bodies) == ([], 0, [])


def test_the_filters_examples_are_replies_that_it_may_give():
    lines = prompts.template("filter_factual").splitlines()
    labels = [json.loads(line)["label"] for line in lines if line.startswith("{")]
    assert set(labels) == {"yes", "no"}
