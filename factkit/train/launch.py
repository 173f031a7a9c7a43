"""What every trainer shares: LoRA, checkpoints to resume from, progress, the curve."""

import csv
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit import assets
from factkit.params import DataParams, SftParams

if TYPE_CHECKING:
    from peft import LoraConfig
    from transformers import PreTrainedModel, Trainer, TrainerCallback


def base_policy(p: DataParams) -> str:
    """Where the untrained policy of `p` is loaded from.

    `tiny-world` is pre-trained on the fact world on first use (a minute or two) and
    kept in the cache folder under a digest of its text and settings.
    """
    if p.policy != "tiny-world":
        return assets.policy_path(p.policy)
    from filelock import FileLock

    from factkit import world
    from factkit.train.pretrain import pretrain

    made = world.build_world(people=p.world_people, seed=p.world_seed)
    settings = {
        "hidden_size": p.pretrain_hidden_size,
        "layers": p.pretrain_layers,
        "steps": p.pretrain_steps,
        "batch_size": p.pretrain_batch_size,
        "learning_rate": p.pretrain_learning_rate,
        "seed": p.world_seed,
    }
    texts = world.pretraining_texts(made, p.world_seed)
    digest = hashlib.sha256(repr((settings, texts)).encode()).hexdigest()[:12]
    folder = assets.cache_dir() / f"tiny-world-{digest}"
    with FileLock(f"{folder}.lock"):
        pretrain(made, world.build_tokenizer(made), folder, **settings)
    return str(folder)


def trainer_arguments(p: SftParams, folder: Path) -> dict[str, Any]:
    """Arguments of TrainingArguments that are the same for every trainer."""
    import torch

    on_gpu = torch.cuda.is_available()
    return {
        "output_dir": str(folder),
        "seed": p.seed,
        "data_seed": p.seed,
        "use_cpu": not on_gpu,
        "bf16": on_gpu and p.dtype == "bfloat16",
        "gradient_checkpointing": on_gpu,
        "report_to": "none",
        "disable_tqdm": True,  # ours is drawn instead
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_steps": p.checkpoint_steps,
        "save_total_limit": 1,
    }


def lora(p: SftParams) -> "LoraConfig | None":
    """LoRA on every linear layer, or None for full parameters (`lora_rank` 0)."""
    if p.lora_rank == 0:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=p.lora_rank,
        lora_alpha=p.lora_alpha,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )


def run_to_end(trainer: "Trainer", label: str) -> None:
    """Train with a progress bar, going on from the last whole checkpoint if any."""
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(_progress_callback(label))
    trainer.train(resume_from_checkpoint=last_checkpoint(Path(trainer.args.output_dir)))


def last_checkpoint(folder: Path) -> str | None:
    """The newest checkpoint that was written to its end, or None.

    The trainer writes trainer_state.json last; a folder without it was cut off.
    """
    steps = [
        int(path.parent.name.removeprefix("checkpoint-"))
        for path in folder.glob("checkpoint-*/trainer_state.json")
    ]
    return str(folder / f"checkpoint-{max(steps)}") if steps else None


def save_whole(model: "PreTrainedModel", tokenizer: Any, folder: Path) -> None:
    """Save model and tokenizer as a folder that appears only when it is complete."""
    import shutil

    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    partial.rename(folder)


def write_curve(log_history: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the logged steps as CSV, a row a step, a column a metric."""
    rows = [row for row in log_history if "loss" in row]
    columns = ["step", *sorted({key for row in rows for key in row} - {"step"})]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as f:
        writer = csv.DictWriter(f, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)


def _progress_callback(label: str) -> "TrainerCallback":
    from transformers import TrainerCallback

    from factkit.runs import progress_bar

    class Progress(TrainerCallback):
        """A bar over optimiser steps that shows the reward or loss of the last one."""

        def on_train_begin(self, args, state, control, **_):
            self.bar = progress_bar(state.max_steps, label, unit="step")
            self.bar.update(state.global_step)

        def on_step_end(self, args, state, control, **_):
            self.bar.update(state.global_step - self.bar.n)

        def on_log(self, args, state, control, logs=None, **_):
            shown = {k: logs[k] for k in ("reward", "loss") if k in (logs or {})}
            self.bar.set_postfix({k: f"{float(v):.3f}" for k, v in shown.items()})

        def on_train_end(self, args, state, control, **_):
            self.bar.close()

    return Progress()
