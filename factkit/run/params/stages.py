"""Parameters that papers share, one class per stage of a run."""

import typing
from importlib.util import find_spec
from typing import ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from factkit.run.params import fields

SEARCH_KEY = "FACTKIT_SEARCH_KEY"  # variable with the key of a web search
Profile = Literal["tiny", "laptop", "h100_lora", "h100_full"]
CONFIDENCE_TOKENS = 6  # of " (0.7)", at most
PROFILES: tuple[str, ...] = typing.get_args(Profile)


class RunParams(BaseModel):
    """Parameters of every run."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False
    )

    profile: Profile
    variant: fields.Variant = ""  # joins params file and run folder
    output_dir: fields.Folder = "outputs"
    seed: fields.Seed = 0

    @property
    def has_own_data(self) -> bool:
        """Whether the rows are the user's own."""
        return False


class SweepParams(RunParams):
    """The arms and seeds that a sweep runs and a paper's notebooks compare."""

    known_arms: ClassVar[tuple[str, ...]]
    arm: fields.Name
    arms: fields.Text
    seeds: fields.Seeds

    @property
    def arm_names(self) -> list[str]:
        """`arms` as a list."""
        return self.arms.split()

    @property
    def seed_numbers(self) -> list[int]:
        """`seeds` as a list."""
        return [int(seed) for seed in self.seeds.split()]

    @field_validator("arm", "arms")
    @classmethod
    def _arms_are_known(cls, text: str) -> str:
        if not fields.are_some_of(text, cls.known_arms, least=1):
            raise ValueError(f"there are {', '.join(cls.known_arms)}: name each once")
        return text


class Corpus(RunParams):
    """Parameters of 01_corpus_and_retrieval."""

    policy: fields.Policy
    chunk_tokens: fields.ChunkTokens
    overlap: fields.TokensOrZero = 16  # tokens that two chunks share
    max_documents: int = Field(ge=100, le=fields.MOST)
    n_questions: int = Field(ge=20, le=fields.MOST)

    @model_validator(mode="after")
    def _chunks_move_on(self) -> Self:
        if self.overlap >= self.chunk_tokens:
            raise ValueError(f"overlap={self.overlap} must be below chunk_tokens")
        return self


class Start(RunParams):
    """Parameters of 00_start_here."""

    policy: fields.Policy
    n_questions: fields.Count


class HardwareParams(RunParams):
    """How to run on GPUs; the defaults fit a machine without any."""

    rollouts: Literal["transformers", "vllm_colocate"] = "transformers"
    vllm_tensor_parallel: fields.Few = 1
    vllm_memory: float = Field(0.3, gt=0, lt=1)  # share of a GPU's memory
    lora_backend: Literal["peft", "unsloth"] = "peft"
    num_processes: fields.Few = 1  # GPUs that train, by accelerate launch
    deepspeed: Literal["", "zero3", "zero3_offload"] = ""
    micro_batch_size: fields.FewOrZero = 0  # sequences a GPU at a time; 0: all
    max_context_length: int = Field(2048, ge=16, le=fields.MOST_TOKENS)

    def split_batch(self, total: int) -> tuple[int, int]:
        """Rows per pass and passes per process of an update of `total` rows.

        total = rows × passes × num_processes. With micro_batch_size 0 a process takes
        its share in one pass. Raises ValueError if it does not divide.
        """
        share, rest = divmod(total, self.num_processes)
        micro = min(self.micro_batch_size or share, share)
        if rest or not micro or share % micro:
            raise ValueError(
                f"a batch of {total} does not split into {self.num_processes} "
                f"processes × whole micro-batches of {self.micro_batch_size}; change "
                "micro_batch_size or num_processes"
            )
        return micro, share // micro


class JudgeParams(HardwareParams):
    """The verifier: rules, an exact reader, or a model behind an endpoint."""

    verifier: fields.Name = "rules"  # each paper says which it knows
    judge_model: fields.Name = ""
    judge_url: fields.Url = "http://localhost:8001/v1"
    judge_gpus: fields.Few = 1  # of the judge's replicas, for doctor's bill
    judge_concurrency: fields.Few = 64
    judge_timeout: float = Field(120.0, gt=0, le=86_400)
    judge_max_calls: int = Field(0, ge=0, le=10**12)  # 0: no cap
    # variables of the environment: a secret given here would be in results.json
    judge_key: fields.Variable = "OPENAI_API_KEY"  # holds the key
    judge_headers: fields.Variable = ""  # holds a JSON object, a gateway's headers
    judge_extra: fields.RequestFields = ""  # of each request, beside what the kit asks
    judge_thinking_tokens: fields.TokensOrZero = 0  # beside those of a reply

    @model_validator(mode="after")
    def _judge_is_named(self) -> Self:
        if self.verifier == "judge" and not (self.judge_model and self.judge_url):
            raise ValueError("verifier=judge needs judge_model and judge_url")
        return self


class Verifiers(JudgeParams):
    """Parameters of 02_verifiers: a judge is measured where one is named."""

    verifier: Literal["rules"] = "rules"
    rows: fields.CountOrZero
    benchmarks: fields.FetchedFolder = ""


