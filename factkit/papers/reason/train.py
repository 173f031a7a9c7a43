"""Learning to Reason's arms: what each one trains, on what, and from where (§2, §3)."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from factkit.answers.rewards import Rewards
from factkit.answers.sampling import ScoredSamples
from factkit.answers.training_rows import RowFormat, margin_pair, require_rows
from factkit.data.examples import Example
from factkit.facts.policy import base_policy
from factkit.papers.reason import rewards
from factkit.papers.reason.arms import Reason, ReasonSftParams
from factkit.run import runs
from factkit.train import grpo, offline
from factkit.verify.response import format_response, split_response, split_sentences

NOTEBOOK = "32_reason_train"
HEDGE = "Perhaps "  # before what the reasoning doubts, in the policies' cold starts


def sft_start(
    p: Reason,
    examples: Sequence[Example],
    answers: Sequence[ScoredSamples],
    inputs: Iterable[Path],
) -> Path:
    """The SFT model of the same seed, from which DPO and RL start (§2.2); it is trained
    if its run is not done.

    answers: scored responses of the base policy that reason. Raises DataError if none
    of them can be a target.
    """
    sft_params = p.model_copy(update={"arm": "sft"})
    rows = require_rows(sft_rows(p, examples, answers), p.arm)
    with runs.start(NOTEBOOK, sft_params, inputs, ReasonSftParams, wait=True) as run:
        return offline.sft(base_policy(p), rows, run.folder, sft_params)


def sft_rows(
    p: Reason, examples: Sequence[Example], answers: Sequence[ScoredSamples]
) -> list[dict]:
    """SFT's rows: each request with its most precise response, or with the edited one
    that keeps most. answers: as in `sft_start`."""
    if p.sft_target == "edited":
        answers = edit_answers(rewards.engine_of(p), examples, answers)
    return RowFormat.of(p).best_rows(examples, answers)


def edit_answers(
    engine: rewards.Engine,
    examples: Sequence[Example],
    samples: Sequence[ScoredSamples],
) -> list[ScoredSamples]:
    """Replace the answer of each response by the supported sentences of its reasoning.

    A sentence, without "Perhaps", is supported if it has claims and all of them are.
    The score is the number of supported sentences; None if the verifier failed on one.
    Malformed responses are left out, and those whose reasoning has fewer than two
    sentences, since there is nothing to choose from. Ours.
    """
    recalled = [
        (k, split.reasoning, sentences)
        for k, sample in enumerate(samples)
        for split in map(split_response, sample.responses)
        if split and len(sentences := distinct_sentences(split.reasoning)) > 1
    ]
    rows = [
        (examples[k].id, examples[k].question, sentence)
        for k, _, sentences in recalled
        for sentence in sentences
    ]
    columns = map(list, zip(*rows, strict=True)) if rows else ([], [], [])
    verdicts = iter(engine.values(["supports"], *columns)["supports"])
    edited = [ScoredSamples(sample.id, []) for sample in samples]
    for k, reasoning, sentences in recalled:
        checked = [(text, rewards.counts(next(verdicts))) for text in sentences]
        kept = [text for text, c in checked if c and c[0] == c[1] > 0]
        failed = any(c is None for _, c in checked)
        edited[k].responses.append(format_response(reasoning, " ".join(kept)))
        edited[k].scores.append(None if failed else float(len(kept)))
    return edited


def distinct_sentences(text: str) -> list[str]:
    """The sentences of a text without "Perhaps", each once."""
    return list(dict.fromkeys(s.removeprefix(HEDGE) for s in split_sentences(text)))


def train_arm(
    p: Reason,
    start: Path,
    train: Sequence[Example],
    answers: Sequence[ScoredSamples],
    folder: Path,
) -> Path:
    """Train sft_dpo or an RL arm from the SFT model `start`; the policy's folder.

    answers: scored responses of the base policy to `train`, which reason. Raises
    DataError if they give no pair for DPO.
    """
    row_format = RowFormat.of(p)
    if p.arm == "sft_dpo":
        choose = partial(
            margin_pair,
            least_margin=p.least_margin,
            length_difference=p.length_difference,
        )
        pairs = row_format.preference_rows(train, answers, choose)
        rows = require_rows(pairs, p.arm)
        return offline.dpo(str(start), rows, folder, p)
    rows = row_format.request_rows(train)
    return grpo.grpo(str(start), rows, reward_function, folder, p)


def reward_function(p: Reason, folder: Path) -> Callable[..., Rewards]:
    """The reward of `p.arm` with TRL's `reward_funcs` signature."""
    return rewards.trl_reward(p.arm, rewards.engine_of(p))
