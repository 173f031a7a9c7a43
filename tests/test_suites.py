"""lm-evaluation-harness: its arguments, its names, its results, a run, and resuming."""

import json
from functools import cache

import pytest

from factkit.rar import suites
from factkit.rar.suites import SUITES, Suite, SuiteError, arguments, scores

FAKE = """
import json, os, pathlib, sys
path = pathlib.Path(sys.argv[sys.argv.index("--config") + 1])
settings = json.loads(path.read_text())
folder = pathlib.Path(settings["output_path"])
calls = folder / "calls.json"
seen = json.loads(calls.read_text()) if calls.exists() else []
allowed = os.environ.get("HF_ALLOW_CODE_EVAL")
calls.write_text(json.dumps([*seen, [settings["tasks"], allowed]]))
if "aime25" in settings["tasks"]:
    sys.exit(3)
metrics = {"gsm8k": "exact_match,flexible-extract", "mbpp_instruct":
    "pass_at_1,extract_code", "gpqa_main_cot_zeroshot": "exact_match,flexible-extract"}
results = {t: {metrics[t]: 0.5} for t in settings["tasks"] if t in metrics}
out = folder / "model"
out.mkdir(exist_ok=True)
path = out / f"results_{len(seen)}.json"
path.write_text(json.dumps({"results": results}))
"""


@pytest.fixture
def fake_harness(tmp_path, monkeypatch):
    """A package lm_eval that writes 0.5 for what it is asked, and its calls."""
    package = tmp_path / "site" / "lm_eval"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(FAKE)
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    for name, suite in SUITES.items():
        monkeypatch.setitem(
            SUITES, name, Suite(suite.task, suite.metric, (), suite.runs_code)
        )
    return tmp_path / "out"


def calls(folder):
    return json.loads((folder / "calls.json").read_text())


def write_results(folder, name, **results):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"results_{name}.json").write_text(json.dumps({"results": results}))


# ---- arguments


def test_the_configuration_names_tasks_model_and_chat(tmp_path):
    found = arguments("org/m", ["gsm8k", "bbh"], tmp_path, limit=5, seed=3)
    assert found["tasks"] == ["gsm8k", "bbh_cot_fewshot"]
    assert found["model"] == "vllm"
    assert found["model_args"] == {"pretrained": "org/m", "dtype": "auto"}
    assert found["apply_chat_template"] is True
    assert found["trust_remote_code"] is False
    assert found["confirm_run_unsafe_code"] is False
    assert (found["limit"], found["seed"]) == (5, [3] * 4)


def test_an_adapter_is_loaded_on_its_base(tmp_path):
    config = {"base_model_name_or_path": "org/base", "r": 32}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    folder = str(tmp_path)
    for backend, expected in (
        ("vllm", {"lora_local_path": folder, "max_lora_rank": 32, "dtype": "auto"}),
        ("hf", {"peft": folder, "dtype": "float16"}),
    ):
        own = {} if backend == "vllm" else {"dtype": "float16"}  # goes before ours
        found = arguments(folder, ["gsm8k"], tmp_path, backend, own)["model_args"]
        assert found == {"pretrained": "org/base"} | expected


def test_an_unknown_suite_and_none_are_refused_with_those_known(tmp_path):
    for names in (["gsm8k", "mmlu"], []):
        with pytest.raises(SuiteError, match="known are ifeval"):
            arguments("m", names, tmp_path)


def test_code_needs_the_explicit_switch_and_a_container(tmp_path, monkeypatch):
    for name in ("humaneval", "humaneval_plus", "mbpp", "mbpp_plus"):
        monkeypatch.setattr(suites, "in_container", lambda: False)
        with pytest.raises(SuiteError, match=f"{name}: runs code .* is no container"):
            arguments("m", [name], tmp_path, allow_code=True)
        monkeypatch.setattr(suites, "in_container", lambda: True)
        with pytest.raises(SuiteError, match=f"{name}: runs code .* allow_code=True"):
            arguments("m", ["gsm8k", name], tmp_path)
        found = arguments("m", [name], tmp_path, allow_code=True)
        assert found["confirm_run_unsafe_code"] is True


def test_a_missing_package_is_named_with_its_fix(tmp_path, monkeypatch):
    monkeypatch.setattr(suites, "find_spec", lambda name: None)
    with pytest.raises(
        SuiteError, match=r"langdetect, lm_eval.*pip install '\.\[gpu\]"
    ):
        suites.run("m", ["ifeval"], tmp_path)
    assert list(tmp_path.iterdir()) == []


# ---- results


def test_scores_are_flat_with_their_standard_errors(tmp_path):
    write_results(
        tmp_path / "org__m",
        "1",
        gsm8k={
            "alias": "gsm8k",
            "exact_match,strict-match": 0.1,
            "exact_match,flexible-extract": 0.25,
            "exact_match_stderr,flexible-extract": 0.02,
        },
        bbh_cot_fewshot={"exact_match,get-answer": 0.5},
        aime25={"exact_match,none": 0, "exact_match_stderr,none": "N/A"},
    )
    expected = {"gsm8k": 0.25, "gsm8k_stderr": 0.02, "bbh": 0.5, "aime25": 0.0}
    assert scores(tmp_path) == expected


def test_a_task_without_its_metric_and_a_damaged_file_are_refused(tmp_path):
    write_results(tmp_path / "a", "1", gsm8k={"exact_match,strict-match": 0.1})
    with pytest.raises(SuiteError, match="no number for 'exact_match,flexible"):
        scores(tmp_path)
    (tmp_path / "a" / "results_1.json").write_text("{")
    with pytest.raises(SuiteError, match="no results of lm-eval"):
        scores(tmp_path)


