"""Claims with gold evidence, made by rules from the leads of Wikipedia.

Ours, in place of FEVEROUS and EX-FEVER (Veri-R1 App. E). A claim is a sentence of a
lead made to stand alone: its subject named, its brackets and later clauses cut. It has
a focus, one thing that can be exchanged for another of its kind: a year, a number, a
nationality, a place, a name, an opposite. The labels differ in what is done to it:

| label | the claim | its sentence |
|---|---|---|
| SUPPORT | as it stands | evidence |
| REFUTE | with the focus exchanged | evidence |
| NOT ENOUGH INFO | as often with the focus exchanged as not | out of the corpus |

So all labels come from one pool. Without its sentence a claim only stays as it is where
the focus is a place, a name or in what a link stands for: the corpus would settle an
exchanged one. A claim of two hops says what a linked lead is about instead of naming it
("Psycho was directed by an English film director"), and needs that lead's first
sentence as well; for NOT ENOUGH INFO the sentence with the link is taken out.

A sentence is left alone where another one on its subject has more than half of its
words, or the focus, or what replaces it: the corpus would settle the claim without its
evidence. That is a check of words, on the subject's lead and on all sentences that name
the subject.

Sentences are split by `rewriting.sentences`, in a second for all leads (pysbd takes a
minute and differs in 2 % of them); `lead_entries` numbers them alike.
"""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from factkit.corpus import Document
from factkit.curate.like_words import KINDS, MONTHS, SMALL_WORDS, WORD
from factkit.curate.rewriting import other_number, with_articles
from factkit.datasets.examples import DataError, Example
from factkit.datasets.lead_sentences import (
    BE,
    SORT,
    Claim,
    Lead,
    claim_of,
    read_lead,
    sentences_of,
    told,
    what_it_is,
)
from factkit.datasets.leads import BRITISH, DEMONYMS
from factkit.entries import entries_of_sentences, sentence_id
from factkit.retrieval import Chunk, tokenize
from factkit.verify.clauses import NAME
from factkit.world import LABELS

HOPS = (1, 1, 2)  # in turn, after each round of labels
LATEST = 2025  # the latest year that a claim names
LEAST_YEARS = 5  # to the wrong year: what was so in 1799 may be so in 1801
PER_LINKED = 20  # claims that need one and the same linked lead, at most
COMMON = 3  # times in small letters that make a single word no proper name
ALIKE = 0.5  # share of a claim's words that no other sentence on its subject passes
ALIKE_LINKED = 0.25  # that no other one passes that also names the linked lead

NOT_ENOUGH = LABELS[2]
SETTLED = ("place", "name", "link")  # kinds of focus that the rest of a lead settles

Words = frozenset[str]

# ---- what can be exchanged in it


@dataclass(frozen=True)
class _Focus:
    """What of a text can be exchanged, from where to where, and for what."""

    kind: str
    start: int
    end: int
    others: tuple[str, ...]


Others = Callable[[str, random.Random], Sequence[str]]

