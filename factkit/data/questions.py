"""Making examples of the rows of the papers' question sets.

`entity` keeps splits apart. Where a source names none, the question stands for itself:
such splits share no question, but may share what they are about. `label` is
"false_premise" (CRAG; the expected answer is "invalid question", TruthRL App. E) or
"unanswerable" (SQuAD v2's impossible questions, whose answer here is "unanswerable";
CRAG's answer "i don't know"): leave these out by label where abstention has a score of
its own. `relation == "comparison"` are CRAG's questions of TruthRL Table 2.
"""

import random
from collections.abc import Iterable, Mapping

from factkit.data import rows
from factkit.data.examples import Example, hash_id
from factkit.data.rows import Row, RowError

FALSE_PREMISE, INVALID_QUESTION = "false_premise", "invalid question"
UNANSWERABLE = "unanswerable"


def crag(row: Row) -> Example:
    """CRAG (Yang et al. 2024): `alt_ans`, or `alternative_answers` as a JSON string.

    The answer to a false premise is "invalid question", then CRAG's own text. The
    answer "nan" is none: CRAG has it for an empty cell of a table.
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
        answers=distinct(answers),
        entity=rows.text(row, "interaction_id"),
        relation=kind,
        label=label,
        meta={"query_time": row["query_time"]} if row.get("query_time") else {},
    )


def nq_open(row: Row) -> Example:
    """NQ-open (Lee et al. 2019): question and list of answers, no id."""
    question = rows.text(row, "question").strip()
    question_id = hash_id("nq", question)
    answers = distinct(rows.texts(row, "answer"))
    return Example(
        id=question_id, question=question, answers=answers, entity=question_id
    )


def hotpotqa(row: Row) -> Example:
    """HotpotQA (Yang et al. 2018): the hub's rows, the authors', or without context."""
    question = rows.text(row, "question").strip()
    question_id = rows.optional(row, "id", "_id") or hash_id("hotpotqa", question)
    titles = rows.titles(row, "supporting_facts")
    return Example(
        id=question_id,
        question=question,
        answers=distinct([rows.text(row, "answer")]),
        entity=[*titles, question_id][0],
        relation=rows.optional(row, "type"),
    )


def musique(row: Row) -> Example:
    """MuSiQue (Trivedi et al. 2022): the authors' rows, or KILT's {input, output}."""
    question_id = rows.text(row, "id")
    answers = [rows.optional(row, "answer"), *rows.texts(row, "answer_aliases")]
    answers += [rows.optional(out, "answer") for out in rows.objects(row, "output")]
    supporting = [p for p in rows.objects(row, "paragraphs") if p.get("is_supporting")]
    return Example(
        id=question_id,
        question=rows.text(row, "question", "input").strip(),
        answers=distinct(answers),
        entity=rows.text(supporting[0], "title") if supporting else question_id,
        relation=question_id.partition("__")[0],
    )


def popqa(row: Row) -> Example:
    """PopQA (Mallen et al. 2023): `possible_answers` is a list, or its JSON."""
    question_id = next((row[k] for k in ("id", "orig_id", "qid") if k in row), None)
    if not isinstance(question_id, int | str):
        raise RowError("id: missing or not a number")
    answers = [rows.optional(row, "obj"), *rows.texts(row, "possible_answers")]
    return Example(
        id=str(question_id),
        question=rows.text(row, "question").strip(),
        answers=distinct(answers),
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
        answers=[UNANSWERABLE] if impossible else distinct(answers),
        entity=rows.text(row, "title").replace("_", " "),
        label=UNANSWERABLE if impossible else "",
    )


def distinct(answers: Iterable[str]) -> list[str]:
    """Strip answers; drop empty ones, and repetitions in any case."""
    distinct: dict[str, str] = {}
    for answer in answers:
        distinct.setdefault(answer.strip().casefold(), answer.strip())
    distinct.pop("", None)
    return list(distinct.values())


def gpqa(row: Row) -> Example:
    """GPQA (Rein et al. 2024): a question with four options, shuffled by its id; the
    answer is the letter of the correct one."""
    question_id = rows.text(row, "Record ID")
    correct = rows.text(row, "Correct Answer").strip()
    wrong = [rows.text(row, f"Incorrect Answer {n}").strip() for n in (1, 2, 3)]
    options = random.Random(question_id).sample([correct, *wrong], 4)
    lines = [f"({letter}) {text}" for letter, text in zip("ABCD", options, strict=True)]
    return Example(
        id=question_id,
        question="\n".join([rows.text(row, "Question").strip(), "", *lines]),
        answers=["ABCD"[options.index(correct)]],
        entity=question_id,
    )
