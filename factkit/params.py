"""Parameters: what each paper's runs may set, and the check before anything loads.

A paper's class below lists every key with its type and range. `params/<profile>/
<paper>.yaml` gives their values; a notebook's parameters cell shows those it uses. A
variant, `<paper>-<variant>.yaml`, holds only what differs: another setting or model.
"""

import ast
import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

ROOT = Path(__file__).resolve().parents[1]
PROFILES = ("tiny", "laptop", "h100_lora", "h100_full")


class ParamError(ValueError):
    """A parameter is wrong; the message names where, key, value and fix."""


class RunParams(BaseModel):
    """What every run has."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    profile: Literal[PROFILES]
    variant: str = Field("", pattern=r"^[\w.-]*$")  # joins params file and run folder
    output_dir: str = "outputs"
    seed: int = Field(0, ge=0)


class Corpus(RunParams):
    """Parameters of 01_corpus_and_retrieval."""

    policy: str
    chunk_tokens: int = Field(ge=8)
    overlap: int = Field(ge=0)
    max_documents: int = Field(ge=100)
    n_questions: int = Field(ge=20)

    @model_validator(mode="after")
    def _overlap_fits(self) -> Self:
        if self.overlap >= self.chunk_tokens:
            raise ValueError(
                f"overlap={self.overlap} must be below chunk_tokens={self.chunk_tokens}"
            )
        return self


class Verifiers(RunParams):
    """Parameters of 02_verifiers."""

    pairs: int = Field(ge=64)
    test_pairs: int = Field(ge=64)
    benchmarks: str = ""


class Start(RunParams):
    """Parameters of 00_start_here."""

    policy: str
    n_questions: int = Field(ge=1)


class HardwareParams(RunParams):
    """How to run on GPUs; the defaults are those of a machine without one."""

    rollouts: Literal["transformers", "vllm_colocate", "vllm_server"] = "transformers"
    vllm_server_url: str = "http://localhost:8000"
    vllm_tensor_parallel: int = Field(1, ge=1)
    vllm_memory: float = Field(0.3, gt=0, lt=1)  # share of a GPU's memory
    lora_backend: Literal["peft", "unsloth"] = "peft"
    num_processes: int = Field(1, ge=1)  # GPUs that train, by accelerate launch
    deepspeed: Literal["", "zero3", "zero3_offload"] = ""
    micro_batch_size: int = Field(0, ge=0)  # sequences a GPU at a time; 0: all
    max_context_length: int = Field(2048, ge=16)  # tokens of prompt and response


class JudgeParams(HardwareParams):
    """Who judges: rules or the kit's own models, or a model behind an endpoint."""

    verifier: str = "rules"  # each paper says which it knows
    judge_model: str = ""
    judge_url: str = "http://localhost:8001/v1"
    judge_concurrency: int = Field(64, ge=1)
    judge_timeout: float = Field(120.0, gt=0)
    judge_max_calls: int = Field(0, ge=0)  # 0: no cap

    @model_validator(mode="after")
    def _judge_is_named(self) -> Self:
        if self.verifier == "judge" and not self.judge_model:
            raise ValueError("verifier=judge needs judge_model and judge_url")
        return self


class PolicyParams(JudgeParams):
    """The policy, how it answers, and the fact world that a tiny one is trained on."""

    policy: str
    dtype: Literal["float32", "bfloat16"]
    chat: bool
    answer_format: str  # each paper says which it knows
    max_completion_length: int = Field(ge=1)
    eval_batch_size: int = Field(ge=1)
    bootstrap_resamples: int = Field(ge=100)

    # the fact world and its policy: profile tiny's alone
    world_people: int = Field(500, ge=20)
    world_seed: int = Field(0, ge=0)
    pretrain_hidden_size: int = Field(128, ge=16)
    pretrain_layers: int = Field(4, ge=1)
    pretrain_steps: int = Field(400, ge=1)
    pretrain_batch_size: int = Field(16, ge=1)
    pretrain_learning_rate: float = Field(5.0e-3, gt=0, lt=1)
    pretrain_reading: float = Field(0.0, ge=0)


class SftParams(PolicyParams):
    """Supervised fine-tuning."""

    lora_rank: int = Field(ge=0)
    lora_alpha: int = Field(ge=1)
    sft_learning_rate: float = Field(gt=0, lt=1)
    sft_batch_size: int = Field(ge=1)
    sft_epochs: int = Field(ge=1)
    sft_warmup_ratio: float = Field(ge=0, le=1)
    checkpoint_steps: int = Field(ge=1)

    @model_validator(mode="after")
    def _unsloth_has_an_adapter(self) -> Self:
        if self.lora_backend == "unsloth" and (not self.lora_rank or self.deepspeed):
            raise ValueError("lora_backend=unsloth needs lora_rank > 0, no deepspeed")
        return self


class DpoParams(SftParams):
    """DPO."""

    dpo_learning_rate: float = Field(gt=0, lt=1)
    dpo_batch_size: int = Field(ge=1)
    dpo_epochs: int = Field(ge=1)
    dpo_beta: float = Field(gt=0)


