"""Hedges: words by which a writer says not to be sure of a statement.

Told by wording alone:
- adverbs: probably, perhaps, maybe, possibly, presumably, likely, supposedly,
  apparently, seemingly, reportedly, allegedly, also after "most", "very" or "quite";
- might, may (not May), could have; seems or appears to be or have, it seems that;
- I think, believe, guess, suppose, assume; as far as I know, if I remember, to my
  knowledge, I'm not sure, but …;
- it is believed, thought, said, assumed, presumed, rumoured, possible, probable, likely
  that; is believed (…) to be or to have.
Not among them are "about 1950", "around", "in my opinion", "unlikely" and "could be",
which is mostly an ability. What a wording can't show: "the members may vote" and "the
might of Rome" count, a tone of doubt does not.
"""

import re
from collections.abc import Sequence

ADVERB = (
    r"(?:(?:most|very|quite) )?(?:probably|perhaps|maybe|possibly|presumably|likely"
    r"|supposedly|apparently|seemingly|reportedly|allegedly)"
)
BELIEVED = (
    r"(?:(?:\w+ly|often) )?(?:believed|thought|said|assumed|presumed|rumou?red|reputed"
    r"|supposed|likely)"
)
THAT = (
    rf"(?:it(?: is| was|['’]s) (?:{BELIEVED}|possible|probable) that"
    r"|it (?:seems|appears) that)"
)
I_THINK = (
    r"(?:i (?:think|believe|guess|suppose|assume)"
    r"|if i(?:['’]m not mistaken| am not mistaken|(?: correctly)? (?:remember|recall))"
    r"(?: correctly)?"
    r"|(?:as|so) far as i (?:know|remember|recall|can tell)|to my knowledge"
    r"|i(?:['’]m| am) not (?:\w+ly )?(?:sure|certain), but)"
)
MIGHT = rf"(?:might|may)(?: {ADVERB})?"
SEEMS = rf"(?:(?:is|are|was|were) {BELIEVED}|(?:seem|appear)s?) to"
HEDGE = re.compile(
    rf"\b(?:(?i:{ADVERB}|{THAT}|{I_THINK}|might|could have|{SEEMS} (?:be|have))|may)\b"
)
OPENING = re.compile(rf"(?:(?i:{ADVERB}|{THAT}|{I_THINK}),? (?:that )?)+")
# what leaves a plain sentence of a hedged one, in this order
PLAINER = [
    (re.compile(pattern), plain)
    for pattern, plain in (
        (rf"^{OPENING.pattern}", ""),
        (rf"(?:{MIGHT}|could|{SEEMS}) have been\b", "was"),
        (rf"(?:{MIGHT}|could|{SEEMS}) have\b", "has"),
        (rf"\b(is|are|was|were) {BELIEVED} to be\b", r"\1"),
        (rf"(?:{MIGHT}|{SEEMS}) be\b", "is"),
        (r"\b(?:might|may) ", ""),
        (rf",? (?i:{ADVERB}|{I_THINK}|{THAT})\b,?", ""),
    )
]


def hedges(text: str) -> bool:
    """Whether a text has a hedge."""
    return HEDGE.search(text) is not None


def hedged(sentence: str, statements: Sequence[str]) -> list[bool]:
    """Of each statement of a sentence, whether it is hedged.

    It is if it has a hedge itself; where the sentence has one that no statement kept
    ("Perhaps she …"), all are.
    """
    own = [hedges(statement) for statement in statements]
    return own if any(own) else [hedges(sentence)] * len(own)


def without_hedges(statement: str) -> str:
    """The statement as if its writer were sure: "Ann might have been a poet." is "Ann
    was a poet.", as far as substitutions of words can do it."""
    text = statement
    for pattern, plain in PLAINER:
        text = pattern.sub(plain, text)
    return text if text == statement else f"{text[:1].upper()}{text[1:]}"
