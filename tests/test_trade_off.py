"""Hallucination against utility: each metric against a calculation by hand."""

from dataclasses import replace

import pytest

from factkit import models, params
from factkit.datasets import world_prompts as wp
from factkit.datasets.examples import DataError
from factkit.evaluate.long_form import Checked
from factkit.rar import trade_off, utility
from factkit.rar.arms import BENCHMARKS
from factkit.rar.trade_off import (
    Answers,
    answer,
    benchmarks,
    by_exposure,
    measure,
    stopped_at,
    wins,
)
from factkit.verify import judge, verifier
from factkit.verify.claims import Claim, Support
from factkit.verify.exact import ExactEngine, WorldReader
from factkit.verify.replies import Verdict
from factkit.world import facts as w

YES, NO, OPEN = Support.SUPPORTED, Support.CONTRADICTED, Support.INCONCLUSIVE
WORLD = w.build_world(3, people=30)
MEAN = {p: sum(f.exposure for f in WORLD.facts_of(p)) / 4 for p in WORLD.people}
FAMILIAR = [p for p in WORLD.people if MEAN[p] >= trade_off.FAMILIAR]
A, B, C = PEOPLE = FAMILIAR[:3]
STRANGER = min(WORLD.people, key=MEAN.get)
ABSTENTION = f"{w.ABSTENTION}."


def requests(kind, people=PEOPLE):
    found = wp.requests(WORLD, people, kind)
    return [e for e in found if kind != wp.OPEN or e.id.endswith("0")]


def true(person, n):
    return " ".join(w.statement(fact) for fact in WORLD.facts_of(person)[:n])


def false(person, place):
    fact = WORLD.facts_of(person)[place]
    return w.statement(replace(fact, object=no(fact)))


def no(fact):
    return next(o for o in w.OBJECTS[fact.relation] if o != fact.object)


def silent(person):
    """A statement about the attribute that the person lacks."""
    lacks = next(r for r in w.PERSON_RELATIONS if (person, r) not in WORLD.by_key)
    return w.statement(w.Fact(person, lacks, w.OBJECTS[lacks][0]))


EXAMPLES = [
    *requests(wp.OPEN),
    *requests(wp.MAY_ABSTAIN, [A]),
    *requests(wp.BEST_GUESS, [A]),
    *requests(wp.COUNTED),  # they want one, two and three facts
]
FACTS = WORLD.facts_of(A)
LONG = {
    f"{A} open 0": f"{true(A, 2)} {false(A, 2)}",
    f"{B} open 0": ABSTENTION,
    f"{C} open 0": f"{true(C, 1)} {silent(C)}",
}
SHORT = [FACTS[0].object, f"{FACTS[1].object}.", "I don't know.", no(FACTS[3])]
GUESSES = [FACTS[0].object, no(FACTS[1]), no(FACTS[2]), no(FACTS[3])]
COUNTED = [true(A, 1), f"{true(B, 1)} Nobody knows.", true(C, 2)]
OURS = Answers(
    LONG
    | dict(zip([f"{A} {f.relation} may_abstain" for f in FACTS], SHORT, strict=True))
    | dict(zip([f"{A} {f.relation} best_guess" for f in FACTS], GUESSES, strict=True))
    | dict(zip([f"{p} counted 0" for p in PEOPLE], COUNTED, strict=True)),
    12.5,
)
BASE = Answers(
    {f"{A} open 0": true(A, 1), f"{B} open 0": "", f"{C} open 0": true(C, 4)}, 9.0
)


@pytest.fixture
def p():
    return params.load("rar", "tiny")


@pytest.fixture
def engine():
    return ExactEngine(WorldReader(WORLD), {e.id: e for e in EXAMPLES})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "claims.jsonl"


# Measuring


