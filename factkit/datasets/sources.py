"""The questions of a profile: from its fact world, or from Wikipedia leads."""

from collections import Counter
from importlib.resources import files

from factkit import assets
from factkit.datasets.examples import Example
from factkit.params import DataParams

HAND_CHECK = str(files("factkit") / "published" / "leads_hand_check.csv")
DEVIATIONS = (
    "questions made by rules from Wikipedia leads or a fact world instead of CRAG",
    "fewer than 256 probing samples; known from a share of correct samples, not any",
    "no retrieval, no reasoning before the answer",
)


def questions(p: DataParams) -> tuple[list[Example], Counter]:
    """The questions that `p.questions` names, and how many were dropped for what."""
    if p.questions == "world":
        from factkit import world

        made = world.build_world(people=p.world_people, seed=p.world_seed)
        return world.questions(made), Counter()
    from factkit.corpus import load_leads
    from factkit.datasets.leads import lead_questions

    return lead_questions(load_leads(), assets.verified("elements"))
