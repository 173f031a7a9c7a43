"""Policy optimisation with a reward at each token: PPO, or relative to a group.

RLFH §3.2.2 maximises the expected sum of token rewards with PPO (Schulman et al. 2017);
its implementation builds on trlX. Rollouts, the clipped objective, logging and
checkpoints are those of TRL's GRPOTrainer; the advantages replace TRL's where it has
scored a rollout, in methods that are private to it. Heavy to import.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from trl import GRPOConfig, GRPOTrainer

from factkit.papers.rlfh.advantages import (
    gae,
    group_advantages,
    masked_mean,
    value_loss,
    whiten,
)
from factkit.run.params.stages import TokenLevelParams
from factkit.train import grpo, launch, setup
from factkit.train.rewards import CheckedReward

HEAD = "value_head"
Batch = dict[str, Any]  # a rollout as TRL has it: tensors with B rows
TokenReward = Callable[..., list[list[float] | None]]  # TRL's arguments


@dataclass(frozen=True)
class Constants:
    """Those of returns and value head; GRPOConfig has the others."""

    gamma: float
    gae_lambda: float
    value_clip: float
    value_coefficient: float
    value_learning_rate: float


@launch.made_once
def token_level(
    start: str,
    rows: Sequence[dict[str, Any]],
    make_reward: Callable[[TokenLevelParams, Path], TokenReward],
    folder: Path,
    p: TokenLevelParams,
) -> Path:
    """Train the policy in `start` on rows of `prompt` and what the reward needs.

    make_reward(p, folder) gives a function with the arguments of TRL's `reward_funcs`
    that returns, for each completion, a reward for each of its `completion_ids` (with
    EOS), or None if the judge failed: such a completion is left out of the loss.

    p.method: ppo | group, the trainers below. Returns folder/model, as `grpo.grpo`,
    without the value head.
    """
    grpo.require_rows(rows, p)
    constants = {field.name: getattr(p, field.name) for field in fields(Constants)}

    def make(**arguments: Any) -> GroupTrainer:
        kind = PPOTrainer if p.method == "ppo" else GroupTrainer
        return kind(Constants(**constants), make_reward(p, folder), **arguments)

    config = token_level_config(p, folder / "checkpoint")
    trainer = setup.policy_trainer(make, config, start, rows, p, rollouts=True)
    return grpo.train_policy(trainer, p.method, folder, p)


def token_level_config(p: TokenLevelParams, folder: Path) -> GRPOConfig:
    """The configuration of `grpo.grpo_config` with these changes."""
    config = grpo.grpo_config(p, folder)
    config.loss_type = "bnpo"  # the mean over the tokens of a micro-batch
    config.scale_rewards = "none"
    config.num_iterations = p.ppo_epochs  # of a rollout, which TRL shuffles once
    updates = p.ppo_epochs * p.minibatches
    config.save_steps = grpo.round_up(p.checkpoint_steps, updates)
    return config


class GroupTrainer(GRPOTrainer):
    """Advantages (B, T) from token rewards and the others of a group. TRL's loss: the
    mean over tokens of the clipped objective, and its KL term."""

    def __init__(self, constants: Constants, reward: TokenReward, **arguments: Any):
        checked = CheckedReward(reward)

        def sum_rewards(**columns: Any) -> list[float | None]:
            """One reward per completion, as TRL expects."""
            self.token_rewards = checked(**columns)
            return [None if r is None else sum(r) for r in self.token_rewards]

        self.constants = constants
        sum_rewards.__name__ = checked.__name__
        super().__init__(reward_funcs=sum_rewards, **arguments)
        self.add_callback(checked)

    def _generate_and_score_completions(self, inputs: Any) -> Batch:
        batch = super()._generate_and_score_completions(inputs)
        rewards, mask = self._pad_rewards(batch)
        batch["tool_mask"] = mask.long()  # TRL's losses leave out the tokens at 0
        batch |= self._advantages(batch, rewards, mask)
        gathered = self._gather(batch["advantages"])
        whitened = whiten(gathered, self._gather(mask))
        batch["advantages"] = self._select_local(whitened, mask)
        return batch

    def _pad_rewards(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The token rewards and the mask of tokens that count, (B, T) each."""
        ids, mask = batch["completion_ids"], batch["completion_mask"].bool()
        rewards = torch.zeros(ids.shape, device=ids.device)
        for i, row in enumerate(self.token_rewards):
            if row is None:
                mask[i] = False
            else:
                rewards[i, : len(row)] = torch.tensor(row)
        return rewards, mask

    def _advantages(self, batch: Batch, rewards: Tensor, mask: Tensor) -> Batch:
        """What the loss needs beside TRL's rollout; `advantages` (B, T) among it."""
        no_values = torch.zeros_like(rewards)
        _, returns = gae(rewards, no_values, mask, self.constants.gamma, lam=1.0)
        known = self._gather(mask).any(1)
        gathered = self._gather(returns)
        advantages = group_advantages(gathered, known, self.num_generations)
        return {"advantages": self._select_local(advantages, mask).where(mask, 0.0)}

    def _gather(self, x: Tensor) -> Tensor:
        """x (B, T) of all processes, one below the other, as wide as the widest."""
        # padding turns booleans to integers, in the narrower processes alone
        wide = self.accelerator.pad_across_processes(x.float(), dim=1)
        return self.accelerator.gather(wide).to(x.dtype)

    def _select_local(self, gathered: Tensor, local: Tensor) -> Tensor:
        """The rows of this process, as wide as its own `local` (B, T)."""
        first = self.accelerator.process_index * len(local)
        return gathered[first : first + len(local), : local.shape[1]]


