"""The claims of Veri-R1 (§3.1, App. E), from the sets' own files to the one schema.

| set | file | evidence | labels |
|---|---|---|---|
| fever | its JSON lines | sentences; none for NOT ENOUGH INFO | three |
| feverous | its JSON lines | sentences | three |
| exfever | its CSV | pages | three |
| scifact | claims_….jsonl | sentences; none for NOT ENOUGH INFO | three |
| hover | its JSON | pages | SUPPORT, and the other two as one |
| veri_r1 | the published .parquet or its JSON lines | as its rows' set | as its set |

An example's `question` is the claim, `label` one of `world.LABELS`, `answers` the
labels that count as right, `evidence` the ids of the gold evidence
(`retrieval.entries`), `entity` the page of the first, `meta["set"]` the set.

What the paper leaves open is as in its published files (H0key-22/Veri-R1 on GitHub):
- Where FEVER offers several sets of evidence, each enough by itself, all of them are
  gold: so in each of the 91 of 900 published claims that have several. FEVEROUS and
  SciFact are read alike.
- HoVer's NOT_SUPPORTED may be refuted or lack information: any label but SUPPORT is
  right, and as for NOT ENOUGH INFO no evidence is needed (the last columns of Tables 7
  and 8 are equal). So `label` is NOT ENOUGH INFO and `answers` holds REFUTE, too. Its
  evidence is annotated by sentence; pages are scored.
- Of HoVer there are 500 claims a label (the paper's App. E says 448). The 237 of
  SciFact are of its training and its development claims.

Of FEVEROUS, claims are left out whose evidence is in tables, lists or titles. In the
published training file this was perhaps not so: in 9 % of its claims the annotator had
also marked such an element.
"""

import ast
import html
import random
import re
from collections.abc import Iterable, Mapping, Sequence

from factkit.datasets import rows
from factkit.datasets.examples import DataError, Example, digest
from factkit.datasets.rows import Loaded, Row, RowError, Source
from factkit.retrieval.entries import page_id, page_of, sentence_id
from factkit.world.facts import LABELS

SUPPORT, REFUTE, NEI = LABELS
NOT_SUPPORTED = "NOT_SUPPORTED"  # HoVer's
WRITTEN = {
    "SUPPORT": SUPPORT,
    "SUPPORTS": SUPPORT,
    "SUPPORTED": SUPPORT,
    "REFUTE": REFUTE,
    "REFUTES": REFUTE,
    "CONTRADICT": REFUTE,
    "NOT ENOUGH INFO": NEI,
    NOT_SUPPORTED: NOT_SUPPORTED,
}
HOPS = 2  # of HoVer's claims (App. E)

_ESCAPED = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-COLON-": ":",
}
_FEVEROUS_SENTENCE = re.compile(r"(.+)_sentence_(\d{1,9})", re.DOTALL)


def balanced(
    examples: Sequence[Example],
    per_label: int,
    seed: int = 0,
    labels: Sequence[str] = LABELS,
) -> list[Example]:
    """`per_label` examples of each label (§3.2), drawn at random, in their order.

    labels: HoVer has SUPPORT and NOT ENOUGH INFO only. Raises DataError where a label
    has too few examples.
    """
    drawn: set[str] = set()
    for label in labels:
        ids = [e.id for e in examples if e.label == label]
        if len(ids) < per_label:
            raise DataError(
                f"{per_label} claims a label: there are {len(ids)} with {label!r}; "
                "ask for fewer, or add claims"
            )
        drawn |= set(random.Random(f"balanced {seed} {label}").sample(ids, per_label))
    return [e for e in examples if e.id in drawn]


# ---- a row's example


def _fever(row: Row) -> Example:
    """FEVER (Thorne et al. 2018): train.jsonl, paper_dev.jsonl and their like.

    Rows {id, claim, label, evidence}; evidence is sets of [annotation, evidence, page,
    sentence], the last two null for NOT ENOUGH INFO.
    """
    evidence = []
    for annotations in _lists(row, "evidence"):
        for item in annotations:
            if not isinstance(item, list) or len(item) != 4:
                raise RowError("evidence: not [annotation, evidence, page, sentence]")
            if item[2] is not None:
                evidence.append(_of_sentence(fever_title(item[2]), item[3]))
    return _claim("fever", _id(row), row, _label(row), evidence)


def _feverous(row: Row) -> Example:
    """FEVEROUS (Aly et al. 2021): feverous_train_challenges.jsonl and its like.

    Rows {id, claim, label, evidence: [{content: [element, …]}, …], challenge}; the
    first row of the official files is empty. Of a claim's sets of evidence those are
    gold that hold sentences only; a claim without such a set is dropped.
    """
    if not rows.text(row, "claim").strip():
        raise RowError("empty question")
    label = _label(row)
    evidence = []
    for annotation in rows.objects(row, "evidence"):
        elements = rows.strings("content", annotation.get("content"))
        matches = [_FEVEROUS_SENTENCE.fullmatch(element) for element in elements]
        if all(matches):
            evidence += [sentence_id(m[1], int(m[2])) for m in matches]
    if not evidence:
        raise RowError("no evidence of sentences only")
    kind = rows.optional(row, "challenge")
    return _claim("feverous", _id(row), row, label, evidence, kind)


def _exfever(row: Row) -> Example:
    """EX-FEVER (Ma et al. 2023): a CSV with claim, label and "golden entity".

    The rows have no id: it is a hash of the claim.
    """
    label = _label(row)
    try:
        titles = ast.literal_eval(rows.text(row, "golden entity"))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise RowError("golden entity: not a list of titles") from None
    titles = rows.strings("golden entity", titles)
    evidence = [page_id(title.replace("_", " ")) for title in titles]
    made = digest(rows.text(row, "claim").strip())
    return _claim("exfever", made, row, label, evidence, f"{len(set(evidence))}hop")


