"""Faster attention, sampling and GRPO on CPUs, for which no library here is tuned.

Results differ from the libraries' own by rounding, and by which random numbers a sample
uses. `tests/benchmarks/training.py` compares the speed.
"""

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import Cache, PreTrainedModel
    from transformers.utils import ModelOutput
    from trl import GRPOTrainer

ATTENTION = "grouped_heads"  # the name of `grouped_attention` in transformers
LONG = 128  # query tokens from which PyTorch's attention is as fast in float32
WIDE = 4096  # tokens of a vocabulary from which PyTorch's multinomial is slow


def tune(model: "PreTrainedModel") -> None:
    """Speed up a model on the CPU; call it before training.

    The attention is replaced where that of transformers is slow: in bfloat16, and where
    heads share keys, which it copies for each head.
    """
    import torch
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    keep_freed_memory()
    make_lm_head_input_contiguous(model)
    config = model.config
    heads = getattr(config, "num_attention_heads", 1)
    shared = heads > (getattr(config, "num_key_value_heads", None) or heads)
    slow = shared or model.dtype == torch.bfloat16
    if slow and config._attn_implementation == "sdpa":
        AttentionInterface.register(ATTENTION, grouped_attention)
        AttentionMaskInterface.register(ATTENTION, eager_mask)
        model.set_attn_implementation(ATTENTION)