class ValueHead(nn.Module):
    """Hidden states (B, T, H) to values (B, T), in float32; all 0 at first."""

    def __init__(self, hidden_size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(hidden_size))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, hidden: Tensor) -> Tensor:
        with torch.autocast(hidden.device.type, enabled=False):
            return hidden.float() @ self.weight.float() + self.bias.float()


class PPOTrainer(GroupTrainer):
    """PPO: advantages by GAE from a value head on the policy's last hidden states, and
    the KL penalty in the rewards.

    The head is a module of the policy, so that it is wrapped with the policy for
    several GPUs; what leaves the trainer is the policy alone.
    """

    beta: float  # of the KL penalty

    def __init__(self, constants: Constants, reward: TokenReward, **arguments: Any):
        super().__init__(constants, reward, **arguments)
        head = ValueHead(self.model.config.hidden_size).to(self.model.device)
        if self.is_deepspeed_enabled:  # takes one dtype, and keeps float32 copies
            head.to(self.model.dtype)
        self.model.add_module(HEAD, head)
        self._values: list[Tensor] | None = None  # of the current forward pass
        self.model.get_output_embeddings().register_forward_pre_hook(self._keep_values)
        if self.use_vllm:
            weights = self.vllm_generation._iter_named_params
            self.vllm_generation._iter_named_params = lambda: _without_head(weights())

    def _keep_values(self, lm_head: nn.Module, args: tuple[Tensor]) -> None:
        if self._values is not None:
            self._values.append(self.model.value_head(args[0]))

    def _take_values(self, length: int) -> Tensor:
        """Values (B, T) of the last T = length tokens of the forward pass just made:
        V_t is of the hidden state that predicts token t. 0 where a pass left out the
        padding at the end."""
        parts = [v[:, -length - 1 : -1] for v in self._values or ()]
        self._values, pad = None, torch.nn.functional.pad
        return torch.cat([pad(v, (0, length - v.shape[1])) for v in parts])

    @torch.no_grad()
    def _score(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """log π and value of each token, (B, T), by one forward pass."""
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
        length, rows = batch["completion_ids"].shape[1], self._train_batch_size
        self._values = []
        logps, _, _ = self._get_per_token_logps_and_entropies(
            self.model, ids, mask, length, batch_size=rows
        )
        return logps, self._take_values(length)

    def _advantages(self, batch: Batch, rewards: Tensor, mask: Tensor) -> Batch:
        logps, values = self._score(batch)
        if self.beta:  # r_t − β (log π(y_t) − log π_ref(y_t)): the estimate k1 of KL
            kl = logps - batch["ref_per_token_logps"]
            rewards = rewards - self.beta * kl
            self._log_mean("kl", masked_mean(kl, mask))
        gamma, lam = self.constants.gamma, self.constants.gae_lambda
        advantages, returns = gae(rewards, values, mask, gamma, lam)
        return {
            "advantages": advantages,
            "returns": returns,
            "old_values": values,
            "old_per_token_logps": logps,
        }

    def _compute_loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """TRL's loss of the policy, without its KL term, which is in the rewards here,
        and the head's loss, by one forward pass."""
        self._values, beta, self.beta = [], self.beta, 0.0
        policy_loss = super()._compute_loss(model, batch)
        self.beta, passes = beta, self.current_gradient_accumulation_steps
        head_loss = value_loss(
            self._take_values(batch["completion_ids"].shape[1]),
            batch["old_values"],
            batch["returns"],
            batch["tool_mask"].bool(),
            self.constants.value_clip,
        )
        self._log_mean("policy_loss", policy_loss * passes)
        self._log_mean("value_loss", head_loss)
        return policy_loss + self.constants.value_coefficient * head_loss / passes

    def _log_mean(self, name: str, value: Tensor) -> None:
        mean = self.accelerator.gather(value.detach()).mean().item()
        self._metrics["train"][name].append(mean)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """The trainer's optimizer, with a learning rate of its own for the head."""
        if self.optimizer is not None:  # DeepSpeed's set-up has called this before
            return self.optimizer
        head = self.model.value_head.requires_grad_(False)  # not in the policy's group
        optimizer = super().create_optimizer(model)
        head.requires_grad_(True)
        rate = self.constants.value_learning_rate
        optimizer.add_param_group({"params": [*head.parameters()], "lr": rate})
        return optimizer

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """Save the policy without the head."""
        weights = self.model.state_dict() if state_dict is None else state_dict
        super()._save(output_dir, dict(_without_head(weights.items())))

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """Save the head with them; DeepSpeed saves it itself."""
        super()._save_optimizer_and_scheduler(output_dir)
        if self.args.should_save and not self.is_deepspeed_enabled:
            head = self.model.value_head.state_dict()
            save_file(head, Path(output_dir) / f"{HEAD}.safetensors")

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint and not self.is_deepspeed_enabled:
            head = load_file(Path(checkpoint) / f"{HEAD}.safetensors")
            self.model.value_head.load_state_dict(head)


def _without_head(weights: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    return ((name, w) for name, w in weights if not name.startswith(f"{HEAD}."))
