"""What a short response offers as its answer, or that it abstains.

The rule for "I'm not sure, but it is Paris" is the paper's: only a response that
*abstains* is uncertain, one that is "factually incorrect" is a hallucination (TruthRL
§2.1), a policy in doubt is told to answer "I don't know" and nothing else (Table 9),
and the judge grades the prediction given (Table 11). So a response with doubts and an
answer is that answer, right or wrong. What counts as an answer depends on the response
alone, never on the reference.
"""

import re
from functools import lru_cache


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


# A clause ends at punctuation, at "but", and before a guess.
GUESS = (
    r"(?:maybe|perhaps|probably|possibly|presumably|(?:my|best) (?:best )?guess"
    r"|i(?:'d| would|'ll| will)? (?:think|guess|say|believe|suppose|assume|suspect|bet)"
    r"|it (?:may|might|could|must|should) be)\b"
)
BUT = r"(?:but|however|though|although)\b"
BOUNDARY = re.compile(
    rf"[,.;:!?()—–]+\s*|\s-\s|\b{BUT}\s*|\band (?=i\b)|(?<!n't )(?<!not )\b(?={GUESS})",
    re.IGNORECASE,
)
ENDING = re.compile(rf"[\s,;:(–—-]*(?:\b{BUT})?[\s,;:(–—-]*$", re.IGNORECASE)
OPENS = re.compile(rf"{BUT}|{GUESS}", re.IGNORECASE)

# "I don't … know": a negation and, among the next five words, one of these.
NEGATIONS = _set(
    """not dont no never cannot unable unaware unfamiliar lack lacking without beyond
    outside insufficient limited forget forgot forgotten hard difficult impossible need
    decline refuse prefer nobody"""
)
FACTS = _set(
    """know known knows knowledge knowledgeable information info data answer answered
    answers idea clue sure certain records record details evidence context determined
    inferred verified available provided specified stated mentioned informed found"""
)
ABILITIES = _set(
    """recall recollection memory remember aware able familiar confident possess have
    say tell determine find provide give help guess recognise recognize identify confirm
    verify access comment retrieve speculate understand heard seen read learned across
    encountered abilities training position answering comfortable"""
)
SELF = _set("i i'm i've i'd i'll me my")
# Doubts that may stand beside an answer, and phrases that say there is none.
HEDGE = re.compile(
    r"\bnot(?: \w+| 100 ?%)? (?:sure|certain|confident|positive)\b"
    r"|\b(?:cannot|not|\w+n't)(?: \w+)? (?:know|say|be|tell|remember|recall)(?: \w+)? "
    r"(?:for )?(?:sure|certain|certainty)\b"
    r"|\b(?:unsure|uncertain|in doubt)\b|\b(?:could|may|might) be (?:wrong|mistaken)\b",
    re.IGNORECASE,
)
REFUSAL = re.compile(
    r"(?:answer |the |it |is )*(?:unknown|uncertain|unclear|idk|dunno|n/a|pass)\W*$"
    r"|.*\b(?:is|are|was|were|remains?|\w+'s)(?: \w+ly| still)? (?:un(?:known|certain"
    r"|clear|determined|available|answerable|specified)|not (?:known|clear|available"
    r"|specified|provided|mentioned|given|stated))"
    r"(?: (?:to|from|in|here|at|yet)\b.*)?\W*$"
    r"|.*\b(?:references?|documents?|texts?|passages?|sources?|article|excerpts?|data"
    r"|information|knowledge|context|question)\b.* (?:\w+n't|not)(?: \w+ly)? (?:mention"
    r"|say|state|specify|contain|include|provide|give|tell|cover|reveal|indicate|extend"
    r"|answer)\b"
    r"|.*\b(?:no|haven't (?:a|the)(?: \w+est)?) (?:idea|clue)\b|who knows|beats me"
    r"|.*\b(?:escapes|eludes|fails) me\b|i \w+ only be guessing"
    r"|.*\b(?:stumped|clueless|baffled|at a loss|drawing a blank)\b",
    re.IGNORECASE,
)
LONGEST = 300  # characters of a clause that are read for such a phrase
# Clauses that are no answer: they lead to the doubt, or offer something else.
BESIDE = re.compile(
    r"(?:and |so |but )?(?:(?:based|according|given|after|since|despite|while|even|if"
    r"|unless|because|due|as (?:an?|of|far|my))\b"
    r"|(?:from|with|in) the (?:given|provided|available|references?|information|context"
    r"|documents?|text)|i'(?!d (?:say|guess|go))"
    r"|i (?!think|believe|guess|say|would|suppose|recall|remember|know)"
    r"|(?:maybe |perhaps )?(?:you|ask|check|consult|try|see|someone|please|let me"
    r"|feel free|thank|can you|could you|we can|would you|your"
    r"|there (?:is|are|might|may))\b)",
    re.IGNORECASE,
)
EMPTY = _set(
    """sorry afraid apologise apologize apologies unfortunately sadly regrettably
    honestly frankly well hmm uh um oh ah sure okay ok so no and but however because
    though that this it is the a an answer i i'm i'd i'll i've am have got must to be
    honest my he she was it's that's there admit say think guess believe confess just
    really truly very terribly truth fact in something which what who thing one still
    simply good great tricky hard difficult interesting tough question are for all
    honesty or at now right me about maybe anyway thanks thank you yet either then
    regret of"""
)