def test_each_metric_is_what_a_calculation_by_hand_gives(p, engine, path):
    found = measure(EXAMPLES, OURS, BASE, engine, p, path).metrics
    words = sum(len(text.split()) for text in LONG.values()) / 3
    assert found == pytest.approx(
        {
            # A: two of three claims supported, one contradicted; B: no claim; C: one
            # of two supported, one inconclusive
            "correct_claims": (2 + 1) / 2,
            "incorrect_claims": (1 + 1) / 2,
            "contradicted_claims": (1 + 0) / 2,
            "total_claims": (3 + 2) / 2,
            "correct_claims_per_question": (2 + 0 + 1) / 3,
            "incorrect_claims_per_question": (1 + 0 + 1) / 3,
            "contradicted_claims_per_question": (1 + 0 + 0) / 3,
            "total_claims_per_question": (3 + 0 + 2) / 3,
            "response_rate": 2 / 3,
            "words": words,
            "factual_precision": (2 / 3 + 1 / 2) / 2,
            "hallucination_rate": 1 - (2 / 3 + 1 / 2) / 2,
            "claim_precision": 3 / 5,
            "extraction_failures": 0,
            "verification_failures": 0,
            "may_abstain_failures": 0,
            "best_guess_failures": 0,
            # right, right, abstains, wrong
            "short_accuracy": 2 / 4,
            "short_abstention": 1 / 4,
            "short_hallucination": 1 / 4,
            "short_truthfulness": 2 / 4 - 1 / 4,
            # right, and three wrong
            "best_guess_accuracy": 1 / 4,
            # one of one, two of two, two of three sentences
            "format_following": 2 / 3,
            # quality: 8 (three relations of four) over 2, 0 over 0, 5 under 10
            "win_rate": (1 + 0.5 + 0) / 3,
            "perplexity": 12.5,
        }
    )


def test_form_and_preference_are_those_of_people_read_of(p, engine, path):
    """What a policy never read of, it may well abstain on."""
    asked = [*requests(wp.OPEN, [STRANGER]), *requests(wp.COUNTED, [STRANGER])]
    said = dict.fromkeys([e.id for e in asked], "")
    best = {asked[0].id: w.biography(WORLD, STRANGER)}
    more = [*EXAMPLES, *asked]
    found = measure(
        more,
        Answers(OURS.texts | said, 1.0),
        Answers(BASE.texts | best, 1.0),
        ExactEngine(WorldReader(WORLD), {e.id: e for e in more}),
        p,
        path,
    ).metrics
    assert found["format_following"] == pytest.approx(2 / 3)
    assert found["win_rate"] == pytest.approx(0.5)
    assert found["response_rate"] == pytest.approx(2 / 4)


def test_of_strangers_alone_neither_form_nor_preference_is_measured(p, path):
    kinds = (wp.OPEN, wp.MAY_ABSTAIN, wp.BEST_GUESS, wp.COUNTED)
    asked = [e for kind in kinds for e in requests(kind, [STRANGER])]
    said = Answers({e.id: ABSTENTION for e in asked}, 1.0)
    engine = ExactEngine(WorldReader(WORLD), {e.id: e for e in asked})
    found = measure(asked, said, said, engine, p, path).metrics
    assert not {"format_following", "win_rate"} & set(found)
    assert stopped_at(found, {10: found, 20: found}, p) == 20


def test_kept_claims_are_read_again_and_those_of_another_policy_refused(
    p, engine, path
):
    first = measure(EXAMPLES, OURS, BASE, engine, p, path)
    before = path.stat().st_mtime_ns
    assert measure(EXAMPLES, OURS, BASE, engine, p, path) == first
    assert path.stat().st_mtime_ns == before
    whole = Answers(OURS.texts | BASE.texts, 9.0)
    with pytest.raises(DataError, match="holds other prompts or responses"):
        measure(EXAMPLES, whole, BASE, engine, p, path)


def test_where_all_abstain_there_is_no_precision_and_no_hallucination(p, engine, path):
    silent = Answers(dict.fromkeys(OURS.texts, ABSTENTION), 1.0)
    found = measure(EXAMPLES, silent, BASE, engine, p, path).metrics
    names = {"factual_precision", "hallucination_rate", "claim_precision"}
    assert not names & set(found)
    assert (found["response_rate"], found["short_abstention"]) == (0, 1)


