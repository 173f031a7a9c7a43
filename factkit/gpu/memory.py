"""Memory and disk that a GPU profile needs, estimated from its parameters.

For models that `SHAPES` lacks, use `accelerate estimate-memory <model>`.
"""

from typing import Any, NamedTuple

from factkit.run.arms import get_paper, list_arms

GPU_GB = 80
GPU_FLOPS = 989e12  # H100 SXM, dense bfloat16 (NVIDIA's data sheet)
# Bytes per logit with its gradient: of RL's selected tokens; of a cross-entropy over
# all tokens, in float32 with the softmax (ours)
LOGIT_BYTES, NLL_BYTES = 8, 12
HOST_BYTES = 20  # a weight, offloaded: 2, gradient 2 + 4, float32 copy 4, Adam's two 8
PROCESS_GB = 4  # of host memory, a training process (ours)


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


def tokens(p: Any) -> tuple[int, int, int]:
    """Tokens of a prompt (limited by the context), of a full response, and of the part
    of the response that the policy writes."""
    prompt, response, written = get_paper(p).needs(p).tokens()
    return min(prompt, max(p.max_context_length - response, 0)), response, written


def trained(p: Any, rank: int) -> float:
    """Billions of trained weights: of an adapter of this rank; of all with rank 0."""
    shape = SHAPES[p.policy]
    return shape.lora(rank) / 1e9 if rank else shape.billions


def _share(p: Any) -> float:
    """The fraction of sharded state on each GPU; 0 if it is offloaded to the host."""
    sharded = (p.deepspeed != "zero3_offload") / p.num_processes
    return sharded if p.deepspeed else 1


def memory(p: Any) -> dict[str, float]:
    """GB of each training GPU in an RL step; DeepSpeed shards the first four items. The
    engine frees its memory while the policy trains (sleep level 2, without a copy on
    the host)."""
    shape, weights = SHAPES[p.policy], trained(p, 0)
    own = trained(p, p.lora_rank)
    size = 2 if p.lora_rank or p.deepspeed else 4  # bytes of a weight
    share = _share(p)
    adam = 12 if p.deepspeed else 8  # with a float32 copy of the weights
    copies = p.beta > 0 and not p.lora_rank  # else the policy without its adapter
    prompt, response, _ = tokens(p)
    rows = p.split_batch(p.rl_batch_size)[0]
    hidden = rows * (prompt + response) * shape.hidden * shape.layers / 1e9
    return {
        "weights": size * weights * share,
        "gradients": 4 * own * share,
        "optimizer": adam * own * share,
        "reference": copies * size * weights * share,
        # DeepSpeed's estimate
        "gathered layer": 4 * shape.vocabulary * shape.hidden / 1e9 * bool(p.deepspeed),
        "activations": 2 * hidden,  # a hidden state a layer and token
        "logits": LOGIT_BYTES * rows * response * shape.vocabulary / 1e9,
        "rollout engine": p.vllm_memory * GPU_GB * (p.rollouts == "vllm_colocate"),
    }


def peaks(p: Any) -> dict[str, float]:
    """Peak GB of each training GPU by stage of the arms.

    SFT's loss needs the logits of prompts under ZeRO-3, DPO those of two responses with
    prompts. A learned reward trains in float32 without logits; each GPU holds all of
    it while it scores."""
    gb = memory(p)
    prompt, response, _ = tokens(p)
    engine, read, logits = map(gb.pop, ("rollout engine", "activations", "logits"))
    state, whole = sum(gb.values()), logits * (1 + prompt / response)

    def working(stage: str, logits: float) -> float:
        """GB of a stage's rows in one pass."""
        total = getattr(p, f"{stage}_batch_size", p.rl_batch_size)
        rows = p.split_batch(total)[0] / p.split_batch(p.rl_batch_size)[0]
        return rows * (read + logits)

    nll = whole * NLL_BYTES / LOGIT_BYTES * bool(p.deepspeed)
    stages = {
        "SFT": state - gb["reference"] + working("sft", nll),
        "DPO": state + 2 * working("dpo", whole),
        "rollouts": state + engine,
        "RL": state + read + logits,
    }
    if scorer(p):
        stages["scores"] = state + scorer(p)
        model = 4 * trained(p, 0) + 12 * trained(p, p.reward_lora_rank)  # and Adam's
        model = model * _share(p) + gb["gathered layer"] + 4 * working("reward", 0)
        stages["reward model"] = model
    used = {arm.algorithm for arm in list_arms(p)}
    if any(arm.by_rl for arm in list_arms(p)):
        used |= {"rollouts", "RL", "scores", "reward model"}
    return {name: most for name, most in stages.items() if name in used}


def scorer(p: Any) -> float:
    """GB of a learned reward's model, one per process; 0 if no arm has one."""
    if not any(arm.learned_reward for arm in list_arms(p)):
        return 0.0
    return (2 if p.reward_lora_rank else 4) * trained(p, 0)


def host_memory(p: Any) -> float:
    """GB of host memory: offloaded state, one copy of the weights while they are loaded
    or saved, and the processes, each with its learned reward."""
    offloaded = (HOST_BYTES + 2 * (p.beta > 0)) * (p.deepspeed == "zero3_offload")
    processes = (PROCESS_GB + scorer(p)) * p.num_processes
    return (2 + offloaded) * trained(p, 0) + processes


def disk(p: Any) -> dict[str, float]:
    """GB of disk: three checkpoints of one training run (one of them being written),
    the stored policies of all arms and seeds, the candidates of a running arm, and
    downloads."""
    own, each = trained(p, p.lora_rank), getattr(p, "kept_policies", 1)
    trained_arms = [arm for arm in list_arms(p) if arm.algorithm]
    policies = len(p.seed_numbers) * len(trained_arms) * each
    chosen_from = [arm.configure(p).kept_policies for arm in trained_arms if arm.by_rl]
    policies += max((n for n in chosen_from if n != each), default=0)
    corpora = get_paper(p).needs(p).corpora_gb
    return {
        "checkpoints": 3 * 14 * own,  # bfloat16, its float32 copy, Adam's two
        "policies": 2 * own * policies,
        "downloads": 2 * trained(p, 0) + corpora,
    }
