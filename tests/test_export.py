"""A run's model answers elsewhere as it did in evaluation, by transformers alone."""

import json
import re
import shutil

import pytest
import torch
from small_tokenizers import byte_level

from factkit import prompts
from factkit.answers import short_form
from factkit.data import assets
from factkit.data.examples import Example
from factkit.policy import models
from factkit.policy.chat_template import FIELDS, make_chat_template
from factkit.policy.policy import load_policy
from factkit.report import export
from factkit.run import params, results
from factkit.run.failures import UserError
from factkit.run.params import ROOT
from factkit.verify.outcome import Outcome

EXAMPLES = [
    Example(
        id=f"q{i}",
        question=question,
        answers=["x"],
        entity=f"e{i}",
        meta={"references": f"{question}\nThe answer is {i}."},
    )
    for i, question in enumerate(
        [
            "Who wrote Ulysses?",
            'What is a "quoted" word?',
            "Где Москва?",
            "7 + 8 = {a}?",
        ]
    )
]


def parameters(**values):
    """Parameters of a run, of few and short answers."""
    return params.load("truthrl", "tiny", {"max_completion_length": 8, **values})


def small_llama(folder, seed=0, lora=False, base=""):
    """A random Llama in a folder, or an adapter on the one in `base`."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    if lora:
        model = AutoModelForCausalLM.from_pretrained(base)
        config = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
        config.init_lora_weights = False  # else it changes nothing
        model = get_peft_model(model, config)
        tokenizer = models.load_tokenizer(str(base))
    else:
        tokenizer = byte_level(eos_token="<|endoftext|>")
        sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
        config = LlamaConfig(
            vocab_size=len(tokenizer), num_attention_heads=2, **sizes, eos_token_id=None
        )
        model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def finished_run(root, p, arm="ternary", **metrics):
    """The folder of a run with results, whose model is still to be put there."""
    folder = root / "outputs" / p.profile / "12_truthrl_train" / f"{arm}-s0"
    folder.mkdir(parents=True)
    items = {f"q{i}": {"truthfulness": float(i % 2)} for i in range(4)}
    metrics = {"truthfulness": 0.5, "before_truthfulness": 0.25, **metrics}
    results.write_items(folder, {"arm": arm, "seed": 0}, metrics, items)
    texts = dict.fromkeys(("started", "device", "git"), "")
    results.write_results(
        folder,
        texts
        | {
            "schema": 1,
            "notebook": "12_truthrl_train",
            "paper": "truthrl",
            "profile": p.profile,
            "variant": "",
            "arm": arm,
            "seed": 0,
            "status": "done",
            "params": p.model_dump(),
            "inputs": {},
            "metrics": metrics,
            "wall_s": 1.0,
            "versions": {},
            "deviations": ["batch size: 128; the paper: 64"],
        },
    )
    return folder


def evaluated(model, p, path, examples=EXAMPLES):
    """What evaluation stores: the policy's answers."""
    rows = short_form.answer(
        load_policy(str(model), p),
        examples,
        path,
        lambda t, *_: [Outcome.WRONG] * len(t),
    )
    return [row.response for row in rows]


