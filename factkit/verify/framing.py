"""Whether the words around a short answer only frame it, or offer another.

"I think it is …" and "…, because …" frame; "not …", "… or Lyon" and ", Lyon, Nice" turn
down the answer or offer another. What is not known to frame makes an answer wrong: no
reward is to be had for a list of guesses.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import dropwhile

from factkit.verify.values import ARTICLES, Word, is_number


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words that frame an answer without adding to it: "It was in Paris." is "Paris".
FRAME = ARTICLES | _set(
    """it its he she they his her is was were are be been being am that's this that
    these in of on at by to from for as with which who there what answer answers called
    named known city country place year name date town state number element final
    correct right best true i i'm i'd i'll i've my me you your we our one think believe
    guess say said says suppose assume recall remember know knows sure certain certainly
    definitely probably likely possibly perhaps maybe surely clearly simply just would
    will could may might must should have has had do does go let look looking fairly
    pretty quite very most everyone well hmm so then okay ok yes indeed actually far can
    tell see knowledge memory serves according based if a q question response reply
    please people monday tuesday wednesday thursday friday saturday sunday mr mrs ms dr
    sir lord lady saint president king queen emperor pope professor going ought mean
    about approximately around roughly"""
)
# Before an answer, these turn it down or set another beside it …
BLOCKED = _set(
    """not no never cannot neither nor or either both between except than unlike hardly
    doubt unlikely wrong false incorrect instead used some others versus vs besides
    rather without nothing nobody"""
)
BUT = _set(
    "but and before after least almost nearly"
)  # … and so do these just before it.
OPENERS = _set(
    """according based from as if in looking given after since because when while though
    although with considering by let to most many for off sure well okay"""
)
# A clause begins with one of these, and the name before it has ended.
FOLLOWS = _set(
    """because since as which who whom whose that where when while in on at for from by
    with after before during until though although but if so then too also rather not is
    was are were has had would seems appears sounds i it he she they we became won wrote
    sang made played did led gave took said"""
)
TURNED = re.compile(r"\bfar from\b|\bif (?!i\b|i'\w|my\b|memory\b)")
SAYING = _set("say says said agree agrees think believe hold claim report suggest know")
VERB = re.compile(r"[a-z]{2,}(?:ed|s)")
SECOND = _set("maybe perhaps possibly because whereas")  # a phrase after another answer
PARTICLES = _set("von van de der da di du la le el al bin ibn au of and")
TO = _set("to through until")
COPULAS = _set("is was are were")
SCALES = _set("hundred thousand million billion trillion dozen")
PRONOUNS = _set("i it he she they we that this is was has there its his her")
DENIED = re.compile(
    r"(?:, )?(?:(?:which|that|this|it|but|he|she|and) )*(?:is|was|are|were|would be|can"
    r"|could|may|did|does|has)?(?:n't| not| never| no longer| false| wrong| incorrect"
    r"| untrue| mistaken)\b(?! (?:only|certain|sure))|used to\b"
)
OTHERWISE = re.compile(
    r"(?:^|, )(?:or|nor|versus|vs)\b|\b(?:maybe|perhaps|possibly|alternatively) "
    r"(?!,|i\b)|, (?:no|wait|correction|actually|sorry|instead)(?: ,|$| (?!doubt|one"
    r"|other|matter))|\bothers?\b|\bor rather\b"
    r"|^(?:, )?(?:as well as|along with|plus|followed by)\b"
    r"|\b(?:but|yet) (?:it|that|he|she|the|i) (?:\w+ )?(?:is|was|could|may|might|say)\b"
    r"(?! (?:only|just))"
)
STATES = _set(
    """alabama alaska arizona arkansas california colorado connecticut delaware florida
    georgia hawaii idaho illinois indiana iowa kansas kentucky louisiana maine maryland
    massachusetts michigan minnesota mississippi missouri montana nebraska nevada
    new_hampshire new_jersey new_mexico new_york north_carolina north_dakota ohio
    oklahoma oregon pennsylvania rhode_island south_carolina south_dakota tennessee
    texas utah vermont virginia washington west_virginia wisconsin wyoming england
    scotland wales usa us uk"""
)


def leads(
    left: Sequence[Word], first: Word, wanted: Sequence[Word], asked: frozenset[str]
) -> bool:
    """Whether what stands before an answer leads to it.

    first: the answer's first word as given; wanted: the reference; asked: the words of
    the question. Other words must be in a phrase that an opener begins, or in lower
    case in the answer's own phrase, where "is" or the like follows them.
    """
    while left and left[-1].text in ARTICLES:
        left, first = left[:-1], left[-1]
    if not left:
        return True
    if left[0].text in ("no", "yes") and [*left[1:], first][0].gap == ",":
        return leads(left[1:], first, wanted, asked)
    if first.gap in ("/", "-") or left[-1].text in BUT:
        return False
    if any(_blocks(w, w is not left[0], asked) for w in left):
        return False
    if TURNED.search(" ".join(w.text for w in left)):
        return False
    *earlier, own = phrases = _phrases(left)
    new = [[w for w in phrase if not _known(w, asked)] for phrase in phrases]
    if any(new[:-1]) and own[0].text in SECOND and first.gap == " ":
        return False
    if is_number(wanted[0].text):
        if _numbers(left, wanted[0].text, asked):
            return False
        if first.gap in (" ", "("):
            near = _known(left[-1], asked) or VERB.fullmatch(left[-1].text)
            return bool(near or first.gap == "(") and not _lists(earlier, asked)
    for phrase, unknown in zip(phrases, new, strict=True):
        label = phrase is own and first.gap == ":" and len(phrase) <= 3
        if not unknown or label or phrase[0].text in OPENERS:
            continue  # "Short answer: …", "According to Wikipedia, …"
        if phrase is not own or first.gap != " " or not _is_clause(phrase, unknown):
            return False
    return True


def _lists(phrases: Sequence[Sequence[Word]], asked: frozenset[str]) -> bool:
    """Whether a phrase before a number is an item: not so in "in Breslau, Prussia,"."""
    return any(
        not any(_known(w, asked) for w in phrase) and not _is_territory(phrase)
        for phrase in phrases
    )


def _is_clause(phrase: Sequence[Word], unknown: Sequence[Word]) -> bool:
    """Whether a phrase up to an answer is "The city you seek is" or "It was composed
    by", and not the like of "Lyon lies on" or "lead and"."""
    if unknown[0].capital and unknown[0] is phrase[0] and phrase[1:2]:
        if phrase[1].text not in SAYING:  # "Historians say"
            return False
        unknown = unknown[1:]
    if any(w.capital or is_number(w.text) for w in unknown):
        return False
    places = [i for i, w in enumerate(phrase) if w in unknown]
    if not places:
        return True
    after = phrase[places[-1] + 1 :]
    participle = places[0] > 0 and phrase[places[0] - 1].text in COPULAS and after
    return bool(participle) or any(w.text in COPULAS | SAYING for w in after)


