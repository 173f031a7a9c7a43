"""Binary RAR's workload."""

from factkit.long_answers import LongAnswer
from factkit.rar.arms import RAR
from factkit.rar.requests import WILDCHAT_READ
from factkit.rar.rewards import PIECES
from factkit.rar.trade_off import FORMS

ANSWER = LongAnswer(
    request_tokens=500,  # 2,000 characters, the longest taken from WildChat
    claims=30,
    source="as Qwen3-8B's biographies had before training (§6.1)",
)
MAIN_ARMS = ("binary_rar", "veriscore")
# of one evaluated request: its claims, its quality, and the outcome of a short question
# with leave to abstain and of one without (an abstention is told by rule)
EVALUATION_CALLS = ANSWER.veriscore_calls + 1 + 2


def prompt_tokens(p: RAR) -> int:
    return ANSWER.request_tokens


def sampling(p: RAR) -> dict[str, tuple[int, int, int]]:
    """Responses drawn for SFT and DPO (§4.3), and the base policy's own to all that is
    evaluated."""
    return {
        "drawing": (p.train_requests, ANSWER.request_tokens, p.drawn_responses),
        "own answers": (sum(_evaluated(p)), ANSWER.request_tokens, 1),
    }


def evaluated_responses(p: RAR) -> int:
    """On dev of each kept policy, on test of the last."""
    dev, test = _evaluated(p)
    return len(p.kept_steps) * dev + test


def calls_a_response(p: RAR, arm: str) -> int:
    """Calls for the reward of one response: one on the whole of it, or VeriScore's
    where claims are verified, or both; 0 without a reward (App. C)."""
    calls = {"supports": ANSWER.veriscore_calls}
    return sum(calls.get(piece, 1) for piece in PIECES.get(arm, ()))


def judge_calls(p: RAR, arm: str) -> dict[str, int]:
    """Evaluation: claims and quality of the open requests' answers, and outcomes of the
    short ones, on dev of each kept policy, on test of the last. The base policy's are
    shared: the cache has them."""
    kept = len(p.kept_steps) if arm in PIECES else 1
    judged = 0 if arm == "base" else kept * p.dev_requests + p.test_requests
    return {
        "training": p.rl_steps * p.rl_batch_size * calls_a_response(p, arm),
        "evaluation": judged * EVALUATION_CALLS,
    }


def shared_judge_calls(p: RAR) -> dict[str, int]:
    """WildChat's filter, VeriScore of drawn responses, the base policy's answers."""
    judged = p.dev_requests + p.test_requests
    drawn = p.train_requests * p.drawn_responses
    return {
        "filtering": WILDCHAT_READ * p.train_requests * (p.requests == "wildchat"),
        "drawn responses": drawn * ANSWER.veriscore_calls,
        "evaluation before": judged * EVALUATION_CALLS,
    }


def tokens_a_response(p: RAR, arm: str) -> int:
    """Tokens of the calls for one reward: those on a whole response read request,
    response and whole_chunks (App. C)."""
    whole = ANSWER.asked_tokens + ANSWER.tokens
    looked_at = whole + p.whole_chunks * p.whole_chunk_tokens
    tokens = {
        "quality": whole,
        "no_contradiction": looked_at,
        "rating": looked_at,
        "supports": ANSWER.veriscore_tokens(p),
    }
    return sum(tokens[piece] for piece in PIECES.get(arm, ()))


def searches(p: RAR) -> dict[str, int]:
    """One a training request, and in dev and test one an open request (App. C)."""
    return {
        "to train on": p.train_requests,
        "open ones in dev": p.dev_requests,
        "open ones in test": p.test_requests,
    }


def _evaluated(p: RAR) -> tuple[int, int]:
    """Prompts of dev and of test outside the fact world: open requests, short questions
    with and without leave to abstain, and those of a form."""
    return 3 * p.dev_requests + len(FORMS), 3 * p.test_requests + len(FORMS)
