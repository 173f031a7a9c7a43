"""RLFH's token rewards for verl: PPO with a separate critic, and an agent loop whose
outputs have a reward per token.

verl's agent loop puts a response's score on the last token of `rm_scores` (T,), from
which the trainer takes the KL penalty and GAE; here the score is a list of T numbers.
"""

from functools import cache
from typing import TYPE_CHECKING, Any

from factkit.answers.training_rows import RowFormat
from factkit.data.examples import read_examples
from factkit.facts.policy import base_policy
from factkit.papers.rlfh import rewards
from factkit.papers.rlfh.arms import Rlfh
from factkit.run import runs
from factkit.train.verl_adapter import Job

if TYPE_CHECKING:
    from verl.experimental.agent_loop import AgentLoopOutput


def make_job(p: Rlfh) -> Job:
    """What verl needs to train `p.arm` by PPO, from the data of notebook 40."""
    train = read_examples(runs.run_folder(p.data_notebook, p) / "train.jsonl")
    start = base_policy(p)
    rows = RowFormat.of(p).request_rows(train)
    return Job(p, start, rows, rewards.reward_function, TokenRewardLoop, ppo(p, start))


class TokenRewardLoop:
    """verl's agent loop of one turn, whose outputs take a reward for each token."""

    def __init__(self, **given: Any) -> None:
        from verl.experimental.agent_loop.single_turn_agent_loop import (
            SingleTurnAgentLoop,
        )

        self._loop = SingleTurnAgentLoop(**given)

    async def run(
        self, sampling_params: dict[str, Any], **row: Any
    ) -> "AgentLoopOutput":
        output = await self._loop.run(sampling_params, **row)
        fields = {name: getattr(output, name) for name in output.model_fields_set}
        return _token_output()(**fields)


@cache
def _token_output() -> type["AgentLoopOutput"]:
    import torch
    from verl.experimental.agent_loop import AgentLoopOutput

    class TokenOutput(AgentLoopOutput):
        """reward_score: one for each of response_ids."""

        reward_score: list[float] | None = None

        def as_dict(self) -> dict[str, Any]:
            bare = self.model_copy(update={"reward_score": None})
            fields = AgentLoopOutput.as_dict(bare)
            if self.reward_score is not None:
                fields["rm_scores"] = torch.tensor(self.reward_score).float()
            return fields

    return TokenOutput


def ppo(p: Rlfh, start: str) -> dict[str, Any]:
    """The changes to verl's config for PPO on token rewards: dotted key → value.

    The critic is a separate model, as in the paper's public code, so value_coefficient
    is not used. verl whitens advantages.
    """
    actor = "actor_rollout_ref.actor"
    return {
        "algorithm.adv_estimator": "gae",
        "algorithm.gamma": p.gamma,
        "algorithm.lam": p.gae_lambda,
        "algorithm.use_kl_in_reward": True,
        "algorithm.kl_ctrl.kl_coef": p.beta,
        f"{actor}.use_kl_loss": False,
        f"{actor}.ppo_epochs": p.ppo_epochs,
        f"{actor}.loss_agg_mode": "token-mean",
        "critic.model.path": start,
        "critic.optim.lr": p.value_learning_rate,
        "critic.optim.weight_decay": 0.0,
        "critic.cliprange_value": p.value_clip,
    }
