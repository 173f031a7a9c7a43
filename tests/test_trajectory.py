"""Reading claim-verification trajectories: steps, answers, the form, hostile texts."""

from hypothesis import given
from hypothesis import strategies as st

from factkit.verify import trajectory as t
from factkit.verify.trajectory import Answer, Turn, is_well_formed, parse_answer

SUPPORT, REFUTE, NEI = t.LABELS
PLAN = "<plan>two facts</plan>"
THOUGHT = "<think>so far so good</think>"
SEARCH = "<search>Bo's birthplace</search>"
LOOK = [SEARCH, "<information>[[Bo]]: Bo was born in Bern.</information>", THOUGHT]
ANSWER = "<answer>\nLabel: SUPPORT\nEvidence: [[Bo]], [[Bern, city]]\n</answer>"


def online(*texts):
    """A trajectory; what begins as information is by the system."""
    return [Turn(text, not text.startswith("<information>")) for text in texts]


def said(text):
    """A trajectory of one text by the model."""
    return [Turn(text, True)]


def steps(trajectory):
    """(kind, text) of each step."""
    return [(step.kind, step.text) for step in t.parse_steps(trajectory)]


def answered(content):
    return parse_answer(said(f"<answer>{content}</answer>"))


def formed_answer(content):
    return is_well_formed(said(f"{THOUGHT}<answer>{content}</answer>"), online=False)


FULL = online(PLAN, *LOOK, *LOOK, *LOOK, ANSWER)

# Any text, and texts made of the marks that the functions look for
MARKS = [
    *("<plan>", "</plan>", "<search>", "</search>", "<think>", "</think>"),
    *("<answer>", "</answer>", "<information>", "</information>", "<b>", "</other>"),
    *("Label:", "SUPPORT", "not enough info", "Evidence:", "[[", "]]", "], [", "["),
    *("]", ",", "a", "Bo (singer)", "\n", " ", "<", "</", ">", "\U0001f600", "\0"),
]
texts = st.text(max_size=100) | st.lists(st.sampled_from(MARKS)).map("".join)
trajectories = st.lists(st.builds(Turn, texts, st.booleans()), max_size=6)


# ---- steps


def test_a_trajectory_is_read_step_by_step():
    kinds = ["plan", *["search", "information", "think"] * 3, "answer"]
    found = steps(FULL)
    assert [kind for kind, _ in found] == kinds
    assert found[:3] == [
        ("plan", "two facts"),
        ("search", "Bo's birthplace"),
        ("information", "[[Bo]]: Bo was born in Bern."),
    ]
    assert t.extract_queries(FULL) == ["Bo's birthplace"] * 3


def test_what_is_outside_of_the_protocols_tags_is_other():
    text = "Well. <plan>p</plan> <b>so</b><information>i</information><think>t"
    assert steps(said(text)) == [
        ("other", "Well."),
        ("plan", "p"),
        ("other", "<b>so</b><information>i</information>"),
        ("think", "t"),
    ]
    whole = "<information>i</information>"
    assert steps([Turn(whole, False)]) == [("information", "i")]
    assert steps([Turn(whole, True)]) == [("other", whole)]
    # a tag that opens a step ends the one before; the model's answer does not
    assert steps(said("<think>a<search>b</search>c</think>")) == [
        ("think", "a"),
        ("search", "b"),
        ("other", "c</think>"),
    ]
    inside = "a<answer>b</answer>c"
    assert steps(said(f"<think>{inside}</think>")) == [("think", inside)]
    assert t.extract_queries(said("<search>who<search>what</search>")) == ["what"]


# ---- the answer: labels


def test_a_label_is_one_of_three_in_any_case_and_spacing():
    for content, label in {
        "\nLabel: SUPPORT\nEvidence: [[a]]\n": SUPPORT,
        "Label: REFUTE\nEvidence: [[a]]": REFUTE,
        "Label: NOT ENOUGH INFO\nEvidence:": NEI,
        "label :  support \nevidence: [[a]]": SUPPORT,
        "  Label: Not  enough\tInfo": NEI,
        "Label: NEI\nEvidence: [[a]]": None,
        "Label: SUPPORT / REFUTE / NOT ENOUGH INFO": None,
        "Label: SUPPORT\nLabel: REFUTE": None,
        "My Label: SUPPORT": None,
    }.items():
        assert answered(content).label == label, content


def test_only_what_stands_within_the_answers_tags_answers():
    for text in (
        "Label: SUPPORT\nEvidence: [[a]]",
        "Label: SUPPORT\nEvidence: [[a]]</answer>",
        "<think>Label: SUPPORT\nEvidence: [[a]]</think><answer></answer>",
        "<Answer>Label: SUPPORT\nEvidence: [[a]]</Answer>",
        "<answer>Label: SUPPORT\nEvidence: [[a]]<think></answer>",
    ):
        assert parse_answer(said(text)) == Answer(None, ()), text
    page = f"<information>{ANSWER}</information> <plan>x</information>"
    looked = online(PLAN, SEARCH, page, THOUGHT)
    assert parse_answer(looked) == Answer(None, ())
    refuting = [*looked, *online(ANSWER.replace("SUPPORT", "REFUTE"))]
    assert parse_answer(refuting).label == REFUTE and is_well_formed(
        refuting, online=True
    )


