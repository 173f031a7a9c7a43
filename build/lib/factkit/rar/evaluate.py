"""Hallucination against utility of a policy (Binary RAR §4.1), on one set of requests.

Hallucination in long answers, claim by claim, and in short ones where abstaining is
allowed; utility where it is not, in answers that must have a form, in what a judge of
quality prefers, in how well the policy still predicts text, and where a profile names
them in public benchmarks.
"""

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit import UserError, models, statistics
from factkit.assets import write_atomically
from factkit.datasets.examples import BEST_GUESS, COUNTED, MAY_ABSTAIN, OPEN, Example
from factkit.evaluate import long_form
from factkit.rar.arms import RUN_CODE, SUITES, RarParams
from factkit.verify.outcome import Outcome
from factkit.verify.response import CLOSE
from factkit.verify.response import answers as final_answers
from factkit.verify.verifier import failed_share, verifier

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from factkit.rar.rewards import Engine

# the metrics that are kept of each item, for intervals over items
COMPARED = """
    hallucination_rate claim_precision total_claims words win_rate
    correct_claims_per_question total_claims_per_question short_accuracy
    short_hallucination short_abstention short_truthfulness best_guess_accuracy
    format_following
""".split()
# times that the policy read of a person whom utility asks for (fact world): it is to
# be about what a policy can do, not about what it can't know
FAMILIAR = 10
CONTAINER = "/.dockerenv", "/run/.containerenv"  # files in one
ROUNDING = 1e-9  # a drop of exactly 10 % is not more than 10 %

# Under a judge: prompts that ask for a form → the pattern of an answer that has it, in
# the spirit of IFEval
END = r"[.!?]+[\"')\]]*(?=\s|$)"  # of a sentence
SENTENCE = rf"(?:(?!{END}).)*{END}"
FORMS = {
    "Answer in one word: what colour is the sky on a clear day?": r"\S+",
    "Answer with yes or no only: is water wet?": r"(?i)(yes|no)\.?",
    "Answer with a number only: how many days are in a week?": r"\d+\.?",
    "Describe a cat in at most ten words.": r"\S+(?:\s+\S+){,9}",
    "Write about the sea in at least fifty words.": r"\S+(?:\s+\S+){49,}",
    "Write exactly one sentence about rain.": SENTENCE,
    "Explain what a library is in exactly two sentences.": rf"(?:{SENTENCE}){{2}}",
    "List exactly three fruits as bullet points.": r"(?:[-*•] [^\n]+(?:\n+|$)){3}",
    "Name four kinds of transport, as a numbered list.": r"(?:\d\. [^\n]+(?:\n+|$)){4}",
    "Write a poem about the moon with exactly four lines.": r"[^\n]+(?:\n+[^\n]+){3}",
    "Answer in capital letters only: what is snow?": r"[^a-z]+",
    "Write in lower case letters only: what is the sun?": r"[^A-Z]+",
    "Begin your answer with the word Certainly. What is a clock?": "Certainly.*",
    'Tell me about horses. End with the words "That is all."': r".*That is all\.",
    "Put your whole answer in double quotation marks: what is honey?": '"[^"]+"',
    'Write a sentence about a garden with the word "lantern".': r".*\blantern\b.*",
    "Describe a house without using a comma.": "[^,]+",
    "Say what a map is. Give it a title in <<double angle brackets>>.": ".*<<.+>>.*",
    "Name a vegetable and a spice, separated by a semicolon.": r"[^;\n]+;[^;\n]+",
    "Count from one to five in digits, separated by spaces.": r"1 2 3 4 5\.?",
}


@dataclass(frozen=True)
class Answers:
    """A policy's greedy answers, by the request's id; its perplexity on other text."""

    texts: Mapping[str, str]
    perplexity: float

    def to(self, ids: Iterable[str]) -> list[str]:
        """The answers to requests, without reasoning."""
        return final_answers(self.texts[i] for i in ids)


@dataclass(frozen=True)
class Measured:
    """Metrics of answers, and what each request adds to those of COMPARED."""

    metrics: dict[str, float]
    items: dict[str, dict[str, float]]


