"""What the stages of a run take, whichever the paper: policy, SFT, DPO, RL."""

import json
import re
import typing
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

import pydantic_core
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    HttpUrl,
    field_validator,
    model_validator,
)

from factkit import prompts

ROOT = Path(__file__).resolve().parents[2]
SEARCH_KEY = "FACTKIT_SEARCH_KEY"  # variable with the key of a web search
PROFILES = ("tiny", "laptop", "h100_lora", "h100_full")
POLICIES = ("tiny-world", "smollm2-135m-instruct", "smollm2-135m-leads")
WEIGHTS = ("*.safetensors", "*.bin")  # the latter is refused later, with the remedy
SOURCES = ("params", "notebooks", "factkit", "tests", "outputs/reference")
SYSTEM = ("/bin", "/boot", "/etc", "/lib", "/proc", "/sbin", "/sys", "/usr")
# fields of a judge's request that the kit sets itself, under any server's name for them
OWN_FIELDS = frozenset(
    """model messages prompt max_tokens max_completion_tokens max_new_tokens temperature
    top_p n best_of stream stream_options response_format structured_outputs guided_json
    guided_regex guided_choice guided_grammar tools tool_choice functions function_call
    stop extra_body extra_headers""".split()
)

# ---- types of values


def matching(pattern: str, form: str) -> AfterValidator:
    """A validator of texts that match a regular expression; `form` is it in words."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text, re.ASCII):
            raise ValueError(f"must be {form}")
        return text

    return AfterValidator(check)


def some_of(*known: str, least: int = 0) -> AfterValidator:
    """A validator of names that are separated by spaces: known ones, each once."""

    def check(text: str) -> str:
        names = text.split()
        if len(names) < least or len({*names}) < len(names) or {*names} - {*known}:
            raise ValueError(f"there are {', '.join(known)}: name each once, by spaces")
        return text

    return AfterValidator(check)


def _one_line(text: str) -> str:
    if text != " ".join(text.split()) or not text.isprintable():
        raise ValueError("must be words separated by single spaces, on one line")
    return text


def _model(name: str) -> str:
    """A name of the form owner/name may be on the hub and is not looked for there."""
    folder = Path(name)
    if folder.is_dir():
        weights = any(file for kind in WEIGHTS for file in folder.glob(kind))
        if not weights or not (folder / "config.json").is_file():
            raise ValueError("the folder must hold config.json and model.safetensors")
    elif not re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", name, re.ASCII):
        raise ValueError("neither a model's folder, nor a hub name (owner/name)")
    return name


def _policy(name: str) -> str:
    try:
        return name if name in POLICIES else _model(name)
    except ValueError as error:
        raise ValueError(f"none of {', '.join(POLICIES)}; {error}") from None


def _has_chat_template(policy: str) -> bool:
    """Whether prompts can be put as a chat's turns; a model of the hub may have one."""
    config = Path(policy) / "tokenizer_config.json"
    if config.is_file() and "chat_template" not in config.read_text("utf-8"):
        return config.with_name("chat_template.jinja").is_file()
    return policy != "tiny-world"


def _template(*fields: str) -> AfterValidator:
    """A validator of prompt templates that hold each of these fields once."""

    def check(name: str) -> str:
        try:
            text = prompts.template(name)
        except OSError as error:
            raise ValueError(str(error)) from None
        for field in fields:
            if text.count(f"{{{field}}}") != 1:
                raise ValueError(f"the template must hold {{{field}}} exactly once")
        return name

    return AfterValidator(check)


def _url(text: str) -> str:
    form = r"https?://([\w-]+(\.[\w-]+)*|\[[\da-fA-F:.]+\])(:\d+)?(/[\w./{}~%+:=,-]*)?"
    try:
        if text and (not re.fullmatch(form, text, re.ASCII) or not HttpUrl(text).port):
            raise ValueError("no http address")
    except ValueError:
        raise ValueError("must be an address, as http://localhost:8001/v1") from None
    return text


