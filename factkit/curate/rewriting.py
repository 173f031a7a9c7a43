"""Rules that rewrite an English sentence: shorter, reworded, negated, exchanged.

For well-edited prose, such as a lead. They know no grammar; where a rule would guess,
it leaves the sentence as it is, but some of what they make reads oddly all the same.
"""

import random
import re
from collections.abc import Callable

from factkit.curate.like_words import PARAPHRASES, SMALL_WORDS, WORD, LikeWords
from factkit.datasets.leads import DEMONYMS

_PREPOSITIONS = (
    "in|by|for|from|during|on|at|with|through|between|under|after|before|to|as|because"
    "|within|into|among|across|against|using|until|since|around|throughout"
)
_VERB = re.compile(
    r"\b(?:is|was|are|were|has|had|have|can|may|became|began|wrote|won|made|led|took"
    r"|includes?|refers|lies|consists?|contains?|means|comes|came|occurs?|describes?"
    r"|\w+ed)\b"
)
_CLAUSE = re.compile(r"[,;] | (?:which|who|where|that|because|although|while|when)\b")
_TAIL = re.compile(rf" (?:{_PREPOSITIONS}) ")
_OPEN = re.compile(r"(?:is|was|are|were) (?:\w+ed|known|born|part|one|found|made)$")
_LIST = re.compile(
    r"(?<!between )(?<!both )(?<!\w of )\b([\w-]+(?: [\w-]+)?), "
    r"((?:[\w-]+(?: [\w-]+)?, )*)([\w-]+(?: [\w-]+)?),? and ([\w-]+)\b"
)
_TWO = re.compile(r"(?<!between )(?<!both )\b([\w-]{4,}) (?:and|or) ([\w-]{4,})\b")
_FRONTED = re.compile(
    r"^((?:In|On|At|During|After|Before|By|From|Since|Until) [^,]{3,50}), (.+)$"
)
_ADJECTIVE = re.compile(
    r"\w+(?:al|ic|ous|ive|ful|ary|ern|ish|ese|less|able|ible|est)|large|small"
    r"|ancient|modern|early|late|major|main|famous|popular|common|old|new|single"
)
_ABBREVIATED = re.compile(r"(?:\b[A-Z]|\b(?:Dr|St|Mr|Mrs|Jr|Sr|c|ca|vs|No|Mt|lit))\.$")
NUMBER = re.compile(r"(?<![\d.,])\d[\d,.]*\d\b|(?<![\d.,])\d\b")
BE = re.compile(r"\b(is|was|are|were|can|could|will)\b")
_IRREGULAR = dict(
    pair.split("/")
    for pair in "wrote/write won/win became/become began/begin made/make led/lead"
    " took/take gave/give built/build held/hold fought/fight left/leave grew/grow"
    " rose/rise fell/fall sold/sell taught/teach spent/spend lost/lose found/find"
    " went/go came/come saw/see sang/sing brought/bring broke/break spoke/speak"
    " ran/run drew/draw knew/know kept/keep got/get chose/choose".split()
)
_PAST = re.compile(rf"(?<=\w )(?:\w+ed|{'|'.join(_IRREGULAR)})\b")


def sentences(text: str) -> list[str]:
    """The sentences of plain, well-edited prose."""
    found: list[str] = []
    for part in re.split(r"(?<=[.!?])\s+(?=[A-Z\"“‘])|\n+", text):
        if found and _ABBREVIATED.search(found[-1]):
            found[-1] += " " + part
        elif part.strip():
            found.append(part.strip())
    return found


def resolved(sentence: str, name: str, kind: str) -> str:
    """The sentence with the subject's name for its pronoun; "" if it lacks the name."""
    if found := re.match(
        r"(?:He|She|It|They) (?!is (?:said|thought|known that))", sentence
    ):
        return f"{name} {sentence[found.end() :]}"
    if found := re.match(r"(?:His|Her|Its|Their) ", sentence):
        return f"{name}'s {sentence[found.end() :]}"
    if kind and (found := re.match(rf"The {re.escape(kind)}\b", sentence)):
        return name + sentence[found.end() :]
    return sentence if re.search(rf"\b{re.escape(name)}\b", sentence, re.I) else ""


def shorten(text: str, rng: random.Random) -> str:
    """A shorter statement that, nearly always, the sentence entails."""
    text = without_brackets(text)
    if found := _FRONTED.match(text):
        text = found[2][0].upper() + found[2][1:]
        if rng.random() < 0.5:
            text = f"{text.rstrip('.')} {found[1][0].lower()}{found[1][1:]}."
    goal = rng.choice([5, 7, 9, 12, 16])
    for cut in (_cut(_CLAUSE), _cut(_TAIL), _one_of_list, _plainer) * 2:
        if len(text.split()) > goal and rng.random() < 0.8:
            text = cut(text, rng)
    return text


def _cut(where: re.Pattern) -> Callable[[str, random.Random], str]:
    """A function that ends a sentence at such a place, if a statement is left."""

    def cut(text: str, rng: random.Random) -> str:
        starts = [text[: found.start()] for found in where.finditer(text)]
        ends = [start for start in starts if _is_statement(start)]
        return rng.choice(ends) + "." if ends else text

    return cut


