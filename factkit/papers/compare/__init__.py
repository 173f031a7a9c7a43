"""One policy, every reward: the papers' rewards against each other, in 60 to 62.

Ours: no paper does it. Start, requests, updates, rollouts and KL are the same for all;
what a response earns differs, and each is measured by every paper's metric.
"""
