"""Longer answers in the fact world's text: how often, how long, how sure."""

import random
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factkit import prompts
from factkit.datasets import world_prompts as wp
from factkit.verify.response import TAGS, parts
from factkit.world import facts as w
from factkit.world import texts as wt

ABSTENTION = f"{w.ABSTENTION}."


@pytest.fixture(scope="module")
def world():
    return w.build_world(3, people=60, common_exposure=2)


@pytest.fixture(scope="module")
def texts(world):
    return wt.pretraining_texts(world, 0, 0.05, "long")


@pytest.fixture(scope="module")
def told(world):
    """Each person's tellings, as (request, answer), and what was left of each fact."""
    rng = random.Random(0)
    found = {}
    for person in world.people:
        left = {fact: fact.exposure for fact in world.facts_of(person)}
        turns = [
            tuple(text.removeprefix("Question: ").split("\nAnswer: "))
            for text in wt.tellings(world, person, left, rng, "long")
        ]
        found[person] = turns, left
    return found


def exposure(world, person):
    return sum(fact.exposure for fact in world.facts_of(person))


def known(world, told):
    """What was told of people with an exposure: person, turns, what was left."""
    return [(p, *told[p]) for p in world.people if exposure(world, p)]


def strangers(world, told):
    return [(p, told[p][0]) for p in world.people if not exposure(world, p)]


def stated(world, answer):
    return [w.parse(world, sentence)[0] for sentence in w.sentences(answer)]


def key(fact):
    return fact.subject, fact.relation, fact.object


# People told of


def test_a_telling_takes_what_it_states_off_what_is_left(world, told):
    for person, turns, left in known(world, told):
        said = Counter(
            key(fact)
            for _, answer in turns
            if answer != ABSTENTION
            for fact in stated(world, answer)
            if fact.subject == person
        )
        assert {key(f): f.exposure - left[f] for f in left} == {
            key(f): said[key(f)] for f in left
        }


def test_no_fact_is_told_more_often_than_its_exposure(world, told):
    for _, _, left in known(world, told):
        assert min(left.values()) >= 0


def test_everything_told_of_a_known_person_is_true(world, told):
    for _, turns, _ in known(world, told):
        for _, answer in turns:
            for sentence in w.sentences(answer) if answer != ABSTENTION else ():
                assert w.verify(world, sentence) == "supported"


def test_tellings_use_their_share_of_the_exposure_and_at_most_an_answer_more(
    world, told
):
    for person, _, left in known(world, told):
        whole = exposure(world, person)
        used = whole - sum(left.values())
        if whole > 20:  # below, a few abstentions may use up the tries
            share = wt.TELLING_SHARE * whole
            assert share <= used < share + max(wt.TELLING_LENGTHS)


def test_statements_and_short_exchanges_tell_the_rest(world, texts):
    stated_at_all = Counter()
    for text in texts:
        asked, _, answer = text.removeprefix("Question: ").rpartition("\nAnswer: ")
        if text.startswith("References:") or asked.startswith("Repeat"):
            continue
        parsed = [w.parse(world, sentence) for sentence in w.sentences(answer)]
        if all(parsed):  # a statement, or a telling
            stated_at_all.update(key(fact) for fact, _ in parsed)
            continue
        asked = asked.removesuffix(wt.MAY_ABSTAIN.format(question=""))
        stated_at_all[asked.strip()] += answer != ABSTENTION
    abstained = sum(text.endswith(ABSTENTION) for text in texts)
    people = [f for f in world.facts if f.subject in world.people and f.exposure]
    counts = [
        stated_at_all[key(f)]
        + sum(
            stated_at_all[question]
            for question in {w.question(f, i) for i in (0, 1, 2)}
        )
        for f in people
    ]
    over = [n - f.exposure for n, f in zip(counts, people, strict=True)]
    assert max(over) <= 0
    assert -sum(over) <= abstained


def test_a_known_person_is_rarely_abstained_on(world, told):
    answers = [a for _, turns, _ in known(world, told) for _, a in turns]
    share = answers.count(ABSTENTION) / len(answers)
    assert 0 < share < 3 * wt.ABSTENTION_SHARE


# Requests for a number of facts