def answer(
    policy: str,
    examples: Sequence[Example],
    held_out: Sequence[str],
    p: RarParams,
    path: Path,
) -> Answers:
    """The greedy answers of the policy in the folder `policy`, under a judge also to
    the prompts of FORMS; kept in `path`. held_out: texts for the perplexity, none of
    them trained on by an arm."""
    if path.exists():
        return Answers(**json.loads(path.read_text(encoding="utf-8")))
    model, tokenizer = models.load_policy(policy, p.dtype)
    if p.verifier == "judge":
        forms = [Example(id=q, question=q, answers=[""], entity=q) for q in FORMS]
        examples = [*examples, *forms]
    prompts = models.asked(examples, p.prompt_template, tokenizer, p.chat)
    greedy = models.sampling_of(p)
    replies = models.sample(model, tokenizer, prompts, greedy, progress=path.stem)
    texts = {e.id: text for e, (text,) in zip(examples, replies, strict=True)}
    answers = Answers(texts, perplexity(model, tokenizer, held_out, p.eval_batch_size))
    write_atomically(path, json.dumps(asdict(answers), ensure_ascii=False))
    return answers


def perplexity(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    texts: Sequence[str],
    batch_size: int = 16,
    max_tokens: int = 512,
) -> float:
    """exp of the mean negative log-likelihood a token, over all texts' tokens but the
    first of each. Each text is read alone, its first `max_tokens` tokens."""
    import torch

    ids = tokenizer(list(texts), truncation=True, max_length=max_tokens)["input_ids"]
    ids = sorted((row for row in ids if len(row) > 1), key=len)
    total, tokens = 0.0, 0
    for start in range(0, len(ids), batch_size):
        batch = ids[start : start + batch_size]
        longest = len(batch[-1])
        # padded on the right: under causal attention no token sees the padding
        padded = torch.tensor([row + [row[-1]] * (longest - len(row)) for row in batch])
        lengths = torch.tensor([len(row) for row in batch])
        padded, lengths = padded.to(model.device), lengths.to(model.device)
        with torch.inference_mode():
            logits = model(input_ids=padded).logits[:, :-1].float()  # (B, T-1, V)
        logp = logits.log_softmax(-1).gather(-1, padded[:, 1:, None])[..., 0]
        counted = torch.arange(1, longest, device=model.device) < lengths[:, None]
        total -= logp[counted].double().sum().item()
        tokens += int(counted.sum())
    return math.exp(total / tokens)


def measure(
    examples: Sequence[Example],
    answers: Answers,
    base: Answers,
    engine: "Engine",
    p: RarParams,
    path: Path,
) -> Measured:
    """Metrics of the answers without their reasoning, with their claims kept in `path`.

    Long answers: those of `long_form.scores`, and claim_precision, the share of all
    answers' claims that are correct. Short ones with leave to abstain: short_accuracy,
    short_abstention, short_hallucination; short_truthfulness, the first less the last.
    Utility: best_guess_accuracy of short ones without; format_following; win_rate over
    `base` in the engine's judgement of quality, where it has one; perplexity. In the
    fact world form and win rate are of people that the policy read of `FAMILIAR` times.
    Raises ValueError above 5 % of failed extractions, verifications or outcomes.
    """
    kinds = OPEN, MAY_ABSTAIN, BEST_GUESS, COUNTED
    by_kind = {k: [e for e in examples if e.meta["kind"] == k] for k in kinds}
    told_of, counted = (
        [e for e in by_kind[k] if e.meta.get("exposure", FAMILIAR) >= FAMILIAR]
        for k in (OPEN, COUNTED)
    )
    long = by_kind[OPEN]
    texts = [answers.texts[e.id] for e in long]
    checked = long_form.evaluate(long, texts, *engine.reader, path, p.test_chunks)
    items, failures = long_form.items(checked), long_form.failures(checked)
    for item in items.values():
        if "total_claims" in item:  # by which it is weighted
            item["claim_precision"] = item["factual_precision"]
    for i, win in wins(told_of, answers, base, engine).items():
        items.setdefault(i, {})["win_rate"] = win
    verify = verifier(p, "judge" if p.verifier == "judge" else "rules")  # App. B.2
    for kind in (MAY_ABSTAIN, BEST_GUESS):
        short = by_kind[kind]
        texts = answers.to(e.id for e in short)
        columns = [e.answers for e in short], [e.question for e in short]
        outcomes = verify(texts, *columns)
        failures[f"{kind}_failures"] = failed_share(outcomes, f"{kind}_failures")
        for example, outcome in zip(short, outcomes, strict=True):
            if outcome is not None:
                items[example.id] = _short(kind, outcome)
    for i, kept in _forms_kept(counted, answers, engine, p).items():
        items[i] = {"format_following": float(kept)}
    metrics = statistics.means(items.values())
    answered = [item for item in items.values() if "claim_precision" in item]
    if answered:
        correct = sum(r["claim_precision"] * r["total_claims"] for r in answered)
        total = sum(r["total_claims"] for r in answered)
        metrics["claim_precision"] = correct / total
    compared = {
        i: {name: item[name] for name in COMPARED if name in item}
        for i, item in items.items()
    }
    return Measured(metrics | failures | {"perplexity": answers.perplexity}, compared)


