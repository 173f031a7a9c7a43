"""Learning to Reason's requests, for SFT, RL, validation and test (§2.1, App. A).

`meta["set"]` names the evaluation set. An LLM writes the synthetic prompts: each call
shows 2 fact-seeking prompts (LongFact) and 4 diverse real ones (WildChat), drawn at
random, and returns one new prompt (App. E, Fig. 5; the template is in our words). The
paper leaves open, and ours is: sampling, lengths, and that near duplicates of another
prompt, a demonstration or an evaluation prompt, by their words, are dropped.
"""

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256

from factkit import prompts
from factkit.answers.requests import embedded_sets, file_of, keep_factual
from factkit.answers.verifier import judge_llm
from factkit.data import rows, sources
from factkit.data.examples import Example, hash_id, refuse_overlap
from factkit.data.long_form_prompts import long_form_example
from factkit.data.near_duplicates import ShingleIndex
from factkit.data.rows import Row, RowError
from factkit.data.sources import Loaded, collect
from factkit.data.splits import Sets, in_set, split_prompts
from factkit.papers.reason.arms import ReasonParams
from factkit.papers.reason.needs import CALLS, PART
from factkit.policy.decoding import Sampling
from factkit.verify.judge import quote
from factkit.verify.llm import LLM, Request
from factkit.verify.response import extract_answer

FACTUAL = ("fava", "alpaca_fact")  # their part was chosen for seeking facts
DIVERSE = 2_000  # prompts of WildChat that demonstrations are drawn from
SHOWN = (2, 4)  # demonstrations per call, fact-seeking and diverse (Fig. 5)
PROMPT_CHARS = (15, 1_000)  # bounds of a new prompt's length
OPEN, CLOSE = "<new_prompt>", "</new_prompt>"
# similarity of near duplicates: of LongFact's 2,271 different prompts, 11 have another
# one this near; at 0.5, 123 would
NEAR = 0.7


def reason_sets(p: ReasonParams) -> tuple[Sets, Counter]:
    """sft, train, dev and test requests, and counts of what was dropped.

    No entity is in two of them. test holds p.test_requests of each evaluation set, or
    as many as there are. Synthetic prompts are written after LongFact's concepts, since
    its objects are evaluated on (App. A).
    """
    if p.requests != "synthetic":
        return embedded_sets(p)
    llm = judge_llm(p, p.judge_model, p.judge_url)
    tests = {}
    for name in p.eval_sets.split():
        examples, _ = sources.load(name, file_of(p, name))
        tests[name] = evaluated(name, examples, p, llm)
    longfact, _ = sources.load("longfact", file_of(p, "longfact"))
    concepts = [e for e in longfact if e.meta["kind"] == "concepts"]
    diverse, _ = sources.load("wildchat", file_of(p, "wildchat"), DIVERSE)
    sizes = {"train": p.train_requests, "sft": p.sft_requests, "dev": p.dev_requests}
    calls = round(CALLS * sum(sizes.values()))
    new_prompts, dropped = synthetic_prompts(llm, concepts, diverse, calls, tests)
    synthetic = [in_set(e, "synthetic") for e in new_prompts]
    test = [in_set(e, name) for name, examples in tests.items() for e in examples]
    return split_prompts(synthetic, sizes, p.split_seed) | {"test": test}, dropped


def evaluated(
    name: str, rows: Sequence[Example], p: ReasonParams, llm: LLM
) -> list[Example]:
    """A sample of an evaluation set's prompts, p.test_requests at most.

    The paper takes a part of some sets (`PART`), published nowhere: as many are drawn
    at random, and for a part chosen for seeking facts, from the prompts that the LLM
    calls factual (ours). A file that holds no more than the part is taken as it is.
    """
    part = PART.get(name, len(rows))
    if name in FACTUAL and len(rows) > part:
        rows = keep_factual(llm, rows)[0]
    n = min(part, p.test_requests, len(rows))
    return random.Random(f"evaluated {name}").sample(rows, n)


