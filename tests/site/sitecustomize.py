"""What a machine without a GPU needs of vLLM, Accelerate and TRL, changed as they load.

Python imports this module by itself where its folder is on PYTHONPATH, as the tests in
with_vllm and the rehearsals put it. Nothing of the kit is changed. Beside it are a
stand-in for Unsloth and vLLM's version under the name of its GPU build.
"""

import os
import sys
import tempfile
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any


def linear_layers(module: Any) -> None:
    """vLLM packs linear weights away on CPUs, so that new ones have nowhere to go."""
    import torch

    def keep_weight(layer: Any, remove_weight: bool = False) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    module.dispatch_cpu_unquantized_gemm = keep_weight


def engine(module: Any) -> None:
    """An engine of seconds is not worth compiling; and where a prompt is read in two
    parts, vLLM turns a seeded generator back, which a CPU's does not know."""
    own = module.LLM.__init__
    here = {"enforce_eager": True, "enable_chunked_prefill": False}

    def start(self: Any, *arguments: Any, **options: Any) -> None:
        own(self, *arguments, **(here | options))

    module.LLM.__init__ = start


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


def client(module: Any) -> None:
    """TRL sends weights to a server by NCCL: here by a file, which the server reads."""
    from safetensors.torch import save_file

    def start(self: Any) -> None:
        self._weights = {}

    def update_named_params(self: Any, metadata: Any, named_params: Any) -> None:
        alone = not self._updating_weights
        if alone:
            start(self)
        for name, weight in named_params:
            self._weights[name] = weight.detach().to("cpu", copy=True).contiguous()
        if alone:
            finish(self)

    def finish(self: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            save_file(self._weights, Path(folder) / "model.safetensors")
            call = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
            self._post(f"{self.base_url}/collective_rpc", json=call)

    own = module.VLLMClient
    own.init_communicator = lambda self, device=0: None
    own._start_weight_update, own._finish_weight_update = start, finish
    own.update_named_params = update_named_params


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
    "trl.generation.vllm_client": client,
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
