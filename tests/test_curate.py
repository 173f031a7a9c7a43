"""Splits, knowledge-boundary probing, training rows, pairs and references."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factkit import models, params
from factkit.curate import probing, splits
from factkit.curate.probing import Probe
from factkit.datasets.examples import DataError, Example, refuse_overlap
from factkit.retrieval.chunks import Chunk
from factkit.truthrl import pairs, references
from factkit.verify.outcome import Outcome
from factkit.verify.response import boxed
from factkit.verify.verifier import verifier
from factkit.world import facts as world
from factkit.world import texts as world_text

CORRECT, ABSTAIN, WRONG = Outcome.CORRECT, Outcome.ABSTAIN, Outcome.WRONG
PLAIN = params.load("truthrl", "tiny")
BOXED = params.load("truthrl", "tiny", variant="reasoning")
CHAT = PLAIN.model_copy(update={"chat": True})
RELATIONS = ("a", "b", "rare")


def examples(n=400):
    return [
        Example(
            id=f"{relation}:{i}",
            question=f"{relation} of {i}?",
            answers=[f"v{i}"],
            entity=f"e{i // 2}",
            relation=relation,
        )
        for i in range(n)
        for relation in RELATIONS[: 3 if i % 5 == 0 else 2]
    ]


def probe_of(kinds, name="a:0"):
    """A probe with these outcomes; a sample's text says which and where it is."""
    texts = {CORRECT: "right", ABSTAIN: "I don't know", WRONG: "wrong", None: "failed"}
    return Probe(name, [f"{texts[k]} {i}" for i, k in enumerate(kinds)], list(kinds))


# Splits

SIZES = {"train": 100, "test": 60}


def test_splits_have_their_sizes_no_common_entity_and_an_even_mix_of_relations():
    split = splits.split_by_entity(examples(), SIZES)
    assert {k: len(v) for k, v in split.items()} == SIZES
    train, test = ({e.entity for e in split[name]} for name in SIZES)
    assert not train & test
    counts = Counter(e.relation for e in split["train"])
    assert max(counts.values()) - min(counts.values()) <= 1
    assert split == splits.split_by_entity(examples(), SIZES)


def test_entities_that_share_a_question_are_of_one_split():
    once = examples()
    twice = [
        e.model_copy(update={"id": f"{e.id} again", "entity": f"other {e.entity}"})
        for e in once
    ]
    split = splits.split_by_entity([*once, *twice], SIZES)
    questions = [{e.question for e in rows} for rows in split.values()]
    assert not questions[0] & questions[1]
    assert len({e.id for e in split["train"]}) == SIZES["train"]


def test_a_split_that_chance_leaves_short_is_filled_up():
    every = examples()
    for seed in range(5):
        split = splits.split_by_entity(every, {"train": 825, "test": 50}, seed)
        assert (len(split["train"]), len(split["test"])) == (825, 50)


def test_asking_of_some_relations_alone_moves_no_entity_to_another_split():
    sizes = {"train": 80, "test": 48}
    chosen = splits.split_by_entity(examples(), sizes, 0, ["a"])
    every = splits.split_by_entity(examples(), sizes)
    assert {e.relation for rows in chosen.values() for e in rows} == {"a"}
    for one, other in (("train", "test"), ("test", "train")):
        entities = {e.entity for e in every[other]}
        assert len(chosen[one]) == sizes[one]
        assert not {e.entity for e in chosen[one]} & entities


def test_the_first_of_each_relation_keep_their_order():
    rows = examples()
    few = splits.first_of_each(rows, 2)
    assert Counter(e.relation for e in few) == dict.fromkeys(RELATIONS, 2)
    assert few == [e for e in rows if e in few]
    assert few[0] == rows[0]


def test_asking_for_more_than_there_is_is_refused_by_name():
    with pytest.raises(DataError, match="train_questions=1000"):
        splits.split_by_entity(examples(), {"train": 1000, "test": 10})
    with pytest.raises(DataError, match="test=2: only 0 of 3"):
        splits.split_prompts(examples(1), {"train": 1, "test": 2})


def test_prompts_are_split_by_entity_as_they_come():
    split = splits.split_prompts(examples(), SIZES)
    assert {name: len(rows) for name, rows in split.items()} == SIZES
    refuse_overlap(split)
    assert split == splits.split_prompts(examples(), SIZES)
    assert split != splits.split_prompts(examples(), SIZES, 1)