# Synthetic prompts


def synthetic_prompts(
    llm: LLM,
    fact_seeking: Sequence[Example],
    diverse: Sequence[Example],
    calls: int,
    evaluation: Mapping[str, Sequence[Example]],
) -> Loaded:
    """New prompts without near duplicates, and counts of why others were dropped.

    calls: requests to the LLM, each for one prompt, of which some are dropped; more
    calls leave the first requests, and their cached replies, as they are. evaluation:
    set → its prompts. An id is a hash of the prompt; `meta` names the demonstrations.
    Raises DataError if a demonstration or its entity is in an evaluation set, or if no
    reply is usable.
    """
    demonstrations = [*fact_seeking, *diverse]
    for name, examples in evaluation.items():
        refuse_overlap({name: examples, "the demonstrations": demonstrations})
    groups = []
    for call in range(calls):
        rng = random.Random(f"synthetic 0 {call}")
        sources = zip((fact_seeking, diverse), SHOWN, strict=True)
        groups.append([rng.sample(source, n) for source, n in sources])
    requests = [_request(call, *group) for call, group in enumerate(groups)]
    replies = llm.run(requests, progress="writing prompts")
    values = [
        {
            "reply": reply.text if reply.finished else None,
            "shown": [e.id for examples in group for e in examples],
        }
        for reply, group in zip(replies, groups, strict=True)
    ]
    new_prompts, dropped = collect(values, _example, "the LLM's replies", once=True)
    known, earlier, unique = ShingleIndex(), ShingleIndex(), []
    for name, examples in {**evaluation, "a demonstration": demonstrations}.items():
        for example in examples:
            known.add(example.question, name)
    for example in new_prompts:
        matches = [index.nearest(example.question) for index in (known, earlier)]
        near = [name for name, similarity in matches if similarity >= NEAR]
        if near:
            dropped[f"near duplicate of {near[0]}"] += 1
        else:
            earlier.add(example.question, "an earlier prompt")
            unique.append(example)
    return unique, dropped


def _request(
    call: int, fact_seeking: Sequence[Example], diverse: Sequence[Example]
) -> Request:
    """The request of a call: its number is a sample of its own in the cache, and the
    demonstrations are JSON, so that none can pass for our text."""
    name = "synthetic_prompt"
    text = prompts.template(name)
    filled = prompts.fill(
        text,
        fact_seeking=quote([e.question for e in fact_seeking]),
        diverse=quote([e.question for e in diverse]),
    )
    return Request(
        messages=({"role": "user", "content": filled},),
        template=f"{name}@{sha256(text.encode()).hexdigest()[:8]}",
        sampling=Sampling(512, 1.0),
        sample=call,
    )


def _example(row: Row) -> Example:
    prompt = parse_new_prompt(row["reply"])
    name = hash_id("synthetic", prompt)
    meta = {"shown": row["shown"]}
    return long_form_example(name, prompt, name, meta=meta)


def parse_new_prompt(reply: str | None) -> str:
    """The text in a reply's one pair of tags after its reasoning, with single spaces.

    Raises RowError with the reason on a failed call, on no pair of tags or several, and
    on a length outside PROMPT_CHARS.
    """
    if reply is None:
        raise RowError("the call failed")
    text = extract_answer(reply, boxed_required=False)
    if re.findall(f"{OPEN}|{CLOSE}", text) != [OPEN, CLOSE]:
        raise RowError(f"not one pair of {OPEN} tags")
    inside = text.partition(OPEN)[2].partition(CLOSE)[0]
    prompt = rows.string("prompt", " ".join(inside.split()))
    least, most = PROMPT_CHARS
    if not least <= len(prompt) <= most:
        raise RowError(f"prompt too {'short' if len(prompt) < least else 'long'}")
    return prompt
