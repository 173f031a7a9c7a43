"""Synthetic fact-seeking prompts by an LLM (Learning to Reason for Factuality §2.1).

Each call shows 2 fact-seeking prompts (in the paper LongFact's, outside of its test
part) and 4 diverse real ones (WildChat's), drawn at random, and gets one new prompt
back, which should seek facts as the former and be as close to life as the latter (App.
E, Fig. 5; the template is in our words). The paper has 7,000, 3,000 of them for SFT and
4,000 for RL: `long_form_prompts.split_prompts` divides them.

Ours, since the paper doesn't speak of it: sampling, lengths, and that near duplicates
are left out, be it of one another, of a demonstration or of a prompt to evaluate on.
These go by words and not by sense: a question put in quite other words stays.
"""

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from factkit import prompts
from factkit.datasets import rows
from factkit.datasets.examples import DataError, Example, refuse_overlap
from factkit.datasets.long_form_prompts import Loaded, collected, long_prompt
from factkit.datasets.rows import Row, RowError
from factkit.llm import Request
from factkit.models import Sampling
from factkit.verify.judge import quoted
from factkit.verify.response import final_answer

if TYPE_CHECKING:
    from datasketch import MinHash

    from factkit.llm import LLM

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
PERMUTATIONS = 128  # of a MinHash
PROPOSED = 0.7  # of a threshold: about from there on MinHash proposes pairs
WEIGHTS = 0.1, 0.9  # of proposals in vain, which cost time, and of misses

Shingles = frozenset[tuple[str, ...]]


def synthetic_prompts(
    llm: "LLM",
    fact_seeking: Sequence[Example],
    diverse: Sequence[Example],
    calls: int,
    evaluation: Mapping[str, Sequence[Example]],
    seed: int = 0,
    temperature: float = 1.0,
    threshold: float = NEAR,
    template: str = "synthetic_prompt",
) -> Loaded:
    """New prompts that come near no other, and a count of each reason to drop one.

    calls: requests to the LLM, each for one prompt; some are dropped, so ask for more
    than you need. evaluation: name → prompts of each set that is evaluated on.
    threshold: Jaccard similarity from which prompts are near duplicates. Equal for
    equal arguments and replies; more calls leave the first ones' requests as they were,
    so that cached replies serve again.
    Raises DataError if a demonstration, or what it is about, is in an evaluation set,
    if there are too few demonstrations, or if no reply is usable.
    """
    shown = [*fact_seeking, *diverse]
    for name, examples in evaluation.items():
        refuse_overlap({name: examples, "the demonstrations": shown})
    written, unusable = written_prompts(
        llm, fact_seeking, diverse, calls, seed, temperature, template
    )
    known = {**evaluation, "a demonstration": shown}
    near = overlaps(written, known, threshold)
    overlapping = Counter(f"near duplicate of {name}" for name, _ in near.values())
    new = [e for e in written if e.id not in near]
    kept, repeated = without_near_duplicates(new, threshold)
    return kept, unusable + overlapping + repeated


def written_prompts(
    llm: "LLM",
    fact_seeking: Sequence[Example],
    diverse: Sequence[Example],
    calls: int,
    seed: int = 0,
    temperature: float = 1.0,
    template: str = "synthetic_prompt",
) -> Loaded:
    """The prompts that the LLM writes, no two equal but for case and white space.

    Each has a hash of itself as its id, and names its demonstrations in meta. Not
    compared with anything else yet: `overlaps`, `without_near_duplicates`.
    Raises as `synthetic_prompts`.
    """
    if calls < 1 or not temperature > 0:
        raise ValueError(
            f"calls={calls}, temperature={temperature}: there must be a call, and a "
            "temperature above 0, or equal demonstrations bring equal prompts"
        )
    drawn = [demonstrations(fact_seeking, diverse, seed, i) for i in range(calls)]
    requests = _requests(drawn, temperature, template)
    replies = llm.run(requests, progress="writing prompts")
    values = [
        {
            "reply": reply.text if reply.finished else None,
            "shown": [e.id for group in groups for e in group],
        }
        for reply, groups in zip(replies, drawn, strict=True)
    ]
    return collected(values, _example, "the LLM's replies", once=True)


