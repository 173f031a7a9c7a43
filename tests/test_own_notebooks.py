"""Notebooks 70 to 72: a user's own questions from the file to the report."""

import re

import pytest
from small_tokenizers import of_words
from test_notebooks import run_here
from tokenizers import pre_tokenizers

from factkit.run import params, sweeps
from factkit.run.params import ROOT
from factkit.run.results import read_results

EXAMPLE = ROOT / "notebooks" / "own_example"
SMALL = {
    "dtype": "float32",
    "train_questions": 28,
    "dev_questions": 14,
    "test_questions": 28,
    "comparison_questions": 1,
    "probe_samples": 4,
    "max_completion_length": 4,
    "lora_rank": 0,
    "sft_learning_rate": 5.0e-3,
    "sft_epochs": 2,
    "rl_steps": 2,
    "rl_batch_size": 16,
    "num_generations": 4,
}


@pytest.fixture(scope="module")
def values(tmp_path_factory):
    """What papermill injects: the example's files, small sizes and a random policy of
    the example's words."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("policy")
    paths = [EXAMPLE / "questions.csv", *EXAMPLE.glob("documents/*.md")]
    text = " ".join(path.read_text("utf-8") for path in paths)
    text += " References: Question: Answer: I don't know"
    splitter = pre_tokenizers.Whitespace()
    words = dict.fromkeys(re.findall(r"\w+|[^\w\s]+", text))
    special = {"unk_token": "?unk", "eos_token": "</s>", "pad_token": "</s>"}
    tokenizer = of_words("?unk", "</s>", *words, splitter=splitter, **special)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    config = LlamaConfig(vocab_size=len(tokenizer), eos_token_id=1, **sizes, **heads)
    LlamaForCausalLM(config).save_pretrained(folder)
    files = params.files_of("truthrl", "laptop", "own")
    own = [params.read_yaml(path) for path in files]
    return own[0] | own[1] | SMALL | {"policy": str(folder)}


@pytest.fixture
def launched(values, tmp_path, monkeypatch):
    """The runs that the notebooks start; here in this process, not by Snakemake."""
    done = []

    def run(sweep, targets, label):
        for target in targets:
            arm = (ROOT / target).parent.name.removesuffix("-s0")
            data = tmp_path / "laptop-own" / "10_truthrl_data" / "main-s0"
            if not read_results(data):
                run_here("10_truthrl_data", tmp_path, **values)
            if not read_results(data.parents[1] / "12_truthrl_train" / f"{arm}-s0"):
                run_here("12_truthrl_train", tmp_path, **values, **{"arm": arm})
                done.append(arm)

    monkeypatch.setattr(sweeps.Sweep, "run", run)
    return done


@pytest.mark.notebook
def test_the_notebooks_train_on_the_example_and_report(values, launched, tmp_path):
    folder = tmp_path / "laptop-own"
    run_here("70_own_data", tmp_path, **values)
    known = read_results(folder / "70_own_data" / "main-s0")["metrics"]
    kinds = ("out_of_knowledge", "sometimes_right", "always_right")
    assert sum(known.get(kind, 0) for kind in kinds) == pytest.approx(1)
    run_here("71_own_train", tmp_path, **values)
    assert launched == ["prompting", "r_tuning", "ternary"]
    run_here("71_own_train", tmp_path, **values | {"arm": "r_tuning"})
    assert len(launched) == 3  # it is done
    for arm in launched[1:]:
        run, gain = (
            read_results(folder / stem / f"{arm}-s0")["metrics"]
            for stem in ("12_truthrl_train", "71_own_train")
        )
        assert gain["truthfulness"] == run["truthfulness"]
        assert gain["gain_truthfulness"] == pytest.approx(run["gain_truthfulness"])
    run_here("72_own_report", tmp_path, **values)
    report = read_results(folder / "72_own_report" / "main-s0")["metrics"]
    assert {f"{arm}_accuracy" for arm in launched} <= report.keys()
