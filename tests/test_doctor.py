"""What a sweep costs, by hand, and what is said of a machine that lacks something."""

import math
from types import SimpleNamespace

import psutil
import pytest
from huggingface_hub import HfApi, constants

from factkit import UserError
from factkit.gpu import bill, doctor, services
from factkit.gpu import memory as gpu_memory
from factkit.run import arms, params

LLAMA = gpu_memory.SHAPES["meta-llama/Llama-3.1-8B-Instruct"]
VARIANTS = [  # paper, profile, variant
    (paper, path.parent.name, path.stem.partition("-")[2])
    for paper in arms.find_papers()
    for path in sorted(params.ROOT.glob(f"params/h100_*/{paper}*.yaml"))
]
NODE = {"num_processes": 8, "rollouts": "vllm_colocate", "deepspeed": "zero3"}


def load(paper, profile="h100_full", variant="", **values):
    return params.load(paper, profile, values, variant)


# ---- the bill


def test_a_row_of_the_bill_by_hand():
    p = load("rar", **NODE, arms="binary_rar", judge_gpus=4)
    row = bill.table(p, price=2.5).loc["binary_rar"]
    responses = 2000 * 128
    assert row["updates each"] == 2000 and row["judge calls"] == responses
    # template (1,879 characters), request, response and 8 chunks of 512; a 32B judge
    prompt, reply = 1879 // 4 + 500 + 4096 + 8 * 512, 460
    assert row["judge M tokens"] == pytest.approx(responses * (prompt + reply) / 1e6)
    each = prompt * 2 * 32e9 / (989e12 * 0.5) + reply / (2500 * 8 / 32)
    judge = responses * each / 3600
    assert row["judge GPU-h"] == pytest.approx(judge)
    each = 500 * 2 * 8.19e9 / (989e12 * 0.5) + 4096 / (2500 * 8 / 8.19)
    rollouts = responses * each / 3600
    assert row["rollout GPU-h"] == pytest.approx(rollouts)
    # forward and backward 6, recomputed 2, the old and the reference's log-probs 4
    training = responses * 4596 * 12 * 8.19e9 / (989e12 * 0.3) / 3600
    assert row["training GPU-h"] == pytest.approx(training)
    hours = judge / 4 + (rollouts + training) / 8
    assert row["hours"] == pytest.approx(hours)
    assert row["GPU-h held"] == pytest.approx(hours * 12)
    assert row["USD"] == pytest.approx(hours * 12 * 2.5)


CALLS = {  # of the judge, all seeds together
    ("truthrl", "h100_full"): {
        # samples; four sets and comparisons, outcome and reasoning each
        "data": 1700 * 256 + 2 * (4 * 643 + 150),
        "prompting: evaluation": 643 * 64 + 2 * 643,  # votes; two more judges
        "ternary": 300 * 64,
        "rlkf": 300 * 64,  # a learned reward, but outcomes are logged
        "ternary_strict_match": 0,
        "ternary_reason_additive": 2 * 300 * 64,
        "rft": 1700 * 64,
        "iterative_dpo": 5 * 1700 * 256,
    },
    # VeriScore: 15 sentences are read and 30 claims held against evidence
    ("rar", "h100_full"): {
        # drawn, filtered; dev and test: long ones, their quality, short ones
        "data": 8000 * (8 * 45 + 20) + 45 * 1700 + 700 + 2 * (2000 + 500),
        "base: evaluation": 0,
        "sft: evaluation": 45 * 1700 + 700 + 2 * 2500,
        "veriscore: evaluation": 45 * 2300 + 1300 + 2 * 8500,  # four policies on dev
        "binary_rar": 256_000,
        "binary_veriscore": 256_000 * 45,
        "veriscore": 128_000 * 45,
        "veriscore_plus_judge": 128_000 * 46,
    },
    ("reason", "h100_full"): {
        # drawn; written; 250 + 141 + 241 + 3 × 532 tested, compared in both orders
        "data": 7000 * 10 * 69 + 10_800 + 2228 * 71,
        "base: evaluation": 200 * 71,
        "fact": 125 * 128 * 69,
        "fact_relevance": 125 * 128 * 70,
        "fact: evaluation": 2428 * 71 + 2228,  # and its strategies
    },
    # 11 sentences are read, 22 statements verified, all of them rated in one call
    ("rlfh", "h100_full"): {
        "data": 200_000 * 34 + 630 * 67,
        "statement": 312 * 128 * 34,
        "statement_group: evaluation": 830 * 67,
    },
    ("veri", "h100_full"): {"data": 5500 * 4, "online_rl": 0},
}


def test_the_judge_s_calls_are_those_that_the_notebooks_make():
    for (paper, profile), numbers in CALLS.items():
        calls = bill.table(load(paper, profile))["judge calls"]
        assert {name: calls[name] for name in numbers} == numbers, paper


