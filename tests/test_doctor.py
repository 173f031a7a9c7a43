"""What a GPU profile takes, by hand, and what is said of a machine without GPUs."""

import math
from types import SimpleNamespace

import psutil
import pytest

from factkit import arms, doctor, params

LLAMA = doctor.SHAPES["meta-llama/Llama-3.1-8B-Instruct"]
VARIANTS = [  # paper, profile, variant
    (paper, path.parent.name, path.stem.partition("-")[2])
    for paper in arms.PAPERS
    for path in sorted(params.ROOT.glob(f"params/*/{paper}*.yaml"))
]


def load(paper, profile="h100_full", variant="", **values):
    return params.load(paper, profile, values, variant)


def rows_of(paper, p):
    return {what: value for what, value, _ in doctor.estimate(paper, p)}


def test_an_adapter_has_the_weights_that_peft_gives_it():
    # Llama-3.1-8B, rank 16 on all linear maps: 41,943,040
    assert LLAMA.lora(16) == 41_943_040


def test_zero3_shards_what_is_trained_and_offload_leaves_none():
    p = load("truthrl", deepspeed="zero3", num_processes=4)
    gb = doctor.memory("truthrl", p)
    assert gb["weights"] == pytest.approx(2 * 8.03 / 4)
    assert gb["gradients"] == pytest.approx(4 * 8.03 / 4)
    assert gb["optimizer"] == pytest.approx(12 * 8.03 / 4)
    assert gb["reference"] == pytest.approx(2 * 8.03 / 4)
    p = p.model_copy(update={"deepspeed": "zero3_offload", "beta": 0.0})
    gb = doctor.memory("truthrl", p)
    assert gb["weights"] == gb["optimizer"] == gb["gradients"] == 0


