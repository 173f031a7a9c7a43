"""Parts of every trainer: policy, LoRA, batches, checkpoints, curve."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from factkit.data import assets
from factkit.policy import cpu, models
from factkit.run import files, progress, quiet
from factkit.run.failures import writing
from factkit.run.params.stages import TrainParams
from factkit.train import checkpoints, precision
from factkit.train.launch import RECIPE, is_main_process
from factkit.train.rollouts import settle_engine

if TYPE_CHECKING:
    from peft import LoraConfig
    from transformers import (
        PreTrainedModel,
        PreTrainedTokenizerBase,
        Trainer,
        TrainingArguments,
    )


MOST_LOST = 0.05  # share of rows that may exceed the context


def policy_trainer(
    make: "Callable[..., Trainer]",
    config: "TrainingArguments",
    start: str,
    rows: Sequence[dict[str, Any]],
    p: TrainParams,
    rollouts: bool = False,
) -> "Trainer":
    """TRL's trainer of the policy in `start` on rows, with LoRA if p.lora_rank > 0.

    make: the trainer's class, or a function that adds arguments; p.seed is set before.
    For ZeRO-3, `config` must be made before the model is loaded.
    """
    from datasets import Dataset

    quiet.disable_bars()
    model, tokenizer = load_trainable(start, p, rollouts)
    adapted = hasattr(model, "peft_config")  # by Unsloth
    trainer = make(
        model=model,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(list(rows)),
        peft_config=None if adapted else lora(p.lora_rank, p.lora_alpha),
        args=config,
    )
    reference = getattr(trainer, "ref_model", None)  # TRL loads it itself
    for loaded in (trainer.model, reference) if p.deepspeed else ():
        if loaded is not None:
            precision.exact_rotary(loaded)
    if reference is not None and config.device.type == "cpu":
        cpu.tune(reference)
    if rollouts and p.rollouts != "transformers":
        settle_engine(trainer, p)
    return trainer


def refuse_lost_rows(trainer: "Trainer", rows: Sequence[dict[str, Any]]) -> None:
    """Print how many rows TRL dropped or cut because they exceed the context.

    Raises ValueError if they are more than MOST_LOST of the rows.
    """
    limit, dataset = getattr(trainer.args, "max_length", None), trainer.train_dataset
    lost = len(rows) - len(dataset)
    if limit and "input_ids" in dataset.column_names:  # of SFT, a full row was cut
        lost += sum(len(ids) >= limit for ids in dataset["input_ids"])
    if not lost:
        return
    message = f"max_context_length={limit} drops or cuts {lost} of {len(rows)} rows"
    if lost > MOST_LOST * len(rows):
        raise ValueError(f"{message}: give a longer one, or shorter rows")
    print(message)


def load_trainable(
    path: str, p: TrainParams, rollouts: bool = False
) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase"]:
    """A model to train and its tokenizer; sets the random seed to p.seed.

    Under ZeRO-3, transformers shards the weights while loading if TrainingArguments
    exist by then. Full parameters are kept in float32, as an update of 1e-6 is lost in
    bfloat16; DeepSpeed keeps a float32 copy itself. rollouts: Unsloth also starts its
    vLLM engine, if p.rollouts says so. Raises ValueError if `path` is an adapter.
    """
    import torch
    from transformers import set_seed

    if (Path(path) / "adapter_config.json").exists():
        raise ValueError(f"{path} is an adapter: start from a whole (merged) model")
    set_seed(p.seed)
    if p.lora_backend == "unsloth":
        from unsloth import FastLanguageModel

        loading, adapter = unsloth_arguments(path, p, rollouts)
        model, tokenizer = FastLanguageModel.from_pretrained(**loading)
        tokenizer.padding_side = "left"
        return FastLanguageModel.get_peft_model(model, **adapter), tokenizer
    dtype = "float32" if p.lora_rank == 0 and not p.deepspeed else p.dtype
    if not torch.cuda.is_available():
        return models.load_model(path, dtype), models.load_tokenizer(path)
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        path, dtype=getattr(torch, dtype), **assets.SAFE
    )
    return model, models.load_tokenizer(path)  # the trainer moves it to its GPU


def unsloth_arguments(
    path: str, p: TrainParams, rollouts: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of FastLanguageModel's from_pretrained and get_peft_model.

    The weights are the named model's, not Unsloth's upload of it, in p.dtype, without
    quantisation. With fast_inference, vLLM and the trainer share them.
    """
    import torch

    loading = {
        "model_name": path,
        "dtype": getattr(torch, p.dtype),
        "max_seq_length": p.max_context_length,
        "load_in_4bit": False,
        "use_exact_model_name": True,
        **assets.SAFE,
        "random_state": p.seed,
        "fast_inference": rollouts and p.rollouts == "vllm_colocate",
        "gpu_memory_utilization": p.vllm_memory,
        "max_lora_rank": p.lora_rank,
    }
    attention_layers = ["q_proj", "k_proj", "v_proj", "o_proj"]
    adapter = {
        "r": p.lora_rank,
        "lora_alpha": p.lora_alpha,
        "target_modules": [*attention_layers, "gate_proj", "up_proj", "down_proj"],
        "use_gradient_checkpointing": "unsloth",
        "random_state": p.seed,
    }
    return loading, adapter


