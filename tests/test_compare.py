"""The papers' rewards on one policy: who pays what, what is equal, what it costs."""

from dataclasses import replace
from functools import partial

import pytest
from fake_llm import FakeLLM, field, told

from factkit.answers.engine import ExactEngine
from factkit.answers.long_form import CheckedResponse, search_words
from factkit.data.corpus import Document
from factkit.data.evidence import EvidenceCache
from factkit.data.examples import MAY_ABSTAIN, OPEN
from factkit.facts.world import facts as worlds
from factkit.papers.compare import evaluate, rewards, train
from factkit.papers.compare.arms import ARMS, TRAINED
from factkit.papers.rar import rewards as rar
from factkit.papers.reason.rewards import PreferenceEngine, score_responses
from factkit.papers.rlfh.feedback import llm_annotator
from factkit.run import params
from factkit.train import grpo
from factkit.verify import claims, judge
from factkit.verify.outcome import Support

WORLD = worlds.build_world(people=40)
PERSON = WORLD.people[0]
FACTS = WORLD.facts_of(PERSON)
(LONG, *_), (SHORT, *_) = (
    WORLD.requests([PERSON], kind) for kind in (OPEN, MAY_ABSTAIN)
)
TRUE = worlds.statement(FACTS[0])
OTHER = next(o for o in worlds.OBJECTS[FACTS[1].relation] if o != FACTS[1].object)
FALSE = worlds.statement(worlds.Fact(PERSON, FACTS[1].relation, OTHER))
ENGINE = ExactEngine(
    WORLD, {e.id: e for e in (LONG, SHORT)}, {LONG.id: TRUE, SHORT.id: "x"}
)
P = params.load("compare", "tiny")


def paid(example, response):
    rows = [example.id], [example.question], [response]
    by_arm = rewards.compute_rewards_by_arm(P, TRAINED, ENGINE, *rows)
    return {arm: reward for arm, (reward,) in by_arm.items()}


def test_each_reward_pays_what_its_paper_says():
    silent, right, mixed = (paid(LONG, text) for text in ("", TRUE, f"{TRUE} {FALSE}"))
    assert (silent["ternary"], right["ternary"], mixed["ternary"]) == (0, 1, -1)
    assert (silent["binary_rar"], right["binary_rar"], mixed["binary_rar"]) == (1, 1, 0)
    assert (silent["veriscore"], right["veriscore"], mixed["veriscore"]) == (0, 1, 0.5)
    # F / (T + 1) + 0.1, for both keep to the subject as the reference does
    assert silent["fact_relevance"] == 0
    assert right["fact_relevance"] == pytest.approx(1 / 2 + 0.1)
    assert mixed["fact_relevance"] == pytest.approx(1 / 3 + 0.1)
    assert right["fact_detail_relevance"] > right["fact_relevance"]
    assert silent["statement"] == 0 < mixed["statement"] < right["statement"]
    assert right["statement"] == right["statement_group"]


def test_a_short_answer_is_the_statement_that_it_makes():
    wrong = next(o for o in worlds.OBJECTS[SHORT.relation] if o not in SHORT.answers)
    right, wrong, silent = (
        paid(SHORT, text) for text in (SHORT.answers[0], f"{wrong}.", "I don't know.")
    )
    for arm in ("ternary", "veriscore", "statement"):
        assert right[arm] > silent[arm] >= wrong[arm]
    assert right["fact_relevance"] == pytest.approx(1 / 2 + 0.1)
    assert wrong["fact_relevance"] == pytest.approx(0.1)  # for being of the kind
    known = {fact.relation for fact in FACTS}
    untold = next(r for r in worlds.PERSON_RELATIONS if r not in known)
    of_another = worlds.statement(
        worlds.Fact(PERSON, untold, worlds.OBJECTS[untold][0])
    )
    assert paid(SHORT, of_another)["statement"] < 0  # vague: nothing settles it
    assert right["binary_rar"] == silent["binary_rar"] > wrong["binary_rar"]
    assert wrong["statement"] < 0 == silent["statement"]


