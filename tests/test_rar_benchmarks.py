"""lm-evaluation-harness: its arguments, its names, its results, a run, and resuming."""

import json

import pytest

from factkit.papers.rar import benchmarks
from factkit.papers.rar.arms import RUN_CODE
from factkit.papers.rar.benchmarks import BenchmarkError, lengths, read_scores
from factkit.run import params

FAKE = """
import json, os, pathlib, sys
path = pathlib.Path(sys.argv[sys.argv.index("--config") + 1])
settings = json.loads(path.read_text())
folder = pathlib.Path(settings["output_path"])
calls = folder / "calls.json"
seen = json.loads(calls.read_text()) if calls.exists() else []
allowed = os.environ.get("HF_ALLOW_CODE_EVAL")
if "TQDM_DISABLE" in os.environ:  # vLLM's generate divides by zero then
    sys.exit(4)
calls.write_text(json.dumps([*seen, [settings["tasks"], allowed]]))
if "aime25" in settings["tasks"]:
    sys.exit(3)
metrics = {"gsm8k": "exact_match,flexible-extract", "mbpp_instruct":
    "pass_at_1,extract_code", "gpqa_main_cot_zeroshot": "exact_match,flexible-extract",
    "ifeval": "prompt_level_strict_acc,none"}
results = {t: {metrics[t]: 0.5} for t in settings["tasks"] if t in metrics}
path = folder / f"results_{len(seen)}.json"
path.write_text(json.dumps({"results": results}))
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs benchmarks by a package lm_eval that writes 0.5, and tells its calls."""
    package = tmp_path / "site" / "lm_eval"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("", "utf-8")
    (package / "__main__.py").write_text(FAKE, "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setenv("TQDM_DISABLE", "1")  # as in a sweep without a terminal
    folder = tmp_path / "out"

    def run_named(names):
        settings = benchmarks.model_settings("m", load(names))
        found = benchmarks.run(names.split(), settings, folder)
        return found, json.loads((folder / "calls.json").read_text("utf-8"))

    return run_named


def arguments(policy, names, p, folder):
    settings = benchmarks.model_settings(policy, p)
    return benchmarks.harness_config(names, settings, folder)


def load(names="gsm8k", **values):
    return params.load(
        "rar", "tiny", {"utility_benchmarks": names, "allow_code": True} | values
    )


def test_ifeval_is_what_the_claim_on_instructions_is_judged_by(run):
    found, _ = run("ifeval")
    assert found == {"ifeval": found["ifeval"], "format_following": found["ifeval"]}


def test_benchmarks_are_checked_before_anything_runs():
    for names, problem in [
        ("gsm8k mmlu", "there are best_guess"),
        ("", "there are best_guess"),
        *((name, f"{name} runs code.*allow_code=true") for name in RUN_CODE),
    ]:
        with pytest.raises(params.ParamError, match=problem):
            load(names, allow_code=False)


def test_the_configuration_names_tasks_model_and_chat(tmp_path):
    p = load()
    settings = arguments("org/m", ["gsm8k", "bbh"], p, tmp_path)
    assert settings["tasks"] == ["gsm8k", "bbh_cot_fewshot"]
    assert settings["model"] == "hf"
    assert settings["model_args"] == {
        "pretrained": "org/m",
        "dtype": "auto",
        "think_end_token": "</think>",
        "max_length": p.max_context_length,
    }
    assert settings["gen_kwargs"] == {"max_gen_toks": p.max_completion_length}
    assert settings["apply_chat_template"] is True
    assert settings["trust_remote_code"] is settings["confirm_run_unsafe_code"] is False


def test_a_policy_that_reasons_has_its_own_length_in_evaluation(tmp_path):
    p = load(evaluation_tokens=5_000)
    settings = arguments("m", ["gsm8k"], p, tmp_path)
    room = p.max_context_length - p.max_completion_length
    assert settings["gen_kwargs"] == {"max_gen_toks": 5_000}
    assert settings["model_args"]["max_length"] == 5_000 + room
    # the log of what is measured has the reasoning, and is cut nowhere
    alone = arguments("m", ["aime25"], p, tmp_path)
    assert alone["gen_kwargs"] == {"max_gen_toks": 5_000, "until": []}
    assert "think_end_token" not in alone["model_args"]


@pytest.mark.assets
def test_the_lengths_of_reasoning_and_answer_are_those_of_the_log(tmp_path):
    policy = "smollm2-135m-instruct"
    assert lengths(policy, tmp_path) == {}
    texts = ["<think> one two three </think> four five", "<think> one two three four"]
    log = "".join(json.dumps({"resps": [[text]]}) + "\n" for text in texts)
    (tmp_path / "samples_aime25_2026.jsonl").write_text(log, "utf-8")
    told = lengths(policy, tmp_path)  # a word of these is a token
    assert told == {"aime25_reasoning_tokens": 3.5, "aime25_response_tokens": 1.0}


def test_an_adapter_is_loaded_on_its_base(tmp_path):
    config = {"base_model_name_or_path": "org/base", "r": 32}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config), "utf-8")
    folder = str(tmp_path)
    for rollouts, expected in (
        ("vllm_colocate", {"lora_local_path": folder, "max_lora_rank": 32}),
        ("transformers", {"peft": folder}),
    ):
        settings = arguments(folder, ["gsm8k"], load(rollouts=rollouts), tmp_path)
        assert settings["model_args"].items() >= expected.items()
        assert settings["model_args"]["pretrained"] == "org/base"


