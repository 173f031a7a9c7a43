"""The sentences of a response, and by rules the clauses that state something.

`statements` splits a sentence where one of these begins a new clause:
- "and", "but" or a comma before a verb: a further predicate of the same subject;
- the same, ";", "while" or "where" before a pronoun or name with a verb: a clause of
  its own;
- "who" or "which" before a verb: a statement of the name before it, and of the subject
  where "who" follows no name;
- "before", "after" or a comma before a verb in -ing, put into the past tense;
- "best known for", "based in" and their like after a predicate noun;
- "X, a Y": X is a Y.
What is left is split at lists ("A, B and C", "such as A and B"), after a nationality,
and at the place and date of "born". What is a verb is told by the word alone: one of
`PRESENT` or `PAST`, or one in -ed that an object or place follows.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

LONGEST = 1_000  # characters of a sentence that the rules split; longer ones stay whole

FENCE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[^\n]*$|\Z)", re.M | re.S)
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # newlines, and what pysbd stumbles over
MARKER = re.compile(r"[ \t]*(?:(?:#{1,6}|[-*+•>]|\d{1,3}[.)])[ \t]+)*")


def sentences(text: str) -> list[str]:
    """The sentences of a text in Markdown, each an exact substring, in order.

    A line is a paragraph of its own, unless it begins in lower case and so goes on from
    the line before. Left out: the marks of lists, headings and quotes, fenced code, and
    what holds no letter.
    """
    found = []
    for paragraph in _paragraphs(FENCE.sub(lambda m: "\n" * len(m[0]), text)):
        flat, at = CONTROL.sub(" ", paragraph), 0
        for segment in _segmenter().segment(flat):
            begin = flat.find(segment.strip(), at)
            if begin < 0:  # the library changed the text: keep the rest as it is
                break
            at = begin + len(segment.strip())
            found.append(paragraph[begin:at])
        found.append(paragraph[at:].strip())
    return [sentence for sentence in found if re.search(r"[^\W\d_]", sentence)]


def _paragraphs(text: str) -> list[str]:
    """Lines without their marks, those that go on in lower case with the one before."""
    starts = [m.end() for m in re.finditer(r"\A|\n(?![ \t]*[a-z])", text)]
    ends = [start - 1 for start in starts[1:]] + [len(text)]
    blocks = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    return [block[MARKER.match(block).end() :].strip() for block in blocks]


@cache
def _segmenter() -> Any:
    import pysbd

    return pysbd.Segmenter(language="en", clean=False)


NAME = (
    r"[A-Z][\w'’.\-]*"
    r"(?: (?:(?:of|the|de|da|van|von|der|la|bin) ){0,2}[A-Z0-9][\w'’.\-]*)*"
)
PRONOUN = r"(?:[Hh]e|[Ss]he|[Ii]t|[Tt]hey)\b"
PRESENT = """is are has have does do can will may becomes begins wins writes makes takes
    goes comes leads holds gives includes include contains contain plays serves works
    lives remains consists covers features appears uses focuses specializes specialises
    represents offers provides refers means belongs borders produces shows describes
    follows allows causes helps resides stars requires lies hosts runs enjoys competes
    operates speaks teaches owns performs directs manages continues aims sits"""
PAST = """was were had did could would might became began won wrote made took went came
    left led held gave got said saw grew met ran sold spent taught told built bought
    brought caught chose drew fell felt fought found flew kept knew lost lay paid put
    studied attended graduated earned received moved retired died joined released
    read rose sang sat sent set shot spoke swam threw wore rode"""
POSSESSIVE = r"(?:[Hh]is|[Hh]er|[Ii]ts|[Tt]heir)\b"
STANDS_FOR = re.compile(rf"{PRONOUN}|{POSSESSIVE}|(?:There|This|These|That|Those)\b|$")
NO_NAME = """He She It They This That These Those There Both Many Some Others Most All
    Each One Another His Her Its Their""".split()
ADVERB = r"(?:(?:also|then|later|now|still|often|since|soon|once|never|[a-z]+ly) )*"
DETERMINERS = """a an the his her its their this several many various some two three
    four five six seven eight nine ten one both numerous"""
PREPOSITIONS = """in on at for with by from to as into between against about under over
    through during until after before since alongside"""


def _any(words: str) -> str:
    return f"(?:{'|'.join(words.split())})"


DETERMINER = re.compile(rf"{_any(DETERMINERS)}\b")
OBJECT = rf" (?:{_any(DETERMINERS)}|{_any(PREPOSITIONS)})\b"
# a form in -ed that nothing of the kind follows may be an adjective
REGULAR = rf"(?!need|speed|hundred)[a-z]{{2,}}ed(?={OBJECT}| [A-Z0-9]|$)"
VERB = rf"\b(?:{_any(PRESENT)}\b|{_any(PAST)}\b|{REGULAR})"
BOUNDARY = re.compile(
    rf"(?P<relative>,? (?:who|which) (?={ADVERB}{VERB}))"
    rf"|(?P<clause>(?:,? (?:where|and|but|while|whereas|so)|;|,)"
    rf" (?=(?:{PRONOUN}|(?:[Tt]he )?{NAME}|(?:{POSSESSIVE}|the) [a-z]+(?: [a-z]+)?)"
    rf" {ADVERB}{VERB}))"
    rf"|(?P<predicate>(?:,? (?:and|but)|,) (?={ADVERB}{VERB}))"
    rf"|(?P<gerund>(?:,(?: and| then)?| before| after)"
    rf" (?!during|including|being|according|starting|beginning|following)"
    rf"(?=(?:later |also )?[a-z]+ing\b))"
    rf"|(?P<reduced> (?=(?:(?:best|also|widely|commonly|primarily) )?"
    rf"(?:known (?:for|as)|based in|located in|born (?:in|on))\b))"
)
VERB_BEFORE = re.compile(rf"(?:^|{VERB}|\bbeen)(?: ?(?:best|also|[a-z]+ly))*$")
PARTICIPLE = re.compile(r"\b(?:is|are|was|were|been) [a-z]+(?:ed|en)$")
PASSIVE = re.compile(
    r"(?:[a-z]+ed by|called|named|raised|educated|buried|elected|appointed)\b"
)
LEADING = re.compile(
    rf"(?P<participle>(?:Born|Known|Raised|Based|Located|Founded|Established|Released)"
    rf" .+?), (?={PRONOUN}|{NAME} {ADVERB}{VERB}|[Tt]he )"
    rf"|(?:After|Before) (?P<gerund>[a-z]+ing [^,]+), "
    rf"|(?P<time>(?:In|On|At|Since|From|By|During|Throughout|After|Following) [^,]+), "
    rf"(?=[^,]*?{VERB})"
    r"|(?:In addition|Prior|Due|According) to [^,]+, |(?:Although|Though|While) "
)
FILLER = re.compile(
    r"(?:(?:However|Moreover|Furthermore|In addition|Additionally|Overall|Also|Then"
    r"|Later|For example|For instance|Today|Finally|Unfortunately|Yes|No|In fact"
    r"|In contrast|On average|As a result|Therefore|Thus), "
    r"|(?:Since then|So|And|But),? |Note that "
    r"|(?:[Ii]t is|[Ii]t's) (?:worth noting|important to note|known|believed) that )+"
)
IRREGULAR = dict(
    pair.split("=")
    for pair in """becoming=became winning=won having=had leaving=left making=made
    taking=took going=went writing=wrote holding=held leading=led getting=got
    running=ran teaching=taught giving=gave bringing=brought selling=sold building=built
    beginning=began spending=spent dying=died finding=found losing=lost
    meeting=met growing=grew seeing=saw setting=set coming=came""".split()
)
NO_STATEMENT = re.compile(
    r"[?:]\s*[\"'”’)]*$|\b(?:you|your|we|us|me|my|let's)\b|(?<![A-Z]\w) ?\bI['’]"
    r"|^(?:You|Your|We|Our|My|Let's|If|Suppose|Imagine|Perhaps|Maybe|Please|Consider|Try|Remember|Check|Visit"
    r"|Use|Make sure|Be sure|Ensure|Avoid|Keep|Let|Do not|Don't|Here (?:is|are))\b"
    r"|\b(?:should|ought to|would have|recommend|in my opinion|arguably|hopefully"
    r"|worth (?:a|visiting|seeing|reading|trying)|must-see|an AI|language model)\b"
    r"|\b(?:don't|do not|does not|doesn't|not) (?:know|sure|certain|clear|available)\b"
    r"|\b(?:cannot|can't|unable to) (?:provide|find|answer|confirm|verify)\b"
    r"|\b(?:little|not much|nothing) is known\b|\bno (?:record|information)\b"
    r"|[{}]|=>|==|\w\(\)|</?\w+>|^\s*(?:def|import|return|print)\b|;\s*$",
)
BORN_IN_BRACKETS = re.compile(r"\((?:born|b\.) ([^()]+)\)")
FIRST_PERSON = re.compile(r"(\b[A-Z]\w+ )?\bI\b(?!\.)")


def statements(
    prompt: str, response: str, filler: re.Pattern[str] = FILLER
) -> Iterator[tuple[str, list[str]]]:
    """Each sentence of a response that states something, and its atomic statements.

    filler: what is left out where a sentence begins with it.
    """
    topic = who = ""
    for sentence in sentences(response):
        plain = _plain(sentence, filler)
        # a long heading has no full stop
        told = re.search(VERB, plain) or re.search(r"(?:\w+\W+){4}\w+\.$", sentence)
        if not told or not _is_statement(plain):
            continue
        if len(plain) > LONGEST:
            yield sentence, [plain]
            continue
        subject = _subject(plain)
        named = re.fullmatch(rf"(?:The )?{NAME}", subject) and subject not in NO_NAME
        if not topic and (named or not STANDS_FOR.match(subject)):
            topic = who = subject
        elif named:
            who = topic if set(subject.split()) & set(topic.split()) else subject
        meant = who or _first_name(prompt)
        texts = [part.strip() for atom in _atoms(plain) for part in _parts(atom)]
        if subject and (born := BORN_IN_BRACKETS.search(sentence)):
            texts.append(f"{subject} was born {born[1]}")
        yield sentence, [_sentence(t, meant) for t in texts if len(t.split()) > 2]


def _is_statement(plain: str) -> bool:
    first_person = any(not name for name in FIRST_PERSON.findall(plain))
    return not first_person and not NO_STATEMENT.search(plain)


def _plain(sentence: str, filler: re.Pattern[str]) -> str:
    """A sentence without emphasis, links, references, brackets, filler, final stop."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", sentence)
    text = re.sub(r"\[\d+\]|\*+|`+|(?<!\w)_+|_+(?!\w)| ?\([^()]*\)", "", text)
    text = re.sub(r"[.!]([\"'”’]?)$", r"\1", " ".join(text.split()))
    return filler.sub("", text, count=1) if filler.match(text) else text