# Probes


def test_out_of_knowledge_by_share_of_correct_samples():
    for right, known_share, unknown in (
        (0, 0.0, True),
        (1, 0.0, False),
        (1, 0.5, True),
        (2, 0.5, False),
        (4, 0.5, False),
    ):
        probe = probe_of([CORRECT] * right + [WRONG] * (4 - right))
        assert probing.out_of_knowledge(probe, known_share) is unknown
    # nothing says so where the judge failed, which counts for no share
    assert not probing.out_of_knowledge(probe_of([None, None]), 0.5)
    assert probe_of([CORRECT, WRONG, None, None]).share == 1 / 2


def test_the_samples_of_a_kind_and_the_most_frequent_of_them():
    """In the order in which they were drawn; on a tie the first."""
    kinds = [WRONG, CORRECT, CORRECT, CORRECT, None, WRONG]
    probe = Probe("q", ["Rome", "UK", "Britain", "Britain", "x", "Oslo"], kinds)
    assert probe.of(WRONG) == ["Rome", "Oslo"]
    assert probe.most_frequent(CORRECT) == "Britain"
    assert probe.most_frequent(WRONG) == "Rome"
    assert probe.most_frequent(ABSTAIN) is None


def test_all_samples_are_verified_in_one_batch_by_their_questions_answers():
    batches = []

    def verify(responses, answers, questions):
        batches.append(list(zip(responses, answers, questions, strict=True)))
        return verifier(PLAIN)(responses, answers, questions)

    samples = [["v0", "v1"], ["I don't know"]]
    probes = probing.verified(examples(2)[:2], samples, verify)
    assert [p.outcomes for p in probes] == [[CORRECT, WRONG], [ABSTAIN]]
    assert [(p.id, p.samples) for p in probes] == [
        ("a:0", samples[0]),
        ("b:0", samples[1]),
    ]
    assert batches == [
        [
            ("v0", ["v0"], "a of 0?"),
            ("v1", ["v0"], "a of 0?"),
            ("I don't know", ["v0"], "b of 0?"),
        ]
    ]


# Probing is resumable.


class FakePolicy:
    """Stands in for `models.sample`; keeps what it is asked, answers by the seed."""

    def __init__(self):
        self.asked = []

    def __call__(self, model, tokenizer, asked, sampling, n, seed):
        self.asked += asked
        return [[f"{prompt[-12:]} {seed} {i}" for i in range(n)] for prompt in asked]


@pytest.fixture
def policy(monkeypatch):
    fake = FakePolicy()
    monkeypatch.setattr(models, "sample", fake)
    return fake


def probe_all(rows, path, **more):
    return probing.probe(
        *(None, more.pop("tokenizer", None), rows, "short_form"),
        *(models.Sampling(4), 2, path, more.pop("verify", verifier(PLAIN))),
        **{"part": 10} | more,
    )


def test_a_killed_probing_goes_on_and_equals_one_that_ran_through(tmp_path, policy):
    """Of a part that was cut off, nothing is kept; each part has a seed of its own."""
    rows, path = examples()[:50], tmp_path / "probe"
    whole = probe_all(rows, path)
    assert policy.asked[0] == "Question: a of 0?\nAnswer:"
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    for kept, drawn_again in ((40, 10), (13, 40)):
        path.write_text("".join(lines[:kept]) + lines[kept][:20])
        policy.asked.clear()
        assert probe_all(rows, path) == whole
        assert path.read_text() == text
        assert len(policy.asked) == drawn_again
    assert whole[0].samples[0].split()[-2] != whole[10].samples[0].split()[-2]
    other = probe_all(rows, tmp_path / "other", seed=1)
    assert other[0].samples != whole[0].samples


class ChatTokenizer:
    """One that begins each text with a token, as Llama's does."""

    bos_token, bos_token_id = "<s>", 1

    def __call__(self, text):
        return {"input_ids": [1, 2]}

    def apply_chat_template(self, turns, tokenize, add_generation_prompt):
        return "<s>" + "".join(f"[{t['role']}] {t['content']}" for t in turns)


def test_a_chat_policy_is_probed_in_a_chat(tmp_path, policy):
    probe_all(examples()[:1], tmp_path / "a", chat=True, tokenizer=ChatTokenizer())
    assert policy.asked == ["[user] Question: a of 0?\nAnswer:"]


