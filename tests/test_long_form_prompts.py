"""Long-form prompts: real formats, the hub's rows, bad rows, splits."""

import json
from collections import Counter

import pytest
from fake_endpoint import answer, prompt_of, serve

from factkit import params, prompts
from factkit.backends import Endpoint
from factkit.curate import factual
from factkit.datasets import long_form_prompts as sources
from factkit.datasets.examples import (
    DataError,
    Example,
    refuse_overlap,
)
from factkit.llm import LLM, Limits

DATA = params.ROOT.parent / "shared" / "data"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the sample files are not beside the project"
)


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


def question(i=0, **more):
    return {
        "Record ID": f"r{i}",
        "Question": f"Which colour has a neutrino, case {i}?",
        "Correct Answer": "none\n",
        "Incorrect Answer 1": "red",
        "Incorrect Answer 2": "green",
        "Incorrect Answer 3": "blue",
        "Subdomain": "Physics",
    } | more


# ---- the papers' sources


@needs_data
def test_factscores_people_become_biography_prompts():
    examples, problems = sources.biography(str(DATA / "factscore/prompt_entities.txt"))
    assert (len(examples), problems) == (183, Counter())
    assert examples[0].question == "Tell me a bio of Kang Ji-hwan."
    assert examples[0].entity == examples[0].id == "Kang Ji-hwan"


def test_empty_repeated_and_undecodable_names_are_counted(tmp_path):
    (tmp_path / "names.txt").write_bytes(b"Bo\n \nBo\nB\xff\nAl\n")
    examples, problems = sources.biography(str(tmp_path / "names.txt"))
    assert [e.id for e in examples] == ["Bo", "Al"]
    assert problems == {
        "empty entity": 1,
        "duplicate id": 1,
        "not UTF-8": 1,
    }


@needs_data
def test_longfacts_folder_becomes_prompts_by_topic():
    examples, problems = sources.longfact(str(DATA / "longfact"))
    assert (len(examples), problems) == (2280, {})
    assert len({e.id for e in examples}) == 2280
    assert len({e.question for e in examples}) == 2271
    assert Counter(e.meta["kind"] for e in examples).keys() == {"concepts", "objects"}
    assert len({e.relation for e in examples}) == 38
    assert not any("canary" in json.dumps(e.model_dump()) for e in examples)


def test_wild_hallucinations_become_prompts_with_their_pages(tmp_path):
    pages = [
        {"url": "u", "status_code": 200, "text": "Bo sang.\n"},
        {"url": "v", "status_code": 404, "text": "not found"},
        {"url": "w", "status_code": 200, "text": " "},
    ]
    path = json_lines(
        tmp_path,
        {"entity": "Bo", "category": "people", "wiki": 1, "info": pages},
        {"entity": "Al", "category": "people", "wiki": 0, "info": None},
        {"category": "people"},
    )
    examples, problems = sources.wild_hallucinations(path)
    assert [(e.question, e.relation, e.meta) for e in examples] == [
        ("Tell me what you know about Bo.", "people", {"wiki": True}),
        ("Tell me what you know about Al.", "people", {"wiki": False}),
    ]
    assert problems == {"entity: missing or not text": 1}
    found = sources.wild_pages(path)
    assert [d.text for d in found["Bo"]] == ["Bo sang."]
    assert found["Al"] == []


def test_a_chats_first_turn_is_the_prompt_and_its_reply_the_reference(tmp_path):
    examples, _ = sources.wildchat(json_lines(tmp_path, chat()))
    assert examples[0].question == "Who was the composer Bo?"
    assert examples[0].answers == [("Bo was a composer. " * 20).strip()]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (chat(1, language="French"), "not English"),
        (chat(1, toxic=True), "toxic or redacted"),
        (chat(1, redacted=True), "toxic or redacted"),
        (chat(1, prompt="hi"), "prompt too short"),
        (chat(1, prompt="a" * 2001), "prompt too long"),
        (chat(1, prompt="Who was Al, then?", reply="Al."), "reply too short"),
        (chat(1, prompt="Who was Al, then?", reply="Al " * 5000), "reply too long"),
        (chat(1, conversation=[]), "no first turn with a reply"),
        (chat(1, conversation="hi"), "conversation: not a list of objects"),
        (chat(0, prompt="Who was Al, then?"), "duplicate id"),
        (chat(1), "duplicate question"),
        (["a"], "not a JSON object"),
    ],
)
def test_a_chat_that_is_no_prompt_is_dropped_for_a_named_reason(tmp_path, row, problem):
    examples, problems = sources.wildchat(json_lines(tmp_path, chat(), row))
    assert len(examples) == 1
    assert problems == {problem: 1}


