"""Splits; TruthRL's probing and what its arms learn from it; requests' evidence."""

from collections import Counter

import pytest
from fake_policy import FakePolicy
from hypothesis import given
from hypothesis import strategies as st

from factkit.answers.sampling import SEEDS, Draws, Probe, probe_knowledge
from factkit.answers.training_rows import RowFormat
from factkit.answers.verifier import verifier
from factkit.data import sources, splits
from factkit.data.corpus import Document
from factkit.data.examples import DataError, Example, read_rows, refuse_overlap
from factkit.facts import source as fact_source
from factkit.papers.rar import requests as rar_requests
from factkit.papers.truthrl import train as training
from factkit.policy.decoding import Sampling
from factkit.run import params
from factkit.verify.outcome import Outcome

CORRECT, ABSTAIN, WRONG = Outcome
PLAIN = params.load("truthrl", "tiny")
BOXED = params.load("truthrl", "tiny", variant="reasoning")
CHAT = PLAIN.model_copy(update={"chat": True})
RELATIONS = ("a", "b", "rare")


def test_what_may_fail_to_load_does_so_before_the_judge_reads_wildchat(monkeypatch):
    """160,000 calls; GPQA is gated on the hub, WildHallucinations has 1.4 GB."""
    loaded = []
    load = lambda name, *_: loaded.append(name) or ([], Counter())  # noqa: E731
    monkeypatch.setattr(sources, "load", load)
    lead = Document(id="", title="", text="", source="")
    monkeypatch.setattr(fact_source, "load_leads", lambda: [lead] * 100)
    judge = "judge_llm", "keep_factual"
    for name in judge:
        call = lambda *_, name=name: loaded.append(name) or ([], Counter())  # noqa: E731
        monkeypatch.setattr(rar_requests, name, call)
    monkeypatch.setattr(rar_requests, "split_prompts", lambda *_: {"test": []})
    monkeypatch.setattr(rar_requests, "split_by_entity", lambda *_: {})
    rar_requests.request_sets(params.load("rar", "h100_full"))
    names = ["wildchat", "popqa", "biography", "wild_hallucinations", "gpqa"]
    assert loaded == [*names, *judge]


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
    train, test = ({e.question for e in rows} for rows in split.values())
    assert not train & test


def test_a_split_that_chance_leaves_short_is_filled_up():
    for seed in range(5):
        split = splits.split_by_entity(examples(), {"train": 825, "test": 50}, seed)
        assert (len(split["train"]), len(split["test"])) == (825, 50)


def test_asking_of_some_relations_alone_moves_no_entity_to_another_split():
    chosen = splits.split_by_entity(examples(), {"train": 80, "test": 48}, 0, ["a"])
    every = splits.split_by_entity(examples(), {"train": 80, "test": 48})
    assert {e.relation for rows in chosen.values() for e in rows} == {"a"}
    for one, other in (("train", "test"), ("test", "train")):
        assert not {e.entity for e in chosen[one]} & {e.entity for e in every[other]}


def test_asking_for_more_than_there_is_is_refused_by_name():
    with pytest.raises(DataError, match="train=1000: only"):
        splits.split_by_entity(examples(), {"train": 1000, "test": 10})
    with pytest.raises(DataError, match="only 0 of 3"):
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
    ):
        probe = probe_of([CORRECT] * right + [WRONG] * (4 - right))
        assert training.out_of_knowledge(probe, known_share) is unknown
    # nothing says so where the judge failed, which counts for no share
    assert not training.out_of_knowledge(probe_of([None, None]), 0.5)
    assert probe_of([CORRECT, WRONG, None, None]).accuracy == 1 / 2