class RlParams(SftParams):
    """GRPO."""

    rl_learning_rate: float = Field(gt=0, lt=1)
    rl_steps: int = Field(ge=1)
    rl_batch_size: int = Field(ge=2)
    num_generations: int = Field(ge=2)
    beta: float = Field(ge=0)
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


class RewardModelParams(RlParams):
    """The reward model of RLHF and RLKF."""

    reward_beta: float = Field(ge=0)
    reward_learning_rate: float = Field(gt=0, lt=1)
    reward_batch_size: int = Field(ge=1)
    reward_epochs: int = Field(ge=1)


class QuestionParams(PolicyParams):
    """TruthRL: the questions, how they are asked, probed and answered with evidence."""

    verifier: Literal["rules", "exact", "judge"] = "rules"
    other_judges: str = ""
    answer_format: Literal["plain", "boxed"]
    prompt_template: str
    prompting_template: str
    abstaining_template: str
    majority_samples: int = Field(ge=1)

    questions: Literal["world", "leads", "crag", "nq_open", "hotpotqa", "musique"]
    questions_path: str = ""
    eval_sets: str = ""
    train_questions: int = Field(ge=8)
    dev_questions: int = Field(ge=8)
    test_questions: int = Field(ge=8)
    probe_samples: int = Field(ge=2)
    probe_temperature: float = Field(gt=0)
    known_share: float = Field(ge=0, le=1)

    retriever: Literal["", "bm25", "e5"] = ""
    retrieved_chunks: int = Field(3, ge=1)
    chunk_tokens: int = Field(128, ge=8)


class QuestionSftParams(QuestionParams, SftParams):
    """TruthRL: what supervised fine-tuning takes from the questions."""

    rft_samples: int = Field(ge=1)
    rft_temperature: float = Field(gt=0)
    rft_top_p: float = Field(gt=0, le=1)
    cold_start: bool


class QuestionDpoParams(QuestionSftParams, DpoParams):
    """TruthRL: DPO and its iterations."""

    dpo_iterations: int = Field(ge=1)


class QuestionRlParams(QuestionSftParams, RewardModelParams):
    """TruthRL: RL by the outcome, its reasoning or a learned reward."""

    reason_weight: float = Field(ge=0)


TRUTHRL_ARMS = (
    *("prompting", "sft", "rft", "r_tuning", "rlhf", "rlkf", "dpo", "iterative_dpo"),
    *("binary", "binary_knowledge", "ternary", "ternary_knowledge"),
    *("ternary_reason_multiplicative", "ternary_reason_additive"),
    *("ternary_reason_conditional", "ternary_strict_match"),
)


class TruthRL(QuestionDpoParams, QuestionRlParams):
    """Parameters of notebooks 10–14; `arms` and `seeds` are what 13 compares."""

    arm: Literal[TRUTHRL_ARMS] = "ternary"
    arms: str
    seeds: str

    @model_validator(mode="after")
    def _reasoning_is_written(self) -> Self:
        if "reason" in self.arm and self.answer_format != "boxed":
            raise ValueError(
                f"arm={self.arm} rewards reasoning, of which answer_format=plain has "
                "none: set answer_format=boxed (profile tiny: variant=reasoning)"
            )
        return self


RAR_RL_ARMS = (
    *("lm_judge", "veriscore", "binary_rar"),
    *("rating_rar", "binary_veriscore", "conflict_only_veriscore"),
    "veriscore_plus_judge",
)
RAR_ARMS = ("base", "sft", "dpo", *RAR_RL_ARMS)


class RequestParams(PolicyParams):
    """Binary RAR: the requests, their evidence, and the engine that verifies."""

    verifier: Literal["world", "embedded", "judge"]
    answer_format: Literal["long"] = "long"
    prompt_template: str

    requests: Literal["world", "leads", "wildchat"]
    requests_path: str = ""
    train_requests: int = Field(ge=8)
    dev_requests: int = Field(ge=8)
    test_requests: int = Field(ge=8)
    drawn_responses: int = Field(ge=2)
    drawn_temperature: float = Field(gt=0)

    search_url: str = ""
    pages: int = Field(ge=1)
    least_pages: int = Field(ge=1)
    whole_chunks: int = Field(ge=1)
    whole_chunk_tokens: int = Field(ge=8)
    claim_chunks: int = Field(ge=1)
    claim_chunk_tokens: int = Field(ge=8)
    query_with_prompt: bool
    test_chunks: int = Field(ge=1)
    utility_drop: float = Field(gt=0, lt=1)


class RequestSftParams(RequestParams, SftParams):
    """Binary RAR: supervised fine-tuning."""


class RequestDpoParams(RequestSftParams, DpoParams):
    """Binary RAR: DPO."""

    length_difference: float = Field(gt=0)


class RequestRlParams(RequestSftParams, RlParams):
    """Binary RAR: online RL."""

    non_stop_penalty: float = Field(ge=0)


