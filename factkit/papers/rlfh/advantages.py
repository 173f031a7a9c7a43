"""What RLFH's policy learns from token rewards (§3.2.2): advantages and value loss.

Of B completions of at most T tokens, padded on the right. mask (B, T), bool, is true at
the tokens that count; results are 0 at the others, whatever the inputs are there.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def gae(
    rewards: "Tensor", values: "Tensor", mask: "Tensor", gamma: float, lam: float
) -> tuple["Tensor", "Tensor"]:
    """Generalised advantage estimation (Schulman et al. 2016): advantages and returns.

    δ_t = r_t + γ V_{t+1} − V_t,  A_t = δ_t + γλ A_{t+1},  return_t = A_t + V_t

    values (B, T): V_t, of the state in which token t is chosen. After a completion's
    last token V and A are 0.
    """
    rewards, values = rewards.where(mask, 0.0), values.where(mask, 0.0)
    advantages = values.new_zeros(values.shape)
    advantage = value = values.new_zeros(len(values))  # (B,), of the token after
    for t in reversed(range(values.shape[1])):
        delta = rewards[:, t] + gamma * value - values[:, t]
        advantage, value = delta + gamma * lam * advantage, values[:, t]
        advantages[:, t] = advantage
    return advantages.where(mask, 0.0), (advantages + values).where(mask, 0.0)


def group_advantages(returns: "Tensor", known: "Tensor", group: int) -> "Tensor":
    """A_{i,t} = R_{i,t} − mean of R_{j,t} over the other completions j of i's prompt.

    A baseline must not depend on the action that it judges, so it is the mean of the
    other completions (RLOO, Ahmadian et al. 2024) at the same token. One that ended
    before counts as 0, its return from there on.

    returns: R (B, T), the discounted rewards from t on, 0 after the end; `group` rows
    per prompt. known: bool (B,), false where the judge failed: such a row counts in no
    mean and has A = 0, as has the only known row of a group.
    """
    grouped = returns.where(known[:, None], 0.0).view(-1, group, returns.shape[1])
    counted = known.view(-1, group, 1)
    n_others = counted.sum(1, keepdim=True) - counted.long()
    mean = (grouped.sum(1, keepdim=True) - grouped) / n_others.clamp(min=1)
    return (grouped - mean).where(counted & (n_others > 0), 0.0).view_as(returns)


def masked_mean(x: "Tensor", mask: "Tensor") -> "Tensor":
    """The mean of x over the tokens of mask, a scalar; 0 if there are none."""
    return x.where(mask, 0.0).sum() / mask.sum().clamp(min=1)


def whiten(advantages: "Tensor", mask: "Tensor") -> "Tensor":
    """Advantages with mean 0 and variance 1 over the tokens of mask, (B, T)."""
    centred = advantages - masked_mean(advantages, mask)
    variance = masked_mean(centred**2, mask)
    return (centred * (variance + 1e-8).rsqrt()).where(mask, 0.0)


def value_loss(
    values: "Tensor",
    old_values: "Tensor",
    returns: "Tensor",
    mask: "Tensor",
    clip: float,
) -> "Tensor":
    """½ mean max((V − R)², (V_old + clip(V − V_old, ±c) − R)²) over tokens, a scalar.

    trlX's, with PPO's clip on the value.
    """
    near = old_values + (values - old_values).clamp(-clip, clip)
    error = ((values - returns) ** 2).maximum((near - returns) ** 2)
    return 0.5 * masked_mean(error, mask)
