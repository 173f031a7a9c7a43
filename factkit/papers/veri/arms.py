"""Veri-R1's parameters and arms (§3.2, App. H, Tables 1 to 3, Fig 4)."""

from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from factkit.papers.veri.needs import VeriNeeds
from factkit.run.arms import Arm, Paper
from factkit.run.params import fields
from factkit.run.params.own import OwnDataParams
from factkit.run.params.stages import PolicyParams, RlParams, SftParams, SweepParams
from factkit.run.paths import ROOT

EVAL_SETS = ("feverous", "exfever", "fever", "scifact", "hover")  # §3.2


class VeriParams(OwnDataParams, PolicyParams):
    """Veri-R1: the claims, the search among entries, and a turn's budgets."""

    rows_of: ClassVar[tuple[str, str]] = ("claims", "claims_path")

    data_notebook: ClassVar[str] = "50_veri_data"
    answer_format: Literal["claims"] = "claims"
    verifier: Literal["world", "leads", "judge"]
    prompt_template: fields.ClaimTemplate
    offline_template: fields.EvidenceTemplate

    claims: Literal["world", "leads", "own", "feverous_exfever"]
    claims_path: fields.FetchedPath = ""
    evidence_field: fields.Text = "evidence"  # with the titles of own documents
    eval_sets: Annotated[fields.Text, fields.require_names(*EVAL_SETS)] = ""
    train_claims: fields.Size
    dev_claims: int = Field(ge=3, le=fields.MOST)
    test_claims: int = Field(ge=3, le=fields.MOST)
    context_entries: fields.FewOrZero

    search_url: fields.Url = ""
    retrieved_entries: fields.Few
    shuffled_results: bool = False
    max_searches: fields.Few
    max_prompt_length: fields.ChunkTokens
    max_observation_length: int = Field(ge=16, le=fields.MOST_TOKENS)
    sft_trajectories: fields.Size
    cold_start: bool

    @model_validator(mode="after")
    def _searches_the_corpora(self) -> Self:
        if self.claims == "feverous_exfever" and not self.search_url:
            raise ValueError(
                "search_url must be a retriever's with claims=feverous_exfever: "
                "python -m factkit serve-search starts one"
            )
        return self

    @model_validator(mode="after")
    def _own_claims_have_documents(self) -> Self:
        path = ROOT / self.claims_path
        if not self.has_own_data:
            if path.is_file():
                raise ValueError(f"claims_path={self.claims_path} must be a folder")
            if self.evidence_field != "evidence":
                raise ValueError("evidence_field is read only with claims=own")
        elif not path.is_file():
            raise ValueError(f"claims_path={self.claims_path} must be a file")
        elif not self.documents_path or self.search_url or self.verifier != "judge":
            raise ValueError(
                "claims=own needs documents_path, which is searched in place of a "
                "search_url, and verifier=judge, whose model writes SFT's trajectories"
            )
        return self

    @model_validator(mode="after")
    def _room_for_the_longest(self) -> Self:
        if self.rollouts != "transformers" and self.longest > self.max_context_length:
            raise ValueError(
                f"max_context_length={self.max_context_length} has no room for the "
                f"longest trajectory: max_prompt_length, max_searches + 1 turns of "
                "max_completion_length and max_searches of max_observation_length are "
                f"{self.longest} tokens"
            )
        return self

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


class VeriRlParams(VeriSftParams, RlParams):
    """Veri-R1: GRPO, with search or with the evidence given."""

    online: bool = True
    evidence_reward: bool = True
    validity_weight: bool = True
    format_reward: bool = True
    validity_at_half: bool = False


class VeriLargerParams(VeriParams):
    """Veri-R1: a larger policy that is not trained."""

    larger_policy: fields.Policy
    larger_hidden_size: fields.Width = 128


def _keep_checkpoints(p: VeriRlParams) -> dict[str, int]:
    """Keep a policy whenever a checkpoint is written, to be chosen from (App. H)."""
    return {"kept_policies": -(-p.rl_steps // p.checkpoint_steps)}


def _larger_policy(p: VeriLargerParams) -> dict[str, Any]:
    return {
        "policy": p.larger_policy,
        "pretrain_hidden_size": p.larger_hidden_size,
    }


rl = partial(Arm, reads=VeriRlParams, algorithm="GRPO", start="sft")

ARMS = {
    "instruct": Arm("the policy as it is, with the search", VeriParams, main=True),
    "sft": Arm(
        "taught trajectories, written or scripted", VeriSftParams, "SFT", main=True
    ),
    "offline_rl": rl(
        "the evidence is given, nothing is searched",
        changes={"online": False},
        computed=_keep_checkpoints,
        main=True,
    ),
    "online_rl": rl("searches as it answers; all of the reward", main=True),
    "without_evidence": rl(
        "online, without the evidence reward", changes={"evidence_reward": False}
    ),
    "without_validity": rl(
        "online, without the validity weight", changes={"validity_weight": False}
    ),
    "without_format": rl(
        "online, without the format reward", changes={"format_reward": False}
    ),
    "label_only": rl(
        "online, for the label alone",
        changes={
            "evidence_reward": False,
            "validity_weight": False,
            "format_reward": False,
        },
    ),
    "larger": Arm(
        "a larger policy that is not trained",
        VeriLargerParams,
        computed=_larger_policy,
    ),
}


class Veri(VeriRlParams, VeriLargerParams, SweepParams):
    """Parameters of notebooks 50–54; `arms` and `seeds` are what 53 compares."""

    known_arms = tuple(ARMS)
    arm: fields.Name = "online_rl"


PAPER = Paper(
    number=5,
    title="Veri-R1",
    parameters=Veri,
    arms=ARMS,
    shown_metrics=(
        "joint_accuracy",
        "one_hop_joint_accuracy",
        "more_hops_joint_accuracy",
        "verification_accuracy",
        "label_accuracy",
        "evidence_score",
        "checkable_evidence_score",
        "evidence_cover",
    ),
    needs=VeriNeeds,
    main_setting={"model": ("Qwen2.5-3B-Instruct", "Qwen2.5-7B-Instruct")},
)
