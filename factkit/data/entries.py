"""Entries, which searches for claims find, and the ids of evidence.

Veri-R1 searches entries of three consecutive sentences (App. B, E). Its published data
names evidence in two ways:

| claims of | an entry | its id | evidence |
|---|---|---|---|
| FEVEROUS, FEVER, SciFact | three sentences | `NME_sentences_0_2` | `NME_sentence_2` |
| EX-FEVER, HoVer | a page's summary | `Vin Diesel` | `Vin Diesel` |

A search finds an entry as a whole, and `split_entry` cuts it into the pieces that the
model reads and may cite. The ids of evidence are those of the published files; the id
of an entry of sentences is ours (theirs: `NME<sent_id=0_2>`). Sentences are numbered
from 0 in their page. The text of an entry begins with the title in a line of its own,
as in the published corpus: a sentence from the middle of a page says "he".
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence

from factkit.data.corpus import Chunk

SENTENCES = 3  # of an entry (Veri-R1 App. B)

_SENTENCE = re.compile(r"(?P<page>.+)_sentence_\d{1,9}", re.DOTALL)
_ENTRY = re.compile(r"(?P<page>.+)_sentences_(?P<first>\d{1,9})_\d{1,9}", re.DOTALL)
_BRACKETS = str.maketrans("[]", "()")


def page_id(title: str) -> str:
    """A title as in ids: NFC, on one line, with round brackets for square ones."""
    return " ".join(unicodedata.normalize("NFC", title).translate(_BRACKETS).split())


def sentence_id(title: str, number: int) -> str:
    """The id of a page's sentence, counted from 0."""
    return f"{page_id(title)}_sentence_{number}"


def page_of(evidence: str) -> str:
    """The page that an id of evidence is from."""
    sentence = _SENTENCE.fullmatch(evidence)
    return sentence["page"] if sentence else evidence


def entries_of_sentences(
    title: str, sentences: Sequence[str] | Mapping[int, str], heading: str = ""
) -> list[Chunk]:
    """A page's entries of three consecutive sentences.

    sentences: in order, or number → sentence if some numbers are missing. An empty
    sentence keeps its number; three empty ones are no entry. heading: begins the text
    instead of the title. An id names three sentences, even if the page ends earlier.
    `n_tokens` is the number of words.
    """
    if not isinstance(sentences, Mapping):
        sentences = dict(enumerate(sentences))
    page, heading = page_id(title), " ".join((heading or title).split())
    groups: dict[int, list[str]] = {}
    for number, sentence in sorted(sentences.items()):
        if sentence := " ".join(sentence.split()):
            lines = groups.setdefault(number // SENTENCES, [""] * SENTENCES)
            lines[number % SENTENCES] = sentence
    entries = []
    for group, lines in groups.items():
        first, text = group * SENTENCES, "\n".join([heading, *lines]).rstrip("\n")
        name = f"{page}_sentences_{first}_{first + SENTENCES - 1}"
        entries.append(_chunk(name, page, text))
    return entries


def page_entry(title: str, text: str) -> Chunk:
    """A page's summary as one entry, whose id is the page's (EX-FEVER, HoVer)."""
    heading, body = " ".join(title.split()), " ".join(text.split())
    return _chunk(page_id(title), page_id(title), f"{heading}\n{body}")


def split_entry(entry: Chunk) -> list[Chunk]:
    """The pieces of an entry that the model reads and may cite: its sentences, or the
    page, without the title, which is in the id.

    Raises ValueError on a chunk whose text has no title in a line of its own.
    """
    _, *lines = entry.text.split("\n")
    if not lines:
        raise ValueError(f"{entry.id!r} is no entry: {entry.text[:60]!r} has no title")
    sentences = _ENTRY.fullmatch(entry.id)
    if not sentences:
        return [_chunk(entry.id, entry.doc_id, " ".join(lines))]
    return [
        _chunk(sentence_id(sentences["page"], number), entry.doc_id, line)
        for number, line in enumerate(lines, int(sentences["first"]))
        if line
    ]


def _chunk(name: str, page: str, text: str) -> Chunk:
    return Chunk(name, page, text, len(text.split()))
