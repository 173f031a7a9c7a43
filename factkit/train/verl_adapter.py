"""verl 0.9.1 for the papers' RL on a cluster, on Ray, beyond TRL's one machine.

What verl loads by name, and a writer of what it reads; params/README.md has the set-up
and the commands. Rows, rewards and parameters are those of the paper's training
notebook: `make_job` of papers/<paper>/verl_adapter.py collects them. A response is
scored as soon as it is sampled, by the paper's reward with TRL's signature.

verl has no reward of None, but its synchronous trainer (the default) leaves a response
that raised out of the batch. So where the judge failed, `NoFeedback` is raised: the
response is in no loss and no group's mean. (A group's only one left has, in verl, its
reward for advantage.) Once more than 5 % of the run's responses have failed, and on any
other error, all later ones raise, too, and verl ends the run at the first rollout that
has none left. The asynchronous trainers would sample anew for ever.
"""

import asyncio
import contextlib
import functools
import math
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import yaml

from factkit.run import folders, params
from factkit.run.arms import get_paper
from factkit.run.files import write_atomically
from factkit.run.params.fields import POLICIES
from factkit.run.params.stages import RlParams
from factkit.train import launch

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from transformers import PreTrainedTokenizerBase
    from verl import DataProto

SINGLE = "single_turn_agent"  # verl's own agent loop
# chat templates of plain text; the second is right where a tokenizer of SentencePiece's
# kind puts a space before a text, but none after a BOS token
PLAIN = (
    "{{ bos_token }}{{ messages[0].content }}",
    "{{ bos_token }} {{ messages[0].content }}",
    "{{ messages[0].content }}",
)
UNBOUND = 1.0e9  # above e^20, at which verl cuts a ratio: the dual clip is idle
TOKENS = 16_384  # of a micro-batch on a GPU, unless one sequence may have more


@dataclass(frozen=True)
class Job:
    """What a paper hands to verl: the result of `make_job` in its module verl_adapter.

    p: a paper's, with what its arm changes. start, rows, make_reward: `grpo.grpo`'s.
    loop: verl's agent loop, if not its own of one turn and number. changes: to verl's
    config, dotted key → value.
    """

    p: Any
    start: str
    rows: Sequence[dict[str, Any]]
    make_reward: Callable[..., Callable[..., Sequence]]
    loop: type | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)


class NoFeedback(RuntimeError):
    """The judge failed on a response; verl leaves it out of the batch."""


class RewardManager:
    """verl's `RewardManagerBase` for the reward that its config names under `factkit`.

    A row's `extra_info` has the columns that the reward needs; what an agent loop puts
    under `factkit` in its extra fields is added to them.
    """

    def __init__(
        self, config: "DictConfig", tokenizer: "PreTrainedTokenizerBase", **_: object
    ) -> None:
        if (workers := config.reward.num_workers) != 1:  # it counts the run's failures
            raise params.ParamError(f"reward.num_workers={workers}: must be 1")
        from factkit.train.rewards import CheckedReward

        make_reward = pkgutil.resolve_name(config.factkit.reward)
        self._reward = CheckedReward(make_reward(read_parameters(config), Path()))
        self._tokenizer = tokenizer
        self._error: Exception | None = None  # after which there are no rewards
        self._turn = asyncio.Lock()
        self._waiting: list[tuple[dict[str, Any], asyncio.Future]] = []

    async def run_single(self, data: "DataProto") -> dict[str, Any]:
        """The reward of a response, or its T tokens'.

        data: one row; prompts, responses and their attention mask, padded or not. All
        responses that wait are judged at once. Raises NoFeedback, and RuntimeError
        after too many of these.
        """
        row, given = data[0].batch, data[0].non_tensor_batch
        mask = row["attention_mask"][len(row["prompts"]) :]
        ids = row["responses"][mask.bool()].tolist()
        response = {
            **given["extra_info"],
            **given.get("tool_extra_fields", {}).get("factkit", {}),
            "prompts": list(given["raw_prompt"]),
            "completions": self._tokenizer.decode(ids, skip_special_tokens=True),
            "completion_ids": ids,
        }
        mine = asyncio.get_running_loop().create_future()
        self._waiting.append((response, mine))
        async with self._turn:
            if not mine.done():
                await self._reward_waiting()
        if (reward := mine.result()) is None:
            raise NoFeedback(f"row {response['index']}: the judge failed on a response")
        return {"reward_score": reward, "reward_extra_info": {}}

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