def test_only_the_reward_differs_between_arms(monkeypatch, tmp_path):
    """Start, rows and their order, and every parameter but RLFH's method."""
    from factkit.papers.rlfh import token_trainer

    given = {}

    def noted(start, rows, make_reward, folder, p):
        given[p.arm] = start, rows, p.model_dump(exclude={"arm", "method"})
        return folder / "model"

    monkeypatch.setattr(grpo, "grpo", noted)
    monkeypatch.setattr(token_trainer, "token_level", noted)
    for arm in TRAINED:
        p = P.model_copy(update={"arm": arm})
        kept = train.train_arm(p, "start", [LONG, SHORT], tmp_path)
        assert [*kept] == P.kept_steps
    first = given[TRAINED[0]]
    assert given.keys() == set(TRAINED)
    assert all(each == first for each in given.values())
    assert [row["id"] for row in first[1]] == [LONG.id]
    assert {ARMS[arm].start for arm in TRAINED} == {""}


def test_no_subject_is_asked_about_in_training_and_in_test():
    p = P.model_copy(update={"world_people": 60, "train_requests": 20})
    sets = train.request_sets(p)
    trained, tested = ({e.entity for e in sets[name]} for name in ("train", "test"))
    assert not trained & tested
    assert {e.entity for e in sets["probe"]} <= tested
    long = [e.entity for e in sets["test"] if not e.relation]
    assert len(long) == len(set(long)) > 0


# ---- what a judge would be asked, by the papers' own pipelines


def pipeline(llm):
    """The parts of an engine that asks `llm`, with a document for each fact."""
    documents = [Document(f.relation, PERSON, worlds.statement(f), "") for f in FACTS]
    evidence = {LONG.id: documents}

    def spans(texts, **_):
        return {"offset_mapping": [[(0, len(text))] for text in texts]}

    pieces = EvidenceCache(evidence, spans, 32)
    return {
        "extract": partial(claims.extract_claims, llm),
        "verify": partial(claims.label_text, llm),
        "pieces": pieces,
        "search": search_words(evidence),
        "llm": llm,
    }


def asked_of(llm):
    """The judge by whom every call is answered in its form."""
    llm.rules |= {
        "extract_claims": lambda text: told(claims=[field(text, "Sentence")]),
        "extract_statements": lambda text: told(statements=[field(text, "Sentence")]),
        "verify_claim": lambda text: told(label="supported"),
        "verify_statement": lambda text: told(label="correct"),
        "rate_informativeness": lambda text: told(
            ratings=[5] * len(field(text, "Statements"))
        ),
        "judge_contradiction": lambda text: told(REASONING="", SCORE=1),
        "judge_relevance": lambda text: told(answer="", reason="", label="a"),
        "judge_outcome": lambda text: told(explanation="", score=1),
    }
    return llm


def test_calls_are_those_that_the_papers_pipelines_make():
    response = " ".join(worlds.statement(fact) for fact in FACTS[:3])
    rows = [LONG.id], [LONG.question], [response]
    made = {}
    for arm in TRAINED:
        llm = asked_of(FakeLLM())
        parts = pipeline(llm)
        if arm == "ternary":
            judge.judge_outcomes(llm, [response], [LONG.answers], [LONG.question])
        elif arm in ("binary_rar", "veriscore"):
            engine = rar.EvidenceEngine(**parts, whole=parts["pieces"])
            rar.rewards_by_arm([arm], engine, *rows)
        elif arm.startswith("fact"):
            reasoned = f"<think> so </think> <answer> {response} </answer>"
            score_responses(arm, PreferenceEngine(**parts), *rows[:2], [reasoned])
        else:
            assert llm_annotator(llm, lambda i, text: [TRUE])(*rows) != [None]
        made[arm] = len(llm.requests)
    assert made == {arm: rewards.count_calls(arm, 3, 3) for arm in TRAINED}