def _judges(text: str) -> str:
    """Judges that are separated by spaces: a rule's name, or model@url."""
    for name in text.split():
        model, _, url = name.rpartition("@")
        if name not in ("rules", "exact", "contains") and not (model and _url(url)):
            raise ValueError("each must be rules, exact, contains or <model>@<url>")
    return text


def _folder_of_runs(name: str) -> str:
    """Neither what holds the kit or the system, nor a file."""
    path = (ROOT / name).resolve()
    kept = [ROOT / source for source in SOURCES] + [Path(folder) for folder in SYSTEM]
    below_root = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[:1]
    hidden = below_root and below_root[0].startswith(".")
    if ROOT.is_relative_to(path) or hidden or any(map(path.is_relative_to, kept)):
        raise ValueError("must be a folder of its own, outside the kit's and system's")
    if any(parent.is_file() for parent in (path, *path.parents)):
        raise ValueError("is a file, or below one: name a folder")
    return name


def _file_or_folder(name: str) -> str:
    if name and not Path(name).exists():
        raise ValueError("no such file or folder")
    return name


def _json_object(text: str) -> str:
    """Raises ValueError on a text that is neither empty nor a JSON object."""
    if text and not isinstance(json.loads(text), dict):
        raise ValueError("must be a JSON object, as '{\"top_k\": 20}'")
    return text


def _request_fields(text: str) -> str:
    fields = pydantic_core.from_json(text, allow_inf_nan=False) if text else {}
    if not isinstance(fields, dict):
        raise ValueError("must be a JSON object, as '{\"top_k\": 20}'")
    if own := OWN_FIELDS & fields.keys():
        raise ValueError(f"the kit sets {', '.join(sorted(own))} itself: leave it out")
    return text


def _seed_text(value: object) -> object:
    """A single seed on a command line, which YAML reads as a number, as text."""
    return str(value) if type(value) is int else value


def _seeds(text: str) -> str:
    numbers = text.split()
    if not numbers or len({*numbers}) < len(numbers):
        raise ValueError(SEEDS)
    if not all(re.fullmatch(r"0|[1-9]\d{0,6}", n, re.ASCII) for n in numbers):
        raise ValueError(SEEDS)
    return text


# 1000 × seed + the number of an engine or an iteration must be below NumPy's 2^32
MOST_SEED = 4_000_000
SEEDS = f"must be whole numbers from 0 to {MOST_SEED}, each once, separated by spaces"

Text = Annotated[str, Field(max_length=1000), AfterValidator(_one_line)]
Name = Annotated[
    str,
    Field(max_length=200),
    matching(r"([\w/.][\w/.:@+-]*)?", "a name without spaces or special characters"),
]
Seed = Annotated[int, Field(ge=0, le=MOST_SEED)]
Seeds = Annotated[Text, BeforeValidator(_seed_text), AfterValidator(_seeds)]
Model = Annotated[Text, AfterValidator(_model)]
Policy = Annotated[Text, AfterValidator(_policy)]
Template = Annotated[Text, _template("question")]
ClaimTemplate = Annotated[Text, _template("claim")]
EvidenceTemplate = Annotated[Text, _template("claim", "evidence")]
Url = Annotated[str, Field(max_length=400), AfterValidator(_url)]
Folder = Annotated[
    Text,
    AfterValidator(_folder_of_runs),
    matching(r"[^{}~*?<>|\"\\]+", "a path without wildcards, quotes or ~"),
]
Judges = Annotated[Text, AfterValidator(_judges)]
DataPath = Annotated[Text, AfterValidator(_file_or_folder)]
JsonObject = Annotated[str, AfterValidator(_json_object)]  # flat YAML holds no other
RequestFields = Annotated[str, Field(max_length=4000), AfterValidator(_request_fields)]