def test_kept_probes_are_read_as_they_were(tmp_path, policy, monkeypatch):
    texts = ["one\u2028two\x85three", "a\nb"]
    monkeypatch.setattr(models, "sample", lambda _m, _t, asked, *_, **how: [texts] * 2)

    def verify(responses, answers, questions):
        return [CORRECT, ABSTAIN, WRONG, None]

    path = tmp_path / "a"
    made = probe_all(examples()[:2], path, verify=verify)
    assert [p.outcomes for p in made] == [[CORRECT, ABSTAIN], [WRONG, None]]
    assert made[0].samples == texts
    assert probing.read_probes(path) == made
    path.write_text(path.read_text()[:-5])
    assert probing.read_probes(path) == made[:-1]


# Responses

KNOWN = [CORRECT, WRONG]
NEVER = [WRONG, WRONG]


def example(reasoning=""):
    more = {"meta": {"reasoning": reasoning}} if reasoning else {}
    return examples(1)[0].model_copy(update=more)


def test_a_response_in_the_format_asked_for():
    """Boxed, it reasons before the box; an abstention doesn't as the example does."""
    stated = example("It is v0.")
    assert probing.response("v0", stated, PLAIN) == "v0"
    said = probing.response("v0", stated, BOXED)
    assert said == r"<think> It is v0. </think> \boxed{v0}"
    said = probing.response("v0", stated, BOXED, "Zero.")
    assert said == r"<think> Zero. </think> \boxed{v0}"
    said = probing.response("v0", example(), BOXED)
    assert said.split() == ["<think>", "</think>", r"\boxed{v0}"]
    said = probing.abstention(stated, BOXED)
    assert said == r"<think> I don't know. </think> \boxed{I don't know}"


@pytest.mark.parametrize("p", [PLAIN, BOXED], ids=["plain", "boxed"])
def test_responses_are_verified_as_what_they_are_meant_to_be(p):
    e = example("It is v0.")
    said = [probing.response("v0", e, p), probing.abstention(e, p)]
    found = verifier(p)(said, [e.answers] * 2, [e.question] * 2)
    assert found == [CORRECT, ABSTAIN]


# Rows for training


def targets(rows):
    return [row["completion"] for row in rows]


def test_sft_rows_answer_with_the_reference():
    rows = probing.sft_rows(examples()[:2], PLAIN)
    assert targets(rows) == [" v0", " v0"]
    assert rows[1]["prompt"] == "Question: b of 0?\nAnswer:"


def test_r_tuning_abstains_where_unknown_and_else_gives_the_reference():
    probes = [probe_of(KNOWN, "b:0"), probe_of(NEVER, "a:0")]  # in any order
    rows = probing.r_tuning_rows(examples()[:2], probes, PLAIN)
    assert targets(rows) == [" I don't know", " v0"]
    p = PLAIN.model_copy(update={"known_share": 0.6})
    rows = probing.r_tuning_rows(examples()[:1], [probe_of(KNOWN)], p)
    assert targets(rows) == [" I don't know"]


ALL = [CORRECT, ABSTAIN, WRONG]


def test_rft_takes_a_trace_of_the_wanted_kind_or_has_no_row():
    for known, drawn, target in (
        (KNOWN, ALL, [" right 0"]),
        (KNOWN, [ABSTAIN, WRONG], []),
        (NEVER, ALL, [" I don't know 1"]),
        (NEVER, [CORRECT, WRONG], []),
        (KNOWN, [None, None], []),
    ):
        traces = [probe_of(drawn)]
        rows = probing.rft_rows(examples()[:1], [probe_of(known)], traces, PLAIN)
        assert targets(rows) == target


def test_rows_for_grpo_hold_what_the_reward_reads():
    (row,) = probing.prompt_rows(examples()[:1], [probe_of(NEVER)], PLAIN)
    assert row == {
        "prompt": "Question: a of 0?\nAnswer:",
        "id": "a:0",
        "answers": ["v0"],
        "question": "a of 0?",
        "out_of_knowledge": True,
    }


def test_a_prompt_with_references_shows_those_of_its_example():
    p = params.load("truthrl", "tiny", variant="retrieval")
    meta = {"references": "One.\nTwo."}
    asked = probing.turn(example().model_copy(update={"meta": meta}), p)
    assert asked == "References:\nOne.\nTwo.\nQuestion: a of 0?\nAnswer:"