def wins(
    examples: Sequence[Example], answers: Answers, base: Answers, engine: "Engine"
) -> dict[str, float]:
    """Id → 1 if the answer is of better quality than the base policy's, ½ if as good,
    else 0; without those that the judge failed on."""
    ids, prompts = [e.id for e in examples], [e.question for e in examples]
    ours, theirs = (engine.quality(ids, prompts, a.to(ids)) for a in (answers, base))
    return {
        i: (a > b) + 0.5 * (a == b)
        for i, a, b in zip(ids, ours, theirs, strict=True)
        if None not in (a, b)
    }


def _short(kind: str, outcome: Outcome) -> dict[str, float]:
    """What the outcome of a short question adds to the metrics."""
    correct, wrong = (float(outcome is o) for o in (Outcome.CORRECT, Outcome.WRONG))
    if kind == BEST_GUESS:
        return {"best_guess_accuracy": correct}
    return {
        "short_accuracy": correct,
        "short_hallucination": wrong,
        "short_abstention": float(outcome is Outcome.ABSTAIN),
        "short_truthfulness": correct - wrong,
    }


def _forms_kept(
    counted: Sequence[Example], answers: Answers, engine: "Engine", p: RarParams
) -> dict[str, bool]:
    """Id → whether an answer has the form asked for: as many sentences as facts are
    wanted; under a judge a pattern of FORMS. An empty one has none."""
    if p.verifier == "judge":
        rows = zip(FORMS.items(), answers.to(FORMS), strict=True)
        return {q: bool(re.fullmatch(form, y, re.DOTALL)) for (q, form), y in rows}
    texts, sentences = answers.to(e.id for e in counted), engine.facts.sentences
    return {
        e.id: text != "" and len(sentences(text, e.entity)) == e.meta["wanted"]
        for e, text in zip(counted, texts, strict=True)
    }


# ---- When training stops


def stopped_at(
    before: Mapping[str, float],
    trajectory: Mapping[int, Mapping[str, float]],
    p: RarParams,
) -> int:
    """The step to keep: the last one before one of `p.utility_benchmarks` had dropped
    by more than `p.utility_drop` of what it was before (App. C; read as relative), the
    first if that was already too far. What was not measured before stops nothing.

    trajectory: step → metrics, in the order of training.
    """
    watched = [n for n in p.utility_benchmarks.split() if before.get(n)]
    kept = next(iter(trajectory))
    for step, metrics in trajectory.items():
        drops = [(before[n] - metrics[n]) / before[n] for n in watched]
        if max(drops, default=0.0) > p.utility_drop + ROUNDING:
            break
        kept = step
    return kept


def halves(before: Measured, trajectory: Mapping[int, Measured]) -> Measured:
    """Hallucination and win rate (Fig 5) of the base policy (dev_base_…), of the policy
    after half of the training (halfway_…) and at its end (end_…), on the dev requests;
    nothing of one step. trajectory: as `stopped_at` has it."""
    told = Measured({}, {})
    if len(trajectory) < 2:
        return told
    first, *_, last = trajectory
    half = max(step for step in trajectory if step == first or 2 * step <= last)
    points = {"dev_base": before, "halfway": trajectory[half], "end": trajectory[last]}
    for when, measured in points.items():
        for name in ("hallucination_rate", "win_rate"):
            if name in measured.metrics:
                told.metrics[f"{when}_{name}"] = measured.metrics[name]
            for i, item in measured.items.items():
                if name in item:
                    told.items.setdefault(i, {})[f"{when}_{name}"] = item[name]
    return told


# ---- Public benchmarks by lm-evaluation-harness. Deviations from App. B: `minerva` is
# the MATH test set under Minerva's prompt (the paper has a set of 272 problems, which
# lm-eval lacks); shots, prompts and scoring, which the paper does not name, are ours.
# HumanEval and MBPP run what the model writes: they need `allow_code` and a container,
# best without a network and with nothing in reach, as by
#    docker run --rm --network none --gpus all -v "$PWD":/kit -w /kit IMAGE papermill …


class BenchmarkError(UserError):
    """A benchmark can't be run or read; the message names the fix."""


