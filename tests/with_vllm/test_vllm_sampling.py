"""`models.sample` with a vLLM engine in a process of its own, against transformers."""

from factkit import models

ASKED = [
    f"Question: Who wrote {work}?\nAnswer:" for work in ("Hamlet", "Faust", "Emma")
]
ENGINE = {"dtype": "float32", "max_model_len": 256, "enforce_eager": True}


def test_greedy_answers_are_those_of_transformers(smollm):
    model, tokenizer = models.load_policy(smollm, "float32")
    sampling = models.Sampling(6)
    plain = models.sample(model, tokenizer, ASKED, sampling)
    vllm = models.Sampling(6, vllm=ENGINE)
    assert models.sample(model, tokenizer, ASKED, vllm) == plain


def test_samples_of_a_prompt_differ_and_an_adapter_is_used(smollm, tmp_path):
    import torch
    from peft import LoraConfig, get_peft_model

    base, tokenizer = models.load_policy(smollm, "float32")
    model = get_peft_model(base, LoraConfig(r=8, target_modules="all-linear"))
    torch.manual_seed(0)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)  # an adapter far from the base
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    tuned, tokenizer = models.load_policy(str(tmp_path), "float32")
    hot = models.Sampling(6, temperature=1.0, vllm=ENGINE)
    drawn = models.sample(tuned, tokenizer, ASKED[:1], hot, n=8)
    assert len(drawn[0]) == 8 and len(set(drawn[0])) > 1
    greedy = models.Sampling(6, vllm=ENGINE)
    plain = models.sample(tuned, tokenizer, ASKED, models.Sampling(6))
    assert models.sample(tuned, tokenizer, ASKED, greedy) == plain
