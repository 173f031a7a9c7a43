"""The driver of `make gpu-check`: sizes, order, time limits, exit status."""

import importlib.util
import json
import time
from argparse import Namespace

import pytest
import yaml

from factkit.params import ROOT

FILE = ROOT / "tests" / "gpu" / "check.py"
JOBS = """
import json, sys, time
part = sys.argv[sys.argv.index("--job") + 1]
if part == "speed":
    open(sys.argv[1], "w").write(json.dumps({"status": "done"}))
elif part == "memory":
    time.sleep(60)
else:
    sys.exit("no such thing")
"""


@pytest.fixture(scope="module")
def check():
    spec = importlib.util.spec_from_file_location("check", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def given(tmp_path):
    (tmp_path / "jobs").mkdir()
    overlay = yaml.safe_load(FILE.with_name("overlay.yaml").read_text("utf-8"))
    sizes = {"out": tmp_path, "profile": "laptop", "steps": 0, "minutes": 25}
    return Namespace(overlay=overlay, **sizes)


def test_every_job_has_parameters_that_its_paper_takes(check, given):
    given.steps = 2
    policy = given.out / "memory" / "policy"
    policy.mkdir(parents=True)
    for file in ("config.json", "model.safetensors"):
        (policy / file).touch()
    for given.profile in ("tiny", "laptop"):
        for job in sum(check.stages(check.PARTS), []):
            p = job.params(given)
            assert p.rl_steps == 2 and p.output_dir == str(given.out)
            assert p.rollouts == ("transformers", "vllm_colocate")[job.part != "data"]
            assert p.lora_backend == ("peft", "unsloth")[job.part == "lora"]
            assert (p.lora_rank > 0) == (job.part in ("lora", "memory"))
    known = {
        *check.PARTS,
        "all",
        "tiny",
        "tiny-veri",
        "data",
        *(paper for paper, _ in check.ARMS),
    }
    assert given.overlay.keys() <= known


def test_a_training_stops_before_its_evaluation(check):
    for paper in dict(check.ARMS):
        path = check.Job("grpo", paper).notebook()
        cells = check.to_training(json.loads(path.read_text("utf-8"))["cells"])
        text = "\n".join("".join(cell["source"]) for cell in cells)
        assert "params.check(" in text and "finish(" not in text
        assert text.count("training.train_arm(") == 1


def test_parts_have_the_data_that_they_need(check):
    assert check.stages(["speed"]) == [[check.Job("speed")]]
    assert check.stages(["lora"]) == [[check.Job("data")], [check.Job("lora")]]
    data, *rest = check.stages(check.PARTS)
    assert len(data) == 5 and all(len(stage) == 1 for stage in rest)
    assert len(rest) == 3 + 2 * len(check.ARMS)


def test_a_failed_and_a_slow_job_stop_no_other(check, given, monkeypatch):
    jobs = [check.Job(part) for part in ("lora", "memory", "speed")]
    script = given.out / "jobs.py"
    script.write_text(JOBS, "utf-8")
    monkeypatch.setattr(check, "__file__", str(script))
    done = jobs[2].file(given, "json")
    monkeypatch.setattr(check.sys, "argv", ["check.py", str(done)])
    start = time.monotonic()
    check.run(jobs, given, start + 2)
    assert time.monotonic() - start < 50  # the slow one was ended
    failed, slow, fine = (job.state(given) for job in jobs)
    assert failed["status"] == "failed" and "no such thing" in failed["error"]
    assert slow["status"] == "time ran out"
    assert fine["status"] == "done"
    assert check.report(jobs, given) == 1
    assert (given.out / "summary.png").stat().st_size > 0


def test_the_exit_status_says_what_is_missing(check, given):
    job = check.Job("speed")
    job.state(given, status="done")
    assert check.report([job], given) == 0
    job.state(given, step_ratio=1.2)
    assert check.report([job], given) == 0  # without a GPU it says nothing
    job.state(given, smi_gb=30.0)
    assert check.report([job], given) == 3
    assert check.report([job, check.Job("memory")], given) == 2
    jobs = json.loads((given.out / "summary.json").read_text("utf-8"))["jobs"]
    assert jobs["memory truthrl ternary"] == {"status": "not reached"}


def test_a_training_that_was_cut_off_shows_its_last_checkpoint(check, given):
    job = check.Job("grpo")
    folder = given.out / "laptop" / "12_truthrl_train" / "ternary-s0"
    log = [
        {"step": n, "loss": 0.0, "reward": n / 20, "step_time": 0.5}
        for n in range(1, 21)
    ]
    for steps in (10, 20):
        path = folder / "checkpoint" / f"checkpoint-{steps}" / "trainer_state.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"log_history": log[:steps]}), "utf-8")
    known = check.found(job, given)
    assert (known["steps"], known["kit_step_s"]) == (20, 0.5)
    assert known["first_reward"] == pytest.approx(0.075)
    assert known["last_reward"] == pytest.approx(0.975)
    assert 20 < known["doctor_gb"] < 40  # of which 24 are the engine's
