"""The GPU profiles without a GPU: what they hand to TRL, DeepSpeed and accelerate.

Every parameter file makes its trainers' configurations (on the CPU: `trainer_arguments`
then sets use_cpu, and bf16 and DeepSpeed are left to the checks beside it). Two real
processes train on the CPU. What needs vLLM, DeepSpeed or Unsloth is in tests/with_vllm.
"""

import math
import os
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import pytest
from small_tokenizers import of_words

from factkit.gpu import memory as gpu_memory
from factkit.papers.rar import benchmarks
from factkit.papers.rar import train as train_rar
from factkit.papers.rlfh import token_trainer
from factkit.policy.policy import load_policy
from factkit.run import arms, child, params
from factkit.run.params import ROOT
from factkit.run.params.stages import DpoParams, SftParams, TokenLevelParams
from factkit.train import grpo, launch, offline, setup

GPU = ("h100_lora", "h100_full")
PAPERS = [name for name, x in arms.find_papers().items() if x.find_module("needs")]
FILES = {  # of every paper, profile and variant
    path: params.load(path.stem.split("-")[0], path.parent.name, {}, variant)
    for path in sorted(ROOT.glob("params/*/*.yaml"))
    if path.stem.split("-")[0] in PAPERS
    for variant in [path.stem.partition("-")[2]]
}


def load(profile="h100_lora", variant="", paper="truthrl", **values):
    return params.load(paper, profile, values, variant)


def rl_config(p, folder):
    """The configuration that p's paper hands to its RL trainer."""
    by_token = isinstance(p, TokenLevelParams)
    make = token_trainer.token_level_config if by_token else grpo.grpo_config
    return make(without_deepspeed(p), folder)


def without_deepspeed(p):
    """TrainingArguments refuse its configuration where DeepSpeed is not installed."""
    return p.model_copy(update={"deepspeed": ""})


def test_every_profile_makes_its_trainers_configurations(tmp_path):
    assert {(p.parent.name, p.stem) for p in FILES} >= set(product(GPU, PAPERS))
    for path, p in FILES.items():
        here = without_deepspeed(p)
        batches = {}
        if isinstance(p, SftParams):
            batches[offline.sft_config] = p.sft_batch_size
        if isinstance(p, DpoParams):
            batches[offline.dpo_config] = p.dpo_batch_size
        batches[rl_config] = p.rl_batch_size
        for make, total in batches.items():
            config = make(here, tmp_path)
            one_pass = config.per_device_train_batch_size * p.num_processes
            assert one_pass * config.gradient_accumulation_steps == total, path
            assert config.use_cpu and not config.bf16
            # grouped by length, an epoch of up to 50 updates is sorted by it
            assert config.train_sampling_strategy == "random", path
        # a rollout is the batches it trains on; TRL sees one process here
        passes = p.minibatches * config.gradient_accumulation_steps
        assert config.steps_per_generation == passes, path
        rollout = config.generation_batch_size * p.num_processes
        assert rollout == p.minibatches * p.rl_batch_size, path
        assert config.use_vllm == (p.rollouts != "transformers"), path
        assert not config.vllm_importance_sampling_correction, path
        if p.rollouts == "vllm_colocate":
            assert config.vllm_mode == "colocate", path
            assert config.vllm_enable_sleep_mode, path
            assert config.vllm_gpu_memory_utilization == p.vllm_memory
            assert config.vllm_max_model_length == p.max_context_length
            assert p.num_processes % p.vllm_tensor_parallel == 0
        adapter = setup.lora(p.lora_rank, p.lora_alpha)
        assert (adapter.r if adapter else 0) == p.lora_rank, path


def test_a_response_and_its_references_fit_the_context():
    for path, p in FILES.items():
        retrieves = path.stem.startswith("truthrl") and p.retriever
        references = p.retrieved_chunks * p.chunk_tokens if retrieves else 0
        assert references + p.max_completion_length < p.max_context_length, path
        if path.stem.startswith("veri"):
            assert p.longest <= p.max_context_length, path