def test_disk_is_that_of_three_checkpoints_and_of_what_the_arms_keep():
    p = load("rar", "h100_full", arms="base sft binary_rar", seeds="0 1")
    gb = doctor.disk("rar", p)
    assert gb["checkpoints"] == pytest.approx(3 * 14 * 8.19)
    assert gb["policies"] == pytest.approx(2 * 8.19 * 2 * 2 * p.kept_policies)
    adapter = load("rar", "h100_lora", arms="sft", seeds="0", kept_policies=1)
    assert doctor.disk("rar", adapter)["policies"] < 1
    p = load("veri", "h100_full", arms="online_rl offline_rl", seeds="0 1")
    to_choose_from = 2 * 2 + -(-p.rl_steps // p.checkpoint_steps)
    gb, size = doctor.disk("veri", p), doctor.SHAPES[p.policy].billions
    assert gb["policies"] == pytest.approx(2 * size * to_choose_from)


def test_offline_stages_hold_no_engine_and_dpo_two_responses():
    gb = {"weights": 8.0, "reference": 2.0, "activations": 1.0, "logits": 3.0}
    told = doctor.offline_memory(gb | {"rollout engine": 40.0})
    assert told == {"SFT": 12.0, "DPO": 18.0}


def test_a_learned_reward_is_held_whole_beside_the_policy():
    p = load("truthrl", "h100_lora", arms="rlkf")
    gb = doctor.memory("truthrl", p)
    told = doctor.reward_model_memory(p, gb)
    trained = LLAMA.lora(p.reward_lora_rank) / 1e9
    model = 4 * 8.03 + 12 * trained + 4 * gb["activations"]  # on one GPU, in float32
    assert told["reward model"] == pytest.approx(model)
    assert told["RL by it"] == pytest.approx(sum(gb.values()) + 2 * 8.03)
    full = load("truthrl", "h100_full", arms="rlhf")  # whose optimizer is on the host
    told = doctor.reward_model_memory(full, gb | {"gathered layer": 2.0})
    assert told["reward model"] == pytest.approx(2.0 + 4 * gb["activations"])
    assert doctor.reward_model_memory(load("truthrl", arms="ternary"), gb) == {}


def test_a_cache_on_a_network_folder_is_told(monkeypatch):
    for kind, fine in (("nfs4", False), ("ext4", True)):
        mounts = [SimpleNamespace(mountpoint="/", fstype=kind)]
        monkeypatch.setattr(psutil, "disk_partitions", lambda all, m=mounts: m)
        what, found, told, _ = doctor._cache()
        assert (what, told) == ("cache", fine) and kind in found


LLAMA_HOUR, VICUNA_HOUR, QWEN_HOUR, QWEN3_HOUR = (  # tokens that a GPU writes
    2500 * 8 / billions * 3600 for billions in (8.03, 6.74, 3.09, 8.19)
)
BY_HAND = {
    ("truthrl", "h100_lora"): {
        "rollout tokens of an RL run": 300 * 64 * (200 + 2048),
        "judge calls training ternary": 300 * 64,
        "judge calls of the data notebook": 1700 * 256,
        "GPU-hours: rollouts": 300 * 64 * 2048 / LLAMA_HOUR,
        "GPU-hours: training": 12 * 8.03e9 * 43_161_600 / (989e12 * 0.3 * 3600),
    },
    # VeriScore: 15 sentences are read and 30 claims held against evidence
    ("rar", "h100_full"): {
        "judge calls training binary_rar": 256_000,
        "judge calls of the data notebook": 8000 * 8 * 45 + 20 * 8000,
        "judge calls training binary_veriscore": 256_000 * 45,
        "judge calls training veriscore": 128_000 * 45,
        "judge calls training veriscore_plus_judge": 128_000 * 46,
        "web searches": 8000 + 200 + 2 * 500,  # WildChat's and Biography
        # by one GPU, the server's, while four trainers wait
        "GPU-hours: rollouts": 256_000 * 4096 * 5 / QWEN3_HOUR,
    },
    ("reason", "h100_full"): {"web searches": 4000 + 3000 + 200 + 6 * 532},
    # 11 sentences are read, 22 statements verified, all of them rated in one call;
    # PPO reads a rollout once more than GRPO, for its values
    ("rlfh", "h100_full"): {
        "judge calls training statement": 312 * 128 * 34,
        "GPU-hours: rollouts": 312 * 128 * 1024 / VICUNA_HOUR,
        "GPU-hours: training": 14 * 6.74e9 * 44_888_064 / (989e12 * 0.3 * 3600),
    },
    # 215 rollouts of 256 claims, 3 trajectories each of 4 turns and 3 replies
    ("veri", "h100_full"): {
        "rollout tokens of an RL run": 165_120 * (512 + 4 * 512 + 3 * 768),
        "searches of an RL run": 3 * 165_120,
        "GPU-hours: rollouts": 165_120 * 4 * 512 / QWEN_HOUR,
    },
}


def test_the_rows_of_a_profile_by_hand():
    for (paper, profile), numbers in BY_HAND.items():
        rows = rows_of(paper, load(paper, profile))
        for what, n in numbers.items():
            printed = f"{n:.1f}" if isinstance(n, float) else f"{n:,}"
            assert rows[what] == printed, (paper, what)


def test_every_profile_is_estimated_and_a_gpu_profile_fits_its_gpu():
    for paper, profile, variant in VARIANTS:
        p = load(paper, profile, variant)
        rows = doctor.estimate(paper, p)
        assert all(all(row) for row in rows), (paper, profile, variant)
        if profile.startswith("h100"):
            gb = doctor.memory(paper, p)
            stages = doctor.offline_memory(gb) | doctor.reward_model_memory(p, gb)
            assert all(math.isfinite(n) and n >= 0 for n in gb.values())
            most = max(sum(gb.values()), *stages.values())
            assert most < doctor.GPU_GB, (paper, profile, variant, stages)
        else:
            assert rows[0][:2] == ("GPU-hours", "0")


def test_of_an_unknown_model_the_command_that_tells_its_sizes_is_named():
    p = load("truthrl", policy="someone/new-9B")
    what, value, how = doctor.estimate("truthrl", p)[0]
    assert (what, value) == ("parameters", "unknown")
    assert how == "ask: accelerate estimate-memory someone/new-9B"
