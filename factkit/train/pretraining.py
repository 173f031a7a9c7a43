"""Pre-training of a small Llama on texts, for the policies of profile `tiny`."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from factkit.data import assets
from factkit.run import progress, quiet
from factkit.run.params.stages import PolicyParams
from factkit.train import launch

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

ROW_TOKENS = 128
ANSWER = re.compile(r"(?<=Answer: )[^\n]*\n?")
# the parts of a claim's text that the policy is given: to the end of a line, or to its
# own first tag
GIVEN = re.compile(
    r"^(?:(?:Claim:|Documents:|\[\[)[^\n<]*|</?information>)\n?", re.MULTILINE
)
COMPARED = re.compile(r"(?:^Compare:|\.) \w+ \w+")  # two words, before their verdict


def pretrain(
    p: PolicyParams,
    texts: Sequence[str],
    tokenizer: "PreTrainedTokenizerFast",
    row_tokens: int = ROW_TOKENS,
) -> str:
    """The folder of a Llama that is trained on the texts, in rows of `row_tokens`.

    It is stored with its tokenizer in the cache folder, under a digest of texts, words
    and settings. The same seed, machine and number of threads give the same weights.
    """
    settings = {
        "hidden_size": p.pretrain_hidden_size,
        "layers": p.pretrain_layers,
        "steps": p.pretrain_steps,
        "batch_size": p.pretrain_batch_size,
        "learning_rate": p.pretrain_learning_rate,
        "seed": p.world_seed,
    }
    if row_tokens != ROW_TOKENS:
        settings["row_tokens"] = row_tokens
    vocabulary = sorted(tokenizer.get_vocab().items())
    folder = assets.policy_cache_folder("tiny-world", (settings, texts, vocabulary))

    def fill(partial: Path) -> None:
        rows = pack(texts, tokenizer, row_tokens)
        with launch.enable_gradients():
            _train(p, rows, tokenizer, partial)

    return assets.fill_once(folder, fill)


def _train(
    p: PolicyParams,
    rows: list[dict[str, list[int]]],
    tokenizer: "PreTrainedTokenizerFast",
    folder: Path,
) -> None:
    """Train on the rows and save in the folder: peak `p.pretrain_learning_rate`, 5 %
    warm-up, cosine to zero."""
    from datasets import Dataset
    from transformers import Trainer, TrainingArguments, set_seed

    quiet.disable_bars()
    set_seed(p.world_seed)
    sizes = {"hidden_size": p.pretrain_hidden_size, "layers": p.pretrain_layers}
    model = build_policy(tokenizer, **sizes)
    model.config.use_cache = False  # with a cache, packed texts would see each other
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=p.pretrain_steps,
        per_device_train_batch_size=p.pretrain_batch_size,
        learning_rate=p.pretrain_learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=0.05,  # below 1: a share of the steps
        weight_decay=0.0,  # rare facts are not to fade
        adam_beta2=0.99,
        use_cpu=True,
        bf16=False,
        seed=p.world_seed,
        logging_steps=50,
        save_strategy="no",
        report_to="none",
        dataloader_pin_memory=False,
        disable_tqdm=True,  # progress.train draws ours
    )
    data = Dataset.from_list(rows)
    trainer = Trainer(model=model, args=arguments, train_dataset=data)
    progress.train(trainer, "pre-training")
    model.config.use_cache = True
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def pack(
    texts: Sequence[str], tokenizer: "PreTrainedTokenizerFast", length: int = ROW_TOKENS
) -> list[dict[str, list[int]]]:
    """Pack texts, each with the end token, into rows with `input_ids`, `position_ids`
    and `labels` (each of `length`), padded at the end.

    Positions start at 0 in each text, so that transformers keeps the texts of a row
    apart in attention: without that, a tiny policy learns hardly a fact in the same
    time. Raises ValueError if a text is longer than a row.
    """
    rows: list[dict[str, list[int]]] = []
    room = 0
    encoded = tokenizer(texts, return_offsets_mapping=True)
    spans = encoded["offset_mapping"]
    for text, ids, span in zip(texts, encoded["input_ids"], spans, strict=True):
        ids = [*ids, tokenizer.eos_token_id]
        labels = [-100, *ids[1:]]  # nothing predicts the first word
        read_spans = _given(text)
        for i, (start, _) in enumerate(span):
            if any(first <= start < end for first, end in read_spans):
                labels[i] = -100
        if len(ids) > length:
            raise ValueError(f"a text of {len(ids)} tokens: rows have {length}")
        if len(ids) > room:
            rows.append({"input_ids": [], "position_ids": [], "labels": []})
            room = length
        rows[-1]["input_ids"] += ids
        rows[-1]["position_ids"] += range(len(ids))
        rows[-1]["labels"] += labels
        room -= len(ids)
    fill = {"input_ids": tokenizer.pad_token_id, "position_ids": 0, "labels": -100}
    for row in rows:
        missing = length - len(row["input_ids"])
        for name, value in fill.items():
            row[name] += [value] * missing
    return rows


def build_policy(
    tokenizer: "PreTrainedTokenizerFast", *, hidden_size: int, layers: int
) -> "LlamaForCausalLM":
    """An untrained Llama: heads of 32, tied embeddings, 256 positions.

    128 × 4 layers with 700 words has 0.88M parameters.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=hidden_size * 8 // 3,
        num_hidden_layers=layers,
        num_attention_heads=hidden_size // 32,
        num_key_value_heads=hidden_size // 32,
        max_position_embeddings=256,
        initializer_range=0.06,  # with 0.02, half the facts in the same steps
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def _given(text: str) -> list[tuple[int, int]]:
    """The spans of a text that are read and not predicted."""
    if text.startswith("Claim:"):
        return [m.span() for m in GIVEN.finditer(text)]
    if text.startswith("Compare:"):
        return [m.span() for m in COMPARED.finditer(text)]
    if not text.startswith("References:"):
        return []
    ends = [0, *(i for m in ANSWER.finditer(text) for i in m.span()), len(text)]
    return list(zip(ends[::2], ends[1::2], strict=True))