def _is_statement(text: str) -> bool:
    last = text.split(" ")[-1].lower()
    small = last in SMALL_WORDS or re.fullmatch(_PREPOSITIONS, last)
    return bool(_VERB.search(text)) and not small and not _OPEN.search(text)


def _one_of_list(text: str, rng: random.Random) -> str:
    """ "a painter, poet, and sculptor" → "a poet" """
    if found := _LIST.search(text):
        middle = [item for item in found[2].split(", ") if item]
        chosen = rng.choice([found[1], *middle, found[3], found[4]])
        first, *rest = found[1].split(" ")
        if rest and chosen != found[1] and first.lower() in SMALL_WORDS:
            chosen = f"{first} {chosen}"
    elif found := _TWO.search(text):
        chosen = rng.choice(found.groups())
    else:
        return text
    return with_articles(text[: found.start()] + chosen + text[found.end() :])


def _plainer(text: str, rng: random.Random) -> str:
    """Without some adjectives: "a French physicist" → "a physicist"."""

    def drop(found: re.Match) -> str:
        word = found[1]
        droppable = word in DEMONYMS or _ADJECTIVE.fullmatch(word)
        return "" if droppable and rng.random() < 0.7 else found[0]

    return with_articles(
        re.sub(r"\b([A-Za-z]+) (?=[a-z]{3,}\b(?! (?:of|in)\b))", drop, text)
    )


def reworded(text: str, name: str, like: LikeWords, rng: random.Random) -> str:
    """The text with some words and phrases said otherwise, the name aside."""
    share = rng.choice([0, 0, 0.3, 0.6])
    text = f" {text} "
    for old, *ways in PARAPHRASES:
        if f" {old} " in text and rng.random() < share:
            text = text.replace(f" {old} ", f" {rng.choice(ways)} ", 1)

    def other(found: re.Match) -> str:
        kept = rng.random() >= share or found[0] in name
        return found[0] if kept else like.synonym(found[0]) or found[0]

    return with_articles(WORD.sub(other, text.strip()))


def other_number(number: str, rng: random.Random) -> str:
    """Another year near by, or a number of another size written alike."""
    if re.fullmatch(r"1\d{3}|20[0-2]\d", number):
        years = rng.choice([1, 2, 3, 5, 10, 13, 20, 37, 50, 100])
        return str(int(number) + rng.choice([-1, 1]) * years)
    try:
        value = float(number.replace(",", ""))
    except ValueError:  # 1.2.3
        return number + "0"
    factor = rng.choice([0.1, 0.5, 0.7, 1.3, 2, 3, 10])
    value = value * factor if value > 20 else value + rng.choice([1, 2, 3, 5])
    if "." in number:
        return f"{value:.{len(number.split('.')[1])}f}"
    return f"{value:,.0f}" if "," in number else f"{value:.0f}"


def negate(text: str, like: LikeWords, rng: random.Random) -> str:
    """The sentence with its first verb negated; "" where no rule fits."""
    be, past = BE.search(text), _PAST.search(text)
    if be and (not past or be.start() < past.start()):
        verb, rest = be[1], text[be.end() :]
        ways = [f"{verb} not", f"{verb} never"]
        if verb in ("is", "was", "are", "were"):
            ways.append(f"{verb}n't")
        if re.match(" an? ", rest):
            ways += [f"{verb} anything but", "failed to be", "refused to be"]
        return text[: be.start()] + rng.choice(ways) + rest
    if not past or re.search(r"(?:\b(?:the|an?)|,) $", text[: past.start()]):
        return ""
    ways = [f"never {past[0]}"]
    if base := _base_form(past[0], like):
        ways += [f"{no} {base}" for no in ("did not", "didn't", "failed to")]
        ways += [f"{no} {base}" for no in ("refused to", "has yet to", "was unable to")]
    return text[: past.start()] + rng.choice(ways) + text[past.end() :]


def _base_form(past: str, like: LikeWords) -> str:
    """ "studied" → "study"; "" if the corpus has no such word."""
    ends = (
        [past[:-3] + "y"] if past.endswith("ied") else [past[:-1], past[:-2], past[:-3]]
    )
    known = [end for end in ends if like.counts.get(end, 0) >= 3]
    return _IRREGULAR.get(past) or (known[0] if known else "")


def without_brackets(text: str) -> str:
    """The text without what stands in round brackets."""
    return re.sub(r"\s*\([^()]*\)", "", text)


def replaced(text: str, old: str, new: str) -> str:
    bounded = rf"(?<![\w.,]){re.escape(old)}(?![\w])"
    return with_articles(
        re.sub(
            bounded if old[0].isdigit() else rf"\b{re.escape(old)}\b",
            lambda _: new,
            text,
        )
    )


def with_articles(text: str) -> str:
    """The text with "a" and "an" as the next word wants them."""
    text = re.sub(r"\b([Aa]) (?=[aeioAEIO]|u(?!ni|s))", r"\1n ", text)
    return re.sub(r"\b([Aa])n (?=[^aeiouAEIOU\W]|uni|us)", r"\1 ", text)
