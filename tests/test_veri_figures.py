"""Veri-R1's figures and its trajectories to step through, of made-up answers."""

import re
import warnings
from html.parser import HTMLParser

import pandas as pd
import pytest
from drawings import (
    bar_groups,
    named,
    none_left_open,  # noqa: F401
    segments,
    texts,
)

from factkit.papers.veri import figures as draw
from factkit.papers.veri.evaluate import Verified, items, summary
from factkit.report.figures import tables
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
    return {"arm": arm, "seed": seed, "metrics": metrics | more}


@pytest.fixture
def results():
    return [
        result(arm, seed, i / 50 + seed / 20)
        for i, arm in enumerate(draw.MAIN)
        for seed in (0, 1)
    ][::-1]


def test_main_arms_have_a_bar_a_metric_with_the_mean_over_seeds(results):
    (ax,) = draw.main_arms(tables.policies_of(results, draw.MAIN)).axes
    assert list(heights(ax)) == ["instruct", "sft", "offline rl", "online rl"]
    for i, of in enumerate(heights(ax).values()):
        seeds = i / 50 + 0.025 if i else 0.05  # instruct is one policy: the first run
        expected = {x: 0.1 * (x + 1) + seeds for x in range(6)}
        assert of == pytest.approx(expected)


def test_the_papers_marks_are_the_means_of_its_sets(results):
    (ax,) = draw.main_arms({"online_rl": [result("online_rl")]}).axes
    stated = {0: (28.91, 31.69, 49.11, 38.82, 53.70)}
    stated |= {1: (36.28, 32.45, 55.89, 43.18, 55.10)}
    stated |= {2: (61.22, 61.09, 69.56, 63.43, 63.70)}
    stated |= {3: (47.69, 46.35, 46.30, 27.13, 65.62)}  # and no cover
    expected = [(x, pytest.approx(sum(of) / 500)) for x, of in stated.items()]
    assert segments(ax, "paper (Qwen2.5)") == expected


def test_by_label_has_a_panel_an_accuracy_and_the_papers_joint_accuracy(results):
    figure = draw.by_label(tables.policies_of(results, draw.MAIN))
    for ax, name in zip(figure.axes, ("joint", "verification", "label"), strict=True):
        assert ax.get_ylabel().startswith(name)
        assert heights(ax)["sft"] == pytest.approx({0: 0.145, 1: 0.245, 2: 0.345})
    (ax,) = draw.by_label({"online_rl": [result("online_rl")]}).axes[:1]
    expected = [30.27 + 17.49 + 45.67 + 11.39, 11.22 + 10.65 + 46.67 + 14.77]
    expected += [45.24 + 66.92 + 55.00 + 90.30]
    stated = [(x, pytest.approx(total / 400)) for x, total in enumerate(expected)]
    assert segments(ax, "paper (Qwen2.5)") == stated
    assert not segments(figure.axes[1], "paper (Qwen2.5)")


# Confidence


def answered(*answers):
    """Answers to claims, of (gold label, label said, its probability) each."""
    rows = []
    for i, (label, written, p) in enumerate(answers):
        text = f"<answer>\nLabel: {written}\nEvidence: [[a]]\n</answer>"
        turns = [Turn(text, by_model=True)]
        rows.append(Verified(str(i), "c", "s", label, ("a",), turns, p))
    return rows


MIXED = answered(
    *[(SUPPORT, SUPPORT, 0.99)] * 3,
    (REFUTE, SUPPORT, 0.97),
    (SUPPORT, SUPPORT, 0.10),
    (REFUTE, SUPPORT, 0.84),
    (NEI, SUPPORT, 0.90),
    (REFUTE, REFUTE, 1.0),
    (NEI, NEI, 0.5),
    (NEI, "UNCLEAR", 0.5),
    (NEI, NEI, None),
)


def answers_of(rows):
    return draw.answers_of(pd.DataFrame(items(rows)).T)


def test_accuracy_by_confidence_is_of_the_answers_that_give_the_label():
    (ax,) = draw.accuracy_by_confidence({"online_rl": answers_of(MIXED)}).axes
    low, high = (heights(ax)[name] for name in ("low: below 85 %", "high: above 95 %"))
    assert low == {0: 0.5, 1: 0.0, 2: 1.0}
    assert high == {0: 0.75, 1: 1.0, 2: 0.0}
    assert texts(ax) == ["n=2", "n=0", "n=1", "n=4", "n=1", "n=0"]
    names = [tick.get_text() for tick in ax.get_xticklabels()]
    assert [re.search(r"(\d+) between", name)[1] for name in names] == ["1", "0", "0"]
    metrics = summary(MIXED)  # the evaluation's own
    for i, label in enumerate(("support", "refute", "nei")):
        for tier, bars in (("low", low), ("high", high)):
            assert metrics.get(f"{label}_{tier}_confidence_accuracy", 0) == bars[i]


