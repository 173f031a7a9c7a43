"""What of the verl adapter needs no verl: the data and the config that it writes."""

import pkgutil

import pandas as pd
import pytest
import verl_papers
import yaml
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from factkit.data.examples import DataError
from factkit.run import arms, params
from factkit.run.params import ROOT, ParamError
from factkit.train import verl_adapter as adapter


@pytest.fixture(params=verl_papers.PAPERS)
def paper(request, tmp_path):
    return verl_papers.made(request.param, tmp_path)


def test_the_data_and_the_config_are_those_of_the_paper_s_own_training(paper, tmp_path):
    job, name = paper.job, paper.name
    folder = adapter.write_job(name, paper.p, tmp_path / "verl")
    rows = pd.read_parquet(folder / "train.parquet").to_dict("records")
    for index, (row, mine) in enumerate(zip(rows, job.rows, strict=True)):
        (message,) = row["prompt"]
        assert message == {"role": "user", "content": mine["prompt"]}
        columns = {k: v for k, v in mine.items() if k != "prompt"}
        info = {
            k: v.tolist() if hasattr(v, "tolist") else v
            for k, v in row["extra_info"].items()
        }
        assert info == columns | {"index": index}
    assert len({row["prompt"][0]["content"] for row in rows}) == len(rows)

    config = yaml.safe_load((folder / f"{name}.yaml").read_text("utf-8"))
    kit = config["factkit"]
    assert params.validate(name, kit["parameters"], "verl") == job.p
    assert pkgutil.resolve_name(kit["reward"]) is job.make_reward
    manager = config["reward"]["reward_manager"]
    module = manager["module"]["path"].removeprefix("pkg://")
    found = pkgutil.resolve_name(f"{module}:{manager['name']}")
    assert found is adapter.RewardManager
    agent = config["actor_rollout_ref"]["rollout"]["agent"]
    assert agent["agent_loop_config_path"] == f"{folder}/agent_loop.yaml"
    loops = yaml.safe_load((folder / "agent_loop.yaml").read_text("utf-8"))
    if job.loop:
        (loop,) = loops
        assert agent["default_agent_loop"] == loop["name"]
        assert pkgutil.resolve_name(loop["_target_"]) is job.loop
    else:
        assert (agent["default_agent_loop"], loops) == ("single_turn_agent", [])


def test_what_verl_cannot_follow_is_refused(paper, tmp_path):
    number = arms.get_paper(paper.p).number
    no = [("lora_rank", 8), ("policy", "tiny-world")]
    no += {
        "truthrl": [("arm", "rlhf"), ("arm", "rlkf"), ("arm", "sft"), ("arm", "dpo")],
        "rar": [("arm", "sft"), ("arm", "dpo"), ("arm", "base")],
        "reason": [("arm", "sft"), ("arm", "sft_dpo")],
        "rlfh": [("arm", "statement_group"), ("arm", "dpo")],
        "veri": [("arm", "sft"), ("arm", "larger"), ("cold_start", True)],
    }[paper.name]
    for name, value in no:
        with pytest.raises(ParamError, match=f"{name}=.*notebook {number}2"):
            changed = paper.p.model_copy(update={name: value})
            adapter.write_job(paper.name, changed, tmp_path / "verl")
    assert not (tmp_path / "verl").exists()


def test_reason_s_rl_starts_from_its_sft_model(tmp_path):
    paper = verl_papers.made("reason", tmp_path)
    assert paper.job.start.endswith("32_reason_train/sft-s0/model")
    with pytest.raises(DataError, match="train arm=sft with notebook 32"):
        adapter.write_job("reason", paper.p.model_copy(update={"seed": 1}), tmp_path)


def overrides(paper, p, **given):
    return adapter.make_overrides(
        adapter.Job(p, "", [], len, **given), paper, ROOT, None
    )


def test_a_step_of_verl_is_a_rollout_of_the_kit_s():
    """Two passes over 4 updates of 128 responses, 2 a question."""
    own = {"ppo_epochs": 2, "minibatches": 4, "rl_steps": 80, "checkpoint_steps": 20}
    values = overrides("rlfh", params.load("rlfh", "h100_full", own))
    assert values["data.train_batch_size"] == 4 * 64
    assert values["actor_rollout_ref.actor.ppo_mini_batch_size"] == 64
    assert values["trainer.total_training_steps"] == 10
    assert values["trainer.save_freq"] == 3


