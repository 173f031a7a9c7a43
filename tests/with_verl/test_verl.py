"""The papers' RL through verl's own code: data, agent loops, rewards, updates."""

import asyncio
import contextlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import datasets
import numpy as np
import pytest
import ray
import torch
import transfer_queue
import verl
import verl_papers
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl import DataProto
from verl.experimental.reward_loop import RewardLoopManager, RewardLoopWorker
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.trainer.ppo.v1 import AgentLoopManagerTQ
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.config import omega_conf_to_dataclass, validate_config
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn
from verl.utils.tensordict_utils import assign_non_tensor_data, get_tensordict
from verl.workers.engine.utils import prepare_micro_batches
from verl.workers.rollout.replica import TokenOutput
from verl.workers.utils.losses import ppo_loss

from factkit.facts.world import facts as worlds
from factkit.papers.rlfh import rewards as rlfh
from factkit.papers.rlfh.advantages import gae, whiten
from factkit.papers.rlfh.feedback import exact_annotator
from factkit.papers.veri import search_rollout
from factkit.run import params
from factkit.train import verl_adapter as adapter
from factkit.train.rewards import CheckedReward

# Ray's workers cannot import this module
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
SIZES = (
    "data.train_batch_size",
    "actor_rollout_ref.rollout.n",
    "actor_rollout_ref.actor.ppo_mini_batch_size",
)
GROUPED = [name for name in verl_papers.PAPERS if name != "rlfh"]
# a reward manager on whose annotator "Perhaps" is lost
FAILING = """
from factkit.train.verl_adapter import RewardManager


class Failing(RewardManager):
    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        whole = self._reward

        def reward(completions, **columns):
            rewards = whole(completions=completions, **columns)
            lost = [text.startswith("Perhaps") for text in completions]
            return [None if no else row for row, no in zip(rewards, lost)]

        self._reward = reward
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Where datasets keeps its copies of the data."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)


@pytest.fixture(scope="module")
def papers(tmp_path_factory):
    """Name → the paper and the folder of verl's files for it."""
    made = {}
    for name in verl_papers.PAPERS:
        folder = tmp_path_factory.mktemp(name)
        paper = verl_papers.made(name, folder)
        made[name] = paper, adapter.write_job(name, paper.p, folder / "verl")
    return made