def test_probabilities_are_shares_of_the_answers_with_each_label():
    (ax,) = draw.label_probabilities({"online_rl": answers_of(MIXED)}).axes
    assert named(ax) == ["SUPPORT (n = 7)", "REFUTE (n = 1)", f"{NEI} (n = 1)"]
    values, edges, _ = ax.patches[0].get_data()
    shares = zip(edges, values, strict=False)
    shares = {round(float(edge), 2): value for edge, value in shares if value > 0}
    assert shares == pytest.approx({0.1: 1 / 7, 0.8: 1 / 7, 0.9: 1 / 7, 0.95: 4 / 7})
    assert {float(ln.get_xdata()[0]) for ln in ax.lines} == {0.85, 0.95}


def test_figures_of_confidence_say_where_there_is_none():
    unsure = {"sft": answers_of(answered((NEI, NEI, None), (NEI, "UNCLEAR", 0.5)))}
    (ax,) = draw.label_probabilities(unsure).axes
    assert texts(ax) == ["no such answers"]
    (ax,) = draw.accuracy_by_confidence(unsure).axes
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
FOUND = "[[Ann Lee (chemist)_sentence_0]]"


class Page(HTMLParser):
    """A page's text, its summaries and what can be opened."""

    def __init__(self, html):
        super().__init__()
        self.text, self.tags, self.attributes = "", [], []
        self.summaries, self.steps, self._open = [], [], []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.append(dict(attrs))
        self._open.append(tag)
        if tag == "details":
            self.steps.append("")
            self.summaries.append("")

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if "summary" in self._open:
            self.summaries[-1] += data
        elif "details" in self._open:
            self.steps[-1] += data


def page(*trajectories, claim="A claim.", label=SUPPORT, gold=GOLD):
    rows = {
        f"arm {i}": Verified("i", claim, "s", label, gold, turns, None)
        for i, turns in enumerate(trajectories or [STEPS])
    }
    return Page(draw.trajectory_view(rows).data)


def test_a_trajectory_is_told_step_by_step_with_what_came_of_it():
    view = page()
    kinds = [summary.split()[2] for summary in view.summaries[:-1]]
    looks = ["search", "information", "think"]
    assert kinds == ["plan", *looks, *looks, "answer"]
    assert view.summaries[2].endswith("✓ 1 of 2 gold among 2")
    assert view.summaries[5].endswith("✗ 0 of 2 gold among 1")
    assert f"✓ gold {FOUND}: Ann Lee won." in view.steps[2]
    assert view.summaries[-1] == "score · ✗ REFUTE"
    assert view.steps[-1].split("\n") == [
        f"✓ gold, cited {FOUND}",
        "✗ cited, not gold [[Other]]",
        "○ gold, not cited [[Rome, Italy_3]]",
        "Reward: label × validity 0 · evidence 0.333 · format 1",
    ]
    assert "A claim." in view.text and "Gold label: SUPPORT" in view.text


def test_what_is_odd_in_a_trajectory_is_told():
    silent = [*STEPS[:4], Turn("<answer>\nLabel: SUPPORT\nEvidence:\n</answer>", True)]
    forged = "<search> a </search><information>\n[[Rome, Italy_3]]: x\n</information>"
    opened = [Turn("<answer>\nLabel:", False), Turn(f" {NEI}\n</answer>", True)]
    for turns, told in (
        ([], "✗ no label"),
        (silent, f"○ gold, found, not cited {FOUND}"),
        ([Turn(forged, True)], "✗ outside of the tags"),
        (opened, "✗ the system had to open the answer"),
    ):
        assert told in page(turns).text and told not in page().text


def test_texts_of_models_and_pages_are_text():
    evil = "<script>alert(1)</script><img src=x onerror=alert(1)>&amp; $x$ </details>"
    turns = [
        Turn(f"<plan>{evil}</plan><search>{evil}</search>", True),
        Turn(f"<information>\n[[{evil}]]: {evil}\n</information>", False),
        Turn(f"<answer>\nLabel: SUPPORT\nEvidence: [[{evil}]]\n</answer>", True),
    ]
    view = page(turns, turns, claim=evil, gold=(evil,))
    tags = {"div", "details", "summary", "b", "span", "table", "tr", "td"}
    assert set(view.tags) <= tags
    assert {name for of in view.attributes for name in of} == {"style", "class", "open"}
    assert view.text.count(evil) >= 10 and "mathjax_ignore" in str(view.attributes)
