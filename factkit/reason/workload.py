"""Learning to Reason's workload. A response's reasoning is written within
max_completion_length, but no judge of factuality reads it."""

from factkit.long_answers import LongAnswer
from factkit.reason.arms import Reason
from factkit.reason.rewards import WEIGHTS

ANSWER = LongAnswer(
    request_tokens=250,  # 1,000 characters, the longest synthetic prompt kept
    claims=46,
    source="as Llama-3.1-8B-Instruct's answers had before training (Table 2)",
)
EXAMPLES_TOKENS = 500  # of the template reasoned_2_shots, rounded
ORDERS = 2  # of the two answers in a comparison
MAIN_ARMS = ("fact", "fact_relevance")


def prompt_tokens(p: Reason) -> int:
    return ANSWER.request_tokens


def sampling(p: Reason) -> dict[str, tuple[int, int, int]]:
    """Responses that reason, asked for with examples (§2.2, §2.3), and the base
    policy's own answer to every request, over which win rates are."""
    drawn, request = p.sft_requests + p.train_requests, ANSWER.request_tokens
    return {
        "drawing": (drawn, EXAMPLES_TOKENS + request, p.drawn_responses),
        "own answers": (sum(searches(p).values()), request, 1),
    }


def evaluated_responses(p: Reason) -> int:
    """Dev and test, of the last policy."""
    return p.dev_requests + _tests(p)


def calls_a_response(p: Reason, arm: str) -> int:
    """Calls for the reward of one response: VeriScore's, and where μ ≠ 0 a comparison
    with an answer of the judge's own; 0 without a reward (§3.1)."""
    return ANSWER.veriscore_calls + _is_compared(arm) if arm in WEIGHTS else 0


def judge_calls(p: Reason, arm: str) -> dict[str, int]:
    """Evaluation on dev and test: VeriScore, and a comparison with the base policy's
    answer in both orders (§4.1); strategies of the reasoning on test (§5.2). The base
    policy does not reason, and its evaluation is shared: the cache has it."""
    trained = arm != "base"
    return {
        "training": p.rl_steps * p.rl_batch_size * calls_a_response(p, arm),
        "evaluation": trained * _evaluation_calls(p),
        "strategies": trained * _tests(p),
    }


def shared_judge_calls(p: Reason) -> dict[str, int]:
    """A call a synthetic prompt, VeriScore of drawn responses, the base policy."""
    drawn = p.sft_requests + p.train_requests
    written = (drawn + p.dev_requests) * (p.requests == "synthetic")
    return {
        "synthetic prompts": written,
        "drawn responses": drawn * p.drawn_responses * ANSWER.veriscore_calls,
        "evaluation before": _evaluation_calls(p),
    }


def tokens_a_response(p: Reason, arm: str) -> int:
    """Tokens of the calls for one reward: a comparison reads request and answer, and
    writes an answer of its own (App. G)."""
    compared = ANSWER.asked_tokens + 2 * ANSWER.tokens
    return ANSWER.veriscore_tokens(p) + _is_compared(arm) * compared


def searches(p: Reason) -> dict[str, int]:
    """One a request of every set (the paper: one a claim, §3.1.2)."""
    return {
        "for SFT": p.sft_requests,
        "for DPO and RL": p.train_requests,
        "in dev": p.dev_requests,
        "in test": _tests(p),
    }


def _evaluation_calls(p: Reason) -> int:
    return evaluated_responses(p) * (ANSWER.veriscore_calls + ORDERS)


def _is_compared(arm: str) -> bool:
    return WEIGHTS[arm][1] != 0


def _tests(p: Reason) -> int:
    """Requests of all evaluation sets; the small profiles have two of their own."""
    return p.test_requests * (len(p.eval_sets.split()) or 2)