class Searched(ExactEngine):
    """The exact engine, with a search that notes how many chunks it is asked for."""

    asked: list[int] = []

    @property
    def reader(self):
        extract, _, verify = super().reader

        def search(prompt_id, query, k):
            self.asked.append(k)
            return []

        return extract, search, verify


def test_claims_are_held_against_as_many_chunks_as_the_parameter_says(p, path):
    some = p.model_copy(update={"test_chunks": 7})
    engine = Searched(WorldReader(WORLD), {e.id: e for e in EXAMPLES})
    measure(EXAMPLES, OURS, BASE, engine, some, path)
    assert set(engine.asked) == {7}


def test_under_a_judge_form_is_that_of_the_form_prompts(judged, engine, path):
    p, _ = judged
    without = [e for e in EXAMPLES if e.meta["kind"] != wp.COUNTED]
    found = measure(without, Answers(OURS.texts | FORMED, 1.0), BASE, engine, p, path)
    kept = utility.keeps_form(utility.FORM_PROMPTS, list(FORMED.values()))
    assert found.metrics["format_following"] == sum(kept) / len(kept) > 0
    assert found.items[utility.FORM_PROMPTS[0].id] == {"format_following": kept[0]}


REASONING = f"{w.statement(FACTS[0])} Or is it {no(FACTS[1])}? I don't know."


def thinking(of, form):
    """The answers, each after a reasoning that names other answers and abstains."""
    texts = {i: form.format(REASONING, text) for i, text in of.texts.items()}
    return Answers(texts, of.perplexity)


# the last: the chat template wrote the `<think>`
@pytest.mark.parametrize("form", ["<think>{}</think>\n\n{}", "{}\n</think>\n\n{}"])
def test_reasoning_changes_no_metric_and_no_item(p, engine, tmp_path, form):
    plain = measure(EXAMPLES, OURS, BASE, engine, p, tmp_path / "plain.jsonl")
    ours, base = thinking(OURS, form), thinking(BASE, form)
    found = measure(EXAMPLES, ours, base, engine, p, tmp_path / "reasoned.jsonl")
    assert found == plain
    assert found.metrics["short_accuracy"] == 2 / 4  # it was 0: the line `<think>`


def test_reasoning_that_is_cut_off_gives_no_answer(p, engine, path):
    cut = thinking(OURS, "<think>{} {}")
    found = measure(EXAMPLES, cut, BASE, engine, p, path).metrics
    assert (found["response_rate"], found["words"]) == (0, 0)
    assert found["short_hallucination"] == 1
    assert found["best_guess_accuracy"] == found["format_following"] == 0


# Items


def test_the_items_means_are_the_metrics(p, engine, path):
    """By the rule of items.csv: claim_precision is weighted by total_claims."""
    found = measure(EXAMPLES, OURS, BASE, engine, p, path)
    for name in trade_off.COMPARED:
        rows = [item for item in found.items.values() if name in item]
        weighted = name == "claim_precision"
        weights = [of["total_claims"] if weighted else 1 for of in rows]
        total = sum(of[name] * n for of, n in zip(rows, weights, strict=True))
        assert found.metrics[name] == pytest.approx(total / sum(weights)), name


def test_an_item_has_what_it_counts_in(p, engine, path):
    found = measure(EXAMPLES, OURS, BASE, engine, p, path).items
    assert found[f"{A} {FACTS[2].relation} may_abstain"] == {
        "short_accuracy": 0,
        "short_hallucination": 0,
        "short_abstention": 1,
        "short_truthfulness": 0,
    }
    assert found[f"{A} {FACTS[0].relation} best_guess"] == {"best_guess_accuracy": 1}
    refused = found[f"{B} open 0"]
    assert not {"hallucination_rate", "claim_precision", "total_claims"} & set(refused)
    assert refused["win_rate"] == 0.5 and refused["total_claims_per_question"] == 0


