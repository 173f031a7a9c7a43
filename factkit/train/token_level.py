"""Policy optimisation with a reward at each token: PPO, or relative to a group.

RLFH §3.2.2 maximises the expected sum of token rewards with PPO (Schulman et al. 2017);
its implementation builds on trlX, whose losses these are. The rollouts, the logging and
the checkpoints are TRL's; what TRL has no trainer for is in `token_trainer`.

Shapes: B completions of at most T tokens, padded on the right. `mask` (B, T), bool, is
true at the tokens that count; what other places hold never matters, and they get 0.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit.params.stages import TokenLevelParams
from factkit.train import grpo, launch, recipe, setup

if TYPE_CHECKING:
    from torch import Tensor
    from trl import GRPOConfig

TokenReward = Callable[..., list[list[float] | None]]


def less_kl(
    rewards: "Tensor", logps: "Tensor", reference_logps: "Tensor", beta: float
) -> "Tensor":
    """r_t − β (log π(y_t) − log π_ref(y_t)), (B, T): the reward with its KL penalty.

    logps: of the policy that sampled y; the estimate of KL is k1, unbiased.
    """
    return rewards - beta * (logps - reference_logps)


def less_eos_penalty(
    rewards: "Tensor", mask: "Tensor", ended: "Tensor", penalty: float
) -> "Tensor":
    """rewards (B, T), less `penalty` at the last token of a completion without EOS.

    ended: bool (B,), whether the completion has its EOS.
    """
    is_last = mask & (mask.cumsum(1) == mask.sum(1, keepdim=True))
    return rewards - penalty * (is_last & ~ended[:, None])


def gae(
    rewards: "Tensor", values: "Tensor", mask: "Tensor", gamma: float, lam: float
) -> tuple["Tensor", "Tensor"]:
    """Generalised advantage estimation (Schulman et al. 2016): advantages and returns.

    δ_t = r_t + γ V_{t+1} − V_t,  A_t = δ_t + γλ A_{t+1},  return_t = A_t + V_t

    values (B, T): V_t, of the state in which token t is chosen. After a completion's
    last token V and A are 0.
    """
    rewards, values = rewards.where(mask, 0.0), values.where(mask, 0.0)
    advantages = values.new_zeros(values.shape)
    advantage = value = values.new_zeros(len(values))  # (B,), of the token after
    for t in reversed(range(values.shape[1])):
        delta = rewards[:, t] + gamma * value - values[:, t]
        advantage, value = delta + gamma * lam * advantage, values[:, t]
        advantages[:, t] = advantage
    return advantages.where(mask, 0.0), (advantages + values).where(mask, 0.0)


def returns_to_go(rewards: "Tensor", mask: "Tensor", gamma: float) -> "Tensor":
    """R_t = r_t + γ R_{t+1}, (B, T): the discounted rewards from token t on."""
    return gae(rewards, rewards.new_zeros(rewards.shape), mask, gamma, lam=1.0)[1]


def group_advantages(returns: "Tensor", known: "Tensor", group: int) -> "Tensor":
    """A_{i,t} = R_{i,t} − mean of R_{j,t} over the other completions j of i's prompt.

    A baseline is unbiased if it does not depend on the action that it judges. So it is
    taken from the other completions alone (RLOO, Ahmadian et al. 2024), at the same
    token, and one that has ended by then counts with the 0 that it has yet to get:
    whether it is still going is its own chance, too.

    returns: R (B, T), 0 after an end; `group` rows a prompt. known: bool (B,), false
    where the judge failed: such a row counts in no mean and has A = 0, as a row has
    that no other is known beside.
    """
    grouped = returns.where(known[:, None], 0.0).view(-1, group, returns.shape[1])
    there = known.view(-1, group, 1)
    others = there.sum(1, keepdim=True) - there.long()
    mean = (grouped.sum(1, keepdim=True) - grouped) / others.clamp(min=1)
    return (grouped - mean).where(there & (others > 0), 0.0).view_as(returns)


def masked_mean(x: "Tensor", mask: "Tensor") -> "Tensor":
    """The mean of x over the tokens of mask, a scalar; 0 if there are none."""
    return x.where(mask, 0.0).sum() / mask.sum().clamp(min=1)


def whiten(advantages: "Tensor", mask: "Tensor") -> "Tensor":
    """Advantages with mean 0 and variance 1 over the tokens of mask, (B, T)."""
    centred = advantages - masked_mean(advantages, mask)
    variance = masked_mean(centred**2, mask)
    return (centred * (variance + 1e-8).rsqrt()).where(mask, 0.0)


def policy_loss(
    logps: "Tensor",
    old_logps: "Tensor",
    advantages: "Tensor",
    mask: "Tensor",
    epsilon: float,
) -> "Tensor":
    """−mean min(ρ A, clip(ρ, 1 − ε, 1 + ε) A) over tokens, ρ = π / π_old; a scalar.

    Schulman et al. 2017, Eq. 7.
    """
    ratio = (logps - old_logps).exp()
    clipped = ratio.clamp(1 - epsilon, 1 + epsilon)
    return -masked_mean((ratio * advantages).minimum(clipped * advantages), mask)


def value_loss(
    values: "Tensor",
    old_values: "Tensor",
    returns: "Tensor",
    mask: "Tensor",
    clip: float,
) -> "Tensor":
    """½ mean max((V − R)², (V_old + clip(V − V_old, ±c) − R)²) over tokens, a scalar.

    trlX's, with PPO's clip on the value.
    """
    near = old_values + (values - old_values).clamp(-clip, clip)
    error = ((values - returns) ** 2).maximum((near - returns) ** 2)
    return 0.5 * masked_mean(error, mask)


def token_level_config(p: TokenLevelParams, folder: Path) -> "GRPOConfig":
    """GRPO's configuration, but for what is set here.

    A rollout is gone through p.ppo_epochs times; TRL shuffles it once.
    """
    config = grpo.grpo_config(p, folder)
    config.loss_type = "bnpo"  # the mean over the tokens of a micro-batch
    config.scale_rewards = "none"
    config.num_iterations = p.ppo_epochs
    updates = p.ppo_epochs * p.minibatches
    config.save_steps = grpo.between_rollouts(p.checkpoint_steps, updates)
    return config


@recipe.held_to
@launch.distributed
def token_level(
    start: str,
    rows: Sequence[dict[str, Any]],
    make_reward: Callable[[TokenLevelParams, Path], TokenReward],
    folder: Path,
    p: TokenLevelParams,
) -> Path:
    """Train the policy in `start` on rows of `prompt` and what the reward needs.

    make_reward(p, folder) gives a function with the arguments of TRL's `reward_funcs`
    that returns, for each completion, a reward for each of its `completion_ids` (EOS is
    among them if the completion has ended), or None if the judge failed: such a
    completion is in no loss. It is handed on by name, as in `grpo.grpo`.

    p.method: ppo has advantages by GAE with a value head on the policy's trunk, and the
    KL penalty in the reward; group has those of `group_advantages` and TRL's own loss
    with its KL term. Both take the mean over tokens of the clipped objective.

    Returns folder/model: as `grpo.grpo`, with the same files beside it; the value head
    is in the checkpoints alone. Raises ValueError if a rollout needs more rows.
    """
    if (folder / "model").exists():
        return folder / "model"
    grpo.required(rows, p.minibatches * p.rl_batch_size // p.num_generations)
    from datasets import Dataset

    from factkit.train.token_trainer import GroupTrainer, PPOTrainer

    # before the model, for ZeRO-3
    config = token_level_config(p, folder / "checkpoint")
    model, tokenizer = setup.load_trainable(start, p, rollouts=True)
    trainer = (PPOTrainer if p.method == "ppo" else GroupTrainer)(
        p,
        make_reward(p, folder),
        model=model,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(list(rows)),
        peft_config=setup.lora(p, model),
        args=config,
    )
    return grpo.train_policy(trainer, tokenizer, f"{p.method} {folder.name}", folder, p)