def grouped_attention(  # the parameters are those that transformers passes
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
    lowest number, is added. Returns (B, T, H, D). On CPUs PyTorch's fused attention
    takes 75 ms in bfloat16 where this takes 8, and 55 in float32 for 12 tokens after 86
    where this takes 15.
    """
    import torch
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if query.dtype == torch.float32 and query.shape[2] > LONG:
        settings = {"dropout": dropout, "scaling": scaling}
        inputs = query, key, value, attention_mask
        return sdpa_attention_forward(module, *inputs, **settings)
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


@contextmanager
def quick_draws() -> Iterator[None]:
    """On a CPU, let `torch.multinomial` sample by the cumulative distribution, with one
    random number per row.

    PyTorch draws one per token of the vocabulary: 42 ms for 48 rows of 49,152, where
    this takes 1 and a pass of a 135M model 50.
    """
    import torch

    multinomial = torch.multinomial

    def sample(p: "Tensor", num_samples: int, *args: Any, **kwargs: Any) -> "Tensor":
        one_of_many = num_samples == 1 and p.shape[-1] >= WIDE and not (args or kwargs)
        if one_of_many and p.device.type == "cpu":
            cumulative = p.cumsum(-1)
            total = cumulative[..., -1:]
            if bool((total.isfinite() & (total > 0)).all()):  # else PyTorch's error
                points = total * torch.rand_like(total)
                return torch.searchsorted(cumulative, points, right=True)
        return multinomial(p, num_samples, *args, **kwargs)

    with patch.object(torch, "multinomial", sample):
        yield


def keep_activations_dtype(model: "nn.Module") -> None:
    """Let LoRA layers, if any, compute in the dtype of their input.

    PEFT keeps their weights in float32, as the optimiser needs them, and casts each
    layer's input to it: most of the memory and a third of the time of a training step
    in bfloat16. Here the weights, which are small, are cast.
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
    """Pass contiguous hidden states to `lm_head`: `logits_to_keep` slices them, and a
    bfloat16 product with a slice makes a GRPO step of profile laptop 18 s, not 6 s."""
    model.get_output_embeddings().register_forward_pre_hook(
        lambda module, args: (args[0].contiguous(), *args[1:])
    )


def keep_freed_memory() -> None:
    """Ask glibc, where there is one, to keep large freed blocks: mapping and unmapping
    the logits is about 5 % of a GRPO step of profile laptop."""
    mmap_max, trim_threshold, top_pad = -4, -1, -2  # malloc.h: M_MMAP_MAX, …
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    mallopt(mmap_max, 0)
    mallopt(trim_threshold, 2**31 - 1)
    mallopt(top_pad, 2**28)


def share_prompts(trainer: "GRPOTrainer") -> None:
    """Let a trainer of one process read each prompt once, in rollouts and for log π,
    and skip the padding after a batch's longest completion.

    TRL reads the prompt of a group G times in each pass, and pads each pass to the
    longest completion of the rollout. If all passes of a rollout belong to one update
    whose loss is a mean over rows, completions of similar length share a pass; TRL's
    token metrics are then means over such passes.
    """
    model, score = trainer.model, trainer._get_per_token_logps_and_entropies
    args = trainer.args
    one_update = 1 < args.gradient_accumulation_steps == args.steps_per_generation
    if one_update and args.loss_type in ("grpo", "dr_grpo"):
        prepare = trainer._prepare_inputs
        trainer._prepare_inputs = functools.partial(prepare_by_length, prepare)
    trainer._get_per_token_logps_and_entropies = functools.partial(
        score_completions, score
    )
    model.generate = functools.partial(generate, model.generate, model)


def score_completions(
    score: Any,
    model: "PreTrainedModel",
    input_ids: "Tensor",
    attention_mask: "Tensor",
    logits_to_keep: int,
    batch_size: int | None = None,
    **kwargs: Any,
) -> tuple["Tensor | None", ...]:
    """TRL's log π and entropies (B, T), or None, of the last T = logits_to_keep of
    (B, L) tokens, by `completions_forward`; 0 at padding that no pass reads."""
    import torch

    size = batch_size or len(input_ids)
    forward, parts = functools.partial(completions_forward, model), []
    batches = input_ids.split(size), attention_mask.split(size)
    for ids, mask in zip(*batches, strict=True):
        used = int(mask.any(0).nonzero().max()) + 1
        unused = min(ids.shape[1] - used, logits_to_keep - 1)
        used, last = ids.shape[1] - unused, logits_to_keep - unused
        scores = score(forward, ids[:, :used], mask[:, :used], last, **kwargs)
        pad = functools.partial(torch.nn.functional.pad, pad=(0, unused))
        parts.append([None if x is None else pad(x) for x in scores])
    kinds = zip(*parts, strict=True)
    return tuple(None if xs[0] is None else torch.cat(xs) for xs in kinds)


def prepare_by_length(prepare: Any, batch: Any) -> Any:
    """TRL's `_prepare_inputs` with a rollout sorted by length in place of shuffled."""
    from trl.trainer import grpo_trainer

    with patch.object(grpo_trainer, "shuffle_sequence_dict", sort_by_length):
        return prepare(batch)


def sort_by_length(rollout: dict[str, Any]) -> dict[str, Any]:
    """Sort a rollout's tensors (B, …) and lists by the lengths of its completions."""
    import torch

    order = rollout["completion_mask"].sum(1).argsort(stable=True)

    def sort(rows: Any) -> Any:
        if isinstance(rows, torch.Tensor) and rows.dim():
            return rows[order]
        return [rows[i] for i in order.tolist()] if isinstance(rows, list) else rows

    return {key: sort(rows) for key, rows in rollout.items()}


def generate(
    original: Any, model: "PreTrainedModel", *, input_ids: "Tensor", **kwargs: Any
) -> "Tensor":
    """The model's own `generate`, (B, L) → (B, L + T), after reading prompts once."""
    if "past_key_values" not in kwargs and input_ids.shape[1] > 1:
        mask = kwargs["attention_mask"]
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        kwargs["past_key_values"] = read_once(
            model, input_ids[:, :-1], mask[:, :-1], positions[:, :-1]
        )
    with quick_draws():
        return original(input_ids=input_ids, **kwargs)


def completions_forward(
    model: "PreTrainedModel",
    input_ids: "Tensor",
    attention_mask: "Tensor",
    logits_to_keep: int,
    use_cache: bool = False,
) -> "ModelOutput":
    """The model's output for the last `logits_to_keep` of (B, L) tokens; those before
    them are read once for all rows that begin alike."""
    ahead = input_ids.shape[1] - logits_to_keep
    if ahead < 1:
        return model(input_ids=input_ids, attention_mask=attention_mask)
    cache = read_once(model, input_ids[:, :ahead], attention_mask[:, :ahead])
    return model(
        input_ids=input_ids[:, ahead:],
        attention_mask=attention_mask,
        past_key_values=cache,
    )


def read_once(
    model: "PreTrainedModel",
    input_ids: "Tensor",
    attention_mask: "Tensor",
    position_ids: "Tensor | None" = None,
    cache: "Cache | None" = None,
    group: "Tensor | None" = None,
) -> "Cache":
    """The keys and values of (B, L) tokens; equal rows are read once and repeated, with
    their gradients.

    cache: of one row of tokens before them, which attention_mask then covers, too.
    group: (B,) the number of each row's text; by default found by comparing rows.
    """
    import torch

    if group is None:
        rows = torch.stack([input_ids, attention_mask], 1)
        _, group = rows.unique(dim=0, return_inverse=True)
    order = torch.arange(len(group), device=group.device)
    first = order.new_full((int(group.max()) + 1,), len(group))
    first.scatter_reduce_(0, group, order, "amin")  # a row of each text
    inner = model.base_model.model if hasattr(model, "peft_config") else model
    if cache is not None:
        cache.batch_repeat_interleave(len(first))
    cache = inner.base_model(  # without lm_head
        input_ids=input_ids[first],
        attention_mask=attention_mask[first],
        position_ids=None if position_ids is None else position_ids[first],
        past_key_values=cache,
        use_cache=True,
    ).past_key_values
    for layer in cache.layers:
        layer.keys = layer.keys.index_select(0, group)
        layer.values = layer.values.index_select(0, group)
    return cache
