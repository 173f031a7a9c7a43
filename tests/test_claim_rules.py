"""Untrained rules for long answers, by hand: what they leave out, and their gain."""

import json

import pytest

from factkit.answers import UNTRAINED_RULES, claim_rules, long_form, split_gain
from factkit.answers.engine import ExactEngine
from factkit.answers.long_form import CheckedResponse
from factkit.answers.sampling import ScoredSamples
from factkit.data.examples import Example
from factkit.facts.leads import facts as leads
from factkit.facts.leads.reader import LeadReader
from factkit.facts.source import Fact
from factkit.papers.reason import evaluate as reasoned
from factkit.report import ledger
from factkit.report import rules as stored_rules
from factkit.report.figures import arm_panels, tables
from factkit.run.results import write_results
from factkit.verify.claims import Claim
from factkit.verify.outcome import Support

RESULT = {  # of results.json
    **{"schema": 1, "paper": "rlfh", "profile": "tiny", "variant": "", "git": ""},
    **{"status": "done", "params": {}, "inputs": {}, "versions": {}, "wall_s": 1.0},
    **{"started": "", "device": "", "deviations": []},
}
S, C = Support.SUPPORTED, Support.CONTRADICTED
PRECISION = "factual_precision"


class Reader:
    """Reads "right born." as the true fact `born`, "wrong born." as a false one."""

    def sentences(self, text, about=""):
        return [f"{s.strip()}." for s in text.split(".") if s.strip()]

    def statements(self, sentence, about=""):
        return [sentence]

    def parse(self, statement):
        truth, relation = statement.rstrip(".").split(" ")
        return None if relation == "unread" else (Fact("x", relation, truth), False)

    def verify(self, statement):
        return "supported" if statement.startswith("right") else "contradicted"


def row(name, *sentences, **meta):
    supports = [S if s.startswith("right") else C for s in sentences]
    claims = [Claim(s, s) for s in sentences]
    return CheckedResponse(name, "Who?", " ".join(sentences), claims, supports, meta)


def engine(*ids, short=()):
    meta = {"question": "Who?", "answers": ["x"], "entity": "x"}
    examples = {i: Example(id=i, **meta) for i in ids}
    examples |= {i: Example(id=i, relation="job", **meta) for i in short}
    return ExactEngine(Reader(), examples)


BASE = [
    row("a", "right job.", "wrong born."),
    row("b", "wrong born.", "wrong job."),
    row("c", "wrong born."),
    row("d"),
    CheckedResponse("e", "Who?", "text", None, []),
]
TRAINING = [("t", "right job. wrong born. wrong unread."), ("u", "right job.")]


def test_relations_are_judged_by_training_requests_alone():
    known = engine("t", "u", "v", short=["q"])
    right = claim_rules.relations_mostly_right(known, TRAINING)
    assert right == {"job"}
    half = [*TRAINING, ("v", "wrong job.")]  # two thirds: one claim a wording
    assert claim_rules.relations_mostly_right(known, half) == {"job"}
    even = [("t", "right job."), ("u", "wrong job."), ("q", "right born.")]
    assert claim_rules.relations_mostly_right(known, even) == set()


def test_the_relation_rule_drops_the_claims_of_other_relations():
    rows = claim_rules.relation_rule(BASE, {"job"}, Reader())
    assert [r.response for r in rows] == ["right job.", "wrong job.", "", "", "text"]
    assert [r.supports for r in rows[:3]] == [[S], [C], []]
    assert rows[4].claims is None  # a failed extraction is no abstention


def test_the_first_claim_rule_keeps_one_claim():
    rows = claim_rules.first_claim(BASE)
    assert [r.supports for r in rows] == [[S], [C], [C], [], []]
    assert rows[2:] == BASE[2:]


