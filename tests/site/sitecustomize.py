"""What a machine without a GPU needs of vLLM, Accelerate and TRL, changed as they load.

Python imports this module by itself where its folder is on PYTHONPATH, as the tests in
with_vllm and the rehearsals put it. Nothing of the kit is changed. Beside it are a
stand-in for Unsloth and vLLM's version under the name of its GPU build.
"""

import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from typing import Any


def linear_layers(module: Any) -> None:
    """vLLM packs linear weights away on CPUs, so that new ones have nowhere to go."""
    import torch

    def keep_weight(layer: Any, remove_weight: bool = False) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    module.dispatch_cpu_unquantized_gemm = keep_weight


def engine(module: Any) -> None:
    """An engine of seconds is not worth compiling; and where a prompt is read in two
    parts, vLLM turns a seeded generator back, which a CPU's does not know.

    vLLM has its sleep mode on accelerators only: here an engine that sleeps loses its
    weights, as there, and one that is not awake samples nothing.
    """
    own = module.LLM
    here = {"enforce_eager": True, "enable_chunked_prefill": False}
    kept = {"__init__": own.__init__, "generate": own.generate}

    def start(
        self: Any, *arguments: Any, enable_sleep_mode: bool = False, **options: Any
    ) -> None:
        self.sleeps, self.asleep = enable_sleep_mode, set()
        if (workers := options.get("tensor_parallel_size", 1)) > 1:
            cores = sorted(os.sched_getaffinity(0))  # else each wants a NUMA node
            own = (str(cores[i % len(cores)]) for i in range(workers))
            os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(own)
        kept["__init__"](self, *arguments, **(here | options))

    def sleep(self: Any, level: int = 1, mode: str = "abort") -> None:
        assert self.sleeps and level == 2, "TRL alone puts engines to sleep, at level 2"
        self.asleep = {"weights", "kv_cache"}
        worker = self.llm_engine.model_executor.driver_worker
        for weight in worker.model_runner.model.parameters():
            weight.data.fill_(float("nan"))

    def wake_up(self: Any, tags: list[str] | None = None) -> None:
        self.asleep -= set(tags or self.asleep)

    def generate(self: Any, *arguments: Any, **options: Any) -> Any:
        assert not self.asleep, f"the engine sampled while asleep: {self.asleep}"
        return kept["generate"](self, *arguments, **options)

    own.__init__, own.generate = start, generate
    own.sleep, own.wake_up = sleep, wake_up


def adapters(module: Any) -> None:
    """Over a prompt's own tokens vLLM's adapters for CPUs count the rows of the output
    layer wrongly; where none changes that layer, there is nothing to add."""
    own = module.PunicaWrapperCPU.add_lora_logits

    def add_lora_logits(self: Any, y: Any, x: Any, a: Any, b: Any, *more: Any) -> Any:
        return own(self, y, x, a, b, *more) if b.any() else y

    module.PunicaWrapperCPU.add_lora_logits = add_lora_logits


def backend(module: Any) -> None:
    """Accelerate runs DeepSpeed on accelerators only; DeepSpeed itself knows CPUs."""
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        gloo = ("gloo", module.DistributedType.MULTI_CPU)
        module.PartialState._prepare_backend = lambda *_, **__: gloo


def connections(module: Any) -> None:
    """Where REHEARSAL_WEB names a port, the addresses of a rehearsal's web, which are
    routed nowhere, are answered there."""
    own = module.SyncBackend.connect_tcp

    def connect_tcp(self: Any, host: str, port: int, *options: Any, **more: Any) -> Any:
        if host.startswith("11.0.") and "REHEARSAL_WEB" in os.environ:
            host, port = "127.0.0.1", int(os.environ["REHEARSAL_WEB"])
        return own(self, host, port, *options, **more)

    module.SyncBackend.connect_tcp = connect_tcp


CHANGES = {
    "httpcore._backends.sync": connections,
    "vllm.model_executor.layers.utils": linear_layers,
    "vllm.entrypoints.llm": engine,
    "vllm.lora.punica_wrapper.punica_cpu": adapters,
    "accelerate.state": backend,
}


class Changing(MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in CHANGES:
            return None
        spec = PathFinder.find_spec(name, path, target)
        load = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            CHANGES[name](module)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Changing())