def test_lengths_tell_reasoning_from_response(tmp_path):
    class Words:
        def __call__(self, texts, add_special_tokens):
            return {"input_ids": [text.split() for text in texts]}

    said = ["<think>a b c</think> d e", "<think>a</think> b", "<think>a b c d e"]
    rows = [json.dumps({"resps": [[text]]}) for text in said]
    (tmp_path / "samples_aime25_1.jsonl").write_text("\n".join(rows) + "\n")
    assert suites.lengths(tmp_path, "aime25", Words()) == {
        "reasoning_tokens": (3 + 1 + 5) / 3,
        "response_tokens": (2 + 1 + 0) / 3,
    }
    with pytest.raises(SuiteError, match="no responses of gsm8k"):
        suites.lengths(tmp_path, "gsm8k", Words())


# ---- runs


def test_a_run_asks_only_for_what_the_folder_lacks(fake_harness):
    assert suites.run("m", ["gsm8k"], fake_harness) == {"gsm8k": 0.5}
    assert suites.run("m", ["gsm8k", "gpqa"], fake_harness) == {
        "gsm8k": 0.5,
        "gpqa": 0.5,
    }
    assert suites.run("m", ["gpqa"], fake_harness) == {"gpqa": 0.5}
    asked = [tasks for tasks, _ in calls(fake_harness)]
    assert asked == [["gsm8k"], ["gpqa_main_cot_zeroshot"]]


def test_code_is_allowed_to_lm_eval_only_where_it_is_to_us(fake_harness, monkeypatch):
    monkeypatch.setenv("HF_ALLOW_CODE_EVAL", "1")
    monkeypatch.setattr(suites, "in_container", lambda: True)
    suites.run("m", ["gsm8k"], fake_harness)
    suites.run("m", ["mbpp"], fake_harness, allow_code=True)
    assert [allowed for _, allowed in calls(fake_harness)] == [None, "1"]


def test_results_of_other_settings_are_not_taken_for_ours(fake_harness):
    suites.run("m", ["gsm8k"], fake_harness)
    with pytest.raises(SuiteError, match="another model_args, limit"):
        suites.run("other", ["gsm8k"], fake_harness, limit=3)


def test_a_failing_harness_is_an_error_and_so_is_a_result_that_is_missing(
    fake_harness,
):
    with pytest.raises(SuiteError, match="exit code 3"):
        suites.run("m", ["aime25"], fake_harness)
    with pytest.raises(SuiteError, match="no result of bbh"):
        suites.run("m", ["bbh"], fake_harness)


# ---- the real package


@cache
def task_index():
    """lm-eval's tasks; reading their thousands of files takes most of a minute."""
    from lm_eval.tasks import TaskManager

    return TaskManager().task_index


def configuration(task):
    """What lm-eval's files say of a task, with what they include."""
    pytest.importorskip("lm_eval", reason="lm-eval comes with the gpu extra")
    from lm_eval.tasks._yaml_loader import load_yaml

    return load_yaml(task_index()[task].yaml_path, resolve_func=False)


@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)
def test_lm_eval_has_each_task_with_its_metric_and_filter(suite):
    config = configuration(suite.task)
    metric, _, filtered = suite.metric.partition(",")
    if "group" in config:
        metrics = config["aggregate_metric_list"]
        filters = {m.get("filter_list", "none") for m in metrics}
    else:
        metrics = config["metric_list"]
        filters = {f["name"] for f in config.get("filter_list", [{"name": "none"}])}
    names = {m["metric"] if isinstance(m["metric"], str) else "" for m in metrics}
    ours = metric in names or suite.runs_code  # code metrics are functions
    assert ours and filtered in filters
    assert bool(config.get("unsafe_code")) == suite.runs_code


def test_lm_eval_runs_from_our_configuration_to_our_scores(tmp_path, monkeypatch):
    pytest.importorskip("lm_eval", reason="lm-eval comes with the gpu extra")
    save_tiny_model(tmp_path / "model")
    rows = [{"q": "a b", "a": "c"}, {"q": "b c", "a": "a"}]
    (tmp_path / "rows.json").write_text("\n".join(map(json.dumps, rows)))
    task = {
        "task": "ours",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(tmp_path / "rows.json")}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{q}}",
        "doc_to_target": "{{a}}",
        "generation_kwargs": {"until": ["."], "max_gen_toks": 4, "do_sample": False},
        "metric_list": [{"metric": "exact_match"}],
    }
    path = tmp_path / "ours.yaml"
    path.write_text(json.dumps(task))
    monkeypatch.setitem(SUITES, "ours", Suite("ours", "exact_match,none"))
    real = suites.arguments

    def with_our_task(*given, **options):
        return real(*given, **options) | {
            "include_path": str(tmp_path),
            "batch_size": 1,
        }

    monkeypatch.setattr(suites, "arguments", with_our_task)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    args = str(tmp_path / "model"), ["ours"], tmp_path / "out"
    options = {"backend": "hf", "model_args": {"dtype": "float32"}}
    found = suites.run(*args, **options)
    assert 0 <= found["ours"] <= 1
    assert suites.run(*args, **options) == found


def save_tiny_model(folder):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = ["<s>", "</s>", "<unk>", "a", "b", "c", "."]
    plain = Tokenizer(
        models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>")
    )
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="</s>",
        unk_token="<unk>",
    )
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    tokenizer.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
