"""How much a paper's runs ask of the policy, of a judge and of the web.

Counts, reckoned from the parameters alone; upper bounds, every prompt of every set.
What is one paper's is in a small function of its own.
"""

from factkit.params import RAR, TruthRL
from factkit.rewards.rar import PIECES
from factkit.verify import claims

Paper = TruthRL | RAR
Row = tuple[str, str, str]  # what, value, how reckoned

# Assumptions, ours except where a source is named: nothing here was measured by us
PROMPT_TOKENS = 200  # TruthRL: instruction and question, without references
REQUEST_TOKENS = 500  # Binary RAR: 2,000 characters, the longest taken from WildChat
CLAIMS = 30  # a response: Qwen3-8B's biographies before training (Binary RAR §6.1)
SENTENCES = 15  # of that response: two claims each
SENTENCE_TOKENS = 30  # of a sentence, and of a claim
JUDGE_TOKENS = 500  # a call's instructions (1,400 to 2,100 characters) and its reply

VERISCORE_CALLS = SENTENCES + CLAIMS  # a response: each sentence read, each claim held


# ---- the policy


def prompt_tokens(p: Paper) -> int:
    """Tokens of a prompt, with TruthRL's references, as far as there is room."""
    prompt = REQUEST_TOKENS
    if isinstance(p, TruthRL):
        references = p.retrieved_chunks * p.chunk_tokens if p.retriever else 0
        prompt = PROMPT_TOKENS + references
    return min(prompt, max(p.max_context_length - p.max_completion_length, 0))


def sequence_tokens(p: Paper) -> int:
    """Tokens of a prompt and its response."""
    return prompt_tokens(p) + p.max_completion_length


def rollout_tokens(p: Paper) -> int:
    """Tokens of an RL run's prompts and responses."""
    return p.rl_steps * p.rl_batch_size * sequence_tokens(p)


def sampling(p: Paper) -> tuple[str, int, int]:
    """What all arms learn from, sampled once: (stage, prompts, responses a prompt).

    TruthRL probes what the policy knows (App. B); Binary RAR draws responses for SFT
    and DPO (§4.3).
    """
    if isinstance(p, RAR):
        return "drawing", p.train_requests, p.drawn_responses
    return "probing", p.train_questions, p.probe_samples


def sampled_tokens(p: Paper) -> int:
    """Tokens of `sampling`: each prompt is read once for all its responses."""
    _, prompts, each = sampling(p)
    return prompts * (prompt_tokens(p) + each * p.max_completion_length)


def evaluated_responses(p: Paper) -> int:
    """Responses of one RL arm's evaluation.

    TruthRL: test, comparison and further sets (each of test_questions at most), and the
    majority samples. Binary RAR, outside the fact world: open requests, short questions
    with and without leave to abstain, and those of a form; on dev of the base policy
    and of each kept one, on test of the base policy and of the last.
    """
    if isinstance(p, TruthRL):
        return (2 + len(p.eval_sets.split()) + p.majority_samples) * p.test_questions
    from factkit.evaluate.utility import FORM_PROMPTS

    dev, test = (3 * n + len(FORM_PROMPTS) for n in (p.dev_requests, p.test_requests))
    return (1 + len(p.kept_steps)) * dev + 2 * test


# ---- the judge


def judge_calls(p: Paper, arm: str) -> dict[str, int]:
    """Calls of one run of an arm by stage; none where no judge is asked."""
    if p.verifier != "judge":
        return {}
    return _rar_calls(p, arm) if isinstance(p, RAR) else _truthrl_calls(p, arm)


def shared_judge_calls(p: Paper) -> dict[str, int]:
    """Calls that all arms and seeds share, by stage; none where no judge is asked."""
    if p.verifier != "judge":
        return {}
    return _rar_shared_calls(p) if isinstance(p, RAR) else _truthrl_shared_calls(p)


def all_judge_calls(p: Paper) -> int:
    """Calls of all arms with all seeds, and the shared ones."""
    each = sum(sum(judge_calls(p, arm).values()) for arm in p.arms.split())
    return sum(shared_judge_calls(p).values()) + each * len(p.seeds.split())


def _truthrl_calls(p: TruthRL, arm: str) -> dict[str, int]:
    """Evaluation: every set, twice where the reasoning is judged too, the majority
    samples, and the other judges on the test set."""
    drawn = {"rft": p.rft_samples, "iterative_dpo": p.dpo_iterations * p.probe_samples}
    per_rollout = 2 if "reason" in arm else 1
    if not arm.startswith(("binary", "ternary")) or arm == "ternary_strict_match":
        per_rollout = 0  # no rollouts, a reward model's score, or string match
    majority = p.majority_samples if p.majority_samples > 1 else 0
    others = len(p.other_judges.split())
    return {
        "sampling": p.train_questions * drawn.get(arm, 0),
        "training": p.rl_steps * p.rl_batch_size * per_rollout,
        "evaluation": _judged_answers(p) + p.test_questions * (majority + others),
    }


def _truthrl_shared_calls(p: TruthRL) -> dict[str, int]:
    """Probing, and the untrained policy, prompted in two ways."""
    return {
        "probing": p.train_questions * p.probe_samples,
        "evaluation before": 2 * _judged_answers(p),
    }


def _judged_answers(p: TruthRL) -> int:
    sets = 2 + len(p.eval_sets.split())
    return sets * p.test_questions * (2 if p.answer_format == "boxed" else 1)


