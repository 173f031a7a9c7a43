"""RLFH's token rewards through verl's own code: loading, data, agent loop, trainer."""

import asyncio
import sys

import datasets
import numpy as np
import pytest
import ray
import torch
import transfer_queue
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from tensordict import TensorDict
from transformers import LlamaConfig
from verl import DataProto
from verl.experimental.reward_loop import RewardLoopManager, RewardLoopWorker
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.v1 import AgentLoopManagerTQ
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn
from verl.utils.tensordict_utils import assign_non_tensor_data, get_tensordict
from verl.workers.rollout.replica import TokenOutput

from factkit import params, runs
from factkit.curate.drawn import turn
from factkit.datasets.examples import write_examples
from factkit.rlfh import rewards as rlfh
from factkit.rlfh import verl_adapter as rlfh_verl
from factkit.rlfh.feedback import exact_annotator
from factkit.rlfh.requests import rlfh_sets
from factkit.world import facts as worlds
from factkit.world import texts as world_text

# Ray's workers cannot import this module
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
SMALL = {
    "world_people": 40,
    "train_requests": 8,
    "dev_requests": 8,
    "test_requests": 8,
    "max_completion_length": 24,
    "gamma": 0.9,
    "beta": 0.1,
}
# a reward manager on whose annotator "Perhaps" is lost
FAILING = """
from factkit.rlfh.verl_adapter import RlfhRewardManager


class Failing(RlfhRewardManager):
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
def folder(tmp_path_factory):
    """Where verl's files are, and a policy's folder without weights."""
    folder = tmp_path_factory.mktemp("verl")
    (folder / "policy").mkdir()
    return folder


@pytest.fixture(scope="module")
def p(folder):
    """Profile tiny's parameters for a policy in a folder, with its data written."""
    paths = {"output_dir": str(folder / "outputs"), "policy": str(folder / "policy")}
    p = params.load("rlfh", "tiny", SMALL | paths)
    for split, examples in rlfh_sets(p)[0].items():
        path = runs.run_folder(p.data_notebook, p) / f"{split}.jsonl"
        write_examples(path, examples)
    return p


@pytest.fixture(scope="module")
def world(p):
    return worlds.build_world(people=p.world_people, seed=p.world_seed)


@pytest.fixture(scope="module")
def tokenizer(world, p, folder):
    """The world's, saved in folder/policy with the configuration of a model."""
    tokenizer = world_text.build_tokenizer(world, p.answer_format)
    tokenizer.save_pretrained(folder / "policy")
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        architectures=["LlamaForCausalLM"],
    )
    config.save_pretrained(folder / "policy")
    return tokenizer


@pytest.fixture(scope="module")
def config(p, folder, tokenizer):
    """verl's config, as its command would read it from what `write` writes."""

    def config(*overrides, **values):
        rlfh_verl.write(p.model_copy(update=values), folder)
        return composed(folder, *overrides)

    return config


def composed(folder, *overrides):
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(folder), version_base=None):
        defaults = "hydra.searchpath=[pkg://verl.trainer.config]"
        return compose("rlfh", overrides=[defaults, *overrides])


@pytest.fixture(scope="module")
def cases(p, world, tokenizer):
    """Each a training question with the tokens of a response to it."""
    examples = rlfh_sets(p)[0]["train"][:5]
    return list(zip(examples, responses(examples, world, tokenizer), strict=True))


def responses(examples, world, tokenizer):
    """Two statements in a sentence and one more; a wrong one; cut off; empty; lost."""
    eos = [tokenizer.eos_token_id]

    def tokens(text):
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    a, b, c, _, d = (world.facts_of(example.entity) for example in examples)
    wrong = next(o for o in worlds.OBJECTS[b[0].relation] if o != b[0].object)
    untrue = worlds.Fact(b[0].subject, b[0].relation, wrong)
    return [
        tokens(f"{worlds.joined(a[0], a[1])} {worlds.statement(a[2])}") + eos,
        tokens(worlds.statement(untrue)) + eos,
        tokens(worlds.joined(c[0], c[1]))[:-3],
        eos,
        tokens(f"Perhaps {worlds.joined(d[0], d[1])}") + eos,
    ]


def expected(p, world, cases, tokenizer):
    """The rewards of notebook 42, by hand on each response."""
    examples = {example.id: example for example, _ in cases}
    texts = [tokenizer.decode(ids, skip_special_tokens=True) for _, ids in cases]
    asked = [example.question for example in examples.values()]
    found = exact_annotator(world, examples)(list(examples), asked, texts)
    how = rlfh.granularity(p.arm), rlfh.reward_map(p)
    return [
        torch.tensor(rlfh.token_rewards(of, ids, tokenizer, *how)).float()
        for of, (_, ids) in zip(found, cases, strict=True)
    ]


