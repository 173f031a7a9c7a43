"""Supervised fine-tuning with TRL, merged into a model of its own."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from factkit import models
from factkit.params import SftParams
from factkit.train import launch


def sft(base: str, rows: Sequence[dict[str, str]], folder: Path, p: SftParams) -> Path:
    """Fine-tune `base` on rows of `prompt` and `completion`; returns its folder.

    Loss on the completion alone, cosine schedule with warm-up (TruthRL App. C). LoRA
    is merged, so that RL can put an adapter of its own on the result. `folder/model` is
    complete or absent; the curve is in folder/metrics.csv. Skipped if complete.
    """
    if (folder / "model").exists():
        return folder / "model"
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    model, tokenizer = models.load_policy(base, p.dtype)
    trainer = SFTTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(list(rows)),
        peft_config=launch.lora(p),
        args=SFTConfig(
            **launch.trainer_arguments(p, folder / "checkpoint"),
            num_train_epochs=p.sft_epochs,
            per_device_train_batch_size=p.sft_batch_size,
            learning_rate=p.sft_learning_rate,
            lr_scheduler_type="cosine",
            warmup_steps=p.sft_warmup_ratio,  # below 1: a share of the steps
            completion_only_loss=True,
            loss_type="nll",
        ),
    )
    launch.run_to_end(trainer, f"SFT {folder.name}")
    launch.write_curve(trainer.state.log_history, folder / "metrics.csv")
    trained = trainer.model
    if p.lora_rank:
        trained = trained.merge_and_unload()
    launch.save_whole(trained, tokenizer, folder / "model")
    shutil.rmtree(folder / "checkpoint")
    return folder / "model"