_MONTH = rf"(?:{'|'.join(MONTHS)})"
_YEAR = r"(?:1\d{3}|20[0-2]\d)"
_DATED = rf"(?:\b(?:[Ii]n|[Ff]rom|to|of|and|on|the|{_MONTH})|\b\d\d?,) "
_SINCE = (
    r"\b(?:[Bb]efore|[Aa]fter|[Bb]y|[Ss]ince|[Uu]ntil|around|circa) "
    rf"(?:(?:the|at least|early|late|middle|end|of|{_MONTH}|\d\d?,?) )*"
)
_LEAST = r"(?:least|than|over|up to|under|below|above|exceed(?:s|ing)|as many as)"
_BOUND = (  # before a number: with another one the claim may be as true
    rf"(?:\b(?:{_LEAST}|through|only|beyond|top|and|or|to|between|[A-Z][\w.]*) "
    r"|[^ $£€])"
)
_COUNTED = r"%| (?!to\b|and\b|or\b|of\b|until\b|by\b)[a-z]|-[a-z]| US"
_NUMBER = rf"(?!{_YEAR}\b)(?:\d[\d,.]*)?\d"
_NATION = rf"(?:\b{BE} |^|^the [a-z]+ of )(?:an?|the) (?:[a-z]+ ){{0,2}}"
_NATIONS = "|".join(DEMONYMS)
_COMMON_NATIONS = tuple(DEMONYMS)[:22]
_NEAR_NATIONS = (BRITISH | {"Irish"}, {"German", "Austrian", "Swiss"})
_SPECIES = r"\b(?:species|genus|family|order|class) of "
_OPPOSED = (
    "gold football largest northern eastern north east highest oldest male older larger"
    " longer"
)
# what holds of one place or one person: with another instead the claim is false
_ONE_PLACE = (
    r"\b(?:[Bb]orn|died|located|situated|headquartered|based|buried|built|founded|lies"
    r"|established|fought|signed|crowned|assassinated|took place|takes place|raised"
    r"|formed|originated|emerged|appeared|opened|premiered|performed|discovered|killed"
    r"|executed|exiled|published|endemic|railway|language|dialect|civilization|hero"
    r"|leader|ruler|department|district|coast|area|commune|site|plain|plateau|peninsula"
    r"|valley|cent(?:er|re)|agglomeration|city|town|capital|municipality|port|river|lake"
    r"|mountain|(?:strato)?volcano|island|state|province|region|country|museum|bridge"
    r"|university|temple|palace|tower|church|cathedral|[Kk]ing|[Qq]ueen|[Ee]mperor"
    r"|[Pp]resident|[Pp]rime [Mm]inister|[Cc]hancellor|monarch|governor|[Ss]ultan"
    r"|[Ss]hah|\w{3,}est|most \w+)\b[^,;]{0,30}? "
    r"(?:in|of|from|at|near|on) (?:the )?|in the (?:family|genus|order|phylum) "
)
_ONE_PERSON = (
    r"\b(?:directed|written|composed|painted|founded|discovered|designed|invented"
    r"|created|produced|developed|sculpted|coined|proposed|succeeded|preceded"
    r"|assassinated|killed|commissioned|formulated|established|led|recorded|introduced"
    r"|published|novel|film|play|book|poem|opera|painting|song|album|series|symphony"
    r"|ballet|sculpture|story)(?: and \w+ed)? by (?:[\w-]+ [a-z]+ )?"
    r"|\b(?:son|daughter|wife|husband|brother|sister|mother|father|grandson|nephew"
    r"|successor|predecessor) (?:of|to) "
)
_ONE = re.compile(rf"(?:{_ONE_PLACE}|{_ONE_PERSON})$")
_PARTS = {  # "in southern Italy" is in the south of a country
    f"{part}ern": f"the {part} of "
    for part in "north south east west northeast northwest southeast southwest".split()
} | {"central": "the center of "}
_PLACED = re.compile(
    r"(?<=[\w,\"] )(?P<word>in|of|by|to|from|at|on|near|with|against|under|for|as|into"
    r"|through|throughout|across|along|during|toward|towards|off|outside|ruled|led|left"
    r"|invaded|conquered|defeated|joined|visited|married|founded|entered|won) "
    rf"(?P<whole>(?P<the>the )?(?:(?P<part>{'|'.join(_PARTS)}) |(?<=the )"
    rf"(?:\w+ern )?(?:(?:{_NATIONS}|U\.S\.) )?(?:family|genus|order|phylum|city|state"
    r"|island|province|country|novel|film|play|opera) (?:of )?|(?<=by )"
    rf"(?:(?:{_NATIONS}) )?(?:[a-z-]+ ){{1,3}})?(?P<name>{NAME})(?P<land>, [A-Z]\w+)?)"
    r"(?=$|,? (?P<next>[a-z]+))"
)
_MAY_FOLLOW = (SMALL_WORDS - {"and", "or"}) | {"within", "near", "among", "against"}


def _near(number: str, steps: Sequence[int], rng: random.Random) -> list[int]:
    """Other positive whole numbers, in random order."""
    found = [int(number) + sign * step for step in steps for sign in (-1, 1)]
    return [n for n in rng.sample(found, len(found)) if n > 0]


def _years(old: str, rng: random.Random) -> list[str]:
    found = [other_number(old, rng) for _ in range(9)]
    far = [year for year in found if abs(int(year) - int(old)) >= LEAST_YEARS]
    return [year for year in far if int(year) <= LATEST]


