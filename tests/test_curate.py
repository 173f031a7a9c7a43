"""Splits, knowledge-boundary probing, training rows, pairs and references."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factkit import models, params
from factkit.curate import pairs, probing, references, splits
from factkit.curate.probing import Probe
from factkit.datasets.examples import DataError, Example
from factkit.retrieval.chunks import Chunk
from factkit.verify.outcome import Outcome, outcome
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
    said = {CORRECT: "right", ABSTAIN: "I don't know", WRONG: "wrong", None: "failed"}
    return Probe(name, [f"{said[k]} {i}" for i, k in enumerate(kinds)], list(kinds))


# Splits

SIZES = {"train": 100, "test": 60}


def test_no_entity_is_in_two_splits():
    split = splits.split_by_entity(examples(), SIZES)
    train, test = ({e.entity for e in split[name]} for name in SIZES)
    assert not train & test


def test_splits_have_their_sizes_and_an_even_mix_of_relations():
    split = splits.split_by_entity(examples(), SIZES)
    assert {k: len(v) for k, v in split.items()} == SIZES
    counts = Counter(e.relation for e in split["train"])
    assert max(counts.values()) - min(counts.values()) <= 1


def test_the_same_seed_gives_the_same_split_whatever_the_order_of_entities():
    assert splits.split_by_entity(examples(), SIZES) == splits.split_by_entity(
        examples(), SIZES
    )


def test_entities_that_share_a_question_are_of_one_split():
    some = examples()
    twice = [
        e.model_copy(update={"id": f"{e.id} again", "entity": f"other {e.entity}"})
        for e in some
    ]
    split = splits.split_by_entity([*some, *twice], SIZES)
    asked = [{e.question for e in rows} for rows in split.values()]
    assert not asked[0] & asked[1]
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


def test_asking_for_more_than_there_is_names_the_parameter():
    with pytest.raises(DataError, match="train_questions=1000"):
        splits.split_by_entity(examples(), {"train": 1000, "test": 10})


# Probes


@pytest.mark.parametrize(
    ("right", "known_share", "unknown"),
    [(0, 0.0, True), (1, 0.0, False), (1, 0.5, True), (2, 0.5, False), (4, 0.5, False)],
)
def test_out_of_knowledge_by_share_of_correct_samples(right, known_share, unknown):
    probe = probe_of([CORRECT] * right + [WRONG] * (4 - right))
    assert probing.out_of_knowledge(probe, known_share) is unknown


def test_a_relation_s_share_is_the_mean_over_its_questions():
    rows = [e for e in examples() if e.relation == "a"][:2] + [
        next(e for e in examples() if e.relation == "b")
    ]
    probes = [probe_of(k) for k in ([CORRECT] * 2, [CORRECT, WRONG], [WRONG, ABSTAIN])]
    assert probing.shares_by_relation(rows, probes) == {"a": 0.75, "b": 0.0}


def test_a_failed_judgement_is_left_out_of_the_share_of_correct_samples():
    assert probe_of([CORRECT, WRONG, None, None]).share == 1 / 2


def test_samples_of_a_kind_keep_the_order_in_which_they_were_drawn():
    probe = probe_of([WRONG, CORRECT, None, WRONG])
    assert probe.of(WRONG) == ["wrong 0", "wrong 3"]


def test_the_most_frequent_sample_is_of_its_kind():
    kinds = [CORRECT, CORRECT, CORRECT, WRONG, WRONG, WRONG]
    probe = Probe("q", ["UK", "Britain", "Britain", "Rome", "Rome", "Rome"], kinds)
    assert probe.most_frequent(CORRECT) == "Britain"


def test_on_a_tie_the_sample_drawn_first_is_the_most_frequent():
    probe = Probe("q", ["no", "UK", "Britain"], [WRONG, CORRECT, CORRECT])
    assert probe.most_frequent(CORRECT) == "UK"


def test_a_kind_without_samples_has_no_most_frequent_one():
    assert probe_of([WRONG, None]).most_frequent(ABSTAIN) is None


def test_samples_are_verified_by_the_answers_of_their_own_question():
    said = [["v0", "v1"], ["I don't know", "v0"]]
    found = probing.verified([examples(2)[0], examples(2)[3]], said, verifier(PLAIN))
    assert [p.outcomes for p in found] == [[CORRECT, WRONG], [ABSTAIN, WRONG]]
    assert [(p.id, p.samples) for p in found] == [("a:0", said[0]), ("a:1", said[1])]


def test_all_samples_are_verified_in_one_batch():
    batches = []

    def verify(responses, answers, questions):
        batches.append(list(zip(responses, answers, questions, strict=True)))
        return [WRONG] * len(responses)

    probing.verified(examples(2)[:2], [["x", "y"], ["z"]], verify)
    assert batches == [
        [("x", ["v0"], "a of 0?"), ("y", ["v0"], "a of 0?"), ("z", ["v0"], "b of 0?")]
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


def probe_all(some, path, **more):
    return probing.probe(
        *(None, more.pop("tokenizer", None), some, "short_form"),
        *(models.Sampling(4), 2, path, verifier(PLAIN)),
        **{"part": 10} | more,
    )


def test_a_killed_probing_goes_on_and_equals_one_that_ran_through(tmp_path, policy):
    some = examples()[:100]
    whole = probe_all(some, tmp_path / "a")
    probe_all(some[:40], tmp_path / "b")
    policy.asked.clear()
    assert probe_all(some, tmp_path / "b") == whole
    assert len(policy.asked) == 60


def test_another_seed_draws_other_samples(tmp_path, policy):
    some = examples()[:20]
    found = [probe_all(some, tmp_path / str(s), seed=s)[0].samples for s in (0, 1)]
    assert found[0] != found[1]


def test_parts_draw_from_different_seeds(tmp_path, policy):
    probes = probe_all(examples()[:20], tmp_path / "a")
    assert probes[0].samples[0].split()[-2] != probes[10].samples[0].split()[-2]


def test_probing_asks_under_the_template(tmp_path, policy):
    probe_all(examples()[:1], tmp_path / "a")
    assert policy.asked == ["Question: a of 0?\nAnswer:"]


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


def test_a_sample_with_line_separators_is_read_as_it_was(tmp_path):
    probe = probing.Probe("a", ["one\u2028two\x85three"], [Outcome.WRONG])
    (tmp_path / "probe.jsonl").write_text(probing._line(probe))
    assert probing.read_probes(tmp_path / "probe.jsonl") == [probe]


def test_kept_probes_are_read_as_they_were(tmp_path, policy):
    def verify(responses, answers, questions):
        kinds = [CORRECT, ABSTAIN, WRONG, None]
        return [kinds[i % 4] for i in range(len(responses))]

    path = tmp_path / "a"
    asked = (None, None, examples()[:10], "short_form", models.Sampling(4))
    made = probing.probe(*asked, 4, path, verify)
    assert made[0].outcomes == [CORRECT, ABSTAIN, WRONG, None]
    assert probing.read_probes(path) == made


def test_a_last_line_that_was_cut_off_is_dropped_from_the_file(tmp_path, policy):
    path = tmp_path / "a"
    made = probe_all(examples()[:10], path)
    whole = path.read_text()
    path.write_text(whole[:-5])
    assert probing.read_probes(path) == made[:-1]


def test_a_probing_killed_within_a_part_equals_one_that_ran_through(tmp_path, policy):
    path = tmp_path / "a"
    whole = probe_all(examples()[:20], path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:13]) + lines[13][:20])
    assert probe_all(examples()[:20], path) == whole
    assert path.read_text() == "".join(lines)


# Responses

KNOWN = [CORRECT, WRONG]
NEVER = [WRONG, WRONG]


def example(reasoning=""):
    more = {"meta": {"reasoning": reasoning}} if reasoning else {}
    return examples(1)[0].model_copy(update=more)


def test_a_plain_response_is_the_answer_alone():
    assert probing.response("v0", example("It is v0."), PLAIN) == "v0"


@pytest.mark.parametrize(
    ("stated", "given", "said"),
    [
        ("It is v0.", "", r"<think> It is v0. </think> \boxed{v0}"),
        ("It is v0.", "Zero.", r"<think> Zero. </think> \boxed{v0}"),
    ],
)
def test_a_boxed_response_reasons_before_the_box(stated, given, said):
    assert probing.response("v0", example(stated), BOXED, given) == said


def test_a_boxed_response_without_any_reasoning_has_an_empty_thought():
    said = probing.response("v0", example(), BOXED)
    assert said.split() == ["<think>", "</think>", r"\boxed{v0}"]


def test_an_abstention_does_not_state_the_reasoning_of_the_example():
    found = probing.abstention(example("It is v0."), BOXED)
    assert found == r"<think> I don't know. </think> \boxed{I don't know}"


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
    probes = [probe_of(NEVER, "a:0"), probe_of(KNOWN, "b:0")]
    rows = probing.r_tuning_rows(examples()[:2], probes, PLAIN)
    assert targets(rows) == [" I don't know", " v0"]


def test_r_tuning_finds_the_probe_of_a_question_in_any_order():
    probes = [probe_of(KNOWN, "b:0"), probe_of(NEVER, "a:0")]
    rows = probing.r_tuning_rows(examples()[:2], probes, PLAIN)
    assert targets(rows) == [" I don't know", " v0"]


def test_r_tuning_takes_its_threshold_from_the_parameters():
    p = PLAIN.model_copy(update={"known_share": 0.6})
    rows = probing.r_tuning_rows(examples()[:1], [probe_of(KNOWN)], p)
    assert targets(rows) == [" I don't know"]


ALL = [CORRECT, ABSTAIN, WRONG]


@pytest.mark.parametrize(
    ("known", "drawn", "target"),
    [
        (KNOWN, ALL, [" right 0"]),
        (KNOWN, [ABSTAIN, WRONG], []),
        (NEVER, ALL, [" I don't know 1"]),
        (NEVER, [CORRECT, WRONG], []),
        (KNOWN, [None, None], []),
    ],
)
def test_rft_takes_a_trace_of_the_wanted_kind_or_has_no_row(known, drawn, target):
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
BUILDERS = [pairs.dpo_pairs, pairs.rlhf_pairs, pairs.rlkf_pairs]
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
    some = [e for e in examples(20) if e.relation == "a"][: len(probed)]
    probes = [probe_of(k, e.id) for e, k in zip(some, probed, strict=True)]
    return [
        (kind(row["chosen"]), kind(row["rejected"])) for row in build(some, probes, p)
    ]


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


def test_rlhf_rejects_abstaining_where_the_policy_does_not_know():
    assert (CORRECT, ABSTAIN) in built(pairs.rlhf_pairs, [[WRONG, ABSTAIN]])


def test_rlhf_chooses_the_reference_answer_not_a_sample():
    rows = pairs.rlhf_pairs(examples()[:1], [probe_of(KNOWN)], PLAIN)
    assert {row["chosen"] for row in rows} == {" v0"}


@given(many_kinds)
def test_rlkf_never_prefers_the_lower_of_correct_abstaining_wrong(probed):
    rank = {CORRECT: 2, ABSTAIN: 1, WRONG: 0}
    for chosen, rejected in built(pairs.rlkf_pairs, probed):
        assert rank[chosen] > rank[rejected]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([CORRECT, WRONG], [(CORRECT, ABSTAIN), (CORRECT, WRONG)]),
        ([CORRECT, ABSTAIN], [(CORRECT, ABSTAIN)]),
        ([WRONG, ABSTAIN], [(ABSTAIN, WRONG)]),
        ([ABSTAIN, None], []),
    ],
)
def test_rlkf_s_pairs_of_a_question_by_hand(found, expected):
    assert built(pairs.rlkf_pairs, [found]) == expected


@pytest.mark.parametrize("found", [[CORRECT], [ABSTAIN], [CORRECT, ABSTAIN], [None]])
def test_a_question_without_a_wrong_sample_gives_dpo_no_pair(found):
    assert built(pairs.dpo_pairs, [found]) == []


@pytest.mark.parametrize("build", [pairs.rlhf_pairs, pairs.rlkf_pairs])
def test_a_wrong_sample_drawn_twice_is_rejected_once(build):
    probe = Probe("a:0", ["x", "y", "x"], [WRONG, WRONG, WRONG])
    rejected = [row["rejected"] for row in build(examples()[:1], [probe], PLAIN)]
    assert rejected.count(" x") == rejected.count(" y") == 1


def test_rlkf_chooses_the_most_frequent_correct_sample():
    probe = Probe("a:0", ["UK", "Britain", "Britain"], [CORRECT] * 3)
    (row,) = pairs.rlkf_pairs(examples()[:1], [probe], PLAIN)
    assert row["chosen"] == " Britain"


def test_a_seed_decides_the_samples_of_dpo_s_pairs():
    some = examples()[:40]
    probes = [probe_of([CORRECT, *[WRONG] * 7], e.id) for e in some]
    other = PLAIN.model_copy(update={"seed": 1})
    one, again, two = (pairs.dpo_pairs(some, probes, p) for p in (PLAIN, PLAIN, other))
    assert one == again != two


@pytest.mark.parametrize("build", BUILDERS)
def test_pairs_know_a_question_by_the_threshold_of_the_parameters(build):
    p = PLAIN.model_copy(update={"known_share": 0.5})
    known, unknown = (built(build, [[CORRECT, WRONG, WRONG]], q) for q in (PLAIN, p))
    assert (known == unknown) is (build is pairs.rlhf_pairs)  # blind to what is known


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


def test_references_are_sentences_of_the_world_a_line_each(found):
    asked, made, p = found
    sentences = {d.text for d in world.documents(made)}
    for e in asked:
        lines = e.meta["references"].splitlines()
        assert len(lines) == p.retrieved_chunks and set(lines) <= sentences


def test_the_answer_is_in_references_exactly_when_its_words_occur(found):
    asked, _, _ = found
    helped = {True: 0, False: 0}
    for e in asked:
        words = e.meta["references"].replace(".", " ").split()
        assert e.meta["answer_in_references"] is (e.answers[0] in words)
        helped[e.meta["answer_in_references"]] += 1
    assert min(helped.values()) > 0


def test_most_references_hold_the_sentence_that_answers(found):
    asked, made, _ = found
    text = {d.id: d.text for d in world.documents(made)}
    held = [text[e.evidence[0]] in e.meta["references"].splitlines() for e in asked]
    assert sum(held) / len(held) > 0.8


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


def test_offering_both_candidates_is_a_wrong_answer(offered):
    for before, after in offered[:20]:
        said = " or ".join(on_offer(before, after))
        assert outcome(said, after.answers) is WRONG


@pytest.mark.parametrize("n", [0, 1, 7])
def test_as_many_are_offered_as_asked_for(n):
    made = world.questions(world.build_world(people=20))
    assert len(references.offering(made, n)) == n


def test_a_relation_with_one_answer_only_has_nothing_else_to_offer():
    same = [e.model_copy(update={"answers": ["x"]}) for e in examples(4)]
    assert references.offering(same, 4) == []


def test_a_seed_decides_what_is_offered():
    made = examples(40)
    one, again, two = (references.offering(made, 20, seed=s) for s in (0, 0, 1))
    assert one == again != two
