"""What the stages of a run take, whichever the paper: policy, SFT, DPO, RL."""

import json
import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from factkit import prompts

SEARCH_KEY = "FACTKIT_SEARCH_KEY"  # variable with the key of a web search
PROFILES = ("tiny", "laptop", "h100_lora", "h100_full")
POLICIES = ("tiny-world", "smollm2-135m-instruct", "smollm2-135m-leads")


def _policy(name: str) -> str:
    """A name of the form owner/name may be on the hub and is not looked for there."""
    on_hub = re.fullmatch(r"[\w.-]+/[\w.-]+", name)
    if name not in POLICIES and not on_hub and not Path(name).is_dir():
        raise ValueError(
            f"neither one of {', '.join(POLICIES)}, nor a folder, nor a name on the "
            "hub (owner/name)"
        )
    return name


def _template(name: str) -> str:
    try:
        prompts.template(name)
    except FileNotFoundError as error:
        raise ValueError(str(error)) from None
    return name


def _seeds(value: object) -> object:
    """A single seed on a command line, which YAML reads as a number, as text."""
    return str(value) if type(value) is int else value


Seeds = Annotated[str, BeforeValidator(_seeds)]  # whole numbers, separated by spaces
Policy = Annotated[str, AfterValidator(_policy)]
Template = Annotated[str, AfterValidator(_template)]