def composed(folder, name, *overrides):
    """verl's config, as its command would read it from what `write` wrote."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(folder), version_base=None):
        defaults = "hydra.searchpath=[pkg://verl.trainer.config]"
        return compose(name, overrides=[defaults, *overrides])


def encoded(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


# The config


@pytest.fixture(params=verl_papers.PAPERS)
def profile(request, papers):
    """A paper, and verl's own config with what h100_full's values change of it."""
    paper, folder = papers[request.param]
    job = replace(paper.job, p=params.load(paper.name, "h100_full"))
    values = adapter.make_overrides(job, paper.name, folder, None) | {
        "trainer.nnodes": 2
    }
    GlobalHydra.instance().clear()
    config = Path(verl.__file__).parent / "trainer" / "config"
    with initialize_config_dir(str(config), version_base=None):
        config = compose("ppo_trainer")
    for key, value in values.items():
        parent, _, last = key.rpartition(".")
        assert last in set(OmegaConf.select(config, parent)), key
        OmegaConf.update(config, key, value)
    return paper.name, job.p, config


def test_each_key_is_one_of_verl_s_which_takes_the_values_on_two_nodes(profile):
    name, p, config = profile
    assert need_critic(config) == (name == "rlfh")
    assert need_reference_policy(config)
    config.actor_rollout_ref.model.path = None
    validate_config(config, need_reference_policy(config), need_critic(config))


def test_verl_packs_whatever_share_of_an_update_a_gpu_has(profile):
    """On four nodes fixed micro-batches of RLFH's 8, Veri-R1's 4 stop it."""
    _, p, config = profile
    actor = config.actor_rollout_ref.actor
    share = actor.ppo_mini_batch_size * config.actor_rollout_ref.rollout.n // 32
    lengths = torch.linspace(1, p.max_context_length, share).long().tolist()
    rows = {"input_ids": jagged([torch.ones(n).long() for n in lengths])}

    def pack(**how):
        batch = TensorDict(rows, batch_size=share)
        for key, value in how.items():
            assign_non_tensor_data(batch, key, value)
        return prepare_micro_batches(batch)[0]

    sizes = {key: OmegaConf.select(config, key) for key in SIZES}
    tokens = actor.ppo_max_token_len_per_gpu
    packed = pack(use_dynamic_bsz=actor.use_dynamic_bsz, max_token_len_per_gpu=tokens)
    assert sum(map(len, packed)) == share
    for size in (2, 4, 8):
        fixed = {"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": size}
        fixed |= {"trainer.nnodes": 4, "trainer.n_gpus_per_node": 8}
        refused = contextlib.nullcontext(), contextlib.nullcontext()
        if share % size:
            refused = (
                pytest.raises(AssertionError, match="must be divisible"),
                pytest.raises(params.ParamError, match=f"must divide {share}"),
            )
        with refused[0]:
            pack(use_dynamic_bsz=False, micro_batch_size_per_gpu=size)
        with refused[1]:
            adapter.check_sizes((sizes | fixed).get)


def test_an_update_has_the_paper_s_objective(profile):
    """Four responses of up to six tokens, some of them told by the system."""
    name, p, config = profile
    lengths = (6, 3, 5, 1)
    generator = torch.Generator().manual_seed(0)
    new, old, ref = (
        [torch.randn(n, generator=generator) for n in lengths] for _ in range(3)
    )
    a = torch.tensor([1.5, -0.5, 0.25, -2.0])
    mask = [torch.ones(n).long() for n in lengths]
    mask[0][2:4] = 0
    nested = {
        "prompts": [torch.ones(1).long()] * 4,
        "responses": [torch.ones(n).long() for n in lengths],
        "response_mask": mask,
        "old_log_probs": old,
        "ref_log_prob": ref,
        "advantages": [x.expand(n) for x, n in zip(a, lengths, strict=True)],
    }
    fields = {name: jagged(rows) for name, rows in nested.items()}
    tokens = sum(m.sum().item() for m in mask)
    batch = TensorDict(fields, batch_size=4)
    sizes = {"dp_size": 1, "batch_num_tokens": tokens, "global_batch_size": 4}
    for key, value in sizes.items():
        assign_non_tensor_data(batch, key, value)
    shifted = jagged([torch.cat([x, x.new_zeros(1)]) for x in new])
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    loss, _ = ppo_loss(actor, {"log_probs": shifted}, batch)

    def by_hand(i):
        ratio = (new[i] - old[i]).exp()
        clipped = ratio.clamp(1 - p.epsilon, 1 + p.epsilon)
        gap = ref[i] - new[i]
        k3 = 0 if name == "rlfh" else gap.exp() - gap - 1  # there it is in the reward
        terms = -torch.minimum(ratio * a[i], clipped * a[i]) + p.beta * k3
        return (terms * mask[i]).sum()

    sums = torch.stack([by_hand(i) for i in range(4)])
    counts = torch.tensor([m.sum().item() for m in mask])
    wanted = (sums / counts).mean()
    if name == "reason":  # Dr.GRPO
        wanted = sums.mean() / p.max_completion_length
    if name == "rlfh":
        wanted = sums.sum() / tokens
    torch.testing.assert_close(loss, wanted)


def jagged(rows):
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def test_one_command_writes_and_hands_over_to_verl(papers):
    """What verl is told beside it counts in what is checked before."""
    paper, _ = papers["rar"]
    p, folder = paper.p, Path(paper.p.output_dir)
    own = {k: v for k, v in verl_papers.SMALL["rar"].items() if k != "arm"}
    values = own | {"world_people": 40, "policy": p.policy, "arm": "binary_rar"}
    given = [part for k, v in values.items() for part in ("--set", f"{k}={v}")]
    command = [sys.executable, "-m", "factkit", "verl", "rar", "--profile", "tiny"]
    command += ["--output-dir", p.output_dir, *given]
    shown = ["--cfg", "job"]  # in place of a training
    how = {"capture_output": True, "text": True, "timeout": 300}
    done = subprocess.run([*command, "--", "trainer.nnodes=3", *shown], **how)
    assert done.returncode == 2
    assert "n_gpus_per_node=3: must divide 128; take 2" in done.stderr
    done = subprocess.run([*command, "--", "trainer.nnodes=2", *shown], **how)
    assert not done.returncode, done.stderr
    shown = OmegaConf.create(done.stdout)
    assert shown.trainer.nnodes == 2
    assert shown.factkit.parameters.arm == "binary_rar"
    written = folder / "tiny" / "verl" / "rar-binary_rar-s0" / "train.parquet"
    assert shown.data.train_files == str(written)
    assert written.exists()


# Rewards, and where the judge fails


def batch_of(paper, i, one):
    """verl's batch of a response to an example."""
    row = adapter.make_rows(paper.job.rows, paper.name)[i]
    tensors = {
        "prompts": torch.tensor([one.prompt]),
        "responses": torch.tensor([one.ids]),
        "attention_mask": torch.ones(1, len(one.prompt) + len(one.ids)).long(),
    }
    told = {"factkit": {"trajectory": one.turns}} if paper.name == "veri" else {}
    given = {"extra_info": row["extra_info"], "raw_prompt": row["prompt"]}
    given["tool_extra_fields"] = told
    columns = {}
    for name, value in given.items():
        columns[name] = np.empty(1, dtype=object)
        columns[name][0] = value
    return DataProto.from_dict(tensors, non_tensors=columns)


