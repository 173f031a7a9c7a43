"""What no reward may be on its way into training, in real trainers."""

import hashlib
import math
import re
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from factkit.facts.world import facts as world
from factkit.facts.world import texts as world_text
from factkit.papers.rlfh.token_trainer import token_level
from factkit.run import params
from factkit.train import grpo, rewards
from factkit.train.pretraining import build_policy
from factkit.train.rewards import CheckedReward, RewardError

NO_NUMBERS = [
    *(math.nan, math.inf, -math.inf, np.float32("nan"), torch.tensor(math.inf)),
    *("1.0", b"1", 1j, {}, {1.0}, object(), torch.tensor([1.0, math.nan])),
    *([0.1, math.inf], [0.1, None], [0.1], [[0.1, 0.2], 0.3], [0.1, "0.2"]),
]


def check(values, tokens=2):
    def mine(**_):
        return values

    n = len(values) if hasattr(values, "__len__") else 1
    texts = [f"response {i}" for i in range(n)]
    return CheckedReward(mine)(completions=texts, completion_ids=[[5] * tokens] * n)


@pytest.mark.parametrize("value", NO_NUMBERS, ids=range(len(NO_NUMBERS)))
def test_a_reward_that_is_no_finite_number_is_refused_with_its_response(value):
    with pytest.raises(RewardError, match="reward mine: .*response 1"):
        check([0.5, value])


def test_numbers_of_any_library_are_rewards():
    values = [1, True, np.float64(0.5), torch.tensor(-1.0), None, [0.1, 2]]
    checked = check([*values, np.array([1.0, 0.0])])
    assert checked == [1.0, 1.0, 0.5, -1.0, None, [0.1, 2.0], [1.0, 0.0]]
    assert {type(value) for value in checked} == {float, list, type(None)}


@pytest.mark.parametrize("values", [None, 1.0, "rewards", iter([1.0])], ids=range(4))
def test_what_is_no_list_of_rewards_is_refused(values):
    with pytest.raises(RewardError, match="not a list of rewards|for 7 responses"):
        check(values)


def test_as_many_rewards_as_responses_are_wanted():
    with pytest.raises(RewardError, match="2 rewards for 3 responses"):
        CheckedReward(lambda **_: [1.0, 1.0])(completions=["a"] * 3, completion_ids=[])


def test_failures_are_judged_while_training_and_over_the_whole_run():
    values = []
    reward = CheckedReward(lambda **_: values[-1])

    def score(batch):
        values.append(batch)
        reward(completions=["a"] * len(batch), completion_ids=[[5]] * len(batch))

    score([1.0] * 180)
    reward.on_train_end()
    score([None] * 10 + [1.0] * 10)  # 10 of 200: 5 %, still allowed
    with pytest.raises(RuntimeError, match=r"none for 11 of 201 .*5.5%"):
        score([None])


def hang(completions, **_):
    """Takes exponential time on a response of a's."""
    return [float(bool(re.match(r"(a+)+$", text))) for text in completions]


HOSTILE = "a" * 60 + "!"


def test_a_reward_that_hangs_ends_with_the_response_that_it_reads(monkeypatch):
    monkeypatch.setattr(rewards, "CPU_S", 0.2)
    with pytest.raises(RewardError, match=f"reward hang: computed .*{HOSTILE}"):
        CheckedReward(hang)(
            completions=["aa", HOSTILE, "b" * 90], completion_ids=[[5]] * 3
        )


def test_waiting_takes_nothing_of_a_reward_s_time(monkeypatch):
    monkeypatch.setattr(rewards, "CPU_S", 0.2)

    def wait(completions, **_):
        time.sleep(0.3)
        return [1.0] * len(completions)

    assert CheckedReward(wait)(completions=["a"], completion_ids=[[5]]) == [1.0]


def test_other_threads_take_nothing_of_a_reward_s_time(monkeypatch):
    monkeypatch.setattr(rewards, "CPU_S", 0.2)
    block = b"x" * 10_000_000

    def wait(completions, **_):
        before = time.process_time()
        with ThreadPoolExecutor(1) as pool:  # hashing releases the interpreter
            pool.submit(lambda: [hashlib.sha256(block) for _ in range(60)]).result()
        assert time.process_time() - before > 0.2
        return [1.0] * len(completions)

    assert CheckedReward(wait)(completions=["a"], completion_ids=[[5]]) == [1.0]


# In trainers


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """An untrained Llama of one layer with a small world's words."""
    tokenizer = world_text.build_tokenizer(world.build_world(people=8))
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("start")
    build_policy(tokenizer, hidden_size=32, layers=1).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def train(start, folder, paper, trainer, reward):
    values = {"rl_steps": 1, "rl_batch_size": 8, "num_generations": 4}
    p = params.load(paper, "tiny", values | {"max_completion_length": 6})
    questions = world.build_world(people=8).questions()[0][:2]
    rows = [{"prompt": world_text.exchange(e.question, "")} for e in questions]
    trainer(start, rows, lambda p, folder: reward, folder, p)


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_training_stops_at_one_reward_that_is_not_finite(value, start, tmp_path):
    def mine(completions, **_):
        return [value, *[1.0] * (len(completions) - 1)]

    def on_tokens(completion_ids, **_):
        first, *others = completion_ids
        return [[value] + [0.0] * (len(first) - 1), *([0.1] * len(c) for c in others)]

    for paper, trainer, reward in (
        ("reason", grpo.grpo, mine),
        ("rlfh", token_level, on_tokens),
    ):
        with pytest.raises(RewardError, match=f"reward {reward.__name__}: {value}"):
            train(start, tmp_path / paper, paper, trainer, reward)
        assert not (tmp_path / paper / "model").exists()


def test_a_short_run_without_any_reward_fails_and_leaves_no_model(start, tmp_path):
    def failing(completions, **_):
        return [None] * len(completions)

    with pytest.raises(RuntimeError, match="none for 8 of 8"):
        train(start, tmp_path, "reason", grpo.grpo, failing)
    assert not (tmp_path / "model").exists()
