"""One update of GRPO with all its tensors, for notebooks that compute it by hand."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from factkit.run import progress
from factkit.run.params.stages import RlParams
from factkit.train import grpo, launch, setup

SMALL = {  # two updates of one rollout: before the second, the policy has changed
    "rl_steps": 2,
    "minibatches": 2,
    "rl_batch_size": 8,
    "num_generations": 4,
    "micro_batch_size": 0,
    "kept_policies": 1,
    "rollouts": "transformers",
    "num_processes": 1,
    "deepspeed": "",
    "lora_backend": "peft",  # Unsloth can't be imported in this process any more
}


def record_update(
    start: str,
    rows: Sequence[dict[str, Any]],
    make_reward: Callable[[RlParams, Path], Callable[..., list[float | None]]],
    p: RlParams,
) -> SimpleNamespace:
    """The second update of the policy in `start` on one rollout, by p's objective.

    The rollout has four prompts of `rows` with G = 4 completions each, grouped by
    prompt: `completions`, `rewards` (16,), `advantages` (16,). The update takes 8 of
    them (B) with advantages `a` (B,). `new`, `old` and `ref` (B, T) are log π of each
    token under the current policy, the one of the rollout and the reference; `mask`
    (B, T) is 1 up to a completion's end; `loss` is the trainer's. The policy in `start`
    is not changed. Raises ValueError if there are fewer than four rows.
    """
    import torch
    from trl import GRPOTrainer

    from factkit.train.rewards import CheckedReward

    p = p.model_copy(update=SMALL)
    grpo.require_rows(rows, p)
    record = SimpleNamespace(G=p.num_generations)

    class RecordingTrainer(GRPOTrainer):
        def _calculate_rewards(self, *args: Any) -> torch.Tensor:
            rewards = super()._calculate_rewards(*args)
            record.rewards = rewards[:, 0].clone()
            return rewards

        def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
            rollout = super()._generate_and_score_completions(inputs)
            ids = rollout["completion_ids"]
            texts = self.processing_class.batch_decode(ids, skip_special_tokens=True)
            record.completions = [text.strip() for text in texts]
            record.advantages = rollout["advantages"].clone()
            return rollout

        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
            mask = inputs["completion_mask"]
            ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
            attended = torch.cat([inputs["prompt_mask"], mask], 1)
            with torch.no_grad():
                record.new = self._get_per_token_logps_and_entropies(
                    model, ids, attended, mask.shape[1]
                )[0]
            record.old, record.mask = inputs["old_per_token_logps"], mask
            record.ref = inputs.get("ref_per_token_logps", record.old)
            record.a = inputs["advantages"]
            loss = super()._compute_loss(model, inputs)
            record.loss = loss.item()
            return loss

    def make(**arguments: Any) -> RecordingTrainer:
        reward = CheckedReward(make_reward(p, Path(folder)))
        return RecordingTrainer(reward_funcs=reward, **arguments)

    # later training draws the same random numbers as without this
    fork, temporary = torch.random.fork_rng(), tempfile.TemporaryDirectory()
    with launch.enable_gradients(), fork, temporary as folder:
        unreported = p.model_copy(update={"report_to": "none"})
        config = grpo.grpo_config(unreported, Path(folder) / "checkpoint")
        trainer = setup.policy_trainer(make, config, start, rows[:4], p, rollouts=True)
        progress.train(trainer)
    return record
