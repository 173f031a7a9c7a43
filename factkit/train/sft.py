"""Supervised fine-tuning with TRL, merged into a model of its own."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit.params.stages import SftParams
from factkit.train import launch, setup

if TYPE_CHECKING:
    from trl import SFTConfig


def sft_config(p: SftParams, folder: Path) -> "SFTConfig":
    """TRL's configuration: loss on the completion, cosine, warm-up (TruthRL App. C)."""
    import torch
    from trl import SFTConfig

    return SFTConfig(
        **setup.trainer_arguments(p, folder),
        **setup.batch_arguments(p.sft_batch_size, p),
        num_train_epochs=p.sft_epochs,
        learning_rate=p.sft_learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=p.sft_warmup_ratio,  # below 1: a share of the steps
        max_length=p.max_context_length,  # TRL's default cuts at 1,024 tokens
        completion_only_loss=True,
        # chunked: the same loss, without logits where there is no target
        loss_type="nll" if torch.cuda.is_available() else "chunked_nll",
        train_sampling_strategy="group_by_length",  # rows of an update are padded alike
    )


@launch.held_to
@launch.distributed
def sft(base: str, rows: Sequence[dict[str, Any]], folder: Path, p: SftParams) -> Path:
    """Fine-tune `base` on rows of `prompt` and `completion`; returns its folder.

    LoRA is merged, so that RL can put an adapter of its own on the result.
    `folder/model` is complete or absent; the curve is in folder/metrics.csv. Skipped if
    complete.
    """
    if (folder / "model").exists():
        return folder / "model"
    from datasets import Dataset
    from trl import SFTTrainer

    config = sft_config(p, folder / "checkpoint")  # before the model, for ZeRO-3
    model, tokenizer = setup.load_trainable(base, p)
    trainer = SFTTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(list(rows)),
        peft_config=setup.lora(p, model),
        args=config,
    )
    return setup.train_and_keep(trainer, tokenizer, "SFT", folder, merge=True)