def wanted_of(paper, i):
    """The kit's own rewards and advantages of the responses to an example."""
    job, mine = paper.job, samples(paper, i)
    columns = {k: [v] * 2 for k, v in job.rows[i].items() if k != "prompt"}
    ids = [one.ids for one in mine]
    texts = paper.tokenizer.batch_decode(ids, skip_special_tokens=True)
    columns |= {"completions": texts, "completion_ids": ids, "prompts": texts}
    if paper.name == "veri":
        columns["trajectory"] = [one.turns for one in mine]
    rewards = torch.tensor(job.make_reward(job.p, Path())(**columns))
    centred = rewards - rewards.mean()
    scale = 1 if paper.name == "reason" else rewards.std() + 1e-6
    return list(zip(mine, rewards.tolist(), (centred / scale).tolist(), strict=True))


@pytest.mark.parametrize("name", GROUPED)
def test_rewards_and_advantages_are_the_kit_s(papers, name):
    """Two responses to each of four prompts, all judged at once."""
    paper, folder = papers[name]
    config = composed(folder, name)
    worker = RewardLoopWorker(config)
    cases = [(i, *case) for i in range(4) for case in wanted_of(paper, i)]

    async def scores():
        batches = [batch_of(paper, i, one) for i, one, *_ in cases]
        asked = [worker.compute_score(batch) for batch in batches]
        return await asyncio.gather(*asked)

    found = [one["reward_score"] for one in asyncio.run(scores())]
    assert found == pytest.approx([reward for _, _, reward, _ in cases])
    assert any(a != b for a, b in zip(found[::2], found[1::2], strict=True))

    tensors = {
        "token_level_rewards": torch.tensor(found)[:, None],
        "response_mask": torch.ones(8, 1),
    }
    uids = np.array([f"row{i}" for i, *_ in cases], dtype=object)
    data = compute_advantage(
        DataProto.from_dict(tensors, non_tensors={"uid": uids}),
        adv_estimator=config.algorithm.adv_estimator,
        norm_adv_by_std_in_grpo=config.algorithm.norm_adv_by_std_in_grpo,
        config=config.algorithm,
    )
    advantages = data.batch["advantages"][:, 0].tolist()
    assert advantages == pytest.approx([a for *_, a in cases], abs=1e-5)


def asked_at_once(worker, batch, times=1):
    async def scores():
        asked = [worker.compute_score(batch) for _ in range(times)]
        return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(scores())


def test_after_too_many_failures_no_response_has_rewards(papers):
    paper, folder = papers["rlfh"]
    batch = batch_of(paper, 0, samples(paper, 0)[0])
    worker = RewardLoopWorker(composed(folder, "rlfh"))

    def annotate(ids, *_):
        return [None if i < 11 else [] for i in range(len(ids))]

    manager = worker.reward_manager
    reward = rlfh.trl_reward(
        paper.p.arm, annotate, paper.tokenizer, rlfh.reward_map(paper.p)
    )
    manager._reward = CheckedReward(reward)
    found = asked_at_once(worker, batch, times=200)  # all, but for the first, at once
    assert all("Check the verifier" in str(error) for error in found[1:])
    manager._reward = lambda id, **_: [[]] * len(id)
    (after,) = asked_at_once(worker, batch)
    assert "Check the verifier" in str(after)


# A step of the trainer


class Canned:
    """An LLM client with responses to each prompt, the last of them for ever."""

    def __init__(self, said):
        self.said = said

    async def generate(self, request_id, *, prompt_ids, sampling_params, **_):
        turns = self.said[tuple(prompt_ids)]
        ids = turns.pop(0) if len(turns) > 1 else turns[0]
        ids = ids[: sampling_params.get("max_tokens")]
        return TokenOutput(token_ids=ids, log_probs=[-1.0] * len(ids))


def start_ray(attempts=3):
    """Ray on this machine; its node has but 30 s to come up, and others may be busy."""
    try:
        ray.init(num_cpus=2, include_dashboard=False)
    except Exception:
        ray.shutdown()
        if attempts == 1:
            raise
        start_ray(attempts - 1)


