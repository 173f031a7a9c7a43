"""GRPO with TRL: as TruthRL has it (§3.2, Appendix C), or as Dr.GRPO."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit.policy import cpu
from factkit.run.params.stages import RlParams
from factkit.train import launch, setup
from factkit.train.rollouts import rollout_arguments

if TYPE_CHECKING:
    from trl import GRPOConfig, GRPOTrainer


def grpo_config(p: RlParams, folder: Path) -> "GRPOConfig":
    """TRL's configuration for the papers' objectives; each default that differs is set.

    p.loss: grpo has the advantage (r − mean) / std and means over a response's tokens
    (TruthRL §3.2); dr_grpo the advantage r − mean and no length normalisation (Learning
    to Reason Eq. 3): its sum over tokens is divided by the constant
    max_completion_length alone. TRL's dr_grpo does not switch the std off: that is
    done here.

    π_old is the trainer's, wherever rollouts come from. TRL would weigh a response by
    π_old over vLLM's own probability of it, and drop it if that is above 3; no paper
    does.

    One update a rollout has the ratio 1 and the clip idle (as in Learning to Reason
    §3.2; ours for TruthRL, which does not state its mini-batch). With p.minibatches
    more, a rollout is so many times p.rl_batch_size completions, and checkpoints are
    written between rollouts only: TRL does not keep one, so that a run that goes on
    from the middle of it would sample anew.
    """
    from trl import GRPOConfig

    warm_up = {"lr_scheduler_type": "constant"}  # TruthRL App. C
    if p.rl_warmup_ratio:
        warm_up = {"lr_scheduler_type": "constant_with_warmup"}
        warm_up |= {"warmup_steps": p.rl_warmup_ratio}  # below 1: a share of the steps
    config = GRPOConfig(
        **setup.trainer_arguments(p, folder, p.rl_batch_size),
        **rollout_arguments(p),
        max_steps=p.rl_steps,
        num_generations=p.num_generations,
        max_completion_length=p.max_completion_length,
        temperature=p.temperature,
        top_p=p.top_p,
        top_k=0,
        learning_rate=p.rl_learning_rate,
        **warm_up,
        beta=p.beta,
        epsilon=p.epsilon,
        loss_type=p.loss,
        scale_rewards="group" if p.loss == "grpo" else "none",
        use_bias_correction_kl=False,  # plain k3 estimator
        vllm_importance_sampling_correction=False,
        num_iterations=1,
    )
    config.steps_per_generation *= p.minibatches
    config.generation_batch_size *= p.minibatches
    config.save_steps = between_rollouts(p.checkpoint_steps, p.minibatches)
    return config


def between_rollouts(steps: int, updates: int) -> int:
    """The next multiple of a rollout's updates."""
    return -(-steps // updates) * updates


@launch.made_once
def grpo(
    start: str,
    rows: Sequence[dict[str, Any]],
    make_reward: Callable[[RlParams, Path], Callable[..., list[float | None]]],
    folder: Path,
    p: RlParams,
    make_rollout: Callable[[RlParams, Path], Callable[..., dict]] | None = None,
) -> Path:
    """Train the policy in `start` on rows of `prompt` and what the reward needs.

    make_reward(p, folder) gives a function with TRL's `reward_funcs` signature,
    make_rollout(p, folder) one with `rollout_func`'s, where sampling takes more than a
    turn. They are handed on by name, so that every process can make its own.

    Returns folder/model: a LoRA adapter on `start`, or the whole model if `lora_rank`
    is 0. The curve is in folder/metrics.csv; the policies after all but the last of
    p.kept_steps are in folder/model-<step>. A killed run goes on from its last
    checkpoint. Raises ValueError if a rollout needs more rows.
    """
    required(rows, p.minibatches * p.rl_batch_size // p.num_generations)
    from trl import GRPOTrainer

    from factkit.train.rewards import CheckedReward

    def make(**arguments: Any) -> GRPOTrainer:
        reward = CheckedReward(make_reward(p, folder))
        trainer = GRPOTrainer(
            reward_funcs=reward,
            rollout_func=make_rollout and make_rollout(p, folder),
            **arguments,
        )
        trainer.add_callback(reward)
        return trainer

    config = grpo_config(p, folder / "checkpoint")
    trainer = setup.policy_trainer(make, config, start, rows, p, rollouts=True)
    return train_policy(trainer, "GRPO", folder, p)


def required(rows: Sequence[dict[str, Any]], prompts: int) -> None:
    """Raises ValueError if there are fewer rows than a rollout has prompts: TRL would
    train for no step and not say so."""
    if len(rows) < prompts:
        raise ValueError(f"a rollout needs {prompts} prompts, there are {len(rows)}")


def train_policy(
    trainer: "GRPOTrainer", algorithm: str, folder: Path, p: RlParams
) -> Path:
    """Train to the end and keep the policies that `grpo` tells of; folder/model."""
    setup.keep_at(trainer, p.kept_steps[:-1], folder)
    on_cpu = trainer.args.device.type == "cpu"
    if on_cpu and trainer.accelerator.num_processes == 1:
        cpu.share_prompts(trainer)
    return setup.train_and_keep(trainer, algorithm, folder, merge=False)
