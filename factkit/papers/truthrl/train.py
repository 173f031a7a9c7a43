"""TruthRL's arms: what each one learns, on what, and from where (§3, Appendix C)."""

import functools
import random
from collections.abc import Sequence
from pathlib import Path

from factkit import prompts
from factkit.answers import drawn
from factkit.answers.drawn import Probe, pair, required, row, turn
from factkit.answers.verifier import verifier
from factkit.data.examples import Example
from factkit.facts.policy import base_policy
from factkit.papers.truthrl import rewards
from factkit.papers.truthrl.arms import QuestionSftParams, TruthRL
from factkit.policy import models
from factkit.run import runs
from factkit.run.params.stages import QuestionParams
from factkit.train import grpo, offline
from factkit.verify.outcome import Outcome

NOTEBOOK = "12_truthrl_train"
ABSTENTION = "I don't know"


# ---- training


def start_of(
    p: TruthRL,
    train: Sequence[Example],
    probes: Sequence[Probe],
    inputs: Sequence[Path],
) -> str:
    """The model from which DPO and RL start: the R-Tuning model of the same seed.

    A small policy never abstains, and without abstention in the rollouts the rewards
    are the same algorithm (ours). With `cold_start` off: the instruct model, as the
    paper. The model is trained here if that run is not done.
    """
    if not p.cold_start:
        return base_policy(p)
    cold = p.model_copy(update={"arm": "r_tuning"})
    rows = sft_rows(train, probes, probes, cold)
    with runs.start(NOTEBOOK, cold, inputs, QuestionSftParams, wait=True) as run:
        return str(offline.sft(base_policy(p), rows, run.folder, cold))


def train_arm(
    p: TruthRL,
    start: str,
    train: Sequence[Example],
    probes: Sequence[Probe],
    folder: Path,
    reward: rewards.Reward | None = None,
) -> list[Path]:
    """Train the arm `p.arm`; its checkpoints to evaluate, the last one the result.

    start: for sft, rft and r_tuning the base policy, else what `start_of` gives.
    reward: one of your own for GRPO in place of the arm's.
    """
    make_reward = rewards.reward_function
    match p.arm:
        case _ if reward:
            make_reward = functools.partial(rewards.reward_function, own=reward)
        case "sft" | "r_tuning" | "rft":
            traces = probes
            if p.arm == "rft":
                traces = samples(p, start, train, folder / "traces.jsonl")
            rows = required(sft_rows(train, probes, traces, p), p)
            return [offline.sft(start, rows, folder, p)]
        case "dpo":
            rows = required(pairs(train, probes, p), p)
            return [offline.dpo(start, rows, folder, p)]
        case "iterative_dpo":
            return iterations(p, start, train, folder)
        case "rlhf" | "rlkf":
            rows = pairs(train, probes, p)
            offline.train_reward_model(start, rows, folder, p)
            p = p.model_copy(update={"beta": p.reward_beta})
    rows = prompt_rows(train, probes, p)
    return [grpo.grpo(start, rows, make_reward, folder, p)]


def iterations(
    p: TruthRL, start: str, train: Sequence[Example], folder: Path
) -> list[Path]:
    """Iterative DPO: pairs made anew from each iteration's own samples (Appendix C).

    The first iteration is DPO of `start`, on whose model the paper's four build.
    Each iteration has a folder, and what is complete in it is not done again.
    """
    checkpoints = []
    for i in range(1, p.dpo_iterations + 1):
        part = folder / f"iteration-{i}"
        part.mkdir(parents=True, exist_ok=True)
        if not (part / "model").exists():
            probes = samples(p, start, train, part / "samples.jsonl", i)
            offline.dpo(start, required(pairs(train, probes, p), p), part, p)
        start = str(part / "model")
        checkpoints.append(part / "model")
    return checkpoints


def samples(
    p: TruthRL, policy: str, train: Sequence[Example], path: Path, iteration: int = 0
) -> list[Probe]:
    """A policy's samples of an iteration of DPO; of none: RFT's of the untrained
    policy, asked in the way that lets it abstain."""
    if iteration:
        template, k = p.prompt_template, p.probe_samples
        sampling = models.sampling_of(p, p.probe_temperature)
    else:
        template, k = p.abstaining_template, p.rft_samples
        sampling = models.sampling_of(p, p.rft_temperature, p.rft_top_p)
    return drawn.probe(
        *(*models.policy(policy, p), train, template, sampling, k),
        *(path, verifier(p), p.chat, p.seed + 1000 * iteration),
    )