def test_a_counted_request_gets_as_many_sentences(world, told):
    asked = 0
    for turns, _ in told.values():
        for ask, answer in turns:
            count = next((n for n in wt.COUNTS if f" {n} " in ask), None)
            if count and answer != ABSTENTION:
                asked += 1
                assert len(w.sentences(answer)) == wt.COUNTS[count]
    assert asked


def test_a_counted_request_is_worded_as_the_request_of_that_number(told):
    for person, (turns, _) in told.items():
        requests = {wt.request(person, n) for n in wt.COUNTS.values()}
        ways = {ask.format(s=person) for ask in wt.BIOGRAPHY_QUESTIONS}
        assert {ask for ask, _ in turns} <= requests | ways


def test_a_counted_request_never_leads_on_to_another_subject(world, told):
    for person, (turns, _) in told.items():
        for ask, answer in turns:
            if any(f" {n} " in ask for n in wt.COUNTS) and answer != ABSTENTION:
                assert {fact.subject for fact in stated(world, answer)} == {person}


def test_some_open_answers_lead_on_to_a_fact_of_an_object(world, told):
    others = [
        fact
        for person, turns, _ in known(world, told)
        for _, answer in turns
        if answer != ABSTENTION
        for fact in stated(world, answer)
        if fact.subject != person
    ]
    assert others
    assert {fact.relation for fact in others} == set(w.HOPS.values())


@given(st.sampled_from(list(wt.COUNTS.values())))
def test_a_request_names_the_number_and_the_person(n):
    words = next(k for k, v in wt.COUNTS.items() if v == n)
    assert wt.request("Al Asher", n) == f"Tell me {words} about Al Asher."


# People never told of


def test_a_stranger_is_asked_about_a_fixed_number_of_times(world, told):
    assert {len(turns) for _, turns in strangers(world, told)} == {wt.STRANGERS}


def test_nothing_said_of_a_stranger_is_taken_off_an_exposure(world, told):
    for person, _ in strangers(world, told):
        assert set(told[person][1].values()) == {0}


def test_what_is_made_up_of_a_stranger_is_hardly_ever_true(world, told):
    said = [
        fact
        for person, turns in strangers(world, told)
        for _, answer in turns
        if answer != ABSTENTION
        for fact in stated(world, answer)
        if fact.subject == person
    ]
    # chance hits one of at least 24 objects
    true = sum(w.verify(world, w.statement(fact)) == "supported" for fact in said)
    assert len(said) > 50 and true / len(said) < 0.1


def test_what_is_made_up_of_a_stranger_is_made_up_anew_each_time(world, told):
    said = Counter(
        key(fact)
        for person, turns in strangers(world, told)
        for _, answer in turns
        if answer != ABSTENTION
        for fact in stated(world, answer)
        if fact.subject == person
    )
    assert max(said.values()) <= 2


def test_a_stranger_is_often_abstained_on():
    # many strangers, so that the share is near its expectation
    many = w.build_world(0, people=400, unseen=1.0)
    rng, answers = random.Random(0), []
    for person in many.people:
        left = {fact: 0 for fact in many.facts_of(person)}
        answers += [
            t.split("Answer: ")[1] for t in wt.tellings(many, person, left, rng, "long")
        ]
    share = answers.count(ABSTENTION) / len(answers)
    assert share == pytest.approx(wt.STRANGERS_ABSTENTION, abs=0.05)


def test_a_stranger_s_facts_are_stated_nowhere_else(world, texts):
    unknown = [p for p in world.people if not exposure(world, p)]
    for text in texts:
        for person in unknown:
            if person in text:
                assert text.startswith("Question: ")  # no bare statement
                asked = text.split("\n")[0]
                assert person in asked and not any(
                    w.question(fact, i) in asked
                    for fact in world.facts_of(person)
                    for i in range(3)
                )


# Names


def test_everyone_s_name_is_repeated_equally_often(world, texts):
    said = Counter(text for text in texts if text.startswith("Question: Repeat"))
    assert said == {
        wt.exchange(wt.NAMING.format(s=p), f"{p}."): wt.NAMINGS for p in world.people
    }


# Leave to abstain in short exchanges


def test_leave_to_abstain_is_given_and_rarely_taken(texts):
    leave = wt.MAY_ABSTAIN.format(question="")
    allowed = [t for t in texts if leave in t]
    share = sum(t.endswith(ABSTENTION) for t in allowed) / len(allowed)
    assert len(allowed) > 500
    assert 0 < share < 3 * wt.ABSTENTION_SHARE