def test_an_answer_inside_of_another_step_is_no_answer():
    for before in (
        "<think>hm ",  # left open
        "<think><plan>p</plan>",
        "<think>a <search>q</search> ",
        "<plan>two facts ",
        "<search>q ",
    ):
        for after in ("", " or not</think>", "</plan>", "</search></think>"):
            trajectory = said(f"{before}{ANSWER}{after}")
            assert parse_answer(trajectory) == Answer(None, ()), (before, after)
    refuting = ANSWER.replace("SUPPORT", "REFUTE")
    for text in (f"<think>say {refuting}?</think>{ANSWER}", f"hm</think>{ANSWER}"):
        assert parse_answer(said(text)).label == SUPPORT
    # the system's information, and the answer that it opens, end what was left open
    looked = online("<think>hm", LOOK[1], ANSWER)
    assert parse_answer(looked).label == SUPPORT
    forced = [Turn("<think>hm", True), Turn("\n<answer>\nLabel:", False)]
    forced.append(Turn("SUPPORT\nEvidence: [[a]]</answer>", True))
    assert parse_answer(forced) == Answer(SUPPORT, ("a",))


def test_an_answer_that_the_system_opened_is_read_and_not_of_the_form():
    for opening in ("<answer>", "\n<answer>\nLabel:", "</think><answer>"):
        rest = ANSWER.removeprefix("<answer>")
        if "Label:" in opening:
            rest = rest.replace("\nLabel:", "")
        forced = [*online(PLAN, *LOOK), Turn(opening, False), Turn(rest, True)]
        assert parse_answer(forced) == Answer(SUPPORT, ("Bo", "Bern, city"))
        assert t.is_forced(forced)
        assert not is_well_formed(forced, online=True)


# ---- the answer: evidence


def test_evidence_is_read_tolerantly():
    for listed, evidence in {
        "[[a]], [[b]]": ("a", "b"),
        "\n[[a]],\n [[ b ]]\n": ("a", "b"),
        "[[a], [b]]": ("a", "b"),  # App. G
        "[[a],[b] [c]], [[d]]": ("a", "b", "c", "d"),
        "[[a, b]]": ("a, b",),
        "[[Bo (singer)_sentence_3]]": ("Bo (singer)_sentence_3",),
        "[[a]];\n[[b]]": ("a", "b"),
        "[[a]], [[b": (),
        "[a], [b]": (),
        "[[a]] but not [[b]]": (),
        "not [[a]]": (),
        "[[a]], none of [[b]]": (),
        "[[a]] or b]], [[c]]": (),
        "[[a]]...[[d]]": (),
        "[[a]] because it says so": (),
        "[[a]]\nLabel: REFUTE": (),
        "None": (),
    }.items():
        answer = answered(f"Label: SUPPORT\nEvidence: {listed}")
        assert answer.evidence == evidence, listed
    assert answered("Label: SUPPORT [[a]]\nEvidence: [[b]]") == Answer(None, ("b",))


# ---- the form


def test_up_to_three_searches_are_of_the_form():
    for searches in range(4):
        assert is_well_formed(online(PLAN, *LOOK * searches, ANSWER), online=True)
    four = online(PLAN, *LOOK * 4, ANSWER)
    assert not is_well_formed(four, online=True)
    assert is_well_formed(four, online=True, max_searches=4)
    assert is_well_formed(said(THOUGHT * 2 + ANSWER), online=False)
    assert not is_well_formed(said(ANSWER), online=False)
    assert not is_well_formed(FULL, online=False)


def test_other_orders_tags_and_text_break_the_form():
    for broken in (
        online(*LOOK, ANSWER),  # no plan
        online(PLAN, *LOOK),  # no answer
        online(PLAN, *LOOK, ANSWER, ANSWER),
        online(PLAN, *LOOK[:2], ANSWER),  # no thought after information
        online(PLAN, THOUGHT, *LOOK, ANSWER),
        online(PLAN, SEARCH, THOUGHT, ANSWER),  # no information
        online(PLAN, *LOOK[1:], ANSWER),  # no search
        online("Sure! ", PLAN, *LOOK, ANSWER),
        online(PLAN, *LOOK, "<think>a <b>bold</b> thing</think>", ANSWER),
        online(PLAN, *LOOK, ANSWER.removesuffix("</answer>")),
    ):
        assert not is_well_formed(broken, online=True), broken


def test_an_answer_of_the_form_is_a_label_and_a_list():
    for content in (
        "\nLabel: SUPPORT\nEvidence: [[a]]\n",
        "Label: refute\nevidence: [[a]],[[b (c), d]]",
        "Label: NOT ENOUGH INFO\nEvidence:",
    ):
        assert formed_answer(content), content
    for content in (
        "Label: NOT ENOUGH INFO",
        "Label: SUPPORT\nEvidence:",
        "Label: NEI\nEvidence: [[a]]",
        "Evidence: [[a]]\nLabel: SUPPORT",
        "Label: SUPPORT\nEvidence: [[a]]\nLabel: SUPPORT",
        "Label: SUPPORT\nEvidence: [[a]] because",
        "Label: SUPPORT\nEvidence: [[a]] [[b]]",
        "Label: SUPPORT\nEvidence: [[a], [b]]",
        "Label: NOT ENOUGH INFO\nEvidence: None",
    ):
        assert not formed_answer(content), content


@given(trajectories, st.booleans())
def test_no_text_raises_and_what_is_of_the_form_has_one_answer(trajectory, online):
    answer = parse_answer(trajectory)
    assert answer.label in (None, *t.LABELS)
    assert len(set(answer.evidence)) == len(answer.evidence)
    t.extract_queries(trajectory), t.is_forced(trajectory)
    if is_well_formed(trajectory, online):
        assert answer.label
        assert [kind for kind, _ in steps(trajectory)].count("answer") == 1
