"""Reading long responses: reasoning, boxed answer, final answer."""

from hypothesis import given
from hypothesis import strategies as st

from factkit.verify.response import (
    CONFIDENCES,
    extract_answer,
    extract_boxed,
    extract_reasoning,
    split_confidence,
    state_confidence,
)

# Any text, and texts made of the marks that the functions look for.
responses = st.text(max_size=200) | st.lists(
    st.sampled_from(
        [
            *("<think>", "</think>", "<answer>", "</answer>"),
            *("\\boxed{", "\\text{", "{", "}", "\n", "a ", "\\"),
        ]
    )
).map("".join)


BOXES = [
    (r"\boxed{Paris}", "Paris"),
    (r"\boxed{Lyon} no, \boxed{Paris}", "Paris"),
    (r"\boxed{\text{New York}}", "New York"),
    (r"\boxed{\mathrm{ NaCl }}", "NaCl"),
    (r"\boxed{\text{a} or \text{b}}", r"\text{a} or \text{b}"),
    (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
    (r"\boxed{\boxed{Paris}}", "Paris"),
    (r"\boxed{}", ""),
    ("\\boxed{two\nlines}", "two\nlines"),
    ("<think>\\boxed{Lyon}</think>\\boxed{Paris}", "Paris"),
    ("the template opened it</think>\\boxed{Paris}", "Paris"),
    # never closed: it ends with its line
    ("\\boxed{Paris.\nThat is all.", "Paris."),
    ("\\boxed{", ""),
    ("<think>\\boxed{a}</think> <answer> \\boxed{b} </answer> \\boxed{c}", "b"),
    # no box after the reasoning
    ("boxed{Paris}", None),
    (r"\boxed Paris", None),
    ("<think>\\boxed{Paris}</think> it is Paris", None),
    ("<think>a</think>\\boxed{Paris}<think>wait", None),
]


def test_the_last_box_after_the_reasoning_counts():
    found = [(text, extract_boxed(text)) for text, _ in BOXES]
    assert found == BOXES
    for text, content in BOXES:
        assert extract_answer(text, boxed_required=True) == (content or "")


THOUGHTS = [
    ("<think> a\nb </think> c", "a\nb"),
    ("no thoughts", ""),
    ("before <think>never closed", "never closed"),
    ("a</think>c", "a"),
    ("<think>a</think> b <think>c</think> d", "a</think> b <think>c"),
]


def test_reasoning_lasts_from_the_first_to_the_last_tag():
    assert [(text, extract_reasoning(text)) for text, _ in THOUGHTS] == THOUGHTS


ANSWERS = [
    ("<think>a</think> <answer> Paris </answer>", "Paris"),
    ("<think>a</think><answer>Paris\nor so</answer>\n", "Paris\nor so"),
    ("a</think><answer>Paris</answer>", "Paris"),
    # one of the tags is missing
    ("<think>a</think> <answer> Paris", "Paris"),
    ("Paris </answer>", "Paris"),
    ("<think>a <answer>Paris</answer>", ""),
    # what stands around it is no part of it, and the first counts
    ("<think>a</think> So: <answer>Paris</answer>. Good?", "Paris"),
    ("<answer>Lyon</answer> <think>no</think> <answer>Paris</answer>", "Paris"),
    ("<think><answer>Lyon</answer></think> Paris", "Paris"),
    # no tags
    ("<think>a</think> 1 < 2 > 0", "1 < 2 > 0"),
    ("<think>so Paris", ""),
]


def test_the_answer_s_tags_are_no_part_of_it():
    found = [(text, extract_answer(text, boxed_required=False)) for text, _ in ANSWERS]
    assert found == ANSWERS


@given(responses)
def test_any_text_can_be_read(text):
    assert isinstance(extract_boxed(text), str | None)
    assert isinstance(extract_reasoning(text), str)
    answer = extract_answer(text, boxed_required=False)
    assert "<think>" not in answer and "</answer>" not in answer


def test_a_confidence_is_read_at_the_end_alone_and_between_zero_and_one():
    for i, text in enumerate(CONFIDENCES):
        assert split_confidence(state_confidence("Paris", i / 10)) == (
            "Paris",
            float(text),
        )
    assert split_confidence(" Paris (1)\n") == (" Paris", 1.0)
    assert split_confidence("(0.25)") == ("", 0.25)
    assert split_confidence(r"<think> a </think> \boxed{b} (0.5)")[1] == 0.5
    for text in ("Paris", "Paris (1.1)", "Paris (2)", "(0.5) Paris", "Paris (.5)", ""):
        assert split_confidence(text) == (text, None)


@given(responses)
def test_splitting_a_confidence_off_loses_no_answer(text):
    answer, confidence = split_confidence(text)
    assert text.startswith(answer)
    assert confidence is None or 0 <= confidence <= 1
