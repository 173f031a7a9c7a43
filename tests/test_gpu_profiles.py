"""The GPU profiles without a GPU: what they hand to TRL, DeepSpeed and accelerate.

Every parameter file makes its trainers' configurations (on the CPU: `trainer_arguments`
then sets use_cpu, and bf16 and DeepSpeed are left to the checks beside it). Two real
processes train on the CPU. What needs vLLM, DeepSpeed or Unsloth is in tests/with_vllm.
"""

import csv
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from factkit import arms, params
from factkit.params.files import ROOT
from factkit.params.stages import DpoParams, SftParams, TokenLevelParams
from factkit.rlfh import token_level
from factkit.train import dpo, grpo, launch, reward_model, setup, sft

FILES = {  # of every paper, profile and variant
    path: params.load(path.stem.split("-")[0], path.parent.name, {}, variant)
    for path in sorted(ROOT.glob("params/*/*.yaml"))
    if path.stem.split("-")[0] in arms.PAPERS
    for variant in [path.stem.partition("-")[2]]
}


def load(profile="h100_lora", variant="", paper="truthrl", **values):
    return params.load(paper, profile, values, variant)


def rl_config(p, folder):
    """The configuration that p's paper hands to its RL trainer."""
    by_token = isinstance(p, TokenLevelParams)
    make = token_level.token_level_config if by_token else grpo.grpo_config
    return make(without_deepspeed(p), folder)


def without_deepspeed(p):
    """TrainingArguments refuse its configuration where DeepSpeed is not installed."""
    return p.model_copy(update={"deepspeed": ""})


def test_every_paper_has_gpu_profiles_to_check():
    for paper in arms.PAPERS:
        for profile in ("h100_lora", "h100_full"):
            assert ROOT / "params" / profile / f"{paper}.yaml" in FILES


def test_every_profile_makes_its_trainers_configurations(tmp_path):
    for path, p in FILES.items():
        here = without_deepspeed(p)
        if path.stem.startswith("truthrl"):
            config = reward_model.reward_config(here, tmp_path)
            one_pass = config.per_device_train_batch_size * p.num_processes
            assert one_pass <= p.reward_batch_size, path
        batches = {}
        if isinstance(p, SftParams):
            batches[sft.sft_config] = p.sft_batch_size
        if isinstance(p, DpoParams):
            batches[dpo.dpo_config] = p.dpo_batch_size
        batches[rl_config] = p.rl_batch_size
        for make, total in batches.items():
            config = make(here, tmp_path)
            one_pass = config.per_device_train_batch_size * p.num_processes
            assert one_pass * config.gradient_accumulation_steps == total, path
            assert config.use_cpu and not config.bf16
        if p.micro_batch_size:
            assert config.per_device_train_batch_size <= p.micro_batch_size, path


def test_a_rollout_is_the_batches_it_trains_on_in_whole_groups(tmp_path):
    for path, p in FILES.items():
        config = rl_config(p, tmp_path)
        passes = p.minibatches * config.gradient_accumulation_steps
        assert config.steps_per_generation == passes, path
        # TRL sees one process here, so its generation batch is one process's share
        rollout = config.generation_batch_size * p.num_processes
        assert rollout == p.minibatches * p.rl_batch_size, path
        assert p.rl_batch_size % config.num_generations == 0, path


def test_rollouts_come_from_where_the_profile_says(tmp_path):
    for path, p in FILES.items():
        config = rl_config(p, tmp_path)
        assert config.use_vllm == (p.rollouts != "transformers"), path
        if p.rollouts == "vllm_colocate":
            assert config.vllm_mode == "colocate", path
            assert config.vllm_gpu_memory_utilization == p.vllm_memory
            assert config.vllm_tensor_parallel_size == p.vllm_tensor_parallel
            assert config.vllm_max_model_length == p.max_context_length
            assert p.num_processes % p.vllm_tensor_parallel == 0
        if p.rollouts == "vllm_server":
            assert config.vllm_mode == "server", path
            assert config.vllm_server_base_url == p.vllm_server_url


def test_lora_is_made_where_the_profile_has_a_rank():
    for path, p in FILES.items():
        config = setup.lora(p)
        made = (config.r, config.lora_alpha) if config else (0, p.lora_alpha)
        assert made == (p.lora_rank, p.lora_alpha), path


def test_a_response_and_its_references_fit_the_context():
    for path, p in FILES.items():
        retrieves = path.stem.startswith("truthrl") and p.retriever
        references = p.retrieved_chunks * p.chunk_tokens if retrieves else 0
        assert references + p.max_completion_length < p.max_context_length, path
        if path.stem.startswith("veri"):
            assert p.longest <= p.max_context_length, path