def _subject(plain: str) -> str:
    """What stands before the first verb and the first comma, without what leads in."""
    text = LEADING.sub("", plain, count=1) if LEADING.match(plain) else plain
    verb = re.search(rf" {ADVERB}{VERB}", text)
    return text[: verb.start()].partition(",")[0] if verb else ""


def _first_name(prompt: str) -> str:
    """The first name in a prompt that does not begin one of its sentences."""
    found = re.search(rf"(?<![.?!:\n]) \b({NAME})", prompt)
    return found[1].rstrip(".") if found else ""


def _atoms(plain: str) -> Iterator[str]:
    """The atomic statements of a sentence; subjects may still be pronouns."""
    lead = LEADING.match(plain)
    text = plain[lead.end() :] if lead else plain
    subject = _subject(text)
    is_, pieces = _copula(text), list(_pieces(text))
    if lead and lead["participle"]:
        copula = "was" if lead[0].startswith("Born") else is_
        yield f"{subject} {copula} {_low(lead['participle'])}"
    if lead and lead["gerund"]:
        yield f"{subject} {_past(lead['gerund'])}"
    current = subject
    for i, (kind, piece, before) in enumerate(pieces):
        if kind in ("", "clause"):
            current = _subject(piece) or current
            if i == 0 < len(pieces) - 1 and not re.search(VERB, piece):
                # a subject that ends before the first boundary
                name, _, apposition = piece.partition(", ")
                subject = current = name
                if apposition:
                    yield f"{name} {is_} {apposition}"
                continue
            first, *others = _parts(piece)
            time = lead["time"] if lead and i == 0 else None
            yield f"{first} {_low(time)}" if time else first
            yield from others
        elif kind == "predicate":
            current = subject if before.startswith(",") else current
            copula = f"{is_} " if PASSIVE.match(piece) else ""
            yield f"{current} {copula}{piece}"
        elif kind == "gerund":
            yield f"{current} {_finite(piece, is_)}"
        else:
            current = _last_name(pieces[i - 1][1]) or current
            copula = f"{is_} " if kind == "reduced" else ""
            yield f"{current} {copula}{piece}"


