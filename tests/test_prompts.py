"""Prompt templates: every field once, no brace left."""

import re

import pytest

from factkit import prompts
from factkit.params import ROOT

TEMPLATES = sorted(p.stem for p in (ROOT / "factkit" / "prompts").glob("*.txt"))


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_filled_template_holds_the_question_once_and_no_brace(name):
    filled = prompts.fill(prompts.template(name), question="<<Who {is} it?>>")
    assert filled.count("<<Who {is} it?>>") == 1
    assert not re.search(r"[{}]", filled.replace("{is}", ""))


def test_an_unknown_template_is_refused_with_those_there_are():
    with pytest.raises(FileNotFoundError, match="short_form"):
        prompts.template("long_form")


def test_a_path_to_an_own_template_is_read(tmp_path):
    (tmp_path / "mine.txt").write_text("Q: {question}\n")
    assert prompts.template(str(tmp_path / "mine.txt")) == "Q: {question}"


def test_a_template_without_the_field_is_refused():
    with pytest.raises(ValueError, match="question"):
        prompts.fill("Q:", question="x")
