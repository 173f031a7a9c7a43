"""The policies that the kit makes at their first use, and where each is loaded from."""

from factkit.data import assets
from factkit.facts.leads import policy as leads_policy
from factkit.facts.world import policy as world_policy
from factkit.run.params.stages import PolicyParams

# name of a policy → parameters → its folder
MAKERS = {
    "tiny-world": world_policy.pretrained_policy,
    "smollm2-135m-leads": leads_policy.cold_start,
}


def base_policy(p: PolicyParams) -> str:
    """The folder or hub name that the untrained policy of `p` is loaded from; a policy
    of `MAKERS` is made at its first use (minutes)."""
    if make := MAKERS.get(p.policy):
        return make(p)
    return assets.policy_path(p.policy)