# A judge

FORMED = {form.id: "hello" for form in utility.FORM_PROMPTS}


@pytest.fixture
def judged(monkeypatch):
    """Parameters with a judge of outcomes, who takes "so" for right; what it read."""
    read = []

    def outcomes(llm, rows, template=""):
        read.extend(rows)
        values = {"so": 1.0, "failed": None}
        return [Verdict(values.get(said, 0.0), "") for _, _, said in rows]

    monkeypatch.setattr(judge, "judge_outcomes", outcomes)
    monkeypatch.setattr(verifier, "judge_llm", lambda *_: None)
    p = params.load("rar", "tiny", {"verifier": "judge", "judge_model": "m"})
    return p, read


def test_under_a_judge_the_judge_decides_short_answers(judged, engine, path):
    """App. B.2. By rules "so" is wrong, and the right object correct."""
    p, read = judged
    says = ["<think>hm</think> so", "I don't know", FACTS[2].object, "so"]
    ids = [f"{A} {f.relation} may_abstain" for f in FACTS]
    texts = FORMED | OURS.texts | dict(zip(ids, says, strict=True))
    found = measure(EXAMPLES, Answers(texts, 1.0), BASE, engine, p, path).metrics
    rates = [found[f"short_{k}"] for k in ("accuracy", "hallucination", "abstention")]
    assert rates == [2 / 4, 1 / 4, 1 / 4]
    assert found["best_guess_accuracy"] == 0
    assert [said for _, _, said in read[:3]] == ["so", FACTS[2].object, "so"]


def test_a_judge_that_fails_on_short_answers_fails_the_run(judged, engine, path):
    p, _ = judged
    texts = OURS.texts | {f"{A} {f.relation} best_guess": "failed" for f in FACTS}
    with pytest.raises(ValueError, match="judge_failures: 100.0%"):
        measure(EXAMPLES, Answers(texts, 1.0), BASE, engine, p, path)


# Utility


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (["a.", "a. b.", "a. b. c."], 1.0),
        (["a. b.", "a. b.", "a. b."], 1 / 3),
        (["a", "a. b", "a. b. c"], 1.0),  # the last one without its full stop
        (["", "", ""], 0.0),
    ],
)
def test_form_is_followed_with_as_many_sentences_as_wanted(
    p, engine, path, said, expected
):
    asked = requests(wp.COUNTED)
    texts = {e.id: text for e, text in zip(asked, said, strict=True)}
    answers = Answers(OURS.texts | texts, 1.0)
    found = measure(EXAMPLES, answers, BASE, engine, p, path).metrics
    assert found["format_following"] == pytest.approx(expected)


class Judge:
    """In place of an engine: a quality for each text."""

    def __init__(self, quality):
        self.of = quality

    def quality(self, ids, prompts, responses):
        return [self.of[text] for text in responses]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ((9, 9, 9), (1, 1, 1), [1, 1, 1]),
        ((1, 1, 1), (9, 9, 9), [0, 0, 0]),
        ((6, 5, 4), (5, 5, 5), [1, 0.5, 0]),
        # a pair that the judge failed on is left out
        ((6, None, 4), (5, 1, 5), [1, None, 0]),
        ((6, 6, 4), (5, None, 5), [1, None, 0]),
        ((None, None, 4), (5, 5, None), [None, None, None]),
    ],
)
def test_a_tie_is_half_a_win_and_a_failure_none(ours, theirs, expected):
    asked = requests(wp.OPEN)
    judge = Judge(
        {f"our {i}": q for i, q in enumerate(ours)}
        | {f"their {i}": q for i, q in enumerate(theirs)}
    )
    said, base = (
        Answers({e.id: f"{whose} {i}" for i, e in enumerate(asked)}, 1.0)
        for whose in ("our", "their")
    )
    found = wins(asked, said, base, judge)
    assert [found.get(e.id) for e in asked] == expected


# Stopping