def _decades(old: str, rng: random.Random) -> list[str]:
    found = _near(old.removesuffix("0s"), (1, 2, 3, 5), rng)
    return [f"{n}0s" for n in found if n * 10 <= LATEST]


def _days(old: str, rng: random.Random) -> list[str]:
    return [str(n) for n in _near(old, (1, 2, 5, 9), rng) if n <= 28]


def _numbers(old: str, rng: random.Random) -> list[str]:
    found = [other_number(old, rng) for _ in range(6)]
    sizes = [float(number.replace(",", "")) for number in (old, *found)]
    return [
        new for new, n in zip(found, sizes[1:], strict=True) if _like_size(n, sizes[0])
    ]


def _like_size(number: float, other: float) -> bool:
    return 0.3 < number / max(other, 1) < 4


def _ordinals(old: str, rng: random.Random) -> list[str]:
    endings = {1: "st", 2: "nd", 3: "rd"}
    found = [n for n in _near(old[:-2], (1, 2, 3, 4), rng) if n <= 20]
    return [f"{n}{endings.get(n, 'th')}" for n in found]


def _ranks(old: str, rng: random.Random) -> list[str]:
    # "the first largest" is no English
    return [word for word in _alike(old, rng) if word != "first"]


def _nations(old: str, rng: random.Random) -> list[str]:
    near = {old}.union(*(group for group in _NEAR_NATIONS if old in group))
    found = [nation for nation in _COMMON_NATIONS if nation not in near]
    return rng.sample(found, len(found))


def _compass(old: str, rng: random.Random) -> list[str]:
    other = {"North": "South", "South": "North", "East": "West", "West": "East"}
    return [re.sub("|".join(other), lambda found: other[found[0]], old)]


def _alike(old: str, rng: random.Random) -> list[str]:
    found = [word for row in KINDS if old in row for word in row if word != old]
    return rng.sample(found, len(found))


def _rows(words: str) -> str:
    """The rows of `KINDS` that hold one of the words, as a pattern."""
    rows = [row for row in KINDS if set(row) & set(words.split())]
    return "|".join(word for row in rows for word in row)


def _rule(
    kind: str,
    pattern: str,
    others: Others,
    before: str = "",
    never: str = "(?!)",
    after: str = r"(?![\w-])",
) -> tuple[str, re.Pattern, Others, re.Pattern, re.Pattern]:
    """A focus: what it is, becomes, must and must never follow, and must precede."""
    focus = re.compile(rf"(?<![\w.,–-])(?:{pattern})(?={after})")
    ends = (re.compile(f"(?:{context})$") for context in (before, never))
    return kind, focus, others, *ends


_RULES = [
    _rule("year", _YEAR, _years, _DATED, _SINCE, r"(?![\w%–-]|[.,]\d)"),
    _rule("year", r"(?:1\d\d|20[012])0s", _decades, "the ", _SINCE),
    _rule("date", r"\d\d?", _days, after=rf" {_MONTH}\b"),
    _rule("date", r"\d\d?", _days, before=rf"\b{_MONTH} "),
    _rule("date", _MONTH, _alike, before=r"\d "),
    _rule("date", _MONTH, _alike, after=r" \d"),
    _rule("number", _NUMBER, _numbers, never=_BOUND, after=_COUNTED),
    _rule("number", _rows("two"), _alike, never=_BOUND, after=_COUNTED),
    _rule("number", _rows("million"), _alike, never=rf"\b{_LEAST} \S+ "),
    _rule("rank", r"\d\d?(?:st|nd|rd|th)", _ordinals, "", _SINCE, " [a-z]|-century"),
    _rule("rank", _rows("third"), _ranks, r"\b(?:the|his|her|its) ", after=" [a-z]"),
    _rule("nationality", _NATIONS, _nations, _NATION, after=r" (?!and\b)[a-z]"),
    _rule("place", "(?:Nor|Sou)th(?:ern)?", _compass, _ONE_PLACE, after=" [A-Z]"),
    _rule("place", "(?:Ea|We)st(?:ern)?", _compass, _ONE_PLACE, after=" [A-Z]"),
    _rule("opposite", _rows("mammal"), _alike, _SPECIES),
    _rule("opposite", "early|late", _alike, "", "(?:to|and|or) |-", r" \d| stages?\b"),
    _rule("opposite", "ancient", _alike, after=" [A-Z]"),
    _rule("opposite", _rows(_OPPOSED), _alike),
]
_WEIGHTS = {"number": 2, "rank": 2, "place": 3, "name": 4, "opposite": 2}  # others 1


