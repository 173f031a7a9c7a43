"""What a profile costs: memory, tokens, calls and GPU-hours, from its parameters."""

from dataclasses import dataclass

from factkit import workload
from factkit.params.stages import RlParams, TokenLevelParams
from factkit.veri.arms import Veri
from factkit.workload import Paper, Row

GPU_GB = 80

# Assumptions, ours: nothing here was measured by us
DECODE_TOKENS_S = 2500  # vLLM, 8B model in bfloat16, 64 at a time, a GPU
GPU_FLOPS = 989e12  # H100 SXM, dense bfloat16 (NVIDIA's data sheet)
UTILISATION = {"": 0.3, "zero3": 0.3, "zero3_offload": 0.15}  # of it, in training


@dataclass(frozen=True)
class Shape:
    """A Llama-like model's sizes, as in its config.json.

    bias: of q, k and v. qk_norm: heads of q and of k are normed, as in Qwen3.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int
    vocabulary: int
    tied: bool = False
    bias: bool = False
    qk_norm: bool = False

    @property
    def linears(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of a layer's linear maps."""
        q, kv = self.heads * self.head_size, self.kv_heads * self.head_size
        return [
            *((self.hidden, q), (self.hidden, kv), (self.hidden, kv), (q, self.hidden)),
            *(
                (self.hidden, self.ffn),
                (self.hidden, self.ffn),
                (self.ffn, self.hidden),
            ),
        ]

    @property
    def parameters(self) -> int:
        """All weights: linear maps, biases, norms, embeddings."""
        linear = sum(a * b for a, b in self.linears)
        biases = (self.heads + 2 * self.kv_heads) * self.head_size * self.bias
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        norms = 2 * self.hidden + 2 * self.head_size * self.qk_norm
        layer = linear + biases + norms
        return self.layers * layer + self.hidden + embeddings

    def lora(self, rank: int) -> int:
        """Weights of a LoRA adapter on every linear map: r (inputs + outputs) each."""
        return self.layers * rank * sum(a + b for a, b in self.linears)

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values a token, in bfloat16."""
        return 2 * self.layers * self.kv_heads * self.head_size * 2


SHAPES = {
    "meta-llama/Llama-3.1-8B-Instruct": Shape(32, 4096, 32, 8, 128, 14336, 128256),
    "meta-llama/Llama-3.2-3B-Instruct": Shape(
        28, 3072, 24, 8, 128, 8192, 128256, tied=True
    ),
    "Qwen/Qwen2.5-3B-Instruct": Shape(
        36, 2048, 16, 2, 128, 11008, 151936, tied=True, bias=True
    ),
    "Qwen/Qwen2.5-7B-Instruct": Shape(28, 3584, 28, 4, 128, 18944, 152064, bias=True),
    "Qwen/Qwen2.5-32B-Instruct": Shape(64, 5120, 40, 8, 128, 27648, 152064, bias=True),
    "Qwen/Qwen3-4B": Shape(36, 2560, 32, 8, 128, 9728, 151936, tied=True, qk_norm=True),
    "Qwen/Qwen3-8B": Shape(36, 4096, 32, 8, 128, 12288, 151936, qk_norm=True),
    "allenai/Llama-3.1-Tulu-3-8B": Shape(32, 4096, 32, 8, 128, 14336, 128264),
    "allenai/Llama-3.1-Tulu-3-8B-DPO": Shape(32, 4096, 32, 8, 128, 14336, 128264),
    "lmsys/vicuna-7b-v1.5": Shape(32, 4096, 32, 32, 128, 11008, 32000),
    "smollm2-135m-instruct": Shape(30, 576, 9, 3, 64, 1536, 49152, tied=True),
    "smollm2-135m-leads": Shape(30, 576, 9, 3, 64, 1536, 49152, tied=True),
}


def estimate(p: Paper) -> list[Row]:
    """What a profile takes, from its parameters alone: (what, value, how reckoned).

    Upper bounds: responses at their full length, every prompt of every set.
    """
    shape = shape_of(p)
    if shape is None:
        return [
            ("parameters", "unknown", f"{p.policy} is not in costs.SHAPES"),
            *workload.judge_rows(p),
            *workload.search_rows(p),
        ]
    return [
        *_sizes(p, shape),
        *(
            (f"memory a process: {what}", f"{gb:.1f} GB", how)
            for what, gb, how in memory(p, shape)
        ),
        *_host(p, shape),
        *_tokens(p),
        *workload.judge_rows(p),
        *workload.search_rows(p),
        *_hours(p, shape),
        *_as_assumed(p, shape),
    ]


def shape_of(p: Paper) -> Shape | None:
    """The sizes of p's policy, or None if they are not in the table."""
    if p.policy != "tiny-world":
        return SHAPES.get(p.policy)
    from factkit.world import facts as world
    from factkit.world import texts as world_text

    made = world.build_world(people=p.world_people, seed=p.world_seed)
    hidden, heads = p.pretrain_hidden_size, p.pretrain_hidden_size // 32
    return Shape(
        *(p.pretrain_layers, hidden, heads, heads, 32, hidden * 8 // 3),
        vocabulary=len(world_text.build_tokenizer(made, p.answer_format)),
        tied=True,
    )


def memory(p: Paper, shape: Shape) -> list[tuple[str, float, str]]:
    """GB of each training GPU in an RL step: (what, GB, how reckoned)."""
    n, size = shape.parameters, 4 if p.dtype == "float32" else 2
    adapter = shape.lora(p.lora_rank)
    gpus, offload = p.num_processes, p.deepspeed == "zero3_offload"
    share = 0 if offload else 1 / gpus
    if p.deepspeed:
        trained = adapter if p.lora_rank else n
        where = "waits on the host" if offload else f"sharded over {gpus} GPUs"
        largest = shape.vocabulary * shape.hidden
        rows = [
            ("weights", size * n * share, f"{size} B each, {where}"),
            ("gradients", 4 * trained * share, f"4 B each, {where}"),
            ("optimizer", 12 * trained * share, f"Adam in float32: 12 B each, {where}"),
            (
                "gathered layer",
                4 * largest,
                "4 B × the embedding, as DeepSpeed's estimate",
            ),
        ]
    elif p.lora_rank:
        rows = [
            ("weights", size * n + 4 * adapter, f"{size} B each, adapter in float32"),
            ("gradients", 4 * adapter, "4 B a weight of the adapter"),
            ("optimizer", 8 * adapter, "Adam: 8 B a weight of the adapter"),
        ]
    else:
        rows = [
            ("weights", 4 * n, "float32"),
            ("gradients", 4 * n, "float32"),
            ("optimizer", 8 * n, "Adam in float32: 8 B each"),
        ]
    rows.append(_reference(p, size * n * share if p.deepspeed else 4 * n))
    rows += [*_activations(p, shape), _engine(p)]
    return [(what, amount / 1e9, how) for what, amount, how in rows]


def _reference(p: RlParams, full: float) -> tuple[str, float, str]:
    if p.beta == 0:
        return "reference", 0.0, "none: beta is 0"
    if p.lora_rank:
        return "reference", 0.0, "the policy with its adapter switched off"
    return "reference", full, "a second copy of the weights, kept as these are"


def _activations(p: Paper, shape: Shape) -> list[tuple[str, float, str]]:
    rows = micro_batch(p)
    layers = rows * workload.sequence_tokens(p) * shape.hidden * shape.layers * 2
    logits = rows * workload.response_tokens(p) * shape.vocabulary * 4 * 2
    return [
        ("activations", layers, f"{rows} sequences, one hidden state a layer kept"),
        ("logits", logits, f"{rows} responses × vocabulary × 4 B, and their gradient"),
    ]


def _engine(p: RlParams) -> tuple[str, float, str]:
    if p.rollouts == "vllm_colocate":
        how = f"vLLM takes {p.vllm_memory:.0%} of the GPU: weights and KV cache"
        return "rollout engine", p.vllm_memory * GPU_GB * 1e9, how
    where = "on GPUs of its own" if p.rollouts == "vllm_server" else "no engine"
    return "rollout engine", 0.0, where


def micro_batch(p: RlParams) -> int:
    """Sequences a process holds at a time in RL."""
    share = p.rl_batch_size // p.num_processes
    return min(p.micro_batch_size or share, share)


def gpu_hours(p: Paper, shape: Shape) -> dict[str, float]:
    """GPU-hours by stage, without the judge's; empty where no engine is used (CPUs).

    Rollouts and training of an RL run take turns, and hold all its GPUs throughout.
    Sampling (once for all arms) and an arm's evaluation are reckoned as on one GPU.
    """
    engines = {"vllm_colocate": p.num_processes, "vllm_server": p.vllm_tensor_parallel}
    if p.rollouts not in engines:
        return {}
    of_server = p.vllm_tensor_parallel if p.rollouts == "vllm_server" else 0
    gpus = p.num_processes + of_server
    rate = DECODE_TOKENS_S * 8e9 / shape.parameters  # tokens/s a GPU
    passes = 8 + 2 + (2 if p.beta else 0)  # FLOP a weight and token
    passes += 2 * isinstance(p, TokenLevelParams)  # the values of a rollout's tokens
    flops = passes * shape.parameters * workload.rollout_tokens(p)
    speed = GPU_FLOPS * UTILISATION[p.deepspeed] * p.num_processes
    sampled = {k: n * each for k, (n, _, each) in workload.sampling(p).items()}
    responses = sampled | {
        "rollouts": p.rl_steps * p.rl_batch_size / engines[p.rollouts] * gpus,
        "evaluation": workload.evaluated_responses(p),
    }
    seconds = {k: n * workload.written_tokens(p) / rate for k, n in responses.items()}
    seconds["training"] = flops / speed * gpus
    return {stage: s / 3600 for stage, s in seconds.items()}


def _sizes(p: Paper, shape: Shape) -> list[Row]:
    rows = [("parameters", f"{shape.parameters:,}", f"{p.policy}, from its sizes")]
    trained, how = shape.parameters, "all"
    if p.lora_rank:
        trained = shape.lora(p.lora_rank)
        how = f"LoRA of rank {p.lora_rank} on every linear map"
    rows.append(("trained parameters", f"{trained:,}", how))
    kept = len(p.kept_steps)
    how = f"roughly: {kept} kept × 4 B a trained weight, two checkpoints × 12 B"
    disk = f"{(4 * kept + 24) * trained / 1e9:.1f} GB"
    rows.append(("disk of an RL arm", disk, how))
    at_once = p.minibatches * p.rl_batch_size
    cache = at_once * workload.sequence_tokens(p) * shape.kv_bytes / 1e9
    how = f"{at_once} rollouts at once × {shape.kv_bytes:,} B a token"
    return [*rows, ("KV cache of a step's rollouts", f"{cache:.1f} GB", how)]


def _host(p: Paper, shape: Shape) -> list[Row]:
    if p.deepspeed != "zero3_offload":
        return []
    copies = 18 * shape.parameters * 1.5 / 1e9
    if p.beta and not p.lora_rank:
        copies += 2 * shape.parameters / 1e9
    how = "DeepSpeed's estimate, 18 B each × 1.5 for buffers, and the reference's 2 B"
    return [("host memory", f"{copies:.0f} GB", how)]


def _tokens(p: Paper) -> list[Row]:
    prompt, response = workload.prompt_tokens(p), workload.response_tokens(p)
    how = f"{p.rl_steps} steps × {p.rl_batch_size} responses × ({prompt} + {response}) "
    how += "tokens"
    rows = [("rollout tokens of an RL run", f"{workload.rollout_tokens(p):,}", how)]
    total = workload.sampled_tokens(p)
    for stage, (prompts, tokens, each) in workload.sampling(p).items():
        how = f"{prompts} prompts × ({tokens} + {each} responses × {response}); once "
        how += "for all arms"
        rows.append((f"{stage} tokens", f"{total[stage]:,}", how))
    return rows


def _hours(p: Paper, shape: Shape) -> list[Row]:
    hours = gpu_hours(p, shape)
    if not hours:
        return [("GPU-hours", "0", "runs on CPUs: README has its minutes")]
    decode = f"assumed by us: {DECODE_TOKENS_S} tokens/s a GPU for 8B, as 1/size"
    shared = workload.sampling(p)
    share, peak = UTILISATION[p.deepspeed], GPU_FLOPS / 1e12
    notes = {stage: f"once for all arms; {decode}" for stage in shared} | {
        "rollouts": f"of an RL run; {decode}",
        "training": f"of an RL run; assumed by us: {share:.0%} of {peak:.0f} TFLOP/s",
        "evaluation": f"of an arm; {decode}",
    }
    rows = [(f"GPU-hours: {k}", f"{hours[k]:.1f}", how) for k, how in notes.items()]
    total = sum(n for stage, n in hours.items() if stage not in shared)
    return [*rows, ("GPU-hours: an RL arm", f"{total:.1f}", "and the judge's on top")]


def _as_assumed(p: Paper, shape: Shape) -> list[Row]:
    """An RL run again, by the lengths that Veri-R1's trajectories are assumed to have:
    few of them use up their budgets. Nothing for CPUs, whose prompts are others."""
    if not isinstance(p, Veri):
        return []
    typical = workload.veri.typical(p)
    hours = gpu_hours(typical, shape)
    if not hours:
        return []
    how = f"assumed by us: a prompt of {typical.max_prompt_length}, "
    how += f"{typical.max_searches + 1} turns of {typical.max_completion_length}, "
    how += f"{typical.max_searches} replies of {typical.max_observation_length}"
    each, tokens = workload.sequence_tokens(typical), workload.rollout_tokens(typical)
    run = hours["rollouts"] + hours["training"]
    return [
        ("tokens of a trajectory, as assumed", f"{each:,}", how),
        ("rollout tokens of an RL run, as assumed", f"{tokens:,}", "of such ones"),
        ("GPU-hours: an RL run, as assumed", f"{run:.1f}", "rollouts and training"),
    ]