@lru_cache(maxsize=20_000)
def offer(text: str) -> str | None:
    """The part of a response that gives an answer, None if it abstains.

    text: one line with straight apostrophes. Doubts around an answer are left out.
    """
    clauses = _clauses(text)
    doubts = [i for i, (_, clause) in enumerate(clauses) if _doubts(clause)]
    if not doubts:
        return text
    first = doubts[0]
    if any(_answers(clause) for _, clause in clauses[:first]):
        return ENDING.sub("", text[: clauses[first][0]])
    opened, hedged = False, HEDGE.search(clauses[first][1]) is not None
    for at, clause in clauses[first + 1 :]:
        led = text[clauses[first][0] : at]
        opened = opened or bool(OPENS.search(led) or OPENS.match(clause))
        if _doubts(clause) or not _answers(clause):
            continue
        if opened or hedged and len(text[at:].split()) <= 5:
            return offer(text[at:])
    return None


def _clauses(text: str) -> list[tuple[int, str]]:
    """Where each clause begins, and the clause."""
    starts = [0, *(match.end() for match in BOUNDARY.finditer(text))]
    ends = [*(match.start() for match in BOUNDARY.finditer(text)), len(text)]
    spans = zip(starts, ends, strict=True)
    return [(start, text[start:end].strip()) for start, end in spans if start < end]


def _doubts(clause: str) -> bool:
    """Whether a clause says that its speaker doesn't know."""
    if HEDGE.search(clause) or REFUSAL.match(clause[:LONGEST]):
        return True
    words = re.findall(r"[\w']+", clause.casefold())
    personal = not SELF.isdisjoint(words)
    for i, word in enumerate(words):
        if word in NEGATIONS or word.endswith("n't"):
            near = words[i : i + 6]
            if "doubt" in near or near[1:3] == ["the", "answer"] and not personal:
                return False
            bare = all(w in EMPTY for w in words[:i])
            if (personal or bare) and not FACTS.isdisjoint(near[1:]):
                return True
            if (personal or i == 0) and not ABILITIES.isdisjoint(near[1:]):
                return True
            if personal and word in (
                "forgot",
                "forget",
                "forgotten",
                "decline",
                "refuse",
            ):
                return True
    return False


def _answers(clause: str) -> bool:
    """Whether a clause may hold an answer."""
    words = re.findall(r"[\w']+", clause.casefold())
    return not all(w in EMPTY for w in words) and not BESIDE.match(clause)
