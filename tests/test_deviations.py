"""Deviations come from the parameters: every value that is not the paper's is named."""

import yaml

from factkit.report import deviations, published
from factkit.run import arms, params
from factkit.run.params.own import OwnDataParams

PAPERS = [paper for paper in arms.find_papers() if deviations.stated(paper)]
FILES = sorted(params.ROOT.glob("params/*/*.yaml"))


def test_what_a_paper_states_is_a_parameter_of_ours_with_its_section():
    for paper in PAPERS:
        rows = deviations.stated(paper)
        assert {row.key for row in rows} <= params.find_classes()[
            paper
        ].model_fields.keys()
        assert len({row.key for row in rows}) == len(rows) >= 10
        for row in rows:
            assert row.section and row.meaning, row
            assert yaml.safe_load(row.paper.split("|")[0]) is not None, row


def test_each_other_value_is_named_and_at_h100_full_has_a_reason():
    unexplained = []
    for path in FILES:
        paper, _, variant = path.stem.partition("-")
        if paper not in PAPERS:
            continue
        p = params.load(paper, path.parent.name, variant=variant)
        said = " ".join(deviations.of(paper, p, whole=True))
        for row in deviations.stated(paper):
            value = getattr(p, row.key)
            shown = "none" if value == "" else value
            assert (f"{row.meaning}: {shown};" in said) != row.is_met(value)
            faithful = p.profile == "h100_full" and variant != "economy"
            if faithful and not (row.is_met(value) or row.reason):
                unexplained.append(f"{path}: {row.key}={value}, paper {row.paper}")
    assert unexplained == []


def test_a_run_is_told_of_what_its_arm_depends_on_alone():
    for paper in PAPERS:
        p = params.load(paper, "tiny")
        untrained = next(iter(arms.find_papers()[paper].arms))
        before = p.model_copy(update={"arm": untrained})
        assert not any("updates of RL" in s for s in deviations.of(paper, before))


def test_each_sentence_that_no_parameter_shows_holds_for_some_arm_and_not_for_all():
    for paper in PAPERS:
        files = [path for path in FILES if path.stem.partition("-")[0] == paper]
        names = [(path.parent.name, path.stem.partition("-")[2]) for path in files]
        runs = [
            params.load(paper, profile, {"arm": arm}, variant=variant)
            for profile, variant in names
            for arm in arms.find_papers()[paper].arms
            if "reason_" not in arm or variant == "reasoning"
            if arm != "rlcr" or params.load(paper, profile, variant=variant).cold_start
        ]
        runs += [p.model_copy(update={"search_url": "http://localhost"}) for p in runs]
        own = [p for p in runs if isinstance(p, OwnDataParams)]
        runs += [p.model_copy(update={p.rows_of[0]: "own"}) for p in own]
        told = [(p.model_dump(), deviations.of(paper, p)) for p in runs]
        for row in published.read_rows(paper, "deviations"):
            held = [row["sentence"].format_map(values) in said for values, said in told]
            assert any(held) and all(held) != bool(row["when"]), row


def test_several_models_values_are_alternatives():
    row = deviations.Stated("beta", "0.001 | 0.003", "§4", "KL coefficient")
    assert row.is_met(0.003) and not row.is_met(0.03)
    policy = deviations.Stated("policy", "Qwen/Qwen3-8B", "§4", "policy")
    assert policy.is_met("Qwen/Qwen3-8B")