class RAR(RequestDpoParams, RequestRlParams):
    """Parameters of notebooks 20–24; `arms` and `seeds` are what 23 compares."""

    arm: Literal[RAR_ARMS] = "binary_rar"
    arms: str
    seeds: str

    @model_validator(mode="after")
    def _somebody_rates(self) -> Self:
        rated = ("lm_judge", "rating_rar", "veriscore_plus_judge")
        if self.verifier == "embedded" and self.arm in rated:
            raise ValueError(
                f"arm={self.arm} needs ratings, which verifier=embedded does not give: "
                "set verifier=judge, judge_model and judge_url, or take another arm"
            )
        return self


PAPERS: dict[str, type[RunParams]] = {
    "start": Start,
    "corpus": Corpus,
    "verifiers": Verifiers,
    "truthrl": TruthRL,
    "rar": RAR,
}


def check(paper: str, values: Mapping[str, Any]) -> Any:
    """The parameters of a notebook, checked; call it as `check(paper, globals())`.

    What papermill injected counts, and what the parameters cell changes; all else is
    the profile's own, from its YAML file. (The cell shows profile tiny's values.) A key
    that papermill injected and that the paper does not know is refused.
    Returns the paper's parameter class; raises ParamError.
    """
    injected = {
        name: values[name]
        for cell in values.get("In", [])
        if cell.startswith("# Parameters\n")
        for name in _assigned(cell)
    }
    fields = PAPERS[paper].model_fields
    shown = {k: f.default for k, f in fields.items() if not f.is_required()}
    shown |= read_yaml(yaml_path(paper, "tiny"))
    changed = {
        key: values[key]
        for key in fields
        if key in values and values[key] != shown.get(key)
    }
    profile, variant = values.get("profile", "tiny"), values.get("variant", "")
    own = defaults(paper, profile, variant)
    taken = [
        f"{key}={value}"
        for key, value in own.items()
        if key in values and key not in injected | changed and value != values[key]
    ]
    if taken:
        print(f"profile {profile} {variant} sets {', '.join(taken)}")
    return validate(paper, own | changed | injected, "the notebook's parameters")


def validate(paper: str, values: Mapping[str, Any], source: str) -> Any:
    """The paper's parameter class made of `values`; its ParamError names `source`."""
    try:
        return PAPERS[paper].model_validate(dict(values))
    except ValidationError as error:
        lines = [_explain(paper, source, e) for e in error.errors()]
        raise ParamError("\n".join(lines)) from None


def load(
    paper: str,
    profile: str,
    overrides: Mapping[str, Any] | None = None,
    variant: str = "",
) -> Any:
    """The checked parameters of a profile's YAML files with overrides."""
    values = defaults(paper, profile, variant) | dict(overrides or {})
    return validate(paper, values, source=str(yaml_path(paper, profile, variant)))


def defaults(paper: str, profile: str, variant: str = "") -> dict[str, Any]:
    """The values of `<paper>.yaml` under those of `<paper>-<variant>.yaml`, if any."""
    values = read_yaml(yaml_path(paper, profile))
    if variant:
        values |= read_yaml(yaml_path(paper, profile, variant))
    return values


def yaml_path(paper: str, profile: str, variant: str = "") -> Path:
    """The parameter file of a paper, profile and variant.

    Raises ParamError if there is none, naming those there are.
    """
    name = f"{paper}-{variant}" if variant else paper
    path = ROOT / "params" / profile / f"{name}.yaml"
    if not path.is_file():
        known = sorted(
            str(p.relative_to(ROOT)) for p in ROOT.glob(f"params/*/{paper}*.yaml")
        )
        raise ParamError(f"{path}: no such file; there are: {', '.join(known)}")
    return path


def read_yaml(path: Path) -> dict[str, Any]:
    """A flat YAML mapping; raises ParamError on bad syntax, nesting or double keys."""
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"))
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ParamError(f"{path}: not valid YAML: {error}") from None
    if not isinstance(values, dict):
        raise ParamError(f"{path}: must hold lines of `key: value`")
    keys = [key.value for key, _ in node.value]
    for key, value in values.items():
        if keys.count(key) > 1:
            raise ParamError(f"{path}: {key} is set twice; keep one")
        if isinstance(value, dict | list):
            raise ParamError(
                f"{path}: {key} must be a scalar: papermill merges files shallowly"
            )
    return values


def _assigned(cell: str) -> list[str]:
    """The names that a cell assigns to at its top level."""
    return [
        target.id
        for statement in ast.parse(cell).body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    ]


def _explain(paper: str, source: str, error: Mapping[str, Any]) -> str:
    """One line for one pydantic error: source, key, value, problem, fix."""
    if not error["loc"]:
        return f"{source}: {error['msg'].removeprefix('Value error, ')}"
    key, value = str(error["loc"][0]), error["input"]
    if error["type"] == "extra_forbidden":
        close = difflib.get_close_matches(key, PAPERS[paper].model_fields, n=1)
        fix = f"did you mean {close[0]}?" if close else "remove it"
        return f"{source}: {key}={value!r}: no such parameter of {paper}; {fix}"
    fix = ""
    if error["type"] == "float_type" and isinstance(value, str):
        fix = f"; YAML reads {value} as a string, write it with a point, as in 1.0e-5"
    return f"{source}: {key}={value!r}: {error['msg'].lower()}{fix}"