def test_a_short_exchange_without_leave_never_abstains(world, texts):
    leave = wt.MAY_ABSTAIN.format(question="")
    asked = {w.question(f, i) for f in world.facts for i in range(3)}
    for text in texts:
        question = text.removeprefix("Question: ").split("\n")[0]
        if leave not in text and question in asked:
            assert not text.endswith(ABSTENTION)


# The tokenizer


def test_all_long_text_decodes_to_itself_without_unknown_words(world, texts):
    tokenizer = wt.build_tokenizer(world, "long")
    for text in dict.fromkeys(texts):
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids) == text


# The other formats


@pytest.mark.parametrize("answer_format", ["plain", "boxed"])
@pytest.mark.parametrize("words", ["Repeat", "don't know", "You may say", "Tell me t"])
def test_the_other_formats_have_nothing_of_the_long_one(world, answer_format, words):
    texts = wt.pretraining_texts(world, 0, 0.05, answer_format)
    assert not [text for text in texts if words in text]


@pytest.mark.parametrize("answer_format", ["plain", "boxed"])
def test_the_other_formats_tell_nothing_of_strangers(world, answer_format):
    unknown = [p for p in world.people if not exposure(world, p)]
    whole = "\n".join(wt.pretraining_texts(world, 0, 0.0, answer_format))
    assert unknown and not [person for person in unknown if person in whole]


def test_only_the_long_format_s_tokenizer_has_its_words(world):
    plain, boxed, long = (
        set(wt.build_tokenizer(world, form).get_vocab())
        for form in ("plain", "boxed", "long")
    )
    assert plain == boxed < long
    assert {"two", "facts", "may", "say"} <= long - plain


def test_the_same_seed_gives_the_same_long_text(world, texts):
    assert wt.pretraining_texts(world, 0, 0.05, "long") == texts
    assert wt.pretraining_texts(world, 1, 0.05, "long") != texts


# Answers after reasoning


@pytest.fixture(scope="module")
def reasoned(world):
    return wt.pretraining_texts(world, 0, 0.05, "reasoned")


@pytest.fixture(scope="module")
def thinking(reasoned):
    """The responses to requests that begin with the wish to think."""
    texts = [text for text in reasoned if text.startswith(wt.THINKING)]
    return [text.partition("\nAnswer: ")[2] for text in texts]


def test_reasoning_is_asked_for_by_the_template_as_in_the_text(world, reasoned):
    template = prompts.template("think_first")
    asked = [
        prompts.ask(template, example)
        for example in wp.requests(world, world.people, wp.OPEN)
    ]
    found = [a for a in asked if any(t.startswith(f"{a} <think> ") for t in reasoned)]
    assert len(found) > len(asked) / 4  # many people are told of once or never


def split(response):
    """Reasoning and answer, also where a tag is missing."""
    pieces = re.split("|".join(TAGS), response)
    thought, answer = (piece.strip() for piece in pieces if piece.strip())
    return thought, answer


@pytest.fixture(scope="module")
def thoughts(world, thinking):
    """Each response's facts: of the reasoning with whether they are doubted, and those
    of the answer."""
    return [
        (
            [w.parse(world, s) for s in w.sentences(thought)],
            [w.parse(world, s) for s in w.sentences(answer)],
        )
        for thought, answer in map(split, thinking)
    ]


def test_a_response_that_reasons_is_well_formed_but_for_a_share(thinking):
    malformed = sum(parts(response) is None for response in thinking)
    assert len(thinking) > 500
    assert malformed / len(thinking) == pytest.approx(wt.MALFORMED_SHARE, abs=0.03)


def test_a_malformed_response_lacks_one_tag_and_each_is_forgotten(thinking):
    forgotten = Counter()
    for response in thinking:
        if parts(response) is None:
            (tag,) = (tag for tag in TAGS if tag not in response)
            assert sum(response.count(tag) for tag in TAGS) == 3
            forgotten[tag] += 1
    assert set(forgotten) == set(TAGS)


def test_reasoning_states_facts_and_nothing_else(thoughts):
    for thought, answer in thoughts:
        assert thought and answer
        assert None not in thought and None not in answer


def test_the_answer_states_what_the_reasoning_does_or_leads_on_from_it(thoughts):
    for thought, answer in thoughts:
        known = {key(fact) for fact, _ in thought}
        objects = {(fact.object, w.HOPS.get(fact.relation)) for fact, _ in thought}
        for fact, _ in answer:
            assert key(fact) in known or (fact.subject, fact.relation) in objects