def test_code_runs_in_a_container_alone(tmp_path, monkeypatch):
    for name in RUN_CODE:
        monkeypatch.setattr(benchmarks, "in_container", lambda: False)
        with pytest.raises(BenchmarkError, match=f"{name}: runs code .* no container"):
            arguments("m", [name], load(), tmp_path)
        monkeypatch.setattr(benchmarks, "in_container", lambda: True)
        settings = arguments("m", [name], load(), tmp_path)
        assert settings["confirm_run_unsafe_code"] is True


def test_the_latest_results_count_and_damaged_ones_are_refused(tmp_path):
    def write(number, content):
        (tmp_path / f"results_{number}.json").write_text(content, "utf-8")

    for number, value in ((1, 0.25), (2, 0.5)):
        results = {"gsm8k": {"exact_match,flexible-extract": value}, "other": {}}
        write(number, json.dumps({"results": results}))
    assert read_scores(tmp_path) == {"gsm8k": 0.5}
    for content in ("{", "[]", '{"results": {"gsm8k": {"exact_match,strict": 0.1}}}'):
        write(3, content)
        with pytest.raises(BenchmarkError, match=r"results_3\.json.*remove the file"):
            read_scores(tmp_path)


def test_a_run_asks_only_for_what_the_folder_lacks(run):
    assert run("gsm8k win_rate")[0] == {"gsm8k": 0.5}
    found, calls = run("gsm8k gpqa")
    assert found == {"gsm8k": 0.5, "gpqa": 0.5}
    assert calls == [[["gsm8k"], "0"], [["gpqa_main_cot_zeroshot"], "0"]]


def test_code_is_allowed_to_lm_eval_only_where_it_is_to_us(run, monkeypatch):
    monkeypatch.setenv("HF_ALLOW_CODE_EVAL", "1")
    monkeypatch.setattr(benchmarks, "in_container", lambda: True)
    run("gsm8k")
    assert [allowed for _, allowed in run("mbpp")[1]] == ["0", "1"]


def test_a_failing_harness_is_an_error_and_so_is_a_result_that_is_missing(run):
    with pytest.raises(BenchmarkError, match="exit code 3"):
        run("aime25")
    with pytest.raises(BenchmarkError, match="no score of bbh"):
        run("bbh")
