"""Long-form prompts: real formats, the hub's rows, bad rows; the factual ones."""

import json

import datasets
import huggingface_hub
import pytest
from fake_endpoint import answer, prompt_of, serve

from factkit import prompts
from factkit.answers.requests import keep_factual
from factkit.data.examples import LONG_FORM, DataError, Example
from factkit.data.sources import SOURCES, load
from factkit.verify.llm import LLM, Endpoint, Limits

IN_COLUMNS = {  # the column that holds the prompt
    "fava": "prompt",
    "alpaca_fact": "instruction",
    "factory_hard": "question",
    "factbench_hard": "user_prompts",
}


def json_lines(tmp_path, *rows):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
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


def test_the_files_of_alpacafarm_and_factbench_are_read(tmp_path):
    asked = {"instruction": "Name its capital.", "dataset": "koala"}
    rows = [asked | {"input": "Norway\n"}, asked | {"input": None}]
    (tmp_path / "rows.json").write_text(json.dumps(rows, indent=2), "utf-8")
    examples, _ = load("alpaca_fact", str(tmp_path / "rows.json"))
    questions = [e.question for e in examples]
    assert questions == ["Name its capital.\n\nNorway", "Name its capital."]
    assert {e.relation for e in examples} == {"koala"}
    text = (
        'topic_description,user_prompts\nmusic,"Who was ""Bo"",\nand when?"\n,Al?\nx\n'
    )
    path = tmp_path / "tier_1.csv"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    examples, problems = load("factbench_hard", str(path))
    assert [(e.question, e.relation) for e in examples] == [
        ('Who was "Bo",\nand when?', "music"),
        ("Al?", ""),
    ]
    assert problems == {"user_prompts: missing or not text": 1}  # a short line


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
    for name in SOURCES:
        with pytest.raises(DataError, match="absent: no such file"):
            load(name, str(tmp_path / "absent"))
        with pytest.raises(DataError, match="HF_HUB_OFFLINE=0.*path of a local file"):
            load(name)
    with pytest.raises(DataError, match="climate: no such data set; known: crag, "):
        load("climate")


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
        llm = LLM(Endpoint(server.url, "m"), limits=Limits(attempts=1))
        kept, counts = keep_factual(llm, examples)
    assert [e.id for e in kept] == ["a"]
    assert counts == {"kept": 1, "not factual": 1, "failed": 2}
    assert sum('"reply a"' in prompt for prompt in server.prompts()) == 1
    lines = prompts.template("filter_factual").splitlines()  # its own examples
    labels = [json.loads(line)["label"] for line in lines if line.startswith("{")]
    assert set(labels) == {"yes", "no"}
