"""The driver of `make gpu-check`: sizes, order, time limits, what counts as proved."""

import importlib
import json
import time
from argparse import Namespace

import pytest
import yaml
from small_tokenizers import of_words

from factkit.run import params
from factkit.run.params import ROOT

FOLDER = ROOT / "tests" / "gpu"
JOBS = """
import json, sys, time
part = sys.argv[sys.argv.index("--job") + 1]
if part == "sleep":
    open(sys.argv[1], "w").write(json.dumps({"status": "proved"}))
elif part == "zero3":
    time.sleep(60)
else:
    sys.exit("no such thing")
"""


@pytest.fixture
def check(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("check")


@pytest.fixture
def on_policy(check):
    return importlib.import_module("on_policy")


@pytest.fixture
def given(tmp_path):
    (tmp_path / "jobs").mkdir()
    overlay = yaml.safe_load((FOLDER / "overlay.yaml").read_text("utf-8"))
    return Namespace(overlay=overlay, out=tmp_path, profile="laptop", minutes=25)


@pytest.mark.parametrize("gpus", [2, 3, 8])
def test_every_job_has_parameters_that_its_paper_takes(gpus, check, given, monkeypatch):
    monkeypatch.setattr(check, "devices", lambda: gpus)
    for given.profile in ("tiny", "laptop"):
        for job in sum(check.stages(check.PARTS), []):
            if check.lacks(job).startswith("it takes"):
                assert (job.part, gpus) == ("zero3_tp2", 3)
                continue
            p, part = job.params(given), job.part
            assert p.output_dir == str(given.out)
            assert p.rollouts == ("transformers", "vllm_colocate")[part != "data"]
            adapted = part in ("lora", "shipped")
            assert p.lora_backend == ("peft", "unsloth")[adapted]
            assert (p.lora_rank > 0) == adapted
            assert p.num_processes == (gpus if part.startswith("zero3") else 1)
            if part not in (
                "data",
                "papers",
                "evaluate",
            ):  # the policy of each rollout is kept
                assert p.kept_steps == [*range(1, p.rl_steps + 1)]


def test_the_shipped_file_is_changed_in_its_steps_alone(check, given):
    ((job,),) = check.stages(["shipped"])
    own, shipped = job.params(given), params.load("rar", "h100_lora")
    differing = {key for key, value in own if value != getattr(shipped, key)}
    assert differing == {"rl_steps", "output_dir"}
    assert own.policy == "Qwen/Qwen3-8B"


def test_a_training_stops_before_its_evaluation(check):
    for paper in dict(check.ARMS):
        path = check.Job("papers", paper).notebook()
        cells = check.to_training(json.loads(path.read_text("utf-8"))["cells"])
        text = "\n".join("".join(cell["source"]) for cell in cells)
        assert "params.check(" in text and "finish(" not in text
        assert text.count("training.train_arm(") == 1


def test_the_papers_alone_need_data(check):
    assert check.stages(["sleep"]) == [[check.Job("sleep")]]
    data, *rest = check.stages(["papers"])
    assert len(data) == 5 and [job.part for job in data] == ["data"] * 5
    assert rest == [[check.Job("papers", *arm)] for arm in check.ARMS]
    assert check.stages(["evaluate"]) == [[check.Job("data")], [check.Job("evaluate")]]
    assert len(check.stages(check.PARTS)) == 5 + 1 + len(check.ARMS) + 1


def test_a_failed_and_a_slow_job_stop_no_other(check, given, monkeypatch):
    jobs = [check.Job(part) for part in ("lora", "zero3", "sleep")]
    script = given.out / "jobs.py"
    script.write_text(JOBS, "utf-8")
    monkeypatch.setattr(check, "__file__", str(script))
    done = jobs[2].file(given, "json")
    monkeypatch.setattr(check.sys, "argv", ["check.py", str(done)])
    monkeypatch.setattr(check, "MINUTES", {"zero3": 2 / 60})
    start = time.monotonic()
    check.run(jobs, given, start + 1000)
    assert time.monotonic() - start < 50  # the slow one was ended
    failed, slow, fine = (job.state(given) for job in jobs)
    assert failed["status"] == "failed" and "no such thing" in failed["error"]
    assert slow["status"].startswith("failed: not done in")
    assert fine["status"] == "proved"
    assert check.report(jobs, given) == 1
    check.run(jobs[1:2], given, time.monotonic() + 1)
    assert jobs[1].state(given)["status"] == check.LATE


def test_what_did_not_run_is_not_counted_as_proved(check, given, capsys):
    sleep, zero3, lora = (check.Job(part) for part in ("sleep", "zero3", "lora"))
    sleep.state(given, status="proved", off_policy=0.02)
    assert check.report([sleep], given) == 0
    zero3.state(given, status=check.LACKS + "it takes two GPUs")
    assert check.report([sleep, zero3], given) == 3
    assert check.report([sleep, zero3, lora], given) == 2
    lora.state(given, status="failed", error="Traceback\nAssertionError: far off")
    assert check.report([sleep, zero3, lora], given) == 1
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "sleep truthrl ternary: proved, off_policy 0.02",
        "zero3 truthrl ternary: not run: it takes two GPUs",
        "lora truthrl ternary: failed, AssertionError: far off",
    ]


def test_another_policys_rollouts_and_an_engine_awake_are_found_out(
    on_policy, tmp_path
):
    """Two policies; the log-probabilities of one of them."""
    from transformers import LlamaConfig, LlamaForCausalLM, set_seed

    words = of_words("<end>", *"abcdefg", eos_token="<end>", pad_token="<end>")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 1, "initializer_range": 1.0}
    for name in ("updated", "before"):
        set_seed(len(name))
        model = LlamaForCausalLM(LlamaConfig(vocab_size=8, **sizes))
        model.save_pretrained(tmp_path / name)
        words.save_pretrained(tmp_path / name)
    p = params.load("truthrl", "tiny")
    rows = [([1, 2], [3, 4, 5], [0.0] * 3)]
    rollout = {"rows": rows, "memory": [9.0, 1.0]}
    zero, other = (
        on_policy.distances(str(tmp_path / name), [rollout], p)[0]
        for name in ("updated", "before")
    )
    assert zero > 0.5 and abs(zero - other) > 0.01  # −log π, where the engine has 0
    good = {"off_policy": 0.02, "off_policy_before": 0.5}
    on_policy.refuse(good | {"engine_gb": 24.0, "freed_gb": 22.0}, "peft")
    for wrong in (
        {"off_policy": 0.4},
        {"off_policy_before": 0.03},
        {"engine_gb": 24.0, "freed_gb": 0.3},
    ):
        with pytest.raises(AssertionError):
            on_policy.refuse(good | wrong, "peft")
