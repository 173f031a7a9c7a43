"""Binary RAR's parameters and arms (§4.3, §6.2, Tables 2 to 4, Fig 4)."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from factkit.run.arms import Arm
from factkit.run.params import fields
from factkit.run.params.stages import (
    DpoParams,
    RequestParams,
    RlParams,
    SftParams,
    SweepParams,
)

# lm-eval's benchmarks, of its version 0.4.13: name → its task, and the metric that is
# taken, "<metric>,<filter>"
SUITES = {
    "ifeval": ("ifeval", "prompt_level_strict_acc,none"),
    "bbh": ("bbh_cot_fewshot", "exact_match,get-answer"),
    "gsm8k": ("gsm8k", "exact_match,flexible-extract"),
    "minerva": ("minerva_math", "math_verify,none"),
    "humaneval": ("humaneval_instruct", "pass@1,create_test"),
    "humaneval_plus": ("humaneval_plus", "pass@1,create_test"),
    "mbpp": ("mbpp_instruct", "pass_at_1,extract_code"),
    "mbpp_plus": ("mbpp_plus_instruct", "pass_at_1,extract_code"),
    "gpqa": ("gpqa_main_cot_zeroshot", "exact_match,flexible-extract"),
    "aime25": ("aime25", "exact_match,none"),
}
RUN_CODE = ("humaneval", "humaneval_plus", "mbpp", "mbpp_plus")
# Table 2's, taken as they are published
TEST_SETS = ("biography", "wild_hallucinations", "gpqa")
# what early stopping can watch beside them
MEASURED = ("best_guess_accuracy", "format_following", "win_rate")
MEASURED += ("correct_claims_per_question",)

# whose reward is a dense VeriScore: not 0 or 1, but a share of the claims (§6.2)
DENSE = ("veriscore", "conflict_only_veriscore", "veriscore_plus_judge")


class RarParams(RequestParams):
    """How whole responses are verified, and when training stops."""

    data_notebook: ClassVar[str] = "20_rar_data"
    answer_format: Literal["long"] = "long"
    requests: Literal["world", "leads", "wildchat"]
    whole_chunks: fields.Few
    whole_chunk_tokens: fields.ChunkTokens
    query_with_prompt: bool = True  # §3.3; False: the response alone, as the code
    utility_drop: float = Field(0.1, gt=0, lt=1)  # App. C: 0.10
    utility_benchmarks: fields.some_of(*MEASURED, *SUITES, least=1) = (
        "best_guess_accuracy format_following win_rate"
    )
    allow_code: bool = False  # benchmarks that run what the policy writes
    test_sets: fields.some_of(*TEST_SETS) = ""  # beside those held out
    evaluation_tokens: fields.TokensOrZero = 0  # 0: max_completion_length

    @property
    def for_evaluation(self) -> Self:
        """These parameters with the length of an answer in evaluation, and a context
        that leaves as many tokens for a prompt."""
        longer = max(self.evaluation_tokens - self.max_completion_length, 0)
        keys = "max_completion_length", "max_context_length"
        update = {key: getattr(self, key) + longer for key in keys}
        return self.model_copy(update=update)

    @model_validator(mode="after")
    def _benchmarks_can_run(self) -> Self:
        named = self.utility_benchmarks.split()
        if self.verifier == "judge" and "format_following" in named:
            raise ValueError(
                "utility_benchmarks: no format_following under a judge: name ifeval"
            )
        code = [name for name in named if name in RUN_CODE]
        if code and not self.allow_code:
            raise ValueError(
                f"utility_benchmarks: {', '.join(code)} runs code that the policy "
                "writes: set allow_code=true inside a container, or leave it out"
            )
        return self


class RarSftParams(RarParams, SftParams):
    """Binary RAR: supervised fine-tuning."""


class RarDpoParams(RarSftParams, DpoParams):
    """Binary RAR: DPO."""

    length_difference: float = Field(0.1, gt=0, le=100)  # §4.3: below 10 %


class RarRlParams(RarSftParams, RlParams):
    """Binary RAR: online RL."""

    non_stop_penalty: fields.Weight
    dense_steps: fields.CountOrZero = 0  # of rl_steps, for the arms in DENSE; 0: all

    def updates(self, arm: str) -> int:
        """The updates that an arm trains for (App. C)."""
        fewer = arm in DENSE and self.dense_steps or self.rl_steps
        return min(fewer, self.rl_steps)


def _rl(what: str, main: bool = False) -> Arm:
    return Arm(what, RarRlParams, "GRPO", main=main)


ARMS = {
    "base": Arm("the policy as it is", RarParams, main=True),
    "sft": Arm("taught its most factual response", RarSftParams, "SFT"),
    "dpo": Arm("the most over the least factual response", RarDpoParams, "DPO"),
    "lm_judge": _rl("a judge's rating of quality / 10"),
    "veriscore": _rl("supported claims / claims", main=True),
    "binary_rar": _rl("1 if nothing contradicts the evidence, else 0", main=True),
    "rating_rar": _rl("the verifier's rating of factuality / 10"),
    "binary_veriscore": _rl("1 if at least half of the claims are supported, else 0"),
    "conflict_only_veriscore": _rl("the share of claims that are not contradicted"),
    "veriscore_plus_judge": _rl("VeriScore + the judge's rating / 10"),
}


class RAR(RarDpoParams, RarRlParams, SweepParams):
    """Parameters of notebooks 20–24; `arms` and `seeds` are what 23 compares."""

    arm: Literal[tuple(ARMS)] = "binary_rar"
