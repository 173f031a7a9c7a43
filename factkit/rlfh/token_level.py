"""Policy optimisation with a reward at each token: PPO, or relative to a group.

The formulas are in `token_objective`; the rollouts, the logging and the checkpoints are
TRL's; what TRL has no trainer for is in `token_trainer`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit.params.stages import TokenLevelParams
from factkit.train import grpo, launch, setup

if TYPE_CHECKING:
    from trl import GRPOConfig


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


@launch.held_to
@launch.distributed
def token_level(
    start: str,
    rows: Sequence[dict[str, Any]],
    make_reward: Callable[[TokenLevelParams, Path], Callable[..., list]],
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

    from factkit.rlfh.token_trainer import GroupTrainer, PPOTrainer

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
    return grpo.train_policy(trainer, tokenizer, p.method, folder, p)
