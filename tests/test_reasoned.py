"""Precision, detail, relevance and form of policies that reason, by hand."""

import pytest
from fake_llm import FakeLLM, field, told
from fake_policy import FakePolicy

from factkit.answers import long_form
from factkit.answers.engine import ExactEngine
from factkit.data import examples as wp
from factkit.data.examples import Example
from factkit.facts.world import facts as w
from factkit.papers.reason import evaluate as reasoned
from factkit.run import params
from factkit.run.statistics import means
from factkit.verify.response import format_response

WORLD = w.build_world(3, people=30)
A, B, C, D = WORLD.people[:4]


def request(person, kind):
    example = WORLD.requests([person], kind)[0]
    meta = example.meta | {"set": kind}
    return example.model_copy(update={"meta": meta})


def true(person, n):
    return " ".join(w.statement(fact) for fact in WORLD.facts_of(person)[:n])


def false(person, place):
    fact = WORLD.facts_of(person)[place]
    other = next(o for o in w.OBJECTS[fact.relation] if o != fact.object)
    return w.statement(w.Fact(person, fact.relation, other))


# two of each set; the counted ones want one fact
EXAMPLES = [
    request(A, wp.OPEN),
    request(B, wp.COUNTED),
    request(C, wp.OPEN),
    request(D, wp.COUNTED),
]
IDS = [e.id for e in EXAMPLES]
FIFTH = request(B, wp.OPEN)  # makes sets of three and two
SAID = dict(
    zip(
        IDS,
        [
            format_response(
                f"{false(A, 3)} Perhaps it is so.", f"{true(A, 2)} {false(A, 2)}"
            ),
            format_response("Hm.", "I don't know."),
            f"<think> Hm. </think> <answer> {true(C, 2)}",  # malformed, and answers
            format_response("", true(D, 1)),
        ],
        strict=True,
    )
)
BASE = dict(
    zip(IDS, [true(A, 1), "Nobody knows.", true(C, 4), true(D, 2)], strict=True)
)


@pytest.fixture
def p():
    return params.load("reason", "tiny")


@pytest.fixture
def engine():
    return ExactEngine(WORLD, {e.id: e for e in (*EXAMPLES, FIFTH)})


def compare(examples, said, base, engine, decide, path):
    """Metrics and items of responses, compared with the base policy's."""
    texts, base = ([of[e.id] for e in examples] for of in (said, base))
    checked = long_form.evaluate(examples, texts, engine.reader, path)
    return reasoned.measure(checked, decide(examples, texts, base))


@pytest.fixture
def measured(p, engine, tmp_path):
    """Metrics of responses to some of the examples."""

    def of(examples=EXAMPLES, said=SAID, base=BASE, decide=None):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
        decide = decide or reasoned.comparison(p, engine)
        return compare(examples, said, base, engine, decide, path)[0]

    return of


def test_each_metric_is_what_a_calculation_by_hand_gives(measured):
    found = measured()
    answers = [f"{true(A, 2)} {false(A, 2)}", "I don't know.", true(C, 2), true(D, 1)]
    words = [len(text.split()) for text in answers]
    overall = {
        # open: A has two of three claims, C two of two; counted: B none, D one of one
        "factual_precision": ((2 / 3 + 1) / 2 + 1) / 2,
        "hallucination_rate": 1 - ((2 / 3 + 1) / 2 + 1) / 2,
        "correct_claims": (4 / 2 + 1) / 2,
        "incorrect_claims": (1 / 2 + 0) / 2,
        "contradicted_claims": (1 / 2 + 0) / 2,
        "total_claims": (5 / 2 + 1) / 2,
        "correct_claims_per_question": 5 / 4,
        "incorrect_claims_per_question": 1 / 4,
        "contradicted_claims_per_question": 1 / 4,
        "total_claims_per_question": 6 / 4,
        "response_rate": 3 / 4,
        "words": sum(words) / 4,
        # all on the person, in both; neither; both; one fact, as asked, over two
        "win_rate": (0.5 + 0.5 + 0.5 + 1) / 4,
        "malformed": 1 / 4,
        # of the three that are well-formed: A; B and D
        "reasoning_words": (len(false(A, 3).split()) + 4 + (1 + 0) / 2) / 2,
        "answer_words": (words[0] + (words[1] + words[3]) / 2) / 2,
        "extraction_failures": 0,
        "verification_failures": 0,
        "comparison_failures": 0,
    }
    assert {k: found[k] for k in overall} == pytest.approx(overall)
    in_sets = {
        "open_factual_precision": (2 / 3 + 1) / 2,
        "open_correct_claims": 4 / 2,
        "open_win_rate": 1 / 2,
        "counted_factual_precision": 1,
        "counted_correct_claims": 1 / 1,
        "counted_correct_claims_per_question": 1 / 2,
        "counted_win_rate": (0.5 + 1) / 2,
        "counted_response_rate": 1 / 2,
    }
    assert {k: found[k] for k in in_sets} == pytest.approx(in_sets)


