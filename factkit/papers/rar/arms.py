"""Binary RAR's parameters and arms (§4.3, §6.2, Tables 2 to 4, Fig 4)."""

from functools import partial
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from factkit.papers.rar.needs import RarNeeds
from factkit.run.arms import Arm, Paper
from factkit.run.params import fields
from factkit.run.params.data import RequestParams
from factkit.run.params.stages import DpoParams, RlParams, SftParams, SweepParams

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
MEASURED = """best_guess_accuracy format_following win_rate
correct_claims_per_question""".split()


class RarParams(RequestParams):
    """How whole responses are verified, and when training stops."""

    data_notebook: ClassVar[str] = "20_rar_data"
    answer_format: Literal["long"] = "long"
    requests: Literal["world", "leads", "own", "wildchat"]
    whole_chunks: fields.Few
    whole_chunk_tokens: fields.ChunkTokens
    query_with_prompt: bool = True  # §3.3; False: the response alone, as the code
    utility_drop: float = Field(0.1, gt=0, lt=1)  # App. C: 0.10
    utility_benchmarks: Annotated[
        fields.Text, fields.require_names(*MEASURED, *SUITES, least=1)
    ] = "best_guess_accuracy format_following win_rate"
    allow_code: bool = False  # benchmarks that run what the policy writes
    # beside those held out
    test_sets: Annotated[fields.Text, fields.require_names(*TEST_SETS)] = ""
    evaluation_tokens: fields.TokensOrZero = 0  # 0: max_completion_length

    @property
    def benchmark_names(self) -> list[str]:
        """The names in `utility_benchmarks`."""
        return self.utility_benchmarks.split()

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
        named = self.benchmark_names
        if self.has_own_data and "best_guess_accuracy" in named:
            raise ValueError(
                "utility_benchmarks: requests=own has no short questions for "
                "best_guess_accuracy: name win_rate"
            )
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
    dense_steps: fields.CountOrZero = 0  # of rl_steps, for dense rewards; 0: all


# a judge's calls per response, of 30 claims in 15 sentences (§6.1)
CLAIMS = {"extract": 15, "verify": 30}


def _dense_steps(p: RarRlParams) -> dict[str, int]:
    """Fewer updates, for dense rewards (App. C)."""
    return {"rl_steps": min(p.dense_steps or p.rl_steps, p.rl_steps)}


rl = partial(Arm, reads=RarRlParams, algorithm="GRPO")
# the reward is not 0 or 1, but a share of the claims (§6.2)
dense = partial(rl, judge_calls=CLAIMS, computed=_dense_steps)

ARMS = {
    "base": Arm("the policy as it is", RarParams, main=True),
    "sft": Arm("taught its most factual response", RarSftParams, "SFT"),
    "dpo": Arm("the most over the least factual response", RarDpoParams, "DPO"),
    "lm_judge": rl("a judge's rating of quality / 10", judge_calls={"quality": 1}),
    "veriscore": dense("supported claims / claims", main=True),
    "binary_rar": rl(
        "1 if nothing contradicts the evidence, else 0",
        judge_calls={"whole": 1},
        main=True,
    ),
    "rating_rar": rl(
        "the verifier's rating of factuality / 10", judge_calls={"whole": 1}
    ),
    "binary_veriscore": rl(
        "1 if at least half of the claims are supported, else 0", judge_calls=CLAIMS
    ),
    "conflict_only_veriscore": dense("the share of claims that are not contradicted"),
    "veriscore_plus_judge": dense(
        "VeriScore + the judge's rating / 10", judge_calls=CLAIMS | {"quality": 1}
    ),
}


class RAR(RarDpoParams, RarRlParams, SweepParams):
    """Parameters of notebooks 20–24; `arms` and `seeds` are what 23 compares."""

    known_arms = tuple(ARMS)
    arm: fields.Name = "binary_rar"


PAPER = Paper(
    number=2,
    title="Binary RAR",
    parameters=RAR,
    arms=ARMS,
    shown_metrics=(
        "hallucination_rate",
        "short_hallucination",
        "short_abstention",
        "win_rate",
        "best_guess_accuracy",
        "format_following",
    ),
    needs=RarNeeds,
    main_setting={"model": ("Qwen3-8B",)},
    mean_over_answers="hallucination_rate",
)
