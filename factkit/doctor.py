"""What a GPU profile takes, reckoned from its parameters, and what this machine lacks.

All counts are upper bounds: full responses, every prompt. Of a model that `SHAPES`
lacks, `accelerate estimate-memory <model>` tells the sizes.
"""

import importlib.metadata
import platform
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from factkit import (
    Check,
    arms,
    assets,
    child,
    params,
    search,
    services,
)

GPQA = "Idavidrein/gpqa"
GPU_PACKAGES = ("vllm", "unsloth", "deepspeed")
GPU_GB = 80
# number of GPUs, and memory of each in GB (an 80 GB card shows 79 to 85)
GPUS_NEEDED = {"h100_lora": (1, 75), "h100_full": (8, 75)}

# Assumptions, ours: nothing here was measured by us
DECODE_TOKENS_S = 2500  # vLLM, 8B model in bfloat16, 64 at a time, a GPU
GPU_FLOPS = 989e12  # H100 SXM, dense bfloat16 (NVIDIA's data sheet)
UTILISATION = {"": 0.3, "zero3": 0.3, "zero3_offload": 0.15}  # of it, in training
PROMPT_TOKENS = {"truthrl": 200, "rar": 500, "reason": 250, "rlfh": 100, "veri": 512}
# claims of a long answer before training, or after it where there are more: Binary RAR
# §6.1, Learning to Reason Table 2, RLFH Table 1; a sentence has two (ours)
CLAIMS = {"rar": 30, "reason": 46, "rlfh": 22}