def test_a_limit_stops_at_that_many_prompts(tmp_path):
    rows = [chat(i, prompt=f"Who was the composer {i}?") for i in range(5)]
    assert len(sources.wildchat(json_lines(tmp_path, *rows), limit=2)[0]) == 2
    with pytest.raises(ValueError, match="limit=0"):
        sources.wildchat(json_lines(tmp_path, *rows), limit=0)


def test_a_source_without_a_usable_row_is_refused(tmp_path):
    with pytest.raises(DataError, match="no usable row"):
        sources.wildchat(json_lines(tmp_path, chat(toxic=True)))
    with pytest.raises(DataError, match="no such file"):
        sources.biography(str(tmp_path / "none.txt"))


def test_gpqas_letter_names_the_right_option(tmp_path):
    path = json_lines(tmp_path, *(question(i) for i in range(40)))
    examples, _ = sources.gpqa(path)
    for e in examples:
        assert f"({e.answers[0]}) none" in e.question.splitlines()
        assert sorted(e.meta["options"]) == ["blue", "green", "none", "red"]
    assert {e.answers[0] for e in examples} == set("ABCD")


def test_gpqas_options_keep_their_order_for_a_seed_whatever_the_other_rows(tmp_path):
    many = json_lines(tmp_path, *(question(i) for i in range(9)))
    first = sources.gpqa(many)[0][5].question
    alone = json_lines(tmp_path, question(5))
    assert sources.gpqa(alone)[0][0].question == first
    orders = {sources.gpqa(alone, seed=s)[0][0].question for s in range(9)}
    assert len(orders) > 1


@pytest.mark.parametrize("wrong", ["none", " "])
def test_gpqas_options_must_differ_and_say_something(tmp_path, wrong):
    rows = question(), question(1, **{"Incorrect Answer 2": wrong})
    _, problems = sources.gpqa(json_lines(tmp_path, *rows))
    assert problems == {"an option is empty or given twice": 1}


# ---- the LLM filter


def about(name):
    return Example(
        id=name, question=f"About {name}", answers=[f"reply {name}"], entity=name
    )


def filtered(behave, examples):
    with serve(behave) as server:
        llm = LLM(Endpoint(server.url, "m", "k"), limits=Limits(attempts=1))
        return factual.keep_factual(llm, examples), server


def test_the_filter_keeps_what_the_llm_calls_factual_and_counts_the_rest():
    said = {
        "About a": '{"reason": "history", "label": "yes"}',
        "About b": '{"reason": "a poem", "label": "no"}',
        "About c": "I can't say.",
        "About d": '{"reason": "both", "label": "maybe"}',
    }

    def behave(body, attempt):
        row = prompt_of(body).rpartition("\nPrompt: ")[2]
        return answer(next(text for key, text in said.items() if key in row))

    (kept, counts), server = filtered(behave, [about(x) for x in "abcd"])
    assert [e.id for e in kept] == ["a"]
    assert counts == {"kept": 1, "not factual": 1, "failed": 2}
    assert sum('"reply a"' in prompt for prompt in server.prompts()) == 1


def test_no_prompts_make_no_calls():
    (kept, counts), server = filtered(lambda *_: answer("yes"), [])
    assert (kept, counts.total(), server.bodies) == ([], 0, [])


def test_the_filters_examples_are_replies_that_it_may_give():
    lines = prompts.template("filter_factual").splitlines()
    labels = [json.loads(line)["label"] for line in lines if line.startswith("{")]
    assert set(labels) == {"yes", "no"}


# ---- splits


def test_splits_share_no_entity_and_have_their_sizes():
    examples = [
        Example(id=f"{i}{f}", question=f"{f} {i}?", answers=[], entity=f"E{i}")
        for i in range(30)
        for f in "ab"
    ]
    splits = sources.split_prompts(examples, {"train": 20, "test": 10})
    assert {name: len(split) for name, split in splits.items()} == {
        "train": 20,
        "test": 10,
    }
    refuse_overlap(splits)
    assert splits == sources.split_prompts(examples, {"train": 20, "test": 10})
    assert splits != sources.split_prompts(examples, {"train": 20, "test": 10}, 1)


def test_a_split_larger_than_there_are_prompts_is_refused():
    examples = [about("a"), about("b")]
    with pytest.raises(DataError, match="test=2: only 1 of 2"):
        sources.split_prompts(examples, {"train": 1, "test": 2})