def utilities(guess, form=1.0, win=None):
    found = {"best_guess_accuracy": guess, "format_following": form}
    return found | ({} if win is None else {"win_rate": win})


@pytest.mark.parametrize(
    ("trajectory", "expected"),
    [
        ({10: utilities(0.5), 20: utilities(0.5), 30: utilities(0.5)}, 30),
        # 0.45 is just 10 % below, 0.44 is more
        ({10: utilities(0.5), 20: utilities(0.45), 30: utilities(0.44)}, 20),
        ({10: utilities(0.5), 20: utilities(0.5, 0.89), 30: utilities(0.5)}, 10),
        # what falls and comes back has fallen
        ({10: utilities(0.5), 20: utilities(0.1), 30: utilities(0.9)}, 10),
        ({10: utilities(0.1), 20: utilities(0.5)}, 10),
        ({120: utilities(0.1)}, 120),
        # a rise in one makes no good for a fall in another
        ({10: utilities(0.5), 20: utilities(0.9, 0.8)}, 10),
    ],
)
def test_the_policy_kept_is_the_last_before_a_drop_of_utility(p, trajectory, expected):
    assert stopped_at(utilities(0.5), trajectory, p) == expected


def test_the_win_rate_counts_where_there_is_one(p):
    before = utilities(0.5, win=0.5)
    trajectory = {10: utilities(0.5, win=0.6), 20: utilities(0.5, win=0.4)}
    assert stopped_at(before, trajectory, p) == 10
    assert stopped_at(utilities(0.5), trajectory, p) == 20


def test_training_stops_at_the_loss_of_any_benchmark_that_is_named(p):
    """App. C: any utility benchmark, lm-eval's among them; and of no other."""
    before = utilities(0.5, win=0.5) | {"gsm8k": 0.9}
    lost = utilities(0.5, win=0.1) | {"gsm8k": 0.8}
    some = p.model_copy(update={"utility_benchmarks": "gsm8k best_guess_accuracy"})
    both = {10: before, 20: utilities(0.5, win=0.1) | {"gsm8k": 0.85}, 30: lost}
    assert stopped_at(before, both, some) == 20
    assert stopped_at(before, both, p) == 10


def test_the_public_benchmarks_named_are_run_by_lm_eval(p, monkeypatch, tmp_path):
    asked = {}

    def run(policy, names, folder, **more):
        asked.update(more, policy=policy, names=names)
        return {name: 0.5 for name in names} | {"gsm8k_stderr": 0.1}

    monkeypatch.setattr(trade_off.suites, "run", run)
    assert benchmarks("policy", p, tmp_path) == {} == asked
    names = {"utility_benchmarks": "win_rate gsm8k mbpp_plus", "allow_code": True}
    some = p.model_copy(update=names)
    assert benchmarks("policy", some, tmp_path) == {"gsm8k": 0.5, "mbpp_plus": 0.5}
    assert asked["names"] == ["gsm8k", "mbpp_plus"] and asked["allow_code"]
    assert asked["model_args"]["think_end_token"] == "</think>"
    assert asked["gen_kwargs"] == {"max_gen_toks": p.max_completion_length}


def test_a_training_is_told_by_its_halves(p, engine, tmp_path):
    """With their items, so that the ledger can compare them."""

    def at(name, answers):
        return measure(EXAMPLES, answers, BASE, engine, p, tmp_path / name)

    before, ours = at("b", Answers(OURS.texts | BASE.texts, 9.0)), at("o", OURS)
    found = trade_off.halves(before, {15: before, 30: ours, 45: before, 60: before})
    name = "hallucination_rate"
    assert found.metrics[f"halfway_{name}"] == ours.metrics[name]
    assert found.metrics[f"end_{name}"] == found.metrics[f"dev_base_{name}"] == 0
    assert found.items[f"{A} open 0"] == {
        "dev_base_hallucination_rate": 0.0,
        "dev_base_win_rate": 0.5,
        "halfway_hallucination_rate": pytest.approx(1 / 3),
        "halfway_win_rate": 1.0,
        "end_hallucination_rate": 0.0,
        "end_win_rate": 0.5,
    }
    two = trade_off.halves(before, {12: ours, 24: before})
    assert two.metrics[f"halfway_{name}"] == ours.metrics[name]
    assert not trade_off.halves(before, {0: before}).metrics


