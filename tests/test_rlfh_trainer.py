"""Token-level PPO and its group-relative variant: advantages, and that they learn."""

import csv
import math
import os
import random
import socket
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file
from small_tokenizers import of_words

from factkit.papers.rlfh import advantages, token_trainer
from factkit.papers.rlfh.token_trainer import GroupTrainer, token_level
from factkit.run import params
from factkit.run.params.stages import TokenLevelParams
from factkit.train import rewards, setup

GAMMA, LAMBDA = 0.9, 0.8
METHODS = ["ppo", "group"]
A, B, EOS = 2, 3, 1  # ids of two words and of the token that ends


def padded(lengths, width):
    """The mask (B, T) of completions of these lengths."""
    return torch.arange(width) < torch.tensor(lengths)[:, None]


def gathered_of_two(rank, folder, port):
    """In one of two processes: what it has of all, of rows as wide as its rank + 1."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_PORT": port}
    os.environ |= {k: str(v) for k, v in place.items()} | {"MASTER_ADDR": "127.0.0.1"}
    alone = SimpleNamespace(accelerator=Accelerator(cpu=True))
    mask = torch.ones(1, rank + 1, dtype=torch.bool)
    torch.save(GroupTrainer._gather(alone, mask), folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.manual_seed(seed))


# Advantages


def slow_gae(rewards, values):
    """Σ_k (γλ)^k δ_{t+k} of one completion, as lists."""
    ahead = [*values, 0.0][1:]
    delta = [r + GAMMA * n - v for r, n, v in zip(rewards, ahead, values, strict=True)]
    return [
        sum((GAMMA * LAMBDA) ** k * d for k, d in enumerate(delta[t:]))
        for t in range(len(delta))
    ]


def test_gae_is_the_discounted_sum_of_its_errors():
    for seed in range(5):
        lengths = random.Random(seed).choices(range(9), k=6)
        rewards, values = drawn(2, 6, 8, seed=seed).double()
        mask = padded(lengths, 8)
        found, returns = advantages.gae(rewards, values, mask, GAMMA, LAMBDA)
        for i, n in enumerate(lengths):
            by_hand = slow_gae(rewards[i, :n].tolist(), values[i, :n].tolist())
            assert found[i].tolist() == pytest.approx(by_hand + [0.0] * (8 - n))
            assert torch.equal(returns[i, :n], found[i, :n] + values[i, :n])


@pytest.mark.slow
def test_a_mask_stays_one_where_processes_hold_completions_of_other_lengths(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(gathered_of_two, (tmp_path, port), nprocs=2)
    for rank in (0, 1):
        mask = torch.load(tmp_path / f"{rank}.pt")
        assert mask.dtype == torch.bool
        assert mask.tolist() == [[True, False], [True, True]]


def test_what_masked_places_hold_never_matters():
    mask = padded([3, 5, 0], 5)
    rewards, values = drawn(2, 3, 5)
    other = [x.masked_fill(~mask, math.nan) for x in (rewards, values)]
    for one, two in zip(
        advantages.gae(rewards, values, mask, GAMMA, LAMBDA),
        advantages.gae(*other, mask, GAMMA, LAMBDA),
        strict=True,
    ):
        assert torch.equal(one, two) and not one[~mask].any()
    white = advantages.whiten(4 * rewards + 2, mask)
    assert torch.equal(white, advantages.whiten(4 * other[0] + 2, mask))
    assert not white[~mask].any()
    assert white[mask].mean().item() == pytest.approx(0, abs=1e-6)
    assert white[mask].var(unbiased=False).item() == pytest.approx(1, abs=1e-5)


def test_the_baseline_of_a_group_is_the_mean_of_the_others_at_the_same_token():
    returns = torch.tensor([[3.0, 1.0], [1.0, 0.0], [5.0, 2.0], [8.0, 8.0]])
    known = torch.tensor([True, True, True, False])  # the second had ended by token 2
    found = advantages.group_advantages(returns, known, group=4)
    assert found.tolist() == [[0, 0], [-3, -1.5], [3, 1.5], [0, 0]]
    # groups do not mix, and nobody is compared to nobody
    found = advantages.group_advantages(returns, known, group=2)
    assert found.tolist() == [[2, 1], [-2, -1], [0, 0], [0, 0]]


# The value head's loss


def value_gradient(value, old, target):
    v = torch.tensor([[value]], requires_grad=True)
    old, target = torch.tensor([[old]]), torch.tensor([[target]])
    mask = torch.ones(1, 1).bool()
    loss = advantages.value_loss(v, old, target, mask, clip=0.2)
    loss.backward()
    return loss.item(), v.grad.item()


def test_the_value_loss_is_half_the_squared_error_flat_beyond_the_clip():
    assert value_gradient(1.1, 1.0, 3.0) == pytest.approx((0.5 * 1.9**2, -1.9))
    assert value_gradient(1.5, 1.0, 3.0) == pytest.approx((0.5 * 1.8**2, 0))
    # what has moved away is called back
    assert value_gradient(0.5, 1.0, 3.0) == pytest.approx((0.5 * 2.5**2, -2.5))


# Training


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """An untrained Llama of one layer that knows ten words."""
    from factkit.train.pretraining import build_policy

    special = {"pad_token": "<pad>", "eos_token": "<eos>"}
    tokenizer = of_words("<pad>", "<eos>", *"abcdefgh", **special)
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("start")
    build_policy(tokenizer, hidden_size=32, layers=1).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


ROWS = [{"prompt": f"{one} {two}"} for one in "cdefgh" for two in "cdef"]
SMALL = params.load("rlfh", "tiny").model_dump(include={*TokenLevelParams.model_fields})
BASE = SMALL | {
    "max_completion_length": 6, "rl_learning_rate": 5e-3, "rl_steps": 4,
    "rl_batch_size": 16, "num_generations": 4, "beta": 0.01, "epsilon": 0.2,
    "gamma": 1.0, "gae_lambda": 0.95, "ppo_epochs": 1,
    "minibatches": 1, "checkpoint_steps": 1000, "kept_policies": 1,
    "value_clip": 0.2, "value_coefficient": 0.5, "value_learning_rate": 1e-2,
}  # fmt: skip


def train(start, folder, reward, **values):
    """The curve of a run, a dictionary a step."""
    p = TokenLevelParams(**(BASE | values))
    token_level(start, ROWS, lambda p, folder: reward, folder, p)
    with (folder / "metrics.csv").open(encoding="utf-8") as f:
        return list(csv.DictReader(f))


def a_less_b(completion_ids, **_):
    """+1 for each a, −1 for each b."""
    return [[(i == A) - (i == B) for i in ids] for ids in completion_ids]


def always(reward):
    return lambda completion_ids, **_: [[reward] * len(ids) for ids in completion_ids]


@pytest.fixture
def trainers(monkeypatch):
    """The trainers of a test, in the order in which they ran to the end."""
    ran, keep = [], setup.train_and_keep

    def noting(trainer, *args, **kwargs):
        found = keep(trainer, *args, **kwargs)
        ran.append(trainer)
        return found

    monkeypatch.setattr(setup, "train_and_keep", noting)
    return ran


@pytest.mark.parametrize("method", METHODS)
def test_credit_goes_to_the_token_that_earned_it(start, tmp_path, method):
    """Each a earns 1, each other token noise of that size, but for the first token: it
    pays for all, so that whole responses are worth the same, and teach nothing."""
    noise, shares = random.Random(0), []

    def reward(completion_ids, **_):
        later = [i for ids in completion_ids for i in ids[1:]]
        shares.append(later.count(A) / len(later))
        rewards = [
            [1 if i == A else noise.choice((-1, 1)) for i in ids[1:]]
            for ids in completion_ids
        ]
        return [[-sum(rest), *rest] for rest in rewards]

    values = {"rl_steps": 30, "rl_batch_size": 32, "beta": 0.0}
    curve = train(start, tmp_path, reward, method=method, **values)
    assert {float(row["reward"]) for row in curve} == {0.0}
    assert sum(shares[:3]) / 3 < 0.25 and sum(shares[-3:]) / 3 > 0.75


def test_the_kl_penalty_holds_the_policy_near_the_reference(start, tmp_path):
    kl = []
    for beta in (0.01, 2.0):
        curve = train(start, tmp_path / str(beta), a_less_b, rl_steps=15, beta=beta)
        kl.append(float(curve[-1]["kl"]))
    assert kl[0] > 0.1 and abs(kl[1]) < kl[0] / 2


def test_the_value_head_learns_what_is_to_come(start, tmp_path, trainers):
    """A reward of 1 at each of at most 6 tokens, of which half as much counts each."""
    values = {"rl_steps": 25, "rl_learning_rate": 1e-12, "gamma": 0.5, "beta": 0.0}
    values |= {"value_learning_rate": 0.05, "value_clip": 9.0}
    curve = train(start, tmp_path, always(1.0), **values)
    losses = [float(row["value_loss"]) for row in curve]
    assert losses[0] > 1 and sum(losses[-5:]) / 5 < 0.2
    rates = [group["lr"] for group in trainers[0].optimizer.param_groups]
    assert rates == [1e-12, 1e-12, 0.05]


@pytest.fixture(scope="module")
def scored(start, tmp_path_factory):
    """A trainer with a head that is not 0, a padded batch, and what it says of it."""
    with pytest.MonkeyPatch.context() as patch:
        kept = []
        patch.setattr(setup, "train_and_keep", lambda *args, **_: kept.append(args[0]))
        p = TokenLevelParams(**BASE)
        folder = tmp_path_factory.mktemp("scored")
        token_level(start, ROWS, lambda p, folder: a_less_b, folder, p)
    (trainer,) = kept
    trainer.model.value_head.weight.data = drawn(32)
    prompts, completions = [[4, 5], [6]], [[2, 3, 1], [7, 1]]
    batch = {
        "prompt_ids": torch.tensor([[4, 5], [0, 6]]),
        "prompt_mask": torch.tensor([[1, 1], [0, 1]]),
        "completion_ids": torch.tensor([[2, 3, 1], [7, 1, 0]]),
        "completion_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
    }
    return trainer, list(zip(prompts, completions, strict=True)), batch


def test_values_and_log_probabilities_are_those_of_the_state_before_each_token(scored):
    trainer, texts, batch = scored
    logps, values = trainer._score(batch)
    for i, (prompt, completion) in enumerate(texts):
        ids, n = torch.tensor([prompt + completion]), len(completion)
        out = trainer.model(ids, output_hidden_states=True)
        before = slice(len(prompt) - 1, -1)
        by_hand = out.hidden_states[-1][0, before] @ trainer.model.value_head.weight
        assert torch.allclose(values[i, :n], by_hand, atol=1e-5)
        chosen = out.logits[0, before].log_softmax(-1)[range(n), completion]
        assert torch.allclose(logps[i, :n], chosen, atol=1e-5)


def watch(monkeypatch, trainer, method, look):
    """Have look(original, self, *args) stand for a method of a trainer."""
    of = getattr(token_trainer, trainer)
    original = getattr(of, method)
    monkeypatch.setattr(of, method, lambda self, *args: look(original, self, *args))


def every_third_fails(completion_ids, **_):
    found = a_less_b(completion_ids)
    return [None if i % 3 == 0 else r for i, r in enumerate(found)]


@pytest.mark.parametrize("method", METHODS)
def test_a_completion_that_the_judge_failed_on_counts_nowhere(
    start, tmp_path, monkeypatch, method
):
    losses = []

    def look(original, self, model, batch):
        mask = batch["tool_mask"].bool()
        failed = ~mask.any(1)
        assert failed.sum() == 6  # of 16
        white = batch["advantages"][mask]
        assert white.mean().item() == pytest.approx(0, abs=1e-5)
        assert white.var(unbiased=False).item() == pytest.approx(1, abs=1e-3)
        assert not batch["advantages"][failed].any()
        names = "advantages returns old_values old_per_token_logps ref_per_token_logps"
        other = dict(batch)
        for name in {*names.split()} & batch.keys():
            other[name] = batch[name] + 3.0 * failed[:, None]
        loss = original(self, model, batch)
        losses.append((loss.item(), original(self, model, other).item()))
        return loss

    trainer = {"ppo": "PPOTrainer", "group": "GroupTrainer"}[method]
    watch(monkeypatch, trainer, "_compute_loss", look)
    monkeypatch.setattr(rewards, "MOST_JUDGE_FAILURES", 0.5)
    train(start, tmp_path, every_third_fails, method=method, rl_steps=2)
    assert all(a == pytest.approx(b) for a, b in losses) and len(losses) == 2


def test_a_rollout_is_gone_through_in_minibatches_with_its_old_policy(
    start, tmp_path, monkeypatch
):
    rollouts, updates = [], []

    def reward(completion_ids, **_):
        rollouts.append(len(completion_ids))
        return a_less_b(completion_ids)

    def look(original, self, model, batch):
        now, values = self._score(batch)
        names = ("completion_ids", "old_per_token_logps", "old_values", "returns")
        updates.append(([batch[name].clone() for name in names], now, values))
        return original(self, model, batch)

    watch(monkeypatch, "PPOTrainer", "_compute_loss", look)
    train(start, tmp_path, reward, ppo_epochs=2, minibatches=2, rl_steps=8)
    assert rollouts == [32, 32] and len(updates) == 8
    for i in (0, 1, 4, 5):  # the first time through; i + 2 is the second
        (first, _, _), (second, logps, values) = updates[i], updates[i + 2]
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
        _, old_logps, old_values, _ = second
        assert not torch.allclose(logps, old_logps, atol=1e-4)
        assert not torch.allclose(values, old_values, atol=1e-4)
    for i in (0, 4):  # nothing has been updated since the rollout
        (_, old_logps, old_values, _), logps, values = updates[i]
        assert torch.allclose(logps, old_logps, atol=1e-5)
        assert torch.allclose(values, old_values, atol=1e-5)


class Count(list):
    """Is no part of what a reward is."""

    def __reduce__(self):
        return Count, ()


def interrupted(after):
    """a_less_b, but a rollout later than `after` fails, once."""
    rollouts = Count()

    def reward(completion_ids, **_):
        rollouts.append(1)
        if len(rollouts) == after + 1:
            raise KeyboardInterrupt
        return a_less_b(completion_ids)

    return reward


@pytest.mark.parametrize(("method", "rank"), [("ppo", 4), ("group", 0)])
def test_a_run_that_goes_on_ends_as_one_that_ran_through(
    start, tmp_path, trainers, method, rank
):
    """Also where a checkpoint was asked for in the middle of a rollout's updates."""
    values = {"method": method, "lora_rank": rank, "ppo_epochs": 2, "minibatches": 2}
    values |= {"rl_steps": 8, "checkpoint_steps": 3}
    whole = train(start, tmp_path / "whole", a_less_b, **values)
    reward = interrupted(after=1)
    with pytest.raises(KeyboardInterrupt):
        train(start, tmp_path / "cut", reward, **values)
    assert not (tmp_path / "cut" / "model").exists()
    (checkpoint,) = (tmp_path / "cut" / "checkpoint").glob("checkpoint-*")
    assert checkpoint.name == "checkpoint-4"
    assert (checkpoint / "value_head.safetensors").exists() == (method == "ppo")
    resumed = train(start, tmp_path / "cut", reward, **values)
    for a, b in zip(whole, resumed, strict=True):
        for column in {"loss", "reward", "kl", "grad_norm", "value_loss"} & a.keys():
            logged = [float(row[column] or 0) for row in (a, b)]
            assert logged[0] == pytest.approx(logged[1], abs=1e-5), column
    one, other = (dict(t.model.named_parameters()) for t in trainers)
    assert one.keys() == other.keys()
    for name, weight in one.items():
        assert torch.allclose(weight, other[name], atol=1e-6), name
    if method == "ppo":
        assert one["value_head.weight"].abs().max() > 1e-2


def test_what_is_kept_is_a_plain_policy(start, tmp_path):
    train(start, tmp_path, a_less_b, kept_policies=2)
    before = load_file(f"{start}/model.safetensors")
    for name in ("model-2", "model"):
        after = load_file(tmp_path / name / "model.safetensors")
        assert after.keys() == before.keys()
        assert not (tmp_path / name / "value_head.safetensors").exists()
        moved = [not torch.equal(after[k], before[k]) for k in before]
        assert all(moved)


def test_what_cannot_be_trained_is_refused(start, tmp_path):
    with pytest.raises(ValueError, match="needs 28 prompts, there are 24"):
        train(start, tmp_path, a_less_b, minibatches=7)
    with pytest.raises(ValueError, match="unsloth"):
        TokenLevelParams(**(BASE | {"lora_backend": "unsloth", "lora_rank": 4}))
