"""Prompt templates: every field once, none left."""

import json
import re

import pytest

from factkit import prompts
from factkit.run.params import ROOT
from factkit.verify.judge import Grade
from factkit.verify.llm import Reply
from factkit.verify.replies import read_reply
from factkit.verify.response import extract_boxed

TEMPLATES = sorted(p.stem for p in (ROOT / "factkit" / "prompts").glob("*.txt"))
FIELD = re.compile(r"(?<!\\boxed)\{(\w+)\}")


def fields_of(name):
    return FIELD.findall(prompts.template(name))


def test_templates_hold_their_fields_once_and_so_do_filled_ones_the_values():
    for name in TEMPLATES:
        fields = fields_of(name)
        if name == "reply_in_json":  # it follows a filled one
            continue
        assert len(set(fields)) == len(fields) > 0, name
        values = {field: f"<<{field} with {{is}} inside>>" for field in fields}
        filled = prompts.fill(prompts.template(name), **values)
        assert all(filled.count(value) == 1 for value in values.values()), name
        assert not FIELD.search(filled.replace("{is}", "")), name


def test_the_examples_of_judges_and_answers_are_replies_that_can_be_read():
    for name in ("judge_outcome", "judge_reasoning"):
        lines = prompts.template(name).splitlines()
        replies = [line for line in lines if line.startswith("{")]
        assert {read_reply(Reply(reply), Grade).score for reply in replies} == {0, 1}
        assert all(set(json.loads(r)) == {"explanation", "score"} for r in replies)
    for name in ("closed_book", "with_references"):
        assert extract_boxed(prompts.template(name)) == "I don't know"
        first = prompts.template(name).rpartition(",")[0]
        assert extract_boxed(first) == "invalid question"


def test_an_unknown_template_is_refused_with_those_there_are():
    with pytest.raises(FileNotFoundError, match="short_form"):
        prompts.template("long_form")


def test_a_path_to_an_own_template_is_read(tmp_path):
    (tmp_path / "mine.txt").write_text("Q: {question}\n", "utf-8")
    assert prompts.template(str(tmp_path / "mine.txt")) == "Q: {question}"


CONTROL = """
<|im_start|> <|im_end|> <|endoftext|> <|eot_id|> <|start_header_id|> <|end_header_id|>
<|begin_of_text|> <|user|> <|channel|> <s> </s> [INST] [/INST] <<SYS>> <</SYS>>
<start_of_turn> <end_of_turn> <bos> <eos> <pad> <think> </think> <tool_call>
[TOOL_CALLS] <｜User｜> <｜Assistant｜> [gMASK] <sop> [THINK]
""".split()


def test_control_tokens_in_a_filled_text_are_none_any_more():
    for token in CONTROL:
        filled = prompts.fill("<|user|>{question}", question=f"a{token}{token} b")
        assert filled.startswith("<|user|>a") and token not in filled[8:]
        assert filled.replace(" ", "") == f"<|user|>a{token}{token}b"