def test_the_full_profiles_make_the_papers_updates(tmp_path):
    """Learning to Reason, App. B: SFT on 8 GPUs × 4 and DPO on 16 × 1 rows, GRPO on
    32 × 4 responses for one epoch of 4,000 requests, by Dr.GRPO's loss. RLFH's code:
    128 responses a rollout, gone through once, for one epoch of the questions.
    Veri-R1, Table 4: 256 claims a rollout, 3 trajectories each, in updates of 64."""
    p = load("h100_full", "", "reason")
    assert (p.sft_batch_size, p.dpo_batch_size, p.rl_batch_size) == (32, 16, 128)
    assert p.rl_steps * p.rl_batch_size == p.train_requests * 4 == 16_000
    config = rl_config(p, tmp_path)
    assert (config.loss_type, config.scale_rewards) == ("dr_grpo", "none")
    for variant, questions in (("", 20_000), ("qwen2.5-7b", 10_000)):
        p = load("h100_full", variant, "rlfh")
        assert p.rl_steps == questions // (p.rl_batch_size // p.num_generations)
        config = rl_config(p, tmp_path)
        assert (config.num_iterations, config.max_steps) == (1, p.rl_steps)
        assert (config.loss_type, config.scale_rewards) == ("bnpo", "none")
    p = load("h100_full", "", "veri")
    assert p.longest == p.max_context_length == 4864
    config = rl_config(p, tmp_path)
    assert config.generation_batch_size * p.num_processes == 256 * 3
    one_pass = config.per_device_train_batch_size * p.num_processes
    assert one_pass * config.gradient_accumulation_steps == 64 * 3
    assert config.save_steps % 4 == 0  # between rollouts
    assert config.max_steps == p.minibatches * round(10 * p.train_claims / 256)
    assert config.lr_scheduler_type == "constant_with_warmup"
    warm = config.get_warmup_steps(config.max_steps)
    assert warm == math.ceil(0.285 * config.max_steps)


def test_a_dense_veriscore_trains_for_half_the_updates(monkeypatch, tmp_path):
    """Binary RAR, App. C: 2,000 steps, but 1,000 for dense VeriScore rewards."""

    def trained(arm, profile="h100_full", **values):
        p = load(profile, "", "rar", arm=arm, **values)
        kept = train_rar.train_arm(p, "start", [], [], tmp_path)
        return [*kept], steps.pop()

    steps = []
    monkeypatch.setattr(grpo, "grpo", lambda *args: steps.append(args[-1].rl_steps))
    assert trained("binary_rar") == ([500, 1000, 1500, 2000], 2000)
    assert trained("binary_veriscore", "h100_lora")[1] == 2000
    assert trained("veriscore") == ([250, 500, 750, 1000], 1000)  # Fig 5's among them
    for arm in ("conflict_only_veriscore", "veriscore_plus_judge"):
        assert trained(arm, "h100_lora")[1] == 1000
    assert trained("veriscore", rl_steps=8) == ([2, 4, 6, 8], 8)
    assert trained("veriscore", "tiny", rl_steps=8)[1] == 8


def test_evaluation_takes_all_gpus_that_train(tmp_path):
    for path, p in FILES.items():
        if path.parent.name not in GPU:
            continue
        engines = load_policy(p.policy, p).engine
        of_each = engines.arguments["tensor_parallel_size"]
        assert engines.replicas * of_each == p.num_processes, path
        if path.stem.startswith("rar"):
            harness = benchmarks.model_settings(p.policy, p)
            of_each = harness["model_args"]["tensor_parallel_size"]
            assert of_each == p.num_processes, path
        heads = gpu_memory.SHAPES[p.policy].kv // 128  # whole ones a GPU
        assert heads % of_each == 0 or of_each == 1, path