def test_the_samples_of_a_kind_and_the_most_frequent_of_them():
    """In the order in which they were drawn; on a tie the first."""
    kinds = [WRONG, CORRECT, CORRECT, CORRECT, None, WRONG]
    probe = Probe("q", ["Rome", "UK", "Britain", "Britain", "x", "Oslo"], kinds)
    assert probe.samples_with(WRONG) == ["Rome", "Oslo"]
    assert probe.most_frequent(CORRECT) == "Britain"
    assert probe.most_frequent(WRONG) == "Rome"
    assert probe.most_frequent(ABSTAIN) is None


def probe_all(rows, path, verify, policy, seed=0):
    draws = Draws(Sampling(4), 2, seed)
    return probe_knowledge(policy, rows, draws, verify, path)


def test_each_part_of_a_probing_and_each_run_has_a_seed_of_its_own(tmp_path):
    """Parts that were cut off go on as those of `sample_and_score` (test_sampling)."""
    seeds = []

    def generate(prompts, sampling, n, seed):
        seeds.append(seed)
        return [[text] * n for text in prompts]

    policy = FakePolicy(generate)
    policy.part_size = lambda n: 10
    for run in (0, 1):
        path, verify = tmp_path / str(run), verifier(PLAIN)
        probes = probe_all(examples()[:20], path, verify, policy, run)
        assert probes[0].samples == ["Question: a of 0?\nAnswer:"] * 2
    assert seeds == [0, 10, SEEDS, SEEDS + 10]


def test_probes_are_verified_in_a_batch_and_read_as_they_were(tmp_path):
    texts = ["one\u2028two\x85three", "a\nb"]
    policy = FakePolicy(lambda prompts, *_, **how: [texts] * 2)
    batches = []

    def verify(responses, answers, questions):
        batches.append(list(zip(responses, answers, questions, strict=True)))
        return [CORRECT, ABSTAIN, WRONG, None]

    path = tmp_path / "a"
    probes = probe_all(examples()[:2], path, verify, policy)
    assert [p.outcomes for p in probes] == [[CORRECT, ABSTAIN], [WRONG, None]]
    assert probes[0].samples == texts
    questions = ("a of 0?", "b of 0?")
    assert batches == [[(text, ["v0"], q) for q in questions for text in texts]]
    assert read_rows(path, Probe) == probes
    path.write_text(path.read_text("utf-8")[:-5], "utf-8")
    with pytest.raises(DataError, match="row 2"):
        read_rows(path, Probe)


# Responses and rows for training

KNOWN, NEVER, ALL = [CORRECT, WRONG], [WRONG, WRONG], [CORRECT, ABSTAIN, WRONG]


def example(**meta):
    return examples(1)[0].model_copy(update={"meta": meta})


def test_a_response_in_the_format_asked_for_is_verified_as_what_it_is_meant_to_be():
    """Boxed, it reasons before the box; an abstention doesn't as the example does."""
    stated = example(reasoning="It is v0.")
    formats = {p: RowFormat.of(p) for p in (PLAIN, BOXED)}
    answers = {p: training.reference_response(stated, f) for p, f in formats.items()}
    idks = {p: training.abstention(f) for p, f in formats.items()}
    assert answers[PLAIN] == "v0"
    assert answers[BOXED] == r"<think> It is v0. </think> \boxed{v0}"
    assert idks[BOXED] == r"<think> I don't know. </think> \boxed{I don't know}"
    for p in (PLAIN, BOXED):
        columns = [answers[p], idks[p]], [stated.answers] * 2, [stated.question] * 2
        assert verifier(p)(*columns) == [CORRECT, ABSTAIN]


def arm(name, p=PLAIN, **more):
    return p.model_copy(update={"arm": name} | more)


def probed_questions(asked, probes, p):
    """The questions with their probes, and how rows are put."""
    questions = training.ProbedQuestions(asked, probes, p.known_share)
    return questions, RowFormat.of(p)


def pairs(asked, probes, p):
    probed = probed_questions(asked, probes, p)
    return training.preference_rows(p.arm, *probed, p.seed, p.reward_pairs)


