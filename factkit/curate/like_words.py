"""Words and names that can stand in each other's place, from the embedded corpus.

Two words are alike if they stand between the same words and mean related, but not the
same things ("physicist", "chemist"); two titles are alike if their descriptions are.
Small tables add what such statistics get wrong: opposites, numerals, months.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from factkit.corpus import Document
from factkit.datasets.leads import DEMONYMS, plain_title
from factkit.dense import Encoder

Alternatives = Mapping[str, Sequence[str]]
BLOCK = 512  # rows of a matrix of similarities held at once
WORD = re.compile(r"[^\W\d_][\w'’-]*")
SMALL_WORDS = frozenset(
    "a an the of in on at by for from to with and or but as is are was were be been"
    " being has have had that which who whose its his her their it he she they this"
    " these those there not no never also into than then such some any each other most"
    " more many one between both during through over under about after before can may"
    " will would could do does did where when while if because since until out up so"
    " only very them him".split()
)
MONTHS = (
    "January February March April May June July August September October November"
    " December".split()
)


def _rows(table: str) -> list[list[str]]:
    rows = " ".join(table.split()).split(";")
    return [[word.strip() for word in row.split("/")] for row in rows if row.strip()]


# members of a row exclude each other
KINDS = _rows("""
    two/three/four/five/six/seven/eight/nine/ten/eleven/twelve; black/white;
    first/second/third/fourth/fifth/sixth/seventh; red/blue/green/yellow/purple/orange;
    Europe/Asia/Africa/North America/South America/Australia; century/decade/millennium;
    million/billion/thousand; Christian/Muslim/Jewish/Buddhist/Hindu;
    Christianity/Islam/Judaism/Buddhism/Hinduism; Catholic/Protestant/Orthodox;
    mother/sister/aunt/grandmother/wife; father/brother/uncle/grandfather/husband;
    president/prime minister/king/governor/mayor/senator; guitar/piano/violin/drums;
    singer/dancer/painter/actor/footballer/politician/poet/journalist/lawyer/chef;
    novel/play/poem/film/album/song/opera; directed/produced/wrote/composed;
    born/educated/buried; mammal/bird/reptile/fish/insect/plant/fungus; gold/silver;
    Grammy Award/Academy Award/Nobel Prize/Pulitzer Prize/Emmy Award;
    summer/winter/spring/autumn; football/basketball/tennis/cricket/baseball/rugby;
    last/first; largest/smallest; northern/southern; eastern/western; north/south;
    east/west; before/after; male/female; increase/decrease; won/lost; highest/lowest;
    oldest/youngest; ancient/modern; early/late; earlier/later; older/younger;
    son/daughter; mother/father; wife/husband; sister/brother; king/queen; always/never;
    all/no; many/few; most/least; above/below; major/minor; public/private; upper/lower;
    inner/outer; positive/negative; rich/poor; hot/cold; wet/dry; success/failure;
    successful/unsuccessful; common/rare; high/low; long/short; large/small;
    larger/smaller; higher/lower; longer/shorter; left/right; ancestor/descendant;
    victory/defeat; united/divided; alive/dead; natural/artificial; legal/illegal;
    living/extinct; professional/amateur; started/stopped; joined/left; begin/end;
    began/ended; accepted/rejected; supported/opposed; fiction/non-fiction;
    inside/outside; liquid/solid; with/without; best/worst; popular/unpopular;
    more/less; greatest/smallest; dependent/independent; lost/gained; domestic/wild;
    vertebrate/invertebrate; old/new; single/multiple; entirely/partly; often/rarely;
    usually/rarely; widely/rarely; boy/girl; man/woman; men/women; actor/actress;
    prince/princess; his/her; he/she; include/exclude; includes/excludes; known/unknown;
    visible/invisible; possible/impossible; former/current; heavy/light; strong/weak;
    fast/slow; deep/shallow; full/empty; peace/war; democracy/dictatorship; day/night
""")
# the first may be said as any of the others
PARAPHRASES = _rows("""
    is known for/is famous for; film/movie; wrote/authored; founded/established;
    is located in/lies in/is in/is situated in; consists of/is made up of; large/big;
    began/started; approximately/about/around; such as/like; died/passed away;
    developed/created; many/numerous; often/frequently; primarily/mainly;
    usually/typically/generally; largest/biggest; also known as/also called;
    kind of/type of/form of; throughout/across; is considered/is regarded as;
    is used to/serves to; is the study of/studies; various/different; got/received;
    served as/worked as/was; during/in; within/in; physician/doctor; poet/writer;
    novelist/writer; mathematician/scientist; physicist/scientist; chemist/scientist;
    actress/performer; actor/performer; city/town; nation/country; built/constructed;
    purchased/bought; constructed/built; located in/in; originated in/comes from;
    inhabitants/residents/people; United States/US/America; United Kingdom/UK/Britain;
    composer/musician; singer/vocalist/musician; painter/artist; sculptor/artist;
    illness/disease; occurs/happens; obtained/acquired; released/published;
    commonly/often; widely/broadly; significant/important; major/important;
    main/principal; famous/well-known; renowned/famous; influential/important;
    contains/has/includes; wife/spouse; husband/spouse; father/parent; mother/parent;
    son/child; daughter/child; attended/went to; became/turned into; won/was awarded
