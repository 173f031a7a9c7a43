"""Veri-R1's figures and its trajectories to step through, of made-up answers."""

import re
import warnings
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from drawings import (
    bar_groups,
    named,
    none_left_open,  # noqa: F401
    segments,
    texts,
    ticks,
)

from factkit import params, runs
from factkit.veri import confidence as sure
from factkit.veri import figures as draw
from factkit.veri.evaluate import Verified, by_confidence, items, summary
from factkit.veri.trajectory_view import side_by_side, trajectory_view
from factkit.verify.trajectory import LABELS, NEI, Turn

SUPPORT, REFUTE, _ = LABELS


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ResourceWarning)  # of other tests
        yield


# Bars


def heights(ax):
    """Arm → metric's place → height of the bar."""
    return {
        bars.get_label(): {
            round(bar.get_x() + bar.get_width() / 2): bar.get_height() for bar in bars
        }
        for bars in bar_groups(ax)
    }


def result(arm, seed=0, shift=0.0, **more):
    metrics = {name: 0.1 * i + shift for i, name in enumerate(draw.METRICS, 1)}
    for j, label in enumerate(("support", "refute", "nei"), 1):
        of = ("joint_accuracy", "verification_accuracy", "label_accuracy")
        metrics |= {f"{label}_{name}": 0.1 * j + shift for name in of}
        metrics |= {f"{label}_recall": 0.2 * j, f"{label}_precision": 0.3 * j}
    return {"arm": arm, "seed": seed, "metrics": metrics | more}


@pytest.fixture
def results():
    return [
        result(arm, seed, i / 50 + seed / 20)
        for i, arm in enumerate(draw.MAIN)
        for seed in (0, 1)
    ][::-1]


def test_main_arms_have_a_bar_a_metric_with_the_mean_over_seeds(results):
    (ax,) = draw.main_arms(results).axes
    assert list(heights(ax)) == ["instruct", "sft", "offline rl", "online rl"]
    for i, of in enumerate(heights(ax).values()):
        seeds = i / 50 + 0.025 if i else 0.05  # instruct is one policy: the first run
        expected = {x: 0.1 * (x + 1) + seeds for x in range(6)}
        assert of == pytest.approx(expected)
    looks = {
        (tuple(bars[0].get_facecolor()), bars[0].get_hatch()) for bars in bar_groups(ax)
    }
    assert len(looks) == 4


def test_bars_have_t_intervals_over_seeds_and_none_of_one(results):
    (ax,) = draw.main_arms(results).axes
    # t of 1 degree of freedom, the deviation of two values 0.05 apart
    half = 12.706 * (0.05 / 2**0.5) / 2**0.5
    (line,) = bar_groups(ax)[1].errorbar[2]
    low, high = line.get_segments()[0][:, 1]
    assert high - low == pytest.approx(2 * half, rel=1e-3)
    assert bar_groups(ax)[0].errorbar is None  # instruct: one policy, counted once
    (ax,) = draw.main_arms([result("sft")]).axes
    assert bar_groups(ax)[0].errorbar is None


def test_the_papers_marks_are_the_means_of_its_sets(results):
    (ax,) = draw.main_arms([result("online_rl")]).axes
    stated = {0: (28.91, 31.69, 49.11, 38.82, 53.70)}
    stated |= {1: (36.28, 32.45, 55.89, 43.18, 55.10)}
    stated |= {2: (61.22, 61.09, 69.56, 63.43, 63.70)}
    stated |= {3: (47.69, 46.35, 46.30, 27.13, 65.62)}  # and no cover
    expected = [(x, pytest.approx(sum(of) / 500)) for x, of in stated.items()]
    assert segments(ax, "paper (Qwen2.5)") == expected


def test_what_was_before_training_is_marked_where_it_is_known():
    runs = [
        result("instruct"),
        result("sft", before_joint_accuracy=0.05, before_evidence_cover=0.15),
    ]
    (ax,) = draw.main_arms(runs).axes
    marks = segments(ax, "before training")
    assert [(round(x), value) for x, value in marks] == [(0, 0.05), (5, 0.15)]


def test_an_arm_without_a_metric_has_no_bar_there():
    run = result("online_rl")
    del run["metrics"]["verification_accuracy"]
    (ax,) = draw.main_arms([run, result("sft")]).axes
    assert list(heights(ax)["online rl"]) == [0, 2, 3, 4, 5]
    assert list(heights(ax)["sft"]) == [0, 1, 2, 3, 4, 5]