@pytest.fixture
def trainer(papers, request):
    """verl's, with its reward worker and its rollout worker on Ray, but no model.

    request.param: a paper; and whether "Perhaps" is lost on its judge.
    """
    paper, folder = papers[request.param]
    (folder / "failing.py").write_text(FAILING, "utf-8")
    failing = [
        "reward.reward_manager.name=Failing",
        f"reward.reward_manager.module.path={folder}/failing.py",
    ]
    made = composed(
        *(folder, paper.name),
        *(failing if paper.name == "rlfh" else []),
        "actor_rollout_ref.rollout.agent.num_workers=1",
        f"actor_rollout_ref.rollout.n={1 if paper.name == 'rlfh' else 2}",
        "transfer_queue.enable=True",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    )
    start_ray()
    transfer_queue.init(made.transfer_queue)
    trainer = PPOTrainerSync(made)
    trainer.global_steps, trainer.replay_buffer.poll_interval = 1, 0.2
    said = {}
    for i in range(len(paper.examples)):
        for one in samples(paper, i):
            said.setdefault(tuple(one.prompt), []).append(one.first)
            said |= {where: [ids] for where, ids in one.later}
    trainer.reward_loop_manager = RewardLoopManager(made)
    trainer.agent_loop_manager = AgentLoopManagerTQ.create(
        config=made,
        llm_client=Canned(said),
        reward_loop_worker_handles=trainer.get_reward_handles(),
    )
    yield trainer
    transfer_queue.close()
    ray.shutdown()


def samples(paper, i):
    """The responses to an example, as the kit's own rollouts have them: prompt, ids,
    env_mask, turns; first, the tokens of the first turn, and later ones by what stands
    before them."""
    prompt = paper.tokenizer(paper.job.rows[i]["prompt"])["input_ids"]
    name = paper.job.rows[i].get("set", "")
    return [sampled(paper, prompt, response, name) for response in paper.responses[i]]


def sampled(paper, prompt, response, name):
    eos = paper.tokenizer.eos_token_id
    turns = [response] if isinstance(response, str) else response
    turns = [encoded(paper.tokenizer, turn) for turn in turns]
    turns[-1] = [*turns[-1], eos]
    if paper.name != "veri":
        one = search_rollout.Rollout(prompt)
        one.add(turns[0], "", by_model=True)
        one.first, one.later = turns[0], []
        return one
    asked = []

    def generate(prompts, budgets):
        asked.append((tuple(prompts[0]), turns[len(asked)]))
        return [(asked[-1][1], [])]

    search = search_rollout.load_search(paper.p)
    given = [prompt], generate, search, paper.tokenizer, paper.p, [name]
    (one,) = search_rollout.run_rollouts(*given)
    assert len(asked) == len(turns)
    (_, one.first), *one.later = asked
    return one


def rollout(trainer, numbers, tokenizer):
    """The trainer's rollout of some rows of its data: what of it is to train on."""
    data = trainer.config.data
    rows = RLHFDataset(data.train_files, tokenizer, data)
    columns = collate_fn([rows[i] for i in numbers])
    columns["uid"] = np.array([f"row{i}" for i in numbers], dtype=object)
    batch = get_tensordict(columns)
    assign_non_tensor_data(batch, "global_steps", 1)
    trainer._submit_batch_to_rollout(batch)
    return trainer.replay_buffer.sample(1, "train", len(numbers))[0]


def put(batch, **rows):
    """Put what models would have said of each response's tokens."""
    columns = {name: jagged(values) for name, values in rows.items()}
    fields = TensorDict(columns, batch_size=len(batch))
    transfer_queue.kv_batch_put(keys=batch.keys, partition_id="train", fields=fields)


def got(batch, *names):
    """Name → its rows, as lists."""
    found = transfer_queue.kv_batch_get(
        keys=batch.keys, partition_id="train", select_fields=list(names)
    )
    return {name: [row.tolist() for row in found[name].unbind()] for name in names}


