"""RLFH's token rewards for verl 0.9.1: PPO on a cluster, on Ray.

What verl loads by name, and a writer of what it reads; params/README.md has the set-up
and the commands. The rewards are those that notebook 42 trains by, of the parameters
params/<profile>/rlfh. verl's reward manager scores a response as soon as it is sampled,
and its agent loop puts the score on the last token of `rm_scores` (T,), from which the
trainer takes the KL penalty and GAE. So there are two parts, and neither does without
the other: `RlfhRewardManager`, whose score is a list with a number for each token, and
`TokenRewardLoop`, whose outputs put such a list on their tokens.

verl has no reward of None, but its synchronous trainer (the default) leaves a response
that raised out of the batch. So where the annotator failed, `NoFeedback` is raised: the
response is in no loss. Once more than 5 % of the run's responses have failed, and on
any other error, all later ones raise, too, and verl ends the run at the first rollout
that has none left. The asynchronous trainers would sample anew for ever.
"""

import asyncio
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from factkit import assets, params, runs
from factkit.assets import write_atomically
from factkit.curate.drawn import turn
from factkit.datasets.examples import Example, read_examples
from factkit.rlfh import rewards

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase
    from verl import DataProto
    from verl.experimental.agent_loop import AgentLoopOutput

    from factkit.rlfh.arms import Rlfh

HERE = "factkit.rlfh.verl_adapter"
LOOP = "rlfh"  # verl's name of the agent loop
# chat templates of plain text; the second is right where a tokenizer of SentencePiece's
# kind puts a space before a text, but none after a BOS token
PLAIN = (
    "{{ bos_token }}{{ messages[0].content }}",
    "{{ bos_token }} {{ messages[0].content }}",
    "{{ messages[0].content }}",
)


class NoFeedback(RuntimeError):
    """The annotator failed on a response; verl leaves it out of the batch."""


class RlfhRewardManager:
    """verl's `RewardManagerBase` for `p.arm`: a reward for each token of a response.

    config: verl's, with the kit's parameters under `factkit`. Rows need `id` and
    `question` in `extra_info`.
    """

    def __init__(
        self, config: "DictConfig", tokenizer: "PreTrainedTokenizerBase", **_: object
    ) -> None:
        self._reward = rewards.reward_function(parameters(config), Path())
        self._tokenizer = tokenizer
        self._error: Exception | None = None  # after which there are no rewards
        self._turn = asyncio.Lock()
        self._waiting: list[tuple[dict[str, Any], asyncio.Future]] = []

    async def run_single(self, data: "DataProto") -> dict[str, Any]:
        """The rewards on the T tokens of a response.

        data: one row; prompts, responses and their attention mask, padded or not. All
        responses that wait are annotated at once. Raises NoFeedback, and RuntimeError
        after too many of these.
        """
        row, info = data[0].batch, data[0].non_tensor_batch["extra_info"]
        mask = row["attention_mask"][len(row["prompts"]) :]
        ids = row["responses"][mask.bool()].tolist()
        response = {
            "completions": self._tokenizer.decode(ids, skip_special_tokens=True),
            "completion_ids": ids,
            "id": info["id"],
            "question": info["question"],
        }
        mine = asyncio.get_running_loop().create_future()
        self._waiting.append((response, mine))
        async with self._turn:
            if not mine.done():
                await self._reward_waiting()
        values = mine.result()
        if values is None:
            raise NoFeedback(f"{info['id']}: the annotator failed on a response")
        responds = {"responds": float(any(values))}  # verl wants the same keys of all
        return {"reward_score": values, "reward_extra_info": responds}

    async def _reward_waiting(self) -> None:
        rows, futures = zip(*self._waiting, strict=True)
        self._waiting = []
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        try:
            if self._error:
                raise self._error
            results = await asyncio.to_thread(self._reward, **columns)
        except Exception as error:
            self._error = error
            for future in futures:
                future.set_exception(error)
        else:
            for future, result in zip(futures, results, strict=True):
                future.set_result(result)

    @classmethod
    def assemble_rm_scores(
        cls, data: "DataProto", scores: Sequence[Sequence[float]]
    ) -> "Tensor":
        """`rm_scores` (B, T) of a batch, 0 on the padding at the right."""
        import torch

        rm_scores = torch.zeros_like(data.batch["responses"], dtype=torch.float32)
        for row, values in zip(rm_scores, scores, strict=True):
            row[: len(values)] = row.new_tensor(values)
        return rm_scores


