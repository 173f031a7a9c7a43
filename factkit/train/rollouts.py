"""Where GRPO's rollouts come from: transformers, or a vLLM engine in each process."""

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

# by which Unsloth marks the method that hands its adapter to the engine
UNSLOTH_WRAPPED = "_unsloth_vllm_generation_lora_wrapped"


def rollout_arguments(p: HardwareParams) -> dict[str, Any]:
    """GRPOConfig's arguments that say where rollouts come from.

    vllm_colocate: an engine in each training process, or one of p.vllm_tensor_parallel
    of them. It has p.vllm_memory of each GPU while it samples and sleeps while the
    policy trains: weights and cache are given back, and TRL sends the weights anew
    before the next rollout.
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
    """What TRL's way with vLLM leaves out: a base that LoRA does not move, and rollouts
    that depend on p.seed.

    An engine in the trainer's process sets the seed of both, the same for every run;
    the processes of one engine need one seed. Unsloth's engine has the trainer's
    weights and takes the adapter with each request: raises RunFailure if Unsloth, which
    only warns, could not change TRL's class so.
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
    """TRL's engine, to sample from in a `rollout_func` with the policy as it stands.

    TRL wakes the engine and puts it to sleep in its own `generate` alone; this does the
    same for a caller that samples several turns.
    """
    if generation.enable_sleep_mode:
        if generation._llm_weights_sleeping:
            generation.sync_weights()
        generation.llm.wake_up(tags=["kv_cache"])
    yield generation.llm
    if generation.enable_sleep_mode:
        generation.llm.sleep(level=2)
        generation._llm_weights_sleeping = True