def _foci(text: str, leads: "_Leads", rng: random.Random) -> list[_Focus]:
    """All that can be exchanged in a text without its full stop, in random order."""
    found = []
    for kind, pattern, others, before, never in _RULES:
        for match in pattern.finditer(text):
            start = text[: match.start()]
            if before.search(start) and not never.search(start):
                found.append(_Focus(kind, *match.span(), tuple(others(match[0], rng))))
    for place in _placed(text):
        start, end = place.span("name")
        the = text[:start].endswith("the ")
        if not place["land"] and _ONE.search(text[:start]):
            others = leads.like(place["name"], the)
            others = rng.sample(others, min(6, len(others)))
            found.append(_Focus("name", start, end, tuple(others)))
    first = {
        focus: rng.random() ** (1 / _WEIGHTS.get(focus.kind, 1)) for focus in found
    }
    return sorted(found, key=lambda focus: -first[focus])


def _placed(text: str) -> Iterator[re.Match]:
    """Names after a preposition or verb, outside of lists.

    Groups: whole, what follows the preposition ("the family Oleaceae", "American author
    Jack Kerouac", "Mecca, Saudi Arabia"); part, what of it ("northern") or None; name;
    land, what it lies in, or None.
    """
    for found in _PLACED.finditer(text):
        title = re.search(r"[A-Z][\w.]* $", text[: found.start()])  # Bishop of Rome
        named = title and found["word"] in ("of", "on", "for", "to")
        listed = found["next"] and found["next"] not in _MAY_FOLLOW
        if not listed and not named:
            yield found


def _exchanged(text: str, focus: _Focus, new: str) -> str:
    """The text with the focus exchanged; "" where its years would be out of order."""
    start, end = text[: focus.start], text[focus.end :]
    if article := re.search(r"\b[Aa]n? $", start):
        said_with_n = re.match(r"8|1[18]\b", new)  # an 80-day period
        new = (
            f"{article[0][0]}n {new}"
            if said_with_n
            else with_articles(article[0] + new)
        )
        start = start[: article.start()]
    changed = start + new + end
    years, others = (re.findall(rf"\b{_YEAR}\b", t) for t in (text, changed))
    return "" if years == sorted(years) and others != sorted(others) else changed


# ---- what the other sentences say


class _Leads:
    """The leads, how they are linked, and which sentences are on what."""

    def __init__(self, documents: Sequence[Document]) -> None:
        in_order = sorted(documents, key=lambda document: document.title)
        self.by_title = {d.title: read_lead(d) for d in in_order}
        names = Counter(lead.name for lead in self.by_title.values())
        self._small = Counter(w for d in documents for w in WORD.findall(d.text))
        self.linked = {
            lead.name: lead
            for lead in self.by_title.values()
            if lead.subject and lead.name == lead.title
            if names[lead.name] == 1 and self._is_proper(lead.name)
        }
        self.what = {name: what_it_is(lead) for name, lead in self.linked.items()}
        self._like: dict[tuple[str, bool], list[str]] = defaultdict(list)
        for lead in self.linked.values():
            self._like[_like_key(lead)].append(lead.name)
        self._index()

    def _is_proper(self, name: str) -> bool:
        small, words = name.lower(), set(name.split()) - SMALL_WORDS
        common = self._small[small] + self._small[f"{small}s"] >= COMMON
        return not common and not any(word.islower() for word in words)

    def _index(self) -> None:
        self._words: list[Words] = []
        self._first: dict[str, int] = {}
        self._having: dict[str, set[int]] = defaultdict(set)
        for lead in self.by_title.values():
            self._first[lead.title] = len(self._words)
            name = frozenset(tokenize(lead.name))  # of what "the capital" is
            for sentence in lead.sentences:
                words = frozenset(tokenize(sentence))
                for word in words:
                    self._having[word].add(len(self._words))
                self._words.append(words | name)

    def like(self, name: str, the: bool) -> list[str]:
        """Names of the same sort, with or without "the", if the name's is known."""
        lead = self.linked.get(name)
        if not lead or not (lead.person or lead.sort in _APART):
            return []
        others = self._like[_like_key(lead)] if the == _has_the(lead) else []
        return [other for other in others if other != name]

    def others(self, lead: Lead, number: int = -1) -> list[Words]:
        """The words of each sentence of the lead, save that one."""
        first = self._first[lead.title]
        own = range(first, first + len(lead.sentences))
        return [self._words[i] for i in own if i != first + number]

    def naming(self, lead: Lead) -> list[Words]:
        """The words of each sentence of the other leads that has those of its name."""
        first = self._first[lead.title]
        own = range(first, first + len(lead.sentences))
        having = [self._having[word] for word in set(tokenize(lead.name))]
        named = set.intersection(*sorted(having, key=len)) if having else set()
        return [self._words[i] for i in sorted(named) if i not in own]