@pytest.mark.assets
def test_the_century_rule_states_one_century_for_the_years_of_a_life():
    reader = LeadReader(leads.load())
    ada = row(
        "a",
        "Ada Lovelace was born in 1815.",
        "Ada Lovelace died in 1790.",
        "Ada Lovelace is a British mathematician.",
        "Ada Lovelace liked poems.",
    )
    (after,) = claim_rules.century_rule([ada], reader)
    assert [c.text for c in after.claims] == [
        "Ada Lovelace lived in the 19th century.",
        "Ada Lovelace was British.",
        "Ada Lovelace was a mathematician.",
    ]
    assert after.supports == [S, S, S]
    silent, failed = claim_rules.century_rule(BASE[3:], reader)
    assert (silent.claims, failed.claims) == ([], None)


SAMPLES = [
    ScoredSamples("c", ["wrong born.", "right born."]),  # in another order
    ScoredSamples("a", ["right job.", "right job.", "wrong job.", "no unread."]),
    ScoredSamples("b", ["right born. wrong job.", "right born.", "wrong job."]),
    ScoredSamples("d", ["right job."]),
    ScoredSamples("e", ["right job."]),
]


def test_agreement_is_the_share_of_the_samples_that_speak_of_the_same_point():
    known = engine(*"abcde")
    agreement = claim_rules.measure_agreement(BASE, SAMPLES, known)
    assert agreement == [
        [pytest.approx(2 / 3), 0.0],  # one can't be read; none says when born
        [0.0, 1.0],
        [0.5],
        [],
        [],
    ]
    unread = [row("d", "right unread.")]
    assert claim_rules.measure_agreement(unread, SAMPLES, known) == [[0.0]]
    with pytest.raises(KeyError):
        claim_rules.measure_agreement([row("z", "right job.")], SAMPLES, known)


def test_the_consistency_rule_keeps_what_most_samples_agree_on():
    measured = claim_rules.score_consistency(BASE, SAMPLES, engine(*"abcde"))
    assert measured["consistency_rule_response_rate"] == pytest.approx(2 / 4)
    assert measured[f"consistency_rule_{PRECISION}"] == pytest.approx((1 + 0) / 2)
    correct, other = claim_rules.CURVE[:2]
    assert measured[f"consistency_0.9_{correct}"] == 0.0
    assert measured[f"consistency_0.9_{other}"] == pytest.approx(1 / 4)
    assert measured[f"consistency_0.4_{other}"] == pytest.approx(2 / 4)  # half of two


def test_the_gain_of_a_rule_has_two_parts():
    before = long_form.scores(BASE)
    assert before[PRECISION] == pytest.approx((0.5 + 0 + 0) / 3)
    rules = claim_rules.score_rules(BASE, engine("t", "u"), TRAINING)
    assert list(rules) == ["relation_rule", "first_claim"]
    by_relation = rules["relation_rule"]
    assert by_relation[PRECISION] == pytest.approx((1 + 0) / 2)
    assert by_relation["response_rate"] == pytest.approx(2 / 4)
    parts = split_gain(by_relation, before, PRECISION)
    assert parts == pytest.approx(  # of a and b, which both have claims left
        {"change": 1 / 3, "same answered": 0.5 - 0.25, "by silence": 1 / 3 - 0.25}
    )
    first = split_gain(rules["first_claim"], before, PRECISION)
    assert first["by silence"] == pytest.approx(0)
    assert first["change"] == pytest.approx(1 / 3 - 0.5 / 3)
    assert "relation_rule" not in claim_rules.score_rules(BASE)  # facts not known


def test_a_rule_that_silences_all_answers_has_no_gain():
    rules = claim_rules.score_rules(BASE, engine("t"), [("t", "wrong job.")])
    assert rules["relation_rule"]["response_rate"] == 0
    before = long_form.scores(BASE)
    assert split_gain(rules["relation_rule"], before, PRECISION) == {}


def test_papers_that_average_over_sets_do_so_for_the_rules():
    base = [row(i, "right job.", "wrong born.", set="large") for i in "abc"]
    base += [row("d", "wrong born.", "right job.", set="small")]
    first = claim_rules.score_rules(base, items_of=reasoned.set_items)["first_claim"]
    assert first[PRECISION] == pytest.approx((1 + 0) / 2)


# ---- in tables


def stored(folder, arm, metrics):
    return {"arm": arm, "seed": 0, "folder": str(folder), "metrics": metrics}


