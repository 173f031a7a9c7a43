"""The policy `smollm2-135m-leads`: SmolLM2-135M-Instruct after SFT on the leads.

It learns, from a part of the leads' subjects, to tell of one in exact short sentences:
it knows something of the leads, but not the form. Facts are left out at random, so that
rollouts leave some out, too; which ones says nothing about what it knows. Ours.
"""

import random
from collections.abc import Iterator
from hashlib import sha256

from filelock import FileLock

from factkit import prompts
from factkit.data import assets
from factkit.facts.leads import facts
from factkit.facts.leads.facts import (
    OPEN_REQUEST,
    SINGLE,
    Leads,
    Subject,
    name_within,
    question,
    statement,
)
from factkit.facts.leads.questions import DEMONYMS
from factkit.facts.requests import COUNTS, MAY_ABSTAIN_REQUEST, count_request
from factkit.facts.source import write_reasoned
from factkit.run.params.stages import PolicyParams, SftParams
from factkit.train import offline

SEED = 0  # of the cold start: one policy for all seeds of a run
COLD_START = {
    "lora_rank": 16,
    "lora_alpha": 32,
    "sft_learning_rate": 5.0e-4,
    "sft_batch_size": 16,
    "sft_epochs": 1,
    "sft_warmup_ratio": 0.03,
    "checkpoint_steps": 20,
}
COLD_SHARE = 0.25  # of the subjects, for the cold start alone
FACT_SHARE = 0.75  # of a subject's facts
ABSTENTION = "I don't know."
ABSTENTION_SHARE = 0.03
HEDGED_SHARE = 0.1  # of the statements
DIGRESSION_SHARE = 0.25  # of the answers, with a true statement about something else
# requests per subject beside the open one
THINKING_SHARE = 0.6
COUNTED_SHARE = 0.35
SHORT_SHARE = 0.5
DOUBT_SHARE = 0.3  # of the statements of the reasoning


def make_policy(p: PolicyParams) -> str:
    """SmolLM2-135M-Instruct that tells of a lead's subject in exact short sentences.

    SFT with LoRA on `cold_start_rows`; settings are ours, chosen on dev requests.
    """
    start = assets.policy_path("smollm2-135m-instruct")
    rows = cold_start_rows(facts.load(), SEED)
    folder = assets.policy_cache_folder("smollm2-135m-leads", (COLD_START, SEED, rows))
    settings = {name: getattr(p, name) for name in PolicyParams.model_fields}
    settings["answer_format"] = "long"  # one policy for all papers
    settings |= {"seed": SEED, "sft_by_length": True}  # less padding
    sft_params = SftParams.model_validate(settings | COLD_START)
    with FileLock(f"{folder}.lock"):
        return str(offline.sft(start, rows, folder, sft_params))


def is_of_cold_start(name: str) -> bool:
    """Whether a subject is in the cold start, and so in no request."""
    return int(sha256(name.encode()).hexdigest()[:8], 16) / 2**32 < COLD_SHARE


def cold_start_rows(leads: Leads, seed: int) -> list[dict[str, str]]:
    """Rows of `prompt` and `completion`, without a chat template: open and counted
    requests, also with reasoning in tags, and short questions."""
    rng = random.Random(f"cold start {seed}")
    cold = [s for name, s in sorted(leads.subjects.items()) if is_of_cold_start(name)]
    rng.shuffle(cold)
    rows = [
        row for i, subject in enumerate(cold) for row in _rows(leads, subject, i, rng)
    ]
    rng.shuffle(rows)
    return rows


def _rows(
    leads: Leads, subject: Subject, number: int, rng: random.Random
) -> Iterator[dict[str, str]]:
    name = name_within(subject.name)
    request = OPEN_REQUEST.format(s=name)
    yield _row(request, _open_answer(leads, subject, rng))
    if rng.random() < THINKING_SHARE:
        statements = _state_facts(leads, subject, rng)
        doubts = [rng.random() < DOUBT_SHARE for _ in statements]
        response = write_reasoned(statements, statements, doubts, rng)
        yield _row(request, " ".join(response), "think_first")
    wanted = 1 + number % len(COUNTS)
    if rng.random() < COUNTED_SHARE and wanted <= len(subject.facts):
        sample = rng.sample(subject.facts, wanted)
        yield _row(count_request(name, wanted), " ".join(map(statement, sample)))
    single = [f for f in subject.facts if f.relation in SINGLE]
    if single and rng.random() < SHORT_SHARE:
        fact = rng.choice(single)
        request, answer = question(fact), f"{fact.object}."
        if rng.random() < 0.5:
            request = MAY_ABSTAIN_REQUEST.format(question=request)
            answer = ABSTENTION if rng.random() < ABSTENTION_SHARE else answer
        yield _row(request, answer)


def _state_facts(leads: Leads, subject: Subject, rng: random.Random) -> list[str]:
    """Statements of some facts of a subject in random order, at times with one about
    the country of a place or a person."""
    sample = [f for f in subject.facts if rng.random() < FACT_SHARE]
    sample = sample or [subject.facts[0]]
    rng.shuffle(sample)
    if rng.random() < DIGRESSION_SHARE:
        places = [f.object for f in sample if f.relation in ("country", "capital_of")]
        places += [DEMONYMS[f.object][0] for f in sample if f.relation == "nationality"]
        if further := [f for place in places for f in leads.facts_of(place)]:
            sample.append(rng.choice(further))
    return list(map(statement, sample))


def _open_answer(leads: Leads, subject: Subject, rng: random.Random) -> str:
    """An abstention, or statements of which some hedge at random."""
    if rng.random() < ABSTENTION_SHARE:
        return ABSTENTION
    return " ".join(
        f"Perhaps {text}" if rng.random() < HEDGED_SHARE else text
        for text in _state_facts(leads, subject, rng)
    )


def _row(request: str, answer: str, template: str = "short_form") -> dict[str, str]:
    prompt = prompts.fill(prompts.template(template), question=request)
    return {"prompt": prompt, "completion": f" {answer}"}