def test_each_arm_has_the_updates_of_its_own_algorithm():
    for paper, numbers in {
        "truthrl": {"sft": 107, "dpo": 54, "iterative_dpo": 270, "rlhf": 300 + 850},
        "rar": {"sft": 500, "dpo": 1000, "binary_veriscore": 2000, "veriscore": 1000},
        "reason": {"sft": 94, "sft_dpo": 250, "fact": 125},
        "veri": {"sft": 172, "online_rl": 860},
    }.items():
        updates = bill.table(load(paper))["updates each"]
        assert {name: updates[name] for name in numbers} == numbers, paper


def test_a_parameter_changes_the_rows_that_it_is_of():
    own = {
        "drawn_responses": (2, {"data"}),
        "dpo_epochs": (1, {"dpo"}),
        "dense_steps": (500, {"veriscore", "conflict_only_veriscore"}),
        "whole_chunks": (1, {"binary_rar", "rating_rar"}),
    }
    own["dense_steps"][1].add("veriscore_plus_judge")
    was = bill.table(load("rar"))
    for key, (value, rows) in own.items():
        now = bill.table(load("rar", **{key: value}))
        changed = (now != was).any(axis=1)
        assert {*changed.index[changed]} == rows | {"total"}, key
    now = bill.table(load("rar", seeds="0 1"))
    assert now.USD["sft"] == 2 * was.USD["sft"] and now.USD["data"] == was.USD["data"]


def test_the_bill_in_params_is_as_it_is_reckoned_now():
    page = (params.ROOT / "params" / "README.md").read_text("utf-8")
    assert page.count("economy` |") + page.count("` economy") >= 6
    assert bill.with_table(page) == page, "python -m factkit doctor --markdown"


def test_a_model_s_size_is_looked_up_or_read_from_its_name():
    sizes = {"Qwen/Qwen3-4B": 4.02, "someone/new-9B": 9, "m/Llama-3.3-70B-Instruct": 70}
    sizes["mistralai/Mixtral-8x7B-Instruct-v0.1"] = 12.9
    assert {name: bill.size(name) for name in sizes} == sizes
    with pytest.raises(UserError, match="estimate-memory"):
        bill.size("someone/large")


# ---- memory


def test_an_adapter_has_the_weights_that_peft_gives_it():
    # Llama-3.1-8B, rank 16 on all linear maps: 41,943,040
    assert LLAMA.lora(16) == 41_943_040


def test_zero3_shards_what_is_trained_and_offload_keeps_it_on_the_host():
    p = load("truthrl", **NODE, arms="ternary")
    gb = gpu_memory.memory(p)
    assert gb["weights"] == gb["reference"] == pytest.approx(2 * 8.03 / 8)
    assert gb["gradients"] == pytest.approx(4 * 8.03 / 8)
    assert gb["optimizer"] == pytest.approx(12 * 8.03 / 8)
    assert gpu_memory.host_memory(p) == pytest.approx(2 * 8.03 + 8 * 4)
    p = p.model_copy(update={"deepspeed": "zero3_offload"})
    gb = gpu_memory.memory(p)
    assert gb["weights"] == gb["optimizer"] == gb["gradients"] == gb["reference"] == 0
    # weights 2, gradients 2 + 4, float32 4, Adam's 8; the reference 2, loading 2
    assert gpu_memory.host_memory(p) == pytest.approx(24 * 8.03 + 8 * 4)


def test_each_stage_holds_what_it_makes():
    p = load("rar", **NODE, micro_batch_size=2, vllm_memory=0.4)
    gb = gpu_memory.memory(p)
    state = sum(gb[k] for k in ("weights", "gradients", "optimizer", "gathered layer"))
    logit = 2 * 151_936 / 1e9  # of two rows, a token and byte
    read = gb["activations"]
    told = gpu_memory.peaks(p)
    assert told == pytest.approx(
        {
            "SFT": state + read + 12 * logit * (500 + 4096),  # whole prompts
            "DPO": state + gb["reference"] + 2 * (read + 8 * logit * (500 + 4096)),
            "rollouts": state + gb["reference"] + 0.4 * 80,
            "RL": state + gb["reference"] + read + 8 * logit * 4096,
        }
    )
    one_row = gpu_memory.peaks(load("rar", **NODE, dpo_batch_size=8))["DPO"]
    assert one_row == pytest.approx((told["DPO"] + state + gb["reference"]) / 2)
    p = load("rar", "h100_lora", arms="sft")  # one stage; the loss in chunks, or fused
    gb = gpu_memory.memory(p)
    own = sum(gb[k] for k in ("weights", "gradients", "optimizer", "activations"))
    assert gpu_memory.peaks(p) == pytest.approx({"SFT": own})