def test_rows_of_a_chat_are_turns():
    (row,) = probing.sft_rows(examples()[:1], CHAT)
    assert row == {
        "prompt": [{"role": "user", "content": "Question: a of 0?\nAnswer:"}],
        "completion": [{"role": "assistant", "content": "v0"}],
    }


def test_pairs_of_a_chat_are_turns():
    (row,) = pairs.dpo_pairs(examples()[:1], [probe_of(KNOWN)], CHAT)
    assert row["prompt"][0]["role"] == "user"
    chosen, rejected = ([{"role": "assistant", "content": c}] for c in SAID_OF_KNOWN)
    assert (row["chosen"], row["rejected"]) == (chosen, rejected)


# Preference pairs

SAID_OF_KNOWN = ("right 0", "wrong 1")
kinds = st.lists(st.sampled_from([*Outcome, None]), min_size=1, max_size=8)
many_kinds = st.lists(kinds, min_size=1, max_size=6)


def kind(text):
    """The outcome that a made-up sample, an abstention or a reference stands for."""
    text = text.strip()
    if text.startswith("wrong"):
        return WRONG
    return ABSTAIN if text.startswith("I don't know") else CORRECT


def built(build, probed, p=PLAIN):
    """(chosen, rejected) kinds of the pairs of each probed question."""
    asked = [e for e in examples(20) if e.relation == "a"][: len(probed)]
    probes = [probe_of(k, e.id) for e, k in zip(asked, probed, strict=True)]
    rows = build(asked, probes, p)
    return [(kind(row["chosen"]), kind(row["rejected"])) for row in rows]


@given(many_kinds)
def test_dpo_prefers_correct_to_wrong_or_abstaining_where_unknown(probed):
    expected = [
        (CORRECT if CORRECT in found else ABSTAIN, WRONG)
        for found in probed
        if WRONG in found
    ]
    assert built(pairs.dpo_pairs, probed) == expected


@given(many_kinds)
def test_rlhf_prefers_the_reference_to_wrong_samples_and_to_abstaining(probed):
    expected = [
        (CORRECT, other)
        for found in probed
        for other in [WRONG] * found.count(WRONG) + [ABSTAIN]
    ]
    assert built(pairs.rlhf_pairs, probed) == expected


def test_rlhf_chooses_the_reference_answer_not_a_sample():
    rows = pairs.rlhf_pairs(examples()[:1], [probe_of(KNOWN)], PLAIN)
    assert {row["chosen"] for row in rows} == {" v0"}


@given(many_kinds)
def test_rlkf_never_prefers_the_lower_of_correct_abstaining_wrong(probed):
    rank = {CORRECT: 2, ABSTAIN: 1, WRONG: 0}
    for chosen, rejected in built(pairs.rlkf_pairs, probed):
        assert rank[chosen] > rank[rejected]


def test_rlkf_s_pairs_of_a_question_by_hand():
    for outcomes, expected in (
        ([CORRECT, WRONG], [(CORRECT, ABSTAIN), (CORRECT, WRONG)]),
        ([CORRECT, ABSTAIN], [(CORRECT, ABSTAIN)]),
        ([WRONG, ABSTAIN], [(ABSTAIN, WRONG)]),
        ([ABSTAIN, None], []),
    ):
        assert built(pairs.rlkf_pairs, [outcomes]) == expected


def test_a_wrong_sample_drawn_twice_is_rejected_once():
    probe = Probe("a:0", ["x", "y", "x"], [WRONG, WRONG, WRONG])
    for build in (pairs.rlhf_pairs, pairs.rlkf_pairs):
        rejected = [row["rejected"] for row in build(examples()[:1], [probe], PLAIN)]
        assert rejected.count(" x") == rejected.count(" y") == 1


def test_rlkf_chooses_the_most_frequent_correct_sample():
    probe = Probe("a:0", ["UK", "Britain", "Britain"], [CORRECT] * 3)
    (row,) = pairs.rlkf_pairs(examples()[:1], [probe], PLAIN)
    assert row["chosen"] == " Britain"


def test_a_seed_decides_the_samples_of_dpo_s_pairs():
    asked = examples()[:40]
    probes = [probe_of([CORRECT, *[WRONG] * 7], e.id) for e in asked]
    other = PLAIN.model_copy(update={"seed": 1})
    one, again, two = (pairs.dpo_pairs(asked, probes, p) for p in (PLAIN, PLAIN, other))
    assert one == again != two