def parameters(config: "DictConfig") -> "Rlfh":
    """The kit's parameters in verl's config. Raises ParamError if verl can't follow."""
    from omegaconf import OmegaConf

    if (workers := config.reward.num_workers) != 1:  # it counts the run's failures
        raise params.ParamError(f"reward.num_workers={workers}: must be 1")
    values = OmegaConf.to_container(config.factkit, resolve=True)
    p = params.validate("rlfh", values, "verl's config, factkit")
    check(p)
    return p


def check(p: "Rlfh") -> None:
    """Raises ParamError if verl can't do what p says."""
    refused = {
        "policy": p.policy == "tiny-world",  # no folder
        "arm": p.arm not in ("paragraph", "sentence", "statement"),
        "lora_rank": p.lora_rank > 0,  # verl's adapters are not set up here
        "whiten": not p.whiten,
        "eos_penalty": p.eos_penalty > 0,
    }
    for name, no in refused.items():
        if no:
            what = f"{name}={getattr(p, name)!r}"
            raise params.ParamError(f"{what}: train this with notebook 42")


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


# What verl reads


def write(p: "Rlfh", folder: str | Path) -> None:
    """Write verl's data, agent loops and config: all that it needs to train `p.arm`.

    train.parquet, dev.parquet, agent_loop.yaml, rlfh.yaml. Raises ParamError on
    parameters that verl can't follow, DataError if notebook 40 has not run.
    """
    import pandas as pd
    from transformers import AutoTokenizer

    folder = Path(folder).resolve()
    check(p)
    data = runs.run_folder(p.data_notebook, p)
    splits = {s: read_examples(data / f"{s}.jsonl") for s in ("train", "dev")}
    rows = {split: verl_rows(examples, p) for split, examples in splits.items()}
    template = None
    if not p.chat:
        tokenizer = AutoTokenizer.from_pretrained(assets.policy_path(p.policy))
        template = plain_template([row["prompt"] for row in rows["train"]], tokenizer)
    config = _nested(overrides(p, folder, template))
    config = {"defaults": ["ppo_trainer", "_self_"], "factkit": p.model_dump()} | config
    folder.mkdir(parents=True, exist_ok=True)
    for split, table in rows.items():
        pd.DataFrame(table).to_parquet(folder / f"{split}.parquet", index=False)
    loops = [{"name": LOOP, "_target_": f"{HERE}.TokenRewardLoop"}]
    for name, content in {"agent_loop": loops, "rlfh": config}.items():
        text = yaml.safe_dump(content, sort_keys=False)
        write_atomically(folder / f"{name}.yaml", text)


def verl_rows(examples: Sequence[Example], p: "Rlfh") -> list[dict[str, Any]]:
    """Rows of verl's `RLHFDataset`: a prompt as messages, and what the rewards need."""
    chat = p.model_copy(update={"chat": True})
    return [
        {
            "data_source": LOOP,
            "prompt": turn(e, chat),
            "reward_model": {"style": "rule", "ground_truth": "".join(e.answers[:1])},
            "extra_info": {"index": index, "id": e.id, "question": e.question},
        }
        for index, e in enumerate(examples)
    ]


def plain_template(
    prompts: Sequence[list[dict[str, str]]], tokenizer: "PreTrainedTokenizerBase"
) -> str:
    """The chat template by which prompts, of a message each, have the tokens that the
    kit's trainer gives them, which puts plain text. Raises ParamError without one."""
    plain = tokenizer([messages[0]["content"] for messages in prompts])["input_ids"]
    for template in PLAIN:
        put = tokenizer.apply_chat_template(prompts, chat_template=template)
        if put["input_ids"] == plain:
            return template
    raise params.ParamError("chat=False: verl can't put plain text to this tokenizer")