_APART = (  # sorts of which one thing is not another; regions overlap
    "city town capital country continent province island river lake mountain volcano"
    " desert planet film novel university museum company".split()
)


def _like_key(lead: Lead) -> tuple[str, bool]:
    sort = "city" if lead.sort in ("town", "capital") else lead.sort
    return sort, _has_the(lead)


def _has_the(lead: Lead) -> bool:
    return lead.subject.startswith("The ")


def _has(said: Sequence[Words], *phrases: str) -> bool:
    """Whether a sentence has all words of one of the phrases."""
    wanted = [frozenset(tokenize(phrase)) for phrase in phrases]
    return any(phrase <= words for words in said for phrase in wanted)


def _alike_one(said: Sequence[Words], text: str, names: str, share: float) -> bool:
    """Whether a sentence has more than a share of a text's words, the names aside."""
    own = set(tokenize(text)) - SMALL_WORDS - set(tokenize(names))
    return any(len(own & words) > share * len(own) for words in said)


# ---- drafts of claims


@dataclass(frozen=True)
class _Draft:
    """A claim that its gold sentences (title, number) make true, and a false one.

    The first of `gold` is the one to take out for NOT ENOUGH INFO. settled: whether the
    false claim may be told to be false without it.
    """

    true: str
    false: str
    kind: str
    settled: bool
    gold: tuple[tuple[str, int], ...]


def _drafts(lead: Lead, leads: _Leads, rng: random.Random) -> Iterator[_Draft | str]:
    """All drafts from a lead, and for each that was dropped the reason."""
    if not lead.subject:
        yield "lead: does not begin with its title"
        return
    named = leads.naming(lead)
    for number, start, rest in told(lead):
        if not start:
            yield "sentence: not surely on the subject"
            continue
        claim = claim_of(lead, number, start, rest)
        if isinstance(claim, str):
            yield f"sentence: {claim}"
            continue
        said = [*leads.others(lead, number), *named]
        if _alike_one(said, claim.text, lead.name, ALIKE):
            yield "claim: another sentence says the same"
            continue
        yield _one_hop(claim, said, leads, rng)
        for place in _placed(claim.text):
            linked = leads.linked.get(place["name"])
            if linked and linked is not lead and leads.what[linked.name]:
                yield _two_hops(claim, place, linked, said, leads, rng)


def _one_hop(
    claim: Claim, said: Sequence[Words], leads: _Leads, rng: random.Random
) -> _Draft | str:
    gold = ((claim.lead.title, claim.number),)
    return _draft(claim.text, _free(claim, leads, rng), said, gold)


def _free(claim: Claim, leads: _Leads, rng: random.Random) -> list[_Focus]:
    """What can be exchanged in a claim outside of its subject."""
    start, end = claim.subject
    foci = _foci(claim.text, leads, rng)
    return [focus for focus in foci if focus.end <= start or focus.start >= end]


