r"""RLFH's token rewards for verl 0.9.1: PPO on a cluster, on Ray.

What verl loads by name, and a writer of what it reads. The rewards are `rewards.rlfh`'s
on feedback by `annotators.annotator`, of the parameters params/<profile>/rlfh.yaml:
those of the notebooks. Nothing else in the kit needs verl.

How verl 0.9.1 takes a score for each token. As soon as a response is sampled, a reward
manager scores it (`reward.reward_manager`); `AgentLoopOutput.as_dict` puts the score on
the last token of `rm_scores` (T,), and these are the trainer's `token_level_scores`,
from which it takes the KL penalty (`algorithm.use_kl_in_reward`) and GAE. So there are
two parts, and neither does without the other:
- `RlfhRewardManager`, whose score is a list with a number for each token;
- `TokenRewardLoop`, verl's agent loop of one turn, whose outputs put such a list on
  their tokens (`actor_rollout_ref.rollout.agent`). Without it verl refuses the list.

verl has no reward of None. Yet its synchronous trainer (`trainer.v1.trainer_mode=sync`,
the default) leaves a response that raised out of the batch, and fills the batch up with
rows that its losses mask. So where the annotator failed, `NoFeedback` is raised, which
verl logs: the response is in no loss, as in the notebooks. Once more than 5 % of the
run's responses have failed, and on any other error, all later ones raise, too, and verl
ends the run at the first rollout that has none left ("no materializable trajectories");
the reason is in its log. The asynchronous trainers would sample anew for ever.

The environment is verl's own, for verl 0.9.1 needs an older transformers than the kit.
`make test-verl` builds one for CPUs. With GPUs (verl[vllm] and the rest resolve for
Python 3.11 and 3.12; not run by us):

    python3 -m venv .venv-verl-gpu && . .venv-verl-gpu/bin/activate
    pip install 'verl[vllm]==0.9.1' rank-bm25==0.2.2 bm25s==0.3.16 pysbd==0.3.4 \
        openai==3.52.0 tenacity==9.2.1
    pip install --no-build-isolation flash-attn==2.8.3
    pip install --no-deps --editable .

The data are notebook 40's, made in the kit's own environment. Then, in verl's,

    python -c "from factkit import params; from factkit.rlfh import verl_adapter; \
        verl_adapter.write(params.load('rlfh', 'h100_full'), 'outputs/verl')"
    python -m verl.trainer.main_ppo --config-dir $PWD/outputs/verl --config-name rlfh

(the second not run by us). `outputs/verl/rlfh.yaml` is all that differs from verl's
defaults, and `verl_config` says why; overrides follow the command, as trainer.nnodes=2.
Its key `factkit` has the parameters that the rewards are made by. Project, environment
and data must be at the same paths on all nodes, and factkit.judge_url in their reach.
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
from factkit.rlfh import rewards as rlfh
from factkit.rlfh.feedback import Sentence
from factkit.verify.failures import Failures

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


# The rewards


class RlfhRewardManager:
    """verl's `RewardManagerBase` for `p.arm`: a reward for each token of a response.

    config: verl's, with the kit's parameters under `factkit`. Rows need `id` and
    `question` in `extra_info`. Raises ParamError on parameters that verl can't follow,
    DataError without the paper's data.
    """

    def __init__(
        self, config: "DictConfig", tokenizer: "PreTrainedTokenizerBase", **_: object
    ) -> None:
        from factkit.rlfh.annotators import annotator
        from factkit.verify.engine import engine_of

        p = parameters(config)
        self._annotate = annotator(p, engine_of(p))
        self._rewards = tokenizer, rlfh.GRANULARITY[p.arm], rlfh.reward_map(p)
        self._failures = Failures(p.arm)
        self._error: Exception | None = None  # after which there are no rewards
        self._turn = asyncio.Lock()
        self._waiting: list[tuple[tuple[str, str, str], asyncio.Future]] = []

    async def run_single(self, data: "DataProto") -> dict[str, Any]:
        """The rewards on the T tokens of a response, and its statements of each kind.

        data: one row; prompts, responses and their attention mask, padded or not.
        Raises NoFeedback, and RuntimeError after too many of these.
        """
        tokenizer, _, _ = self._rewards
        ids, row = _tokens(data), data[0].non_tensor_batch["extra_info"]
        text = tokenizer.decode(ids, skip_special_tokens=True)
        feedback = await self._feedback(row["id"], row["question"], text)
        if feedback is None:
            raise NoFeedback(f"{row['id']}: the annotator failed on a response")
        logged: dict[str, float] = {}
        rlfh.log_batch([feedback], logged.__setitem__)
        logged.pop("informativeness", None)  # verl takes the same keys of all alone
        rewards = rlfh.token_rewards(feedback, ids, *self._rewards).tolist()
        return {"reward_score": rewards, "reward_extra_info": logged}

    @classmethod
    def assemble_rm_scores(
        cls, data: "DataProto", scores: Sequence[Sequence[float]]
    ) -> "Tensor":
        """`rm_scores` (B, T) of a batch, 0 on the padding at the right."""
        import torch

        rm_scores = torch.zeros_like(data.batch["responses"], dtype=torch.float32)
        for row, rewards in zip(rm_scores, scores, strict=True):
            row[: len(rewards)] = row.new_tensor(rewards)
        return rm_scores

    async def _feedback(self, *row: str) -> list[Sentence] | None:
        """A response's feedback: all that wait for it are annotated at once."""
        mine = asyncio.get_running_loop().create_future()
        self._waiting.append((row, mine))
        async with self._turn:
            if not mine.done():
                await self._annotate_waiting()
        return mine.result()

    async def _annotate_waiting(self) -> None:
        rows, futures = zip(*self._waiting, strict=True)
        self._waiting = []
        try:
            if self._error:
                raise self._error
            columns = zip(*rows, strict=True)  # ids, questions, responses
            feedback = await asyncio.to_thread(self._annotate, *map(list, columns))
            self._failures.count([None if one is None else 0.0 for one in feedback])
        except Exception as error:
            self._error = error
            for future in futures:
                future.set_exception(error)
        else:
            for future, one in zip(futures, feedback, strict=True):
                future.set_result(one)