# ---- evaluation


def checked(response):
    stated = ENGINE.claims(LONG.id, response)
    supports = [Support(WORLD.verify(claim.text)) for claim in stated]
    return CheckedResponse(LONG.id, LONG.question, response, stated, supports)


def test_exploits_are_told_apart():
    elsewhere = [f for f in WORLD.facts if f.subject not in WORLD.people][:2]
    made = {
        "silent": worlds.ABSTENTION,
        "one_claim": TRUE,
        "hedged": f"Perhaps {TRUE} {FALSE}",
        "off_subject": f"{TRUE} " + " ".join(map(worlds.statement, elsewhere)),
        "repeats": f"{TRUE} {FALSE} {TRUE}",
    }
    for name, response in made.items():
        shown = evaluate.find_exploits(checked(response), PERSON, ENGINE)
        assert shown.pop("sentences") == len(WORLD.sentences(response))
        assert [other for other, value in shown.items() if value] == [name]


def test_claims_are_counted_by_what_they_are_about():
    elsewhere = next(f for f in WORLD.facts if f.subject not in WORLD.people)
    row = checked(f"{TRUE} {FALSE} {worlds.statement(elsewhere)}")
    row = replace(row, prompt=worlds.BIOGRAPHY_QUESTIONS[1].format(s=PERSON))
    silent = replace(row, claims=[], supports=[])
    counts = {"asked_correct": 1, "asked_other": 1, "else_correct": 1, "else_other": 0}
    assert evaluate.count_by_subject([row]) == counts
    halves = {kind: n / 2 for kind, n in counts.items()}
    assert evaluate.count_by_subject([row, silent]) == halves
    with pytest.raises(ValueError, match="does not say what it asks about"):
        evaluate.count_by_subject([replace(row, prompt="Who was it?")])


def test_what_is_told_of_known_and_unknown_facts():
    known, unknown, *_ = (fact.relation for fact in FACTS)
    shares = {known: 1.0, unknown: 0.1}
    one = evaluate.score_knowledge(checked(TRUE), PERSON, shares, ENGINE)
    assert one == {"known_told": 1.0, "unknown_told": 0.0}
    assert evaluate.score_knowledge(checked(FALSE), PERSON, {unknown: 0.1}, ENGINE) == {
        "unknown_told": 1.0
    }


def test_kl_is_of_a_whole_response_and_smoothed(tmp_path):
    curve = tmp_path / "metrics.csv"
    rows = "\n".join(f"{step},0.{step},10" for step in range(1, 7))
    curve.write_text(f"step,kl,completions/mean_length\n{rows}\n", "utf-8")
    assert evaluate.compute_kl(curve, [2, 6]) == pytest.approx({2: 1.5, 6: 4.0})


def test_an_outcome_needs_all_to_be_supported():
    yes, no, open_ = Support.SUPPORTED, Support.CONTRADICTED, Support.INCONCLUSIVE
    told_of = [
        rewards.judge_response(s).value for s in ([], [yes], [yes, no], [yes, open_])
    ]
    assert told_of == ["abstain", "correct", "wrong", "wrong"]


def test_the_front_and_the_choice_by_the_correct_claims_that_are_left():
    points = {("base", 0): (2.0, 2.0), ("a", 1): (1.8, 1.0), ("a", 2): (1.0, 1.0)}
    points |= {("b", 1): (0.5, 0.1), ("c", 1): (1.8, 1.0)}
    assert evaluate.find_front(points) == [
        ("base", 0),
        ("a", 1),
        ("b", 1),
        ("c", 1),
    ]
    assert evaluate.choose_policy(points, 1.5) == ("a", 1)
    assert evaluate.choose_policy(points, 0.5) == ("b", 1)
    assert evaluate.choose_policy(points, 2.5) is None