def test_benchmarks_are_checked_before_anything_runs():
    assert set(BENCHMARKS) == set(trade_off.suites.SUITES)
    ran = {name for name, s in trade_off.suites.SUITES.items() if s.runs_code}
    for names, said in [
        ("gsm8k mmlu", "mmlu; there are best_guess"),
        ("", "none named"),
        *((name, f"{name} runs code.*allow_code=true") for name in sorted(ran)),
    ]:
        with pytest.raises(params.ParamError, match=said):
            params.load("rar", "tiny", {"utility_benchmarks": names})


# By exposure


def checked(exposure, *supports):
    claims = [Claim(str(i), "s") for i in range(len(supports))]
    return Checked("i", "p", "r", claims, list(supports), {"exposure": exposure})


def test_a_request_is_in_the_bin_that_reaches_to_below_the_next():
    for exposure, edge in ((0, 0), (3, 1), (4, 4), (9, 4), (39, 10), (40, 40)):
        assert list(by_exposure([checked(exposure, YES)])) == [edge]


def test_a_bin_has_the_scores_of_its_requests_and_their_number():
    rows = [checked(50, YES, YES), checked(0, NO), checked(0, YES, OPEN), checked(2)]
    found = by_exposure(rows)
    assert list(found) == [0, 1, 40]
    assert [found[edge]["n"] for edge in found] == [2, 1, 1]
    counts = [of["correct_claims_per_question"] for of in found.values()]
    assert counts == [0.5, 0, 2]
    assert found[0]["factual_precision"] == pytest.approx((0 / 1 + 1 / 2) / 2)
    assert "factual_precision" not in found[1]


# Answering


@pytest.fixture
def policy(monkeypatch):
    """In place of a model; how often it was loaded."""
    loaded = []

    def load(path, dtype):
        loaded.append(path)
        return "model", "tokenizer"

    def sample(model, tokenizer, asked, sampling, progress=""):
        assert sampling.temperature == 0
        return [[f"to {text}"] for text in asked]

    monkeypatch.setattr(models, "load_policy", load)
    monkeypatch.setattr(models, "sample", sample)
    monkeypatch.setattr(utility, "perplexity", lambda *_: 3.5)
    return loaded


def test_a_policy_answers_once_and_then_its_kept_answers_are_read(p, policy, tmp_path):
    path = tmp_path / "base.json"
    first = answer("folder", EXAMPLES, ["text"], p, path)
    assert first.perplexity == 3.5
    assert first.texts == {
        e.id: f"to Question: {e.question}\nAnswer:" for e in EXAMPLES
    }
    assert answer("folder", EXAMPLES, ["text"], p, path) == first
    assert policy == ["folder"]


def test_under_a_judge_the_form_prompts_are_asked_too(p, policy, tmp_path):
    other = p.model_copy(update={"verifier": "judge"})
    found = answer("folder", EXAMPLES, ["text"], other, tmp_path / "base.json")
    forms = {form.id: form.prompt for form in utility.FORM_PROMPTS}
    assert set(found.texts) == {e.id for e in EXAMPLES} | set(forms)
    for i, prompt in forms.items():
        assert found.texts[i] == f"to Question: {prompt}\nAnswer:"


def test_an_answering_that_breaks_off_keeps_nothing(p, policy, tmp_path, monkeypatch):
    def breaks(*_):
        raise MemoryError

    monkeypatch.setattr(trade_off.utility, "perplexity", breaks)
    path = tmp_path / "base.json"
    with pytest.raises(MemoryError):
        answer("folder", EXAMPLES, ["text"], p, path)
    assert not path.exists()