def demonstrations(
    fact_seeking: Sequence[Example], diverse: Sequence[Example], seed: int, call: int
) -> tuple[list[Example], list[Example]]:
    """The fact-seeking and the diverse prompts that one call shows.

    Raises DataError if there are fewer than `FACT_SEEKING` or `DIVERSE` to draw from.
    """
    if len(fact_seeking) < FACT_SEEKING or len(diverse) < DIVERSE:
        raise DataError(
            f"{len(fact_seeking)} fact-seeking and {len(diverse)} diverse prompts: a "
            f"call shows {FACT_SEEKING} and {DIVERSE}; give more"
        )
    draw = random.Random(f"synthetic {seed} {call}")
    return draw.sample(fact_seeking, FACT_SEEKING), draw.sample(diverse, DIVERSE)


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


def _requests(
    drawn: Sequence[tuple[list[Example], list[Example]]],
    temperature: float,
    template: str,
) -> list[Request]:
    """A request a draw, each a sample of its own: the cache gives none of them twice.

    The demonstrations arrive as JSON (`quoted`), so that none can pass for our text.
    """
    text = prompts.template(template)
    version = f"{template}@{sha256(text.encode()).hexdigest()[:8]}"
    requests = []
    for call, groups in enumerate(drawn):
        facts, others = (quoted([e.question for e in group]) for group in groups)
        filled = prompts.fill(text, fact_seeking=facts, diverse=others)
        requests.append(
            Request(
                messages=({"role": "user", "content": filled},),
                template=version,
                sampling=Sampling(REPLY_TOKENS, temperature),
                sample=call,
            )
        )
    return requests


def _example(row: Row) -> Example:
    prompt = parse_new_prompt(row["reply"])
    name = f"synthetic-{sha256(prompt.encode()).hexdigest()[:12]}"
    return long_prompt(name, prompt, name, meta={"shown": row["shown"]})


# ---- near duplicates


def overlaps(
    examples: Sequence[Example],
    evaluation: Mapping[str, Sequence[Example]],
    threshold: float = NEAR,
) -> dict[str, tuple[str, Example]]:
    """Which prompts come near one to evaluate on: id → (the set's name, that prompt).

    Of several, the one that comes nearest, and of these the first.
    """
    index = NearDuplicates(threshold)
    for name, others in evaluation.items():
        for other in others:
            index.add((name, other), other.question)
    nearest = {e.id: index.nearest(e.question) for e in examples}
    return {name: found for name, found in nearest.items() if found is not None}


def without_near_duplicates(
    examples: Sequence[Example], threshold: float = NEAR
) -> Loaded:
    """The prompts that come near none kept before them, and a count of the others."""
    index = NearDuplicates(threshold)
    kept: list[Example] = []
    for example in examples:
        if index.nearest(example.question) is None:
            index.add(example, example.question)
            kept.append(example)
    dropped = len(examples) - len(kept)
    reasons = {"near duplicate of an earlier prompt": dropped} if dropped else {}
    return kept, Counter(reasons)


class NearDuplicates:
    """An index of texts that tells which of them another text comes near.

    Near is a Jaccard similarity of their `shingles` of at least `threshold`. MinHash
    (Broder 1997) proposes pairs, the shingles themselves decide: no pair is wrong, and
    of those just at the threshold one in 6,500 is missed (0.7; at 0.5 one in 270).
    Raises ValueError unless 0 < threshold ≤ 1.
    """

    def __init__(self, threshold: float = NEAR) -> None:
        from datasketch import MinHash, MinHashLSH

        if not 0 < threshold <= 1:
            raise ValueError(f"threshold={threshold}; it must be above 0, at most 1")
        self.threshold = threshold
        self._empty = MinHash(PERMUTATIONS)
        self._proposals = MinHashLSH(PROPOSED * threshold, PERMUTATIONS, WEIGHTS)
        self._added: list[tuple[Any, Shingles]] = []

    def add(self, what: Any, text: str) -> None:
        """Put in a text, and what `nearest` shall return for it."""
        found = shingles(text)
        self._proposals.insert(len(self._added), self._minhash(found))
        self._added.append((what, found))

    def nearest(self, text: str) -> Any | None:
        """What came with the text that is nearest, None if none is near."""
        found = shingles(text)
        numbers = sorted(self._proposals.query(self._minhash(found)))
        proposed = [self._added[number] for number in numbers]
        near = [(jaccard(found, other), what) for what, other in proposed]
        best = max(near, key=lambda pair: pair[0], default=(0.0, None))
        return best[1] if best[0] >= self.threshold else None

    def _minhash(self, found: Shingles) -> "MinHash":
        made = self._empty.copy()
        made.update_batch([" ".join(words).encode() for words in found])
        return made


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