""")


@dataclass(frozen=True)
class LikeWords:
    """What may replace a word, a phrase or a document's subject.

    tables, titles, words: phrase → others of its kind. synonyms: word → words that say
    nearly the same. kin: document id → documents on like subjects. counts: lower-case
    word → occurrences in the corpus.
    """

    tables: Alternatives
    titles: Alternatives
    words: Alternatives
    synonyms: Alternatives
    kin: Mapping[str, Sequence[Document]]
    counts: Mapping[str, int]

    def synonym(self, word: str) -> str:
        """A word that says nearly the same, or a wider one; "" if none is known."""
        found = () if word in self.tables else self.synonyms.get(word, ())
        return found[0] if found and found[0] not in self.tables else ""

    def alternatives(self, phrase: str) -> tuple[float, Sequence[str]]:
        """How good a phrase is to replace (weight, 0 if it can't), and by what."""
        if found := self.tables.get(phrase):
            return 2.5 if len(found) > 2 else 1.5, found
        if found := self.titles.get(phrase):
            return 2.0, found
        found = self.words.get(phrase.lower(), ())
        if phrase[:1].isupper():
            found = [word.capitalize() for word in found]
        return (0.8, found) if found else (0.0, ())


def like_words(documents: Sequence[Document], encoder: Encoder) -> LikeWords:
    """Learn from a corpus with descriptions what is alike (about a minute)."""
    cased = [WORD.findall(document.text) for document in documents]
    texts = [[word.lower() for word in words] for words in cased]
    counts = Counter(word for words in texts for word in words)
    capital = Counter(w.lower() for words in cased for w in words if w[0].isupper())
    named = {word for word, n in counts.items() if capital[word] > 0.6 * n}
    tables: dict[str, list[str]] = {}
    demonyms = [list(DEMONYMS), [country for (country, *_) in DEMONYMS.values()]]
    for kind in [*KINDS, MONTHS, *demonyms]:
        for word in kind:
            tables.setdefault(word, []).extend(other for other in kind if other != word)
    titles, kin = _like_titles(documents, encoder, counts, named)
    words, synonyms = _alike(texts, counts, named, encoder)
    return LikeWords(tables, titles, words, synonyms, kin, counts)


def _alike(
    texts: Sequence[Sequence[str]], counts: Counter, named: set[str], encoder: Encoder
) -> tuple[Alternatives, Alternatives]:
    """Words between the same neighbours, with one ending: of a kind, and synonyms."""
    vocabulary = [
        word
        for word, n in counts.items()
        if n >= 8 and len(word) > 2 and word not in SMALL_WORDS
    ]
    use = _neighbours(texts, vocabulary, [word for word, _ in counts.most_common(400)])
    meaning = encoder.passages(vocabulary)  # (V, d)
    form = np.array([2 * _ending(word) + (word in named) for word in vocabulary])
    like, synonyms = {}, {}
    for start in range(0, len(vocabulary), BLOCK):
        block = slice(start, start + BLOCK)
        alike = use[block] @ use.T, meaning[block] @ meaning.T  # (block, V) each
        same_form = form[block, None] == form
        for i, word in enumerate(vocabulary[block]):
            in_use, in_meaning = alike[0][i], alike[1][i]
            fits = same_form[i] & (in_use > 0.4) & (in_meaning > 0.3)
            near = fits & (in_meaning > 0.7) & (in_meaning < 0.99)
            fits &= in_meaning < 0.68
            like[word] = _best(vocabulary, in_use / 2 + in_meaning, fits, 8)
            if word not in named:
                synonyms[word] = _best(vocabulary, in_meaning, near, 2)
    return like, synonyms


def _best(
    of: Sequence[str], score: np.ndarray, fits: np.ndarray, most: int
) -> list[str]:
    """Those of the highest score that fit."""
    found = np.flatnonzero(fits)
    return [of[i] for i in found[np.argsort(-score[found])][:most]]


def _neighbours(
    texts: Sequence[Sequence[str]], vocabulary: Sequence[str], context: Sequence[str]
) -> np.ndarray:
    """What stands right and left of each word, float32 (V, 2 × contexts), unit rows."""
    row = {word: i for i, word in enumerate(vocabulary)}
    column = {word: i for i, word in enumerate(context)}
    seen = np.zeros((len(row), 2 * len(column)), np.float32)
    for words in texts:
        for left, right in zip(words, words[1:], strict=False):
            if left in row and right in column:
                seen[row[left], column[right]] += 1
            if right in row and left in column:
                seen[row[right], len(column) + column[left]] += 1
    seen = np.sqrt(seen)
    return seen / np.maximum(np.linalg.norm(seen, axis=1, keepdims=True), 1e-9)


def _ending(word: str) -> int:
    endings = ("ing", "ed", "ly", "s")
    return next((i for i, end in enumerate(endings) if word.endswith(end)), -1)


def _like_titles(
    documents: Sequence[Document], encoder: Encoder, counts: Counter, named: set[str]
) -> tuple[Alternatives, dict[str, list[Document]]]:
    """For each name and document those of one topic with like descriptions."""
    known = [d for d in documents if d.meta["description"]]
    said = encoder.passages([d.meta["description"] for d in known])
    names = [_running_text(plain_title(d.title)[0], counts, named) for d in known]
    topics = np.array([d.meta["topic"] for d in known])
    titles, kin = {}, {}
    for start in range(0, len(known), BLOCK):
        block = slice(start, start + BLOCK)
        alike, same_topic = said[block] @ said.T, topics[block, None] == topics
        for i, document in enumerate(known[block]):
            own = names[start + i]
            fits = same_topic[i] & (alike[i] > 0.45)
            order = np.flatnonzero(fits)
            order = order[np.argsort(-alike[i][order])][:12]
            others = [j for j in order if names[j] != own]
            titles[own] = [names[j] for j in others]
            kin[document.id] = [known[j] for j in others]
    return titles, kin


def _running_text(title: str, counts: Counter, named: set[str]) -> str:
    """A title as it is written within a sentence: "Solar energy" → "solar energy"."""
    first, *rest = title.split(" ")
    common = first.lower() in counts and first.lower() not in named
    if common and all(word.islower() for word in rest):
        return first.lower() + title[len(first) :]
    return title
