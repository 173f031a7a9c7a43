"""The questions of a profile: from its fact world, or from Wikipedia leads."""

from collections import Counter
from importlib.resources import files

from factkit import assets
from factkit.datasets.examples import Example
from factkit.truthrl.arms import QuestionParams

HAND_CHECK = str(files("factkit") / "published" / "leads_hand_check.csv")


def questions(p: QuestionParams) -> tuple[list[Example], Counter]:
    """The questions that `p.questions` names, and how many were dropped for what."""
    if p.questions == "world":
        from factkit.world import facts as world

        made = world.build_world(people=p.world_people, seed=p.world_seed)
        return world.questions(made), Counter()
    if p.questions != "leads":
        from factkit.datasets import benchmarks

        return benchmarks.load_all(p.questions, p.questions_path)
    from factkit.corpus import load_leads
    from factkit.leads.questions import lead_questions

    return lead_questions(load_leads(), assets.verified("elements"))
