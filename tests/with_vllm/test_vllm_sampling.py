"""What an engine in a process of its own samples and scores, against transformers."""

import math
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from factkit.answers import short_form
from factkit.policy import models, vllm_engine
from factkit.policy.decoding import Sampling
from factkit.policy.policy import Policy, VllmPolicy, load_policy
from factkit.policy.vllm_engine import EngineError, VllmEngine
from factkit.run import params

WORKS = ("Hamlet", "Faust", "Emma")
ASKED = [f"Question: Who wrote {work}?\nAnswer:" for work in WORKS]
BOXED = "The colour of grass is \\boxed{green}. " * 3
TEXTS = ["The red fox jumps over the lazy dog.", "Iron is a metal; its symbol is Fe."]


@pytest.fixture(scope="module")
def policy(smollm):
    return Policy(path=smollm)


@pytest.fixture(scope="module")
def arguments(smollm):
    names = dict.fromkeys(("model", "tokenizer"), smollm)
    return names | {"dtype": "float32", "max_model_len": 256, "enforce_eager": True}


@pytest.fixture(scope="module")
def engine(arguments):
    yield VllmPolicy(path=arguments["tokenizer"], engine=VllmEngine(arguments))
    vllm_engine.free_gpus()


def by_transformers(policy, prompts, completions):
    """log π of completions' tokens by a plain forward of each."""
    rows = []
    for prompt, own in zip(prompts, completions, strict=True):
        with torch.inference_mode():
            logits = policy.model(torch.tensor([[*prompt, *own]])).logits
        logps = logits[0, len(prompt) - 1 : -1].float().log_softmax(-1)
        rows.append(logps.gather(-1, torch.tensor([own]).T).squeeze(-1).tolist())
    return rows


def test_greedy_answers_are_those_of_transformers(policy, engine):
    plain = policy.generate(ASKED, Sampling(6))
    assert engine.generate(ASKED, Sampling(6)) == plain


def test_sampled_tokens_have_the_model_s_own_log_probabilities(policy, engine):
    """At temperature 1, whatever the temperature and what it was sampled from."""
    hot = Sampling(8, temperature=0.7, top_p=0.9, one_line=False, logprobs=True)
    rows = engine.generate_tokens(ASKED, hot, n=4)
    assert len({tuple(ids) for row in rows for ids, _ in row}) > len(ASKED)
    prompts = [ids for ids in policy.tokenizer(ASKED)["input_ids"] for _ in range(4)]
    sampled, logps = zip(*(pair for row in rows for pair in row), strict=True)
    for own, theirs in zip(
        logps, by_transformers(policy, prompts, sampled), strict=True
    ):
        assert own == pytest.approx(theirs, abs=1e-3)


def test_a_text_s_log_probabilities_and_perplexity_are_those_of_transformers(
    policy, engine
):
    ids = policy.tokenizer(TEXTS)["input_ids"]
    first, rest = [row[:1] for row in ids], [row[1:] for row in ids]
    theirs = by_transformers(policy, first, rest)
    for own, other in zip(engine.engine.logps(ids), theirs, strict=True):
        assert own == pytest.approx(other, abs=1e-3)
    values = [who.perplexity(TEXTS) for who in (engine, policy)]
    assert values[0] == pytest.approx(values[1], rel=1e-4)


@pytest.mark.parametrize(
    ("answer_format", "prompts"),
    [("plain", ASKED), ("boxed", [f"{BOXED}The colour of {x} is" for x in "abc"])],
)
def test_the_confidence_of_greedy_answers_is_that_of_transformers(
    answer_format, prompts, policy, engine
):
    p = params.load("truthrl", "tiny").model_copy(
        update={"answer_format": answer_format}
    )
    greedy, found = replace(load_policy("", p).greedy, logprobs=True), []
    for who in (replace(engine, greedy=greedy), replace(policy, greedy=greedy)):
        rows = [row for (row,) in who.generate_tokens(prompts, greedy)]
        texts = who.decode([ids for ids, _ in rows], greedy)
        pairs = zip(texts, rows, strict=True)
        found.append([short_form.confidence(*pair, who) for pair in pairs])
        print(texts, found[-1])
    own, theirs = found
    assert all(0 < value < 1 for value in own)
    assert own == pytest.approx(theirs, rel=1e-2)


def test_what_was_asked_above_was_asked_of_one_process(engine):
    (live,) = vllm_engine._live
    assert live[0] == engine.engine and live[1].poll() is None


@pytest.mark.parametrize("place", [1, -1], ids=["vLLM", "a process that it started"])
def test_an_engine_that_is_killed_at_work_ends_with_an_error(
    place, policy, engine, arguments
):
    engine.generate(ASKED, Sampling(6))
    family = family_of(vllm_engine._live[0][1].pid)
    timer = threading.Timer(1.0, os.kill, (family[place], signal.SIGKILL))
    timer.start()
    long = [{"max_tokens": 240, "ignore_eos": True}] * 64
    with pytest.raises(EngineError, match="failed"):
        engine.engine.generate([[1, 2, 3]] * 64, long)
    deadline = time.monotonic() + 60
    while any(map(alive, family)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(alive, family))


def family_of(pid):
    """The numbers of a process and of all that it started, parents first."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8").split()
    except OSError:
        return []
    return [pid, *(n for child in children for n in family_of(int(child)))]


def alive(pid):
    try:
        state = (
            Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
        )
    except OSError:
        return False
    return state != "Z"


def test_samples_of_a_prompt_differ_and_an_adapter_is_used(smollm, arguments, tmp_path):
    from peft import LoraConfig, get_peft_model

    base, tokenizer = models.load_model(smollm), models.load_tokenizer(smollm)
    model = get_peft_model(base, LoraConfig(r=8, target_modules="all-linear"))
    torch.manual_seed(0)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)  # an adapter far from the base
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    tuned = Policy(path=str(tmp_path))
    p = params.load("truthrl", "laptop", {"rollouts": "vllm_colocate"})
    own = models.vllm_arguments(str(tmp_path), p)
    lora = {name: own[name] for name in ("enable_lora", "max_lora_rank", "tokenizer")}
    engine = VllmPolicy(path=str(tmp_path), engine=VllmEngine(arguments | lora))
    (texts,) = engine.generate(ASKED[:1], Sampling(6, temperature=1.0), n=8)
    assert len(texts) == 8 and len(set(texts)) > 1
    rows = engine.generate_tokens(ASKED, Sampling(6, logprobs=True))
    ids, logps = zip(*(row for (row,) in rows), strict=True)
    plain = tuned.generate(ASKED, Sampling(6))
    texts = engine.decode(ids, Sampling(6))
    assert texts == [text for (text,) in plain]
    theirs = by_transformers(tuned, tokenizer(ASKED)["input_ids"], list(map(list, ids)))
    for own, other in zip(logps, theirs, strict=True):
        assert own == pytest.approx(other, abs=1e-2)
    assert not math.isnan(sum(map(sum, logps)))
    vllm_engine.free_gpus()