def batch_of(case, p, tokenizer):
    """verl's batch of one response."""
    example, response = case
    prompt = tokenizer(turn(example, p))["input_ids"]
    tensors = {
        "prompts": torch.tensor([prompt]),
        "responses": torch.tensor([response]),
        "attention_mask": torch.ones(1, len(prompt) + len(response)).long(),
    }
    info = [{"id": example.id, "question": example.question}]
    columns = {"extra_info": np.array(info, dtype=object)}
    return DataProto.from_dict(tensors, non_tensors=columns)


def padded(rows, length):
    return torch.stack([torch.nn.functional.pad(r, (0, length - len(r))) for r in rows])


# Where the annotator fails


@pytest.fixture
def worker(config, p, tokenizer):
    """A worker on whose annotator the test decides."""

    def worker(annotate):
        made = RewardLoopWorker(config())
        reward = rlfh.token_reward(annotate, tokenizer, p)
        made.reward_manager._reward = reward
        return made

    return worker


def asked_at_once(worker, batch, times=1):
    async def scores():
        asked = [worker.compute_score(batch) for _ in range(times)]
        return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(scores())


def test_after_too_many_failures_no_response_has_rewards(worker, p, cases, tokenizer):
    batch = batch_of(cases[0], p, tokenizer)
    of = worker(lambda ids, *_: [None] * 11 + [[]] * (len(ids) - 11))
    found = asked_at_once(of, batch, times=200)  # all, but for the first, at once
    assert all("at most 5% may" in str(error) for error in found[1:])
    of.reward_manager._reward = lambda id, **_: [[]] * len(id)
    (after,) = asked_at_once(of, batch)
    assert "at most 5% may" in str(after)


# A step of the trainer


class Canned:
    """An LLM client with a response to each prompt."""

    def __init__(self, responses):
        self.responses = responses

    async def generate(self, request_id, *, prompt_ids, **_):
        ids = self.responses[tuple(prompt_ids)]
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


@pytest.fixture(scope="module")
def trainer(config, p, cases, tokenizer, folder):
    """verl's, with its reward worker and its rollout worker on Ray, but no model."""
    (folder / "failing.py").write_text(FAILING)
    made = config(
        "reward.reward_manager.name=Failing",
        f"reward.reward_manager.module.path={folder}/failing.py",
        "actor_rollout_ref.rollout.agent.num_workers=1",
        "actor_rollout_ref.rollout.n=1",
        "transfer_queue.enable=True",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    )
    start_ray()
    transfer_queue.init(made.transfer_queue)
    trainer = PPOTrainerSync(made)
    trainer.global_steps, trainer.replay_buffer.poll_interval = 1, 0.2
    prompts = [tuple(tokenizer(turn(e, p))["input_ids"]) for e, _ in cases]
    responses = (ids for _, ids in cases)
    trainer.reward_loop_manager = RewardLoopManager(made)
    trainer.agent_loop_manager = AgentLoopManagerTQ.create(
        config=made,
        llm_client=Canned(dict(zip(prompts, responses, strict=True))),
        reward_loop_worker_handles=trainer.get_reward_handles(),
    )
    yield trainer
    transfer_queue.close()
    ray.shutdown()


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
    columns = {
        name: torch.nested.as_nested_tensor(values, layout=torch.jagged)
        for name, values in rows.items()
    }
    fields = TensorDict(columns, batch_size=len(batch))
    transfer_queue.kv_batch_put(keys=batch.keys, partition_id="train", fields=fields)


def test_a_step_of_the_trainer_has_the_kit_s_advantages(
    trainer, p, world, cases, tokenizer
):
    """From data to GAE: of five responses one fails; eight make a batch."""
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

    wanted = ["rm_scores", "advantages", "returns"]
    found = transfer_queue.kv_batch_get(
        keys=batch.keys, partition_id="train", select_fields=wanted
    )
    found = {name: found[name].to_padded_tensor(0.0)[:4] for name in wanted}
    width = max(lengths)
    rewards = padded(expected(p, world, mine, tokenizer), width)
    assert torch.equal(found["rm_scores"], rewards)

    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    values, old, reference = (padded(rows[:4], width) for rows in said.values())
    rewards = rewards - p.beta * (old - reference)
    advantages, returns = rlfh.gae(rewards, values, mask, p.gamma, p.gae_lambda)
    n = mask.sum()
    whitened = rlfh.whiten(advantages, mask) * ((n - 1) / n).sqrt()  # verl: n − 1
    torch.testing.assert_close(found["returns"], returns)
    torch.testing.assert_close(found["advantages"], whitened)


def test_a_rollout_without_feedback_ends_the_run(trainer, tokenizer):
    with pytest.raises(RuntimeError, match="no materializable trajectories"):
        rollout(trainer, [4], tokenizer)
