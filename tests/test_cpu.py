"""The fast ways on a CPU compute what the libraries' own ways compute."""

import copy
import gc
import weakref

import pytest
from small_tokenizers import of_words

from factkit.policy import cpu, models
from factkit.run import machine

GROUP = 3  # completions a prompt


@pytest.fixture
def model():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, set_seed

    set_seed(0)
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        eos_token_id=None,
        pad_token_id=0,
    )
    made = LlamaForCausalLM(config)
    for w in made.parameters():  # as different as a trained model's
        torch.nn.init.normal_(w, std=0.3)
    return made


@pytest.fixture
def batch():
    """Two prompts of 5 and 3 tokens with GROUP completions of 4, in mixed order."""
    import torch

    prompts = torch.tensor([[0, 0, 7, 8, 9], [3, 4, 5, 6, 7]])
    seen = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    order = torch.tensor([0, 1, 1, 0, 1, 0])
    said = torch.randint(1, 50, (2 * GROUP, 4), generator=torch.manual_seed(1))
    mask = torch.ones_like(said)
    mask[2, 2:] = 0  # one ends early
    return {
        "input_ids": torch.cat([prompts[order], said], 1),
        "attention_mask": torch.cat([seen[order], mask], 1),
    }


def with_lora(model):
    import torch
    from peft import LoraConfig, get_peft_model

    adapted = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear"))
    for name, w in adapted.named_parameters():
        if "lora_B" in name:  # 0 at first
            torch.nn.init.normal_(w, std=0.3)
    return adapted


def scored(model, forward, batch):
    """Logits of the completions' 4 tokens, and the gradient of all adapters."""
    model.zero_grad()
    logits = forward(**batch, logits_to_keep=5, use_cache=False).logits[:, :-1]
    used = logits[batch["attention_mask"][:, -4:].bool()]
    used.log_softmax(-1)[:, 3].sum().backward()
    return used.detach(), [w.grad for w in model.parameters() if w.requires_grad]


def same(a, b):
    import torch

    return torch.allclose(a, b, rtol=1e-3, atol=1e-4)


def test_shared_prompts_change_neither_logits_nor_gradients(model, batch):
    model = with_lora(model)
    logits, gradients = scored(model, model, batch)
    shared = scored(model, lambda **how: cpu.completions_forward(model, **how), batch)
    assert same(logits, shared[0])
    assert all(map(same, gradients, shared[1]))
    assert max(float(g.abs().max()) for g in gradients) > 0.1


def test_shared_prompts_change_no_greedy_rollout(model, batch):
    asked = {k: v[:, :5] for k, v in batch.items()}
    own = model.generate
    how = {"max_new_tokens": 6, "do_sample": False}
    plain = own(**asked, **how)
    assert cpu.generate(own, model, **asked, **how).tolist() == (plain.tolist())
    assert len({tuple(row) for row in plain[:, 5:].tolist()}) == 2


@pytest.mark.parametrize("rows", [None, 2, 4])
def test_scores_leave_out_padding_alone(model, batch, rows):
    import torch

    batch["attention_mask"][:, -1] = 0  # no completion is as long as the rollout's
    batch["attention_mask"][:2, -3:] = 0

    def score(forward, ids, mask, keep, batch_size=None):
        widths.append((ids.shape[1], keep))
        out = forward(input_ids=ids, attention_mask=mask, logits_to_keep=keep + 1)
        logps = out.logits[:, -keep - 1 : -1].log_softmax(-1)
        return logps.gather(-1, ids[:, -keep:, None])[..., 0], None

    widths = []
    asked = batch["input_ids"], batch["attention_mask"], 4
    plain, _ = score(model, *asked)
    kit, none = cpu.score_completions(score, model, *asked, rows)
    seen = batch["attention_mask"][:, -4:].bool()
    assert torch.allclose(plain[seen], kit[seen], rtol=1e-3, atol=1e-4)
    assert kit.shape == (2 * GROUP, 4) and none is None
    assert not kit[:, -1].any()
    shortest = (6, 1) if rows == 2 else (8, 3)
    assert widths[1:] and min(widths[1:]) == shortest and max(widths) == (9, 4)


def log_probabilities(model, batch):
    """log π (N, V) in float32 at the tokens that are no padding."""
    import torch

    with torch.no_grad():
        logits = model(**batch).logits[batch["attention_mask"].bool()]
    return logits.float().log_softmax(-1)


def load_with_adapter(model, dtype, folder):
    """A policy as LoRA trains it, and as it is loaded from the saved adapter."""
    model.save_pretrained(folder / "base")
    adapted = with_lora(models.load_model(str(folder / "base"), dtype))
    adapted.save_pretrained(folder / "adapter")
    cpu.keep_activations_dtype(adapted)
    return adapted, models.load_model(str(folder / "adapter"), dtype)


def test_in_float32_an_adapter_is_loaded_merged(model, batch, tmp_path):
    adapted, loaded = load_with_adapter(model, "float32", tmp_path)
    assert type(loaded) is type(model)
    logps = log_probabilities(loaded, batch)
    assert (logps - log_probabilities(adapted, batch)).abs().max() < 1e-4
    with adapted.disable_adapter():
        base = log_probabilities(adapted, batch)
    assert (logps - base).abs().max() > 0.1


def test_in_bfloat16_an_adapter_is_loaded_as_training_computes_it(
    model, batch, tmp_path, monkeypatch
):
    import torch

    monkeypatch.setattr(machine, "dtype", lambda name: name)
    adapted, loaded = load_with_adapter(model, "bfloat16", tmp_path)
    assert {w.dtype for w in loaded.parameters()} == {torch.bfloat16}
    logps = log_probabilities(loaded, batch)
    assert torch.equal(logps, log_probabilities(adapted, batch))


