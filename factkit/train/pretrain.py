"""Pre-train the policy of profile `tiny` on the text of the fact world.

Ours: the papers start from released instruct models. What this one knows is known by
construction (`factkit.world`), and it has never seen an abstention.
"""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from factkit.world import World, pretraining_texts

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast


def pretrain(
    world: World,
    tokenizer: "PreTrainedTokenizerFast",
    folder: Path,
    *,
    hidden_size: int,
    layers: int,
    steps: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
) -> Path:
    """Train a Llama on the world's text and save it with its tokenizer; the folder.

    `steps` updates of `batch_size` texts, in batches of texts of like length; peak
    `learning_rate`, 5 % warm-up, cosine to zero. The same seed, thread count and machine
    give the same weights bit for bit. A folder that exists is complete and is kept.
    """
    from transformers import (
        DataCollatorForLanguageModeling,
        Trainer,
        TrainingArguments,
        set_seed,
    )

    folder = Path(folder)
    if (folder / "config.json").exists():
        return folder
    set_seed(seed)
    model = build_policy(tokenizer, hidden_size=hidden_size, layers=layers)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    arguments = TrainingArguments(
        output_dir=str(temporary),
        max_steps=steps,
        per_device_train_batch_size=batch_size,
        learning_rate=learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=0.05,  # below 1: a share of the steps
        weight_decay=0.0,  # rare facts are not to fade
        adam_beta2=0.99,
        train_sampling_strategy="group_by_length",
        length_column_name="length",
        use_cpu=True,
        bf16=False,
        seed=seed,
        logging_steps=50,
        save_strategy="no",
        report_to="none",
        dataloader_pin_memory=False,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=_dataset(pretraining_texts(world, seed), tokenizer),
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )
    trainer.train()
    model.save_pretrained(temporary)
    tokenizer.save_pretrained(temporary)
    temporary.rename(folder)
    return folder


def build_policy(
    tokenizer: "PreTrainedTokenizerFast", *, hidden_size: int, layers: int
) -> "LlamaForCausalLM":
    """An untrained Llama: heads of 32, tied embeddings, 256 positions.

    128 × 4 layers with 700 words has 0.88M parameters.
    Raises ValueError unless 32 divides `hidden_size`.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    if hidden_size % 32:
        raise ValueError(f"hidden_size={hidden_size}: must be a multiple of 32")
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=hidden_size * 8 // 3,
        num_hidden_layers=layers,
        num_attention_heads=hidden_size // 32,
        num_key_value_heads=hidden_size // 32,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def _dataset(texts: list[str], tokenizer: "PreTrainedTokenizerFast") -> "Dataset":
    """Token ids of each text, closed by the end token, and their number."""
    from datasets import Dataset

    ids = [row + [tokenizer.eos_token_id] for row in tokenizer(texts)["input_ids"]]
    return Dataset.from_dict({"input_ids": ids, "length": [len(row) for row in ids]})