def test_pairs_know_a_question_by_the_threshold_of_the_parameters():
    p, asked = PLAIN.model_copy(update={"known_share": 0.5}), [[CORRECT, WRONG, WRONG]]
    for build in (pairs.dpo_pairs, pairs.rlhf_pairs, pairs.rlkf_pairs):
        known, unknown = (built(build, asked, q) for q in (PLAIN, p))
        assert (known == unknown) is (build is pairs.rlhf_pairs)  # blind to it


def test_made_responses_of_a_pair_are_boxed_where_the_format_is():
    (row,) = pairs.dpo_pairs(examples()[:1], [probe_of(NEVER)], BOXED)
    assert boxed(row["chosen"]) == "I don't know"


# References


@pytest.fixture(scope="module")
def found():
    """The fact world's first questions with references, its sentences, parameters."""
    p = params.load("truthrl", "tiny", {"world_people": 200}, variant="retrieval")
    made = world.build_world(people=200)
    some = world.questions(made)
    tokenizer = world_text.build_tokenizer(made)
    return references.with_references({"test": some}, p, tokenizer)["test"], made, p


def test_references_are_sentences_of_the_world_most_with_the_one_that_answers(found):
    asked, made, p = found
    text = {d.id: d.text for d in world.documents(made)}
    held = 0
    for e in asked:
        lines = e.meta["references"].splitlines()
        assert len(lines) == p.retrieved_chunks and set(lines) <= set(text.values())
        words = e.meta["references"].replace(".", " ").split()
        assert e.meta["answer_in_references"] is (e.answers[0] in words)
        held += text[e.evidence[0]] in lines
    assert {e.meta["answer_in_references"] for e in asked} == {True, False}
    assert held / len(asked) > 0.8


def test_references_change_nothing_else_of_an_example(found):
    asked, made, _ = found
    for before, after in zip(world.questions(made), asked, strict=True):
        added = {k: v for k, v in after.meta.items() if k not in before.meta}
        assert set(added) == {"references", "answer_in_references"}
        assert after.model_copy(update={"meta": before.meta}) == before


def test_every_chunk_of_a_lead_begins_with_its_title():
    chunks = [Chunk("a#0", "a", "He was born. ", 3), Chunk("a#1", "a", " He sang.", 2)]
    titled = references.titled(chunks, {"a": "Bo (singer)"})
    assert [c.text for c in titled] == [
        "Bo (singer): He was born.",
        "Bo (singer): He sang.",
    ]
    assert [c.id for c in titled] == ["a#0", "a#1"]


def test_without_a_retriever_no_references_are_added():
    sets = {"test": examples()[:3]}
    assert references.with_references(sets, PLAIN, None) == sets


# Questions that offer the answers


@pytest.fixture(scope="module")
def offered():
    made = world.questions(world.build_world(people=40))
    by_id = {e.id: e for e in made}
    return [(by_id[o.id], o) for o in references.offering(made, len(made))]


def on_offer(before, after):
    offer = after.question.removeprefix(before.question.rstrip("?"))
    return offer.removeprefix(", ").removesuffix("?").split(" or ")


def test_the_answer_and_one_other_of_the_relation_are_on_offer(offered):
    answers = {(before.relation, before.answers[0]) for before, _ in offered}
    for before, after in offered:
        pair = on_offer(before, after)
        (other,) = set(pair) - set(before.answers)
        assert len(pair) == 2 and (before.relation, other) in answers


def test_the_answer_is_offered_first_about_half_the_time(offered):
    first = [on_offer(b, a).index(b.answers[0]) == 0 for b, a in offered]
    assert 0.3 < sum(first) / len(first) < 0.7


def test_offering_changes_the_question_alone(offered):
    for before, after in offered:
        assert after.model_copy(update={"question": before.question}) == before


def test_as_many_are_offered_as_asked_for():
    made = world.questions(world.build_world(people=20))
    for n in (0, 1, 7):
        assert len(references.offering(made, n)) == n


def test_a_relation_with_one_answer_only_has_nothing_else_to_offer():
    same = [e.model_copy(update={"answers": ["x"]}) for e in examples(4)]
    assert references.offering(same, 4) == []


def test_a_seed_decides_what_is_offered():
    made = examples(40)
    one, again, two = (references.offering(made, 20, seed=s) for s in (0, 0, 1))
    assert one == again != two