def answers_elsewhere(folder, base=None, examples=EXAMPLES, dtype="float32"):
    """The answers by transformers' pipeline, as the card says."""
    from peft import PeftModel
    from transformers import (
        AutoModelForCausalLM,
        AutoTokenizer,
        GenerationConfig,
        pipeline,
    )

    if base:
        model = AutoModelForCausalLM.from_pretrained(base, dtype=dtype)
        model = PeftModel.from_pretrained(model, folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        answer = pipeline("text-generation", model=model, tokenizer=tokenizer)
    else:
        answer = pipeline("text-generation", str(folder), dtype=dtype)
    texts = []
    for example in examples:
        references = example.meta["references"].split("\n")
        (reply,) = answer(
            [{"role": "user", "content": example.question}],
            documents=[{"text": text} for text in references],
            return_full_text=False,
            clean_up_tokenization_spaces=False,
            generation_config=GenerationConfig.from_pretrained(folder),
        )
        texts.append(reply["generated_text"].strip())
    return texts


@pytest.mark.parametrize("template", ["short_form", "short_form_references"])
def test_whole_weights_answer_elsewhere_as_in_evaluation(tmp_path, template):
    p = parameters(prompt_template=template)
    run = finished_run(tmp_path, p)
    small_llama(run / "model")
    expected = evaluated(run / "model", p, tmp_path / "answers.jsonl")
    export.write_model(export.read_run(run), tmp_path / "new" / "elsewhere")
    shutil.rmtree(run)
    elsewhere = tmp_path / "moved"
    (tmp_path / "new" / "elsewhere").rename(elsewhere)
    assert answers_elsewhere(elsewhere) == expected
    assert len(set(expected)) > 1
    assert str(tmp_path) not in "".join(
        path.read_text("utf-8") for path in elsewhere.glob("*.[jm]*")
    )


@pytest.mark.parametrize("merge", [False, True])
def test_an_adapter_on_a_local_base_takes_it_along_or_is_merged(tmp_path, merge):
    p = parameters()
    run, base = finished_run(tmp_path, p), tmp_path / "start"
    small_llama(base)
    small_llama(run / "model", seed=1, lora=True, base=base)
    expected = evaluated(run / "model", p, tmp_path / "answers.jsonl")
    assert expected != evaluated(base, p, tmp_path / "base.jsonl")
    export.write_model(export.read_run(run), tmp_path / "elsewhere", merge)
    shutil.rmtree(run)
    shutil.rmtree(base)
    elsewhere = tmp_path / "moved"
    (tmp_path / "elsewhere").rename(elsewhere)
    of_base = None if merge else elsewhere / "base"
    assert answers_elsewhere(elsewhere, of_base) == expected
    assert evaluated(elsewhere, p, tmp_path / "again.jsonl") == expected
    if not merge:
        with pytest.raises(UserError, match="--merge"):
            export.push(elsewhere, "owner/name", "model")


def test_an_adapter_on_a_model_of_the_hub_keeps_its_name(tmp_path, monkeypatch):
    monkeypatch.setenv("FACTKIT_HUB", str(tmp_path / "hub"))
    base = tmp_path / "hub" / "owner" / "model"
    small_llama(base)
    p = parameters(policy="owner/model")
    run = finished_run(tmp_path, p)
    small_llama(run / "model", seed=1, lora=True, base=base)
    export.write_model(export.read_run(run), tmp_path / "elsewhere")
    config = json.loads(
        (tmp_path / "elsewhere" / "adapter_config.json").read_text("utf-8")
    )
    assert config["base_model_name_or_path"] == "owner/model"
    assert not (tmp_path / "elsewhere" / "base").exists()
    card = (tmp_path / "elsewhere" / "README.md").read_text("utf-8")
    assert "base_model: owner/model" in card
    assert 'from_pretrained("owner/model", dtype="float32", use_saf' in card


def test_the_policy_that_was_evaluated_is_exported(tmp_path):
    run = finished_run(tmp_path, parameters(), kept_step=30)
    for name in ("model", "model-30", "model-60"):
        small_llama(run / name)
    assert export.model_folder(export.read_run(run)) == run / "model-30"
    other = finished_run(tmp_path, parameters(), "iterative_dpo")
    for i in (2, 10, 9):
        small_llama(other / f"iteration-{i}" / "model")
    assert export.model_folder(export.read_run(other)).parent.name == "iteration-10"


def test_what_can_t_be_exported_is_refused_with_the_reason(tmp_path):
    p = parameters()
    run = finished_run(tmp_path, p, "prompting")
    with pytest.raises(UserError, match="its policy is tiny-world"):
        export.write_model(export.read_run(run), tmp_path / "elsewhere")
    with pytest.raises(UserError, match="no rows"):
        export.write_data(export.read_run(run), tmp_path / "elsewhere")
    small_llama(run / "model")
    with pytest.raises(UserError, match="not empty"):
        export.write_model(export.read_run(run), run)
    with pytest.raises(UserError, match="no finished run"):
        export.read_run(tmp_path)
    base = tmp_path / "start"
    small_llama(base)
    shutil.rmtree(run / "model")
    small_llama(run / "model", lora=True, base=base)
    shutil.rmtree(base)
    with pytest.raises(UserError, match="is gone"):
        export.write_model(export.read_run(run), tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere").exists()


def test_the_card_has_scores_deviations_licence_and_lines_to_load_it(tmp_path):
    from huggingface_hub import ModelCard

    run = finished_run(tmp_path, parameters())
    small_llama(run / "model")
    export.write_model(export.read_run(run), tmp_path / "elsewhere")
    card = ModelCard.load(tmp_path / "elsewhere" / "README.md")
    assert card.data.license == "apache-2.0"
    assert "| `truthfulness` | 25.0 | 50.0 ± 91.9 |" in card.text
    for part in ("- batch size: 128; the paper: 64", "vllm serve", 'stop=["\\n"]'):
        assert part in card.text
    assert "{" not in card.text.replace('{"', "")  # each field is filled in


def test_rows_become_a_data_set_that_datasets_loads(tmp_path):
    from datasets import load_dataset

    run = finished_run(tmp_path, parameters())
    (run / "samples.jsonl").write_text('{"question": "a", "outcome": null}\n', "utf-8")
    found = json.loads((run / "results.json").read_text("utf-8"))
    (run / "results.json").unlink()
    results.write_results(run, found)
    export.write_data(export.read_run(run), tmp_path / "data")
    rows = load_dataset(
        str(tmp_path / "data"), "samples", split="train", cache_dir=str(tmp_path / "c")
    )
    assert rows[0]["question"] == "a"


def test_push_creates_a_private_repository_and_uploads_the_folder(
    tmp_path, monkeypatch
):
    import huggingface_hub

    calls = []

    class Hub:
        def create_repo(self, name, **options):
            calls.append((name, options["repo_type"], options["private"]))
            return f"https://huggingface.co/{name}"

        def upload_folder(self, folder_path, repo_id, repo_type):
            calls.append((folder_path, repo_id, repo_type))

    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    assert export.push(tmp_path, "owner/name", "model").endswith("owner/name")
    assert calls == [("owner/name", "model", True), (tmp_path, "owner/name", "model")]


@pytest.mark.assets
def test_the_chat_template_makes_each_prompt_as_training_does():
    tokenizer = models.load_tokenizer(assets.policy_path("smollm2-135m-instruct"))
    example, failing, tried = EXAMPLES[1], [], 0
    question = [{"role": "user", "content": example.question}]
    documents = [{"text": t} for t in example.meta["references"].split("\n")]
    for path in (ROOT / "factkit" / "prompts").glob("*.txt"):
        text = prompts.template(path.stem)
        fields = set(re.findall(r"\{([a-z_]+)\}", text)) - {"twice"}
        if fields - FIELDS.keys() or not fields & {"question", "claim"}:
            continue  # of judges
        for chat in (False, True):
            expected = prompts.ask(text.replace("{claim}", "{question}"), example)
            if chat:
                (expected,) = models.apply_chat_template(tokenizer, [expected])
            tried += 1
            made = tokenizer.apply_chat_template(
                question,
                chat_template=make_chat_template(text, chat, tokenizer),
                documents=documents,
                tokenize=False,
                add_generation_prompt=True,
            )
            failing += [path.stem] * (made != expected)
    assert failing == [] and tried > 12


@pytest.mark.assets
@pytest.mark.slow
def test_smollm2_with_an_adapter_answers_elsewhere_as_in_evaluation(tmp_path):
    base = assets.policy_path("smollm2-135m-instruct")
    p = params.load("truthrl", "laptop", {"dtype": "float32"})
    run = finished_run(tmp_path, p)
    small_llama(run / "model", lora=True, base=base)
    expected = evaluated(run / "model", p, tmp_path / "answers.jsonl")
    export.write_model(export.read_run(run), tmp_path / "elsewhere")
    shutil.rmtree(run)
    assert evaluated(tmp_path / "elsewhere", p, tmp_path / "again.jsonl") == expected
    assert (
        answers_elsewhere(tmp_path / "elsewhere", tmp_path / "elsewhere/base")
        == expected
    )
