"""Reading a prompt once for all its completions, when they are sampled and scored.

A group's G completions have one prompt, and TRL reads it G times in each of its passes.
Here the keys and values of each different prompt are computed once and repeated, with
their gradients, so that only the completions have rows of their own.
"""

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import Cache, PreTrainedModel
    from trl import GRPOTrainer


def read_once(trainer: "GRPOTrainer") -> None:
    """Have a trainer of one process share prompts in rollouts and in log π."""
    model, score = trainer.model, trainer._get_per_token_logps_and_entropies

    def scored(model: "PreTrainedModel", *args: Any, **kwargs: Any):
        return score(functools.partial(completions_forward, model), *args, **kwargs)

    trainer._get_per_token_logps_and_entropies = scored
    model.generate = functools.partial(generate, model.generate, model)


def generate(
    own: Any, model: "PreTrainedModel", *, input_ids: "Tensor", **how: Any
) -> "Tensor":
    """The model's own `generate`, (B, L) → (B, L + T), given what was read once."""
    if "past_key_values" not in how and input_ids.shape[1] > 1:
        mask = how["attention_mask"]
        cache = read(
            model,
            input_ids[:, :-1],
            mask[:, :-1],
            (mask.cumsum(1) - 1).clamp(min=0)[:, :-1],
        )
        how["past_key_values"] = cache
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
    cache = read(model, input_ids[:, :ahead], attention_mask[:, :ahead])
    return model(
        input_ids=input_ids[:, ahead:],
        attention_mask=attention_mask,
        past_key_values=cache,
    )


def read(
    model: "PreTrainedModel",
    input_ids: "Tensor",
    attention_mask: "Tensor",
    position_ids: "Tensor | None" = None,
) -> "Cache":
    """The keys and values of (B, L) tokens, of which equal rows are read once."""
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
