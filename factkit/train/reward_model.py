"""The reward model of RLHF and RLKF, with TRL's RewardTrainer."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit import models
from factkit.params.stages import RewardModelParams
from factkit.train import launch, setup

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


@launch.held_to
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
    model = AutoModelForSequenceClassification.from_pretrained(
        start, num_labels=1, dtype=torch.float32, **models.SAFE
    )
    model.config.pad_token_id = tokenizer.pad_token_id
    trainer = RewardTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(list(rows)),
        args=config,
    )
    files = {"model": "reward_model", "curve": "reward_model.csv"}
    return setup.train_and_keep(
        trainer, tokenizer, "reward model", folder, merge=False, **files
    )


def load_scorer(path: str) -> Callable[[Sequence[object], Sequence[str]], list[float]]:
    """The reward model in `path` as a function of prompts and completions → scores.

    Texts are scored as the concatenation of prompt and completion, 64 at a time.
    """
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="right")
    model = AutoModelForSequenceClassification.from_pretrained(
        path, num_labels=1, **models.SAFE
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device).eval()

    def score(prompts: Sequence[object], completions: Sequence[str]) -> list[float]:
        texts = []
        for prompt, completion in zip(prompts, completions, strict=True):
            if not isinstance(prompt, str):
                (prompt,) = models.as_chat(tokenizer, [prompt[-1]["content"]])
            texts.append(f"{prompt} {completion.strip()}")
        scores: list[float] = []
        for start in range(0, len(texts), 64):
            ids = tokenizer(texts[start : start + 64])["input_ids"]
            rows = [{"input_ids": [*i, tokenizer.eos_token_id]} for i in ids]
            batch = tokenizer.pad(rows, return_tensors="pt").to(device)
            with torch.inference_mode():
                scores += model(**batch).logits[:, 0].float().tolist()
        return scores

    return score
