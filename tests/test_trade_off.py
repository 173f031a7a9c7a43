"""Hallucination against utility: each metric against a calculation by hand."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from fake_policy import FakePolicy

from factkit.answers import long_form, verifier
from factkit.answers.engine import ExactEngine
from factkit.answers.items import compare_answers
from factkit.answers.long_form import CheckedResponse, exposure_metrics
from factkit.data import examples as wp
from factkit.data.examples import BEST_GUESS
from factkit.facts.world import facts as w
from factkit.papers.rar import evaluate as trade_off
from factkit.papers.rar.evaluate import Answers, answer
from factkit.run import params
from factkit.verify import judge
from factkit.verify.claims import Claim, Support

YES, NO, OPEN = Support.SUPPORTED, Support.CONTRADICTED, Support.INCONCLUSIVE
WORLD = w.build_world(3, people=30)
MEAN = {p: sum(f.exposure for f in WORLD.facts_of(p)) / 4 for p in WORLD.people}
FAMILIAR = [p for p in WORLD.people if MEAN[p] >= trade_off.FAMILIAR]
A, B, C = PEOPLE = FAMILIAR[:3]
STRANGER = min(WORLD.people, key=MEAN.get)
ABSTENTION = f"{w.ABSTENTION}."


def requests(kind, people=PEOPLE):
    found = WORLD.requests(people, kind)
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
    *requests(BEST_GUESS, [A]),
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


def measure(examples, answers, base, engine, p, path):
    rows = [e for e in examples if e.meta["kind"] == wp.OPEN]
    texts = [answers.texts[e.id] for e in rows]
    checked = long_form.evaluate(rows, texts, engine.reader, path)
    verify = verifier.verifier(p)
    return trade_off.measure(examples, answers, base, engine, verify, checked)


@pytest.fixture
def p():
    return params.load("rar", "tiny")


@pytest.fixture
def engine():
    return ExactEngine(WORLD, {e.id: e for e in EXAMPLES})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "claims.jsonl"


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
            "precision_at_1": (1 + 1) / 2,
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
        ExactEngine(WORLD, {e.id: e for e in more}),
        p,
        path,
    ).metrics
    assert found["format_following"] == pytest.approx(2 / 3)
    assert found["win_rate"] == pytest.approx(0.5)
    assert found["response_rate"] == pytest.approx(2 / 4)
    rows = [*asked, *(e for e in EXAMPLES if e.relation)]
    alone = measure(
        rows,
        Answers(OURS.texts | said, 1.0),
        Answers(said, 1.0),
        ExactEngine(WORLD, {e.id: e for e in rows}),
        p,
        path.with_name("alone.jsonl"),
    ).metrics
    assert not {"format_following", "win_rate"} & set(alone)


def test_a_request_of_a_public_set_stands_under_its_name_alone(p, engine, path):
    def public(examples, name, **update):
        meta = [{"meta": {**e.meta, "set": name}} | update for e in examples]
        pairs = zip(examples, meta, strict=True)
        return [e.model_copy(update=more) for e, more in pairs]

    first, *others = requests(wp.OPEN)
    lettered = public(requests(wp.MAY_ABSTAIN, [A]), "gpqa", answers=["B"])
    examples = [*others, *public([first], "biography"), *lettered]
    letters = ["(B), not (A)", "I don't know", "A", "The answer is B."]
    texts = zip([e.id for e in lettered], letters, strict=True)
    answers = Answers({**OURS.texts, **dict(texts)}, 12.5)
    found = measure(examples, answers, BASE, engine, p, path)
    told = found.metrics
    assert told["biography_hallucination_rate"] == pytest.approx(1 / 3)
    assert told["hallucination_rate"] == told["claim_precision"] == 0.5  # C's alone
    gpqa = {k: told[f"gpqa_short_{k}"] for k in ("accuracy", "hallucination")}
    assert gpqa == {"accuracy": 0.5, "hallucination": 0.25}
    assert told["gpqa_short_abstention"] == 0.25 and "short_accuracy" not in told
    assert not any("win_rate" in name for name in found.items[first.id])
    assert found.items[lettered[0].id]["gpqa_short_accuracy"] == 1.0


def test_where_all_abstain_there_is_no_precision_and_no_hallucination(p, engine, path):
    silent = Answers(dict.fromkeys(OURS.texts, ABSTENTION), 1.0)
    found = measure(EXAMPLES, silent, BASE, engine, p, path).metrics
    names = {"factual_precision", "hallucination_rate", "claim_precision"}
    assert not names & set(found)
    assert (found["response_rate"], found["short_abstention"]) == (0, 1)


REASONING = f"{w.statement(FACTS[0])} Or is it {no(FACTS[1])}? I don't know."


def thinking(answers, form):
    """The answers, each after a reasoning that names other answers and abstains."""
    texts = {i: form.format(REASONING, text) for i, text in answers.texts.items()}
    return Answers(texts, answers.perplexity)


def test_reasoning_changes_no_metric_and_no_item(p, engine, tmp_path):
    plain = measure(EXAMPLES, OURS, BASE, engine, p, tmp_path / "plain.jsonl")
    # the second: the chat template wrote the `<think>`
    for i, form in enumerate(("<think>{}</think>\n\n{}", "{}\n</think>\n\n{}")):
        ours, base = thinking(OURS, form), thinking(BASE, form)
        path = tmp_path / f"{i}.jsonl"
        reasoned = measure(EXAMPLES, ours, base, engine, p, path)
        assert (reasoned.metrics, reasoned.items) == (plain.metrics, plain.items)


def test_the_items_means_are_the_metrics(p, engine, path):
    """By the rule of items.csv: claim_precision is weighted by total_claims."""
    measured = measure(EXAMPLES, OURS, BASE, engine, p, path)
    for name in trade_off.COMPARED:
        rows = [item for item in measured.items.values() if name in item]
        weighted = name == "claim_precision"
        weights = [row["total_claims"] if weighted else 1 for row in rows]
        total = sum(row[name] * n for row, n in zip(rows, weights, strict=True))
        assert measured.metrics[name] == pytest.approx(total / sum(weights)), name
    refused = measured.items[f"{B} open 0"]
    assert not {"hallucination_rate", "claim_precision", "total_claims"} & set(refused)
    assert refused["win_rate"] == 0.5 and refused["total_claims_per_question"] == 0


# A judge


@pytest.fixture
def judged(monkeypatch):
    """Parameters with a judge of outcomes, who takes "so" for right; what it read."""
    read = []

    def outcomes(llm, template, rows):
        read.extend(rows)
        values = {"so": 1.0, "failed": None}
        return [values.get(text, 0.0) for _, _, text in rows]

    monkeypatch.setattr(judge, "grade_responses", outcomes)
    monkeypatch.setattr(verifier, "judge_llm", lambda *_: "llm")
    values = {"verifier": "judge", "judge_model": "m"}
    with pytest.raises(params.ParamError, match="no format_following under a judge"):
        params.load("rar", "tiny", values)
    p = params.load("rar", "tiny", values | {"utility_benchmarks": "win_rate"})
    return p, read


def test_under_a_judge_the_judge_decides_short_answers(judged, engine, path):
    """App. B.2. By rules "so" is wrong, and the right object correct."""
    p, read = judged
    says = ["<think>hm</think> so", "I don't know", FACTS[2].object, "so"]
    ids = [f"{A} {f.relation} may_abstain" for f in FACTS]
    texts = OURS.texts | dict(zip(ids, says, strict=True))
    measured = measure(EXAMPLES, Answers(texts, 1.0), BASE, engine, p, path)
    names = ("accuracy", "hallucination", "abstention")
    rates = [measured.metrics[f"short_{name}"] for name in names]
    assert rates == [2 / 4, 1 / 4, 1 / 4]
    assert measured.metrics["best_guess_accuracy"] == 0
    assert [text for _, _, text in read[:3]] == ["so", FACTS[2].object, "so"]


# Utility


def test_a_tie_is_half_a_win_and_a_failure_none():
    def won(ours, theirs):
        (one, *_), n = requests(wp.OPEN), len(ours)
        asked = [one.model_copy(update={"id": str(i)}) for i in range(n)]
        qualities = {"quality": [*ours, *theirs]}
        engine = SimpleNamespace(values=lambda *_: qualities)
        texts = ["" for _ in asked]
        return compare_answers(engine, asked, texts, texts)

    assert won((6, 5, 4), (5, 5, 5)) == [1, 0.5, 0]
    many = (6,) * 19
    assert won((None, *many), (5,) * 20) == [None, *(1,) * 19]
    assert won((None, *many), (5, None, *many[1:]))[:2] == [None, None]


def test_more_than_5_per_cent_of_failed_comparisons_end_the_run(
    p, engine, path, monkeypatch
):
    monkeypatch.setattr(ExactEngine, "quality", lambda *_: None)
    with pytest.raises(ValueError, match=r"comparison_failures: 100.0% of 3"):
        measure(EXAMPLES, OURS, BASE, engine, p, path)


def test_requests_of_a_kind_are_answered_together(tmp_path):
    def generate(prompts, *_, **__):
        batches.append(len(prompts))
        return [[f"to {prompt}"] for prompt in prompts]

    batches, policy = [], FakePolicy(generate)
    policy.perplexity = lambda texts: 1.0
    policy.format_prompts = lambda rows: [e.question for e in rows]
    long, short = requests(wp.OPEN), requests(BEST_GUESS)
    mixed = [*short[:1], *long, *short[1:]]
    answers = answer(policy, mixed, [], tmp_path / "answers.json")
    assert batches == [len(short), len(long)]
    assert answers.texts == {e.id: f"to {e.question}" for e in mixed}


def checked(exposure, *supports):
    claims = [Claim(str(i), "s") for i in range(len(supports))]
    return CheckedResponse(
        "i", "p", "r", claims, list(supports), {"exposure": exposure}
    )


def test_a_bin_of_exposures_has_the_scores_of_its_requests_and_their_number():
    rows = [checked(50, YES, YES), checked(0, NO), checked(0, YES, OPEN), checked(3)]
    metrics = exposure_metrics(rows)
    shares = {edge: metrics[f"exposure_{edge}_n"] for edge in (0, 1, 40)}
    assert shares == {0: 2 / 4, 1: 1 / 4, 40: 1 / 4}
    assert metrics["exposure_0_factual_precision"] == pytest.approx((0 + 1 / 2) / 2)
    assert "exposure_1_factual_precision" not in metrics


# Answering


def test_a_policy_answers_once_and_whole_and_then_its_answers_are_read(tmp_path):
    def generate(prompts, sampling, progress=""):
        assert sampling.temperature == 0
        return [[f"to {text}"] for text in prompts]

    def breaks(*_):
        raise MemoryError

    policy, path = FakePolicy(generate), tmp_path / "base.json"
    policy.perplexity = breaks
    with pytest.raises(MemoryError):
        answer(policy, EXAMPLES, ["text"], path)
    assert not path.exists()
    policy.perplexity = lambda texts: 3.5
    first = answer(policy, EXAMPLES, ["text"], path)
    texts = {e.id: f"to Question: {e.question}\nAnswer:" for e in EXAMPLES}
    assert first == Answers(texts, 3.5) == answer(FakePolicy(None), EXAMPLES, [], path)


def test_evidence_of_one_error_covers_a_response():
    example, *_ = requests(wp.OPEN, [A])
    wrong = [
        trade_off.WrongResponse(example, "one", [{"a"}, {"x", "y"}]),
        trade_off.WrongResponse(example, "two", [{"x", "z"}]),
    ]

    class Cache:
        def search(self, _, query, k):
            ids = "xya" if query.endswith("one") else "xyz"
            return [SimpleNamespace(chunk=SimpleNamespace(doc_id=i)) for i in ids[:k]]

    assert trade_off.coverage(wrong, Cache(), 3, True) == [0, 0.5, 1]
