"""What of RLFH's verl adapter needs no verl: the data and the config that it writes."""

import sys

import pandas as pd
import pytest
import yaml
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from factkit import params, runs
from factkit.curate.drawn import turn
from factkit.datasets.examples import write_examples
from factkit.params import ROOT, ParamError
from factkit.rlfh import verl_adapter as rlfh_verl
from factkit.rlfh.requests import rlfh_sets
from factkit.world import facts as worlds
from factkit.world import texts as world_text

SMALL = {
    "world_people": 40,
    "train_requests": 8,
    "dev_requests": 8,
    "test_requests": 8,
}


@pytest.fixture
def p(tmp_path):
    """Profile tiny's parameters for a policy in a folder: its tokenizer is there."""
    paths = {
        "output_dir": str(tmp_path / "outputs"),
        "policy": str(tmp_path / "policy"),
    }
    (tmp_path / "policy").mkdir()
    p = params.load("rlfh", "tiny", SMALL | paths)
    world = worlds.build_world(people=p.world_people, seed=p.world_seed)
    tokenizer = world_text.build_tokenizer(world, p.answer_format)
    tokenizer.save_pretrained(p.policy)
    return p


@pytest.fixture
def sets(p):
    """The data of notebook 40, written."""
    sets = rlfh_sets(p)[0]
    for split, examples in sets.items():
        path = runs.run_folder(p.data_notebook, p) / f"{split}.jsonl"
        write_examples(path, examples)
    return sets


def test_the_data_have_prompts_as_messages_and_what_the_rewards_need(p, sets, tmp_path):
    rlfh_verl.write(p, tmp_path / "verl")
    for split in ("train", "dev"):
        rows = pd.read_parquet(tmp_path / "verl" / f"{split}.parquet")
        asked = [(turn(e, p), e.id, e.question) for e in sets[split]]
        found = [
            (row.prompt[0]["content"], row.extra_info["id"], row.extra_info["question"])
            for row in rows.itertuples()
        ]
        assert found == asked
        assert {m["role"] for prompt in rows.prompt for m in prompt} == {"user"}
        assert [info["index"] for info in rows.extra_info] == list(range(len(asked)))
        answers = [of["ground_truth"] for of in rows.reward_model]
        assert answers == [e.answers[0] for e in sets[split]]


def test_the_files_name_each_other_and_what_verl_is_to_load(p, sets, tmp_path):
    rlfh_verl.write(p, tmp_path / "verl")
    config = yaml.safe_load((tmp_path / "verl" / "rlfh.yaml").read_text())
    assert params.validate("rlfh", config["factkit"], "rlfh.yaml") == p
    agent = config["actor_rollout_ref"]["rollout"]["agent"]
    (loop,) = yaml.safe_load((tmp_path / "verl" / "agent_loop.yaml").read_text())
    assert agent["agent_loop_config_path"] == f"{tmp_path}/verl/agent_loop.yaml"
    assert agent["default_agent_loop"] == loop["name"]
    for path in (config["data"]["train_files"], config["data"]["val_files"]):
        assert len(pd.read_parquet(path)) == 8
    manager = config["reward"]["reward_manager"]
    module = sys.modules[manager["module"]["path"].removeprefix("pkg://")]
    assert getattr(module, manager["name"]) is rlfh_verl.RlfhRewardManager
    loaded = loop["_target_"].rsplit(".", 1)
    assert loaded == [module.__name__, rlfh_verl.TokenRewardLoop.__name__]


def test_what_verl_cannot_follow_is_refused(p, sets, tmp_path):
    for name, value in (
        ("arm", "statement_group"),
        ("arm", "dpo"),
        ("lora_rank", 8),
        ("whiten", False),
        ("eos_penalty", 0.5),
        ("policy", "tiny-world"),
    ):
        with pytest.raises(ParamError, match=f"{name}=.*notebook 42"):
            rlfh_verl.write(p.model_copy(update={name: value}), tmp_path / "verl")
    assert not (tmp_path / "verl").exists()


def test_a_step_of_verl_is_a_rollout_of_the_kit_s():
    """Two passes over 4 updates of 128 responses, 2 a question."""
    own = {"ppo_epochs": 2, "minibatches": 4, "rl_steps": 80, "checkpoint_steps": 20}
    p = params.load("rlfh", "h100_full", own)
    values = rlfh_verl.overrides(p, ROOT, None)
    assert values["data.train_batch_size"] == 4 * 64
    assert values["actor_rollout_ref.actor.ppo_mini_batch_size"] == 64
    assert values["trainer.total_training_steps"] == 10
    assert values["trainer.save_freq"] == 3


# Plain text through a chat template


def test_plain_text_has_the_tokens_that_it_has_without_a_template():
    prompts = [[{"role": "user", "content": text}] for text in ("Who is?", "is Who")]
    for adds_bos, space, wanted in (
        (True, "first", "{{ bos_token }} {{ messages[0].content }}"),
        (True, "always", "{{ bos_token }}{{ messages[0].content }}"),
        (False, "first", "{{ messages[0].content }}"),
    ):
        tokenizer = like_sentencepiece(adds_bos, space)
        assert rlfh_verl.plain_template(prompts, tokenizer) == wanted
    with pytest.raises(ParamError, match="plain text"):
        closing = like_sentencepiece(True, "never", closing=" </s>")
        rlfh_verl.plain_template(prompts, closing)


def like_sentencepiece(adds_bos, space, closing=""):
    """A tokenizer of words that may begin with a space, as `space` says of a text's
    first one."""
    words = ["<s>", "</s>", "<unk>", "▁", "▁Who", "▁is", "Who", "is", "?"]
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(prepend_scheme=space), pre_tokenizers.Punctuation()]
    )
    if adds_bos:
        ends = [("<s>", 0), ("</s>", 1)]
        tokenizer.post_processor = TemplateProcessing(f"<s> $A{closing}", None, ends)
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
