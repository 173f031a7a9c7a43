"""The papers' question sets, from the hub or a local file to the one schema.

`entity` keeps splits apart. Where a source names none, the question stands for itself:
such splits share no question, but may share what they are about. `label` is
"false_premise" (CRAG; the expected answer is "invalid question", TruthRL App. E) or
"unanswerable" (SQuAD v2's impossible questions, whose answer here is "unanswerable";
CRAG's answer "i don't know"): leave these out by label where abstention has a score of
its own. `relation == "comparison"` are CRAG's questions of TruthRL Table 2.
"""

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from factkit.data import rows
from factkit.data.corpus import Chunk, Document
from factkit.data.examples import DataError, Example, digest, made_id
from factkit.data.rows import Loaded, Row, RowError, Source
from factkit.run import files

FALSE_PREMISE, INVALID_QUESTION = "false_premise", "invalid question"
UNANSWERABLE = "unanswerable"
PLAIN_TEXT = 1  # the version of `plain_text`, by which CRAG's texts are kept


def crag(row: Row) -> Example:
    """CRAG (Yang et al. 2024): `alt_ans`, or `alternative_answers` as a JSON string.

    A false premise is answered by "invalid question", then by CRAG's own text. The
    answer "nan" is none: CRAG writes it where a table had no value.
    """
    answer = rows.text(row, "answer").strip()
    answers = [answer, *rows.texts(row, "alt_ans", "alternative_answers")]
    kind, label = rows.text(row, "question_type"), ""
    if answer.casefold() in ("", "nan"):
        answers = []
    elif kind == FALSE_PREMISE or answer.casefold() == INVALID_QUESTION:
        answers, label = [INVALID_QUESTION, *answers], FALSE_PREMISE
    elif answer.casefold().replace("’", "'").rstrip(".") == "i don't know":
        label = UNANSWERABLE
    return Example(
        id=rows.text(row, "interaction_id"),
        question=rows.text(row, "query").strip(),
        answers=_distinct(answers),
        entity=rows.text(row, "interaction_id"),
        relation=kind,
        label=label,
        meta={"query_time": row["query_time"]} if row.get("query_time") else {},
    )


def nq_open(row: Row) -> Example:
    """NQ-open (Lee et al. 2019): question and list of answers, no id."""
    question = rows.text(row, "question").strip()
    made = made_id("nq", question)
    answers = _distinct(rows.texts(row, "answer"))
    return Example(id=made, question=question, answers=answers, entity=made)


def hotpotqa(row: Row) -> Example:
    """HotpotQA (Yang et al. 2018): the hub's rows, the authors', or without context."""
    question = rows.text(row, "question").strip()
    own = rows.optional(row, "id", "_id") or made_id("hotpotqa", question)
    titles = [title for title, _ in rows.titled(row, "supporting_facts", "sent_id")]
    return Example(
        id=own,
        question=question,
        answers=_distinct([rows.text(row, "answer")]),
        entity=[*titles, own][0],
        relation=rows.optional(row, "type"),
    )


def musique(row: Row) -> Example:
    """MuSiQue (Trivedi et al. 2022): the authors' rows, or KILT's {input, output}."""
    own = rows.text(row, "id")
    answers = [rows.optional(row, "answer"), *rows.texts(row, "answer_aliases")]
    answers += [rows.optional(out, "answer") for out in rows.objects(row, "output")]
    supporting = [p for p in rows.objects(row, "paragraphs") if p.get("is_supporting")]
    return Example(
        id=own,
        question=rows.text(row, "question", "input").strip(),
        answers=_distinct(answers),
        entity=rows.text(supporting[0], "title") if supporting else own,
        relation=own.partition("__")[0],
    )


