"""The optimal policy of the KL-regularised objective (Binary RAR Theorem 1, App. F).

Of n responses to one prompt: reference, rewards and policies are arrays (n,).
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd


def optimum(reference: np.ndarray, rewards: np.ndarray, beta: float) -> np.ndarray:
    """π*(y) ∝ π_ref(y) · exp(r(y) / β) (App. F, Eq. 10)."""
    logs = np.log(reference) + rewards / beta
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def optimise(reference: np.ndarray, rewards: np.ndarray, beta: float) -> np.ndarray:
    """The softmax policy that maximises J (Eq. 8), by natural gradient ascent from the
    reference: the gradient in the logits is multiplied by the inverse Fisher matrix.
    Plain ascent hardly moves where a good response is rare.

    Raises RuntimeError if it does not converge within 200 steps.
    """
    import torch

    log_reference = torch.tensor(np.log(reference))
    # a constant added to all rewards moves no policy; this one keeps J/β near 0
    gains = torch.tensor((rewards - rewards.max()) / beta)
    logits = log_reference.clone().requires_grad_()
    for _ in range(200):
        log_policy = torch.log_softmax(logits, dim=0)
        value = (log_policy.exp() * (gains - log_policy + log_reference)).sum()
        (gradient,) = torch.autograd.grad(value, logits)
        step = gradient / log_policy.detach().exp()
        with torch.no_grad():
            logits += 0.5 * step
        if step.abs().max() < 1e-9:
            return torch.softmax(logits.detach(), dim=0).numpy()
    raise RuntimeError(f"beta={beta}: no optimum within 200 steps")


def compare(
    reference: np.ndarray, rewards: np.ndarray, betas: Sequence[float]
) -> pd.DataFrame:
    """Both by β: rows of beta, response, reward, reference, closed_form, optimised."""
    tables = [
        pd.DataFrame(
            {
                "beta": beta,
                "reward": rewards,
                "reference": reference,
                "closed_form": optimum(reference, rewards, beta),
                "optimised": optimise(reference, rewards, beta),
            }
        )
        for beta in betas
    ]
    return pd.concat(tables).rename_axis("response").reset_index()