@pytest.mark.parametrize(
    ("profile", "variant"),
    [("h100_full", ""), ("h100_full", "one-node"), ("h100_lora", "")],
)
def test_learning_to_reason_makes_the_paper_s_updates(profile, variant, tmp_path):
    """App. B: SFT on 8 GPUs × 4 and DPO on 16 × 1 rows; GRPO on 32 × 4 responses, for
    one epoch of 4,000 requests, by Dr.GRPO's loss."""
    p = load(profile, variant, "reason")
    assert (p.sft_batch_size, p.dpo_batch_size, p.rl_batch_size) == (32, 16, 128)
    assert (p.sft_epochs, p.dpo_epochs, p.num_generations) == (1, 1, 4)
    assert p.rl_steps * p.rl_batch_size == p.train_requests * 4 == 16_000
    config = grpo.grpo_config(without_deepspeed(p), tmp_path)
    assert (config.loss_type, config.scale_rewards) == ("dr_grpo", "none")


def test_learning_to_reason_s_full_profile_has_the_paper_s_learning_rates():
    p = load("h100_full", "", "reason")
    assert p.sft_learning_rate == 5.5e-6
    assert p.dpo_learning_rate == p.rl_learning_rate == 1e-6


@pytest.mark.parametrize(
    ("profile", "variant", "questions", "rate"),
    [
        ("h100_full", "", 20_000, 5e-7),
        ("h100_full", "qwen2.5-7b", 10_000, 3e-7),
        ("h100_lora", "", 10_000, 5e-6),
    ],
)
def test_rlfh_makes_its_code_s_updates(profile, variant, questions, rate, tmp_path):
    """128 responses a rollout, gone through once, for one epoch of the questions."""
    p = load(profile, variant, "rlfh")
    assert (p.train_requests, p.rl_learning_rate) == (questions, rate)
    asked = p.rl_batch_size // p.num_generations
    assert p.rl_steps == questions // asked
    config = rl_config(p, tmp_path)
    assert (config.num_iterations, config.max_steps) == (1, p.rl_steps)
    assert (config.loss_type, config.scale_rewards) == ("bnpo", "none")


def test_the_maps_of_rlfh_s_script_and_of_its_readme_are_not_mixed():
    for variant, maps in (("", ("script", 1.0)), ("qwen2.5-7b", ("readme", 1.2))):
        p = load("h100_full", variant, "rlfh")
        assert p.truth_map == p.informativeness_map
        assert (p.truth_map, p.info_beta) == maps


@pytest.mark.parametrize(
    ("profile", "variant"),
    [("h100_full", ""), ("h100_full", "llama3.2-3b"), ("h100_lora", "")],
)
def test_veri_makes_the_updates_of_table_4(profile, variant, tmp_path):
    """256 claims a rollout, 3 trajectories each, in updates of 64 claims."""
    import torch
    from transformers import get_scheduler

    p = load(profile, variant, "veri")
    budgets = (p.max_prompt_length, p.max_completion_length, p.max_observation_length)
    assert budgets == (512, 512, 768)
    assert p.longest == p.max_context_length == 4864
    assert (p.max_searches + 1, p.retrieved_entries) == (4, 3)
    assert p.vllm_tensor_parallel == 1
    config = grpo.grpo_config(without_deepspeed(p), tmp_path)
    assert config.generation_batch_size * p.num_processes == 256 * 3
    one_pass = config.per_device_train_batch_size * p.num_processes
    assert one_pass * config.gradient_accumulation_steps == 64 * 3
    assert config.steps_per_generation == 4 * config.gradient_accumulation_steps
    assert (config.num_generations, config.num_iterations) == (3, 1)
    assert config.save_steps % 4 == 0  # between rollouts
    assert (config.beta, config.temperature) == (0.001, 0.8)
    assert (config.loss_type, config.scale_rewards) == ("grpo", "group")
    if profile == "h100_full":  # 10 epochs, of batches of 256 claims
        assert (p.rl_learning_rate, p.lora_rank) == (1e-6, 0)
        whole = 10 * p.train_claims / 256
        assert config.max_steps == p.minibatches * round(whole)
    kind = config.lr_scheduler_type
    assert kind == "constant_with_warmup"
    warm = config.get_warmup_steps(config.max_steps)
    assert warm == math.ceil(0.285 * config.max_steps)
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=config.learning_rate)
    at = get_scheduler(kind, optimizer, warm, config.max_steps).lr_lambdas[0]
    assert [at(0), at(warm / 2), at(warm), at(config.max_steps - 1)] == [0, 0.5, 1, 1]