def popqa(row: Row) -> Example:
    """PopQA (Mallen et al. 2023): `possible_answers` is a list, or its JSON."""
    own = next((row[key] for key in ("id", "orig_id", "qid") if key in row), None)
    if not isinstance(own, int | str):
        raise RowError("id: missing or not a number")
    answers = [rows.optional(row, "obj"), *rows.texts(row, "possible_answers")]
    return Example(
        id=str(own),
        question=rows.text(row, "question").strip(),
        answers=_distinct(answers),
        entity=rows.text(row, "subj"),
        relation=rows.text(row, "prop"),
    )


def squad_v2(row: Row) -> Example:
    """SQuAD v2 (Rajpurkar et al. 2018): the hub's rows, or those of its JSON file.

    An impossible question, which its paragraph does not answer, is labelled
    "unanswerable" and so is its one answer.
    """
    if isinstance(row.get("answers"), Mapping):
        answers = rows.texts(row["answers"], "text")
    elif "answers" in row:
        answers = [rows.text(answer, "text") for answer in rows.objects(row, "answers")]
    else:
        raise RowError("answers: missing")
    impossible = bool(row.get("is_impossible", not answers))
    return Example(
        id=rows.text(row, "id"),
        question=rows.text(row, "question").strip(),
        answers=[UNANSWERABLE] if impossible else _distinct(answers),
        entity=rows.text(row, "title").replace("_", " "),
        label=UNANSWERABLE if impossible else "",
    )


def _distinct(answers: Iterable[str]) -> list[str]:
    """Answers without surrounding space, empty ones and repetitions in any case."""
    distinct: dict[str, str] = {}
    for answer in answers:
        distinct.setdefault(answer.strip().casefold(), answer.strip())
    distinct.pop("", None)
    return list(distinct.values())


def gpqa(row: Row) -> Example:
    """GPQA (Rein et al. 2024): a question with four options, in an order of its own
    that is the same at each reading; the answer is the letter of the right one."""
    own = rows.text(row, "Record ID")
    right = rows.text(row, "Correct Answer").strip()
    wrong = [rows.text(row, f"Incorrect Answer {n}").strip() for n in (1, 2, 3)]
    options = random.Random(own).sample([right, *wrong], 4)
    listed = [f"({a}) {text}" for a, text in zip("ABCD", options, strict=True)]
    question = "\n".join([rows.text(row, "Question").strip(), "", *listed])
    answer = "ABCD"[options.index(right)]
    return Example(id=own, question=question, answers=[answer], entity=own)


SPLITS = ("train", "validation")
BENCHMARKS = {
    # CC BY-NC 4.0. No official copy on the hub. Task 3's 50 pages a question are a tar
    # in parts beside this file (5 pages a question): unpack it and give its path.
    "crag": Source(
        crag,
        "https://github.com/facebookresearch/CRAG/raw/refs/heads/main/data/"
        "crag_task_1_and_2_dev_v4.jsonl.bz2",
    ),
    # CC BY-SA 3.0. Its validation split is what papers call its test set (3,610)
    "nq_open": Source(
        nq_open, "google-research-datasets/nq_open", "nq_open", splits=SPLITS
    ),
    # CC BY-SA 4.0
    "hotpotqa": Source(hotpotqa, "hotpotqa/hotpot_qa", "distractor", splits=SPLITS),
    "musique": Source(musique, "dgslibisey/MuSiQue", splits=SPLITS),  # CC BY 4.0
    "popqa": Source(popqa, "akariasai/PopQA", splits=("test",)),  # MIT
    "gpqa": Source(gpqa, "Idavidrein/gpqa", "gpqa_main"),  # CC BY 4.0, gated
    # CC BY-SA 4.0
    "squad_v2": Source(squad_v2, "rajpurkar/squad_v2", splits=SPLITS),
}


def load(name: str, path: str = "", limit: int | None = None) -> Loaded:
    """The questions that a benchmark evaluates on, or those of a file; see `rows.load`.

    path: a JSON list, SQuAD's JSON, or JSON lines, also as .gz or .bz2.
    """
    return rows.load(BENCHMARKS, name, path, limit)