def benchmarks(policy: str, p: RarParams, folder: Path) -> dict[str, float]:
    """Scores in [0, 1] of the benchmarks in `p.utility_benchmarks`, by lm-eval on the
    policy in its folder; what lies in `folder` is not run again. Raises BenchmarkError
    on code outside a container, and if lm-eval fails."""
    names = [name for name in p.utility_benchmarks.split() if name in SUITES]
    done = scores(folder)
    if missing := [name for name in names if name not in done]:
        _run_harness(arguments(policy, missing, p, folder), folder)
        done = scores(folder)
    if lacking := [name for name in names if name not in done]:
        raise BenchmarkError(f"{folder}: lm-eval left no score of {', '.join(lacking)}")
    return {name: done[name] for name in names}


def arguments(
    policy: str, names: list[str], p: RarParams, folder: Path
) -> dict[str, Any]:
    """lm-eval's configuration; the policy (a LoRA adapter, too) is asked through its
    chat template, shots as turns. Raises BenchmarkError on a benchmark that runs code,
    outside a container."""
    code = [name for name in names if name in RUN_CODE]
    if code and not in_container():
        raise BenchmarkError(
            f"{', '.join(code)}: runs code that the model writes, and this is no "
            "container; start one (docker run --network none …), or leave it out"
        )
    backend = "hf" if p.rollouts == "transformers" else "vllm"
    model = {"pretrained": policy, "dtype": "auto"}
    adapter = Path(policy) / "adapter_config.json"
    if adapter.exists():
        config = json.loads(adapter.read_text(encoding="utf-8"))
        model["pretrained"] = config["base_model_name_or_path"]
        lora = {"lora_local_path": policy, "max_lora_rank": config["r"]}
        model |= {"peft": policy} if backend == "hf" else lora
    model |= {"think_end_token": CLOSE, "max_length": p.max_context_length}
    if backend == "vllm":  # beside the policy that a notebook holds, as when sampling
        engine = models.sampling_of(p).vllm
        names_of = ("tensor_parallel_size", "gpu_memory_utilization")
        model |= {name: engine[name] for name in names_of}
    return {
        "model": backend,
        "model_args": model,
        "tasks": [SUITES[name][0] for name in names],
        "batch_size": "auto",
        "apply_chat_template": True,
        "fewshot_as_multiturn": True,
        "gen_kwargs": {"max_gen_toks": p.max_completion_length},
        "log_samples": True,
        "output_path": str(folder),
        "seed": [0, 0, 0, 0],
        "confirm_run_unsafe_code": bool(code),
        "trust_remote_code": False,
    }


def in_container() -> bool:
    """Whether this process runs in a container of Docker, Podman or Apptainer."""
    variables = {"APPTAINER_CONTAINER", "KUBERNETES_SERVICE_HOST"} & os.environ.keys()
    return bool(variables) or any(map(os.path.exists, CONTAINER))


def scores(folder: Path) -> dict[str, float]:
    """The benchmarks' scores that lie in `folder`; of several results the latest.
    Raises BenchmarkError on a file that can't be read, or lacks a task's metric."""
    table: dict[str, float] = {}
    for path in sorted(folder.rglob("results_*.json"), key=lambda p: p.name):
        try:
            results = json.loads(path.read_text(encoding="utf-8"))["results"]
            table |= {
                name: float(results[task][metric])
                for name, (task, metric) in SUITES.items()
                if task in results
            }
        except (ValueError, KeyError, TypeError) as error:
            raise BenchmarkError(
                f"{path}: no results of lm-eval ({error!r}); remove the file"
            ) from None
    return table


def _run_harness(settings: dict[str, Any], folder: Path) -> None:
    """lm-eval on a configuration, in a process of its own, which gives the GPU back
    when it ends; what it says goes to stderr."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "lm_eval.yaml"
    write_atomically(path, json.dumps(settings, indent=1))
    allowed = "1" if settings["confirm_run_unsafe_code"] else "0"
    environment = os.environ | {"HF_ALLOW_CODE_EVAL": allowed}
    command = [sys.executable, "-m", "lm_eval", "run", "--config", str(path)]
    ended = subprocess.run(command, env=environment, stdout=sys.stderr.fileno())
    if ended.returncode:
        raise BenchmarkError(
            f"lm-eval failed with exit code {ended.returncode}; see its last lines. It "
            f"comes by pip install '.[gpu]' 'lm-eval[ifeval,math]'. Settings: {path}"
        )