def calls_a_response(arm: str) -> int:
    """Calls for the reward of one response: one on the whole of it, or VERISCORE_CALLS
    where claims are verified, or both; 0 without a reward (Binary RAR App. C)."""
    pieces = PIECES.get(arm, ())
    return sum(VERISCORE_CALLS if piece == "supports" else 1 for piece in pieces)


def _rar_calls(p: RAR, arm: str) -> dict[str, int]:
    """Evaluation: claims and quality of the open requests' answers, on dev of each kept
    policy, on test of the last. The base policy's are shared: the cache has them."""
    kept = len(p.kept_steps) if arm in PIECES else 1
    judged = 0 if arm == "base" else kept * p.dev_requests + p.test_requests
    return {
        "training": p.rl_steps * p.rl_batch_size * calls_a_response(arm),
        "evaluation": judged * (VERISCORE_CALLS + 1),
    }


def _rar_shared_calls(p: RAR) -> dict[str, int]:
    """WildChat's filter, VeriScore of drawn responses, the base policy's answers."""
    from factkit.curate.request_sets import WILDCHAT_READ

    read = WILDCHAT_READ * p.train_requests if p.requests == "wildchat" else 0
    base = (p.dev_requests + p.test_requests) * (VERISCORE_CALLS + 1)
    drawn = p.train_requests * p.drawn_responses * VERISCORE_CALLS
    return {"filtering": read, "drawn responses": drawn, "evaluation before": base}


def judge_tokens(p: RAR, arm: str) -> int:
    """Tokens of an RL run's judge calls in training, read and written.

    A call on a whole response reads request, response and whole_chunks; VeriScore's
    read each sentence with the request and those around it, and each claim with
    claim_chunks (Binary RAR App. C).
    """
    asked = JUDGE_TOKENS + REQUEST_TOKENS
    whole = asked + SENTENCES * SENTENCE_TOKENS
    looked_at = whole + p.whole_chunks * p.whole_chunk_tokens
    sentence = asked + (claims.BEFORE + 1 + claims.AFTER) * SENTENCE_TOKENS
    evidence = p.claim_chunks * p.claim_chunk_tokens
    claim = JUDGE_TOKENS + SENTENCE_TOKENS + evidence
    of = {
        "quality": whole,
        "no_contradiction": looked_at,
        "rating": looked_at,
        "supports": SENTENCES * sentence + CLAIMS * claim,
    }
    each = sum(of[piece] for piece in PIECES.get(arm, ()))
    return p.rl_steps * p.rl_batch_size * each


def judge_rows(p: Paper) -> list[Row]:
    """Rows of the judge's calls: shared, of `p.arm`, of all; Binary RAR's by arm."""
    if p.verifier != "judge":
        return [("judge calls", "0", f"verifier={p.verifier} needs no endpoint")]
    arms, seeds = len(p.arms.split()), len(p.seeds.split())
    found = {"shared": shared_judge_calls(p), f"of {p.arm}": judge_calls(p, p.arm)}
    total = f"{arms} arms × {seeds} seed(s), and the shared calls"
    return [
        *(
            (f"judge calls {whose}", f"{sum(of.values()):,}", _stages(of))
            for whose, of in found.items()
        ),
        ("judge calls of all", f"{all_judge_calls(p):,}", total),
        *(_rar_judge_rows(p) if isinstance(p, RAR) else []),
    ]


def _stages(calls: dict[str, int]) -> str:
    return " + ".join(f"{n:,} {stage}" for stage, n in calls.items())


def _rar_judge_rows(p: RAR) -> list[Row]:
    how = f"{SENTENCES} sentences, assumed by us, and {CLAIMS} claims, as Qwen3-8B's "
    how += "biographies had before training (§6.1)"
    rows = [("judge calls a response by VeriScore", str(VERISCORE_CALLS), how)]
    for arm in (arm for arm in p.arms.split() if arm in PIECES):
        step = p.rl_batch_size * calls_a_response(arm)
        how = f"{calls_a_response(arm)} a rollout; {step:,} a step × {p.rl_steps} steps"
        rows.append((f"judge calls training {arm}", f"{p.rl_steps * step:,}", how))
    for arm in ("binary_rar", "veriscore"):
        tokens = judge_tokens(p, arm)
        each = tokens // (p.rl_steps * p.rl_batch_size)
        how = f"{each:,} a rollout; lengths of texts assumed by us"
        rows.append((f"judge tokens training {arm}", f"{tokens:,}", how))
    return rows


# ---- the web


def web_searches(p: RAR) -> int:
    """Searches for evidence: one a training request, and in dev and test one an open
    request (Binary RAR App. C); 0 offline."""
    if not p.search_url:
        return 0
    return p.train_requests + p.dev_requests + p.test_requests


def web_rows(p: Paper) -> list[Row]:
    """Rows of searches and pages; none for a paper that caches no pages."""
    if not isinstance(p, RAR):
        return []
    searches = web_searches(p)
    if not searches:
        return [("web searches", "0", "evidence is from the embedded corpus")]
    how = f"{p.train_requests} requests to train on; in dev and test "
    how += f"{p.dev_requests} + {p.test_requests} open ones"
    pages = f"{p.pages} a search at most"
    return [
        ("web searches", f"{searches:,}", how),
        ("web pages", f"{searches * p.pages:,}", pages),
    ]