def _copula(text: str) -> str:
    """How a sentence says "is": in its tense."""
    verb = re.search(VERB, text)
    return "is" if verb and verb[0] in PRESENT.split() else "was"


def _pieces(text: str) -> Iterator[tuple[str, str, str]]:
    """(kind of boundary, what follows it, the boundary), in the sentence's order."""
    begin, kind, mark = 0, "", ""
    for found in BOUNDARY.finditer(text):
        passed = text[begin : found.start()]
        if VERB_BEFORE.search(passed):
            continue  # "is best known for"
        if PASSIVE.match(text, found.end()) and PARTICIPLE.search(passed):
            continue  # "was written and directed by"
        if found["relative"] and "which" in found[0] and not _last_name(passed):
            continue  # it may stand for the whole clause
        yield kind, text[begin : found.start()].strip(" ,"), mark
        begin, kind, mark = found.end(), str(found.lastgroup), found[0]
    yield kind, text[begin:].strip(" ,"), mark


def _last_name(piece: str) -> str:
    """The name that a piece ends with, "" if it ends with something else."""
    found = re.search(rf"(?:^|[^.\w])({NAME})$", piece)
    return found[1] if found else ""


def _low(text: str) -> str:
    return text[0].lower() + text[1:]


def _finite(gerund: str, is_: str) -> str:
    """A gerund in the sentence's tense; "having moved" → "has moved" in either."""
    if re.match(r"having (?:[a-z]+(?:ed|en)|had)\b", gerund):
        return gerund.replace("having", "has", 1)
    return _past(gerund) if is_ == "was" else f"is {gerund}"


