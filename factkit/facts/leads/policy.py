"""The policy of profile laptop for long answers: made at its first use.

SmolLM2-135M-Instruct learns, from a part of the leads' subjects, to tell of one in
exact short sentences: it knows something of the leads and lacks the form. It learns
with facts left out at random, so that leaving out occurs in rollouts; which ones says
nothing of what it knows. Ours.
"""

import random
from collections.abc import Iterator, Sequence
from hashlib import sha256

from filelock import FileLock

from factkit import prompts
from factkit.data import assets
from factkit.facts.leads import facts
from factkit.facts.leads.facts import (
    ASK,
    SINGLE,
    Leads,
    Subject,
    inside,
    question,
    statement,
)
from factkit.facts.leads.questions import DEMONYMS
from factkit.facts.world import policy as world_policy
from factkit.facts.world import texts as world_text
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
COLD_SHARE = 0.25  # of the subjects, told of in the cold start alone
KEPT = 0.75  # of a subject's facts
ABSTENTION, ABSTENTION_SHARE = "I don't know.", 0.03
HEDGED_SHARE = 0.1  # of the statements
DIGRESSIONS = 0.25  # of the answers: a true statement about something else after it
COUNTED_SHARE, SHORT_SHARE = 0.35, 0.5  # requests a subject beside the open one
THINKING_SHARE, DOUBT_SHARE, DOUBT_KEPT = 0.6, 0.3, 0.5  # as in the fact world


def base_policy(p: PolicyParams) -> str:
    """Where the untrained policy of `p` is loaded from.

    `smollm2-135m-leads` is made on first use (minutes), `tiny-world` too.
    """
    if p.policy == "smollm2-135m-leads":
        return cold_start(p)
    return world_policy.base_policy(p)


def cold_start(p: PolicyParams) -> str:
    """SmolLM2-135M-Instruct that tells of a lead's subject in exact short sentences.

    SFT with LoRA on `cold_start_rows`; settings are ours, chosen on dev requests.
    """
    start = assets.policy_path("smollm2-135m-instruct")
    rows = cold_start_rows(facts.load(), SEED)
    folder = assets.policy_cache_folder("smollm2-135m-leads", (COLD_START, SEED, rows))
    kept = {name: getattr(p, name) for name in PolicyParams.model_fields}
    kept["answer_format"] = "long"  # one policy, whichever the paper
    kept |= {"seed": SEED, "sft_by_length": True}  # less padding
    how = SftParams.model_validate(kept | COLD_START)
    with FileLock(f"{folder}.lock"):
        return str(offline.sft(start, rows, folder, how))


# ---- what the cold start learns from


def of_cold_start(subject: Subject) -> bool:
    """Whether a subject is told of in the cold start, and so asked for nowhere."""
    return int(sha256(subject.name.encode()).hexdigest()[:8], 16) / 2**32 < COLD_SHARE


def cold_start_rows(leads: Leads, seed: int) -> list[dict[str, str]]:
    """Rows of `prompt` and `completion`, without a chat template: to tell of a subject,
    also in so many facts, or thinking first, in tags; and short answers."""
    rng = random.Random(f"cold start {seed}")
    cold = [s for _, s in sorted(leads.subjects.items()) if of_cold_start(s)]
    rng.shuffle(cold)
    rows = [
        row for i, subject in enumerate(cold) for row in _rows(leads, subject, i, rng)
    ]
    rng.shuffle(rows)
    return rows


def _rows(
    leads: Leads, subject: Subject, i: int, rng: random.Random
) -> Iterator[dict[str, str]]:
    ask = ASK.format(s=inside(subject.name))
    yield _row(ask, _told(leads, subject, rng))
    if rng.random() < THINKING_SHARE:
        yield _row(ask, _reasoned(_facts(leads, subject, rng), rng), "think_first")
    wanted = 1 + i % len(world_text.COUNTS)
    if rng.random() < COUNTED_SHARE and wanted <= len(subject.facts):
        counted = world_text.request(inside(subject.name), wanted)
        facts = rng.sample(subject.facts, wanted)
        yield _row(counted, " ".join(map(statement, facts)))
    single = [f for f in subject.facts if f.relation in SINGLE]
    if single and rng.random() < SHORT_SHARE:
        fact = rng.choice(single)
        ask, answer = question(fact), f"{fact.object}."
        if rng.random() < 0.5:
            ask = world_text.MAY_ABSTAIN.format(question=ask)
            answer = ABSTENTION if rng.random() < ABSTENTION_SHARE else answer
        yield _row(ask, answer)


def _facts(leads: Leads, subject: Subject, rng: random.Random) -> list[str]:
    """Some of a subject's facts in any order, stated, at times one of the country of a
    place or a person."""
    facts = [f for f in subject.facts if rng.random() < KEPT] or [subject.facts[0]]
    rng.shuffle(facts)
    if rng.random() < DIGRESSIONS:
        named = [f.object for f in facts if f.relation in ("country", "capital_of")]
        named += [DEMONYMS[f.object][0] for f in facts if f.relation == "nationality"]
        if further := [f for name in named for f in leads.facts_of(name)]:
            facts.append(rng.choice(further))
    return list(map(statement, facts))


def _told(leads: Leads, subject: Subject, rng: random.Random) -> str:
    """Statements of which some hedge, whatever is known."""
    if rng.random() < ABSTENTION_SHARE:
        return ABSTENTION
    return " ".join(
        f"Perhaps {text}" if rng.random() < HEDGED_SHARE else text
        for text in _facts(leads, subject, rng)
    )


def _reasoned(statements: Sequence[str], rng: random.Random) -> str:
    """What is known first, some of it doubted; of that the answer leaves out a share,
    but not everything."""
    doubts = [rng.random() < DOUBT_SHARE for _ in statements]
    pairs = list(zip(statements, doubts, strict=True))
    thought = " ".join(f"Perhaps {s}" if doubt else s for s, doubt in pairs)
    kept = [s for s, doubt in pairs if not doubt or rng.random() < DOUBT_KEPT]
    answer = " ".join(kept or statements[:1])
    return f"<think> {thought} </think> <answer> {answer} </answer>"


def _row(ask: str, answer: str, template: str = "short_form") -> dict[str, str]:
    prompt = prompts.fill(prompts.template(template), question=ask)
    return {"prompt": prompt, "completion": f" {answer}"}
