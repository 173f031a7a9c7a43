"""Where GRPO's rollouts come from: this process, or vLLM, and with which seeds."""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from factkit.params.stages import HardwareParams, TrainParams
from factkit.train import precision

if TYPE_CHECKING:
    from trl import GRPOTrainer


def rollout_arguments(p: HardwareParams) -> dict[str, Any]:
    """GRPOConfig's arguments that say where rollouts come from.

    vllm_colocate: an engine in each training process, with vllm_memory of its GPU.
    vllm_server: started by the user with p.policy, on N GPUs of its own; TRL sends it
    the weights before the first rollout and after each update, over NCCL:

        VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --host 127.0.0.1 \\
          --tensor-parallel-size N \\
          --weight-transfer-config '{"backend": "nccl"}' \\
          --logprobs-mode processed_logprobs --max-model-len 16384
    """
    match p.rollouts:
        case "transformers":
            return {"use_vllm": False}
        case "vllm_server":
            url = {"vllm_server_base_url": p.vllm_server_url}
            return {"use_vllm": True, "vllm_mode": "server", **url}
    return {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_tensor_parallel_size": p.vllm_tensor_parallel,
        "vllm_gpu_memory_utilization": p.vllm_memory,
        "vllm_max_model_length": p.max_context_length,
    }


def settle_engine(trainer: "GRPOTrainer", p: TrainParams) -> None:
    """What TRL's way with vLLM leaves out: a base that LoRA does not move, and rollouts
    that depend on p.seed.

    An engine in the trainer's process sets the seed of both, the same for every run;
    the processes of one engine need one seed. A server is sent a seed with each
    prompt: its engines (`--data-parallel-size`) begin with one seed, too, and the G
    responses to a prompt, dealt to engines in the same state, would be the same.
    """
    from transformers import set_seed

    if p.lora_rank:
        precision.sync_unmerged(trainer.vllm_generation, trainer.model)
    if p.rollouts == "vllm_colocate":
        engine = trainer.accelerator.process_index // p.vllm_tensor_parallel
        set_seed(1000 * p.seed + engine)
    elif trainer.accelerator.is_main_process:  # which alone asks the server
        client = trainer.vllm_generation.vllm_client
        client.generate = seeded(client.generate, p.seed, trainer)


def seeded(
    generate: Callable[..., Any], seed: int, trainer: "GRPOTrainer"
) -> Callable[..., Any]:
    """The `generate` of TRL's client of a vLLM server, a request a prompt, each with a
    seed of its own; vLLM gives response i of a prompt that seed + i."""

    def sent(
        prompts: Sequence[Any], generation_kwargs: Any = None, **how: Any
    ) -> dict[str, list]:
        drawn = random.Random(f"{seed} {trainer.state.global_step}")
        shared = generation_kwargs or {}
        own = [{"seed": drawn.getrandbits(31)} | shared for _ in prompts]

        def one(prompt: Any, kwargs: dict[str, Any]) -> dict[str, list]:
            return generate(prompts=[prompt], generation_kwargs=kwargs, **how)

        with ThreadPoolExecutor(len(prompts)) as pool:
            answers = list(pool.map(one, prompts, own))
        return {key: [x for a in answers for x in a[key]] for key in answers[0]}

    return sent
