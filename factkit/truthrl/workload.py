"""TruthRL's workload."""

from factkit.truthrl.arms import TruthRL

PROMPT_TOKENS = 200  # assumed by us: instruction and question, without references


def prompt_tokens(p: TruthRL) -> int:
    """With references, where there are any."""
    return PROMPT_TOKENS + (p.retrieved_chunks * p.chunk_tokens if p.retriever else 0)


def sampling(p: TruthRL) -> dict[str, tuple[int, int, int]]:
    """Probing what the policy knows (App. B)."""
    return {"probing": (p.train_questions, prompt_tokens(p), p.probe_samples)}


def evaluated_responses(p: TruthRL) -> int:
    """Test, comparison and further sets (each of test_questions at most), and the
    majority samples."""
    return (_sets(p) + p.majority_samples) * p.test_questions


def judge_calls(p: TruthRL, arm: str) -> dict[str, int]:
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


def shared_judge_calls(p: TruthRL) -> dict[str, int]:
    """Probing, and the untrained policy, prompted in two ways."""
    return {
        "probing": p.train_questions * p.probe_samples,
        "evaluation before": 2 * _judged_answers(p),
    }


def _judged_answers(p: TruthRL) -> int:
    return _sets(p) * p.test_questions * (2 if p.answer_format == "boxed" else 1)


def _sets(p: TruthRL) -> int:
    return 2 + len(p.eval_sets.split())
