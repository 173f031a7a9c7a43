"""The rehearsal changes sizes, and nothing else of what the h100 profiles ship."""

import pytest
from hub import ENCODER, MODELS
from sizes import sizes

from factkit.run import params
from factkit.run.params import ROOT

GPU = ("h100_lora", "h100_full")
RUNS = [  # paper, profile, variant
    (paper, path.parent.name, variant)
    for path in sorted(ROOT.glob("params/h100_*/*.yaml"))
    for paper, _, variant in [path.stem.partition("-")]
]
# whole numbers that are part of a method, and no size
METHOD = {"seed", "split_seed", "lora_rank", "lora_alpha", "ppo_epochs", "sft_epochs"}
METHOD |= {"reward_epochs", "least_pages", "max_searches", "max_prompt_length"}


def shipped(paper, profile, variant):
    return params.load(paper, profile, {}, variant).model_dump()


@pytest.mark.parametrize("run", RUNS, ids="-".join)
def test_only_sizes_differ_from_what_is_shipped(run):
    paper, profile, variant = run
    own, changed = shipped(*run), sizes(*run)
    assert changed.keys() <= own.keys()
    p = params.load(paper, profile, changed, variant)
    for key, value in p.model_dump().items():
        if key == "seeds":  # of the same seeds, the first
            assert own[key].split()[: len(value.split())] == value.split()
        elif key in changed:
            assert type(own[key]) is int and key not in METHOD, key
            assert value <= own[key]
        else:
            assert value == own[key], key


@pytest.mark.parametrize("run", RUNS, ids="-".join)
def test_the_smaller_batches_divide_as_the_profiles_do(run):
    paper, profile, variant = run
    p = params.load(paper, profile, sizes(*run), variant)
    own = shipped(*run)
    for key in ("rl_batch_size", "sft_batch_size", "dpo_batch_size"):
        if key in own and getattr(p, key):
            p.split_batch(getattr(p, key))
    assert p.rl_batch_size % p.num_generations == 0
    # a sharded profile stays sharded
    assert (p.num_processes > 1) == (own["num_processes"] > 1)
    if "max_searches" in own:
        assert p.longest <= p.max_context_length


def test_every_model_that_the_profiles_name_has_a_small_one():
    named = set()
    for run in RUNS:
        own = shipped(*run)
        named |= {
            own.get(key, "")
            for key in ("policy", "larger_policy", "judge_model", "relevance_model")
        }
        named |= {judge.split("@")[0] for judge in own.get("other_judges", "").split()}
        if own.get("retriever") == "e5":
            assert own["encoder"] == ENCODER
    assert named - {""} <= MODELS.keys()


def test_reasoning_policies_alone_have_a_template_that_thinks():
    assert {n for n, kind in MODELS.items() if kind == "thinks"} == {
        name for name in MODELS if "Qwen3" in name and "Instruct" not in name
    }
