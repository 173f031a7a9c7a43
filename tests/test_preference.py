"""Whether an answer is preferred: the rule, and what stands in for a judge."""

import itertools
import json
import random

import numpy as np
import pytest
from fake_endpoint import answer, prompt_of, serve
from hypothesis import given
from hypothesis import strategies as st

from factkit import assets, params
from factkit import world as w
from factkit.corpus import load_leads
from factkit.datasets import world_prompts as wp
from factkit.datasets.examples import DataError, Example
from factkit.datasets.lead_prompts import lead_prompts
from factkit.dense import Encoder
from factkit.verify import engine as engines
from factkit.verify.engine import PreferenceEngine
from factkit.verify.exact import ExactEngine, WorldReader
from factkit.verify.preference import UNNAMED, at_least_as, embedding_relevance

# The rule


def by_number(ids, prompts, answers):
    """An answer is as relevant as the number that it is; "?": the judge failed."""
    return [None if text == "?" else float(text) for text in answers]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ("2", "1", 1.0),
        ("1", "2", 0.0),
        ("1", "1", 1.0),  # a tie wins
        ("0", "0", 0.0),  # but not at 0
        ("1", "0", 1.0),
        ("?", "1", None),
        ("1", "?", None),
        ("0", "?", None),
    ],
)
def test_an_answer_wins_at_no_less_relevance_than_the_reference(ours, theirs, expected):
    prefer = at_least_as(by_number, {"q": theirs})
    assert prefer(["q"], ["Who?"], [ours]) == [expected]


numbers = st.integers(0, 3).map(str) | st.just("?")


@given(st.lists(st.tuples(st.sampled_from("abc"), numbers), max_size=8), st.data())
def test_each_answer_is_held_against_its_own_prompt_s_reference(rows, data):
    references = {i: data.draw(numbers) for i in "abc"}
    ids, answers = ([row[k] for row in rows] for k in (0, 1))
    prefer = at_least_as(by_number, references)
    alone = [prefer([i], ["Who?"], [text])[0] for i, text in rows]
    assert prefer(ids, ["Who?"] * len(rows), answers) == alone


def test_a_prompt_without_a_reference_is_refused():
    with pytest.raises(DataError, match="'b': no answer of the reference policy"):
        at_least_as(by_number, {"a": "1"})(["a", "b"], ["?"] * 2, ["1"] * 2)


def test_equal_answers_tie_though_an_encoder_s_last_digits_are_the_batch_s():
    drift = itertools.count()

    def relevance(ids, prompts, answers):
        noise = next(drift) * 1e-7
        return [0.5 - noise for _ in answers]

    prefer = at_least_as(relevance, {"q": "the same"})
    assert prefer(["q"], ["Who?"], ["the same"]) == [1.0]


# In the fact world

WORLD = w.build_world(3, people=30)
PERSON, OTHER = WORLD.people[:2]
REQUEST = wp.requests(WORLD, [PERSON], wp.OPEN)[0]


def told(n, person=PERSON):
    return " ".join(w.statement(fact) for fact in WORLD.facts_of(person)[:n])


CITY = next(w.statement(f) for f in WORLD.facts if f.subject not in WORLD.people)


def wins(text, reference):
    engine = ExactEngine(
        WorldReader(WORLD), {REQUEST.id: REQUEST}, {REQUEST.id: reference}
    )
    return engine.preferred([REQUEST.id], [REQUEST.question], [text]) == [1.0]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (told(3), told(2), True),
        (told(2), told(3), True),
        (f"{told(2)} {CITY}", told(2), False),
        (told(2), f"{told(2)} {CITY}", True),
        (told(4, OTHER), told(1), False),
        (told(1), told(4, OTHER), True),
        ("I don't know.", "I don't know.", False),
        ("", "", False),
    ],
)
def test_in_the_fact_world_keeping_to_the_person_wins_whatever_the_length(
    ours, theirs, expected
):
    assert wins(ours, theirs) is expected