def test_a_batch_is_split_over_processes_and_passes():
    cases = [  # total, processes, micro batch → rows a pass, passes
        (64, 1, 0, 64, 1),
        (64, 1, 4, 4, 16),
        (64, 4, 1, 1, 16),
        (64, 4, 0, 16, 1),
        (2, 1, 4, 2, 1),
    ]
    for total, processes, micro, rows, passes in cases:
        p = load().model_copy(
            update={"num_processes": processes, "micro_batch_size": micro}
        )
        assert setup.batch_arguments(total, p) == {
            "per_device_train_batch_size": rows,
            "gradient_accumulation_steps": passes,
        }


def test_a_batch_that_does_not_split_is_refused():
    for processes, micro in ((3, 0), (1, 5)):
        p = load().model_copy(
            update={"num_processes": processes, "micro_batch_size": micro}
        )
        with pytest.raises(ValueError, match="batch of 16"):
            setup.batch_arguments(16, p)


def test_deepspeed_shards_in_stage_3_and_gathers_when_saving():
    config = setup.deepspeed_config(load("h100_full", deepspeed="zero3"))
    zero = config["zero_optimization"]
    assert zero["stage"] == 3
    assert zero["stage3_gather_16bit_weights_on_model_save"] is True
    assert "offload_param" not in zero
    for key in ("train_batch_size", "train_micro_batch_size_per_gpu"):
        assert config[key] == "auto"


def test_offload_keeps_weights_and_optimizer_on_the_host():
    zero = setup.deepspeed_config(load("h100_full"))["zero_optimization"]
    assert zero["offload_param"]["device"] == "cpu"
    assert zero["offload_optimizer"]["device"] == "cpu"


def test_deepspeed_needs_several_processes():
    p = load("h100_full").model_copy(update={"num_processes": 1})
    with pytest.raises(ValueError, match="num_processes"):
        setup.deepspeed_config(p)


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


def test_training_leaves_the_notebook_s_process_where_it_must():
    for values, own in (
        ({}, False),
        ({"num_processes": 2}, True),
        ({"rollouts": "vllm_colocate"}, True),
        ({"rollouts": "vllm_server"}, False),
        ({"lora_backend": "unsloth", "lora_rank": 8}, True),
    ):
        assert launch.needs_own_processes(load("tiny", **values)) is own


def test_unsloth_starts_its_engine_for_rollouts_only():
    p = load()
    assert setup.unsloth_arguments("m", p)[0]["fast_inference"] is False
    loading, adapter = setup.unsloth_arguments("m", p, rollouts=True)
    assert loading["fast_inference"] is True
    assert loading["max_lora_rank"] == adapter["r"] == p.lora_rank


def test_a_model_that_has_an_adapter_gets_no_second_one():
    class WithAdapter:
        peft_config = {}

    assert setup.lora(load(), WithAdapter()) is None


def test_a_lambda_cannot_be_handed_to_other_processes(tmp_path):
    p = load("tiny", num_processes=2)
    with pytest.raises(ValueError, match="defined in a module"):
        grpo.grpo("start", [{"prompt": "a"}], lambda p, folder: None, tmp_path, p)


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
from factkit import arms, params
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
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = ["<pad>", "<eos>", *"abcdefghijklmnop"]
    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, "<pad>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>"
    )
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
    (folder / "a_reward.py").write_text(REWARD)
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


def curve(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open() as f:
        return list(csv.DictReader(f))


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


def test_an_adapter_is_no_start(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ValueError, match="is an adapter"):
        setup.load_trainable(str(tmp_path), load("tiny"))


def test_two_processes_train_one_model(policy, tmp_path):
    out, said = train(policy, tmp_path).communicate()
    assert out.strip() == "model", said[-3000:]
    assert [row["step"] for row in curve(tmp_path)] == ["1", "2"]
    assert {f.suffix for f in (tmp_path / "model").iterdir()} == {
        ".json",
        ".safetensors",
    }
    left = {f.name for f in tmp_path.iterdir()}
    assert left == {"launch", "metrics.csv", "model", "recipe.json"}
    assert "GRPO" in said  # the processes' output is passed on …
    log = (tmp_path / "launch" / "grpo" / "accelerate.log").read_text()
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
    wanted = tmp_path / "checkpoint" / "checkpoint-2" / "trainer_state.json"
    while not wanted.exists() and process.poll() is None:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    job = str(tmp_path / "launch" / "grpo" / "job")
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
