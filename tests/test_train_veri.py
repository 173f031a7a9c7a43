"""Veri-R1's arms: each does what its name says, and starts where it is to start."""

from types import SimpleNamespace

import pytest

from factkit.data.bm25 import CorpusIndex
from factkit.data.search import in_process
from factkit.facts.world import facts as world
from factkit.facts.world import texts as world_text
from factkit.papers.veri import data as claim_data
from factkit.papers.veri import rewards, search_rollout
from factkit.papers.veri import train as veri
from factkit.papers.veri.arms import ARMS
from factkit.papers.veri.evaluate import of_examples
from factkit.run import params, runs
from factkit.run.serving import ServiceError
from factkit.train import grpo, offline
from factkit.verify import trajectory as t
from factkit.verify.trajectory import Turn

VERI_ARMS = tuple(ARMS)
VERI_ONLINE_ARMS = [
    a for a, arm in ARMS.items() if arm.algorithm == "GRPO" and a != "offline_rl"
]

SWITCHES = ("online", "evidence_reward", "validity_weight", "format_reward")
SMALL = {"world_people": 40, "train_claims": 12, "dev_claims": 3, "test_claims": 6}


def load(**values):
    return params.load("veri", "tiny", SMALL | values)


@pytest.fixture(scope="module")
def data():
    """Claims to train on, what offline prompts give, what SFT is shown, the search."""
    p = load()
    sets, entries, _ = claim_data.claim_sets(p)
    search = in_process(CorpusIndex(entries))
    given = claim_data.offline_evidence(
        sets["train"], entries, search, p.context_entries
    )
    told = claim_data.script_trajectories(p, sets["train"], search)
    taught = of_examples(sets["train"], told)
    shown = veri.sft_examples(sets["train"], taught, given, p)
    return SimpleNamespace(
        train=sets["train"], given=given, told=told, shown=shown, search=search
    )


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A folder with the tokenizer of profile tiny."""
    folder = tmp_path_factory.mktemp("start")
    made = world.build_world(people=SMALL["world_people"])
    world_text.build_tokenizer(made, "claims").save_pretrained(folder)
    return str(folder)


@pytest.fixture
def calls(monkeypatch):
    """What sft and grpo are called with, by name; neither trains."""
    made = {}

    def fake_sft(base, rows, folder, p):
        made["sft"] = SimpleNamespace(base=base, rows=rows, folder=folder, p=p)
        return folder / "model"

    def fake_grpo(start, rows, make_reward, folder, p, make_rollout=None):
        made["grpo"] = SimpleNamespace(**locals())
        return folder / "model"

    monkeypatch.setattr(offline, "sft", fake_sft)
    monkeypatch.setattr(grpo, "grpo", fake_grpo)
    monkeypatch.setattr(veri, "policy_of", policy_name)
    return made


def policy_name(p):
    """Stands for policy_of: what the policy is made from, as its path."""
    return f"{p.policy} {p.pretrain_hidden_size} {p.world_seed}"


def trained(arm, data, start, folder, **values):
    p = load(arm=arm, **values)
    made = veri.train_arm(p, start, data.train, data.given, data.shown, folder)
    assert made == folder / "model"
    return p


# ---- what an arm changes


def test_an_arm_switches_off_what_its_name_says_and_nothing_else():
    for arm, on in {
        "online_rl": (True, True, True, True),
        "offline_rl": (False, True, True, True),
        "without_evidence": (True, False, True, True),
        "without_validity": (True, True, False, True),
        "without_format": (True, True, True, False),
        "label_only": (True, False, False, False),
    }.items():
        p = load(arm=arm)
        changed, same = ARMS[p.arm].configure(p).model_dump(), p.model_dump()
        assert tuple(changed[name] for name in SWITCHES) == on, arm
        others = same.keys() - {*SWITCHES, "kept_policies"}
        assert {k: changed[k] for k in others} == {k: same[k] for k in others}
    own = {"instruct", "sft", "larger", "online_rl"}
    assert {a for a in ARMS if ARMS[a].changes} == set(VERI_ARMS) - own


# ---- what an arm trains


@pytest.mark.parametrize("chat", [False, True])
def test_an_online_arm_searches_in_its_rollouts(chat, data, start, calls, tmp_path):
    for arm in VERI_ONLINE_ARMS:
        calls.clear()
        own = {"chat": True, "policy": "org/chats"} if chat else {}
        p = trained(arm, data, start, tmp_path, **own)
        assert calls.keys() == {"grpo"} and calls["grpo"].start == start
        assert calls["grpo"].make_rollout is search_rollout.rollout_function
        assert calls["grpo"].make_reward is rewards.reward_function
        assert calls["grpo"].p == ARMS[p.arm].configure(p)
        prompts = search_rollout.format_prompts(data.train, p.prompt_template)
        for row, e, text in zip(calls["grpo"].rows, data.train, prompts, strict=True):
            prompt = [{"role": "user", "content": text}] if chat else text
            wanted = {"prompt": prompt, "label": e.label, "evidence": e.evidence}
            assert row == wanted | {"set": "world"} and e.question in text


def test_the_offline_arm_is_given_the_evidence_and_answers_at_once(
    data, start, calls, tmp_path
):
    p = trained("offline_rl", data, start, tmp_path)
    assert calls.keys() == {"grpo"} and calls["grpo"].make_rollout is None
    prompts = [row["prompt"] for row in calls["grpo"].rows]
    assert prompts == search_rollout.format_prompts(
        data.train, p.offline_template, data.given
    )
    for prompt, example in zip(prompts, data.train, strict=True):
        assert all(f"[[{name}]]: " in prompt for name in example.evidence)


def test_sft_learns_from_what_it_is_shown_token_by_token(data, start, calls, tmp_path):
    p = trained("sft", data, start, tmp_path)
    assert calls.keys() == {"sft"} and calls["sft"].base == start
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(start)
    assert len(calls["sft"].rows) == len(data.shown) == len(data.train)
    for row, (prompt, turns) in zip(calls["sft"].rows, data.shown, strict=True):
        (ids,) = search_rollout.tokenize_prompts([prompt], tokenizer, p.chat)
        longest = p.max_observation_length
        assert row == search_rollout.sft_row(ids, turns, tokenizer, longest)


# ---- which policy is taken


def answered(label):
    text = f"<think>t</think><answer>\nLabel: {label}\nEvidence:\n</answer>"
    return [Turn(text, by_model=True)]


def test_offline_rl_s_policy_is_the_best_by_validation_and_not_the_last(
    data, monkeypatch, tmp_path
):
    """App. H; of equal ones the last. Validated with the evidence given, no search; an
    answer that the system opened is none."""
    dev, p = data.train[:3], load(arm="offline_rl", rl_steps=7, checkpoint_steps=3)
    opened = [
        Turn("<search>q</search>", by_model=True),
        Turn("\n<answer>\nLabel:", by_model=False),
        Turn(f" {dev[0].label}\nEvidence:\n</answer>", by_model=True),
    ]
    wrong = {y: next(x for x in t.LABELS if x != y) for y in t.LABELS}
    for right, best in (((2, 1, 0), 2), ((0, 2, 1), 4), ((1, 2, 2), 7), ((0,) * 3, 7)):
        numbers, seen = dict(zip((2, 4, 7), right, strict=True)), []

        def play(policy, examples, folder, p, prompts, numbers=numbers, seen=seen):
            n = numbers[int(folder.name.removeprefix("validation_"))]
            seen.append((policy, p.max_searches))
            assert prompts == search_rollout.format_prompts(
                dev, p.offline_template, data.given
            )
            labels = [e.label if i < n else wrong[e.label] for i, e in enumerate(dev)]
            turns = list(map(answered, labels))
            return of_examples(dev, turns if n else [opened, *turns[1:]])

        monkeypatch.setattr(veri, "evaluate_policy", play)
        names = [tmp_path / name for name in ("model-2", "model-4", "model")]
        for path in names:
            path.mkdir(exist_ok=True)
        policy, accuracy = veri.select_checkpoint(p, dev, data.given, tmp_path)
        assert policy == tmp_path / ("model" if best == 7 else f"model-{best}")
        assert accuracy == {step: n / 3 for step, n in numbers.items()}
        assert seen == [(path, 0) for path in names]
        assert {*tmp_path.glob("model*")} == {policy, tmp_path / "model"}


# ---- where it starts


def test_with_a_cold_start_it_starts_from_the_sft_model_of_its_seed(
    data, start, calls, monkeypatch, tmp_path
):
    monkeypatch.setattr(veri, "policy_of", lambda p: start)
    inputs = [tmp_path / "input"]
    inputs[0].write_text("x", "utf-8")
    p = load(cold_start=True, seed=4, output_dir=str(tmp_path / "out"), rl_steps=7)
    model = veri.start_of(p, data.shown, inputs)
    cold = p.model_copy(update={"arm": "sft"})
    folder = runs.run_folder(veri.NOTEBOOK, cold)
    assert model == str(folder / "model") and folder.name == "sft-s4"
    assert calls["sft"].folder == folder and calls["sft"].base == start
    assert len(calls["sft"].rows) == len(data.shown)
    # the sft arm's own run finds it there, whatever RL's parameters are
    (folder / "model").mkdir()
    own = cold.model_copy(update={"rl_steps": 9})
    run = runs.start(veri.NOTEBOOK, own, inputs, ARMS["sft"].reads)
    assert (run.folder / "model").exists()


# ---- what is shown and played


def test_as_a_cold_start_every_other_one_is_offline_if_all_it_cites_is_given(data):
    p, taught = load(cold_start=True), of_examples(data.train, data.told)
    answers = [t.parse_answer(turns) for turns in data.told]
    lacks = next(i for i, a in enumerate(answers) if i % 2 and a.evidence)
    given = data.given | {data.train[lacks].id: []}
    offline = search_rollout.format_prompts(data.train, p.offline_template, given)
    rows, made = veri.sft_examples(data.train, taught, given, p), []
    for i, (example, (prompt, turns)) in enumerate(zip(data.train, rows, strict=True)):
        cites_others = set(answers[i].evidence) - {c.id for c in given[example.id]}
        if i % 2 and not cites_others:
            made.append(i)
            assert prompt == offline[i] and t.is_well_formed(turns, online=False)
            assert t.parse_answer(turns) == answers[i]
        else:
            assert (prompt, turns) == data.shown[i]
    assert lacks not in made and len(made) > len(rows) / 4


def test_or_a_model_behind_a_judges_address_does(data, start, monkeypatch, tmp_path):
    """In batches, by the judge's key and headers; killed, it goes on."""
    made, asked, ends = [], [], []

    def with_server(to, sampling):
        made.append((to.url, to.model, sampling.temperature, sampling.max_new_tokens))
        assert (to.key, to.headers) == ("secret", {"X-Team": "facts"})

        def generate(prompts, budgets):
            if ends and len(asked) == ends[0]:
                raise ServiceError("down")
            asked.append(prompts)
            return [([3 + len(p) % 5], [-1.0]) for p in prompts]

        return generate

    monkeypatch.setattr(search_rollout, "with_server", with_server)
    monkeypatch.setenv("JUDGE_KEY", "secret")
    monkeypatch.setenv("JUDGE_HEADERS", '{"X-Team": "facts"}')
    how = {"judge_model": start, "judge_url": "http://there/v1", "eval_batch_size": 5}
    how |= {"judge_key": "JUDGE_KEY", "judge_headers": "JUDGE_HEADERS"}
    p = load(verifier="judge", **how)
    whole = claim_data.sft_trajectories(p, data.train, data.search, tmp_path / "whole")
    assert made == [("http://there/v1", start, 0.0, p.max_completion_length)]
    assert [len(prompts) for prompts in asked] == [5, 5, 2]
    assert all(len(turns) == 1 and turns[0].by_model for turns in whole)
    ends.append(5)  # in the third batch
    with pytest.raises(ServiceError):
        claim_data.sft_trajectories(p, data.train, data.search, tmp_path / "cut")
    ends.clear()
    cut = claim_data.sft_trajectories(p, data.train, data.search, tmp_path / "cut")
    assert cut == whole and [len(prompts) for prompts in asked[5:]] == [2]
