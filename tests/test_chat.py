"""Chats with reasoning, as the h100 profiles ask, through GRPO."""

import csv

import pytest

from factkit import assets, models, params
from factkit.curate.drawn import Probe, turn
from factkit.datasets.examples import Example
from factkit.train import grpo
from factkit.truthrl import rewards as truthrl
from factkit.truthrl import train as training
from factkit.verify.outcome import Outcome

pytestmark = pytest.mark.assets

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
        "rl_steps": 1,
        "rl_batch_size": 4,
        "num_generations": 2,
        "max_completion_length": 6,
    }
    return params.load("truthrl", "laptop", values)


def steps(path):
    with path.open() as f:
        return list(csv.DictReader(f))


def test_grpo_rewards_the_boxed_answer_of_a_chat(start, p, tmp_path):
    rows = training.prompt_rows(EXAMPLES, PROBES, p)
    grpo.grpo(start, rows, truthrl.reward_function, tmp_path, p)
    (step,) = steps(tmp_path / "metrics.csv")
    assert float(step["hallucination"]) == 1  # no box, no answer
    assert float(step["reward"]) == -1


def test_a_sampled_prompt_is_the_one_that_a_trainer_writes(start, p):
    _, tokenizer = models.load_policy(start)
    (asked,) = models.asked(EXAMPLES[:1], p.prompt_template, tokenizer, chat=True)
    trained = tokenizer.apply_chat_template(
        turn(EXAMPLES[0], p), add_generation_prompt=True, return_dict=True
    )["input_ids"]
    assert tokenizer(asked)["input_ids"] == trained