# ---- what is known, and responses that say so


def out_of_knowledge(probe: Probe, known_share: float) -> bool:
    """Whether a question lies outside the policy's knowledge (§3.1).

    The paper: no sample of 256 is correct (`known_share` 0). A threshold on the share
    keeps luck from passing for knowledge where few answers are possible. If the judge
    failed on every sample, nothing says so: False.
    """
    return any(probe.outcomes) and (probe.share == 0 or probe.share < known_share)


def response(
    answer: str, example: Example, p: QuestionParams, reasoning: str = ""
) -> str:
    """An answer in the format that `p.answer_format` asks for.

    boxed: with the reasoning of the example, if it has any, where none is given.
    """
    if p.answer_format == "plain":
        return answer
    return prompts.reasoned(reasoning or example.meta.get("reasoning", ""), answer)


def abstention(example: Example, p: QuestionParams) -> str:
    """ "I don't know" in the format that `p.answer_format` asks for."""
    return response(ABSTENTION, example, p, f"{ABSTENTION}.")


# ---- rows for training; probes and traces: one a question, in their order


def sft_rows(
    examples: Sequence[Example],
    probes: Sequence[Probe],
    traces: Sequence[Probe],
    p: QuestionSftParams,
) -> list[dict]:
    """Rows of prompt and completion for the arms of SFT (§2.2, §3.1).

    sft learns the references; r_tuning those, and "I don't know" where out of
    knowledge; rft, of the policy's own traces (64 at temperature 0.6 in Appendix C),
    the commonest one that abstains where out of knowledge, else one that is correct:
    a question without such a trace has no row.
    """
    rows = []
    for e, probe, trace in zip(examples, probes, traces, strict=True):
        unknown = out_of_knowledge(probe, p.known_share)
        if p.arm == "rft":
            target = trace.most_frequent(
                Outcome.ABSTAIN if unknown else Outcome.CORRECT
            )
        elif p.arm == "r_tuning" and unknown:
            target = abstention(e, p)
        else:
            target = response(e.answers[0], e, p)
        rows += [row(e, target, p)] if target else []
    return rows


def prompt_rows(
    examples: Sequence[Example], probes: Sequence[Probe], p: QuestionParams
) -> list[dict]:
    """Rows for GRPO: the prompt and what the reward needs to judge a completion."""
    return [
        {
            "prompt": turn(e, p),
            "id": e.id,
            "answers": e.answers,
            "question": e.question,
            "out_of_knowledge": out_of_knowledge(probe, p.known_share),
        }
        for e, probe in zip(examples, probes, strict=True)
    ]


def pairs(
    examples: Sequence[Example], probes: Sequence[Probe], p: TruthRL
) -> list[dict]:
    """Rows of a better and a worse response, for DPO and for reward models.

    dpo (Appendix C): out of knowledge, "I don't know" over a random wrong sample; else
    a random correct sample over a random wrong one. A question without the samples that
    its pair needs has none.
    rlhf: the reference over each different sample that is not correct. Preference for
    the helpful answer alone, blind to what the policy knows: abstaining is rejected
    like a wrong answer (ours; the paper does not describe its pairs).
    rlkf (Xu et al., 2024): correct > abstaining > wrong. A known question gives a
    correct sample over abstaining and over each different wrong sample; a question out
    of knowledge gives abstaining over each of these. In both at most p.reward_pairs
    different wrong samples of a question are taken, drawn at random, if it is not 0.
    """
    rng = random.Random(f"dpo {p.seed}")
    rows = []
    for e, probe in zip(examples, probes, strict=True):
        unknown = out_of_knowledge(probe, p.known_share)
        right, wrong = probe.of(Outcome.CORRECT), probe.of(Outcome.WRONG)
        each_wrong, idk = list(dict.fromkeys(wrong)), abstention(e, p)
        if len(each_wrong) > p.reward_pairs > 0 and p.arm in ("rlhf", "rlkf"):
            each_wrong = rng.sample(each_wrong, p.reward_pairs)
        match p.arm:
            case "rlhf":
                best, worse = response(e.answers[0], e, p), [*each_wrong, idk]
            case "rlkf" if right and not unknown:
                best, worse = probe.most_frequent(Outcome.CORRECT), [idk, *each_wrong]
            case "rlkf":
                best, worse = idk, each_wrong
            case _:
                better = [idk] if unknown else right
                if not (better and wrong):
                    continue
                best, worse = rng.choice(better), [rng.choice(wrong)]
        rows += [pair(e, best, other, p) for other in worse]
    return rows