def _two_hops(
    claim: Claim,
    place: re.Match,
    linked: Lead,
    said: Sequence[Words],
    leads: _Leads,
    rng: random.Random,
) -> _Draft | str:
    """The claim with what a linked lead is about in place of its name."""
    names = f"{claim.lead.name} {linked.name}"
    what = _PARTS.get(place["part"], "") + leads.what[linked.name]
    if not _reads_well(claim.text, place, what, leads):
        return "link: does not read well"
    longer = {word for word in tokenize(linked.name) if len(word) > 3}
    if longer & set(tokenize(what)):
        return "link: what the lead is about gives its name away"
    naming = [words for words in said if words >= set(tokenize(linked.name))]
    back = _has(leads.others(linked), claim.lead.name)
    if back or _alike_one(naming, claim.text, names, ALIKE_LINKED):
        return "link: another sentence makes it too"
    start, end = place.span("whole")
    before, after = claim.text[:start], claim.text[end:]
    own = _free(claim, leads, rng)
    outside = [focus for focus in own if focus.end <= start]
    outside += [_moved(f, len(what) - (end - start)) for f in own if f.start >= end]
    inside = []
    if _ONE.search(before):
        inside = [_moved(focus, start) for focus in _foci(what, leads, rng)]
        if not place["part"]:
            inside.append(_moved(_other_link(linked, leads, rng), start))
    rng.shuffle(inside)
    text = before + what + after
    gold = ((claim.lead.title, claim.number), (linked.title, 0))
    drafts = [
        _draft(text, outside, said, gold),
        _draft(text, inside, [*said, *leads.others(linked, 0)], gold, inside=True),
    ]
    rng.shuffle(drafts)
    return next((d for d in drafts if isinstance(d, _Draft)), drafts[0])


def _reads_well(text: str, place: re.Match, what: str, leads: _Leads) -> bool:
    """Whether the name stands once, in a known land, and not after what it is.

    "The state of Bihar" would become "the state of a state".
    """
    named = re.findall(rf"\b{re.escape(place['name'])}\b", text)
    land = place["land"]
    known = not land or land.removeprefix(", ") in leads.linked
    before = text[: place.start()].split()[-1]
    return len(named) == 1 and known and before not in what.split()


def _moved(focus: _Focus, by: int) -> _Focus:
    return _Focus(focus.kind, focus.start + by, focus.end + by, focus.others)


def _other_link(linked: Lead, leads: _Leads, rng: random.Random) -> _Focus:
    """What leads of the same sort are about, where it can't be true of this one."""
    what = leads.what[linked.name]
    sort, names = SORT.search(what), set(re.findall(r"\b[A-Z]\w+", what))
    found = [leads.what[name] for name in leads.like(linked.name, _has_the(linked))]
    others = [
        other
        for other in rng.sample(found, min(60, len(found)))
        if sort and (same := SORT.search(other)) and same[0] == sort[0]
        if names and (theirs := set(re.findall(r"\b[A-Z]\w+", other)))
        if not names & theirs
    ]
    return _Focus("link", 0, len(what), tuple(others[:6]))


def _draft(
    text: str,
    foci: Sequence[_Focus],
    said: Sequence[Words],
    gold: tuple[tuple[str, int], ...],
    inside: bool = False,
) -> _Draft | str:
    """A draft by the first focus that no other sentence settles, or the reason."""
    step = ("claim", "link")[len(gold) - 1]
    for focus in foci:
        old = text[focus.start : focus.end]
        for new in focus.others:
            false = _exchanged(text, focus, new)
            lands = [DEMONYMS[nation][0] for nation in (old, new) if nation in DEMONYMS]
            if not false or new.lower() in text.lower():
                continue
            if not _has(said, old, new, *lands):
                settled = inside or focus.kind in SETTLED
                return _Draft(f"{text}.", f"{false}.", focus.kind, settled, gold)
    return f"{step}: {'another sentence settles it' if foci else 'nothing to exchange'}"


# ---- splits


def lead_claims(
    documents: Sequence[Document], sizes: Mapping[str, int], seed: int
) -> tuple[dict[str, list[Example]], set[str], Counter]:
    """Splits of claims, the ids of sentences to leave out, and what was dropped.

    sizes: split → claims. In each split labels are in turn, and every third round of
    labels has two hops. `question` is the claim, `answers` its label, `entity` the
    lead's title, `relation` the kind of focus, `evidence` the ids of its sentences, []
    for NOT ENOUGH INFO; `meta` names the set and the hops. No lead, linked ones
    included, is in two splits. A lead gives at most one claim of each number of hops.
    Counted is what was dropped of the leads that were needed, by reason.
    Deterministic from the documents, in any order, the sizes and the seed.
    Raises DataError if the leads have too few claims.
    """
    leads, deal = _Leads(documents), _Deal(sizes)
    titles = list(leads.by_title)
    random.Random(f"lead claims {seed}").shuffle(titles)
    dropped: Counter = Counter()
    for title in titles:
        if deal.done():
            break
        rng = random.Random(f"{seed} {title}")
        found = list(_drafts(leads.by_title[title], leads, rng))
        dropped.update(reason for reason in found if isinstance(reason, str))
        drafts = [draft for draft in found if isinstance(draft, _Draft)]
        deal.take(rng.sample(drafts, len(drafts)), rng)
    return deal.splits(), deal.removed, dropped


