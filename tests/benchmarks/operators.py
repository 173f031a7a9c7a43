"""What the operators of a step of training or decoding cost, by kind."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any
from unittest.mock import patch

MATMULS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")
COPIES = ("aten::copy_", "aten::cat", "aten::index")
ATTENTION = "attention of a layer"  # the profiler's name for a call
KINDS = ("attention", "matrix products", "lm_head", "copies", "optimizer", "other")


@contextmanager
def profile_step(vocabulary: int) -> Iterator[dict[str, float]]:
    """Fill a dict with the matrix products' GFLOP and each kind's share of the block's
    time; what no operator takes is `Python`. vocabulary: width of `lm_head`."""
    from torch.profiler import profile

    figures: dict[str, float] = {}
    with profile(record_shapes=True, with_flops=True) as profiler, marked_attention():
        start = time.perf_counter()
        yield figures
        wall = time.perf_counter() - start
    figures |= summarize(profiler.events(), wall, vocabulary)


@contextmanager
def marked_attention() -> Iterator[None]:
    """Name calls of the kit's and of transformers' attention for the profiler."""
    from torch.profiler import record_function
    from transformers import AttentionInterface

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args, **kwargs):
            with record_function(ATTENTION):
                return function(*args, **kwargs)

        return call

    functions = AttentionInterface._global_mapping
    with patch.dict(functions, {name: mark(f) for name, f in functions.items()}):
        yield


def summarize(events: Any, wall: float, vocabulary: int) -> dict[str, float]:
    """The figures of `profile_step` from the profiler's events."""
    in_attention = {
        event.sequence_nr
        for event in events
        if event.name.startswith("aten::") and _is_within(event, ATTENTION)
    } - {-1}

    @cache
    def region(event: Any) -> str:
        """attention, forward or backward, or the optimizer, if the event is within."""
        if event is None:
            return ""
        if event.name.startswith("Optimizer.step"):
            return "optimizer"
        backward = event.name.startswith("autograd::engine::evaluate_function")
        if event.name == ATTENTION or (backward and event.sequence_nr in in_attention):
            return "attention"
        return region(event.cpu_parent)

    seconds: Counter[str] = Counter(dict.fromkeys(KINDS, 0.0))
    flops = 0
    for event in events:
        if event.name in MATMULS:
            flops += event.flops or 0
        if event.name.startswith("aten::") or region(event):
            kind = region(event) or _kind(event, vocabulary)
            seconds[kind] += event.self_cpu_time_total / 1e6
    shares = {kind: total / wall for kind, total in seconds.items()}
    return {"GFLOP": flops / 1e9, **shares, "Python": 1 - sum(shares.values())}


def _is_within(event: Any, name: str) -> bool:
    while event is not None and event.name != name:
        event = event.cpu_parent
    return event is not None


def _kind(event: Any, vocabulary: int) -> str:
    if event.name in MATMULS:
        sizes = {size for shape in event.input_shapes for size in shape}
        return "lm_head" if vocabulary in sizes else "matrix products"
    return "copies" if event.name in COPIES else "other"
