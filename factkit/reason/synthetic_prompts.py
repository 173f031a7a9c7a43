"""Synthetic fact-seeking prompts by an LLM (Learning to Reason for Factuality §2.1).

Each call shows 2 fact-seeking prompts (in the paper LongFact's, outside of its test
part) and 4 diverse real ones (WildChat's), drawn at random, and gets one new prompt
back, which should seek facts as the former and be as close to life as the latter (App.
E, Fig. 5; the template is in our words). The paper has 7,000, 3,000 of them for SFT and
4,000 for RL: `splits.split_prompts` divides them.

Ours, since the paper doesn't speak of it: sampling, lengths, and that near duplicates
are left out, be it of one another, of a demonstration or of a prompt to evaluate on.
These go by words and not by sense: a question put in quite other words stays.
"""

import random
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from factkit import prompts
from factkit.datasets import rows
from factkit.datasets.examples import DataError, Example, made_id, refuse_overlap
from factkit.datasets.long_form_prompts import long_prompt
from factkit.datasets.rows import Loaded, Row, RowError, collected
from factkit.llm import Request
from factkit.models import Sampling
from factkit.verify.judge import quoted
from factkit.verify.response import final_answer

if TYPE_CHECKING:
    from factkit.llm import LLM

TEMPLATE, TEMPERATURE = "synthetic_prompt", 1.0
FACT_SEEKING, DIVERSE = 2, 4  # demonstrations a call, of each group (Fig. 5)
REPLY_TOKENS = 512
NEW_PROMPT_CHARS = (15, 1_000)  # the least and the most of a new prompt
OPEN, CLOSE = "<new_prompt>", "</new_prompt>"
TAG = re.compile(f"{OPEN}|{CLOSE}")
SHINGLE = 3  # words
# From here on two prompts are near duplicates. Of LongFact's 2,271 prompts, all of them
# different questions, 11 come this near to another: "What can you tell me about" two
# battles. At 0.5 it would be 123.
NEAR = 0.7

Shingles = frozenset[tuple[str, ...]]


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
    prompt's id is a hash of it; its meta names the demonstrations. Equal for equal
    arguments and replies; more calls leave the first ones' requests as they were, so
    that cached replies serve again.
    Raises DataError if a demonstration, or what it is about, is in an evaluation set,
    if there are too few demonstrations, or if no reply is usable.
    """
    shown = [*fact_seeking, *diverse]
    for name, examples in evaluation.items():
        refuse_overlap({name: examples, "the demonstrations": shown})
    demonstrations = [_drawn(fact_seeking, diverse, call) for call in range(calls)]
    requests = [_request(call, *groups) for call, groups in enumerate(demonstrations)]
    replies = llm.run(requests, progress="writing prompts")
    values = [
        {
            "reply": reply.text if reply.finished else None,
            "shown": [e.id for group in groups for e in group],
        }
        for reply, groups in zip(replies, demonstrations, strict=True)
    ]
    written, dropped = collected(values, _example, "the LLM's replies", once=True)
    known, earlier = NearDuplicates(), NearDuplicates()
    for name, examples in {**evaluation, "a demonstration": shown}.items():
        for example in examples:
            known.add(name, example.question)
    kept = []
    for example in written:
        near = known.nearest(example.question) or earlier.nearest(example.question)
        if near:
            dropped[f"near duplicate of {near}"] += 1
        else:
            earlier.add("an earlier prompt", example.question)
            kept.append(example)
    return kept, dropped


def _drawn(
    fact_seeking: Sequence[Example], diverse: Sequence[Example], call: int
) -> tuple[list[Example], list[Example]]:
    """The fact-seeking and the diverse prompts that one call shows."""
    if len(fact_seeking) < FACT_SEEKING or len(diverse) < DIVERSE:
        raise DataError(
            f"{len(fact_seeking)} fact-seeking and {len(diverse)} diverse prompts: a "
            f"call shows {FACT_SEEKING} and {DIVERSE}; give more"
        )
    rng = random.Random(f"synthetic 0 {call}")
    return rng.sample(fact_seeking, FACT_SEEKING), rng.sample(diverse, DIVERSE)


def _request(
    call: int, fact_seeking: Sequence[Example], diverse: Sequence[Example]
) -> Request:
    """A sample of its own for each call: the cache gives none of them twice.

    The demonstrations arrive as JSON (`quoted`), so that none can pass for our text.
    """
    text = prompts.template(TEMPLATE)
    filled = prompts.fill(
        text,
        fact_seeking=quoted([e.question for e in fact_seeking]),
        diverse=quoted([e.question for e in diverse]),
    )
    return Request(
        messages=({"role": "user", "content": filled},),
        template=f"{TEMPLATE}@{sha256(text.encode()).hexdigest()[:8]}",
        sampling=Sampling(REPLY_TOKENS, TEMPERATURE),
        sample=call,
    )


def _example(row: Row) -> Example:
    prompt = parse_new_prompt(row["reply"])
    name = made_id("synthetic", prompt)
    return long_prompt(name, prompt, name, meta={"shown": row["shown"]})


def parse_new_prompt(reply: str | None) -> str:
    """What stands between a reply's one pair of tags, white space made single spaces.

    Reasoning that the reply begins with does not count. Raises RowError, which names
    the reason, on a failed call, on no such pair or more than one, and on a prompt that
    is empty or not as long as `NEW_PROMPT_CHARS` says.
    """
    if reply is None:
        raise RowError("the call failed")
    text = final_answer(reply, boxed_required=False)
    tags = TAG.findall(text)
    if tags != [OPEN, CLOSE]:
        known = {(): f"no {OPEN}", (OPEN,): f"{OPEN} not closed"}
        raise RowError(known.get(tuple(tags), f"not one pair of {OPEN} tags"))
    inside = text.partition(OPEN)[2].partition(CLOSE)[0]
    prompt = rows.string("prompt", " ".join(inside.split()))
    least, most = NEW_PROMPT_CHARS
    if not least <= len(prompt) <= most:
        how = "too short" if len(prompt) < least else "too long"
        raise RowError(f"prompt {how if prompt else 'empty'}")
    return prompt


# ---- near duplicates


class NearDuplicates:
    """Texts with names, of which the one that another text comes near is found.

    Near is a Jaccard similarity of their `shingles` of at least `threshold`.
    """

    def __init__(self, threshold: float = NEAR) -> None:
        self.threshold = threshold
        self._added: list[tuple[str, Shingles]] = []
        self._with: dict[tuple[str, ...], list[int]] = defaultdict(list)

    def add(self, name: str, text: str) -> None:
        """Put in a text, and the name that `nearest` shall return for it."""
        own = shingles(text)
        for run in own:
            self._with[run].append(len(self._added))
        self._added.append((name, own))

    def nearest(self, text: str) -> str | None:
        """The name of the nearest text, of several the first; None if none is near."""
        own = shingles(text)
        sharing = {n for run in own for n in self._with.get(run, ())}
        best, most = None, 0.0
        for number in sorted(sharing):
            name, other = self._added[number]
            similarity = jaccard(own, other)
            if similarity >= self.threshold and similarity > most:
                best, most = name, similarity
        return best


def shingles(text: str) -> Shingles:
    """The runs of `SHINGLE` words, without case and punctuation.

    A text of fewer words is one run.
    """
    words = re.findall(r"\w+", text.casefold())
    starts = range(max(1, len(words) - SHINGLE + 1))
    return frozenset(tuple(words[i : i + SHINGLE]) for i in starts)


def jaccard(one: Shingles, other: Shingles) -> float:
    """|A ∩ B| / |A ∪ B| of two sets that are not empty."""
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared)
