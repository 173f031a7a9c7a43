"""The benchmarks compare rounds, and see all of the attention."""

import sys

import pandas as pd
import pytest

from factkit.run.params import ROOT

sys.path.append(str(ROOT / "tests" / "benchmarks"))
import measuring  # noqa: E402
import operators  # noqa: E402


def test_the_speed_up_is_that_of_runs_of_the_same_round():
    # the machine is ten times slower in round 1: medians of all runs would say 5
    seconds = {"theirs": [2, 20, 2], "ours": [1, 5, 1]}
    runs = pd.DataFrame(
        {"task": "t", "way": way, "round": n, "seconds": s}
        for way, values in seconds.items()
        for n, s in enumerate(values)
    )
    table = measuring.medians(runs, {"t": "theirs"})
    assert table[measuring.SPEED_UP].to_dict() == {("t", "theirs"): 1, ("t", "ours"): 2}


def test_ways_run_once_per_round_in_alternating_order(monkeypatch):
    order = []

    def way(name):
        return lambda: order.append(name) or {"seconds": 1.0}

    ways = {name: way(name) for name in "ab"}
    runs = measuring.run_in_turn("t", ways, 3)
    assert order == list("abbaab") and list(runs["round"]) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("implementation", ["sdpa", "grouped_heads"])
def test_attention_of_either_implementation_is_counted_forward_and_backward(
    implementation,
):
    import torch
    from torch.profiler import profile
    from transformers import LlamaConfig, LlamaForCausalLM

    from factkit.policy import cpu

    config = LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2 if implementation == "grouped_heads" else 4,
    )
    model = LlamaForCausalLM(config)
    cpu.tune(model)
    assert model.config._attn_implementation == implementation
    ids = torch.randint(50, (2, 16))
    with profile(record_shapes=True) as profiler, operators.marked_attention():
        output = model(input_ids=ids, attention_mask=torch.ones_like(ids))
        output.logits.sum().backward()
    events = profiler.events()
    forward_events = [event for event in events if not is_backward(event)]
    forward = operators.summarize(forward_events, wall=1.0, vocabulary=50)
    both = operators.summarize(events, wall=1.0, vocabulary=50)
    assert 0 < forward["attention"] < both["attention"]


def is_backward(event):
    while event is not None and not event.name.startswith("autograd::"):
        event = event.cpu_parent
    return event is not None
