"""One policy, every reward: the papers' rewards against each other, in 60 to 62.

Ours: no paper does it. Start, requests, updates, rollouts and KL are the same for all
arms; the reward differs, and each policy is measured by every paper's metrics.
"""