def read_parameters(config: "DictConfig") -> Any:
    """The kit's parameters in verl's config. Raises ParamError if one is wrong."""
    from omegaconf import OmegaConf

    values = OmegaConf.to_container(config.factkit.parameters, resolve=True)
    return params.validate(config.factkit.paper, values, "verl's config, factkit")


# What verl reads


def write_job(
    paper: str, p: Any, folder: str | Path, changes: Sequence[str] = ()
) -> Path:
    """Write verl's data, agent loops and config for `p.arm`: train.parquet,
    agent_loop.yaml and <paper>.yaml. Returns their folder.

    The config's `factkit.recipe` says what makes the policy. changes: further overrides
    that verl gets. Raises ParamError on what verl can't follow, and if the folder has
    checkpoints of another recipe, which verl would continue; DataError without the
    paper's data.
    """
    from transformers import AutoTokenizer

    folder = Path(folder).resolve()
    job = make_job(p)
    rows = make_rows(job.rows, paper)
    template = None
    if not p.chat:
        tokenizer = AutoTokenizer.from_pretrained(job.start)
        template = plain_template([row["prompt"] for row in rows], tokenizer)
    reward = f"{job.make_reward.__module__}:{job.make_reward.__name__}"
    recipe = _recipe(job, changes)
    if (folder / "checkpoints").exists():
        made = yaml.safe_load((folder / f"{paper}.yaml").read_text("utf-8"))
        launch.require_same(folder, made["factkit"]["recipe"], recipe)
    kit = {"paper": paper, "reward": reward, "recipe": recipe}
    kit["parameters"] = job.p.model_dump()
    config = {"defaults": ["ppo_trainer", "_self_"], "factkit": kit}
    config |= _nested(make_overrides(job, paper, folder, template))
    loop = job.loop and f"{job.loop.__module__}.{job.loop.__name__}"
    loops = [{"name": paper, "_target_": loop}] if loop else []
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_parquet(folder / "train.parquet", index=False)
    for name, content in {"agent_loop": loops, paper: config}.items():
        text = yaml.safe_dump(content, sort_keys=False)
        write_atomically(folder / f"{name}.yaml", text)
    return folder


def make_job(p: Any) -> Job:
    """What verl needs to train `p.arm`, p a paper's parameters. Raises ParamError on
    what verl can't follow, DataError without the paper's data."""
    paper = get_paper(p)
    module: Any = paper.find_module("verl_adapter")
    arm = paper.arms[p.arm]
    refused = {
        "policy": p.policy in POLICIES,  # the kit makes such a policy as it goes
        "arm": not (module and arm.by_rl and arm.verl and not arm.learned_reward),
        "lora_rank": p.lora_rank,  # verl's adapters are not set up here
        "cold_start": getattr(p, "cold_start", False),
    }
    for name in filter(refused.get, refused):
        fix = f"train it with notebook {paper.notebooks['train'][:2]}"
        raise params.ParamError(f"{name}={getattr(p, name)!r}: not by verl; {fix}")
    return module.make_job(p)


def _recipe(job: Job, changes: Sequence[str]) -> dict[str, str]:
    """The arguments of the kit's own trainer, what the arm depends on, overrides."""
    given = {"start": job.start, "rows": job.rows, "make_reward": job.make_reward}
    recipe = {k: launch.argument_identity(v) for k, v in given.items()}
    reads = get_paper(job.p).arms[job.p.arm].reads
    keys = reads.model_fields.keys() - folders.NON_IDENTITY_KEYS
    recipe |= {key: str(getattr(job.p, key)) for key in sorted(keys)}
    return recipe | {"verl_overrides": " ".join(changes)}