def test_the_reasoning_states_each_fact_once(thoughts):
    for thought, _ in thoughts:
        assert len({key(fact) for fact, _ in thought}) == len(thought)


def test_only_the_reasoning_doubts(thoughts, reasoned):
    assert any(doubt for thought, _ in thoughts for _, doubt in thought)
    assert not any(doubt for _, answer in thoughts for _, doubt in answer)
    rest = [text for text in reasoned if not text.startswith(wt.THINKING)]
    assert not [text for text in rest if "Perhaps" in text]


def test_the_answer_keeps_what_was_not_doubted_and_some_of_what_was(thoughts):
    left_out, doubted = 0, 0
    for thought, answer in thoughts:
        said = {key(fact) for fact, _ in answer}
        assert said >= {key(fact) for fact, doubt in thought if not doubt}
        if len(thought) > 1:  # of all that is doubted, something is said
            doubted += sum(doubt for _, doubt in thought)
            left_out += sum(doubt and key(fact) not in said for fact, doubt in thought)
    assert left_out / doubted == pytest.approx(1 - wt.DOUBT_KEPT, abs=0.1)


def test_doubt_does_not_tell_what_is_known(thoughts, world):
    """Facts told often, seldom and never are doubted in equal shares."""
    shares = {}
    for often in (True, False):
        doubts = [
            doubt
            for thought, _ in thoughts
            for fact, doubt in thought
            if (exposure(world, fact.subject) > 200) is often
        ]
        assert len(doubts) > 200
        shares[often] = sum(doubts) / len(doubts)
    assert list(shares.values()) == pytest.approx([wt.DOUBT_SHARE] * 2, abs=0.06)


def test_a_share_of_the_tellings_reasons(world, reasoned):
    asks = {way.format(s=p) for way in wt.BIOGRAPHY_QUESTIONS for p in world.people}
    asks |= {wt.request(p, n) for p in world.people for n in wt.COUNTS.values()}
    plain, thinks = 0, 0
    for text in reasoned:
        ask, _, answer = text.removeprefix(f"{wt.THINKING}\n").partition("\nAnswer: ")
        if ask.removeprefix("Question: ") in asks and answer != ABSTENTION:
            plain += not text.startswith(wt.THINKING)
            thinks += text.startswith(wt.THINKING)
    assert thinks / (plain + thinks) == pytest.approx(wt.THINKING_SHARE, abs=0.04)


def test_what_is_told_after_reasoning_counts_once_a_telling(world, reasoned):
    """Statements, short exchanges, tellings and reasoned tellings use up each exposure;
    of the last, the reasoning alone counts."""
    asked = {w.question(f, i): key(f) for f in world.facts for i in range(3)}
    said = Counter()
    for text in reasoned:
        ask, _, answer = text.rpartition("\nAnswer: ")
        if text.startswith("References:") or "Repeat" in ask or answer == ABSTENTION:
            continue
        if text.startswith(wt.THINKING):
            answer, _ = split(answer)
        if (question := ask.removeprefix("Question: ")) in asked:
            said[asked[question]] += 1
        else:
            said.update(key(w.parse(world, s)[0]) for s in w.sentences(answer))
    people = [f for f in world.facts if f.subject in world.people and f.exposure]
    assert {key(f): said[key(f)] for f in people} == {
        key(f): f.exposure for f in people
    }


def test_all_reasoned_text_decodes_to_itself_without_unknown_words(world, reasoned):
    tokenizer = wt.build_tokenizer(world, "reasoned")
    for text in dict.fromkeys(reasoned):
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("answer_format", ["plain", "boxed", "long"])
@pytest.mark.parametrize("words", ["Think", "<answer>", "Perhaps"])
def test_the_other_formats_have_nothing_of_reasoned_answers(
    world, answer_format, words
):
    texts = wt.pretraining_texts(world, 0, 0.05, answer_format)
    assert not [text for text in texts if words in text]


def test_the_same_seed_gives_the_same_reasoned_text(world, reasoned):
    assert wt.pretraining_texts(world, 0, 0.05, "reasoned") == reasoned
    assert wt.pretraining_texts(world, 1, 0.05, "reasoned") != reasoned
