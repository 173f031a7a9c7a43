"""The filter for claims whose label and evidence are clear (Veri-R1 App. E, Fig 3).

An LLM verifies each claim offline: it is given the gold evidence among other texts, and
the claim is kept if label and evidence are exactly right. About 70 % are, of FEVEROUS
and EX-FEVER by GPT-4o. Ours where the paper is silent:
- what the other texts are: about as in the published offline file, three more sentences
  of each gold page in the page's order, or three other pages where pages are evidence;
- for a claim with NOT ENOUGH INFO the label decides alone, as in §3.2's metrics.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256

from factkit import prompts
from factkit.datasets.examples import Example
from factkit.datasets.rows import Loaded
from factkit.llm import LLM, Reply, Request
from factkit.models import Sampling
from factkit.retrieval.chunks import Chunk, listed
from factkit.retrieval.entries import page_of, shown
from factkit.verify.trajectory import NEI, Turn, answer_of

OTHERS = 3  # sentences of a gold page, or pages, that are no evidence
REPLY_TOKENS = 512  # Table 4
# the fates of a claim
KEPT, WRONG_LABEL, WRONG_EVIDENCE = "kept", "wrong label", "wrong evidence"
UNREADABLE, FAILED, NO_TEXT = "unreadable", "failed", "evidence not in the corpus"
FATES = (KEPT, WRONG_LABEL, WRONG_EVIDENCE, UNREADABLE, FAILED, NO_TEXT)

Texts = Callable[[Example], Sequence[Chunk]]


def keep_verified(
    examples: Sequence[Example],
    entries_of: Texts,
    llm: LLM,
    template: str = "verify_claim_offline",
) -> Loaded:
    """The claims that an LLM verifies without a fault, and how many met which fate.

    entries_of: what the LLM may cite for a claim, as `in_context` chooses it. A claim
    is asked about only if all of its evidence is among that. Claims whose call failed
    or whose answer has no readable label are not kept, and counted apart ("failed",
    "unreadable"); a rerun asks again about those that failed.
    """
    given = [entries_of(example) for example in examples]
    whole = [
        set(example.evidence) <= {text.id for text in texts}
        for example, texts in zip(examples, given, strict=True)
    ]
    claims = zip(examples, given, whole, strict=True)
    replies = iter(_ask(llm, template, [(e, texts) for e, texts, ok in claims if ok]))
    fates = [
        _fate(example, next(replies)) if ok else NO_TEXT
        for example, ok in zip(examples, whole, strict=True)
    ]
    kept = [e for e, fate in zip(examples, fates, strict=True) if fate == KEPT]
    return kept, Counter({fate: fates.count(fate) for fate in FATES})


def in_context(
    pages: Mapping[str, Sequence[Chunk]], others: int = OTHERS, seed: int = 0
) -> Texts:
    """Chooses a claim's texts: its evidence and, drawn at random, some that is none.

    pages: page → its entries. What is no evidence are `others` sentences of each gold
    page; where these have none, or there is no gold page, an entry of `others` pages.
    """
    titles = sorted(pages)

    def texts(example: Example) -> list[Chunk]:
        rng = random.Random(f"context {seed} {example.id}")
        gold = list(dict.fromkeys(map(page_of, example.evidence)))
        blocks = [_of_page(pages.get(p, ()), example, others, rng) for p in gold]
        if {line.id for block in blocks for line in block} <= set(example.evidence):
            drawn = rng.sample(titles, min(len(titles), others + len(gold)))
            more = [title for title in drawn if title not in gold][:others]
            blocks += [shown(rng.choice(pages[title])) for title in more]
        rng.shuffle(blocks)
        return [line for block in blocks for line in block]

    return texts


def _of_page(
    entries: Sequence[Chunk], example: Example, others: int, rng: random.Random
) -> list[Chunk]:
    """A page's sentences that are evidence, and others, in the page's order."""
    lines = [line for entry in entries for line in shown(entry)]
    spare = [line.id for line in lines if line.id not in example.evidence]
    wanted = {*example.evidence, *rng.sample(spare, min(others, len(spare)))}
    return [line for line in lines if line.id in wanted]


def _ask(
    llm: LLM, template: str, given: Sequence[tuple[Example, Sequence[Chunk]]]
) -> list[Reply]:
    """The reply for each claim with its texts, greedily."""
    text = prompts.template(template)
    version = f"{template}@{sha256(text.encode()).hexdigest()[:8]}"
    requests = []
    for example, texts in given:
        content = prompts.fill(text, claim=example.question, evidence=listed(texts))
        message = {"role": "user", "content": content}
        sampling = Sampling(REPLY_TOKENS, one_line=False)
        requests.append(Request((message,), template=version, sampling=sampling))
    return llm.run(requests, progress="verifying") if requests else []


def _fate(example: Example, reply: Reply) -> str:
    if reply.text is None:
        return FAILED
    if not reply.finished:  # cut off
        return UNREADABLE
    answer = answer_of([Turn(reply.text, by_model=True)])
    if answer.label is None:
        return UNREADABLE
    if answer.label not in example.answers:
        return WRONG_LABEL
    exact = set(answer.evidence) == set(example.evidence)
    return KEPT if exact or example.label == NEI else WRONG_EVIDENCE
