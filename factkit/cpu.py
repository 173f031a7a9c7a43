"""What makes a bfloat16 policy fast on a CPU, for which no library here is tuned.

None of it changes what is computed, but by rounding. `tests/benchmarks/bench_speed.py`
measures each against the libraries' own way.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedModel

ATTENTION = "grouped_heads"  # the name of `grouped_attention` in transformers


def tune(model: "PreTrainedModel") -> None:
    """Have a model on the CPU take the fast ways below; call it before it is trained.

    The attention is changed in bfloat16 alone, where transformers' own is slow.
    """
    import torch
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    keep_freed_memory()
    make_lm_head_input_contiguous(model)
    if model.dtype == torch.bfloat16 and model.config._attn_implementation == "sdpa":
        AttentionInterface.register(ATTENTION, grouped_attention)
        AttentionMaskInterface.register(ATTENTION, eager_mask)
        model.set_attn_implementation(ATTENTION)


def grouped_attention(
    module: "nn.Module",
    query: "Tensor",
    key: "Tensor",
    value: "Tensor",
    attention_mask: "Tensor",
    scaling: float,
    dropout: float = 0.0,
    **_: Any,
) -> tuple["Tensor", None]:
    """Attention in which the heads that share a key head are rows of one product.

    query (B, H, T, D); key, value (B, G, L, D); attention_mask (B, 1, T, L), 0 or the
    lowest number, is added. Returns (B, T, H, D). PyTorch's fused attention takes a
    slow path in bfloat16 on CPUs: for 64 completions of 13 tokens on 120 keys it took
    75 ms forward and backward, and this takes 8 ms, for it copies no keys.
    """
    import torch

    batch, heads, length, size = query.shape
    shared = key.shape[1]
    rows = query.reshape(batch, shared, -1, size)  # (B, G, H / G · T, D)
    scores = torch.matmul(rows, key.transpose(2, 3)) * scaling
    scores = scores.view(batch, shared, heads // shared, length, -1)
    scores = scores + attention_mask.unsqueeze(2)
    weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    weights = torch.dropout(weights, dropout, module.training)
    out = torch.matmul(weights.view(batch, shared, rows.shape[2], -1), value)
    return out.view(query.shape).transpose(1, 2).contiguous(), None


def keep_activations_dtype(model: "nn.Module") -> None:
    """Have LoRA's layers compute in the dtype of what they are given.

    PEFT keeps their weights in float32, as the optimiser needs them, and casts each
    layer's input to it: most of the memory and a third of the time of a training step
    in bfloat16. Here the weights, which are small, are cast. Does nothing to a model
    without adapters.
    """
    if not hasattr(model, "peft_config"):
        return
    import torch
    from peft.tuners.lora import LoraLayer

    class CastLinear(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.linear(x, self.weight.to(x.dtype))

    for layer in model.modules():
        if isinstance(layer, LoraLayer):
            layer.cast_input_dtype_enabled = False
            for linear in (*layer.lora_A.values(), *layer.lora_B.values()):
                linear.__class__ = CastLinear


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