def test_by_label_has_a_panel_an_accuracy_and_the_papers_joint_accuracy(results):
    figure = draw.by_label(results)
    for ax, name in zip(figure.axes, ("joint", "verification", "label"), strict=True):
        assert ax.get_ylabel().startswith(name)
        assert heights(ax)["sft"] == pytest.approx({0: 0.145, 1: 0.245, 2: 0.345})
    (ax,) = draw.by_label([result("online_rl")]).axes[:1]
    expected = [30.27 + 17.49 + 45.67 + 11.39, 11.22 + 10.65 + 46.67 + 14.77]
    expected += [45.24 + 66.92 + 55.00 + 90.30]
    stated = [(x, pytest.approx(total / 400)) for x, total in enumerate(expected)]
    assert segments(ax, "paper (Qwen2.5)") == stated
    assert not segments(figure.axes[1], "paper (Qwen2.5)")


def test_recall_is_by_gold_label_and_precision_by_what_is_said():
    runs = [result("instruct"), result("larger"), result("sft")]
    recall, precision = draw.precision_and_recall(runs).axes
    assert list(heights(recall)) == ["instruct", "larger"]
    assert heights(recall)["larger"] == pytest.approx({0: 0.2, 1: 0.4, 2: 0.6})
    assert heights(precision)["larger"] == pytest.approx({0: 0.3, 1: 0.6, 2: 0.9})
    assert (recall.get_xlabel(), precision.get_xlabel()) == ("gold label", "label said")


@pytest.mark.parametrize("function", [draw.main_arms, draw.by_label])
def test_without_results_bars_say_so(function):
    figure = function([])
    figure.draw_without_rendering()
    assert all(texts(ax) == ["no results"] for ax in figure.axes)


# Confidence


def answered(label, written, p):
    text = f"<answer>\nLabel: {written}\nEvidence: [[a]]\n</answer>"
    return Verified("i", "c", "s", label, ("a",), [Turn(text, by_model=True)], p)


MIXED = [
    *[answered(SUPPORT, SUPPORT, 0.99)] * 3,
    answered(REFUTE, SUPPORT, 0.97),
    answered(SUPPORT, SUPPORT, 0.10),
    answered(REFUTE, SUPPORT, 0.84),
    answered(NEI, SUPPORT, 0.90),
    answered(REFUTE, REFUTE, 1.0),
    answered(NEI, NEI, 0.5),
    answered(NEI, "UNCLEAR", 0.5),
    answered(NEI, NEI, None),
]


def test_accuracy_by_confidence_is_of_the_answers_that_give_the_label():
    (ax,) = sure.accuracy_by_confidence({"online_rl": sure.answers_of(MIXED)}).axes
    low, high = (heights(ax)[name] for name in ("low: below 85 %", "high: above 95 %"))
    assert low == {0: 0.5, 1: 0.0, 2: 1.0}
    assert high == {0: 0.75, 1: 1.0, 2: 0.0}
    assert texts(ax) == ["n=2", "n=0", "n=1", "n=4", "n=1", "n=0"]
    between = [re.search(r"(\d+) between", tick).group(1) for tick in ticks(ax.xaxis)]
    assert between == ["1", "0", "0"]
    for name, value in by_confidence(MIXED).items():  # the evaluation's own metrics
        label, tier = re.fullmatch(r"(\w+)_(low|high)_.*", name).groups()
        bars = low if tier == "low" else high
        assert bars[("support", "refute", "nei").index(label)] == value


def test_probabilities_are_shares_of_the_answers_with_each_label():
    (ax,) = sure.label_probabilities({"online_rl": sure.answers_of(MIXED)}).axes
    names = ["SUPPORT (n = 7)", "REFUTE (n = 1)", f"{NEI} (n = 1)"]
    assert named(ax) == names
    values, edges, _ = ax.patches[0].get_data()
    found = {
        round(float(e), 2): v for e, v in zip(edges, values, strict=False) if v > 0
    }
    expected = {0.1: 1 / 7, 0.8: 1 / 7, 0.9: 1 / 7, 0.95: 4 / 7}
    assert found == pytest.approx(expected)
    assert {float(ln.get_xdata()[0]) for ln in ax.lines} == {0.85, 0.95}


def test_log_probabilities_are_by_label_and_keep_those_that_are_0():
    rows = [answered(SUPPORT, SUPPORT, p) for p in (0.0, 1e-40, 0.999, 1.0)]
    answers = {"instruct": MIXED, "online_rl": rows}
    answers = {arm: sure.answers_of(of) for arm, of in answers.items()}
    figure = sure.label_log_probabilities(answers)
    figure.draw_without_rendering()
    support = figure.axes[0]
    assert named(support) == ["instruct (n = 7)", "online rl (n = 4)"]
    values, edges, _ = support.patches[1].get_data()
    assert (edges[0], edges[-1]) == (pytest.approx(sure.FLOOR), 0)
    assert values[[0, -1]].tolist() == [0.5, 0.5]
    assert np.isnan(values[1:-1]).all()
    assert named(figure.axes[2]) == ["instruct (n = 1)"]