def _scifact(row: Row) -> Example:
    """SciFact (Wadden et al. 2020): claims_train.jsonl, claims_dev.jsonl.

    Rows {id, claim, evidence: {document: [{sentences, label}, …]}}. CONTRADICT is
    REFUTE, no evidence NOT ENOUGH INFO (App. E).
    """
    documents = row.get("evidence")
    if not isinstance(documents, Mapping):
        raise RowError("evidence: missing or not an object")
    evidence, labels = [], set()
    for document in documents:
        for rationale in rows.objects(documents, document):
            labels.add(_label(rationale))
            numbers = rationale.get("sentences")
            if not isinstance(numbers, list):
                raise RowError("sentences: not a list of numbers")
            evidence += [_of_sentence(f"doc_id={document}", n) for n in numbers]
    if len(labels) > 1:
        raise RowError("evidence for and against the claim")
    label = labels.pop() if labels else NEI
    return _claim("scifact", _id(row), row, label, evidence)


def _hover(row: Row) -> Example:
    """HoVer (Jiang et al. 2020): hover_dev_release_v1.1.json; claims of two hops only.

    Rows {uid, claim, supporting_facts: [[title, sentence], …], label, num_hops}.
    """
    if row.get("num_hops") != HOPS:
        raise RowError(f"not of {HOPS} hops")
    facts = rows.titled(row, "supporting_facts", "sentence")
    evidence = [page_id(html.unescape(title)) for title, _ in facts]
    own_id, label = rows.text(row, "uid"), _label(row)
    return _claim("hover", own_id, row, label, evidence, f"{HOPS}hop")


def _veri_r1(row: Row) -> Example:
    """Veri-R1's published claims: a .parquet file of its training or of a test set.

    Or the same as JSON lines {id, claim, label, evidence, source}. The 8,192 rows of
    its training file have 7,097 ids: rarer labels were drawn more than once, and that
    is dropped here ("duplicate id").
    """
    if "golden_answers" in row:  # of the parquet file
        source, gold = row.get("data_source"), row["golden_answers"]
        row = {"id": row.get("id"), "claim": row.get("question"), "source": source}
        row |= gold if isinstance(gold, Mapping) else {}
    source = rows.text(row, "source")
    if source not in PUBLISHED:
        raise RowError("source: none of " + ", ".join(PUBLISHED))
    evidence = rows.strings("evidence", row.get("evidence"))
    if source == "fever":
        pages = [(page_of(e), e) for e in evidence]
        evidence = [fever_title(page) + e.removeprefix(page) for page, e in pages]
    elif source == "hover":
        evidence = [html.unescape(page_of(e)) for e in evidence]
    own_id = _id(row).removeprefix("exfever_")
    return _claim(source, own_id, row, _label(row), map(page_id, evidence))


def _claim(
    name: str,
    own_id: str,
    row: Row,
    label: str,
    evidence: Iterable[str],
    relation: str = "",
) -> Example:
    """The example of a row, with each evidence once. RowError without evidence where
    the label is nothing without it."""
    evidence = list(dict.fromkeys(evidence))
    if not evidence and label != NEI:
        raise RowError("no evidence")
    own_id = f"{name}-{own_id}"
    answers = [NEI, REFUTE] if label == NOT_SUPPORTED else [label]
    return Example(
        id=own_id,
        question=rows.text(row, "claim").strip(),
        answers=answers,
        entity=page_of(evidence[0]) if evidence else own_id,
        relation=relation,
        label=answers[0],
        evidence=evidence,
        meta={"set": name},
    )


# ---- parts of a row


def _label(row: Row) -> str:
    """One of LABELS, or HoVer's NOT_SUPPORTED; RowError on another."""
    written = rows.text(row, "label")
    if written not in WRITTEN:
        raise RowError(f"label: {written[:30]!r} is none that is known")
    return WRITTEN[written]


def _id(row: Row) -> str:
    value = row.get("id")
    if not isinstance(value, int | str) or isinstance(value, bool) or value == "":
        raise RowError("id: missing or not a number")
    return str(value)


def _lists(row: Row, name: str) -> list[list]:
    value = row.get(name)
    if not isinstance(value, list) or not all(isinstance(v, list) for v in value):
        raise RowError(f"{name}: not a list of lists")
    return value


def _of_sentence(page: object, number: object) -> str:
    """The id of a sentence; RowError if page or number are none."""
    page = rows.string("evidence", page)
    if not isinstance(number, int) or number < 0:
        raise RowError("evidence: a sentence's number is missing or below 0")
    return sentence_id(page, number)


def fever_title(written: object) -> str:
    """A title of FEVER's as Wikipedia writes it: Hook_-LRB-film-RRB- → Hook (film)."""
    return fever_text(rows.string("evidence", written).replace("_", " "))


def fever_text(written: str) -> str:
    """FEVER's text with brackets and colons for -LRB-, -COLON- and their like."""
    return re.sub("|".join(_ESCAPED), lambda match: _ESCAPED[match[0]], written)


# ---- loading


SOURCES = {
    "fever": Source(_fever),
    "feverous": Source(_feverous),
    "exfever": Source(_exfever),
    "scifact": Source(_scifact),
    "hover": Source(_hover),
    "veri_r1": Source(_veri_r1),
}
PUBLISHED = tuple(SOURCES)[:-1]  # the sets that Veri-R1's published claims are of


def load(name: str, path: str) -> Loaded:
    """The claims of a set's file; see `rows.load`."""
    return rows.load(SOURCES, name, path)
