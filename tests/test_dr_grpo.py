"""Dr.GRPO in one of TRL's steps: advantages and loss against formulas by hand."""

import statistics
from types import SimpleNamespace

import pytest

from factkit.facts.world import facts as world
from factkit.facts.world import texts as world_text
from factkit.run import params
from factkit.train import grpo, rewards
from factkit.train.pretraining import build_policy

LENGTH, GROUP = 6, 4  # max_completion_length, num_generations
# of three groups; None: the verifier failed
REWARDS = [0.5, 0.9, -1.0, 0.6, 0.3, None, 0.7, 0.2, 0.4, 0.4, 0.4, 0.4]
LENGTHS = [1, 2, 3, 4, 5, 6, 6, 5, 4, 3, 2, 1]  # tokens of the completions
BETA, CLIP = 0.05, 0.15


def log_probabilities(model, inputs):
    """log π(y_t | x, y_<t) of each token of the completions, (B, T)."""
    import torch

    prompt, completion = inputs["prompt_ids"], inputs["completion_ids"]
    ids = torch.cat([prompt, completion], dim=1)
    mask = torch.cat([inputs["prompt_mask"], torch.ones_like(completion)], dim=1)
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask).logits
    logits = logits[:, prompt.shape[1] - 1 : -1].float()  # each predicts the next
    return logits.log_softmax(-1).gather(2, completion[..., None])[..., 0]


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """An untrained Llama of one layer with a small world's words."""
    import torch

    tokenizer = world_text.build_tokenizer(world.build_world(people=8))
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("start")
    build_policy(tokenizer, hidden_size=32, layers=1).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def step(start, tmp_path_factory):
    """loss → the step that `grpo.grpo` takes with it."""
    steps = {}

    def taken(loss):
        if loss not in steps:
            folder = tmp_path_factory.mktemp(loss)
            with pytest.MonkeyPatch.context() as patch:
                steps[loss] = _take(start, folder, loss, patch)
        return steps[loss]

    return taken


def _take(start, folder, loss, patch):
    """One step on rollouts of which the lengths, the old and the reference policy are
    changed, so that nothing in the loss is idle: not the clip, not the KL term.

    advantages: (B,), in the order of REWARDS; logps: of the policy before the step.
    """
    import torch
    import trl

    seen = SimpleNamespace()

    class Watched(trl.GRPOTrainer):
        def _generate_and_score_completions(self, inputs):
            found = super()._generate_and_score_completions(inputs)
            seen.advantages = found["advantages"].clone()
            return found

        def _compute_loss(self, model, inputs):
            rows, width = inputs["completion_ids"].shape
            assert width == LENGTH
            lengths = torch.tensor(LENGTHS)[:, None]
            noise = torch.randn(2, rows, width, generator=torch.manual_seed(0)) / 2
            seen.logps = log_probabilities(model, inputs)
            inputs |= {
                "completion_mask": (torch.arange(width) < lengths).long(),
                "old_per_token_logps": seen.logps + noise[0],
                "ref_per_token_logps": seen.logps + noise[1],
            }
            loss = super()._compute_loss(model, inputs)
            seen.inputs, seen.loss = inputs, loss.item()
            seen.config = self.args
            return loss

    patch.setattr(trl, "GRPOTrainer", Watched)
    patch.setattr(rewards, "MOST_JUDGE_FAILURES", 0.1)  # 1 of 12 has none
    values = {
        "loss": loss,
        "beta": BETA,
        "epsilon": CLIP,
        "temperature": 1.0,  # else log-probabilities are divided by it
        "rl_steps": 1,
        "rl_batch_size": len(REWARDS),
        "num_generations": GROUP,
        "max_completion_length": LENGTH,
    }
    p = params.load("reason", "tiny", values)
    asked = world.build_world(people=8).questions()[0][:3]
    rows = [{"prompt": world_text.exchange(e.question, "")} for e in asked]
    grpo.grpo(start, rows, lambda p, folder: lambda **_: REWARDS, folder, p)
    return seen


def groups(values):
    return [values[i : i + GROUP] for i in range(0, len(values), GROUP)]


def centred(rewards):
    """r − mean, of the rewards that there are; 0 where there is none."""
    known = [r for r in rewards if r is not None]
    mean = sum(known) / len(known)
    return [0.0 if r is None else r - mean for r in rewards]


def spread(rewards):
    """Their standard deviation, of a sample."""
    return statistics.stdev(r for r in rewards if r is not None)


def per_token(step):
    """−min(ρ A, clip(ρ) A) + β KL of each token, 0 beyond a completion's end (B, T)."""
    inputs = step.inputs
    ratio = (step.logps - inputs["old_per_token_logps"]).exp()
    a = inputs["advantages"][:, None]
    gain = (ratio * a).minimum(ratio.clamp(1 - CLIP, 1 + CLIP) * a)
    apart = inputs["ref_per_token_logps"] - step.logps
    kl = apart.exp() - apart - 1
    return (BETA * kl - gain) * inputs["completion_mask"]


def test_dr_grpo_s_advantage_is_the_reward_less_its_group_s_mean(step):
    by_hand = [a for of in groups(REWARDS) for a in centred(of)]
    assert step("dr_grpo").advantages.tolist() == pytest.approx(by_hand, abs=1e-6)


def test_grpo_s_advantage_is_divided_by_the_group_s_deviation(step):
    by_hand = [a / (spread(of) + 1e-4) for of in groups(REWARDS) for a in centred(of)]
    assert step("grpo").advantages.tolist() == pytest.approx(by_hand, abs=1e-5)


def test_dr_grpo_sums_over_tokens_and_divides_by_rows_and_the_longest_allowed(step):
    of = step("dr_grpo")
    by_hand = per_token(of).sum() / (len(REWARDS) * LENGTH)
    assert of.loss == pytest.approx(by_hand.item(), rel=1e-4)


def test_grpo_takes_the_mean_over_each_response_s_tokens(step):
    of = step("grpo")
    means = [sum(row) / n for row, n in zip(per_token(of), LENGTHS, strict=True)]
    by_hand = sum(means) / len(REWARDS)
    assert of.loss == pytest.approx(by_hand.item(), rel=1e-4)