def test_stored_items_give_the_answers_that_the_samples_give(tmp_path):
    """So that Figures 5 to 8 need no more than what is committed of each seed."""
    rows = [replace(row, id=str(i)) for i, row in enumerate(MIXED)]
    p = params.load("veri", "tiny", {"output_dir": str(tmp_path)})
    run = runs.start("52_veri_train", p)
    run.finish(summary(rows), items=items(rows))
    stored = sure.stored_answers(runs.read_items(run.folder))
    assert sorted(stored) == sorted(sure.answers_of(rows))


def test_figures_of_confidence_say_where_there_is_none():
    unsure = [answered(NEI, NEI, None), answered(NEI, "UNCLEAR", 0.5)]
    for function in (sure.label_probabilities, sure.label_log_probabilities):
        figure = function({"sft": sure.answers_of(unsure)})
        figure.draw_without_rendering()
        assert all(len(texts(ax)) == 1 for ax in figure.axes)
    (ax,) = sure.accuracy_by_confidence({"sft": []}).axes
    assert texts(ax) == ["n=0"] * 6


# Trajectories

GOLD = ("Ann Lee (chemist)_sentence_0", "Rome, Italy_3")
STEPS = [
    Turn("<plan> Who won? </plan>\n<search> who won the prize </search>", True),
    Turn(
        "<information>\n[[Ann Lee (chemist)_sentence_0]]: Ann Lee won. She is a "
        "chemist.\n[[Other]]: Other text.\n</information>",
        False,
    ),
    Turn("<think> She won. </think><search> birthplace of Ann Lee </search>", True),
    Turn("<information>\n[[Other]]: Other text.\n</information>", False),
    Turn(
        "<think> Not found. </think>\n<answer>\nLabel: REFUTE\nEvidence: "
        "[[Ann Lee (chemist)_sentence_0]], [[Other]]\n</answer>",
        True,
    ),
]
TAGS = {"div", "details", "summary", "b", "span", "table", "tr", "th", "td"}
KEPT = {  # of the style properties that JupyterLab's sanitiser allows, those used
    *("background-color", "color", "padding", "margin", "border", "border-radius"),
    *("border-collapse", "table-layout", "width", "vertical-align", "cursor"),
    *("white-space", "text-align", "line-height"),
}


class Page(HTMLParser):
    """A page's text, its tags and attributes, its summaries and steps."""

    def __init__(self, html):
        super().__init__()
        self.text, self.tags, self.attributes = "", [], []
        self.summaries, self.steps, self.opened = [], [], []
        self._open = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.append(dict(attrs))
        self._open.append(tag)
        if tag == "details":
            self.steps.append("")
            self.opened.append("open" in dict(attrs))
        if tag == "summary":
            self.summaries.append("")

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if "summary" in self._open:
            self.summaries[-1] += data
        elif "details" in self._open:
            self.steps[-1] += f"{data}\n"


def page(trajectory=STEPS, label=SUPPORT, gold=GOLD, rewards=None, claim="A claim."):
    return Page(trajectory_view(claim, label, gold, trajectory, rewards).data)


def test_each_step_has_its_summary_and_the_score_alone_is_open():
    view = page()
    kinds = [summary.split()[2] for summary in view.summaries[:-1]]
    assert kinds == ["plan", "search", "think", "search", "think", "answer"]
    assert view.summaries[-1].startswith("score")
    assert view.opened == [False] * 6 + [True]
    assert "A claim." in view.text and "Gold label: SUPPORT" in view.text


def test_a_search_tells_how_much_of_the_gold_evidence_it_found():
    first, second = (page().summaries[i] for i in (1, 3))
    assert first.endswith("✓ 1 of 2 gold entries found")
    assert second.endswith("✗ 0 of 2 gold entries found")


def test_the_entries_of_a_search_are_marked_and_told_in_full():
    first, second = (page().steps[i].split("\n") for i in (1, 3))
    assert first[1:4] == ["[[Ann Lee (chemist)_sentence_0]]", " · ", "✓ gold"]
    assert "Ann Lee won. She is a chemist." in first
    assert "[[Other]]" in first and "[[Other]]" in second
    assert not any("seen before" in line for line in first)
    assert any("seen before" in line for line in second)


def test_the_score_tells_what_was_cited_rightly_wrongly_and_not_at_all():
    view = page()
    assert view.summaries[-1] == "score · ✗ REFUTE · evidence: ✓ 1, ✗ 1, ○ 1"
    assert view.steps[-1].split("\n")[:-1] == [
        *("✓ gold, cited", " [[Ann Lee (chemist)_sentence_0]]"),
        *("✗ cited, not gold", " [[Other]]"),
        *("○ gold, not found, not cited", " [[Rome, Italy_3]]"),
    ]