def make_rows(rows: Sequence[Mapping[str, Any]], paper: str) -> list[dict[str, Any]]:
    """Rows of verl's `RLHFDataset` from TRL's: the prompt as messages, and the columns
    that the reward needs."""
    made = []
    for index, row in enumerate(rows):
        info = {"index": index, **row}
        if isinstance(prompt := info.pop("prompt"), str):
            prompt = [{"role": "user", "content": prompt}]
        made.append({"data_source": paper, "prompt": prompt, "extra_info": info})
    return made


def plain_template(
    prompts: Sequence[list[dict[str, str]]], tokenizer: "PreTrainedTokenizerBase"
) -> str:
    """The chat template that gives prompts of one message the tokens of plain text, as
    the kit's trainer has them. Raises ParamError if there is none."""
    plain = tokenizer([messages[0]["content"] for messages in prompts])["input_ids"]
    for template in PLAIN:
        put = tokenizer.apply_chat_template(prompts, chat_template=template)
        if put["input_ids"] == plain:
            return template
    raise params.ParamError("chat=False: verl can't put plain text to this tokenizer")


def make_overrides(
    job: Job, paper: str, folder: Path, template: str | None
) -> dict[str, Any]:
    """The changes to verl's own ppo_trainer.yaml: dotted key → value.

    The objective is that of `grpo.grpo_config`. verl counts a batch in prompts and a
    step in rollouts, and shards the policy by FSDP. Micro-batches are packed by tokens,
    so that they need not divide a GPU's share; verl's losses are means over the whole
    update, however it is packed. template: the chat template; None for the tokenizer's.
    """
    p, by_std = job.p, job.p.loss == "grpo"
    prompts = p.rl_batch_size // p.num_generations  # an update
    steps = count_rollouts(p, p.rl_steps)
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    return {
        "reward.num_workers": 1,
        "reward.reward_manager.source": "importlib",
        "reward.reward_manager.name": RewardManager.__name__,
        "reward.reward_manager.module.path": f"pkg://{__name__}",
        "data.train_files": str(folder / "train.parquet"),
        "data.val_files": str(folder / "train.parquet"),  # it wants some, and asks none
        "data.train_batch_size": p.minibatches * prompts,
        "data.max_prompt_length": p.max_context_length - p.max_completion_length,
        "data.max_response_length": p.max_completion_length,
        "data.seed": p.seed,
        "algorithm.adv_estimator": "grpo",
        "algorithm.norm_adv_by_std_in_grpo": by_std,
        "actor_rollout_ref.model.path": job.start,
        "actor_rollout_ref.model.custom_chat_template": template,
        f"{actor}.optim.lr": p.rl_learning_rate,
        f"{actor}.optim.lr_warmup_steps_ratio": p.rl_warmup_ratio,
        f"{actor}.optim.weight_decay": 0.0,
        f"{actor}.ppo_mini_batch_size": prompts,
        f"{actor}.use_dynamic_bsz": True,  # of the reference and the critic, too
        f"{actor}.ppo_max_token_len_per_gpu": max(TOKENS, p.max_context_length),
        f"{actor}.clip_ratio": p.epsilon,
        f"{actor}.clip_ratio_low": p.epsilon,
        f"{actor}.clip_ratio_high": p.epsilon,
        f"{actor}.clip_ratio_c": UNBOUND,
        f"{actor}.loss_agg_mode": f"seq-mean-token-{'mean' if by_std else 'sum-norm'}",
        f"{actor}.loss_scale_factor": None if by_std else p.max_completion_length,
        f"{actor}.use_kl_loss": p.beta > 0,
        f"{actor}.kl_loss_coef": p.beta,
        f"{actor}.kl_loss_type": "low_var_kl",  # k3
        f"{rollout}.name": "vllm",
        f"{rollout}.n": p.num_generations,
        f"{rollout}.temperature": p.temperature,
        f"{rollout}.top_p": p.top_p,
        f"{rollout}.max_model_len": p.max_context_length,
        f"{rollout}.tensor_model_parallel_size": p.vllm_tensor_parallel,
        f"{rollout}.gpu_memory_utilization": p.vllm_memory,
        f"{rollout}.agent.default_agent_loop": paper if job.loop else SINGLE,
        f"{rollout}.agent.agent_loop_config_path": str(folder / "agent_loop.yaml"),
        "trainer.n_gpus_per_node": p.num_processes,
        "trainer.total_epochs": steps,  # at most: an epoch is a rollout at least
        "trainer.total_training_steps": steps,
        "trainer.save_freq": count_rollouts(p, p.checkpoint_steps),
        "trainer.val_before_train": False,
        "trainer.default_local_dir": str(folder / "checkpoints"),
        "trainer.logger": ["console"],
        **job.changes,
    }


