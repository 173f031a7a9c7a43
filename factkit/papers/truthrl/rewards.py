"""TruthRL's rewards (§3.2, §4.6): pure functions first, then TRL's signature."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from factkit.papers.truthrl.arms import ARMS
from factkit.prompts import completion_texts
from factkit.run import identity
from factkit.train import offline
from factkit.verify.outcome import Outcome
from factkit.verify.response import split_confidence

if TYPE_CHECKING:
    from factkit.papers.truthrl.arms import TruthRL

# (outcome, whether the question is out of knowledge) → reward of a response
Reward = Callable[[Outcome, bool], float]


def binary(result: Outcome) -> float:
    """+1 if correct, −1 otherwise: abstaining costs as much as being wrong (§3.2)."""
    return 1.0 if result is Outcome.CORRECT else -1.0


def ternary(result: Outcome) -> float:
    """+1 if correct, 0 if abstaining, −1 if wrong (§3.2)."""
    return {Outcome.CORRECT: 1.0, Outcome.ABSTAIN: 0.0, Outcome.WRONG: -1.0}[result]


def knowledge_enhanced(
    result: Outcome, out_of_knowledge: bool, reward: Callable[[Outcome], float]
) -> float:
    """Out of knowledge: +1 if abstaining, −1 otherwise; else `reward` (§3.2)."""
    if out_of_knowledge:
        return 1.0 if result is Outcome.ABSTAIN else -1.0
    return reward(result)


def multiplicative(r_outcome: float, r_reason: float) -> float:
    """r_outcome · (1 + r_reason) (§4.6). r_reason in [0, 1]."""
    return r_outcome * (1 + r_reason)


def additive(r_outcome: float, r_reason: float, weight: float) -> float:
    """r_outcome + λ · r_reason (§4.6). weight: λ, 0.5 in Appendix C."""
    return r_outcome + weight * r_reason


def conditional(r_outcome: float, r_reason: float) -> float:
    """r_outcome · r_reason if r_outcome = 1, else r_outcome (§4.6)."""
    return r_outcome * r_reason if r_outcome == 1 else r_outcome


def abstention_price(result: Outcome, r_abs: float) -> float:
    """+1 if correct, r_abs if abstaining, −1 if wrong (arXiv 2601.20126).

    r_abs in [−1, 1]: 0 is `ternary`, −1 `binary`. Answering is worth more than
    abstaining where it is right with probability p > (1 + r_abs) / 2.
    """
    return r_abs if result is Outcome.ABSTAIN else ternary(result)


def rlcr(result: Outcome, confidence: float | None) -> float:
    """R = 1[correct] − (q − 1[correct])² (RLCR, arXiv 2507.16806), in [−1, 1].

    confidence: the stated q in [0, 1]. Abstaining is not correct: −q². A response
    without a confidence (None) gets −1, as a wrong one with q = 1: in the authors' code
    it earns neither correctness nor the term 1 − (q − 1[correct])², so 0 of R + 1.
    Their further reward of the format is left out (ours).
    """
    if confidence is None:
        return -1.0
    correct = float(result is Outcome.CORRECT)
    return correct - (confidence - correct) ** 2


def reward(
    arm: str,
    result: Outcome,
    out_of_knowledge: bool = False,
    reasoning: float = 0.0,
    weight: float = 0.5,
    confidence: float | None = None,
) -> float:
    """The reward of one response under an arm; ValueError on an arm that has none.

    out_of_knowledge: by probing (§3.1). reasoning: quality in [0, 1] (§4.6). weight: λ
    of the additive reward, r_abs of the abstention price. confidence: the stated one.
    """
    match arm:
        case "binary":
            return binary(result)
        case "ternary" | "ternary_strict_match":
            return ternary(result)
        case "binary_knowledge":
            return knowledge_enhanced(result, out_of_knowledge, binary)
        case "ternary_knowledge":
            return knowledge_enhanced(result, out_of_knowledge, ternary)
        case "ternary_reason_multiplicative":
            return multiplicative(ternary(result), reasoning)
        case "ternary_reason_additive":
            return additive(ternary(result), reasoning, weight)
        case "ternary_reason_conditional":
            return conditional(ternary(result), reasoning)
        case "abstention_price":
            return abstention_price(result, weight)
        case "rlcr":
            return rlcr(result, confidence)
    raise ValueError(f"arm={arm} has no reward of the outcome")


def group_advantages(rewards: Sequence[float]) -> list[float]:
    """GRPO's advantages of one group: Â_i = (r_i − mean r) / std r (§3.2).

    rewards: G rewards of responses to one prompt. std is the sample's (n − 1), with
    1e-4 added, as TRL computes it; a group of equal rewards gets zeros.
    """
    mean = sum(rewards) / len(rewards)
    variance = sum((r - mean) ** 2 for r in rewards) / max(len(rewards) - 1, 1)
    return [(r - mean) / (variance**0.5 + 1e-4) for r in rewards]


def abstention_dynamics(
    results: Sequence[Outcome | None], group_size: int
) -> dict[str, float]:
    """Abstention ratios of a batch of rollouts, overall and by kind of group (Fig 3).

    results: B outcomes, groups of `group_size` consecutive responses to one prompt; a
    None (the judge failed) is left out. A group is pro-abstention if it holds only
    abstaining and wrong responses, of each at least one, and anti-abstention if it
    holds abstaining and correct ones. A ratio is over the responses of such groups; a
    kind without a group is left out.
    """
    groups: dict[str, list[Outcome]] = {}
    for start in range(0, len(results), group_size):
        group = [r for r in results[start : start + group_size] if r is not None]
        groups.setdefault("abstention", []).extend(group)
        if Outcome.ABSTAIN in group and Outcome.CORRECT in group:
            groups.setdefault("abstention_anti", []).extend(group)
        elif Outcome.ABSTAIN in group and Outcome.WRONG in group:
            groups.setdefault("abstention_pro", []).extend(group)
    return {k: g.count(Outcome.ABSTAIN) / len(g) for k, g in groups.items() if g}


def log_outcomes(
    results: Sequence[Outcome | None],
    group_size: int,
    log_metric: Callable[[str, float], None],
) -> None:
    """Log a batch's rates, abstention dynamics and share of failed judgements."""
    metrics = abstention_dynamics(results, group_size)
    judged = [r for r in results if r is not None]
    if judged:
        metrics["accuracy"] = judged.count(Outcome.CORRECT) / len(judged)
        metrics["hallucination"] = judged.count(Outcome.WRONG) / len(judged)
    metrics["judge_failures"] = 1 - len(judged) / len(results)
    for name, value in metrics.items():
        log_metric(name, value)