MOST, MOST_FEW, MOST_TOKENS = 10_000_000, 10_000, 2**20
Count = Annotated[int, Field(ge=1, le=MOST)]
CountOrZero = Annotated[int, Field(ge=0, le=MOST)]
Few = Annotated[int, Field(ge=1, le=MOST_FEW)]  # times, samples, chunks, processes
FewOrZero = Annotated[int, Field(ge=0, le=MOST_FEW)]
Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)]
TokensOrZero = Annotated[int, Field(ge=0, le=MOST_TOKENS)]
Share = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0, le=100)]
LearningRate = Annotated[float, Field(gt=0, le=0.1)]
Width = Annotated[int, Field(ge=32, le=8192, multiple_of=32)]  # heads of 32
Temperature = Annotated[float, Field(gt=0, le=5)]
TopP = Annotated[float, Field(gt=0, le=1)]
WarmUp = Annotated[float, Field(ge=0, lt=1)]


class RunParams(BaseModel):
    """What every run has."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False
    )

    profile: Literal[PROFILES]
    variant: Annotated[  # joins params file and run folder
        str, Field(max_length=80), matching(r"(\w[\w.-]*)?", "a name without spaces")
    ] = ""
    output_dir: Folder = "outputs"
    seed: Seed = 0


class SweepParams(RunParams):
    """The arms and seeds that a sweep runs and a paper's notebooks compare.

    `arm` of the paper's class lists the arms that there are.
    """

    arms: Text
    seeds: Seeds

    @property
    def arm_names(self) -> list[str]:
        """The names in `arms`."""
        return self.arms.split()

    @property
    def seed_numbers(self) -> list[int]:
        """The numbers in `seeds`."""
        return [int(seed) for seed in self.seeds.split()]

    @field_validator("arms")
    @classmethod
    def _arms_are_known(cls, text: str) -> str:
        known = typing.get_args(cls.model_fields["arm"].annotation)
        return some_of(*known, least=1).func(text)


class Corpus(RunParams):
    """Parameters of 01_corpus_and_retrieval."""

    policy: Policy
    chunk_tokens: int = Field(ge=8, le=MOST_TOKENS)
    overlap: TokensOrZero
    max_documents: int = Field(ge=100, le=MOST)
    n_questions: int = Field(ge=20, le=MOST)

    @model_validator(mode="after")
    def _chunks_move_on(self) -> Self:
        if self.overlap >= self.chunk_tokens:
            raise ValueError(f"overlap={self.overlap} must be below chunk_tokens")
        return self


class Start(RunParams):
    """Parameters of 00_start_here."""

    policy: Policy
    n_questions: Count


class HardwareParams(RunParams):
    """How to run on GPUs; the defaults are those of a machine without one."""

    rollouts: Literal["transformers", "vllm_colocate", "vllm_server"] = "transformers"
    vllm_server_url: Url = "http://localhost:8000"
    vllm_server_gpus: FewOrZero = 0  # its own; 0: vllm_tensor_parallel
    vllm_tensor_parallel: Few = 1
    vllm_memory: float = Field(0.3, gt=0, lt=1)  # share of a GPU's memory
    lora_backend: Literal["peft", "unsloth"] = "peft"
    num_processes: Few = 1  # GPUs that train, by accelerate launch
    deepspeed: Literal["", "zero3", "zero3_offload"] = ""
    micro_batch_size: FewOrZero = 0  # sequences a GPU at a time; 0: all
    max_context_length: int = Field(
        2048, ge=16, le=MOST_TOKENS
    )  # tokens of prompt and response

    @property
    def rollout_gpus(self) -> int:
        """GPUs of an engine that samples while the policy trains."""
        return self.vllm_server_gpus or self.vllm_tensor_parallel

    def split_batch(self, total: int) -> tuple[int, int]:
        """How an update's `total` rows are split: (rows a pass, passes a process).

        total = rows a pass × passes × num_processes: it stays the paper's whatever fits
        on a GPU. micro_batch_size 0: a process takes its whole share in one pass.
        Raises ValueError if it does not divide.
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
    """Who judges: rules, an exact reader, or a model behind an endpoint."""

    verifier: Name = "rules"  # each paper says which it knows
    judge_model: Name = ""
    judge_url: Url = "http://localhost:8001/v1"
    judge_concurrency: Few = 64
    judge_timeout: float = Field(120.0, gt=0, le=86_400)
    judge_max_calls: int = Field(0, ge=0, le=10**12)  # 0: no cap
    judge_key: str = "OPENAI_API_KEY"  # the variable of the environment that holds it
    judge_headers: JsonObject = ""
    judge_extra: RequestFields = ""  # of each request, beside what the kit asks
    judge_thinking_tokens: TokensOrZero = 0  # beside those of a reply

    @model_validator(mode="after")
    def _judge_is_named(self) -> Self:
        if self.verifier == "judge" and not (self.judge_model and self.judge_url):
            raise ValueError("verifier=judge needs judge_model and judge_url")
        return self


