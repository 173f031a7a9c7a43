"""Loading language models and sampling from them with transformers."""

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Sampling:
    """How to decode. temperature 0 = greedy; `max_new_tokens` in tokens."""

    max_new_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    batch_size: int = 64


def load_policy(
    path: str, dtype: str = "float32"
) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase"]:
    """A causal language model and its tokenizer, padded on the left, ready to use.

    path: folder or hub name (safetensors only). dtype: "float32" or "bfloat16".
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    keep_freed_memory()
    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
    tokenizer.clean_up_tokenization_spaces = False  # it would strip real spaces
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    base = _adapter_base(path)
    model = AutoModelForCausalLM.from_pretrained(
        base or path, dtype=getattr(torch, dtype), use_safetensors=True
    )
    if base:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, path)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    make_lm_head_input_contiguous(model)
    return model.to(device).eval(), tokenizer


def _adapter_base(path: str) -> str | None:
    """The base model's path if `path` is a folder with a LoRA adapter, else None."""
    config = Path(path) / "adapter_config.json"
    if not config.exists():
        return None
    return json.loads(config.read_text())["base_model_name_or_path"]


def make_lm_head_input_contiguous(model: "PreTrainedModel") -> None:
    """Hand `lm_head` contiguous hidden states.

    `logits_to_keep` slices the hidden states, and a bfloat16 product with a sliced
    tensor takes a slow path on CPUs: a GRPO step of profile laptop took 18 s without
    the copy and 6 s with it.
    """
    model.get_output_embeddings().register_forward_pre_hook(
        lambda module, args: (args[0].contiguous(), *args[1:])
    )


def keep_freed_memory() -> None:
    """Ask glibc to keep large freed blocks instead of returning them to the system.

    The logits of a step, hundreds of MB, are allocated anew each time; mapping and
    unmapping them was about 5 % of a GRPO step of profile laptop (7.8 s against 7.4 s).
    Does nothing where there is no glibc.
    """
    import ctypes

    mmap_max, trim_threshold, top_pad = -4, -1, -2  # malloc.h: M_MMAP_MAX, …
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    mallopt(mmap_max, 0)
    mallopt(trim_threshold, 2**31 - 1)
    mallopt(top_pad, 2**28)


def sample(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    prompts: Sequence[str],
    sampling: Sampling,
    n: int = 1,
    seed: int = 0,
    progress: str = "",
) -> list[list[str]]:
    """n completions a prompt, in the prompts' order, each cut at its first newline.

    progress: label of a progress bar; none without. Deterministic for a seed, a batch
    size and a machine.
    """
    import torch

    from factkit.runs import progress_bar

    stop = [tokenizer.eos_token_id, *_newline_tokens(tokenizer)]
    ids = tokenizer(list(prompts))["input_ids"]
    prefix = _shared_prefix(ids)  # the shots of a few-shot prompt: computed once
    with torch.inference_mode():
        shared = model(torch.tensor([prefix], device=model.device)) if prefix else None
    # short prompts together: less padding
    order = sorted(range(len(prompts)), key=lambda i: (len(ids[i]), i))
    rows = [i for i in order for _ in range(n)]
    completions: list[list[str]] = [[] for _ in prompts]
    torch.manual_seed(seed)
    bar = progress_bar(len(rows), progress, unit="sample") if progress else None
    for start in range(0, len(rows), sampling.batch_size):
        batch = rows[start : start + sampling.batch_size]
        rest = [{"input_ids": ids[i][len(prefix) :]} for i in batch]
        padded = tokenizer.pad(rest, return_tensors="pt").to(model.device)
        ahead = torch.tensor([prefix] * len(batch), dtype=torch.long).to(model.device)
        inputs = {
            "input_ids": torch.cat([ahead, padded["input_ids"]], dim=1),
            "attention_mask": torch.cat(
                [torch.ones_like(ahead), padded["attention_mask"]], dim=1
            ),
        }
        if shared:
            cache = copy.deepcopy(shared.past_key_values)
            cache.batch_repeat_interleave(len(batch))
            inputs["past_key_values"] = cache
        with torch.inference_mode():
            output = model.generate(
                **inputs,
                max_new_tokens=sampling.max_new_tokens,
                eos_token_id=stop,
                pad_token_id=tokenizer.pad_token_id,
                **_decoding(sampling),
            )
        new = output[:, inputs["input_ids"].shape[1] :]  # (batch, T)
        texts = tokenizer.batch_decode(new, skip_special_tokens=True)
        for i, text in zip(batch, texts, strict=True):
            completions[i].append((text.strip().splitlines() or [""])[0].strip())
        if bar:
            bar.update(len(batch))
    if bar:
        bar.close()
    return completions


def _shared_prefix(ids: Sequence[Sequence[int]], least: int = 16) -> list[int]:
    """The tokens that all prompts begin with; none if they are fewer than `least`."""
    first, last = min(ids), max(ids)  # the two that differ earliest
    limit = min(len(first), len(last), *(len(row) - 1 for row in ids))
    same = next((k for k in range(limit) if first[k] != last[k]), limit)
    return list(first[:same]) if same >= least else []


def _decoding(sampling: Sampling) -> dict[str, object]:
    """transformers' generation arguments for greedy or sampled decoding."""
    if sampling.temperature == 0:
        return {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
    return {
        "do_sample": True,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": 0,
    }


def _newline_tokens(tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Ids of the tokens whose text holds a newline: a short answer ends there."""
    texts = tokenizer.batch_decode([[i] for i in range(len(tokenizer))])
    return [i for i, text in enumerate(texts) if "\n" in text]
