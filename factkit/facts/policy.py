"""The policies that the kit makes at their first use, and where each is loaded from."""

from importlib import import_module

from factkit.data import assets
from factkit.run.params.stages import PolicyParams

# policy → the package of this room whose module `policy` makes it
MAKERS = {"tiny-world": "world", "smollm2-135m-leads": "leads"}


def base_policy(p: PolicyParams) -> str:
    """The folder or hub name that the untrained policy of `p` is loaded from; a policy
    of `MAKERS` is made at its first use (minutes)."""
    if maker := MAKERS.get(p.policy):
        return import_module(f"factkit.facts.{maker}.policy").make_policy(p)
    return assets.policy_path(p.policy)
