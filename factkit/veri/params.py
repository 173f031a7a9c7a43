"""Veri-R1's parameters."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from factkit.params.stages import PolicyParams, RlParams, SftParams


class VeriParams(PolicyParams):
    """Veri-R1: the claims, the search among entries, and a turn's budgets."""

    data_notebook: ClassVar[str] = "50_veri_data"
    splits: ClassVar[tuple[str, ...]] = ("train", "dev", "test")
    answer_format: Literal["claims"] = "claims"
    verifier: Literal["world", "leads", "judge"]
    prompt_template: str
    offline_template: str

    claims: Literal["world", "leads", "feverous_exfever"]
    claims_path: str = ""
    eval_sets: str = ""
    train_claims: int = Field(ge=8)
    dev_claims: int = Field(ge=3)
    test_claims: int = Field(ge=3)
    context_entries: int = Field(ge=0)

    search_url: str = ""
    retrieved_entries: int = Field(ge=1)
    max_searches: int = Field(ge=1)
    max_prompt_length: int = Field(ge=8)
    max_observation_length: int = Field(ge=16)

    @model_validator(mode="after")
    def _one_engine_a_process(self) -> Self:
        if self.vllm_tensor_parallel > 1 and self.rollouts == "vllm_colocate":
            raise ValueError(
                "vllm_tensor_parallel must be 1 with rollouts=vllm_colocate: each "
                "process takes as many turns as its own trajectories need"
            )
        return self

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt with its trajectory (Table 4: 4,864)."""
        turns = (self.max_searches + 1) * self.max_completion_length
        return (
            self.max_prompt_length
            + turns
            + self.max_searches * self.max_observation_length
        )


class VeriSftParams(VeriParams, SftParams):
    """Veri-R1: supervised fine-tuning on trajectories."""

    sft_trajectories: int = Field(ge=8)
    cold_start: bool


class VeriRlParams(VeriSftParams, RlParams):
    """Veri-R1: GRPO, with search or with the evidence given."""

    online: bool = True
    evidence_reward: bool = True
    validity_weight: bool = True
    format_reward: bool = True
    validity_at_half: bool = False


class VeriLargerParams(VeriParams):
    """Veri-R1: a larger policy that is not trained."""

    larger_policy: str
    larger_hidden_size: int = Field(128, ge=16)