# GB: FEVEROUS, FEVER and HoVer unpacked; WildHallucinations; wiki-18 with E5's index
# RLFH's database of Wikipedia (20) and the index of its passages (a guess: as much)
CORPORA_GB, WIKIPEDIA_GB = {"veri": 75.0, "rar": 1.4, "rlfh": 40.0}, 51.0
TEST_SETS = {"reason": 6, "rar": 2}  # of long answers that are searched for, at most
NETWORK = ("nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "9p", "fuse.sshfs")

Row = tuple[str, str, str]  # what, value, how reckoned


class Shape(NamedTuple):
    """A Llama-like model: weights in billions, and sizes as in its config.json.

    kv: width of its keys, and of its values.
    """

    billions: float
    layers: int
    hidden: int
    kv: int
    ffn: int
    vocabulary: int

    def lora(self, rank: int) -> int:
        """Weights of an adapter on every linear map: r (inputs + outputs) each."""
        q_o, k_v = 2 * (2 * self.hidden), 2 * (self.hidden + self.kv)
        return self.layers * rank * (q_o + k_v + 3 * (self.hidden + self.ffn))


SHAPES = {
    "meta-llama/Llama-3.1-8B-Instruct": Shape(8.03, 32, 4096, 1024, 14336, 128256),
    "meta-llama/Llama-3.2-3B-Instruct": Shape(3.21, 28, 3072, 1024, 8192, 128256),
    "Qwen/Qwen2.5-3B-Instruct": Shape(3.09, 36, 2048, 256, 11008, 151936),
    "Qwen/Qwen2.5-7B-Instruct": Shape(7.62, 28, 3584, 512, 18944, 152064),
    "Qwen/Qwen2.5-32B-Instruct": Shape(32.76, 64, 5120, 1024, 27648, 152064),
    "Qwen/Qwen3-4B": Shape(4.02, 36, 2560, 1024, 9728, 151936),
    "Qwen/Qwen3-8B": Shape(8.19, 36, 4096, 1024, 12288, 151936),
    "allenai/Llama-3.1-Tulu-3-8B": Shape(8.03, 32, 4096, 1024, 14336, 128264),
    "allenai/Llama-3.1-Tulu-3-8B-DPO": Shape(8.03, 32, 4096, 1024, 14336, 128264),
    "lmsys/vicuna-7b-v1.5": Shape(6.74, 32, 4096, 4096, 11008, 32000),
}


# ---- what a profile takes


def estimate(paper: str, p: Any) -> list[Row]:
    """Memory, tokens, calls and GPU-hours of an RL run: (what, value, how reckoned)."""
    if p.rollouts == "transformers":
        return [("GPU-hours", "0", "runs on CPUs: notebook 00 has its minutes")]
    responses, (prompt, response, _) = p.rl_steps * p.rl_batch_size, tokens(paper, p)
    each = f"{p.rl_steps} steps × {p.rl_batch_size} responses × ({prompt} + {response})"
    counts = [("rollout tokens of an RL run", responses * (prompt + response), each)]
    for arm in p.arm_names:
        if calls := judge_calls(paper, p, arm):
            steps = p.updates(arm) if paper == "rar" else p.rl_steps
            how = f"{calls} a response, {steps} steps"
            count = calls * steps * p.rl_batch_size
            counts.append((f"judge calls training {arm}", count, how))
    if calls := data_calls(paper, p):
        counts.append(("judge calls of the data notebook", calls, "its own samples"))
    if paper in CLAIMS and p.search_url:
        own = getattr(p, "sft_requests", 0)  # Learning to Reason's
        searches = p.train_requests + own + p.dev_requests
        searches += p.test_requests * TEST_SETS.get(paper, 1)
        how = f"one a request, {p.pages} pages each at most"
        counts.append(("web searches", searches, how))
    if paper == "veri":
        how = "all that a trajectory may have"
        counts.append(("searches of an RL run", p.max_searches * responses, how))
    rows = [(what, f"{count:,}", how) for what, count, how in counts]
    if p.policy not in SHAPES:
        how = f"ask: accelerate estimate-memory {p.policy}"
        return [("parameters", "unknown", how), *rows]
    parts = memory(paper, p)
    how = ", ".join(f"{what} {gb:.1f}" for what, gb in parts.items())
    rows.append(("memory a GPU", f"{sum(parts.values()):.0f} GB", how))
    used = {arms.table(paper)[arm].algorithm for arm in p.arm_names}
    stages = {n: gb for n, gb in offline_memory(parts).items() if n in used}
    for name, gb in (stages | reward_model_memory(p, parts)).items():
        rows.append((f"memory a GPU, {name}", f"{gb:.0f} GB", "of the same parts"))
    parts = disk(paper, p)
    how = ", ".join(f"{what} {gb:.0f}" for what, gb in parts.items())
    rows.append(("disk", f"{sum(parts.values()):.0f} GB", how))
    notes = {
        "rollouts": f"assumed: {DECODE_TOKENS_S} tokens/s a GPU for 8B, as 1/size",
        "training": f"assumed: {UTILISATION[p.deepspeed]:.0%} of the GPU's peak",
    }
    return rows + [
        (f"GPU-hours: {stage}", f"{hours:.1f}", notes[stage])
        for stage, hours in gpu_hours(paper, p).items()
    ]


def tokens(paper: str, p: Any) -> tuple[int, int, int]:
    """Tokens of a prompt, as far as there is room; of a full response; and of those of
    it that the policy writes."""
    prompt, response = PROMPT_TOKENS[paper], p.max_completion_length
    written = response
    if paper == "truthrl" and p.retriever:
        prompt += p.retrieved_chunks * p.chunk_tokens
    if paper == "veri":  # a trajectory: turns, and what is found between them
        prompt, response = p.max_prompt_length, p.longest - p.max_prompt_length
        written *= p.max_searches + 1
    return min(prompt, max(p.max_context_length - response, 0)), response, written


def judge_calls(paper: str, p: Any, arm: str) -> int:
    """Calls for the reward of one response: each sentence is read and each claim held
    where claims are verified; 0 without a judge, or where the reward asks none."""
    if p.verifier != "judge" or arms.table(paper)[arm].algorithm not in ("GRPO", "PPO"):
        return 0
    by_claim = 3 * CLAIMS.get(paper, 0) // 2
    if paper == "rar":
        from factkit.rar.rewards import PIECES

        return sum(by_claim if piece == "supports" else 1 for piece in PIECES[arm])
    if paper == "reason":
        return by_claim + ("relevance" in arm)  # a comparison with the judge's answer
    if paper == "rlfh":
        return by_claim + 1
    by_outcome = arm.startswith(("binary", "ternary")) and "strict_match" not in arm
    return 1 + ("reason" in arm) if paper == "truthrl" and by_outcome else 0


def data_calls(paper: str, p: Any) -> int:
    """Calls of the data notebook: all drawn or probed responses, and the filter's."""
    if p.verifier != "judge":
        return 0
    if paper == "truthrl":
        return p.train_questions * p.probe_samples
    if paper == "veri":  # turns of the trajectories that SFT learns from
        return p.sft_trajectories * (p.max_searches + 1)
    by_claim = 3 * CLAIMS[paper] // 2 + (paper == "rlfh")
    filtered = 0
    if paper == "rar":
        from factkit.rar.requests import WILDCHAT_READ

        filtered = WILDCHAT_READ * p.train_requests
    requests = p.train_requests + getattr(p, "sft_requests", 0)
    return requests * p.drawn_responses * by_claim + filtered


def disk(paper: str, p: Any) -> dict[str, float]:
    """GB of disk: the checkpoints of one training run, two and one being written, what
    all arms and seeds keep of their policies, those that offline RL chooses from while
    it runs, and what is downloaded."""
    weights = SHAPES[p.policy].billions
    trained = SHAPES[p.policy].lora(p.lora_rank) / 1e9 if p.lora_rank else weights
    trained_arms = set(p.arm_names) - arms.untrained()
    kept = len(p.seed_numbers) * len(trained_arms) * getattr(p, "kept_policies", 1)
    if "offline_rl" in trained_arms:
        kept += -(-p.rl_steps // p.checkpoint_steps)
    searched = paper == "truthrl" and p.retriever
    corpora = WIKIPEDIA_GB if searched else CORPORA_GB.get(paper, 0.0)
    return {
        "checkpoints": 3 * 14 * trained,  # bfloat16, its float32 copy, Adam's two
        "policies": 2 * trained * kept,
        "downloads": 2 * weights + corpora,
    }


def offline_memory(parts: Mapping[str, float]) -> dict[str, float]:
    """GB of each GPU in training offline, of `memory`'s parts and batch: SFT has no
    reference and no engine; DPO reads two responses at once."""
    sft = sum(parts.values()) - parts["reference"] - parts["rollout engine"]
    read = parts["activations"] + parts["logits"]
    return {"SFT": sft, "DPO": sft + parts["reference"] + read}


def reward_model_memory(p: Any, parts: Mapping[str, float]) -> dict[str, float]:
    """GB of each GPU where a reward is learned (TruthRL's rlhf and rlkf), of `memory`'s
    parts: in training the reward model, which is in float32, has no logits and reads
    two responses; in the RL step, where each process holds it whole."""
    if not {"rlhf", "rlkf"} & set(p.arm_names):
        return {}
    weights, rank = SHAPES[p.policy].billions, p.reward_lora_rank
    trained = SHAPES[p.policy].lora(rank) / 1e9 if rank else weights
    share = 1 / p.num_processes if p.deepspeed else 1
    share *= p.deepspeed != "zero3_offload"
    model = (4 * weights + 12 * trained) * share  # gradients and Adam's two
    model += parts["gathered layer"] + 4 * parts["activations"]
    scorer = (2 if rank else 4) * weights
    return {"reward model": model, "RL by it": sum(parts.values()) + scorer}


def memory(paper: str, p: Any) -> dict[str, float]:
    """GB of each training GPU in an RL step; DeepSpeed shards the first four."""
    shape = SHAPES[p.policy]
    weights = shape.billions
    trained = shape.lora(p.lora_rank) / 1e9 if p.lora_rank else weights
    size = 2 if p.lora_rank or p.deepspeed else 4  # bytes of a weight
    share = 1 / p.num_processes if p.deepspeed else 1
    share *= p.deepspeed != "zero3_offload"  # which leaves all on the host
    adam = 12 if p.deepspeed else 8  # with a float32 copy of the weights
    copies = p.beta > 0 and not p.lora_rank  # else the policy without its adapter
    prompt, response, _ = tokens(paper, p)
    batch = p.rl_batch_size // p.num_processes
    rows = min(p.micro_batch_size or batch, batch)
    embedding = shape.vocabulary * shape.hidden / 1e9
    hidden = rows * (prompt + response) * shape.hidden * shape.layers / 1e9
    return {
        "weights": size * weights * share,
        "gradients": 4 * trained * share,
        "optimizer": adam * trained * share,
        "reference": copies * size * weights * share,
        "gathered layer": 4 * embedding * bool(p.deepspeed),  # DeepSpeed's estimate
        "activations": 2 * hidden,  # a hidden state a layer and token
        "logits": 8 * rows * response * shape.vocabulary / 1e9,  # and their gradient
        "rollout engine": p.vllm_memory * GPU_GB * (p.rollouts == "vllm_colocate"),
    }


def gpu_hours(paper: str, p: Any) -> dict[str, float]:
    """GPU-hours of an RL run, whose rollouts and training take turns on all GPUs."""
    gpus = p.num_processes
    billions, responses = SHAPES[p.policy].billions, p.rl_steps * p.rl_batch_size
    prompt, response, written = tokens(paper, p)
    rate = DECODE_TOKENS_S * 8 / billions  # tokens/s a GPU
    passes = 8 + 2 + (2 if p.beta else 0)  # FLOP a weight and token
    passes += 2 * (getattr(p, "method", "") == "ppo")  # a rollout's values
    flops = passes * billions * 1e9 * responses * (prompt + response)
    speed = GPU_FLOPS * UTILISATION[p.deepspeed] * p.num_processes
    return {
        "rollouts": responses * written / rate / 3600,
        "training": flops / speed * gpus / 3600,
    }


# ---- what this machine has


def examine(
    paper: str = "truthrl", profile: str = "laptop", variant: str = ""
) -> list[Check]:
    """Checks as (what, found, whether that is fine, what to do if not)."""
    p = params.load(paper, profile, variant=variant)
    checks = [*_machine(), _pins(), *map(_asset, assets.ASSETS)]
    if profile in GPUS_NEEDED:
        checks += _gpus(profile) + examine_services(paper, p)
    if profile in GPUS_NEEDED and p.policy in SHAPES:
        parts = memory(paper, p)
        stages = offline_memory(parts) | reward_model_memory(p, parts)
        needed = max(sum(parts.values()), *stages.values())
        found = f"{needed:.0f} of {GPU_GB} GB"
        remedy = "lower micro_batch_size, max_completion_length or vllm_memory"
        checks.append(("memory a GPU", found, needed < GPU_GB, remedy))
        needed = sum(disk(paper, p).values())
        free = shutil.disk_usage(params.ROOT).free / 1e9
        found = f"{free:.0f} GB free, {needed:.0f} GB reckoned"
        remedy = f"put {p.output_dir} and HF_HOME where there is room; fewer arms"
        checks += [("disk of the runs", found, free > needed, remedy), _cache()]
    return checks


def examine_services(paper: str, p: Any) -> list[Check]:
    """A check of each service, gated repository and file that the parameters name."""
    checks = services.needed(p)
    checks += search.checks(p) if paper == "veri" else []
    if p.verifier == "judge":
        others = [other.split("@") for other in getattr(p, "second_judges", ())]
        checks += [services.judge(p, model, url) for model, url in others]
    sets = f"{getattr(p, 'test_sets', '')} {getattr(p, 'utility_benchmarks', '')}"
    checks += repository(p.policy, "model")
    return checks + (repository(GPQA, "dataset") if "gpqa" in sets else [])


def repository(name: str, kind: str) -> list[Check]:
    """Whether the hub gives this machine a repository; nothing for a folder's name."""
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError

    what = f"{kind} {name}"
    if name.count("/") != 1 or Path(assets.policy_path(name)).is_dir():
        return []
    if constants.is_offline_mode():
        return [(what, "not asked: HF_HUB_OFFLINE is set", True, "")]
    try:
        HfApi().auth_check(name, repo_type=kind)
    except HfHubHTTPError as error:
        remedy = f"accept the terms of {name} on huggingface.co, then: hf auth login"
        return [(what, type(error).__name__, False, remedy)]
    except Exception as error:  # whatever a proxy or a cut line makes of it
        return [(what, type(error).__name__, False, "see to the network")]
    return [(what, "the hub gives it", True, "")]


def _cache() -> Check:
    """Whether the cache's databases lie on a disk of this machine."""
    folder = assets.cache_dir().resolve()
    mounts = psutil.disk_partitions(all=True)
    above = [m for m in mounts if folder.is_relative_to(m.mountpoint)]
    kind = max(above, key=lambda m: len(m.mountpoint)).fstype if above else "unknown"
    remedy = "SQLite needs locks that hold: export FACTKIT_CACHE=… on a local disk"
    return ("cache", f"{folder} ({kind})", not kind.startswith(NETWORK), remedy)


def _machine() -> list[Check]:
    python = platform.python_version()
    cores = child.cores()
    memory = psutil.virtual_memory().total / 2**30
    disk = shutil.disk_usage(Path(__file__)).free / 2**30
    return [
        ("Python", python, sys.version_info >= (3, 11), "use Python 3.11 or newer"),
        ("CPU cores", str(cores), cores >= 2, "with one core, expect twice the time"),
        ("memory", f"{memory:.0f} GiB", memory >= 6, "laptop needs about 6 GiB"),
        ("free disk", f"{disk:.0f} GiB", disk >= 5, "free 5 GiB for runs and cache"),
    ]


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def _pins() -> Check:
    """Whether the installed packages are the pinned ones, in one line."""
    pins = [r.partition("==") for r in importlib.metadata.requires("factkit") or []]
    wrong = [
        f"{name} {_version(name)}, pinned {pin.strip()}"
        for name, _, pin in pins
        if "extra" not in pin and _version(name).split("+")[0] != pin.strip()
    ]
    found = "; ".join(wrong) or "as pinned"
    return ("packages", found, not wrong, "pip install -e . (or make reproduce)")


def _asset(name: str) -> Check:
    try:
        assets.verified(name)
    except assets.AssetError as error:
        return (name, "missing or changed", False, str(error))
    return (name, "verified", True, "")


def _gpus(profile: str) -> list[Check]:
    import torch

    number, gigabytes = GPUS_NEEDED[profile]
    cards = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    sizes = [card.total_memory / 1e9 for card in cards]
    enough = sum(size >= gigabytes for size in sizes) >= number
    cards_here = ", ".join(f"{size:.0f} GB" for size in sizes) or "none"
    needs = f"needs {number} GPU(s) of {gigabytes} GB or more"
    versions = {name: _version(name) for name in GPU_PACKAGES}
    return [("GPUs", cards_here, enough, needs)] + [
        (name, version, version != "missing", "pip install -e '.[gpu]'")
        for name, version in versions.items()
    ]
