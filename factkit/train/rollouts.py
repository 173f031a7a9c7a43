"""GRPO's rollouts from transformers, or from a vLLM engine in each process."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from factkit.run.failures import RunFailure
from factkit.run.params.stages import HardwareParams, TrainParams
from factkit.train import precision

if TYPE_CHECKING:
    from trl import GRPOTrainer
    from trl.generation.vllm_generation import VLLMGeneration
    from vllm import LLM

# marks the method by which Unsloth gives its adapter to the engine
UNSLOTH_WRAPPED = "_unsloth_vllm_generation_lora_wrapped"


def rollout_arguments(p: HardwareParams) -> dict[str, Any]:
    """GRPOConfig's arguments for rollouts.

    vllm_colocate: one engine per p.vllm_tensor_parallel training processes. It takes
    p.vllm_memory of each GPU while it samples and sleeps while the policy trains; TRL
    sends the weights again before the next rollout.
    """
    if p.rollouts == "transformers":
        return {"use_vllm": False}
    return {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_enable_sleep_mode": True,
        "vllm_tensor_parallel_size": p.vllm_tensor_parallel,
        "vllm_gpu_memory_utilization": p.vllm_memory,
        "vllm_max_model_length": p.max_context_length,
    }


def settle_engine(trainer: "GRPOTrainer", p: TrainParams) -> None:
    """Keep LoRA's base weights unchanged by TRL's vLLM sync, and seed the rollouts.

    An engine in the trainer's process sets a fixed seed for both; here it becomes
    p.seed's, one per engine. Unsloth's engine shares the trainer's weights and takes
    the adapter with each request: raises RunFailure if Unsloth could not change TRL's
    class for that, of which it only warns.
    """
    from transformers import set_seed

    if p.lora_backend == "unsloth":
        generation = trainer.vllm_generation
        given = getattr(generation, "_unsloth_load_lora", None)
        if not given or not hasattr(generation.generate, UNSLOTH_WRAPPED):
            raise RunFailure(
                "Unsloth did not change TRL's VLLMGeneration: rollouts would come from "
                "the base model; take the pinned versions, or lora_backend=peft"
            )
    elif p.lora_rank:
        precision.sync_unmerged(trainer.vllm_generation, trainer.model)
    engine = trainer.accelerator.process_index // p.vllm_tensor_parallel
    set_seed(1000 * p.seed + engine)


@contextmanager
def awake(generation: "VLLMGeneration") -> Iterator["LLM"]:
    """TRL's engine with the current policy's weights, awake, for a `rollout_func` that
    samples several turns; TRL wakes it only in its own `generate`."""
    if generation.enable_sleep_mode:
        if generation._llm_weights_sleeping:
            generation.sync_weights()
        generation.llm.wake_up(tags=["kv_cache"])
    yield generation.llm
    if generation.enable_sleep_mode:
        generation.llm.sleep(level=2)
        generation._llm_weights_sleeping = True