def test_in_the_fact_world_what_is_told_need_not_be_true():
    """As the paper's judge is told: precision is another part of the reward."""
    wrong = [
        w.statement(w.Fact(PERSON, f.relation, o))
        for f in WORLD.facts_of(PERSON)[:2]
        for o in w.OBJECTS[f.relation]
        if o != f.object
    ]
    lies = f"{wrong[0]} {wrong[-1]}"
    engine = ExactEngine(WorldReader(WORLD), {REQUEST.id: REQUEST}, {})
    assert set(engine.supports([REQUEST.id], [""], [lies])[0]) == {"contradicted"}
    assert wins(lies, told(2)) and wins(told(2), lies)


def test_in_the_fact_world_another_number_of_facts_than_asked_for_loses():
    asked = wp.requests(WORLD, [PERSON], wp.COUNTED)[0]
    engine = ExactEngine(WorldReader(WORLD), {asked.id: asked}, {})
    right, wrong = (told(asked.meta["wanted"] + more) for more in (0, 1))
    rows = [asked.id] * 2, [asked.question] * 2, [right, wrong]
    assert engine.relevance(*rows) == [1.0, 0.5]


# By embeddings

PAINTER = Example(
    id="q", question="Who was it?", answers=["aab"], entity="The Anna and van Gogh"
)


def letters(texts):
    """In place of an encoder: unit vectors along (a − d, b, c) of the letters."""
    counts = np.array(
        [[t.count("a") - t.count("d"), t.count("b"), t.count("c")] for t in texts],
        float,
    )
    return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-9)


