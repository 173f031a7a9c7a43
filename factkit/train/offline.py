"""Training on fixed rows with TRL: SFT, DPO, the reward model."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit.data import assets
from factkit.policy import models
from factkit.run import quiet
from factkit.run.params.stages import DpoParams, RewardModelParams, SftParams
from factkit.train import launch, setup

if TYPE_CHECKING:
    from trl import DPOConfig, SFTConfig

Rows = Sequence[dict[str, Any]]


@launch.made_once
def sft(base: str, rows: Rows, folder: Path, p: SftParams) -> Path:
    """Fine-tune `base` on rows of `prompt` and `completion`; returns folder/model.

    The loss is the completion's. A LoRA adapter is merged, so that RL can add its own.
    The curve is in folder/metrics.csv.
    """
    from trl import SFTTrainer

    config = sft_config(p, folder / "checkpoint")
    trainer = setup.policy_trainer(SFTTrainer, config, base, rows, p)
    setup.refuse_lost_rows(trainer, rows)
    return setup.train_and_keep(trainer, "SFT", folder, merge=True)


def sft_config(p: SftParams, folder: Path) -> "SFTConfig":
    """TRL's configuration, with the schedule of TruthRL App. C."""
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
    """TRL's default loss in chunks, or the same loss on all logits.

    Under ZeRO-3 the default gathers the head once per chunk, and processes with unequal
    numbers of chunks wait for each other forever (TRL issue 6696). Unsloth has a fused
    loss of its own, which the default would bypass.
    """
    return "nll" if p.deepspeed or p.lora_backend == "unsloth" else "chunked_nll"


@launch.made_once
def dpo(start: str, rows: Rows, folder: Path, p: DpoParams) -> Path:
    """Train `start`, which is also the reference, on rows of `prompt`, `chosen` and
    `rejected`; returns as `sft`."""
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
    start: str, rows: Rows, folder: Path, p: RewardModelParams
) -> Path:
    """Train a reward model from `start` on rows of `prompt`, `chosen` and `rejected`;
    returns folder/reward_model.

    The loss is Bradley–Terry's, −log σ(r(x, y_w) − r(x, y_l)). Trains all parameters,
    or with p.reward_lora_rank > 0 the head and an adapter, which is merged, in float32.
    The curve is in folder/reward_model.csv.
    """
    import torch
    from datasets import Dataset
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from trl import RewardConfig, RewardTrainer

    quiet.disable_bars()
    config = RewardConfig(  # before the model, for ZeRO-3
        **setup.trainer_arguments(p, folder / "reward_checkpoint", p.reward_batch_size),
        num_train_epochs=p.reward_epochs,
        learning_rate=p.reward_learning_rate,
        warmup_steps=p.sft_warmup_ratio,
        max_length=p.max_context_length,
    )
    tokenizer = AutoTokenizer.from_pretrained(start, padding_side="right")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = AutoModelForSequenceClassification.from_pretrained(
        start, num_labels=1, dtype=torch.float32, **assets.SAFE
    )
    model.config.pad_token_id = tokenizer.pad_token_id
    trainer = RewardTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(list(rows)),
        peft_config=setup.lora(p.reward_lora_rank, p.lora_alpha, "SEQ_CLS"),
        args=config,
    )
    setup.refuse_lost_rows(trainer, rows)
    names = {"model": "reward_model", "curve": "reward_model.csv"}
    return setup.train_and_keep(trainer, "reward model", folder, merge=True, **names)


def load_scorer(
    path: str, dtype: str = "auto"
) -> Callable[[Sequence[object], Sequence[str]], list[float]]:
    """Load the reward model in `path` as a function (prompts, completions) → scores.

    It scores prompt and completion as one text, 8 at a time: with references they are
    long. Each process holds the whole model, on the GPU only while it scores, since
    policy and engine need that memory. ZeRO-3's configuration is unset while it loads:
    ZeRO-3 would shard the model, and runs only what its engine trains.
    """
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from transformers.integrations import deepspeed

    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="right")
    reference = deepspeed._hf_deepspeed_config_weak_ref
    deepspeed.unset_hf_deepspeed_config()
    model = AutoModelForSequenceClassification.from_pretrained(
        path, num_labels=1, dtype=dtype, **assets.SAFE
    )
    if reference is not None and (config := reference()) is not None:
        deepspeed.set_hf_deepspeed_config(config)
    model.config.pad_token_id = tokenizer.pad_token_id
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.eval()

    def score(prompts: Sequence[Any], completions: Sequence[str]) -> list[float]:
        texts = []
        for prompt, completion in zip(prompts, completions, strict=True):
            if isinstance(prompt, str):
                prompt += " "
            else:  # as TRL joined them in training
                (prompt,) = models.apply_chat_template(
                    tokenizer, [prompt[-1]["content"]]
                )
            texts.append(prompt + completion.strip())
        scores: list[float] = []
        model.to(device)
        for start in range(0, len(texts), 8):
            ids = tokenizer(texts[start : start + 8])["input_ids"]
            rows = [{"input_ids": [*i, tokenizer.eos_token_id]} for i in ids]
            batch = tokenizer.pad(rows, return_tensors="pt").to(device)
            with torch.inference_mode():
                scores += model(**batch).logits[:, 0].float().tolist()
        model.to("cpu")
        return scores

    return score
