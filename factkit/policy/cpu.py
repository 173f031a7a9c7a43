"""What makes a policy fast on a CPU, for which no library here is tuned.

None of it changes what is computed, but by rounding and by which random numbers a draw
takes. `tests/benchmarks/bench_speed.py` measures each against the libraries' own way.
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
    from trl import GRPOTrainer

ATTENTION = "grouped_heads"  # the name of `grouped_attention` in transformers
LONG = 128  # query tokens beyond which PyTorch's own is as fast in float32, or faster
WIDE = 4096  # tokens of a vocabulary beyond which PyTorch's own draw is slow


def tune(model: "PreTrainedModel") -> None:
    """Have a model on the CPU take the fast ways below; call it before it is trained.

    The attention is changed where transformers' own is slow: in bfloat16, and where
    heads share keys, which it copies for each.
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
    slow path in bfloat16 on CPUs: 75 ms where this, which copies no keys, takes 8 ms;
    in float32, for few tokens after many (12 after 86, in training), 55 where this
    takes 15.
    """
    import torch
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if query.dtype == torch.float32 and query.shape[2] > LONG:
        how = {"dropout": dropout, "scaling": scaling}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **how)
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
    """On a CPU, have `torch.multinomial` draw one of many by the distribution function,
    with one random number a row.

    PyTorch's own takes one for each of the vocabulary's tokens, one after the other: 42
    ms for 48 rows of 49,152, where this takes 1 and a pass of a 135M model 50.
    """
    import torch

    own = torch.multinomial

    def draw(p: torch.Tensor, num_samples: int, *args: Any, **how: Any) -> torch.Tensor:
        one_of_many = num_samples == 1 and p.shape[-1] >= WIDE and not (args or how)
        if one_of_many and p.device.type == "cpu":
            below = p.cumsum(-1)
            total = below[..., -1:]
            if bool((total.isfinite() & (total > 0)).all()):  # else its own error
                drawn = total * torch.rand_like(total)
                return torch.searchsorted(below, drawn, right=True)
        return own(p, num_samples, *args, **how)

    with patch.object(torch, "multinomial", draw):
        yield


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
    """Hand `lm_head` contiguous hidden states: `logits_to_keep` slices them, and a
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
    """Have a trainer of one process read each prompt once, in rollouts and in log π,
    and there no padding after a batch's longest completion.

    A group's G completions have one prompt, and TRL reads it G times in each pass. It
    pads each pass to the longest completion of the whole rollout. Where all passes of a
    rollout are of one update, and its loss is a mean over rows, completions of like
    lengths go together; what TRL logs of tokens is then a mean over such passes.
    """
    model, score = trainer.model, trainer._get_per_token_logps_and_entropies
    args = trainer.args
    one_update = 1 < args.gradient_accumulation_steps == args.steps_per_generation
    if one_update and args.loss_type in ("grpo", "dr_grpo"):
        prepare = trainer._prepare_inputs
        trainer._prepare_inputs = functools.partial(prepared_by_length, prepare)
    trainer._get_per_token_logps_and_entropies = functools.partial(scored, score)
    model.generate = functools.partial(generate, model.generate, model)


def scored(
    score: Any,
    model: "PreTrainedModel",
    input_ids: "Tensor",
    attention_mask: "Tensor",
    logits_to_keep: int,
    batch_size: int | None = None,
    **how: Any,
) -> tuple["Tensor | None", ...]:
    """TRL's log π and entropies of the last T = logits_to_keep of (B, L) tokens, each
    (B, T) or None, by `completions_forward`; 0 at the padding that no pass reads."""
    import torch

    size = batch_size or len(input_ids)
    forward, parts = functools.partial(completions_forward, model), []
    batches = input_ids.split(size), attention_mask.split(size)
    for ids, mask in zip(*batches, strict=True):
        used = int(mask.any(0).nonzero().max()) + 1
        rest = min(ids.shape[1] - used, logits_to_keep - 1)
        used = ids.shape[1] - rest
        found = score(
            forward, ids[:, :used], mask[:, :used], logits_to_keep - rest, **how
        )
        pad = functools.partial(torch.nn.functional.pad, pad=(0, rest))
        parts.append([None if x is None else pad(x) for x in found])
    kinds = zip(*parts, strict=True)
    return tuple(None if xs[0] is None else torch.cat(xs) for xs in kinds)


def prepared_by_length(prepare: Any, batch: Any) -> Any:
    """TRL's `_prepare_inputs`, which shuffles a rollout before it splits it, with the
    rollout in the order of its completions' lengths instead."""
    from trl.trainer import grpo_trainer

    with patch.object(grpo_trainer, "shuffle_sequence_dict", by_length):
        return prepare(batch)


def by_length(rollout: dict[str, Any]) -> dict[str, Any]:
    """A rollout's rows in the order of their completions' lengths: of what has one
    value a row, a tensor (B, …) or a list."""
    import torch

    order = rollout["completion_mask"].sum(1).argsort(stable=True)

    def sorted_rows(of_rows: Any) -> Any:
        if isinstance(of_rows, torch.Tensor) and of_rows.dim():
            return of_rows[order]
        if isinstance(of_rows, list):
            return [of_rows[i] for i in order.tolist()]
        return of_rows

    return {key: sorted_rows(of_rows) for key, of_rows in rollout.items()}


def generate(
    own: Any, model: "PreTrainedModel", *, input_ids: "Tensor", **how: Any
) -> "Tensor":
    """The model's own `generate`, (B, L) → (B, L + T), given what was read once."""
    if "past_key_values" not in how and input_ids.shape[1] > 1:
        mask = how["attention_mask"]
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        how["past_key_values"] = read_once(
            model, input_ids[:, :-1], mask[:, :-1], positions[:, :-1]
        )
    with quick_draws():
        return own(input_ids=input_ids, **how)


def completions_forward(
    model: "PreTrainedModel",
    input_ids: "Tensor",
    attention_mask: "Tensor",
    logits_to_keep: int,
    use_cache: bool = False,
):
    """`model(…)` with the logits of the last `logits_to_keep` tokens of each row.

    input_ids, attention_mask: (B, L). The tokens before them are read once for all rows
    that begin with the same.
    """
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
) -> "Cache":
    """The keys and values of (B, L) tokens, of which equal rows are read once and
    repeated with their gradients."""
    import torch

    rows = torch.stack([input_ids, attention_mask], 1)
    _, group = rows.unique(dim=0, return_inverse=True)  # (B,): the number of its text
    order = torch.arange(len(group), device=group.device)
    first = order.new_full((int(group.max()) + 1,), len(group))
    first.scatter_reduce_(0, group, order, "amin")  # a row of each text
    inner = model.base_model.model if hasattr(model, "peft_config") else model
    cache = inner.base_model(  # without lm_head
        input_ids=input_ids[first],
        attention_mask=attention_mask[first],
        position_ids=None if position_ids is None else position_ids[first],
        use_cache=True,
    ).past_key_values
    for layer in cache.layers:
        layer.keys = layer.keys.index_select(0, group)
        layer.values = layer.values.index_select(0, group)
    return cache
