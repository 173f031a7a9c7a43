"""Training on rows that do not change, with TRL: SFT, DPO, the reward model."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit.data import assets
from factkit.run import quiet
from factkit.run.params.stages import DpoParams, RewardModelParams, SftParams
from factkit.train import launch, setup

if TYPE_CHECKING:
    from trl import DPOConfig, RewardConfig, SFTConfig


@launch.made_once
def sft(base: str, rows: Sequence[dict[str, Any]], folder: Path, p: SftParams) -> Path:
    """Fine-tune `base` on rows of `prompt` and `completion`; returns folder/model.

    LoRA is merged, so that RL can put an adapter of its own on the result. The curve is
    in folder/metrics.csv.
    """
    from trl import SFTTrainer

    config = sft_config(p, folder / "checkpoint")
    trainer = setup.policy_trainer(SFTTrainer, config, base, rows, p)
    setup.refuse_lost_rows(trainer, rows)
    return setup.train_and_keep(trainer, "SFT", folder, merge=True)


def sft_config(p: SftParams, folder: Path) -> "SFTConfig":
    """TRL's configuration: loss on the completion, cosine, warm-up (TruthRL App. C)."""
    from trl import SFTConfig

    return SFTConfig(
        **setup.trainer_arguments(p, folder, p.sft_batch_size),
        num_train_epochs=p.sft_epochs,
        learning_rate=p.sft_learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=p.sft_warmup_ratio,  # below 1: a share of the steps
        max_length=p.max_context_length,  # TRL's default cuts at 1,024 tokens
        completion_only_loss=True,
        loss_type=sft_loss(p),
        train_sampling_strategy="group_by_length" if p.sft_by_length else "random",
    )


def sft_loss(p: SftParams) -> str:
    """TRL's default, which makes no logits where there is no target; else the same loss
    on all logits: under ZeRO-3 the default gathers the head once a chunk, and processes
    whose targets fill unequal numbers of chunks wait for each other (TRL 6696); Unsloth
    has a fused loss of its own, which the default would go round."""
    return "nll" if p.deepspeed or p.lora_backend == "unsloth" else "chunked_nll"


@launch.made_once
def dpo(start: str, rows: Sequence[dict[str, Any]], folder: Path, p: DpoParams) -> Path:
    """Train `start`, which is also the reference, on rows of `prompt`, `chosen` and
    `rejected`; as `sft`. The result can be the start of another iteration."""
    from trl import DPOTrainer

    config = dpo_config(p, folder / "checkpoint")
    trainer = setup.policy_trainer(DPOTrainer, config, start, rows, p)
    setup.refuse_lost_rows(trainer, rows)
    return setup.train_and_keep(trainer, "DPO", folder, merge=True)


def dpo_config(p: DpoParams, folder: Path) -> "DPOConfig":
    """TRL's configuration: L = −log σ(β (log π/π_ref(y_w) − log π/π_ref(y_l)))
    (TruthRL App. C)."""
    from trl import DPOConfig

    return DPOConfig(
        **setup.trainer_arguments(p, folder, p.dpo_batch_size),
        num_train_epochs=p.dpo_epochs,
        learning_rate=p.dpo_learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=p.sft_warmup_ratio,
        beta=p.dpo_beta,
        loss_type=["sigmoid"],
        max_length=p.max_context_length,
    )


@functools.partial(launch.made_once, model="reward_model")
def train_reward_model(
    start: str, rows: Sequence[dict[str, Any]], folder: Path, p: RewardModelParams
) -> Path:
    """Train a scorer on the trunk of `start` from rows of `prompt`, `chosen` and
    `rejected`; returns folder/reward_model.

    All parameters are trained, or with p.reward_lora_rank an adapter, which is merged,
    and the head; kept in float32 either way, for the head's updates. The curve is in
    folder/reward_model.csv, with the pairs' accuracy by step.
    """
    import torch
    from datasets import Dataset
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from trl import RewardTrainer

    quiet.bars()
    config = reward_config(p, folder / "reward_checkpoint")  # before the model
    tokenizer = AutoTokenizer.from_pretrained(start, padding_side="right")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    adapter = p.model_copy(update={"lora_rank": p.reward_lora_rank})
    model = AutoModelForSequenceClassification.from_pretrained(
        start, num_labels=1, dtype=torch.float32, **assets.SAFE
    )
    model.config.pad_token_id = tokenizer.pad_token_id
    trainer = RewardTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(list(rows)),
        peft_config=setup.lora(adapter, task="SEQ_CLS"),
        args=config,
    )
    setup.refuse_lost_rows(trainer, rows)
    names = {"model": "reward_model", "curve": "reward_model.csv"}
    return setup.train_and_keep(trainer, "reward model", folder, merge=True, **names)


def reward_config(p: RewardModelParams, folder: Path) -> "RewardConfig":
    """TRL's configuration: the Bradley–Terry loss −log σ(r(x, y_w) − r(x, y_l))."""
    from trl import RewardConfig

    return RewardConfig(
        **setup.trainer_arguments(p, folder, p.reward_batch_size),
        num_train_epochs=p.reward_epochs,
        learning_rate=p.reward_learning_rate,
        warmup_steps=p.sft_warmup_ratio,
        max_length=p.max_context_length,
    )