class Verifiers(JudgeParams):
    """Parameters of 02_verifiers: a judge is measured where one is named."""

    verifier: Literal["rules"] = "rules"
    rows: CountOrZero
    benchmarks: DataPath = ""


class PolicyParams(JudgeParams):
    """The policy, how it answers, and the fact world that a tiny one is trained on."""

    policy: Policy
    dtype: Literal["float32", "bfloat16"]
    chat: bool
    answer_format: Name  # each paper says which it knows
    max_completion_length: Tokens
    eval_batch_size: Count

    # the fact world and its policy: profile tiny's alone
    world_people: int = Field(500, ge=20, le=20_000)  # of 50,000 names
    world_seed: Seed = 0
    pretrain_hidden_size: Width = 128
    pretrain_layers: int = Field(4, ge=1, le=128)
    pretrain_steps: Count = 400
    pretrain_batch_size: Few = 16
    pretrain_learning_rate: LearningRate = 5.0e-3
    pretrain_reading: Weight = 0.0

    @model_validator(mode="after")
    def _responses_fit(self) -> Self:
        if self.max_completion_length >= self.max_context_length:
            raise ValueError(
                f"max_completion_length={self.max_completion_length} leaves no room "
                f"for a prompt in max_context_length={self.max_context_length}"
            )
        return self

    @model_validator(mode="after")
    def _chats_have_a_template(self) -> Self:
        if self.chat and not _has_chat_template(self.policy):
            raise ValueError(f"chat=true: policy={self.policy} has no chat template")
        return self


class TrainParams(PolicyParams):
    """What all training has: an adapter or full parameters, checkpoints."""

    lora_rank: int = Field(ge=0, le=4096)
    lora_alpha: int = Field(ge=1, le=65_536)
    sft_warmup_ratio: WarmUp  # of DPO and reward models, too
    checkpoint_steps: Count

    @model_validator(mode="after")
    def _unsloth_has_an_adapter(self) -> Self:
        if self.lora_backend == "unsloth" and (not self.lora_rank or self.deepspeed):
            raise ValueError("lora_backend=unsloth needs lora_rank > 0, no deepspeed")
        if self.deepspeed and self.num_processes == 1:
            raise ValueError(
                f"deepspeed={self.deepspeed} shards: num_processes must be ≥ 2"
            )
        return self

    @model_validator(mode="after")
    def _batches_split(self) -> Self:
        for key in ("sft_batch_size", "dpo_batch_size", "reward_batch_size"):
            if hasattr(self, key):
                self.split_batch(getattr(self, key))
        return self


class SftParams(TrainParams):
    """Supervised fine-tuning."""

    sft_learning_rate: LearningRate
    sft_batch_size: Count
    sft_epochs: Few
    sft_by_length: bool = False  # rows of an update alike, not at random


