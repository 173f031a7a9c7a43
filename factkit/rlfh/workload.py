"""RLFH's workload. A response's statements are counted as its claims are."""

from factkit.long_answers import JUDGE_TOKENS, SENTENCE_TOKENS, LongAnswer
from factkit.rlfh.arms import ARMS, Rlfh

ANSWER = LongAnswer(
    request_tokens=100,  # assumed by us: a question of HotpotQA and the chat around it
    claims=22,
    source="as Vicuna-7B's answers to HotpotQA had after training, 14 before (Table 1)",
)
BIOGRAPHIES = 183  # FactScore's
MAIN_ARMS = ("statement",)


def prompt_tokens(p: Rlfh) -> int:
    return ANSWER.request_tokens


def sampling(p: Rlfh) -> dict[str, tuple[int, int, int]]:
    """Responses drawn for DPO, and the base policy's own to every question."""
    request = prompt_tokens(p)
    return {
        "drawing": (p.train_requests, request, p.drawn_responses),
        "own answers": (sum(searches(p).values()), request, 1),
    }


def evaluated_responses(p: Rlfh) -> int:
    """Dev and test, of the last policy."""
    return p.dev_requests + _tests(p)


def annotation_calls(p: Rlfh) -> int:
    """Calls for the feedback on one response: one, or in the pipeline one a sentence,
    one a statement and one for all ratings (§3.1)."""
    return 1 if p.annotation == "single_pass" else ANSWER.veriscore_calls + 1


def calls_a_response(p: Rlfh, arm: str) -> int:
    """Calls for the reward of one response, wherever the arm puts it; 0 without one."""
    return annotation_calls(p) if ARMS[arm].algorithm in ("PPO", "GRPO") else 0


def judge_calls(p: Rlfh, arm: str) -> dict[str, int]:
    """Evaluation on dev and test: FactScore's claims, and the annotator. The base
    policy's is shared: the cache has it."""
    return {
        "training": p.rl_steps * p.rl_batch_size * calls_a_response(p, arm),
        "evaluation": (arm != "base") * _evaluation_calls(p),
    }


def shared_judge_calls(p: Rlfh) -> dict[str, int]:
    """Feedback on the drawn responses, and the base policy's evaluation."""
    drawn = p.train_requests * p.drawn_responses
    return {
        "drawn responses": drawn * annotation_calls(p),
        "evaluation before": _evaluation_calls(p),
    }


def tokens_a_response(p: Rlfh, arm: str) -> int:
    """Tokens of the calls for one reward. The pipeline's last call reads question,
    response and statements (Table 7). A single pass reads as many passages as one
    statement has, has instructions twice as long, and writes down sentences and
    statements (Table 4)."""
    asked = ANSWER.asked_tokens + ANSWER.tokens
    stated = ANSWER.claims * SENTENCE_TOKENS
    if p.annotation == "single_pass":
        evidence = p.claim_chunks * p.claim_chunk_tokens
        return JUDGE_TOKENS + asked + evidence + ANSWER.tokens + stated
    return ANSWER.veriscore_tokens(p) + asked + stated


def searches(p: Rlfh) -> dict[str, int]:
    """One a question of every set (the paper has passages of Wikipedia, §4.1)."""
    return {
        "to train on": p.train_requests,
        "in dev": p.dev_requests,
        "in test": _tests(p),
    }


def _evaluation_calls(p: Rlfh) -> int:
    return evaluated_responses(p) * (ANSWER.veriscore_calls + annotation_calls(p))


def _tests(p: Rlfh) -> int:
    """Questions of all evaluation sets: the small profiles have two of one size;
    SQuADv2's questions and the biographies are all taken (§4.1)."""
    if p.requests != "hotpotqa":
        return 2 * p.test_requests
    from factkit.rlfh.requests import SQUAD_QUESTIONS

    return p.test_requests + SQUAD_QUESTIONS + BIOGRAPHIES
