"""What Binary RAR's notebooks ask of judges, engine and disk."""

from factkit.run.arms import Arm
from factkit.run.needs import RequestNeeds, Work

BENCHMARK_TOKENS = 2048  # an answer in lm-eval; of AIME25 evaluation_tokens
PROBLEMS = {
    "ifeval": 541,
    "bbh": 6511,
    "gsm8k": 1319,
    "minerva": 5000,
    "gpqa": 448,
    "humaneval": 164,
    "humaneval_plus": 164,
    "mbpp": 500,
    "mbpp_plus": 378,
    "aime25": 30,
}

# short questions per dev request: training ends where a tenth fewer are answered, and
# of 200, a fifth of them known, that is four
SHORT_DEV = 10
WILDCHAT_READ = 20  # conversations read per training request; a part is factual


class RarNeeds(RequestNeeds):
    """Filtered requests; utility beside the claims, for every policy that is kept."""

    prompt_tokens = 500
    claims = 30  # before training (§6.1)
    sets = 2
    call_kinds = {
        "filter": ("filter_factual", 60, 0, 250),
        "whole": (
            "judge_contradiction",
            460,
            1,
            500,
            "whole_chunks",
            "whole_chunk_tokens",
        ),
        "quality": ("judge_quality", 460, 1, 500),
    }

    def data(self) -> Work:
        drawn = self.requests * self.p.drawn_responses
        calls = self.claim_calls(drawn, "verify")
        calls["filter"] = WILDCHAT_READ * self.requests
        return Work(calls, drawn)

    def evaluation(self, arm: Arm | None) -> Work:
        p, new = self.p, self.is_new(arm)
        kept = p.kept_policies if arm and arm.algorithm == "GRPO" else 1
        dev, test = kept * p.dev_requests * new, p.test_requests * new
        short = 2 * (SHORT_DEV * dev + test)
        long = dev + test * (1 + len({*p.test_sets.split()} - {"gpqa"}))
        calls = self.claim_calls(long, "verify_test")
        calls.update(quality=dev + test, outcome=short)
        n = long + short + PROBLEMS["gpqa"] * new * ("gpqa" in p.test_sets)
        longest = p.for_evaluation.max_completion_length
        benchmarks = tuple(
            (
                new * kept * PROBLEMS[name],
                self.prompt_tokens,
                longest if name == "aime25" else BENCHMARK_TOKENS,
            )
            for name in p.utility_benchmarks.split()
            if name in PROBLEMS
        )
        return Work(calls, n, benchmarks)

    @property
    def corpora_gb(self) -> float:
        return 1.4  # WildHallucinations
