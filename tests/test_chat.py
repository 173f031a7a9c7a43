"""Chats with reasoning, as the h100 profiles ask, through each of TRL's trainers."""

import csv

import pytest
import torch
import transformers

from factkit.answers.sampling import Probe
from factkit.answers.training_rows import RowFormat
from factkit.data import assets
from factkit.data.examples import Example
from factkit.papers.truthrl import rewards as truthrl
from factkit.papers.truthrl import train as training
from factkit.policy import models
from factkit.policy.policy import load_policy
from factkit.run import params
from factkit.train import grpo, offline, setup
from factkit.verify.outcome import Outcome

pytestmark = pytest.mark.assets

PAIR = "chosen", "rejected"
EXAMPLES = [
    Example(
        id=f"q{i}",
        question=f"What is {i} + 1?",
        answers=[str(i + 1)],
        entity=f"e{i}",
        meta={"query_time": "02/28/2024, 10:04:54 PT"},
    )
    for i in range(8)
]
PROBES = [
    Probe(
        e.id,
        [
            rf"<think> add </think> \boxed{{{e.answers[0]}}}",
            r"<think> </think> \boxed{0}",
        ],
        [Outcome.CORRECT, Outcome.WRONG],
    )
    for e in EXAMPLES
]


def probed(p):
    """The questions with their probes, and how rows are put."""
    questions = training.ProbedQuestions(EXAMPLES, PROBES, p.known_share)
    return questions, RowFormat.of(p)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A random Llama of two layers with the chat template of SmolLM2-Instruct."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    smollm = assets.policy_path("smollm2-135m-instruct")
    tokenizer = AutoTokenizer.from_pretrained(smollm)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=1024,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    folder = tmp_path_factory.mktemp("start")
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def p():
    values = {
        "chat": True,
        "answer_format": "boxed",
        "prompt_template": "closed_book",
        "dtype": "float32",
        "lora_rank": 0,
        "sft_batch_size": 4,
        "sft_epochs": 1,
        "dpo_batch_size": 4,
        "reward_batch_size": 4,
        "rl_steps": 1,
        "rl_batch_size": 4,
        "num_generations": 2,
        "max_completion_length": 6,
    }
    return params.load("truthrl", "laptop", values)


def steps(path):
    with path.open(encoding="utf-8") as f:
        return list(csv.DictReader(f))


def test_sft_learns_from_chat_rows(start, p, tmp_path):
    p = p.model_copy(update={"arm": "sft"})
    offline.sft(start, training.sft_rows("sft", *probed(p)), tmp_path, p)
    assert len(steps(tmp_path / "metrics.csv")) == 2


def test_a_context_too_short_for_the_rows_ends_the_training_before_it_starts(
    start, p, tmp_path
):
    """TRL drops such rows, or cuts their end, and trains on the rest."""
    rows = training.sft_rows("sft", *probed(p))
    for i, room in enumerate((8, 60)):
        short = p.model_copy(update={"arm": "sft", "max_context_length": room})
        with pytest.raises(
            ValueError, match=f"max_context_length={room} drops or cuts"
        ):
            offline.sft(start, rows, tmp_path / str(i), short)
    pairs = training.preference_rows("dpo", *probed(p))
    short = p.model_copy(update={"arm": "dpo", "max_context_length": 8})
    with pytest.raises(ValueError, match="max_context_length=8 drops or cuts"):
        offline.dpo(start, pairs, tmp_path / "dpo", short)


def test_dpo_learns_from_chat_pairs(start, p, tmp_path):
    p = p.model_copy(update={"arm": "dpo"})
    rows = training.preference_rows(p.arm, *probed(p))
    offline.dpo(start, rows, tmp_path, p)
    assert len(steps(tmp_path / "metrics.csv")) == 2


