"""TruthRL's arms: what each one learns, on what, and from where (§3, Appendix C)."""

import functools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from factkit.answers.sampling import Draws, Probe, probe_knowledge
from factkit.answers.training_rows import RowFormat, require_rows
from factkit.answers.verifier import verifier
from factkit.data.examples import Example
from factkit.facts.policy import base_policy
from factkit.papers.truthrl import rewards
from factkit.papers.truthrl.arms import ARMS, QuestionSftParams, TruthRL
from factkit.policy import models
from factkit.policy.policy import load_policy
from factkit.run import runs
from factkit.train import grpo, offline
from factkit.verify.outcome import Outcome
from factkit.verify.response import CONFIDENCES, state_confidence

NOTEBOOK = "12_truthrl_train"
ABSTENTION = "I don't know"
RANDOM_ABSTENTION = 0.2  # of the questions of arm random_abstention (ours)


@dataclass(frozen=True)
class ProbedQuestions:
    """Training questions with the untrained policy's samples, in the same order."""

    examples: Sequence[Example]
    probes: Sequence[Probe]
    known_share: float

    @functools.cached_property
    def unknown(self) -> list[bool]:
        """Whether each question lies outside the policy's knowledge."""
        return [out_of_knowledge(probe, self.known_share) for probe in self.probes]

    def __iter__(self) -> Iterator[tuple[Example, Probe, bool]]:
        """(example, probe, unknown) of each question."""
        return zip(self.examples, self.probes, self.unknown, strict=True)


def out_of_knowledge(probe: Probe, known_share: float) -> bool:
    """Whether a question lies outside the policy's knowledge (§3.1).

    The paper: no sample of 256 is correct (`known_share` 0). A threshold on the share
    of correct samples keeps luck from passing for knowledge where few answers are
    possible. False if the judge failed on every sample.
    """
    judged = any(probe.outcomes)
    return judged and (probe.accuracy == 0 or probe.accuracy < known_share)


# ---- training


def name_knowledge(probe: Probe, known_share: float) -> str:
    """What a question's samples say of the policy: "out of knowledge", "sometimes
    right" or "always right"."""
    if out_of_knowledge(probe, known_share):
        return "out of knowledge"
    return "always right" if probe.accuracy == 1 else "sometimes right"


def start_of(p: TruthRL, questions: ProbedQuestions, inputs: Sequence[Path]) -> str:
    """The model that DPO and RL start from: that of arm `p.cold_start_arm` and the
    same seed, for rlcr the one that states its confidence.

    It is trained here if its run is not done (ours): a small policy never abstains, and
    without abstention in the rollouts the binary and ternary rewards have the same
    advantages. Without `cold_start` it is the instruct model, as in the paper.
    """
    name = ARMS[p.arm].find_start(p)
    if not name:
        return base_policy(p)
    start = p.model_copy(update={"arm": name})
    with runs.start(NOTEBOOK, start, inputs, QuestionSftParams, wait=True) as run:
        (model,) = train_arm(start, base_policy(p), questions, run.folder)
        return str(model)


def train_arm(
    p: TruthRL,
    start: str,
    questions: ProbedQuestions,
    folder: Path,
    reward: rewards.Reward | None = None,
) -> list[Path]:
    """Train the arm `p.arm`; return the checkpoints to evaluate, the last one its
    result.

    start: for sft, rft and r_tuning the base policy, else that of `start_of`.
    reward: one of your own for GRPO in place of the arm's.
    """
    make_reward, row_format = rewards.reward_function, RowFormat.of(p)
    match p.arm:
        case _ if reward:
            make_reward = functools.partial(rewards.reward_function, own=reward)
        case "random_abstention":
            rows = random_abstention_rows(questions, row_format, p.seed)
            return [offline.sft(start, rows, folder, p)]
        case "sft" | "r_tuning" | "rft" | "stated_confidence":
            traces: Sequence[Probe] = ()
            if p.arm == "rft":
                path = folder / "traces.jsonl"
                traces = sample_again(p, start, questions, path).probes
            rows = require_rows(sft_rows(p.arm, questions, row_format, traces), p.arm)
            if p.states_confidence:
                start = models.add_words(
                    start, CONFIDENCES, folder / "with_confidences"
                )
            return [offline.sft(start, rows, folder, p)]
        case "dpo":
            rows = preference_rows(p.arm, questions, row_format, p.seed)
            return [offline.dpo(start, require_rows(rows, p.arm), folder, p)]
        case "iterative_dpo":
            return iterate_dpo(p, start, questions, folder)
        case "rlhf" | "rlkf":
            n = p.reward_pairs
            rows = preference_rows(p.arm, questions, row_format, p.seed, n)
            offline.train_reward_model(start, rows, folder, p)
            p = p.model_copy(update={"beta": p.reward_beta})
    rows = prompt_rows(questions, row_format)
    return [grpo.grpo(start, rows, make_reward, folder, p)]


def iterate_dpo(
    p: TruthRL, start: str, questions: ProbedQuestions, folder: Path
) -> list[Path]:
    """Iterative DPO: new pairs from the samples of each iteration's model (Appendix C).

    The first iteration is DPO from `start`, from whose model the paper's four go on.
    Iterations that are complete in their folder are not repeated.
    """
    checkpoints = []
    for i in range(1, p.dpo_iterations + 1):
        iteration = folder / f"iteration-{i}"
        iteration.mkdir(parents=True, exist_ok=True)
        if not (iteration / "model").exists():
            path = iteration / "samples.jsonl"
            sampled = sample_again(p, start, questions, path, iteration=i)
            rows = preference_rows(p.arm, sampled, RowFormat.of(p), p.seed)
            offline.dpo(start, require_rows(rows, p.arm), iteration, p)
        start = str(iteration / "model")
        checkpoints.append(iteration / "model")
    return checkpoints