class DpoParams(TrainParams):
    """DPO."""

    dpo_learning_rate: LearningRate
    dpo_batch_size: Count
    dpo_epochs: Few
    dpo_beta: float = Field(gt=0, le=100)


class RlParams(TrainParams):
    """GRPO."""

    rl_learning_rate: LearningRate
    rl_warmup_ratio: WarmUp = 0.0  # of the steps; then constant
    rl_steps: Count
    rl_batch_size: int = Field(ge=2, le=MOST)
    minibatches: Few = 1  # updates a rollout
    num_generations: int = Field(ge=2, le=MOST_FEW)
    beta: Weight
    loss: Literal["grpo", "dr_grpo"] = "grpo"
    epsilon: float = Field(gt=0, lt=1)
    temperature: Temperature
    top_p: TopP
    kept_policies: Few = 1  # while training, evenly; 1: the last alone

    @property
    def kept_steps(self) -> list[int]:
        """The updates after which the policy is kept, the last one last."""
        n = self.kept_policies
        steps = {self.rl_steps * i // n for i in range(1, n + 1)}
        return sorted(steps - {0})

    @model_validator(mode="after")
    def _prompts_fill_a_rollout(self) -> Self:
        prompts = self.minibatches * self.rl_batch_size // self.num_generations
        for key in ("train_questions", "train_requests", "train_claims"):
            if getattr(self, key, prompts) < prompts:
                raise ValueError(
                    f"{key}={getattr(self, key)}: a rollout takes {prompts} prompts, "
                    "minibatches × rl_batch_size / num_generations"
                )
        return self

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
    gamma: Share
    ppo_epochs: Few  # times that a rollout is gone through
    minibatches: Few  # updates each time

    # PPO alone
    gae_lambda: Share
    value_clip: float = Field(gt=0, le=10)
    value_coefficient: Weight
    value_learning_rate: LearningRate

    @model_validator(mode="after")
    def _unsloth_has_its_own_trainer(self) -> Self:
        if self.lora_backend == "unsloth":
            raise ValueError("lora_backend=unsloth has no token-level trainer: peft")
        return self


class RewardModelParams(RlParams):
    """The reward model of RLHF and RLKF."""

    reward_lora_rank: int = Field(0, ge=0, le=4096)  # 0: full parameters
    reward_pairs: FewOrZero = 0  # wrong samples of a question, at most; 0: all
    reward_beta: Weight
    reward_learning_rate: LearningRate
    reward_batch_size: Count
    reward_epochs: Few


class RequestParams(PolicyParams):
    """Requests that are answered at length, their evidence, and who verifies."""

    data_notebook: ClassVar[str]  # writes the requests and their evidence
    splits: ClassVar[tuple[str, ...]] = ("train", "dev", "test")
    verifier: Literal["world", "leads", "judge"]
    prompt_template: Template

    requests: Name  # each paper says which it knows
    requests_path: DataPath = ""
    train_requests: int = Field(ge=8, le=MOST)
    dev_requests: int = Field(ge=8, le=MOST)
    test_requests: int = Field(ge=8, le=MOST)
    split_seed: Seed = 0  # of requests and questions, but in the fact world
    drawn_responses: int = Field(ge=2, le=MOST_FEW)
    drawn_temperature: Temperature

    search_url: Url = ""
    pages: Few
    least_pages: Few
    claim_chunks: Few
    claim_chunk_tokens: int = Field(ge=8, le=MOST_TOKENS)
    test_chunks: Few

    @model_validator(mode="after")
    def _evidence_can_be_had(self) -> Self:
        if self.least_pages > self.pages:
            raise ValueError(f"least_pages={self.least_pages} is above pages")
        if self.verifier != "judge" and self.verifier != self.requests:
            raise ValueError(
                f"verifier={self.verifier} can't verify requests={self.requests}"
            )
        return self