@pytest.mark.parametrize("arm", ["ternary", "rlkf"])
def test_grpo_rewards_the_boxed_answer_of_a_chat(arm, start, p, tmp_path):
    p = p.model_copy(update={"arm": arm})
    if arm == "rlkf":
        rows = training.preference_rows(p.arm, *probed(p))
        offline.train_reward_model(start, rows, tmp_path, p)
    rows = training.prompt_rows(*probed(p))
    grpo.grpo(start, rows, truthrl.reward_function, tmp_path, p)
    (step,) = steps(tmp_path / "metrics.csv")
    assert float(step["hallucination"]) == 1  # no box, no answer
    assert (float(step["reward"]) == -1) is (arm == "ternary")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_reward_model_by_lora_scores_as_it_was_trained(
    dtype, start, p, tmp_path, monkeypatch
):
    """Merged: the trunk moves where the adapter is, and the head is the trained one."""
    kept, keep = [], setup.train_and_keep
    monkeypatch.setattr(
        setup, "train_and_keep", lambda t, *a, **k: kept.append(t) or keep(t, *a, **k)
    )
    own = {"arm": "rlkf", "reward_lora_rank": 4, "reward_epochs": 3}
    p = p.model_copy(update=own | {"reward_learning_rate": 0.01})
    rows = training.preference_rows(p.arm, *probed(p))
    folder = offline.train_reward_model(start, rows, tmp_path, p)
    assert not (folder / "adapter_config.json").exists()
    found = scores(folder, rows, dtype)
    model = kept[0].model
    trained = [n for n, w in model.named_parameters() if w.requires_grad]
    assert all("lora_" in name or "score" in name for name in trained)
    scorers = transformers.AutoModelForSequenceClassification
    monkeypatch.setattr(scorers, "from_pretrained", lambda *_, **__: model)
    exact = 1e-4 if dtype == "float32" else 0.05
    for mine, theirs in zip(found, scores(folder, rows, dtype), strict=True):
        assert mine == pytest.approx(theirs, rel=exact, abs=exact)
    before, after = (models.load_model(str(f)).model for f in (start, folder))
    weights = zip(before.parameters(), after.parameters(), strict=True)
    moved = [not torch.equal(a, b) for a, b in weights]
    names = [name for name, _ in before.named_parameters()]
    assert moved == ["proj" in name for name in names]


def test_a_scorer_takes_few_texts_at_a_time_and_scores_them_as_one_by_one(
    start, tmp_path, monkeypatch
):
    taken, scorers = [], transformers.AutoModelForSequenceClassification
    load = scorers.from_pretrained
    torch.manual_seed(0)
    load(start, num_labels=1).save_pretrained(tmp_path)
    tokenizer = models.load_tokenizer(start)
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(tmp_path)

    def watched(*args, **more):
        model = load(*args, **more)
        size = lambda _, a, given: taken.append(len(given["input_ids"]))  # noqa: E731
        model.register_forward_pre_hook(size, with_kwargs=True)
        return model

    monkeypatch.setattr(scorers, "from_pretrained", watched)
    score = offline.load_scorer(str(tmp_path), "float32")
    texts = ["a long answer " * (i % 5 + 1) for i in range(20)]
    together = score(["Who?"] * 20, texts)
    assert taken == [8, 8, 4]
    alone = [score(["Who?"], [text])[0] for text in texts]
    assert together == pytest.approx(alone, abs=1e-4) and len(set(together)) > 1


def scores(folder, rows, dtype):
    """The scores of the chosen and of the rejected responses."""
    score = offline.load_scorer(str(folder), dtype)
    prompts = [row["prompt"] for row in rows]
    replies = ([row[name][0]["content"] for row in rows] for name in PAIR)
    return [score(prompts, texts) for texts in replies]


def test_a_sampled_prompt_is_the_one_that_a_trainer_writes(start, p):
    policy = load_policy(start, p)
    tokenizer, (asked,) = policy.tokenizer, policy.format_prompts(EXAMPLES[:1])
    trained = tokenizer.apply_chat_template(
        RowFormat.of(p).prompt(EXAMPLES[0]),
        add_generation_prompt=True,
        return_dict=True,
    )["input_ids"]
    assert tokenizer(asked)["input_ids"] == trained
