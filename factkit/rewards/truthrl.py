"""TruthRL's rewards (§3.2): a function of the outcome alone, then TRL's signature."""

from collections.abc import Callable, Sequence

from factkit.verify.outcome import Outcome, outcome


def binary(result: Outcome) -> float:
    """+1 if correct, −1 otherwise: abstaining costs as much as being wrong (§3.2)."""
    return 1.0 if result is Outcome.CORRECT else -1.0


def ternary(result: Outcome) -> float:
    """+1 if correct, 0 if abstaining, −1 if wrong (§3.2)."""
    return {Outcome.CORRECT: 1.0, Outcome.ABSTAIN: 0.0, Outcome.WRONG: -1.0}[result]


DEVIATIONS = (
    "rule-based verifier with aliases instead of a 70B judge",
    "RL starts from the R-Tuning model, since the small policy never abstains",
    "short answers without reasoning; learning rates of a small model",
)
REWARDS: dict[str, Callable[[Outcome], float]] = {"binary": binary, "ternary": ternary}


def group_advantages(rewards: Sequence[float]) -> list[float]:
    """GRPO's advantages of one group: Â_i = (r_i − mean r) / std r (§3.2).

    rewards: G rewards of responses to one prompt. std is the sample's (n − 1), with
    1e-4 added, as TRL computes it; a group of equal rewards gets zeros.
    """
    mean = sum(rewards) / len(rewards)
    variance = sum((r - mean) ** 2 for r in rewards) / max(len(rewards) - 1, 1)
    return [(r - mean) / (variance**0.5 + 1e-4) for r in rewards]


def abstention_dynamics(
    results: Sequence[Outcome], group_size: int
) -> dict[str, float]:
    """Abstention ratios of a batch of rollouts, overall and by kind of group (Fig 3).

    results: B outcomes, groups of `group_size` consecutive responses to one prompt.
    A group is pro-abstention if it holds only abstaining and wrong responses, of each
    at least one, and anti-abstention if it holds abstaining and correct ones. A ratio
    is over the responses of such groups; a kind without a group is left out.
    """
    kinds: dict[str, list[Outcome]] = {"abstention": list(results)}
    for start in range(0, len(results), group_size):
        group = list(results[start : start + group_size])
        if Outcome.ABSTAIN in group and Outcome.CORRECT in group:
            kinds.setdefault("abstention_anti", []).extend(group)
        elif Outcome.ABSTAIN in group and Outcome.WRONG in group:
            kinds.setdefault("abstention_pro", []).extend(group)
    return {k: group.count(Outcome.ABSTAIN) / len(group) for k, group in kinds.items()}


def reward_function(name: str, group_size: int) -> Callable[..., list[float]]:
    """The reward `name` ("binary" or "ternary") with TRL's `reward_funcs` signature.

    The data set needs columns `answers` and `question`. Logs the outcomes' rates and
    the abstention dynamics of each batch.
    """
    reward = REWARDS[name]

    def truthrl_reward(
        completions: list[str],
        answers: list[list[str]],
        question: list[str],
        log_metric: Callable[[str, float], None] | None = None,
        **_: object,
    ) -> list[float]:
        results = [
            outcome(*row) for row in zip(completions, answers, question, strict=True)
        ]
        if log_metric:
            for metric, value in abstention_dynamics(results, group_size).items():
                log_metric(metric, value)
            log_metric("accuracy", results.count(Outcome.CORRECT) / len(results))
            log_metric("hallucination", results.count(Outcome.WRONG) / len(results))
        return [reward(result) for result in results]

    truthrl_reward.__name__ = f"truthrl_{name}"
    return truthrl_reward