def test_a_rollout_is_split_by_the_length_of_its_completions():
    import torch

    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 0, 0]])
    rows = {"completion_mask": mask, "advantages": torch.arange(4.0)}
    rows |= {"texts": [*"abcd"], "num_items_in_batch": torch.tensor(7), "images": None}
    ordered = cpu.sort_by_length(rows)
    assert ordered["completion_mask"].sum(1).tolist() == [1, 1, 2, 3]
    assert ordered["advantages"].tolist() == [1, 3, 2, 0]
    assert ordered["texts"] == [*"bdca"]
    assert ordered["num_items_in_batch"] == 7 and ordered["images"] is None


def test_quick_draws_follow_the_distribution():
    import torch

    p = torch.zeros(2, 2 * cpu.WIDE)
    p[0, [3, cpu.WIDE, -1]] = torch.tensor([0.5, 0.3, 0.2])
    p[1, 7] = 1.0
    torch.manual_seed(0)
    own = torch.multinomial
    with cpu.quick_draws():
        drawn = torch.cat([torch.multinomial(p, 1) for _ in range(2000)], 1)
        with pytest.raises(RuntimeError, match="nan"):
            torch.multinomial(p * float("nan"), 1)
    assert torch.multinomial is own
    assert set(drawn[1].tolist()) == {7}
    likely = 3, cpu.WIDE, 2 * cpu.WIDE - 1
    shares = [(drawn[0] == i).float().mean().item() for i in likely]
    assert sum(shares) == pytest.approx(1.0)
    assert shares == pytest.approx([0.5, 0.3, 0.2], abs=0.04)  # 3.6 standard errors


def test_a_tuned_model_goes_with_its_last_reference(model):
    """No cycle keeps it: an evaluation loads one policy after another."""
    tuned = copy.deepcopy(model)
    cpu.tune(tuned)
    seen = weakref.ref(tuned)
    gc.disable()
    try:
        del tuned
        assert seen() is None
    finally:
        gc.enable()


def test_narrow_draws_are_pytorchs_own():
    import torch

    p = torch.rand(4, 50)
    torch.manual_seed(0)
    own = torch.multinomial(p, 1)
    torch.manual_seed(0)
    with cpu.quick_draws():
        assert torch.equal(torch.multinomial(p, 1), own)


@pytest.mark.parametrize("long", [cpu.LONG, 4])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_attention_over_grouped_heads_is_the_models_own(
    dtype, long, model, batch, monkeypatch
):
    import torch

    monkeypatch.setattr(cpu, "LONG", long)
    model.to(getattr(torch, dtype))
    tuned = copy.deepcopy(model)
    cpu.tune(tuned)
    assert tuned.config._attn_implementation == cpu.ATTENTION
    seen = batch["attention_mask"].bool()
    plain = model.float()(**batch).logits[seen].detach()
    assert same(tuned.float()(**batch).logits[seen], plain)
    assert not same(plain, torch.zeros_like(plain))


def test_attention_without_shared_heads_stays_the_models_own(model):
    import torch

    config = copy.deepcopy(model.config)
    config.num_key_value_heads = config.num_attention_heads
    apart = type(model)(config)
    cpu.tune(apart)
    assert apart.config._attn_implementation == "sdpa"
    cpu.tune(apart.to(torch.bfloat16))
    assert apart.config._attn_implementation == cpu.ATTENTION


def test_a_tuned_model_is_saved_as_any_other(model, tmp_path):
    import torch
    from transformers import AutoModelForCausalLM

    model.to(torch.bfloat16)
    cpu.tune(model)
    model.save_pretrained(tmp_path)
    assert cpu.ATTENTION not in (tmp_path / "config.json").read_text("utf-8")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert loaded.config._attn_implementation == "sdpa"


def test_adapters_stay_float32_and_compute_in_the_models_dtype(model, batch):
    import torch

    exact = with_lora(copy.deepcopy(model))
    adapted = with_lora(model.to(torch.bfloat16))
    adapted.load_state_dict(exact.state_dict())
    seen = batch["attention_mask"].bool()
    with torch.no_grad():
        before = adapted(**batch).logits[seen].float()
        cpu.keep_activations_dtype(adapted)
        after = adapted(**batch).logits[seen].float()
        wanted = exact(**batch).logits[seen]
    layer = adapted.base_model.model.model.layers[0].mlp.up_proj
    assert layer(torch.ones(1, 48, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert {w.dtype for w in adapted.parameters() if w.requires_grad} == {torch.float32}
    assert (
        layer.lora_A["default"](torch.ones(1, 48, dtype=torch.bfloat16)).dtype
        == torch.bfloat16
    )
    error = [(found - wanted).abs().mean() for found in (before, after)]
    assert error[1] < 1.5 * error[0]


@pytest.mark.parametrize("own", ["bfloat16", "float32"])
def test_a_policy_has_the_dtype_that_the_processor_multiplies(
    own, model, tmp_path, monkeypatch
):
    import torch

    model.save_pretrained(tmp_path)
    of_words("a", "</s>", eos_token="</s>").save_pretrained(tmp_path)
    monkeypatch.setattr(machine, "dtype", lambda name: own)
    loaded = models.load_model(str(tmp_path), "bfloat16")
    assert loaded.dtype == getattr(torch, own)
    assert ("float32" in machine.device()) == (own == "float32")  # and results say so