def test_sft_takes_trl_s_chunked_loss_where_no_process_waits_for_another_s_chunks():
    for values, loss in (
        ({"lora_backend": "peft", "deepspeed": ""}, "chunked_nll"),
        ({"lora_backend": "unsloth", "deepspeed": ""}, "nll"),  # has its own
        ({"lora_backend": "peft", "deepspeed": "zero3"}, "nll"),
    ):
        assert offline.sft_loss(load().model_copy(update=values)) == loss


def test_a_batch_is_split_over_processes_and_passes_or_refused():
    cases = [  # total, processes, micro batch → rows a pass, passes
        (64, 1, 0, 64, 1),
        (64, 1, 4, 4, 16),
        (64, 4, 1, 1, 16),
        (2, 1, 4, 2, 1),
    ]
    for total, processes, micro, rows, passes in cases:
        values = {"num_processes": processes, "micro_batch_size": micro}
        p = load().model_copy(update=values)
        assert p.split_batch(total) == (rows, passes)
    values = {"num_processes": 3, "micro_batch_size": 0}
    with pytest.raises(ValueError, match="batch of 16"):
        load().model_copy(update=values).split_batch(16)


def test_deepspeed_shards_in_stage_3_and_offloads_where_asked():
    config = setup.deepspeed_config("zero3")
    zero = config["zero_optimization"]
    assert zero["stage"] == 3 and "offload_param" not in zero
    assert zero["stage3_gather_16bit_weights_on_model_save"] is True
    assert config["train_micro_batch_size_per_gpu"] == "auto"
    zero = setup.deepspeed_config("zero3_offload")["zero_optimization"]
    assert zero["offload_param"]["device"] == "cpu"
    assert zero["offload_optimizer"]["device"] == "cpu"


def test_accelerate_understands_the_command_lines():
    from accelerate.commands import launch as accelerate

    for path, p in FILES.items():
        command = launch.launch_command(p, Path("job"))
        assert command[0] == sys.executable
        if p.num_processes == 1:
            assert command[1:] == ["-m", "factkit.train.launch", "job"], path
            continue
        assert command[1:3] == ["-m", "accelerate.commands.launch"]
        parsed = accelerate.launch_command_parser().parse_args(command[3:])
        accelerate._validate_launch_command(parsed)
        assert parsed.num_processes == p.num_processes and parsed.multi_gpu, path
        assert parsed.module and parsed.training_script == "factkit.train.launch"
        assert parsed.training_script_args == ["job"]


def test_processes_share_all_cores_whatever_a_sweep_s_threads(monkeypatch):
    """Else ZeRO-3's offload would run Adam on one core."""
    from accelerate.commands import launch as accelerate
    from accelerate.utils.launch import prepare_multi_gpu_env

    monkeypatch.setenv("OMP_NUM_THREADS", "2")  # a sweep's
    for cores, threads in ((112, "14"), (2, "1")):
        monkeypatch.setattr(child, "cores", lambda n=cores: n)
        command = launch.launch_command(load("h100_full"), Path("job"))
        parsed = accelerate.launch_command_parser().parse_args(command[3:])
        accelerate._validate_launch_command(parsed)
        assert prepare_multi_gpu_env(parsed)["OMP_NUM_THREADS"] == threads


def test_training_leaves_the_notebook_s_process_where_it_must():
    for values, own in (
        ({}, False),
        ({"num_processes": 2}, True),
        ({"rollouts": "vllm_colocate"}, True),
        ({"lora_backend": "unsloth", "lora_rank": 8}, True),
    ):
        assert launch.needs_own_processes(load("tiny", **values)) is own


# two processes, for real