@pytest.mark.parametrize("trainer", ["truthrl", "veri"], indirect=True)
def test_a_step_has_the_kit_s_rollouts_rewards_and_advantages(trainer, papers):
    """Two responses to each of four prompts; Veri-R1's are of several turns."""
    paper, _ = papers[trainer.config.factkit.paper]
    batch = rollout(trainer, range(4), paper.tokenizer)
    assert sorted(batch.keys) == [f"row{i}_{n}_0" for i in range(4) for n in (0, 1)]
    said = got(batch, "responses")["responses"]
    put(batch, old_log_probs=[-torch.ones(len(ids)) for ids in said])
    trainer._compute_advantage(batch, {})
    fields = "prompts", "responses", "response_mask", "rm_scores", "advantages"
    found = got(batch, *fields)
    for i in range(4):
        places = [k for k, key in enumerate(batch.keys) if key.startswith(f"row{i}_")]
        for one, reward, a in wanted_of(paper, i):
            (place,) = (k for k in places if found["responses"][k] == one.ids)
            assert found["prompts"][place] == one.prompt
            assert found["response_mask"][place] == one.env_mask
            on_last = [0.0] * (len(one.ids) - 1) + [reward]
            assert found["rm_scores"][place] == pytest.approx(on_last)
            wanted = [a * mask for mask in one.env_mask]
            assert found["advantages"][place] == pytest.approx(wanted, abs=1e-5)


# RLFH's tokens


def padded(rows, length):
    return torch.stack([torch.nn.functional.pad(r, (0, length - len(r))) for r in rows])


@pytest.fixture(scope="module")
def cases(papers):
    """Each an example with a response to it: two statements in a sentence and one more;
    a wrong one; cut off; empty; one that the annotator loses."""
    paper, _ = papers["rlfh"]
    examples = paper.examples[:5]
    a, b, c, _, d = (paper.world.facts_of(example.entity) for example in examples)
    wrong = next(o for o in worlds.OBJECTS[b[0].relation] if o != b[0].object)
    untrue = worlds.Fact(b[0].subject, b[0].relation, wrong)
    paper.responses = [
        [f"{worlds.join_statements(a[0], a[1])} {worlds.statement(a[2])}"],
        [worlds.statement(untrue)],
        [worlds.join_statements(c[0], c[1]).rsplit(maxsplit=3)[0]],
        [""],
        [f"Perhaps {worlds.join_statements(d[0], d[1])}"],
    ]
    paper.examples = examples
    return [(e, samples(paper, i)[0].ids) for i, e in enumerate(examples)]


def expected(paper, cases):
    """The rewards of notebook 42, by hand on each response."""
    p, tokenizer = paper.p, paper.tokenizer
    examples = {example.id: example for example, _ in cases}
    texts = [tokenizer.decode(ids, skip_special_tokens=True) for _, ids in cases]
    asked = [example.question for example in examples.values()]
    found = exact_annotator(paper.world, examples)(list(examples), asked, texts)
    how = rlfh.granularity(p.arm), rlfh.reward_map(p)
    return [
        torch.tensor(rlfh.token_rewards(of, ids, tokenizer, *how)).float()
        for of, (_, ids) in zip(found, cases, strict=True)
    ]


@pytest.mark.parametrize("trainer", ["rlfh"], indirect=True)
def test_a_step_of_ppo_has_the_kit_s_advantages(cases, trainer, papers):
    """From data to GAE: of five responses one fails; eight make a batch."""
    paper, _ = papers["rlfh"]
    p, tokenizer = paper.p, paper.tokenizer
    kept = rollout(trainer, range(5), tokenizer)
    assert sorted(kept.keys) == [f"row{i}_0_0" for i in range(4)]
    batch = upsample_batch_to_divisible_size(kept, 8, tokenizer.eos_token_id)
    order = [int(key[3]) for key in batch.keys[:4]]
    mine = [cases[i] for i in order]
    lengths = [len(ids) for _, ids in mine]
    generator = torch.Generator().manual_seed(0)
    said = {
        name: [torch.randn(n, generator=generator) for n in [*lengths, 1, 1, 1, 1]]
        for name in ("values", "old_log_probs", "ref_log_prob")
    }
    put(batch, **said)
    trainer._compute_advantage(batch, {})

    names = "rm_scores", "advantages", "returns"
    width = max(lengths)
    found = {
        name: padded([torch.tensor(row).float() for row in rows[:4]], width)
        for name, rows in got(batch, *names).items()
    }
    rewards = padded(expected(paper, mine), width)
    assert torch.equal(found["rm_scores"], rewards)

    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    values, old, reference = (padded(rows[:4], width) for rows in said.values())
    rewards = rewards - p.beta * (old - reference)
    advantages, returns = gae(rewards, values, mask, p.gamma, p.gae_lambda)
    n = mask.sum()
    whitened = whiten(advantages, mask) * ((n - 1) / n).sqrt()  # verl: n − 1
    torch.testing.assert_close(found["returns"], returns)
    torch.testing.assert_close(found["advantages"], whitened)

    with pytest.raises(RuntimeError, match="no materializable trajectories"):
        rollout(trainer, [4], tokenizer)  # without feedback the run ends