def test_sets_count_the_same_whatever_their_sizes(measured):
    """Tables 1 and 2 average over six data sets of 141 to 532 prompts."""
    said, base = SAID | {FIFTH.id: true(B, 4)}, BASE | {FIFTH.id: "Nobody knows."}
    found = measured([*EXAMPLES[:3], FIFTH], said, base)
    assert found["open_correct_claims_per_question"] == pytest.approx((2 + 2 + 4) / 3)
    assert found["counted_correct_claims_per_question"] == 0
    assert found["correct_claims_per_question"] == pytest.approx((8 / 3 + 0) / 2)
    assert found["win_rate"] == pytest.approx(((0.5 + 0.5 + 1) / 3 + 0.5) / 2)


def test_items_are_what_the_metrics_are_means_of(p, engine, tmp_path):
    rows = [*EXAMPLES, FIFTH]
    said, base = (of | {FIFTH.id: true(B, 3)} for of in (SAID, BASE))
    path, decide = tmp_path / "claims.jsonl", reasoned.comparison(p, engine)
    metrics, items = compare(rows, said, base, engine, decide, path)
    assert set(items) == {e.id for e in rows}
    found = means(items.values())
    assert found == pytest.approx({k: metrics[k] for k in found})
    assert set(found) >= set(reasoned.COMPARED)
    # B's refusal has no precision, and C's malformed response no lengths
    assert "factual_precision" not in items[IDS[1]]
    assert items[IDS[1]]["correct_claims_per_question"] < 1
    assert "reasoning_words" not in items[IDS[2]]


# What claims on every set, and on the course of training, are measured by


def test_a_malformed_response_is_measured_by_its_answer(measured):
    """All but one whose reasoning never ends: it has none."""
    whole = format_response("Hm.", true(C, 4))
    proper = measured(said=SAID | {IDS[2]: whole})
    for tag in ("<think>", "</think>", "<answer>", "</answer>"):
        found = measured(said=SAID | {IDS[2]: whole.replace(tag, "")})
        assert (found["malformed"], proper["malformed"]) == (1 / 4, 0)
        names = ("correct_claims", "win_rate", "words")
        same = [found[name] == proper[name] for name in names]
        assert same == [tag != "</think>"] * 3


# What failed

MANY = [e.model_copy(update={"id": f"{e.id} {k}"}) for e in EXAMPLES for k in range(5)]
MANY_SAID, MANY_BASE = ({e.id: of[e.id[:-2]] for e in MANY} for of in (SAID, BASE))


def test_a_comparison_that_failed_is_left_out_and_its_share_is_told(measured):
    decided = [None, *[1.0, 0.5] * 9, 0.0]  # A, B, C and D five times each
    found = measured(MANY, MANY_SAID, MANY_BASE, lambda *_: decided)
    in_sets = (4 + 5 / 2) / 9, (5 + 4 / 2) / 10
    assert found["win_rate"] == pytest.approx(sum(in_sets) / 2)
    assert found["open_win_rate"] == (4 + 5 / 2) / 9
    assert found["counted_win_rate"] == (5 + 4 / 2) / 10
    assert found["comparison_failures"] == 1 / 20


def test_more_than_5_per_cent_of_failed_comparisons_fail_the_run(measured):
    with pytest.raises(ValueError, match="comparison_failures: 10.0%"):
        decided = [None] * 2 + [1.0] * 18
        measured(MANY, MANY_SAID, MANY_BASE, lambda *_: decided)


# Comparing


def by_number(ids, prompts, texts):
    """In place of an engine: an answer is as good as the number that it is."""
    return list(map(float, texts))


def test_without_a_judge_the_answer_of_higher_quality_wins(p, monkeypatch):
    monkeypatch.setattr(ExactEngine, "quality", staticmethod(by_number))
    decide = reasoned.comparison(p, ExactEngine(None, {}))
    # by the answers, without reasoning and tags, however malformed
    ours = ["2", "1", "1", format_response("9", "1"), "<think>1</think>2", "1</answer>"]
    theirs = ["1", "2", "1", "2", "<answer>1", "<think>0</think><answer>1</answer>"]
    found = decide(EXAMPLES + EXAMPLES[:2], ours, theirs)
    assert found == [1, 0, 0.5, 0, 1, 0.5]