def count_rollouts(p: RlParams, updates: int) -> int:
    """The number of verl's steps (rollouts) for so many updates."""
    return math.ceil(updates / (p.minibatches * getattr(p, "ppo_epochs", 1)))


def check_config(folder: Path, paper: str, changes: Sequence[str]) -> None:
    """Apply `check_sizes` to the written config, composed with the overrides as verl
    does. verl itself refuses arguments that are no overrides."""
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf

    own = [c for c in changes if "=" in c and not c.startswith("-")]  # no flags
    own.append("hydra.searchpath=[pkg://verl.trainer.config]")
    with (
        contextlib.suppress(HydraException),
        initialize_config_dir(str(folder), version_base=None),
    ):
        check_sizes(functools.partial(OmegaConf.select, compose(paper, own)))


def check_sizes(get: Callable[[str], Any]) -> None:
    """Raise ParamError, with a fix, on sizes that verl 0.9.1 can't split among GPUs.

    At most of them verl would stop only after the first rollout.

    get: dotted key of verl's config → its value. Every GPU takes a whole share of an
    update (TrainingWorker.train_mini_batch), rollouts are whole updates, and fixed
    micro-batches, if set, divide a share (prepare_micro_batches).
    """
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    prompts, n = get("data.train_batch_size"), get(f"{rollout}.n")
    update = get(f"{actor}.ppo_mini_batch_size")
    critics = get("critic.ppo_mini_batch_size") or update
    if rest := -prompts % math.lcm(update, critics):
        fix = f"must be whole updates of {update}; take {prompts + rest}"
        raise params.ParamError(f"data.train_batch_size={prompts}: {fix}")
    each, micro = get("trainer.n_gpus_per_node"), "log_prob_micro_batch_size_per_gpu"
    gpus = (get("trainer.nnodes") or 1) * each
    totals = {
        f"{rollout}.tensor_model_parallel_size": each,
        f"{actor}.ppo_micro_batch_size_per_gpu": update * n // gpus,
        f"{rollout}.{micro}": prompts * n // gpus,
        f"actor_rollout_ref.ref.{micro}": prompts * n // gpus,
    }
    shared = (
        "trainer.nnodes × trainer.n_gpus_per_node",
        gpus,
        math.gcd(update, critics) * n,
    )
    splits = [shared] + [(key, get(key), total) for key, total in totals.items()]
    for key, size, total in splits:
        if size and total % size:
            most = max(d for d in range(1, size) if total % d == 0)
            raise params.ParamError(f"{key}={size}: must divide {total}; take {most}")


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    """Dotted keys as mappings in mappings."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *parents, last = key.split(".")
        section = nested
        for name in parents:
            section = section.setdefault(name, {})
        section[last] = value
    return nested
