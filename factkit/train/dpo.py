"""DPO with TRL (TruthRL Appendix C), once or in iterations."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit import cpu
from factkit.params.stages import DpoParams
from factkit.train import launch, setup

if TYPE_CHECKING:
    from trl import DPOConfig


def dpo_config(p: DpoParams, folder: Path) -> "DPOConfig":
    """TRL's configuration: L = −log σ(β (log π/π_ref(y_w) − log π/π_ref(y_l)))."""
    from trl import DPOConfig

    return DPOConfig(
        **setup.trainer_arguments(p, folder),
        **setup.batch_arguments(p.dpo_batch_size, p),
        num_train_epochs=p.dpo_epochs,
        learning_rate=p.dpo_learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=p.sft_warmup_ratio,  # below 1: a share of the steps
        beta=p.dpo_beta,
        loss_type=["sigmoid"],
        max_length=p.max_context_length,
    )


@launch.held_to
@launch.distributed
def dpo(start: str, rows: Sequence[dict[str, Any]], folder: Path, p: DpoParams) -> Path:
    """Train `start` on rows of `prompt`, `chosen` and `rejected`; folder/model.

    `start` is also the reference. LoRA is merged, so that the next iteration can start
    from the result. Complete or absent; a killed run goes on; skipped if complete.
    """
    if (folder / "model").exists():
        return folder / "model"
    from datasets import Dataset
    from trl import DPOTrainer

    config = dpo_config(p, folder / "checkpoint")  # before the model, for ZeRO-3
    model, tokenizer = setup.load_trainable(start, p)
    trainer = DPOTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(list(rows)),
        peft_config=setup.lora(p, model),
        args=config,
    )
    if trainer.ref_model is not None:
        cpu.tune(trainer.ref_model)
    return setup.train_and_keep(trainer, tokenizer, "DPO", folder, merge=True)
