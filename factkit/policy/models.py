"""Language models and tokenizers: loading them, chat templates, token offsets."""

import functools
import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit.data.assets import SAFE
from factkit.policy import cpu
from factkit.run import files, machine, quiet
from factkit.run.params.stages import PolicyParams

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM supports


def load_model(path: str, dtype: str = "float32") -> "PreTrainedModel":
    """Load a causal language model, or a LoRA adapter on its base, for inference.

    path: folder or hub name (safetensors only). dtype: "float32" or "bfloat16"; on a
    CPU without bfloat16 instructions float32 (`machine.dtype`).

    In float32 the adapter is merged. In bfloat16 it stays beside its base: W + ΔW would
    round back to W wherever |ΔW| < |W| / 512, as most of a short training's ΔW is.
    """
    import torch
    from transformers import AutoModelForCausalLM

    quiet.disable_bars()
    base = adapter_config(path).get("base_model_name_or_path")
    on_gpu = torch.cuda.is_available()
    dtype = dtype if on_gpu else machine.dtype(dtype)
    model = AutoModelForCausalLM.from_pretrained(
        base or path, dtype=getattr(torch, dtype), **SAFE
    )
    if not on_gpu:
        cpu.tune(model)
    if base:
        from peft import PeftModel

        model = PeftModel.from_pretrained(
            model, path, autocast_adapter_dtype=False, use_safetensors=True
        )
        if model.dtype == torch.float32:
            model = model.merge_and_unload()
    return model.to("cuda" if on_gpu else "cpu").eval()


def load_tokenizer(path: str) -> "PreTrainedTokenizerBase":
    """Load a tokenizer that pads on the left."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(
        path, padding_side="left", trust_remote_code=False
    )
    tokenizer.clean_up_tokenization_spaces = False  # it would strip real spaces
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return tokenizer


def add_words(path: str, words: Sequence[str], folder: Path) -> str:
    """The model in `path`, or, where its tokenizer reads some of the words as unknown,
    a copy of it in `folder` that has these as new tokens."""
    import torch
    from transformers import AutoModelForCausalLM

    quiet.disable_bars()
    tokenizer = load_tokenizer(path)
    unknown = [w for w in words if tokenizer.unk_token_id in tokenizer(w)["input_ids"]]
    if unknown and not folder.exists():
        tokenizer.add_tokens(unknown)
        model = AutoModelForCausalLM.from_pretrained(path, **SAFE)
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        embeddings = model.get_input_embeddings().weight.data  # (words, width)
        known, new = embeddings[: -len(unknown)], embeddings[-len(unknown) :]
        drawn = torch.randn(new.shape, generator=torch.Generator().manual_seed(0))
        new[:] = known.mean(0) + known.std(0) * drawn  # unlike each other, as words are
        with files.whole_folder(folder) as partial:
            model.save_pretrained(partial)
            tokenizer.save_pretrained(partial)
    return str(folder) if unknown else path


def adapter_config(path: str) -> dict[str, Any]:
    """Return PEFT's configuration of the LoRA adapter in `path`; {} if it has none.

    A base in the adapter's own folder, as of an export, has its whole path.
    """
    file = Path(path) / "adapter_config.json"
    if not file.exists():
        return {}
    config = json.loads(file.read_text("utf-8"))
    base = Path(path, config["base_model_name_or_path"])
    return config | ({"base_model_name_or_path": str(base)} if base.is_dir() else {})


def vllm_arguments(path: str, p: PolicyParams) -> dict[str, Any]:
    """Return the arguments of `vllm.LLM` for the model or adapter in `path`, for GPUs
    that hold nothing else."""
    adapter = adapter_config(path)
    arguments = {
        "model": adapter.get("base_model_name_or_path", path),
        "tokenizer": path,
        "dtype": p.dtype,
        "max_model_len": p.max_context_length,
        "tensor_parallel_size": p.vllm_tensor_parallel,
        "gpu_memory_utilization": 0.8,  # the rest: log-probabilities of prompts
    }
    if adapter:
        rank = next(r for r in LORA_RANKS if r >= adapter["r"])
        arguments |= {"enable_lora": True, "max_lora_rank": rank}
    return arguments


def apply_chat_template(
    tokenizer: "PreTrainedTokenizerBase", prompts: Sequence[str]
) -> list[str]:
    """Format each prompt as a user's turn, followed by the start of the reply.

    If the tokenizer itself prepends a BOS token, the template's own is removed.
    """
    adds = tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]
    return [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}],
            tokenize=False,
            add_generation_prompt=True,
        ).removeprefix(tokenizer.bos_token if adds else "")
        for prompt in prompts
    ]


def decode_with_offsets(
    completion_ids: Sequence[int], tokenizer: "PreTrainedTokenizerBase"
) -> tuple[str, list[tuple[int, int]]]:
    """Decode T tokens; return the text and each token's characters [start, end).

    Encoding the text again could give other tokens than those sampled. Special tokens
    have no characters. A character of several tokens' bytes belongs to the last one:
    where tokens decoded one by one do not make the text, a token ends where the text
    decoded so far still agrees with the whole.
    """
    decode = functools.partial(tokenizer.decode, skip_special_tokens=True)
    ids = [int(i) for i in completion_ids]
    text, pieces = decode(ids), [decode([i]) for i in ids]
    ends = list(itertools.accumulate(map(len, pieces)))
    if "".join(pieces) != text:
        prefixes = [decode(ids[: k + 1]) for k in range(len(ids))]
        common = [os.path.commonprefix([prefix, text]) for prefix in prefixes]
        ends = list(itertools.accumulate(map(len, common), max))
    return text, list(zip([0, *ends], ends, strict=False))