def _past(gerund: str) -> str:
    """ "moving to Porto" → "moved to Porto"."""
    word, _, rest = re.sub(rf"^{ADVERB}", "", gerund).partition(" ")
    stem = re.sub(r"(?<=[^aeiou])y$", "i", word.removesuffix("ing"))
    return f"{IRREGULAR.get(word, stem + 'ed')} {rest}".strip()


BORN = re.compile(
    r"(?P<who>.*\bborn) (?P<one>(?:in|on|at) .+?),? (?P<two>(?:in|on|at) .+)"
)
NATION = re.compile(
    r"(?P<who>.+ (?:is|was|were|are)) an? (?:(?:retired|former) )?(?P<nation>"
    r"[A-Z][\w-]*(?:an|ish|ese|ench|utch|eek|elsh|iss|ani|eli|aqi)) (?P<what>[a-z].*)"
)
APPOSITION = re.compile(
    rf".*{VERB}.*?(?P<name>{NAME}), (?P<what>(?:an?|the) [a-z][^,]*)"
)
EXAMPLES = re.compile(r",? (?:such as|including|like|most notably) ")
ITEM_START = re.compile(
    rf".*(?:\b{_any(PREPOSITIONS)}"
    rf"|(?:{VERB}|\b(?:be|been)\b)(?: (?:also|been|[a-z]+(?:ed|en)))*) "
)