class PolicyParams(JudgeParams):
    """The policy, its answers, and the fact world that a tiny one is trained on."""

    data_notebook: ClassVar[str]  # writes the run's data
    splits: ClassVar[tuple[str, ...]] = ("train", "dev", "test")
    policy: fields.Policy
    dtype: Literal["float32", "bfloat16"]
    chat: bool
    answer_format: fields.Name  # each paper says which it knows
    prompt_template: fields.Template
    max_completion_length: fields.Tokens
    eval_batch_size: fields.Count

    # the fact world and its policy: profile tiny's alone
    world_people: int = Field(500, ge=20, le=20_000)  # of 50,000 names
    world_seed: fields.Seed = 0
    world_exposure: Literal["person", "fact"] = "person"
    pretrain_hidden_size: fields.Width = 128
    pretrain_layers: int = Field(4, ge=1, le=128)
    pretrain_steps: fields.Count = 400
    pretrain_batch_size: fields.Few = 16
    pretrain_learning_rate: fields.LearningRate = 5.0e-3
    pretrain_reading: fields.Weight = 0.0

    @property
    def states_confidence(self) -> bool:
        """Whether the policy ends a response with its confidence: "Paris (0.7)"."""
        return False

    @property
    def response_tokens(self) -> int:
        """New tokens of a response: the answer's, and those of a stated confidence."""
        stated = CONFIDENCE_TOKENS if self.states_confidence else 0
        return self.max_completion_length + stated

    @model_validator(mode="after")
    def _policy_fits(self) -> Self:
        if self.response_tokens >= self.max_context_length:
            raise ValueError(
                f"max_completion_length={self.max_completion_length} leaves no room "
                f"for a prompt in max_context_length={self.max_context_length}"
            )
        if self.chat and not fields.has_chat_template(self.policy):
            raise ValueError(f"chat=true: policy={self.policy} has no chat template")
        return self


class TrainParams(PolicyParams):
    """Parameters of all training."""

    report_to: Literal["none", "tensorboard", "trackio", "wandb", "mlflow"] = "none"
    lora_rank: int = Field(ge=0, le=4096)
    lora_alpha: int = Field(ge=1, le=65_536)
    sft_warmup_ratio: fields.WarmUp = 0.03  # TruthRL App. C; also of DPO, reward models
    checkpoint_steps: fields.Count

    @field_validator("report_to")
    @classmethod
    def _tracker_is_installed(cls, name: str) -> str:
        if name != "none" and not find_spec(name):
            raise ValueError(f"{name} is not installed: pip install {name}")
        return name

    @model_validator(mode="after")
    def _hardware_fits(self) -> Self:
        if self.lora_backend == "unsloth" and (not self.lora_rank or self.deepspeed):
            raise ValueError("lora_backend=unsloth needs lora_rank > 0, no deepspeed")
        if self.deepspeed and self.num_processes == 1:
            raise ValueError(
                f"deepspeed={self.deepspeed} shards: num_processes must be ≥ 2"
            )
        for key in ("sft_batch_size", "dpo_batch_size", "reward_batch_size"):
            if hasattr(self, key):
                self.split_batch(getattr(self, key))
        return self


class SftParams(TrainParams):
    """Supervised fine-tuning."""

    sft_learning_rate: fields.LearningRate
    sft_batch_size: fields.Count
    sft_epochs: fields.Few
    sft_by_length: bool = False  # rows of an update alike, not at random


class DpoParams(TrainParams):
    """DPO."""

    dpo_learning_rate: fields.LearningRate
    dpo_batch_size: fields.Count
    dpo_epochs: fields.Few
    dpo_beta: float = Field(0.1, gt=0, le=100)


class RlParams(TrainParams):
    """GRPO."""

    rl_learning_rate: fields.LearningRate
    rl_warmup_ratio: fields.WarmUp = 0.0  # of the steps; then constant
    rl_steps: fields.Count
    rl_batch_size: int = Field(ge=2, le=fields.MOST)
    minibatches: fields.Few = 1  # updates a rollout
    num_generations: fields.Samples
    beta: fields.Weight
    loss: Literal["grpo", "dr_grpo"] = "grpo"
    epsilon: float = Field(0.2, gt=0, lt=1)  # TruthRL App. C
    temperature: fields.Temperature
    top_p: fields.TopP = 1.0  # TruthRL App. C
    kept_policies: fields.Few = 1  # while training, evenly; 1: the last alone

    @property
    def kept_steps(self) -> list[int]:
        """The updates after which the policy is kept, up to the last one."""
        n = self.kept_policies
        return sorted({self.rl_steps * i // n for i in range(1, n + 1)} - {0})

    @model_validator(mode="after")
    def _batches_hold_whole_groups(self) -> Self:
        prompts = self.minibatches * self.rl_batch_size // self.num_generations
        for key in ("train_questions", "train_requests", "train_claims"):
            if getattr(self, key, prompts) < prompts:
                raise ValueError(
                    f"{key}={getattr(self, key)}: a rollout takes {prompts} prompts, "
                    "minibatches × rl_batch_size / num_generations"
                )
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
    """PPO on token rewards, or its group-relative variant; `loss` is not used."""

    method: Literal["ppo", "group"] = "ppo"
    gamma: fields.Share = 1.0  # RLFH's code
    ppo_epochs: fields.Few = 1  # passes over a rollout; RLFH's code
    minibatches: fields.Few  # updates each time

    # PPO alone
    gae_lambda: fields.Share = 0.95  # RLFH's code
    value_clip: float = Field(0.2, gt=0, le=10)  # RLFH's code
    value_coefficient: fields.Weight = 0.5
    value_learning_rate: fields.LearningRate

    @model_validator(mode="after")
    def _unsloth_has_its_own_trainer(self) -> Self:
        if self.lora_backend == "unsloth":
            raise ValueError("lora_backend=unsloth has no token-level trainer: peft")
        return self


class RewardModelParams(RlParams):
    """The reward model of RLHF and RLKF."""

    reward_lora_rank: int = Field(0, ge=0, le=4096)  # 0: full parameters
    reward_pairs: fields.FewOrZero = 0  # wrong samples of a question, at most; 0: all
    reward_beta: fields.Weight
    reward_learning_rate: fields.LearningRate
    reward_batch_size: fields.Count
    reward_epochs: fields.Few