def load_all(name: str, path: str = "") -> Loaded:
    """A benchmark's questions of all its splits, for a paper that trains on it and
    splits it itself (TruthRL on CRAG, §4.1)."""
    return rows.load(BENCHMARKS, name, path, whole=True)


# ---- what is searched: CRAG's web pages, Wikipedia


def crag_pages(path: str = "") -> dict[str, list[Document]]:
    """CRAG's question id → its pages' texts, or the search's snippets, each once.

    All of CRAG is gigabytes of HTML: what comes out is kept in the cache folder, by the
    file's SHA-256. A damaged row has no pages.
    """
    file = rows.local(BENCHMARKS["crag"], path)
    kept = files.cache_dir() / "crag" / f"{rows.sha256(file)}-{PLAIN_TEXT}.jsonl"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        pages = _crag_pages(file).items()
        lines = (json.dumps([i, [vars(d) for d in own]]) + "\n" for i, own in pages)
        files.write_atomically(kept, "".join(lines))
    return {i: [Document(**d) for d in own] for i, own in rows.json_lines(kept)}


def _crag_pages(file: Path) -> dict[str, list[Document]]:
    pages = {}
    for row in rows.of_file(file):
        with suppress(RowError, AttributeError):
            texts: dict[str, Document] = {}
            for page in map(_page, rows.objects(row, "search_results")):
                texts.setdefault(page.text, page)
            texts.pop("", None)
            pages[rows.text(row, "interaction_id")] = list(texts.values())
    return pages


def _page(page: Row) -> Document:
    url = rows.text(page, "page_url")
    title = rows.text(page, "page_name").strip() or url
    text = plain_text(rows.optional(page, "page_result"))
    text = text or plain_text(rows.optional(page, "page_snippet"))
    source = f"{url} (page of CRAG, CC BY-NC 4.0)"
    return Document(f"{title} {digest(text)}", title, text, source)


def plain_text(markup: str) -> str:
    """The text of a web page without its scripts and styles, a line for each piece."""
    from lxml import etree, html

    if not markup.strip():
        return ""
    page = html.fromstring(markup.encode(), parser=html.HTMLParser(encoding="utf-8"))
    etree.strip_elements(page, "script", "style", etree.Comment, with_tail=False)
    lines = (" ".join(piece.split()) for piece in page.itertext())
    return "\n".join(line for line in lines if line)


class Passages:
    """The 21 million 100-word passages of DPR's 2018 dump, as Search-R1 searches them
    (TruthRL App. C: NQ, HotpotQA and MuSiQue), each short enough for a chunk.

    path: JSON lines {id, contents}; without it the file comes from the hub. It is read
    anew each time, so that none of 14 GB stays in memory. The first line of contents is
    the title in quotes. It stays in the text: a passage from the middle of an article
    says "he", and Search-R1's E5 index has seen the title as well. key: the file's
    SHA-256. Raises DataError if it can't be had, and on a row that is not of this kind.
    """

    def __init__(self, path: str = "") -> None:
        self.path = rows.local(WIKI_2018, path)
        self.key = rows.sha256(self.path)

    def __iter__(self) -> Iterator[Chunk]:
        for number, row in enumerate(rows.of_file(self.path), start=1):
            try:
                yield _passage(row)
            except (ValueError, LookupError, TypeError, AttributeError):
                raise DataError(
                    f"{self.path}, row {number} is not JSON {{id, contents}} with the "
                    "title on the contents' first line; mend the row"
                ) from None


def _passage(row: Row) -> Chunk:
    title, text = row["contents"].split("\n", 1)
    title = title.strip().removeprefix('"').removesuffix('"')
    number = str(row["id"])
    return Chunk(number, number, f"{title}\n{text}", len(text.split()))


WIKI_2018 = Source(  # 5 GB, CC BY-SA 3.0
    _passage, "PeterJinGo/wiki-18-corpus", file="wiki-18.jsonl.gz"
)