def test_rules_have_rows_in_the_tables_of_results(tmp_path):
    scores = long_form.scores(BASE)
    before = {f"before_{k}": v for k, v in scores.items()}
    rules = claim_rules.score_rules(BASE, engine("t", "u"), TRAINING)
    flat = {f"{rule}_{k}": v for rule, m in rules.items() for k, v in m.items()}
    results = [stored(tmp_path, "base", scores | before | flat)]
    table = tables.results_table(results, [PRECISION, "win_rate"])
    assert list(table.index) == ["base", *map(UNTRAINED_RULES.get, rules)]
    assert list(table[PRECISION]) == ["16.7", "50.0", "33.3"]
    gains = ledger.same_answered("rlfh", results, PRECISION)
    assert list(gains.loc["relation rule (untrained)"]) == [
        "base",
        "+33.3",
        "+25.0",
        "+8.3",
        "75",
        "50",
    ]


def test_a_page_adds_the_first_claim_of_the_samples_where_no_run_stored_it(tmp_path):
    base = BASE[:4]
    long_form.write_samples(tmp_path / "samples.jsonl", base, base)
    before = {f"before_{k}": v for k, v in long_form.scores(base).items()}
    given = [stored(tmp_path, "statement", before)]
    (rule,) = tables.rule_results(stored_rules.add_claim_rules(given))
    assert (rule["arm"], rule["metrics"][PRECISION]) == (
        "first claim (untrained)",
        pytest.approx(1 / 3),
    )
    other = before | {f"before_{PRECISION}": 0.3}  # not the mean of these answers
    short = tmp_path / "short"
    short.mkdir()
    (short / "samples.jsonl").write_text(json.dumps({"before": "Ada"}), "utf-8")
    for results in (
        [stored(tmp_path, "statement", other)],
        [stored(tmp_path / "none", "statement", before)],
        [stored(short, "ternary", {"accuracy": 1.0})],
    ):
        assert stored_rules.add_claim_rules(results) == results


def test_tables_have_the_consistency_rule_of_the_run_that_gave_the_base_answers(
    tmp_path,
):
    measured = claim_rules.score_consistency(BASE, SAMPLES, engine(*"abcde"))
    data = tmp_path / "tiny" / "40_rlfh_data" / "main-s0"
    trained = tmp_path / "tiny" / "42_rlfh_train" / "base-s0"
    run = {**stored(trained, "base", {}), "paper": "rlfh"}
    run["inputs"] = {"references.json": "another"}
    assert tables.add_consistency_rule([run]) == [run]  # no run of the notebook
    data.mkdir(parents=True)
    data.joinpath("references.json").write_text("{}", "utf-8")
    head = {"notebook": "40_rlfh_data", "arm": "main", "seed": 0, "metrics": measured}
    content = write_results(data, RESULT | head)
    assert tables.add_consistency_rule([run]) == [run]  # of other answers
    run["inputs"] = {f"{data}/{k}": v for k, v in content["files"].items()}
    (shown,) = tables.rule_results(tables.add_consistency_rule([run]))
    assert shown["arm"] == "consistency rule (untrained)"
    assert shown["metrics"][PRECISION] == measured[f"consistency_rule_{PRECISION}"]


def test_the_front_draws_the_rule_as_a_line_and_each_arm_as_a_mark():
    measured = claim_rules.score_consistency(BASE, SAMPLES, engine(*"abcde"))
    groups = {"base": [{"metrics": long_form.scores(BASE)}], "dpo": [{"metrics": {}}]}
    (ax,) = arm_panels.claims_front(groups, measured).axes
    line, *marks = ax.lines
    assert line.get_xdata()[0] == measured[f"consistency_0.0_{claim_rules.CURVE[1]}"]
    assert len(line.get_xdata()) == len(claim_rules.THRESHOLDS)
    assert [(*m.get_xdata(), *m.get_ydata()) for m in marks] == [(1.0, 0.25)]
    (without,) = arm_panels.claims_front(groups, {}).axes
    assert len(without.lines) == 1
