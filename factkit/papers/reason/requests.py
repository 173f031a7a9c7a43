"""Learning to Reason's requests: for SFT, for DPO and RL, to choose by, to test on.

§2.1 and App. A of the paper; the small profiles have requests of their own. Each one's
`meta["set"]` names the evaluation set that it belongs to or is like.

Synthetic prompts are written by an LLM (§2.1). Each call shows 2 fact-seeking prompts
(LongFact's) and 4 diverse real ones (WildChat's), drawn at random, and gets one new
prompt back, which should seek facts as the former and be as close to life as the latter
(App. E, Fig. 5; the template is in our words). Ours, since the paper doesn't speak of
it: sampling, lengths, and that near duplicates are left out, be it of one another, of a
demonstration or of a prompt to evaluate on. These go by words and not by sense.
"""

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from factkit import prompts
from factkit.answers.requests import embedded_sets, file_of, keep_factual
from factkit.answers.verifier import judge_llm
from factkit.data import rows, sources
from factkit.data.examples import Example, hash_id, refuse_overlap
from factkit.data.long_form_prompts import long_form_example
from factkit.data.rows import Row, RowError
from factkit.data.sources import Loaded, collect
from factkit.data.splits import Sets, in_set, split_prompts
from factkit.policy.decoding import Sampling
from factkit.verify.judge import quoted
from factkit.verify.llm import Request
from factkit.verify.response import final_answer

if TYPE_CHECKING:
    from factkit.papers.reason.arms import ReasonParams
    from factkit.verify.llm import LLM

CALLS = 1.5  # of the writing model for each prompt wanted: some are dropped
# prompts that the paper evaluates on, of sets of which it takes a part (App. A)
PART = {"longfact_objects": 250, "fava": 141, "alpaca_fact": 241}
FACTUAL = ("fava", "alpaca_fact")  # parts chosen for seeking facts
DIVERSE = 2_000  # WildChat's prompts that demonstrations are drawn from
SHOWN = (2, 4)  # demonstrations a call, fact-seeking and diverse (Fig. 5)
PROMPT_CHARS = (15, 1_000)  # the least and the most of a new prompt
OPEN, CLOSE = "<new_prompt>", "</new_prompt>"
SHINGLE = 3  # words
# From here on two prompts are near duplicates. Of LongFact's 2,271 prompts, all of them
# different questions, 11 come this near to another: "What can you tell me about" two
# battles. At 0.5 it would be 123.
NEAR = 0.7


def reason_sets(p: "ReasonParams") -> tuple[Sets, Counter]:
    """sft, train, dev and test requests, and counts of what was dropped.

    No entity is in two of them. test holds p.test_requests of each evaluation set, or
    as many as there are.
    """
    if load := LOADERS.get(p.requests):
        return load(p)
    # about unfamiliar people, Eq. 2 is the same for made-up answers and for none
    return embedded_sets(p, familiar=True)


def _synthetic_sets(p: "ReasonParams") -> tuple[Sets, Counter]:
    """Prompts that a model writes (§2.1), and the paper's evaluation sets (App. A).

    It is shown LongFact's concepts, since its objects are an evaluation set.
    """
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
    written, dropped = synthetic_prompts(llm, concepts, diverse, calls, tests)
    made = [in_set(e, "synthetic") for e in written]
    test = [in_set(e, name) for name, examples in tests.items() for e in examples]
    return split_prompts(made, sizes, p.split_seed) | {"test": test}, dropped


LOADERS = {"synthetic": _synthetic_sets}  # of public data


def evaluated(
    name: str, rows: Sequence[Example], p: "ReasonParams", llm: "LLM"
) -> list[Example]:
    """The prompts of an evaluation set that are evaluated on, p.test_requests at most.

    Of a set of which the paper takes a part that is published nowhere, as many as it
    takes are drawn from all (a set goes by topic: its first ones are of few), and where
    its part was chosen for seeking facts, from those that do so by the LLM (ours). A
    file that holds no more than the part is taken as it is.
    """
    part = PART.get(name, len(rows))
    if name in FACTUAL and len(rows) > part:
        rows = keep_factual(llm, rows)[0]
    n = min(part, p.test_requests, len(rows))
    return random.Random(f"evaluated {name}").sample(rows, n)