def relevant(text, entity=PAINTER.entity, encode=letters):
    example = PAINTER.model_copy(update={"entity": entity})
    relevance = embedding_relevance({"q": example}, encode)
    return relevance(["q"], [example.question], [text])[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # the reference is (2, 1, 0) / √5
        ("aab gogh", 1.0),
        ("GOGH aab", 1.0),
        ("aac gogh", 4 / 5),
        ("c gogh", 0.0),
        ("d gogh", 0.0),  # the cosine is negative
        ("aab", UNNAMED),
        ("a", UNNAMED * 2 / 5**0.5),
        ("goghs aab", UNNAMED),  # another word
        ("the aab", UNNAMED),  # in any text
        ("", 0.0),
        (" \n", 0.0),
    ],
)
def test_relevance_is_the_cosine_halved_without_the_name(text, expected):
    assert relevant(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", " \n", "…", "- * -", '"!"'])
def test_what_has_no_word_is_not_relevant_whatever_its_embedding(text):
    assert relevant(text, encode=lambda texts: np.ones((len(texts), 1))) == 0


def test_relevance_is_at_most_1_though_floats_are_above():
    above = np.float32([[1.0000001]])
    assert relevant("gogh", encode=lambda texts: above) == 1


@pytest.mark.parametrize("entity", ["K2", "Ur", "The"])
def test_a_name_without_a_telling_word_is_not_asked_for(entity):
    assert relevant("aab", entity) == pytest.approx(1)


def test_each_answer_is_compared_with_its_own_prompt_s_reference():
    of = {
        i: PAINTER.model_copy(update={"id": i, "answers": [text], "entity": i})
        for i, text in (("aaa", "a"), ("bbb", "b"), ("ccc", "c"))
    }
    ids = ["ccc", "aaa", "ccc", "bbb"]
    found = embedding_relevance(of, letters)(ids, ["?"] * 4, ["ccc", "a", "aaa", "bbb"])
    assert found == pytest.approx([1, UNNAMED, 0, 1])


# By embeddings of leads


@pytest.fixture(scope="module")
def real():
    """Relevance of some answers to 50 requests about leads, by MiniLM."""
    asked = lead_prompts(random.Random(0).sample(load_leads(), 70))[0][:50]
    leads = [e.answers[0] for e in asked]
    said = {
        "own lead": leads,
        "another's lead": leads[1:] + leads[:1],
        "first sentence": [lead.split(". ")[0] for lead in leads],
        "abstention": ["I don't know."] * 50,
        "nothing": [""] * 50,
    }
    p = params.load("reason", "tiny", {"verifier": "embedded"})
    relevance = engines._preference(p, {e.id: e for e in asked}, {})["stand_in"]
    n = len(said)
    found = relevance(
        [e.id for e in asked] * n,
        [e.question for e in asked] * n,
        [text for texts in said.values() for text in texts],
    )
    return {name: found[50 * k : 50 * (k + 1)] for k, name in enumerate(said)}


def share(ours, theirs):
    return sum(a > b for a, b in zip(ours, theirs, strict=True)) / len(ours)


@pytest.mark.assets
def test_a_lead_is_more_relevant_to_its_entity_than_another_s_lead(real):
    assert share(real["own lead"], real["another's lead"]) == 1


@pytest.mark.assets
def test_a_lead_names_its_entity_nearly_always(real):
    assert sum(r > 0.99 for r in real["own lead"]) / 50 >= 0.9


@pytest.mark.assets
def test_a_sentence_on_the_entity_is_more_relevant_than_many_on_another(real):
    assert share(real["first sentence"], real["another's lead"]) >= 0.98


@pytest.mark.assets
def test_an_abstention_loses_against_any_sentence_on_the_entity(real):
    assert share(real["first sentence"], real["abstention"]) == 1
    assert max(real["abstention"]) < 0.1


@pytest.mark.assets
def test_an_empty_answer_is_not_relevant_to_any_lead(real):
    assert set(real["nothing"]) == {0}


@pytest.mark.assets
def test_equal_answers_are_equally_relevant_in_one_batch_of_minilm():
    """Alone and among longer texts, MiniLM's last digits differ."""
    leads = [d.text[: 150 + 13 * i] for i, d in enumerate(load_leads()[:12])]
    examples = {
        str(i): PAINTER.model_copy(update={"id": str(i), "answers": [text]})
        for i, text in enumerate(leads)
    }
    encode = Encoder(assets.embedder_path()).passages
    cut = [text[:100] for text in leads]
    references = dict(zip(examples, cut, strict=True))
    prefer = at_least_as(embedding_relevance(examples, encode), references)
    others = [
        text if int(i) % 2 else f"{text} {text}" for i, text in references.items()
    ]
    found = prefer(list(examples), ["?"] * 12, others)
    assert [w for i, w in enumerate(found) if i % 2] == [1.0] * 6


# By a judge


def test_where_there_is_a_judge_it_prefers_and_nothing_else_does(tmp_path, monkeypatch):
    monkeypatch.setenv("FACTKIT_CACHE", str(tmp_path))

    def behave(body, attempt):
        prompt, response = prompt_of(body).splitlines()[-2:]
        good = json.loads(response.removeprefix("Response: ")) in prompt
        verdict = "A" if good else "B"
        told = "???" not in response
        return answer(f"<answer>[[{verdict}]]</answer>" if told else "I can't tell.")

    with serve(behave) as server:
        values = {"verifier": "judge", "judge_model": "m", "judge_url": server.url}
        p = params.load("reason", "tiny", values)
        engine = PreferenceEngine(
            **engines._preference(p, {}, {}),
            **dict.fromkeys(("extract", "verify", "pieces", "search")),
        )
        prompts = ["Tell of Rome.", "Tell of Ur.", "Tell of Bern."]
        found = engine.preferred(list("abc"), prompts, ["Rome", "Rome", "???"])
    assert found == [1.0, 0.0, None]
    assert len(server.bodies) == 3
    assert engine.relevance(list("abc"), prompts, ["Rome"] * 3) == [None] * 3


def test_the_base_policy_is_asked_where_it_is_named(tmp_path, monkeypatch):
    """App. G: who judges relevance writes y_ref itself. The reader of claims, a model
    of 70B, would set another reference than the base policy."""
    monkeypatch.setenv("FACTKIT_CACHE", str(tmp_path))
    with (
        serve(lambda body, attempt: answer("<answer>[[A]]</answer>")) as judge,
        serve(lambda body, attempt: answer("<answer>[[B]]</answer>")) as base,
    ):
        values = {"verifier": "judge", "judge_model": "m", "judge_url": judge.url}
        values |= {"relevance_model": "base", "relevance_url": base.url}
        p = params.load("reason", "tiny", values)
        prefer = engines._preference(p, {}, {})["prefer"]
        assert prefer(["a"], ["Tell of Rome."], ["Rome"]) == [0.0]
    assert [body["model"] for body in base.bodies] == ["base"]
    assert judge.bodies == []
    full = params.load("reason", "h100_full")
    assert full.relevance_model == full.policy