def test_gold_evidence_that_was_found_and_not_cited_is_told_apart():
    silent = [*STEPS[:4], Turn("<answer>\nLabel: SUPPORT\nEvidence:\n</answer>", True)]
    view = page(silent)
    assert view.summaries[-1] == "score · ✓ SUPPORT · evidence: ✓ 0, ✗ 0, ○ 2"
    assert view.steps[-1].split("\n")[0] == "○ gold, found, not cited"


def test_offline_nothing_is_said_of_finding():
    text = "<think> So. </think><answer>\nLabel: SUPPORT\nEvidence: [[x]]\n</answer>"
    view = page([Turn(text, True)])
    assert [s.split()[2] for s in view.summaries[:-1]] == ["think", "answer"]
    assert "○ gold, not cited" in view.steps[-1]
    assert "found" not in view.text


def test_what_is_odd_in_a_trajectory_is_told():
    not_listed = "<information>\nnothing found\n</information>"
    two = Turn("<search> a </search><search> b </search>", True)
    for turns, told in (
        ([], "score · ✗ no label · evidence: ✓ 0, ✗ 0, ○ 2"),
        ([two, STEPS[1]], "a · not answered"),
        (
            [Turn("<search> a </search>", True), Turn(not_listed, False)],
            "nothing found",
        ),
        (
            [Turn("<answer>\nLabel:", False), Turn(f" {NEI}\n</answer>", True)],
            "✗ the system had to open the answer",
        ),
    ):
        assert told in page(turns).text and told not in page().text
    view = page(label=NEI, gold=())
    assert "2 entries; there is no gold one" in view.summaries[1]
    assert f"{NEI} needs no evidence." in view.steps[-1]


def test_information_of_the_models_own_finds_nothing():
    forged = "<search> a </search><information>\n[[Rome, Italy_3]]: x\n</information>"
    view = page([Turn(forged, True)])
    assert view.summaries[1].endswith("✗ outside of the tags")
    assert "gold entries found" not in view.text
    assert "○ gold, not cited" in view.steps[-1]


def test_rewards_are_told_in_their_order():
    view = page(
        rewards={"label": 0.0, "evidence": 1 / 3, "w_validity": 0, "total": 1.25}
    )
    told = "label 0 · evidence 0.333 · w validity 0 · total 1.25"
    assert told in view.steps[-1]
    assert "Rewards" not in page().text


NASTY = ["<script>alert(1)</script>", "</details>&amp;", "\"' onclick='x", "$a$ é 日本"]


@pytest.mark.parametrize("text", NASTY)
def test_no_text_of_a_trajectory_becomes_html(text):
    turns = [
        Turn(f"<plan> {text} </plan><search> {text} </search>", True),
        Turn(f"<information>\n[[{text}]]: {text}\n</information>", False),
        Turn(f"{text}<answer>\nLabel: {text}\nEvidence: [[{text}]]\n</answer>", True),
    ]
    view = page(turns, SUPPORT, (text,), {text: 1.0}, claim=text)
    assert set(view.tags) <= TAGS
    assert not {k for of in view.attributes for k in of} - {"style", "class", "open"}
    assert view.text.count(text) >= 8


def test_styles_are_of_the_kinds_that_jupyterlab_keeps():
    data = side_by_side("c", SUPPORT, GOLD, {"a": STEPS}, {"a": {"total": 1.0}}).data
    styles = [of["style"] for of in Page(data).attributes if "style" in of]
    used = {part.split(":")[0].strip() for style in styles for part in style.split(";")}
    assert used - {""} <= KEPT
    assert "background-color: white" in data
    assert "white-space: pre-wrap" in data


def test_trajectories_stand_side_by_side_with_their_own_rewards():
    other = [Turn("<answer>\nLabel: SUPPORT\nEvidence: [[x]]\n</answer>", True)]
    both = {"offline_rl": other, "online_rl": STEPS}
    data = side_by_side("A claim.", SUPPORT, GOLD, both, {"online_rl": {"total": 2.0}})
    view = Page(data.data)
    assert (view.tags.count("th"), view.tags.count("td")) == (2, 2)
    assert view.text.count("A claim.") == 1
    scores = [summary for summary in view.summaries if summary.startswith("score")]
    assert [score.split(" · ")[1] for score in scores] == ["✓ SUPPORT", "✗ REFUTE"]
    assert view.text.count("Rewards:") == 1
    assert view.text.index("Rewards:") > view.text.index("✗ REFUTE")