def trainer_arguments(p: TrainParams, folder: Path, batch: int) -> dict[str, Any]:
    """TrainingArguments of every trainer. batch: rows per update; for GRPO, also the
    completions generated at a time."""
    import torch

    on_gpu = torch.cuda.is_available()
    rows, passes = p.split_batch(batch)
    return {
        "output_dir": str(folder),
        "seed": p.seed,
        "data_seed": p.seed,
        "use_cpu": not on_gpu and not p.deepspeed,  # DeepSpeed finds its device
        "bf16": on_gpu and p.dtype == "bfloat16",
        "optim": "adamw_torch_fused",  # transformers' default; Unsloth's has 8 bits
        "weight_decay": 0.0,  # transformers' default; Unsloth's is not 0
        "gradient_checkpointing": on_gpu,
        "deepspeed": deepspeed_config(p.deepspeed),
        "ddp_find_unused_parameters": False,
        "report_to": p.report_to,
        "run_name": "/".join(folder.parent.parts[-3:]),  # <profile>/<notebook>/<run>
        "project": "factkit",  # trackio's
        "disable_tqdm": True,  # progress.train draws ours
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_steps": p.checkpoint_steps,
        "save_total_limit": 2,  # in case the newest is cut off
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": passes,
    }


def deepspeed_config(kind: str) -> dict[str, Any] | None:
    """DeepSpeed's configuration; the trainer fills in "auto".

    kind: zero3 shards weights, gradients and optimizer over the processes (TruthRL App.
    C); zero3_offload keeps the shards in the host's memory; "" returns None.
    """
    if not kind:
        return None
    zero: dict[str, Any] = {
        "stage": 3,
        "overlap_comm": True,
        "stage3_gather_16bit_weights_on_model_save": True,
    }
    if kind == "zero3_offload":
        host = {"device": "cpu", "pin_memory": True}
        zero |= {"offload_optimizer": host, "offload_param": host}
    filled_in = (
        "gradient_accumulation_steps",
        "gradient_clipping",
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
    )
    bf16 = {"enabled": "auto"}
    return dict.fromkeys(filled_in, "auto") | {"bf16": bf16, "zero_optimization": zero}


def lora(rank: int, alpha: int, task: str = "CAUSAL_LM") -> "LoraConfig | None":
    """LoRA on all linear layers, None for full parameters (rank 0). task: PEFT's name;
    SEQ_CLS also trains the whole head."""
    if rank == 0:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=rank, lora_alpha=alpha, target_modules="all-linear", task_type=task
    )


def train_and_keep(
    trainer: "Trainer",
    algorithm: str,
    folder: Path,
    merge: bool,
    model: str = "model",
    curve: str = "metrics.csv",
) -> Path:
    """Train to the end from the newest undamaged checkpoint, write folder/curve and
    folder/model, and delete the checkpoints; returns the model's folder.

    algorithm: label of the progress bar. merge: merge a LoRA adapter into its base.
    """
    if trainer.args.device.type == "cpu":
        cpu.keep_activations_dtype(trainer.model)
    label = f"{algorithm} {folder.name}" if is_main_process() else ""
    with writing(Path(trainer.args.output_dir)):
        checkpoints.record(trainer)
        progress.train(trainer, label, checkpoints.newest(trainer))
    if is_main_process():
        write_curve(trainer.state.log_history, folder / curve)
        if (logs := Path(trainer.args.output_dir, "runs")).exists():
            shutil.copytree(logs, folder / "tensorboard", dirs_exist_ok=True)
    save_whole(trainer, folder / model, merge)
    shutil.rmtree(trainer.args.output_dir, ignore_errors=True)
    return folder / model


def save_whole(trainer: "Trainer", folder: Path, merge: bool) -> None:
    """Save model and tokenizer as a folder that appears only when it is complete.

    merge: merge a LoRA adapter into its base. All processes call this: ZeRO-3 gathers
    the weights from them, the main one writes.
    """
    partial = folder.with_name(f"{folder.name}.partial")
    if is_main_process():
        shutil.rmtree(partial, ignore_errors=True)
    trainer.accelerator.wait_for_everyone()
    try:
        with writing(folder):
            trainer.save_model(str(partial))
            if is_main_process():
                (partial / "training_args.bin").unlink(missing_ok=True)  # a pickle
                if merge and (partial / "adapter_config.json").exists():
                    merge_adapter(
                        partial, str(trainer.model.dtype).removeprefix("torch.")
                    )
                trainer.processing_class.save_pretrained(partial)
                if (recipe := folder.parent / RECIPE).exists():
                    shutil.copy(recipe, partial)
                files.rename_whole(partial, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    trainer.accelerator.wait_for_everyone()


def merge_adapter(folder: Path, dtype: str) -> None:
    """Replace the adapter in `folder` by its base with the adapter merged in.

    In bfloat16 a part of ΔW is lost to rounding: 18 % of that of TruthRL's SFT at
    `laptop`, whose truthfulness is the same within chance (34.7 % of 300 dev questions
    merged, 32.0 % with the adapter beside its base).
    """
    from peft import PeftConfig, PeftModel
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
    from transformers.integrations.deepspeed import unset_hf_deepspeed_config

    unset_hf_deepspeed_config()  # this process alone loads the whole model
    adapter = PeftConfig.from_pretrained(folder)
    name = adapter.base_model_name_or_path
    if adapter.task_type == "SEQ_CLS":
        base = AutoModelForSequenceClassification.from_pretrained(
            name, num_labels=1, dtype=dtype, **assets.SAFE
        )
    else:
        base = AutoModelForCausalLM.from_pretrained(name, dtype=dtype, **assets.SAFE)
    model = PeftModel.from_pretrained(base, folder, use_safetensors=True)
    merged = model.merge_and_unload()
    shutil.rmtree(folder)
    merged.save_pretrained(folder)


def write_curve(log_history: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the logged steps as CSV, one row per step and one column per metric."""
    rows = [row for row in log_history if "loss" in row]
    columns = ["step", *sorted({key for row in rows for key in row} - {"step"})]
    table = pd.DataFrame(rows, columns=columns, dtype=object)
    table.to_csv(path, index=False, lineterminator="\r\n")