def with_judge(monkeypatch, rule):
    """Parameters of a run whose judge answers by a rule."""
    for name in ("judge_llm", "judge_of"):
        monkeypatch.setattr(reasoned, name, lambda *_: FakeLLM(rule))
    return params.load("reason", "tiny", {"verifier": "judge", "judge_model": "m"})


def test_a_judge_compares_the_answers_in_both_orders(monkeypatch):
    def prefers(prompt):
        good = ["good" in field(prompt, f"Response {place}") for place in "ab"]
        return told(reason="r", label="b" if good[1] else "a")

    decide = reasoned.comparison(with_judge(monkeypatch, prefers), None)
    ours = [
        format_response("bad", "good"),
        format_response("good", "bad"),
        format_response("", "so"),
    ]
    # of the third it likes the first place, twice
    preferred = decide(EXAMPLES[:3], ours, ["so", "good", "la"])
    assert preferred == [1.0, 0.0, 0.5]


# Strategies

F0, F1 = WORLD.facts_of(A)[:2]
FIRST, REWORDED, SECOND = w.statement(F0), w.statement(F0, 1), w.statement(F1)
REASONINGS = [
    format_response(
        f"Perhaps {REWORDED} {SECOND}", FIRST
    ),  # doubt; the second fact left out
    format_response(f"{FIRST} Perhaps {SECOND}", f"{FIRST} {SECOND}"),  # doubt
    format_response(FIRST, f"{REWORDED} {SECOND}"),  # the second fact added
    f"<think> Perhaps {FIRST} {FIRST} </think> {SECOND}",  # malformed
]
THOUGHT = dict(zip(IDS, REASONINGS, strict=True))


def strategies(examples, responses, p):
    return reasoned.strategies_used(examples, responses, reasoned.strategy_tagger(p))


def test_strategies_of_well_formed_responses_are_told_by_facts_in_the_fact_world():
    p = params.load("reason", "tiny", {"world_people": 30, "world_seed": 3})
    found = strategies(EXAMPLES, THOUGHT, p)
    assert list(found.items()) == [
        ("doubt", 2 / 3),
        ("added", 1 / 3),
        ("left_out", 1 / 3),
    ]


def test_the_reasoning_s_claims_are_counted_where_it_states_any(engine):
    def precision_of(**texts):
        said = dict.fromkeys(IDS, "") | {IDS["abcd".index(k)]: texts[k] for k in texts}
        return reasoned.reasoning_precision(engine, EXAMPLES, said)

    thought = format_response(f"{true(A, 2)} {false(A, 2)}", false(A, 3))
    silent = format_response("Hm.", true(B, 1))
    found = precision_of(a=thought, b=silent, c=format_response(true(C, 1), ""))
    assert found == {"reasoning_precision": pytest.approx((2 / 3 + 1) / 2)}
    assert precision_of(b=silent, c=true(C, 2)) == {}


@pytest.mark.assets
def test_two_wordings_of_what_the_leads_state_are_one_sentence():
    p = params.load("reason", "tiny", {"requests": "leads", "verifier": "leads"})
    asked = Example(id="q", question="?", answers=[], entity="Charles Darwin")
    thought = "Perhaps he was English. He died in 1882."
    for answer, more in (
        ("He died on 19 April 1882. Charles Darwin was English.", ()),
        ("He died on 19 April 1882. He was a naturalist.", ("left_out", "added")),
    ):
        found = strategies([asked], {"q": format_response(thought, answer)}, p)
        assert found == dict.fromkeys(("doubt", *more), 1.0)


def test_an_annotator_tells_strategies_and_is_left_out_where_it_fails(monkeypatch):
    names = {FIRST: None, REWORDED: ["recall", "doubt"], SECOND: ["recall"]}

    def annotates(prompt):
        steps = [{"step": "s", "strategies": names[field(prompt, "Answer")]}]
        return told(steps=steps, helpfulness=5)

    answers = [format_response("t", answer) for answer in (FIRST, REWORDED, SECOND)]
    said = dict(zip(IDS, [*answers, "none"], strict=True))
    p = with_judge(monkeypatch, annotates)
    shares = strategies(EXAMPLES, said, p)
    assert shares == {"recall": 1.0, "doubt": 0.5}


# Answering


def test_a_policy_is_asked_plainly_and_once(tmp_path):
    def generate(prompts, sampling, progress=""):
        assert sampling.temperature == 0
        return [[f"to {text}"] for text in prompts]

    path = tmp_path / "after.json"
    first = long_form.answer(FakePolicy(generate), EXAMPLES, path)
    assert first == {e.id: f"to Question: {e.question}\nAnswer:" for e in EXAMPLES}
    assert long_form.answer(FakePolicy(None), EXAMPLES, path) == first
