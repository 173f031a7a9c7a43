"""What training in bfloat16 on GPUs would lose, on the CPU with small models."""

import contextlib
from types import SimpleNamespace

import pytest
import torch
from peft import get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig

from factkit.run import params
from factkit.train import precision, setup


def small(**more):
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 64}
    torch.manual_seed(0)
    config = LlamaConfig(**sizes, **heads, attention_bias=True, **more)
    return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


@pytest.fixture
def adapted():
    """A policy in bfloat16 with an adapter that changes it, and a value head."""
    p = params.load("truthrl", "laptop", {"lora_rank": 4})
    model = small()
    model = get_peft_model(model, setup.lora(p.lora_rank, p.lora_alpha))
    for name, weight in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=0.05)
    model.add_module("value_head", torch.nn.Linear(32, 1))
    return model


def test_vllm_gets_the_merged_weights_and_the_base_stays_as_it_was(adapted):
    before = {k: v.clone() for k, v in adapted.state_dict().items()}
    generation = SimpleNamespace(
        _dist=SimpleNamespace(gather_params=lambda _: contextlib.nullcontext())
    )
    precision.sync_unmerged(generation, adapted)
    sent = dict(generation._iter_named_params())
    after = adapted.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before)
    whole = dict(adapted.merge_and_unload().named_parameters())
    assert sent.keys() == whole.keys()
    assert "model.layers.0.self_attn.q_proj.bias" in sent
    for name, weight in whole.items():
        assert sent[name].dtype == torch.bfloat16
        torch.testing.assert_close(sent[name], weight.data, rtol=0.01, atol=1e-3)
    moved = "base_model.model.model.layers.0.mlp.up_proj.base_layer.weight"
    assert not torch.equal(sent["model.layers.0.mlp.up_proj.weight"], before[moved])


def test_rounded_rotary_frequencies_are_made_exact_again():
    model = small(rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    rotary = model.model.rotary_emb
    exact = rotary.inv_freq.clone()
    rotary.inv_freq = exact.bfloat16()
    rotary.original_inv_freq = exact.bfloat16()
    precision.exact_rotary(model)
    for found in (rotary.inv_freq, rotary.original_inv_freq):
        assert found.dtype == torch.float32
        assert torch.equal(found, exact)


def test_a_reference_on_a_gpu_is_not_made_fast_for_the_cpu(monkeypatch):
    """There it is DeepSpeed's engine, which is no model."""
    p = params.load("truthrl", "laptop")
    loaded = SimpleNamespace(), SimpleNamespace()
    monkeypatch.setattr(setup, "load_trainable", lambda *_: loaded)
    monkeypatch.setattr(setup, "lora", lambda *_: None)
    made = SimpleNamespace(model=loaded[0], ref_model=object())
    on_gpu = SimpleNamespace(device=SimpleNamespace(type="cuda"))
    rows = [{"prompt": "a"}]
    assert setup.policy_trainer(lambda **_: made, on_gpu, "", rows, p) is made


class Rows:
    """What a trainer made of its rows: their tokens, as a data set's column."""

    column_names = ("input_ids",)

    def __init__(self, *lengths):
        self.ids = [[0] * n for n in lengths]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, name):
        return self.ids


def test_rows_that_do_not_fit_the_context_are_counted_and_many_end_the_training(capsys):
    rows = [{"prompt": "a", "completion": "b"}] * 64

    def lost(*lengths):
        args = SimpleNamespace(max_length=16)
        trainer = SimpleNamespace(args=args, train_dataset=Rows(*lengths))
        setup.refuse_lost_rows(trainer, rows)
        return capsys.readouterr().out

    assert lost(*[15] * 64) == ""
    assert "max_context_length=16 drops or cuts 3 of 64 rows" in lost(*[9] * 61, 16, 16)
    for lengths in ([9] * 14, [9] * 60 + [16] * 4, []):
        with pytest.raises(
            ValueError, match="max_context_length=16 drops .* of 64 rows"
        ):
            lost(*lengths)