def test_sft_r_tuning_and_rft_learn_their_targets():
    known, never = probe_of(KNOWN), probe_of(NEVER)
    for probe, traces, p, target in (
        (never, [], arm("sft"), [" v0"]),
        (never, [], arm("r_tuning"), [" I don't know"]),
        (known, [], arm("r_tuning"), [" v0"]),
        (known, [], arm("r_tuning", known_share=0.6), [" I don't know"]),
        (known, ALL, arm("rft"), [" right 0"]),
        (known, [ABSTAIN, WRONG], arm("rft"), []),
        (never, ALL, arm("rft"), [" I don't know 1"]),
        (never, [CORRECT, WRONG], arm("rft"), []),
    ):
        questions, put = probed_questions(examples()[:1], [probe], p)
        rows = training.sft_rows(p.arm, questions, put, [probe_of(traces)])
        assert [row["completion"] for row in rows] == target


def test_random_abstention_learns_own_samples_and_to_abstain_whatever_is_known():
    asked = examples()[:1] * 2000
    for probe, own in ((probe_of(KNOWN), " right 0"), (probe_of(NEVER), " wrong 0")):
        questions, put = probed_questions(asked, [probe] * len(asked), PLAIN)
        rows = training.random_abstention_rows(questions, put, seed=0)
        assert rows == training.random_abstention_rows(questions, put, seed=0)
        taught = Counter(row["completion"] for row in rows)
        assert taught.keys() == {own, " I don't know"}
        share = taught[" I don't know"] / len(asked)
        assert share == pytest.approx(training.RANDOM_ABSTENTION, abs=0.03)


def test_a_confidence_is_taught_as_the_share_of_right_samples_beside_the_first():
    p = arm("stated_confidence")
    for outcomes, target in (
        ([CORRECT, WRONG, WRONG], [" right 0 (0.3)"]),
        (NEVER, [" wrong 0 (0.0)"]),
        ([WRONG, CORRECT, None], [" wrong 0 (0.5)"]),
        ([None, None], []),
    ):
        questions, put = probed_questions(examples()[:1], [probe_of(outcomes)], p)
        rows = training.sft_rows(p.arm, questions, put)
        assert [row["completion"] for row in rows] == target


def test_rows_for_grpo_hold_what_the_reward_reads_and_references_are_shown():
    probed = probed_questions(examples()[:1], [probe_of(NEVER)], PLAIN)
    (row,) = training.prompt_rows(*probed)
    assert row == {
        "prompt": "Question: a of 0?\nAnswer:",
        "id": "a:0",
        "answers": ["v0"],
        "question": "a of 0?",
        "out_of_knowledge": True,
    }
    p = params.load("truthrl", "tiny", variant="retrieval")
    prompt = RowFormat.of(p).prompt(example(references="One.\nTwo."))
    assert prompt == "References:\nOne.\nTwo.\nQuestion: a of 0?\nAnswer:"


def test_rows_and_pairs_of_a_chat_are_turns():
    probes = [probe_of(KNOWN)]
    probed = probed_questions(examples()[:1], probes, CHAT)
    (row,) = training.sft_rows("sft", *probed)
    prompt = [{"role": "user", "content": "Question: a of 0?\nAnswer:"}]
    reply = [{"role": "assistant", "content": "v0"}]
    assert row == {"prompt": prompt, "completion": reply}
    (row,) = training.preference_rows("dpo", *probed)
    chosen, rejected = (
        [{"role": "assistant", "content": text}] for text in ("right 0", "wrong 1")
    )
    assert row == {"prompt": prompt, "chosen": chosen, "rejected": rejected}


# Preference pairs

kinds = st.lists(st.sampled_from([*Outcome, None]), min_size=1, max_size=8)
many_kinds = st.lists(kinds, min_size=1, max_size=6)