def log_confidences(
    stated: Sequence[float | None], log_metric: Callable[[str, float], None]
) -> None:
    """Log the mean stated confidence, and the share of responses without one."""
    known = [q for q in stated if q is not None]
    log_metric("without_confidence", 1 - len(known) / len(stated))
    if known:
        log_metric("stated_confidence", sum(known) / len(known))


def reward_function(
    p: "TruthRL", folder: Path, own: Reward | None = None
) -> Callable[..., Sequence[float | None]]:
    """The reward of `p.arm`, or your own, with TRL's `reward_funcs` signature.

    The data set needs the columns `id`, `answers`, `question` and `out_of_knowledge`.
    rlhf and rlkf use the reward model in folder/reward_model. Where the judge fails the
    reward is None, which TRL leaves out of the group's baseline.
    """
    from factkit.answers import verifier

    exact = p.arm == "ternary_strict_match"
    priced = p.arm == "abstention_price"
    weight = p.abstention_reward if priced else p.reason_weight
    verify = verifier.verifier(p, "exact" if exact else p.verifier)
    score = None
    if p.arm in ("rlhf", "rlkf"):
        dtype = p.dtype if p.reward_lora_rank else "auto"
        score = offline.load_scorer(str(folder / "reward_model"), dtype)
    judge_reasoning = verifier.reasoning_judge(p) if ARMS[p.arm].reasoning else None

    def truthrl_reward(
        prompts: list,
        completions: list,
        log_metric: Callable[[str, float], None] = lambda name, value: None,
        **columns: list,
    ) -> Sequence[float | None]:
        texts = completion_texts(completions)
        answers, questions = columns["answers"], columns["question"]
        results = verify(texts, answers, questions)
        log_outcomes(results, p.num_generations, log_metric)
        if score:
            return score(prompts, texts)
        quality: Sequence[float | None] = [0.0] * len(texts)
        if judge_reasoning:
            quality = judge_reasoning(texts, columns["id"], answers, questions)
            if known := [q for q in quality if q is not None]:
                log_metric("reasoning", sum(known) / len(known))
        stated = [split_confidence(text)[1] for text in texts]
        if p.states_confidence:
            log_confidences(stated, log_metric)
        rows = zip(results, columns["out_of_knowledge"], quality, stated, strict=True)
        return [
            None
            if result is None or q is None
            else own(result, unknown)
            if own
            else reward(p.arm, result, unknown, q, weight, sure)
            for result, unknown, q, sure in rows
        ]

    truthrl_reward.__name__ = identity.callable_name(own) if own else f"truthrl_{p.arm}"
    return truthrl_reward