def lead_entries(
    documents: Sequence[Document], removed: Collection[str]
) -> list[Chunk]:
    """The leads' entries of three sentences, without those whose ids are `removed`.

    What is removed leaves its number empty.
    """
    return [
        entry
        for document in documents
        for entry in entries_of_sentences(
            document.title,
            [
                "" if sentence_id(document.title, number) in removed else sentence
                for number, sentence in enumerate(sentences_of(document))
            ],
        )
    ]


class _Deal:
    """Drafts dealt to the splits' places, and what they bind.

    A lead belongs to one split; a sentence is either evidence or taken out.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        self.places = {
            split: [(LABELS[i % 3], HOPS[i // 3 % len(HOPS)]) for i in range(size)]
            for split, size in sizes.items()
        }
        self.wanted = Counter(
            (s, *p) for s, places in self.places.items() for p in places
        )
        self.left = self.wanted.copy()
        self.dealt: dict[tuple[str, str, int], list[Example]] = defaultdict(list)
        self.owner: dict[str, str] = {}
        self.linked: Counter = Counter()
        self.gold: set[str] = set()
        self.removed: set[str] = set()

    def done(self) -> bool:
        return not self.left.total()

    def take(self, drafts: Sequence[_Draft], rng: random.Random) -> None:
        """Place of a lead's drafts the first possible one of each number of hops."""
        used: set[tuple[str, int]] = set()
        for hops in sorted(set(HOPS), reverse=True):
            for draft in drafts:
                fits = len(draft.gold) == hops and draft.gold[0] not in used
                if fits and self._place(draft, rng):
                    used.add(draft.gold[0])
                    break

    def _place(self, draft: _Draft, rng: random.Random) -> bool:
        """Deal a draft to the emptiest place of its hops, if one may have it."""
        titles = [title for title, _ in draft.gold]
        ids = [sentence_id(*gold) for gold in draft.gold]
        owners = {self.owner[title] for title in titles if title in self.owner}
        full = any(self.linked[title] >= PER_LINKED for title in titles[1:])
        if full or not self.removed.isdisjoint(ids):
            return False
        free = [
            key
            for key, left in self.left.items()
            if left and key[2] == len(ids) and owners <= {key[0]}
            if key[1] != NOT_ENOUGH or ids[0] not in self.gold
        ]
        if not free:
            return False
        key = max(free, key=lambda key: self.left[key] / self.wanted[key])
        self.left[key] -= 1
        self.dealt[key].append(_example(draft, ids, key[1], rng))
        self.owner.update(dict.fromkeys(titles, key[0]))
        self.linked.update(titles[1:])
        if key[1] == NOT_ENOUGH:
            self.removed.add(ids[0])
        else:
            self.gold.update(ids)
        return True

    def splits(self) -> dict[str, list[Example]]:
        """Each split's claims, in the order of its places."""
        for (split, label, hops), left in self.left.items():
            if left:
                raise DataError(
                    f"{split}={self.sizes[split]}: the leads give {left} claims of "
                    f"label {label} with {hops} hops too few; ask for fewer"
                )
        found = {key: iter(examples) for key, examples in self.dealt.items()}
        return {
            split: [next(found[split, *place]) for place in places]
            for split, places in self.places.items()
        }


def _example(
    draft: _Draft, ids: Sequence[str], label: str, rng: random.Random
) -> Example:
    claims = {"SUPPORT": draft.true, "REFUTE": draft.false}
    either = [draft.true, draft.true if draft.settled else draft.false]
    return Example(
        id=f"{label}: {' + '.join(ids)}",
        question=claims.get(label) or rng.choice(either),
        answers=[label],
        entity=draft.gold[0][0],
        relation=draft.kind,
        label=label,
        evidence=list(ids) if label in claims else [],
        meta={"set": "leads", "hops": len(ids)},
    )
