"""Deviations come from the parameters: every value that is not the paper's is named."""

import pytest
import yaml

from factkit import arms, deviations, params
from factkit.arms import PAPERS

PROFILES = ["tiny", "laptop", "h100_lora", "h100_full"]


def variants(paper, profile):
    """The variants of a paper at a profile, the main one first."""
    folder = params.ROOT / "params" / profile
    stems = sorted(path.stem for path in folder.glob(f"{paper}-*.yaml"))
    return ["", *(stem.removeprefix(f"{paper}-") for stem in stems)]


@pytest.mark.parametrize("paper", PAPERS)
def test_what_a_paper_states_is_a_parameter_of_ours_with_a_value_in_yaml(paper):
    known = params.class_of(paper).model_fields
    rows = deviations.stated(paper)
    wrong = [
        f"{row.key}: {problem}"
        for row in rows
        for problem in (
            *(["no such parameter"] if row.key not in known else []),
            *(["no section"] if not row.section else []),
            *(["no meaning"] if not row.meaning else []),
            *(["no value"] if yaml.safe_load(row.paper.split("|")[0]) is None else []),
        )
    ]
    assert not wrong
    assert len({row.key for row in rows}) == len(rows) >= 10


@pytest.mark.parametrize("paper", PAPERS)
def test_h100_full_has_the_paper_s_values_or_a_reason(paper):
    unexplained = []
    for variant in variants(paper, "h100_full"):
        p = params.load(paper, "h100_full", variant=variant)
        unexplained += [
            f"{paper} {variant}: {row.key}={getattr(p, row.key)}, paper {row.paper}"
            for row in deviations.stated(paper)
            if not row.is_met(getattr(p, row.key)) and not row.reason
        ]
    assert not unexplained


def test_each_value_that_is_not_the_paper_s_is_a_deviation_at_every_profile():
    for paper in PAPERS:
        for profile in PROFILES:
            p = params.load(paper, profile)
            said = " ".join(deviations.of(paper, p, whole=True))
            for row in deviations.stated(paper):
                differs = not row.is_met(getattr(p, row.key))
                value = getattr(p, row.key)
                shown = "none" if value == "" else value
                assert (f"{row.meaning}: {shown};" in said) == differs


def test_a_run_is_told_of_what_its_arm_depends_on_alone():
    for paper in PAPERS:
        p = params.load(paper, "tiny")
        untrained = {"truthrl": "prompting", "veri": "instruct"}.get(paper, "base")
        before = p.model_copy(update={"arm": untrained})
        assert "rl_learning_rate" not in arms.table(paper)[untrained].reads.model_fields
        assert not any("updates of RL" in s for s in deviations.of(paper, before))


def test_several_models_values_are_alternatives():
    row = deviations.Stated("beta", "0.001 | 0.003", "§4", "KL coefficient")
    assert row.is_met(0.003)
    assert not row.is_met(0.03)
    assert deviations.Stated("policy", "Qwen/Qwen3-8B", "§4", "policy").is_met(
        "Qwen/Qwen3-8B"
    )