def _parts(clause: str) -> Iterator[str]:
    """A clause split at its lists, its nationality, the date and place of a birth."""
    born = BORN.fullmatch(clause)
    if born and " and " not in clause:
        yield f"{born['who']} {born['one']}"
        yield f"{born['who']} {born['two']}"
        return
    if nation := NATION.fullmatch(clause):
        yield f"{nation['who']} {nation['nation']}"
        yield from _parts(f"{nation['who']} {_article(nation['what'])}")
        return
    if apposition := APPOSITION.fullmatch(clause):
        copula = _copula(clause)
        yield f"{apposition['name']} {copula} {apposition['what']}"
        clause = clause[: apposition.end("name")]
    head, *rest = EXAMPLES.split(clause, maxsplit=1)
    if rest and (start := _before_group(head)):
        yield head
        yield from (f"{start}{item}" for item in _items(rest[0]))
        return
    yield from _members(clause)


def _before_group(head: str) -> str:
    """What stands before the things that examples are of, "" if that isn't clear.

    These are after the last preposition or verb that nothing definite follows: "works
    with " of "works with brands in the world".
    """
    start = ITEM_START.match(head)
    while start and re.match(r"(?:the|his|her|its|their) |[A-Z]", head[start.end() :]):
        start = ITEM_START.match(start[0].rstrip().rpartition(" ")[0] + " ")
    return start[0] if start else ""


def _members(clause: str) -> Iterator[str]:
    """A clause once for each item of the list "A, B and C" that it ends with."""
    head, _, last = clause.rpartition(" and ")
    start = ITEM_START.match(f"{head} ")
    if start and (inner := re.search(rf" {_any(PREPOSITIONS)} ", last)):
        at = start[0].rfind(inner[0], 0, -1)
        # "include Ann in Rent and Bob in Cats": the items begin after "include"
        start = ITEM_START.match(start[0][: at + 1]) if at > 0 else start
    if not start or ":" in clause:
        yield clause
        return
    same = start[0]
    first, of, _ = clause[len(same) :].partition(" of ")
    shared = of and not (_is_name(first) or " and " in first or " of " in last)
    if shared and not DETERMINER.match(last):
        same += first + of  # "a graduate of Yale and Harvard"
    items = _items(clause[len(same) :])
    if not _alike(items):
        yield clause
        return
    article = re.match(r"an? ", items[0])
    for item in items:
        bare = item[0].islower() and not DETERMINER.match(item)
        yield f"{same}{_article(item) if article and bare else item}"


def _is_name(item: str) -> bool:
    return re.match(r"(?:the )?[A-Z0-9\"“]", item) is not None


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _items(text: str) -> list[str]:
    """The items of "A, B and C", or the whole where it isn't clear what "and" joins."""
    between = ", and " if ", and " in text else " and "  # then "and" is within an item
    if between == " and " and (
        text.count(" and ") > 1 or ", " in text.rpartition(" and ")[2]
    ):
        return [text]
    items = text.replace(between, ", ").split(", ")
    return [item for item in items if item not in ("more", "others", "many more")]


def _alike(items: Sequence[str]) -> bool:
    """Whether items are a list's: short, without verbs, begun in the same way.

    Of two items, both or neither must be names, the first must show by its first word
    where it begins, and may not be an adjective ("his quick and easy style") or share
    the second's "of" ("the founder and head of X").
    """
    if len(items) < 2 or any(
        not i or len(i.split()) > 6 or re.search(VERB, i) or EXAMPLES.search(i)
        for i in items
    ):
        return False
    if len({bool(re.match(r"[a-z]+ing\b", item)) for item in items}) > 1:
        return False
    first, last = items[0], items[-1]
    if len(items) > 2 or _is_name(first):
        return len(items) > 2 or _is_name(last)
    determined = DETERMINER.match(first) is not None
    adjective = (
        not DETERMINER.match(last) and len(first.split()) == 2 and len(last.split()) > 1
    )
    shared = " of " in last and " of " not in first
    return determined and not (_is_name(last) or adjective or shared)


def _sentence(clause: str, who: str) -> str:
    """A clause as a sentence of its own, its first pronoun made the name `who`."""
    if who:
        clause = re.sub(rf"^{PRONOUN}", lambda _: who, clause)
        clause = re.sub(rf"^{POSSESSIVE}", lambda _: f"{who}'s", clause)
    return f"{clause[0].upper()}{clause[1:]}."
