"""Precision that training in bfloat16 on GPUs would lose."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peft import PeftModel
    from torch import Tensor, nn
    from trl.generation.vllm_generation import VLLMGeneration

BASE = "base_model.model."  # where PEFT has the policy


def exact_rotary(model: "nn.Module") -> None:
    """Recompute a model's rotary frequencies in float32.

    When ZeRO-3 shards a model while loading, results of `torch.arange` are rounded to
    bfloat16: with Qwen's θ of 1e6 a phase is then off by a radian after 1,000 tokens,
    in training but not in vLLM.
    """
    for module in model.modules():
        if hasattr(module, "original_inv_freq"):
            exact, device = type(module)(module.config), module.inv_freq.device
            module.inv_freq = exact.inv_freq.to(device)
            module.original_inv_freq = exact.original_inv_freq.to(device)


def sync_unmerged(generation: "VLLMGeneration", model: "PeftModel") -> None:
    """Have TRL send vLLM merged weights of a LoRA policy without changing its base.

    TRL adds ΔW to W in place and subtracts it again at every update. In bfloat16 the
    result is not W: in a simulation of 400 updates W moves by more than a tenth of ΔW,
    while the saved adapter belongs to the initial W.
    """

    def weights() -> "Iterator[tuple[str, Tensor]]":
        with generation._dist.gather_params(list(model.parameters())):
            yield from merged(model)

    generation._iter_named_params = weights


def merged(model: "PeftModel") -> "Iterator[tuple[str, Tensor]]":
    """Name and merged weight, W + ΔW in the dtype of W, of each of the policy's
    parameters, without other modules such as a value head."""
    for name, weight in model.named_parameters():
        if not name.startswith(BASE) or model.prefix in name:
            continue
        layer, is_lora, kind = name.removeprefix(BASE).rpartition(".base_layer.")
        whole = weight.data
        if is_lora and kind == "weight":
            delta = model.get_submodule(BASE + layer).get_delta_weight("default")
            whole = (whole + delta.detach()).to(whole.dtype)
        yield f"{layer}.{kind}" if is_lora else kind, whole