class RunParams(BaseModel):
    """What every run has."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False
    )

    profile: Literal[PROFILES]
    variant: str = Field("", pattern=r"^[\w.-]*$")  # joins params file and run folder
    output_dir: str = "outputs"
    seed: int = Field(0, ge=0)


class Corpus(RunParams):
    """Parameters of 01_corpus_and_retrieval."""

    policy: Policy
    chunk_tokens: int = Field(ge=8)
    overlap: int = Field(ge=0)
    max_documents: int = Field(ge=100)
    n_questions: int = Field(ge=20)


class Start(RunParams):
    """Parameters of 00_start_here."""

    policy: Policy
    n_questions: int = Field(ge=1)


class HardwareParams(RunParams):
    """How to run on GPUs; the defaults are those of a machine without one."""

    rollouts: Literal["transformers", "vllm_colocate", "vllm_server"] = "transformers"
    vllm_server_url: str = "http://localhost:8000"
    vllm_server_gpus: int = Field(0, ge=0)  # its own; 0: vllm_tensor_parallel
    vllm_tensor_parallel: int = Field(1, ge=1)
    vllm_memory: float = Field(0.3, gt=0, lt=1)  # share of a GPU's memory
    lora_backend: Literal["peft", "unsloth"] = "peft"
    num_processes: int = Field(1, ge=1)  # GPUs that train, by accelerate launch
    deepspeed: Literal["", "zero3", "zero3_offload"] = ""
    micro_batch_size: int = Field(0, ge=0)  # sequences a GPU at a time; 0: all
    max_context_length: int = Field(2048, ge=16)  # tokens of prompt and response

    @property
    def rollout_gpus(self) -> int:
        """GPUs of an engine that samples while the policy trains."""
        return self.vllm_server_gpus or self.vllm_tensor_parallel


def _json_object(text: str) -> str:
    """Raises ValueError on a text that is neither empty nor a JSON object."""
    if text and not isinstance(json.loads(text), dict):
        raise ValueError("must be a JSON object, as '{\"top_k\": 20}'")
    return text


JsonObject = Annotated[str, AfterValidator(_json_object)]  # flat YAML holds no other


class JudgeParams(HardwareParams):
    """Who judges: rules, an exact reader, or a model behind an endpoint."""

    verifier: str = "rules"  # each paper says which it knows
    judge_model: str = ""
    judge_url: str = "http://localhost:8001/v1"
    judge_concurrency: int = Field(64, ge=1)
    judge_timeout: float = Field(120.0, gt=0)
    judge_max_calls: int = Field(0, ge=0)  # 0: no cap
    judge_key: str = "OPENAI_API_KEY"  # the variable of the environment that holds it
    judge_headers: JsonObject = ""
    judge_extra: JsonObject = ""  # of each request, beside what the kit asks
    judge_thinking_tokens: int = Field(0, ge=0)  # beside those of a reply

    @model_validator(mode="after")
    def _judge_is_named(self) -> Self:
        if self.verifier == "judge" and not self.judge_model:
            raise ValueError("verifier=judge needs judge_model and judge_url")
        return self


class Verifiers(JudgeParams):
    """Parameters of 02_verifiers: a judge is measured where one is named."""

    rows: int = Field(ge=0)
    benchmarks: str = ""


class PolicyParams(JudgeParams):
    """The policy, how it answers, and the fact world that a tiny one is trained on."""

    policy: Policy
    dtype: Literal["float32", "bfloat16"]
    chat: bool
    answer_format: str  # each paper says which it knows
    max_completion_length: int = Field(ge=1)
    eval_batch_size: int = Field(ge=1)

    # the fact world and its policy: profile tiny's alone
    world_people: int = Field(500, ge=20)
    world_seed: int = Field(0, ge=0)
    pretrain_hidden_size: int = Field(128, ge=16)
    pretrain_layers: int = Field(4, ge=1)
    pretrain_steps: int = Field(400, ge=1)
    pretrain_batch_size: int = Field(16, ge=1)
    pretrain_learning_rate: float = Field(5.0e-3, gt=0, lt=1)
    pretrain_reading: float = Field(0.0, ge=0)


class TrainParams(PolicyParams):
    """What all training has: an adapter or full parameters, checkpoints."""

    lora_rank: int = Field(ge=0)
    lora_alpha: int = Field(ge=1)
    sft_warmup_ratio: float = Field(ge=0, le=1)  # of DPO and reward models, too
    checkpoint_steps: int = Field(ge=1)

    @model_validator(mode="after")
    def _unsloth_has_an_adapter(self) -> Self:
        if self.lora_backend == "unsloth" and (not self.lora_rank or self.deepspeed):
            raise ValueError("lora_backend=unsloth needs lora_rank > 0, no deepspeed")
        return self


class SftParams(TrainParams):
    """Supervised fine-tuning."""

    sft_learning_rate: float = Field(gt=0, lt=1)
    sft_batch_size: int = Field(ge=1)
    sft_epochs: int = Field(ge=1)
    sft_by_length: bool = False  # rows of an update alike, not at random


class DpoParams(TrainParams):
    """DPO."""

    dpo_learning_rate: float = Field(gt=0, lt=1)
    dpo_batch_size: int = Field(ge=1)
    dpo_epochs: int = Field(ge=1)
    dpo_beta: float = Field(gt=0)


class RlParams(TrainParams):
    """GRPO."""

    rl_learning_rate: float = Field(gt=0, lt=1)
    rl_warmup_ratio: float = Field(0.0, ge=0, lt=1)  # of the steps; then constant
    rl_steps: int = Field(ge=1)
    rl_batch_size: int = Field(ge=2)
    minibatches: int = Field(1, ge=1)  # updates a rollout
    num_generations: int = Field(ge=2)
    beta: float = Field(ge=0)
    loss: Literal["grpo", "dr_grpo"] = "grpo"
    epsilon: float = Field(gt=0, lt=1)
    temperature: float = Field(gt=0)
    top_p: float = Field(gt=0, le=1)
    kept_policies: int = Field(1, ge=1)  # while training, evenly; 1: the last alone

    @property
    def kept_steps(self) -> list[int]:
        """The updates after which the policy is kept, the last one last."""
        n = self.kept_policies
        steps = {self.rl_steps * i // n for i in range(1, n + 1)}
        return sorted(steps - {0})

    @model_validator(mode="after")
    def _groups_fill_the_batch(self) -> Self:
        if self.rl_batch_size % self.num_generations:
            raise ValueError(
                f"num_generations={self.num_generations} must divide "
                f"rl_batch_size={self.rl_batch_size}: a batch holds whole groups"
            )
        per_step = self.num_processes * (self.micro_batch_size or 1)
        if self.rl_batch_size % per_step:
            raise ValueError(
                f"num_processes × micro_batch_size = {per_step} must divide "
                f"rl_batch_size={self.rl_batch_size}"
            )
        return self


class TokenLevelParams(RlParams):
    """PPO on token rewards, or its group-relative variant.

    An update is of rl_batch_size completions; `loss` is not asked.
    """

    method: Literal["ppo", "group"] = "ppo"
    gamma: float = Field(ge=0, le=1)
    ppo_epochs: int = Field(ge=1)  # times that a rollout is gone through
    minibatches: int = Field(ge=1)  # updates each time

    # PPO alone
    gae_lambda: float = Field(ge=0, le=1)
    value_clip: float = Field(gt=0)
    value_coefficient: float = Field(ge=0)
    value_learning_rate: float = Field(gt=0, lt=1)

    @model_validator(mode="after")
    def _unsloth_has_its_own_trainer(self) -> Self:
        if self.lora_backend == "unsloth":
            raise ValueError("lora_backend=unsloth has no token-level trainer: peft")
        return self


class RewardModelParams(RlParams):
    """The reward model of RLHF and RLKF."""

    reward_lora_rank: int = Field(0, ge=0)  # 0: full parameters
    reward_pairs: int = Field(0, ge=0)  # wrong samples of a question, at most; 0: all
    reward_beta: float = Field(ge=0)
    reward_learning_rate: float = Field(gt=0, lt=1)
    reward_batch_size: int = Field(ge=1)
    reward_epochs: int = Field(ge=1)


class RequestParams(PolicyParams):
    """Requests that are answered at length, their evidence, and who verifies."""

    data_notebook: ClassVar[str]  # writes the requests and their evidence
    splits: ClassVar[tuple[str, ...]] = ("train", "dev", "test")
    verifier: Literal["world", "leads", "judge"]
    prompt_template: Template

    requests: str  # each paper says which it knows
    requests_path: str = ""
    train_requests: int = Field(ge=8)
    dev_requests: int = Field(ge=8)
    test_requests: int = Field(ge=8)
    split_seed: int = Field(0, ge=0)  # of requests and questions, but in the fact world
    drawn_responses: int = Field(ge=2)
    drawn_temperature: float = Field(gt=0)

    search_url: str = ""
    pages: int = Field(ge=1)
    least_pages: int = Field(ge=1)
    claim_chunks: int = Field(ge=1)
    claim_chunk_tokens: int = Field(ge=8)
    test_chunks: int = Field(ge=1)