def kind(text):
    """The outcome that a made-up sample, an abstention or a reference stands for."""
    text = text.strip()
    if text.startswith("wrong"):
        return WRONG
    return ABSTAIN if text.startswith("I don't know") else CORRECT


def built(name, probed, **more):
    """(chosen, rejected) kinds of an arm's pairs of each probed question."""
    asked = [e for e in examples(20) if e.relation == "a"][: len(probed)]
    probes = [probe_of(k, e.id) for e, k in zip(asked, probed, strict=True)]
    rows = pairs(asked, probes, arm(name, **more))
    return [(kind(row["chosen"]), kind(row["rejected"])) for row in rows]


@given(many_kinds)
def test_pairs_prefer_as_their_arm_says(probed):
    """DPO correct to wrong, or abstaining where unknown; RLHF the reference to wrong
    samples and to abstaining; RLKF never the lower of correct, abstaining, wrong."""
    assert built("dpo", probed) == [
        (CORRECT if CORRECT in own else ABSTAIN, WRONG)
        for own in probed
        if WRONG in own
    ]
    assert built("rlhf", probed) == [
        (CORRECT, other)
        for own in probed
        for other in [WRONG] * own.count(WRONG) + [ABSTAIN]
    ]
    rank = {CORRECT: 2, ABSTAIN: 1, WRONG: 0}
    for chosen, rejected in built("rlkf", probed):
        assert rank[chosen] > rank[rejected]


def test_rlkf_s_pairs_of_a_question_by_hand():
    for outcomes, expected in (
        ([CORRECT, WRONG], [(CORRECT, ABSTAIN), (CORRECT, WRONG)]),
        ([CORRECT, ABSTAIN], [(CORRECT, ABSTAIN)]),
        ([WRONG, ABSTAIN], [(ABSTAIN, WRONG)]),
        ([ABSTAIN, None], []),
    ):
        assert built("rlkf", [outcomes]) == expected


def test_a_wrong_sample_drawn_twice_is_rejected_once_the_reference_or_best_chosen():
    probe = Probe(
        "a:0", ["x", "y", "x", "UK", "Oslo", "Oslo"], [WRONG] * 3 + [CORRECT] * 3
    )
    for name, chosen in (("rlhf", " v0"), ("rlkf", " Oslo")):
        rows = pairs(examples()[:1], [probe], arm(name))
        assert sorted(row["rejected"] for row in rows) == [" I don't know", " x", " y"]
        assert {row["chosen"] for row in rows} == {chosen}


def test_reward_models_see_so_many_wrong_samples_of_a_question_and_abstaining():
    probed = [[CORRECT, *[WRONG] * 7], [WRONG] * 2]
    assert built("rlhf", probed, reward_pairs=3) == [
        *[(CORRECT, WRONG)] * 3,
        (CORRECT, ABSTAIN),
        *[(CORRECT, WRONG)] * 2,
        (CORRECT, ABSTAIN),
    ]
    assert built("rlkf", probed, reward_pairs=3) == [
        (CORRECT, ABSTAIN),
        *[(CORRECT, WRONG)] * 3,
        *[(ABSTAIN, WRONG)] * 2,
    ]
    assert built("dpo", probed, reward_pairs=1) == built("dpo", probed)


def test_a_seed_decides_the_samples_of_dpo_s_pairs():
    asked = examples()[:40]
    probes = [probe_of([CORRECT, *[WRONG] * 7], e.id) for e in asked]
    one, again, two = (
        pairs(asked, probes, arm("dpo", seed=seed)) for seed in (0, 0, 1)
    )
    assert one == again != two


def test_pairs_know_a_question_by_the_threshold_of_the_parameters():
    probed = [[CORRECT, WRONG, WRONG]]
    for name in ("dpo", "rlhf", "rlkf"):
        known, unknown = (built(name, probed, known_share=s) for s in (0.0, 0.5))
        assert (known == unknown) is (name == "rlhf")  # blind to it
