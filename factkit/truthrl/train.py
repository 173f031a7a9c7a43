"""TruthRL's arms: what each one trains, on what, and from where (§3, Appendix C)."""

from collections.abc import Sequence
from pathlib import Path

from factkit import models, runs
from factkit.curate import probing
from factkit.curate.probing import Probe
from factkit.datasets.examples import DataError, Example
from factkit.train import dpo, grpo, reward_model, sft
from factkit.train.start import base_policy
from factkit.truthrl import pairs, rewards
from factkit.truthrl.arms import (
    QuestionParams,
    QuestionSftParams,
    TruthRL,
)
from factkit.verify.verifier import verifier

NOTEBOOK = "12_truthrl_train"


def after(folder: Path) -> Path:
    """The file with a run's greedy answers to the test questions."""
    own = folder / "after_test.jsonl"
    data = folder.parent.parent / "10_truthrl_data" / "main-s0"
    return own if own.exists() else data / "prompting_test.jsonl"


def deviations(p: TruthRL) -> list[str]:
    """What differs from the paper and no parameter says, as sentences."""
    trained = p.arm != "prompting"
    by_rl = p.arm.startswith(("binary", "ternary", "rl"))
    return _of_the_questions(p) + [
        sentence
        for holds, sentence in (
            (True, "prompts of our own words, not those of Tables 9 to 12"),
            (
                p.prompting_template != p.prompt_template,
                "the untrained policy is shown examples of answers",
            ),
            (
                p.verifier == "judge",
                "the judge is shown examples of ours; the paper's are not published",
            ),
            (
                True,
                "confidence is the mean probability of the answer's tokens, which "
                "the paper does not define",
            ),
            (trained, "no search over batch sizes, learning rates and epochs"),
            (trained, "trained by TRL, not by Open-R1 and VeRL"),
            (
                by_rl,
                "a batch of RL is counted in responses; VeRL counts prompts with all "
                f"their responses: {p.rl_batch_size // p.num_generations} prompts here",
            ),
            (by_rl, "the group size and the number of updates are ours, not stated"),
            (
                p.arm in ("rlhf", "rlkf"),
                "preference pairs made from probing; the paper does not state its",
            ),
            (
                p.verifier == "judge",
                f"at most {p.max_context_length} tokens at "
                "inference, too; the paper: 32k",
            ),
        )
        if holds
    ]


def _of_the_questions(p: QuestionParams) -> list[str]:
    """What differs in the questions and their references."""
    own_pages = p.retriever and p.questions == "crag"
    first = f"the first {p.test_questions} questions of " + ", ".join(
        p.eval_sets.split()
    )
    return [
        sentence
        for holds, sentence in (
            (
                p.questions == "crag",
                "CRAG is split by us; the paper states neither split nor sizes",
            ),
            (
                p.questions != "crag",
                "questions that offer the answer are made from the others, not CRAG's",
            ),
            (
                p.least_known > 0 or p.most_known < 1,
                "only relations are asked of which the untrained policy gets "
                f"{100 * p.least_known:.0f} to {100 * p.most_known:.0f} % right",
            ),
            (p.eval_sets, f"{first}; the paper does not say which"),
            (
                own_pages,
                "a question's pages are cut into chunks that BM25 ranks; how 50 "
                "pages fit into the paper's prompt is not stated",
            ),
            (
                own_pages and not p.questions_path,
                "5 pages a question (CRAG's tasks 1, 2) instead of up to 50 (task 3)",
            ),
            (
                p.retriever and p.questions in ("world", "leads"),
                "one corpus is searched for all questions, not pages of their own",
            ),
            (
                p.answer_format == "boxed" and p.questions == "world",
                "the quality of reasoning is read off the fact world, not judged",
            ),
        )
        if holds
    ]


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
    rows = probing.r_tuning_rows(train, probes, cold)
    with runs.start(NOTEBOOK, cold, inputs, QuestionSftParams, wait=True) as run:
        return str(sft.sft(base_policy(p), rows, run.folder, cold))


def train_arm(
    p: TruthRL,
    start: str,
    train: Sequence[Example],
    probes: Sequence[Probe],
    folder: Path,
) -> list[Path]:
    """Train the arm `p.arm`; its checkpoints to evaluate, the last one the result.

    start: for sft, rft and r_tuning the base policy, else what `start_of` gives.
    """
    match p.arm:
        case "sft":
            return [sft.sft(start, probing.sft_rows(train, p), folder, p)]
        case "r_tuning":
            rows = probing.r_tuning_rows(train, probes, p)
            return [sft.sft(start, rows, folder, p)]
        case "rft":
            drawn = traces(p, start, train, folder)
            rows = some(probing.rft_rows(train, probes, drawn, p), p)
            return [sft.sft(start, rows, folder, p)]
        case "dpo":
            rows = some(pairs.dpo_pairs(train, probes, p), p)
            return [dpo.dpo(start, rows, folder, p)]
        case "iterative_dpo":
            return iterations(p, start, train, folder)
        case "rlhf" | "rlkf":
            build = pairs.rlhf_pairs if p.arm == "rlhf" else pairs.rlkf_pairs
            rows = build(train, probes, p)
            reward_model.train_reward_model(start, rows, folder, p)
            p = p.model_copy(update={"beta": p.reward_beta})
    rows = probing.prompt_rows(train, probes, p)
    return [grpo.grpo(start, rows, rewards.reward_function, folder, p)]


def some(rows: list[dict], p: TruthRL) -> list[dict]:
    """The rows; raises DataError if probing left none for the arm."""
    if not rows:
        raise DataError(
            f"arm={p.arm}: no question has the samples that a row needs; raise "
            f"train_questions={p.train_questions} or probe_samples={p.probe_samples}"
        )
    return rows


def traces(
    p: TruthRL, policy: str, train: Sequence[Example], folder: Path
) -> list[Probe]:
    """RFT's samples of the untrained policy, asked in the way that lets it abstain."""
    model, tokenizer = models.load_policy(policy, p.dtype)
    sampling = models.sampling_of(p, p.rft_temperature, p.rft_top_p)
    return probing.probe(
        model,
        tokenizer,
        train,
        p.abstaining_template,
        sampling,
        p.rft_samples,
        folder / "traces.jsonl",
        verifier(p),
        p.chat,
        seed=p.seed,
    )


def iterations(
    p: TruthRL, start: str, train: Sequence[Example], folder: Path
) -> list[Path]:
    """Iterative DPO: pairs made anew from each iteration's own samples (Appendix C).

    Each iteration has a folder, and what is complete in it is not done again.
    """
    checkpoints: list[Path] = []
    policy = start
    for i in range(1, p.dpo_iterations + 1):
        part = folder / f"iteration-{i}"
        part.mkdir(parents=True, exist_ok=True)
        if not (part / "model").exists():
            model, tokenizer = models.load_policy(policy, p.dtype)
            sampling = models.sampling_of(p, p.probe_temperature)
            probes = probing.probe(
                model,
                tokenizer,
                train,
                p.prompt_template,
                sampling,
                p.probe_samples,
                part / "samples.jsonl",
                verifier(p),
                p.chat,
                seed=p.seed + 1000 * i,
            )
            dpo.dpo(policy, some(pairs.dpo_pairs(train, probes, p), p), part, p)
        policy = str(part / "model")
        checkpoints.append(part / "model")
    return checkpoints
