"""Parameters: what each paper's runs may set, and the check before anything loads.

A paper's class below lists every key with its type and range. `params/<profile>/
<paper>.yaml` gives their values; a notebook's parameters cell shows those it uses.
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


class Start(RunParams):
    """Parameters of 00_start_here."""

    policy: str
    n_questions: int = Field(ge=1)


class DataParams(RunParams):
    """The policy, its questions and how it is probed and evaluated."""

    policy: str
    dtype: Literal["float32", "bfloat16"]
    prompt_template: str
    prompting_template: str
    abstaining_template: str
    max_completion_length: int = Field(ge=1)
    eval_batch_size: int = Field(ge=1)
    bootstrap_resamples: int = Field(ge=100)

    questions: Literal["world", "leads"]
    train_questions: int = Field(ge=8)
    dev_questions: int = Field(ge=8)
    test_questions: int = Field(ge=8)
    probe_samples: int = Field(ge=2)
    probe_temperature: float = Field(gt=0)
    known_share: float = Field(ge=0, le=1)

    world_people: int = Field(ge=20)
    world_seed: int = Field(ge=0)
    pretrain_hidden_size: int = Field(ge=16)
    pretrain_layers: int = Field(ge=1)
    pretrain_steps: int = Field(ge=1)
    pretrain_batch_size: int = Field(ge=1)
    pretrain_learning_rate: float = Field(gt=0, lt=1)


class SftParams(DataParams):
    """Supervised fine-tuning."""

    lora_rank: int = Field(ge=0)
    lora_alpha: int = Field(ge=1)
    sft_learning_rate: float = Field(gt=0, lt=1)
    sft_batch_size: int = Field(ge=1)
    sft_epochs: int = Field(ge=1)
    sft_warmup_ratio: float = Field(ge=0, le=1)
    checkpoint_steps: int = Field(ge=1)


class RlParams(SftParams):
    """GRPO from the model that supervised fine-tuning made."""

    rl_learning_rate: float = Field(gt=0, lt=1)
    rl_steps: int = Field(ge=1)
    rl_batch_size: int = Field(ge=2)
    num_generations: int = Field(ge=2)
    beta: float = Field(ge=0)
    epsilon: float = Field(gt=0, lt=1)
    temperature: float = Field(gt=0)
    top_p: float = Field(gt=0, le=1)

    @model_validator(mode="after")
    def _groups_fill_the_batch(self) -> Self:
        if self.rl_batch_size % self.num_generations:
            raise ValueError(
                f"num_generations={self.num_generations} must divide "
                f"rl_batch_size={self.rl_batch_size}: a batch holds whole groups"
            )
        return self


class TruthRL(RlParams):
    """Parameters of notebooks 10–14; `arms` and `seeds` are what 13 compares."""

    arm: Literal["prompting", "sft", "r_tuning", "binary", "ternary"] = "ternary"
    arms: str
    seeds: str


PAPERS: dict[str, type[RunParams]] = {
    "start": Start,
    "corpus": Corpus,
    "truthrl": TruthRL,
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
    shown = read_yaml(yaml_path(paper, "tiny"))
    changed = {
        key: values[key]
        for key in PAPERS[paper].model_fields
        if key in values and values[key] != shown.get(key)
    }
    profile = values.get("profile", "tiny")
    own = read_yaml(yaml_path(paper, profile))
    taken = [
        f"{key}={value}"
        for key, value in own.items()
        if key in values and key not in injected | changed and value != values[key]
    ]
    if taken:
        print(f"profile {profile} sets {', '.join(taken)}")
    return validate(paper, own | changed | injected, "the notebook's parameters")


def validate(paper: str, values: Mapping[str, Any], source: str) -> Any:
    """The paper's parameter class made of `values`; its ParamError names `source`."""
    try:
        return PAPERS[paper].model_validate(dict(values))
    except ValidationError as error:
        lines = [_explain(paper, source, e) for e in error.errors()]
        raise ParamError("\n".join(lines)) from None


def load(paper: str, profile: str, overrides: Mapping[str, Any] | None = None) -> Any:
    """The checked parameters of `params/<profile>/<paper>.yaml` with overrides."""
    path = yaml_path(paper, profile)
    return validate(paper, read_yaml(path) | dict(overrides or {}), source=str(path))


def yaml_path(paper: str, profile: str) -> Path:
    """The parameter file of a paper and profile; raises ParamError if there is none."""
    path = ROOT / "params" / profile / f"{paper}.yaml"
    if not path.is_file():
        known = sorted(p.parent.name for p in ROOT.glob(f"params/*/{paper}.yaml"))
        raise ParamError(f"{path}: no such file; profiles of {paper}: {known}")
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