def ends(
    right: Sequence[Word],
    before: str,
    wanted: Sequence[Word],
    units: frozenset[str],
    asked: frozenset[str],
) -> bool:
    """Whether what stands after an answer belongs to it, or to another sentence.

    before: the word before the answer; units: those that the reference gives.
    """
    small = all(len(w.text) <= 3 and _known(w, BLOCKED) for w in wanted)
    if small and right and right[0].gap == " ":  # "No", "As", "It" may mean nothing
        return False
    own = (asked | units) - FRAME - FOLLOWS - BLOCKED - BUT
    right = list(dropwhile(lambda w: w.gap == " " and w.text in own, right))
    if not right:
        return True
    after, number = right[0], is_number(wanted[0].text)
    tail = "".join(f"{', ' if w.gap in ',:(' else ''}{w.text} " for w in right).rstrip()
    if after.gap in ("/", "-") or OTHERWISE.search(tail):
        return False
    if DENIED.match(tail) and wanted[0].text not in ("no", "yes"):
        return False
    beside = right[: 2 if after.text in TO else 1]  # "1868 to 1870"
    if number and after.gap == " " and any(is_number(w.text) for w in beside):
        return False
    phrases = [p for p in _phrases(right) if p[0].gap in (",", ":", "(")]
    if not _is_territory(wanted):
        phrases = list(dropwhile(_is_territory, phrases))  # "Berlin, Germany"
    if phrases and not _aside(phrases[0], asked):
        return False
    if after.gap in (",", ":", "("):
        return True
    if after.text == "and":
        return len(right) > 1 and right[1].text in PRONOUNS
    if after.text == "of":
        return len(right) > 1 and right[1].text in asked | {"course"}
    if number:
        counts = not units and not _is_time(wanted[0].text)  # "7 symphonies"
        return after.text not in SCALES and (counts or _known(after, asked))
    if after.capital:
        return after.text in asked
    verb = wanted[0].capital and VERB.fullmatch(after.text)
    return _known(after, asked) or bool(verb) or before in ("a", "an")


def _aside(phrase: Sequence[Word], asked: frozenset[str]) -> bool:
    """Whether a phrase set off from an answer is no further item of a list."""
    said = [w for w in phrase if w.text not in ARTICLES]
    if not said or said[0].text == "not" or phrase[0].gap == "(":
        return True
    if said[0].text in ("and", "but") and len(said) > 1:
        second = said[1]
        return second.text in PRONOUNS or not second.capital and _known(second, asked)
    new = [w for w in said if w.text not in asked]
    if all(w.capital or is_number(w.text) or w.text in PARTICLES for w in new):
        return all(w.text in FRAME for w in new)
    if len(said) > 2 or len(said) < len(phrase) or said[0].text.endswith("ly"):
        return True
    return any(_known(w, asked) for w in said)  # "lead, tin" is a list


def _blocks(word: Word, inside: bool, asked: frozenset[str]) -> bool:
    """Whether a word before an answer turns it down; "No" of the question is a name."""
    if inside and word.capital and word.text in asked:
        return False
    return word.text in BLOCKED or word.text.endswith("n't")


def _phrases(words: Sequence[Word]) -> list[list[Word]]:
    """The words between breaks."""
    phrases: list[list[Word]] = []
    for word in words:
        if word.gap in (",", ":", "(") or not phrases:
            phrases.append([])
        phrases[-1].append(word)
    return phrases


def _known(word: Word, asked: frozenset[str]) -> bool:
    return word.text in FRAME or word.text in FOLLOWS or word.text in asked


def _is_time(number: str) -> bool:
    return bool(re.fullmatch(r"[12]\d{3}|\d*_\d+_\d*", number))


def _numbers(words: Sequence[Word], wanted: str, asked: frozenset[str]) -> bool:
    """Whether there is a number beside the wanted one; beside a year or a date, a
    number below 1000 is none."""
    return any(
        is_number(w.text)
        and w.text not in asked
        and not (_is_time(wanted) and w.text.isdigit() and int(w.text) < 1000)
        for w in words
    )


def _is_territory(words: Sequence[Word]) -> bool:
    return " ".join(w.text for w in words) in _territories()


@lru_cache(maxsize=1)
def _territories() -> frozenset[str]:
    """Names of countries, continents and American states: "Berlin, Germany"."""
    from babel import Locale

    names = Locale("en").territories.values()
    states = {name.replace("_", " ") for name in STATES}
    return states | {name.casefold().replace("-", " ") for name in names}