def test_a_learned_reward_is_held_whole_beside_the_policy():
    p = load("truthrl", "h100_lora", arms="rlkf")
    gb, told = gpu_memory.memory(p), gpu_memory.peaks(p)
    alone = gpu_memory.peaks(load("truthrl", "h100_lora", arms="ternary"))
    adapter = LLAMA.lora(p.reward_lora_rank) / 1e9
    model = 4 * 8.03 + 12 * adapter + 4 * gb["activations"]  # on one GPU, in float32
    assert told["reward model"] == pytest.approx(model)
    # it waits on the host while policy and engine take the GPU
    assert told["RL"] == alone["RL"] and told["rollouts"] == alone["rollouts"]
    state = sum(gb[k] for k in ("weights", "gradients", "optimizer"))
    assert told["scores"] == pytest.approx(state + 2 * 8.03)
    assert not {"reward model", "scores"} & alone.keys()


def test_every_profile_is_reckoned_and_fits_its_gpu():
    for paper, profile, variant in VARIANTS:
        p = load(paper, profile, variant)
        table, stages = bill.table(p), gpu_memory.peaks(p)
        assert table.map(lambda n: math.isfinite(n) and n >= 0).all(axis=None)
        assert max(stages.values()) < gpu_memory.GPU_GB, (paper, profile, variant)
        assert min(stages.values()) > 0


def test_disk_is_that_of_three_checkpoints_and_of_what_the_arms_keep():
    p = load("rar", "h100_full", arms="base sft binary_rar", seeds="0 1")
    gb = gpu_memory.disk(p)
    assert gb["checkpoints"] == pytest.approx(3 * 14 * 8.19)
    assert gb["policies"] == pytest.approx(2 * 8.19 * 2 * 2 * p.kept_policies)
    adapter = load("rar", "h100_lora", arms="sft", seeds="0", kept_policies=1)
    assert gpu_memory.disk(adapter)["policies"] < 1
    p = load("veri", "h100_full", arms="online_rl offline_rl", seeds="0 1")
    to_choose_from = 2 * 2 + -(-p.rl_steps // p.checkpoint_steps)
    gb, size = gpu_memory.disk(p), gpu_memory.SHAPES[p.policy].billions
    assert gb["policies"] == pytest.approx(2 * size * to_choose_from)


# ---- this machine


def room(monkeypatch, tools=("g++", "ninja"), host_gb=512, arms="ternary", **values):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: name in tools or None)
    memory = SimpleNamespace(total=host_gb * 1e9)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    p = load("truthrl", arms=arms, **values)
    return {what: (told, fine) for what, told, fine, _ in doctor._room(p)}


def test_what_is_offloaded_needs_a_host_and_a_compiler(monkeypatch):
    offload = {"deepspeed": "zero3_offload"}
    told = room(monkeypatch, **offload)
    assert told["C++ compiler"][1] and told["host memory"][1]
    told = room(monkeypatch, tools=["ninja"], host_gb=160, **offload)
    assert told["C++ compiler"] == ("no g++", False)
    assert not told["host memory"][1]
    told = room(monkeypatch, tools=(), host_gb=160, deepspeed="zero3")
    assert "C++ compiler" not in told and told["host memory"][1]
    told = room(monkeypatch, policy="someone/new-9B")
    assert "estimate-memory someone/new-9B" in told["memory a GPU"][0]


def test_a_cache_on_a_network_folder_is_told(monkeypatch):
    for kind, fine in (("nfs4", False), ("ext4", True)):
        mounts = [SimpleNamespace(mountpoint="/", fstype=kind)]
        monkeypatch.setattr(psutil, "disk_partitions", lambda all, m=mounts: m)
        what, found, told, _ = doctor._cache()
        assert (what, told) == ("cache", fine) and kind in found


def test_pickles_on_the_hub_are_refused_before_a_notebook_begins(monkeypatch):
    def info(self, name, timeout):
        if name == "cut/line":
            raise OSError("no route")
        end = "bin" if "vicuna" in name else "safetensors"
        files = ["config.json", f"weights-1-of-2.{end}"]
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=f) for f in files])

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(HfApi, "model_info", info)
    monkeypatch.setattr(services, "judge", lambda *_: ("judge", "", True, ""))
    p = load("rlfh", search_url="http://localhost:1")
    monkeypatch.setenv("FACTKIT_SEARCH_KEY", "k")
    with pytest.raises(
        UserError, match=r"vicuna-7b-v1.5: has no safetensors.*save_pre"
    ):
        services.preflight(p)
    services.preflight(p.model_copy(update={"policy": "Qwen/Qwen3-8B"}))
    assert services.weights("cut/line") == services.weights("tiny-world") == []
    p = load("veri").model_copy(update={"larger_policy": "lmsys/vicuna-13b"})
    assert [fine for what, _, fine, _ in services.needed(p) if "vicuna" in what] == [
        False
    ]
