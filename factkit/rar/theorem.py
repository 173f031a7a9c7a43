"""Theorem 1 of Binary RAR (§3.4, §F), on a finite set of responses to one prompt.

The KL-regularised objective J(π) = E_π[r] − β·KL(π ‖ π_ref) has one optimum, in closed
form. `optimise` finds it without knowing that form, by gradient on the exact objective.
Arrays are of shape (n,), a value a response; `reference` is π_ref and sums to 1.
"""

import numpy as np

STEP = 0.5  # of the ascent
CONVERGED = 1e-9  # a last step in the logits, at most


def optimum(reference: np.ndarray, rewards: np.ndarray, beta: float) -> np.ndarray:
    """The best policy for any reward: π*(y) ∝ π_ref(y)·exp(r(y)/β) (§F, Eq. 10)."""
    return _normalised(_log(reference) + rewards / beta)


def binary_optimum(
    reference: np.ndarray, error_free: np.ndarray, beta: float
) -> np.ndarray:
    """The best policy for a binary reward (Eq. 7): π*(y) ∝ π_ref(y)·(1 or exp(−1/β)).

    error_free: true where r(y) = 1.
    """
    return _normalised(_log(reference) + np.where(error_free == 1, 0.0, -1.0 / beta))


def optimise(
    reference: np.ndarray, rewards: np.ndarray, beta: float, max_steps: int = 200
) -> np.ndarray:
    """The softmax policy that natural gradient ascent on J finds, from π_ref on.

    A step is the gradient of J in the logits over their probabilities, that is by the
    inverse Fisher matrix: plain ascent stands nearly still where a good response is
    rare. Raises RuntimeError where it does not converge.
    """
    import torch

    possible = reference > 0
    log_reference = torch.tensor(np.log(reference[possible]))
    # a constant added to all rewards moves no policy; this one keeps J/β near 0, where
    # float64 resolves it best
    gains = torch.tensor((rewards[possible] - rewards[possible].max()) / beta)
    logits = log_reference.clone().requires_grad_()
    for _ in range(max_steps):
        log_policy = torch.log_softmax(logits, dim=0)
        value = (log_policy.exp() * (gains - log_policy + log_reference)).sum()
        (gradient,) = torch.autograd.grad(value, logits)
        policy = log_policy.detach().exp()
        # a probability that float64 can't hold any more has reached its 0
        step = torch.where(policy > 0, gradient / policy, 0.0)
        with torch.no_grad():
            logits += STEP * step
        if step.abs().max() < CONVERGED:
            best = np.zeros(len(reference))
            best[possible] = torch.softmax(logits.detach(), dim=0).numpy()
            return best
    raise RuntimeError(f"beta={beta}: no optimum within {max_steps} steps")


def ratio_spread(policy: np.ndarray, reference: np.ndarray, alike: np.ndarray) -> float:
    """How far a policy is from keeping the relative probabilities of some responses.

    alike: true for those responses, as the error-free ones. Returns the largest
    |log(π(a)/π(b)) − log(π_ref(a)/π_ref(b))| among them: 0 where all are kept (§3.4).
    """
    return float(np.ptp(np.log(policy[alike]) - np.log(reference[alike])))


def _log(probabilities: np.ndarray) -> np.ndarray:
    """Logarithms, −∞ for 0."""
    with np.errstate(divide="ignore"):
        return np.log(probabilities)


def _normalised(logs: np.ndarray) -> np.ndarray:
    """exp(logs) divided by their sum, for logs of any size."""
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()