REWARD = """
def make_reward(p, folder):
    def varied(completions, **columns):
        return [len(c) % 5 / 4 for c in completions]
    return varied

def broken(p, folder):
    raise RuntimeError("no such judge")
"""
TRAIN = """
import sys
from pathlib import Path
import a_reward
from factkit.run import params
from factkit.train import grpo

p = params.load("truthrl", "tiny", dict(
    rl_steps=int(sys.argv[3]), rl_batch_size=8, num_generations=4, micro_batch_size=2,
    num_processes=2, checkpoint_steps=1))
rows = [{"prompt": f"{a} {b}", "answers": ["x"]} for a in "abcd" for b in "abcd"]
make = getattr(a_reward, sys.argv[4])
done = grpo.grpo(sys.argv[1], rows, make, Path(sys.argv[2]), p)
print(done.relative_to(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Path:
    """A random Llama of 20,000 weights with a vocabulary of letters."""
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import LlamaConfig, LlamaForCausalLM

    words = ["<pad>", "<eos>", *"abcdefghijklmnop"]
    special = {"pad_token": "<pad>", "eos_token": "<eos>"}
    tokenizer = of_words(*words, splitter=Whitespace(), **special)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        eos_token_id=1,
        pad_token_id=0,
    )
    folder = tmp_path_factory.mktemp("policy")
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "a_reward.py").write_text(REWARD, "utf-8")
    return folder


def train(policy: Path, folder: Path, steps: int = 2, reward: str = "make_reward"):
    paths = os.pathsep.join([str(policy), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", TRAIN, policy, folder, str(steps), reward],
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ({"lora_rank": 8}, "bfloat16"),
        ({"lora_rank": 0}, "float32"),  # an update of 1e-6 is lost in bfloat16
        ({"lora_rank": 0, "num_processes": 2, "deepspeed": "zero3"}, "bfloat16"),
    ],
)
def test_weights_are_loaded_in_the_precision_that_trains(
    values, dtype, policy, monkeypatch
):
    """The branch for GPUs; torch is told that there is one, nothing is put there."""
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    p = load("tiny", dtype="bfloat16", **values)
    model, tokenizer = setup.load_trainable(str(policy), p)
    assert model.dtype == getattr(torch, dtype)
    assert model.device.type == "cpu"
    assert tokenizer.padding_side == "left"


@pytest.mark.slow
def test_two_processes_train_one_model(policy, tmp_path):
    out, said = train(policy, tmp_path).communicate()
    assert out.strip() == "model", said[-3000:]
    assert (
        len((tmp_path / "metrics.csv").read_text("utf-8").splitlines()) == 3
    )  # two steps
    assert {f.suffix for f in (tmp_path / "model").iterdir()} == {
        ".json",
        ".safetensors",
    }
    left = {f.name for f in tmp_path.iterdir()}
    assert left == {"launch", "metrics.csv", "model", "recipe.json"}
    assert "GRPO" in said  # the processes' output is passed on …
    log = (tmp_path / "launch" / "grpo" / "accelerate.log").read_text("utf-8")
    assert "GRPO" in log  # … and kept


@pytest.mark.slow
def test_a_failure_in_a_process_is_raised_with_its_reason(policy, tmp_path):
    process = train(policy, tmp_path, reward="broken")
    _, said = process.communicate()
    assert process.returncode == 1
    assert "LaunchError" in said
    assert "no such judge" in said
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
def test_processes_end_with_the_notebook_that_launched_them(policy, tmp_path):
    process = train(policy, tmp_path, steps=400)
    wanted = tmp_path / "checkpoint" / "checkpoint-2" / "manifest.json"
    while not wanted.exists() and process.poll() is None:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    job = str(tmp_path / "launch" / "grpo" / "job.json")
    deadline = time.monotonic() + 60
    while _running(job) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert _running(job) == []
    assert not (tmp_path / "model").exists()


def _running(argument: str) -> list[str]:
    """Ids of the processes whose last argument is `argument`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes().decode().strip("\0").split("\0")
        except OSError:
            continue
        if arguments[-1] == argument:
            found.append(path.parent.name)
    return found