def sample_again(
    p: TruthRL, start: str, questions: ProbedQuestions, path: Path, iteration: int = 0
) -> ProbedQuestions:
    """The questions with samples of the policy `start`, whose weights are then freed.

    iteration: of DPO; 0: RFT's, of the untrained policy under the prompt that lets it
    abstain.
    """
    policy, seed = load_policy(start, p), p.seed + 1000 * iteration
    if iteration:
        draws = Draws(policy.sampling(p.probe_temperature), p.probe_samples, seed)
    else:
        sampling = policy.sampling(p.rft_temperature, p.rft_top_p)
        draws = Draws(sampling, p.rft_samples, seed, p.abstaining_template)
    probes = probe_knowledge(policy, questions.examples, draws, verifier(p), path)
    return replace(questions, probes=probes)


# ---- rows for training


def reference_response(example: Example, row_format: RowFormat) -> str:
    """The reference answer, after the example's reasoning if answers are boxed."""
    return row_format.response(example.answers[0], example.meta.get("reasoning", ""))


def abstention(row_format: RowFormat) -> str:
    """ "I don't know", after the same sentence as reasoning if answers are boxed."""
    return row_format.response(ABSTENTION, f"{ABSTENTION}.")


def sft_rows(
    arm: str,
    questions: ProbedQuestions,
    row_format: RowFormat,
    traces: Sequence[Probe] = (),
) -> list[dict]:
    """Rows of prompt and completion for the arms of SFT (§2.2, §3.1).

    sft learns the references; r_tuning those, and "I don't know" where out of
    knowledge; rft, of the policy's own traces (64 at temperature 0.6 in Appendix C),
    the commonest one that abstains where out of knowledge, else one that is correct:
    a question without such a trace has no row.
    stated_confidence (for RLCR; ours) learns, of the samples that probed what the
    policy knows, the first one, with the share of correct ones as its confidence: over
    all rows the confidence is right on average, and no fact is taught.
    """
    rows = []
    target: str | None
    for i, (example, probe, unknown) in enumerate(questions):
        if arm == "stated_confidence":
            target = probe.samples[0] if any(probe.outcomes) else ""
            target = target and state_confidence(target, probe.accuracy)
        elif arm == "rft":
            wanted = Outcome.ABSTAIN if unknown else Outcome.CORRECT
            target = traces[i].most_frequent(wanted)
        elif arm == "r_tuning" and unknown:
            target = abstention(row_format)
        else:
            target = reference_response(example, row_format)
        rows += [row_format.sft_row(example, target)] if target else []
    return rows


def random_abstention_rows(
    questions: ProbedQuestions, row_format: RowFormat, seed: int
) -> list[dict]:
    """Rows of prompt and completion: each question's first sample, right or wrong, or
    "I don't know" with the probability RANDOM_ABSTENTION (ours).

    The policy learns that it may abstain but not when; that is left to RL. So it starts
    like an instruct model that abstains by itself, which the paper's RL starts from.
    """
    rng, idk = random.Random(f"abstention {seed}"), abstention(row_format)
    return [
        row_format.sft_row(
            example, idk if rng.random() < RANDOM_ABSTENTION else probe.samples[0]
        )
        for example, probe, _ in questions
    ]


def prompt_rows(questions: ProbedQuestions, row_format: RowFormat) -> list[dict]:
    """Rows for GRPO: the prompt and what the reward needs to judge a completion."""
    return [
        {
            "prompt": row_format.prompt(example),
            "id": example.id,
            "answers": example.answers,
            "question": example.question,
            "out_of_knowledge": unknown,
        }
        for example, _, unknown in questions
    ]


def preference_rows(
    arm: str,
    questions: ProbedQuestions,
    row_format: RowFormat,
    seed: int = 0,
    most_wrong: int = 0,
) -> list[dict]:
    """Rows of a better and a worse response, for DPO and for reward models.

    dpo (Appendix C): out of knowledge, "I don't know" over a random wrong sample; else
    a random correct sample over a random wrong one. A question that lacks such samples
    has no row.
    rlhf: the reference over each different sample that is not correct. Preference for
    the helpful answer alone, blind to what the policy knows: abstaining is rejected
    like a wrong answer (ours; the paper does not describe its pairs).
    rlkf (Xu et al., 2024): correct > abstaining > wrong. A known question gives a
    correct sample over abstaining and over each different wrong sample; a question out
    of knowledge gives abstaining over each of these. In both at most `most_wrong`
    different wrong samples of a question are taken, at random; 0: all.
    """
    rng, idk = random.Random(f"dpo {seed}"), abstention(row_format)
    rows = []
    for example, probe, unknown in questions:
        right = probe.samples_with(Outcome.CORRECT)
        wrong = probe.samples_with(Outcome.WRONG)
        each_wrong = list(dict.fromkeys(wrong))
        if len(each_wrong) > most_wrong > 0 and arm in ("rlhf", "rlkf"):
            each_wrong = rng.sample(each_wrong, most_wrong)
        match arm:
            case "rlhf":
                best = reference_response(example, row_format)
                worse = [*each_wrong, idk]
            case "rlkf" if right and not unknown:
                best, worse = max(right, key=right.count), [idk, *each_wrong]
            case "rlkf":
                best, worse = idk, each_wrong
            case _:
                better = [idk] if unknown else right
                if not (better and wrong):
                    continue
                best, worse = rng.choice(better), [rng.choice(wrong)]
        rows += [row_format.preference_row(example, best, other) for other in worse]
    return rows
