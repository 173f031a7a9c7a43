"""The reward model of RLHF and RLKF, with TRL's RewardTrainer."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit import weights
from factkit.params.stages import RewardModelParams
from factkit.train import launch, recipe, setup

if TYPE_CHECKING:
    from trl import RewardConfig


def reward_config(p: RewardModelParams, folder: Path) -> "RewardConfig":
    """TRL's configuration: the Bradley–Terry loss −log σ(r(x, y_w) − r(x, y_l))."""
    from trl import RewardConfig

    return RewardConfig(
        **setup.trainer_arguments(p, folder),
        **setup.batch_arguments(p.reward_batch_size, p),
        num_train_epochs=p.reward_epochs,
        learning_rate=p.reward_learning_rate,
        warmup_steps=p.sft_warmup_ratio,  # below 1: a share of the steps
        max_length=p.max_context_length,
    )


@recipe.held_to
@launch.distributed
def train_reward_model(
    start: str, rows: Sequence[dict[str, Any]], folder: Path, p: RewardModelParams
) -> Path:
    """Train a scorer on the trunk of `start`, whole, from rows of `prompt`, `chosen`
    and `rejected`; returns folder/reward_model, complete or absent; skipped if there.

    The curve is in folder/reward_model.csv, with the pairs' accuracy by step.
    """
    if (folder / "reward_model").exists():
        return folder / "reward_model"
    import torch
    from datasets import Dataset
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from trl import RewardTrainer

    config = reward_config(p, folder / "reward_checkpoint")  # before the model
    tokenizer = AutoTokenizer.from_pretrained(start, padding_side="right")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    with weights.loading(start):
        model = AutoModelForSequenceClassification.from_pretrained(
            start, num_labels=1, dtype=torch.float32, **weights.SAFE
        )
    model.config.pad_token_id = tokenizer.pad_token_id
    trainer = RewardTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(list(rows)),
        args=config,
    )
    label, curve = f"reward model {folder.name}", folder / "reward_model.csv"
    model_folder = folder / "reward_model"
    return setup.train_and_keep(
        trainer, tokenizer, label, model_folder, curve, merge=False
    )
