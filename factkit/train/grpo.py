"""GRPO with TRL, as in TruthRL (§3.2, Appendix C) or as Dr.GRPO."""

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
    """TRL's configuration for the papers' objectives, with every default that differs.

    p.loss: `grpo` has the advantage (r − mean) / std and averages over a response's
    tokens (TruthRL §3.2); `dr_grpo` has the advantage r − mean and divides the sum over
    tokens by the constant max_completion_length (Learning to Reason Eq. 3). TRL's
    dr_grpo alone does not switch the std off.

    π_old is the trainer's, also with rollouts of vLLM: no paper uses TRL's importance
    sampling correction.

    With one update per rollout the ratio is 1 and the clip idle (Learning to Reason
    §3.2; ours for TruthRL, which does not state its mini-batch). p.minibatches updates
    share a rollout of as many times p.rl_batch_size completions; checkpoints are then
    written between rollouts, because TRL does not store a rollout.
    """
    from trl import GRPOConfig

    config = GRPOConfig(
        **setup.trainer_arguments(p, folder, p.rl_batch_size),
        **rollout_arguments(p),
        max_steps=p.rl_steps,
        num_generations=p.num_generations,
        max_completion_length=p.response_tokens,
        temperature=p.temperature,
        top_p=p.top_p,
        top_k=0,
        learning_rate=p.rl_learning_rate,
        lr_scheduler_type="constant_with_warmup",  # TruthRL App. C: without
        warmup_steps=p.rl_warmup_ratio,  # below 1: a share of the steps
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
    config.save_steps = round_up(p.checkpoint_steps, p.minibatches)
    return config


def round_up(steps: int, updates: int) -> int:
    """The next multiple of `updates`, those of one rollout."""
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
    """Train the policy in `start` on rows with `prompt` and the reward's columns.

    make_reward(p, folder) returns a function with TRL's `reward_funcs` signature,
    make_rollout(p, folder) one with that of `rollout_func`, for sampling in several
    turns. They are passed to other processes by name.

    Returns folder/model: a LoRA adapter on `start`, or the whole model if `lora_rank`
    is 0. The curve is in folder/metrics.csv; the policies after all but the last of
    p.kept_steps are in folder/model-<step>. A killed run resumes from its last
    checkpoint. Raises ValueError if a rollout needs more rows.
    """
    require_rows(rows, p)
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


def require_rows(rows: Sequence[dict[str, Any]], p: RlParams) -> None:
    """Raises ValueError if a rollout has more prompts than there are rows: TRL would
    silently train for no step."""
    prompts = p.minibatches * p.rl_batch_size // p.num_generations
    if len(rows) < prompts:
        raise ValueError(f"a rollout needs {prompts} prompts, there are {len(rows)}")


def train_policy(
    trainer: "GRPOTrainer", algorithm: str, folder: Path, p: RlParams
) -> Path:
    """Train to the end and save the policies that `grpo` describes; returns
    folder/model."""
    from transformers import TrainerCallback

    class Keep(TrainerCallback):
        """Saves on every process: under ZeRO-3 the weights are gathered."""

        def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
            kept = folder / f"model-{state.global_step}"
            if state.global_step in p.kept_steps[:-1] and not kept.exists():
                setup.save_whole(trainer, kept, merge=False)

    trainer.add_callback(Keep())
    on_cpu = trainer.args.device.type == "cpu"
    if on_cpu and trainer.accelerator.num_processes == 1:
        cpu.share_prompts(trainer)
    return setup.train_and_keep(trainer, algorithm, folder, merge=False)