def overrides(p: "Rlfh", folder: Path, template: str | None) -> dict[str, Any]:
    """What differs from verl's own ppo_trainer.yaml: its dotted key → value.

    template: every prompt goes through one; None for the tokenizer's own.

    A batch is of prompts there, a step a rollout. The critic is a model of its own, as
    in the paper's public code, so that value_coefficient says nothing. verl whitens
    advantages, and bounds the loss of negative ones once more, which is idle at one
    update a rollout.
    """
    prompts = p.rl_batch_size // p.num_generations  # an update
    updates = p.ppo_epochs * p.minibatches  # a rollout
    sequences = p.micro_batch_size or p.rl_batch_size // p.num_processes
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    return {
        "reward.num_workers": 1,
        "reward.reward_manager.source": "importlib",
        "reward.reward_manager.name": "RlfhRewardManager",
        "reward.reward_manager.module.path": f"pkg://{HERE}",
        "data.train_files": str(folder / "train.parquet"),
        "data.val_files": str(folder / "dev.parquet"),
        "data.train_batch_size": p.minibatches * prompts,
        "data.max_prompt_length": p.max_context_length - p.max_completion_length,
        "data.max_response_length": p.max_completion_length,
        "data.seed": p.seed,
        "algorithm.adv_estimator": "gae",
        "algorithm.gamma": p.gamma,
        "algorithm.lam": p.gae_lambda,
        "algorithm.use_kl_in_reward": True,
        "algorithm.kl_penalty": "kl",  # k1, as `token_trainer.PPOTrainer`
        "algorithm.kl_ctrl.type": "fixed",
        "algorithm.kl_ctrl.kl_coef": p.beta,
        "actor_rollout_ref.model.path": p.policy,
        "actor_rollout_ref.model.custom_chat_template": template,
        f"{actor}.optim.lr": p.rl_learning_rate,
        f"{actor}.optim.weight_decay": 0.0,
        f"{actor}.ppo_mini_batch_size": prompts,
        f"{actor}.ppo_micro_batch_size_per_gpu": sequences,
        f"{actor}.ppo_epochs": p.ppo_epochs,
        f"{actor}.clip_ratio": p.epsilon,
        f"{actor}.clip_ratio_low": p.epsilon,
        f"{actor}.clip_ratio_high": p.epsilon,
        f"{actor}.loss_agg_mode": "token-mean",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": sequences,
        f"{rollout}.name": "vllm",
        f"{rollout}.n": p.num_generations,
        f"{rollout}.temperature": p.temperature,
        f"{rollout}.top_p": p.top_p,
        f"{rollout}.tensor_model_parallel_size": p.vllm_tensor_parallel,
        f"{rollout}.gpu_memory_utilization": p.vllm_memory,
        f"{rollout}.log_prob_micro_batch_size_per_gpu": sequences,
        f"{rollout}.agent.default_agent_loop": LOOP,
        f"{rollout}.agent.agent_loop_config_path": str(folder / "agent_loop.yaml"),
        "critic.model.path": p.policy,
        "critic.optim.lr": p.value_learning_rate,
        "critic.optim.weight_decay": 0.0,
        "critic.cliprange_value": p.value_clip,
        "critic.ppo_micro_batch_size_per_gpu": sequences,
        "trainer.n_gpus_per_node": p.num_processes,
        "trainer.total_training_steps": math.ceil(p.rl_steps / updates),
        "trainer.save_freq": math.ceil(p.checkpoint_steps / updates),
        "trainer.val_before_train": False,
        "trainer.test_freq": -1,
        "trainer.project_name": "factkit",
        "trainer.experiment_name": f"rlfh-{p.arm}-s{p.seed}",
        "trainer.default_local_dir": str(folder / f"{p.arm}-s{p.seed}"),
        "trainer.logger": ["console"],
    }


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    """Dotted keys as mappings in mappings."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *parents, last = key.split(".")
        place = nested
        for name in parents:
            place = place.setdefault(name, {})
        place[last] = value
    return nested