def parameters(config: "DictConfig") -> "Rlfh":
    """The kit's parameters in verl's config, checked. Raises ParamError."""
    from omegaconf import OmegaConf

    if config.reward.num_workers != 1:
        raise params.ParamError(
            f"reward.num_workers={config.reward.num_workers}: must be 1, which counts "
            "the failures of the whole run; factkit.judge_concurrency sets its calls"
        )
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
    for name in (name for name, no in refused.items() if no):
        value = getattr(p, name)
        raise params.ParamError(f"{name}={value!r}: train this with notebook 42")


def _tokens(data: "DataProto") -> list[int]:
    """A row's response without its padding."""
    row = data[0].batch
    mask = row["attention_mask"][len(row["prompts"]) :]
    return row["responses"][mask.bool()].tolist()


# The agent loop


class TokenRewardLoop:
    """verl's agent loop of one turn, whose outputs take a reward for each token.

    verl makes one for each response, from its registry of agent loops.
    """

    def __init__(self, **given: Any) -> None:
        from verl.experimental.agent_loop.single_turn_agent_loop import (
            SingleTurnAgentLoop,
        )

        self._loop = SingleTurnAgentLoop(**given)

    async def run(
        self, sampling_params: dict[str, Any], **row: Any
    ) -> "AgentLoopOutput":
        """Sample a response. row: the columns of the data."""
        output = await self._loop.run(sampling_params, **row)
        set_ones = {name: getattr(output, name) for name in output.model_fields_set}
        return _token_output()(**set_ones)


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
                rewards = torch.tensor(self.reward_score, dtype=torch.float32)
                fields["rm_scores"] = rewards
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
    config = verl_config(p, folder, template)
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


def verl_config(p: "Rlfh", folder: Path, template: str | None) -> dict[str, Any]:
    """What differs from verl's own ppo_trainer.yaml, under verl's keys.

    template: every prompt goes through one; None for the tokenizer's own.

    A batch is of prompts there, a step a rollout. The critic is a model of its own, as
    in the paper's public code, so that value_coefficient says nothing. verl whitens
    advantages, and bounds the loss of negative ones once more, which is idle at one
    update a rollout.
    """
    prompts = p.rl_batch_size // p.num_generations  # an update
    updates = p.ppo_epochs * p.minibatches  # a rollout
    sequences = p.micro_batch_size or p.rl_batch_size // p.num_processes
    agent = {
        "default_agent_loop": LOOP,
        "agent_loop_config_path": str(folder / "agent_loop.yaml"),
    }
    return {
        "defaults": ["ppo_trainer", "_self_"],
        "factkit": p.model_dump(),
        "reward": {
            "num_workers": 1,
            "reward_manager": {
                "source": "importlib",
                "name": "RlfhRewardManager",
                "module": {"path": f"pkg://{HERE}"},
            },
        },
        "data": {
            "train_files": str(folder / "train.parquet"),
            "val_files": str(folder / "dev.parquet"),
            "train_batch_size": p.minibatches * prompts,
            "max_prompt_length": p.max_context_length - p.max_completion_length,
            "max_response_length": p.max_completion_length,
            "seed": p.seed,
        },
        "algorithm": {
            "adv_estimator": "gae",
            "gamma": p.gamma,
            "lam": p.gae_lambda,
            "use_kl_in_reward": True,
            "kl_penalty": "kl",  # k1, as `token_objective.less_kl`
            "kl_ctrl": {"type": "fixed", "kl_coef": p.beta},
        },
        "actor_rollout_ref": {
            "model": {"path": p.policy, "custom_chat_template": template},
            "actor": {
                "optim": {"lr": p.rl_learning_rate, "weight_decay": 0.0},
                "ppo_mini_batch_size": prompts,
                "ppo_micro_batch_size_per_gpu": sequences,
                "ppo_epochs": p.ppo_epochs,
                "clip_ratio": p.epsilon,
                "clip_ratio_low": p.epsilon,
                "clip_ratio_high": p.epsilon,
                "loss_agg_mode": "token-mean",
            },
            "ref": {"log_prob_micro_batch_size_per_gpu": sequences},
            "rollout": {
                "name": "vllm",
                "n": p.num_generations,
                "temperature": p.temperature,
                "top_p": p.top_p,
                "tensor_model_parallel_size": p.vllm_tensor_parallel,
                "gpu_memory_utilization": p.vllm_memory,
                "log_prob_micro_batch_size_per_gpu": sequences,
                "agent": agent,
            },
        },
        "critic": {
            "model": {"path": p.policy},
            "optim": {"lr": p.value_learning_rate, "weight_decay": 0.0},
            "cliprange_value": p.value_clip,
            "ppo_micro_batch_size_per_gpu": sequences,
        },
        "trainer": {
            "n_gpus_per_node": p.num_processes,
            "total_training_steps": math.ceil(p.rl_steps / updates),
            "save_freq": math.ceil(p.checkpoint_steps / updates),
            "val_before_train": False,
            "test_freq": -1,
            "project_name": "factkit",
            "experiment_name": f"rlfh-{p.arm}-s{p.seed}",
            "default_local_dir": str(folder / f"{p.arm}-s{p.seed}"),
            "logger": ["console"],
        },
    }