def test_a_trajectory_has_the_length_of_table_4(tmp_path):
    """512 tokens of prompt, 4 turns of 512, 3 observations of 768."""
    p = params.load("veri", "h100_full")
    values = overrides("veri", p)
    assert values["data.max_response_length"] == 512
    paper = verl_papers.made("veri", tmp_path)
    lengths = {"max_prompt_length", "max_completion_length", "max_observation_length"}
    paper.p = paper.p.model_copy(update={k: getattr(p, k) for k in lengths})
    values = overrides("veri", p, changes=paper.job.changes)
    assert values["data.max_prompt_length"] == 512
    assert values["data.max_response_length"] == 4 * 512 + 3 * 768
    assert values["actor_rollout_ref.rollout.max_model_len"] == 4864
    paper.p = paper.p.model_copy(update={"arm": "offline_rl"})
    assert not paper.job.changes


# How batches split among GPUs


@pytest.mark.parametrize("file", sorted(ROOT.glob("params/h100_full/*.yaml")))
def test_a_shipped_profile_trains_on_whole_nodes_with_its_engine(file):
    name, _, variant = file.stem.partition("-")
    if name not in verl_papers.PAPERS:
        return
    p = params.load(name, "h100_full", variant=variant)
    values = overrides(name, p)
    assert values["trainer.n_gpus_per_node"] == p.num_processes
    size = "actor_rollout_ref.rollout.tensor_model_parallel_size"
    assert values[size] == p.vllm_tensor_parallel
    for nodes in (1, 2, 4):
        adapter.check_sizes((values | {"trainer.nnodes": nodes}).get)


ACTOR, ROLLOUT, REF = (f"actor_rollout_ref.{x}" for x in ("actor", "rollout", "ref"))


@pytest.mark.parametrize(
    ("paper", "changes", "message"),
    [
        ("rlfh", {"trainer.nnodes": 3}, "trainer.nnodes .*=24: .* 128; take 16"),
        ("veri", {"trainer.nnodes": 3}, None),  # 192 = 24 × 8
        ("veri", {"trainer.nnodes": 5}, "=40: must divide 192; take 32"),
        # 128 and 192 responses on 32 GPUs in fixed micro-batches of 8 and 4
        ("rlfh", {f"{ACTOR}.ppo_micro_batch_size_per_gpu": 8}, "must divide 4; take 4"),
        ("veri", {f"{ACTOR}.ppo_micro_batch_size_per_gpu": 4}, "must divide 6; take 3"),
        ("veri", {f"{REF}.log_prob_micro_batch_size_per_gpu": 16}, "24; take 12"),
        ("veri", {f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": 9}, "24; take 8"),
        ("veri", {f"{ROLLOUT}.tensor_model_parallel_size": 3}, "divide 8; take 2"),
        (
            "veri",
            {"data.train_batch_size": 96},
            "=96: must be whole updates of 64; take 128",
        ),
        (
            "veri",
            {f"{ROLLOUT}.n": 5, f"{ACTOR}.ppo_mini_batch_size": 1},
            "=32: must divide 5; take 5",
        ),
    ],
)
def test_sizes_at_which_verl_would_stop_are_refused_with_a_fix(paper, changes, message):
    p = params.load(paper, "h100_full")
    values = overrides(paper, p) | {"trainer.nnodes": 4} | changes
    if message is None:
        return adapter.check_sizes(values.get)
    with pytest.raises(ParamError, match=message):
        adapter.check_sizes(values.get)


# Plain text through a chat template


def test_plain_text_has_the_tokens_that_it_has_without_a_template():
    prompts = [[{"role": "user", "content": text}] for text in ("Who is?", "is Who")]
    for adds_bos, space, wanted in (
        (True, "first", "{{ bos_token }} {{ messages[0].content }}"),
        (True, "always", "{{ bos_token }}{{ messages[0].content }}"),
        (False, "first", "{{ messages[0].content }}"),
    ):
        tokenizer = like_sentencepiece(adds_bos, space)
        assert adapter.plain_template(prompts, tokenizer) == wanted
    with pytest.raises(ParamError, match="plain text"):
        closing = like_sentencepiece(True, "never", closing=" </s>")
        adapter.plain_template(prompts, closing)


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
