"""TruthRL's parameters."""

from typing import Literal

from pydantic import Field

from factkit.params.stages import (
    DpoParams,
    PolicyParams,
    RewardModelParams,
    SftParams,
)


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
    comparison_questions: int = Field(150, ge=1)
    least_known: float = Field(0.0, ge=0, le=1)  # share of right samples of a relation
    most_known: float = Field(1.0, ge=0, le=1)  # that is asked
    split_seed: int = Field(0, ge=0)
    probe_samples: int = Field(ge=2)
    probe_temperature: float = Field(gt=0)
    known_share: float = Field(ge=0, le=1)

    retriever: Literal["", "bm25", "e5"] = ""
    encoder: str = "intfloat/e5-base-v2"
    wikipedia_path: str = ""
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
