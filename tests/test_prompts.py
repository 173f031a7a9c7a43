"""Prompt templates: every field once, none left."""

import json
import re

import pytest

from factkit import prompts
from factkit.corpus import load_leads
from factkit.llm import Reply
from factkit.params import ROOT
from factkit.verify.judge import Grade
from factkit.verify.replies import read
from factkit.verify.response import OPEN, boxed, parts

TEMPLATES = sorted(p.stem for p in (ROOT / "factkit" / "prompts").glob("*.txt"))
TITLES = ["Fall of Constantinople", "A Christmas Carol"]  # of the two leads
NAME_OR_NUMBER = re.compile(r"[A-Z]\w*|\d+")
FIELD = re.compile(r"(?<!\\boxed)\{(\w+)\}")


def fields_of(name):
    return FIELD.findall(prompts.template(name))


def test_templates_hold_their_fields_once_and_so_do_filled_ones_the_values():
    for name in TEMPLATES:
        fields = fields_of(name)
        assert len(set(fields)) == len(fields) > 0, name
        values = {field: f"<<{field} with {{is}} inside>>" for field in fields}
        filled = prompts.fill(prompts.template(name), **values)
        assert all(filled.count(value) == 1 for value in values.values()), name
        assert not FIELD.search(filled.replace("{is}", "")), name


def test_a_filled_short_template_has_no_brace_and_ends_where_the_answer_begins():
    for name in (name for name in TEMPLATES if name.startswith("short_form")):
        values = dict.fromkeys(fields_of(name), "x")
        filled = prompts.fill(prompts.template(name), **values)
        assert not re.search(r"[{}]", filled), name
        assert filled.endswith("\nAnswer:"), name


def test_the_examples_of_judges_and_answers_are_replies_that_can_be_read():
    for name in ("judge_outcome", "judge_reasoning"):
        lines = prompts.template(name).splitlines()
        replies = [line for line in lines if line.startswith("{")]
        assert {read(Reply(reply), Grade).score for reply in replies} == {0, 1}
        assert all(set(json.loads(r)) == {"explanation", "score"} for r in replies)
    for name in ("closed_book", "with_references"):
        assert boxed(prompts.template(name)) == "I don't know"
        assert boxed(prompts.template(name).rpartition(",")[0]) == "invalid question"


@pytest.mark.assets
@pytest.mark.parametrize("name", ["reasoned_2_shots", "reasoned_opened"])
def test_the_examples_of_reasoning_have_its_form_and_say_what_the_leads_say(name):
    leads = {d.title: d.text for d in load_leads()}
    blocks = prompts.template(name).removesuffix(f" {OPEN}").split("\n\n")
    shown = [b.split("\nResponse: ") for b in blocks if "\nResponse: " in b]
    titles = [next(t for t in TITLES if t in question) for question, _ in shown]
    assert titles == TITLES
    for title, (_, response) in zip(titles, shown, strict=True):
        found = parts(response)
        assert found and len(found.reasoning.split()) <= 90
        assert len(found.answer.split()) <= 60
        said = set(NAME_OR_NUMBER.findall(found.answer)) - {"The", "A", "They"}
        assert said <= set(NAME_OR_NUMBER.findall(f"{title} {leads[title]}"))


def test_an_unknown_template_is_refused_with_those_there_are():
    with pytest.raises(FileNotFoundError, match="short_form"):
        prompts.template("long_form")


def test_a_path_to_an_own_template_is_read(tmp_path):
    (tmp_path / "mine.txt").write_text("Q: {question}\n")
    assert prompts.template(str(tmp_path / "mine.txt")) == "Q: {question}"


def test_a_template_without_the_field_is_refused():
    with pytest.raises(ValueError, match="question"):
        prompts.fill("Q:", question="x")


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


def test_other_brackets_stay_as_they_are():
    text = "a < b > c, <b>bold</b>, [[NASA]], [1], x<sup>2</sup>, [NASA]"
    assert prompts.fill("{question}", question=text) == text