# Synthetic prompts


def synthetic_prompts(
    llm: "LLM",
    fact_seeking: Sequence[Example],
    diverse: Sequence[Example],
    calls: int,
    evaluation: Mapping[str, Sequence[Example]],
) -> Loaded:
    """New prompts that come near no other, and a count of each reason to drop one.

    calls: requests to the LLM, each for one prompt; some are dropped, so ask for more
    than you need. evaluation: name → prompts of each set that is evaluated on. A
    prompt's id is a hash of it; its meta names the demonstrations. More calls leave the
    first ones' requests as they were, so that cached replies serve again.
    Raises DataError if a demonstration, or what it is about, is in an evaluation set,
    or if no reply is usable.
    """
    shown = [*fact_seeking, *diverse]
    for name, examples in evaluation.items():
        refuse_overlap({name: examples, "the demonstrations": shown})
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
    written, dropped = collect(values, _example, "the LLM's replies", once=True)
    known = [
        (name, shingles(e.question))
        for name, examples in {**evaluation, "a demonstration": shown}.items()
        for e in examples
    ]
    kept, earlier = [], []
    for example in written:
        own = shingles(example.question)
        if near := nearest(own, known) or nearest(own, earlier):
            dropped[f"near duplicate of {near}"] += 1
        else:
            earlier.append(("an earlier prompt", own))
            kept.append(example)
    return kept, dropped


def _request(
    call: int, fact_seeking: Sequence[Example], diverse: Sequence[Example]
) -> Request:
    """A sample of its own for each call: the cache gives none of them twice.

    The demonstrations arrive as JSON (`quoted`), so that none can pass for our text.
    """
    name = "synthetic_prompt"
    text = prompts.template(name)
    filled = prompts.fill(
        text,
        fact_seeking=quoted([e.question for e in fact_seeking]),
        diverse=quoted([e.question for e in diverse]),
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
    """What stands between a reply's one pair of tags, white space made single spaces.

    Reasoning that the reply begins with does not count. Raises RowError, which names
    the reason, on a failed call, on no such pair or more than one, and on a prompt that
    is not as long as PROMPT_CHARS says.
    """
    if reply is None:
        raise RowError("the call failed")
    text = final_answer(reply, boxed_required=False)
    if re.findall(f"{OPEN}|{CLOSE}", text) != [OPEN, CLOSE]:
        raise RowError(f"not one pair of {OPEN} tags")
    inside = text.partition(OPEN)[2].partition(CLOSE)[0]
    prompt = rows.string("prompt", " ".join(inside.split()))
    least, most = PROMPT_CHARS
    if not least <= len(prompt) <= most:
        raise RowError(f"prompt too {'short' if len(prompt) < least else 'long'}")
    return prompt


Shingles = frozenset[tuple[str, ...]]


def shingles(text: str) -> Shingles:
    """The runs of SHINGLE words, without case and punctuation; a text of fewer words is
    one run."""
    words = re.findall(r"\w+", text.casefold())
    starts = range(max(1, len(words) - SHINGLE + 1))
    return frozenset(tuple(words[i : i + SHINGLE]) for i in starts)


def nearest(own: Shingles, others: Sequence[tuple[str, Shingles]]) -> str | None:
    """The name of a text with a Jaccard similarity |A ∩ B| / |A ∪ B| of NEAR or more,
    the nearest, of several the first; None if none is near."""
    similarities = [
        (len(own & other) / len(own | other), name)
        for name, other in others
        if not own.isdisjoint(other)
    ]
    best, name = max(similarities, key=lambda pair: pair[0], default=(0.0, None))
    return name if best >= NEAR else None
