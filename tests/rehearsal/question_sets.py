"""Miniature sets of short questions: CRAG, NQ-open, HotpotQA, MuSiQue, PopQA, SQuAD v2;
and the Wikipedia of 2018 that they are searched in.

Each function writes one set into the hub's folder and names the page that describes it.
"""

import html
import json
import random
from pathlib import Path

from country import COUNTRY, Country, Page, Person, Work
from files import card, csv_file, json_lines, table

CRAG_URL = "github.com/facebookresearch/CRAG/raw/refs/heads/main/data"


def web_page(page: Page, others: list[Page] = ()) -> str:
    """A page of the web on a subject: menu, script, article, links to other pages."""
    article = "".join(f"<p>{html.escape(s)}</p>" for s in page.sentences)
    links = "".join(f"<li><a href='/'>{html.escape(o.title)}</a></li>" for o in others)
    title = html.escape(page.title)
    return (
        f"<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'><title>{title}"
        "</title><style>p { margin: 1em }</style><script>var visits = 1;</script>"
        f"</head><body><nav>Home</nav><article><h1>{title}</h1>{article}</article>"
        f"<aside><ul>{links}</ul></aside></body></html>"
    )


def crag(folder: Path, country: Country) -> None:
    """github.com/facebookresearch/CRAG, docs/dataset.md: tasks 1 and 2, 5 pages each.

    All eight types of questions and both splits; comparisons are many, so that a small
    test split has one.
    """
    rng = random.Random("crag")
    rows = [
        _crag_row(country, rng, number, *question)
        for number, question in enumerate(_crag_questions(country))
    ]
    name = "crag_task_1_and_2_dev_v4.jsonl.bz2"
    json_lines(folder / CRAG_URL / name, rows)


def _crag_questions(country: Country) -> list[tuple[str, str, list[str], list[Page]]]:
    """Of each question: its type, the question, its answers, its pages."""
    page, works = country.by_title, country.works
    rows = []
    for work, later in zip(works[:32], works[32:], strict=True):
        first, last = sorted((work, later), key=lambda w: w.published)
        text = f"which book came out first, {work.name} or {later.name}?"
        answers = ["same year"] if first.published == last.published else [first.name]
        rows.append(("comparison", text, answers, [page[work.name], page[later.name]]))
    for work in works[:32]:
        text = f"what kind of book is {work.name.lower()}?"
        rows.append(("simple", text, [work.kind, f"a {work.kind}"], [page[work.name]]))
    for work in works[32:48]:
        author = work.author
        text = f"in what year was the author of {work.name.lower()} born?"
        pages = [page[work.name], page[author.name]]
        rows.append(("multi-hop", text, [str(author.born)], pages))
    for work in works[48:56]:
        text = f"for which film did {work.author.name} win an academy award?"
        answers = ["invalid question", f"{work.author.name} made no film."]
        rows.append(("false_premise", text, answers, [page[work.author.name]]))
    for work in works[56:]:
        text = f"which book did {work.author.name} publish in {work.published}?"
        pages = [page[work.author.name], page[work.name]]
        rows.append(("simple_w_condition", text, [work.name], pages))
    for town in country.towns[:16]:
        natives = [p.name for p in country.people if p.birthplace == town]
        if not natives:
            continue
        pages = [page[town.name], *(page[name] for name in natives)]
        text = f"who of {COUNTRY.lower()}'s writers came from {town.name.lower()}?"
        rows.append(("set", text, [", ".join(natives)], pages))
        text = f"how many writers were born in {town.name}?"
        rows.append(("aggregation", text, [str(len(natives))], pages))
        text = (
            f"how many years after its founding was {natives[0]} born in {town.name}?"
        )
        years = page[natives[0]].subject.born - town.founded
        rows.append(("post-processing", text, [str(years)], pages))
    return rows


def _crag_row(country, rng, number, kind, question, answers, pages) -> dict:
    shown = (pages + rng.sample(country.pages, 5))[:5]
    results = [
        {
            "page_name": f"{page.title} - Encyclopedia of {COUNTRY}",
            "page_url": f"https://pages.example/{page.title.replace(' ', '_')}",
            "page_snippet": page.sentences[0],
            "page_result": web_page(page, country.pages[:3]),
            "page_last_modified": "Mon, 12 Feb 2024 08:00:00 GMT",
        }
        for page in shown
    ]
    return {
        "interaction_id": f"00000000-0000-4000-8000-{number:012}",
        "query_time": "02/28/2024, 10:04:54 PT",
        "domain": rng.choice(["open", "finance", "movie", "music", "sports"]),
        "question_type": kind,
        "static_or_dynamic": "static",
        "query": question,
        "answer": answers[0],
        "alt_ans": answers[1:],
        "split": number % 2,
        "search_results": results,
    }


def nq_open(folder: Path, country: Country) -> None:
    """huggingface.co/datasets/google-research-datasets/nq_open."""
    rows = [
        {
            "question": f"when did the book {work.name.lower()} first come out",
            "answer": [str(work.published), f"in {work.published}"],
        }
        for work in country.works
    ]
    folder /= "google-research-datasets/nq_open"
    table(folder / "nq_open/train-*-of-00001", rows[:32])
    table(folder / "nq_open/validation-*-of-00001", rows[32:])
    splits = {s: f"nq_open/{s}-*" for s in ("train", "validation")}
    card(folder, {"nq_open": splits})


def hotpotqa(folder: Path, country: Country) -> None:
    """huggingface.co/datasets/hotpotqa/hotpot_qa, config distractor.

    A question a book and a question a person: first supporting titles differ.
    """
    rng, page = random.Random("hotpotqa"), country.by_title
    pairs = []
    for work in country.works:
        question = f"In which town was the author of the {work.kind} {work.name} born?"
        gold = [(page[work.name], 0), (page[work.author.name], 1)]
        pairs.append((question, work.author.birthplace.name, gold))
    for person in country.people[:36]:
        question = f"On which river lies the town where {person.name} was born?"
        gold = [(page[person.name], 1), (page[person.birthplace.name], 0)]
        pairs.append((question, person.birthplace.river, gold))
    rows = []
    for number, (question, answer, gold) in enumerate(pairs):
        others = rng.sample([p for p in country.pages if p not in dict(gold)], 8)
        shown = rng.sample([p for p, _ in gold] + others, 10)
        rows.append(
            {
                "id": f"{number:024x}",
                "question": question,
                "answer": answer,
                "type": "bridge",
                "level": rng.choice(["easy", "medium", "hard"]),
                "supporting_facts": {
                    "title": [p.title for p, _ in gold],
                    "sent_id": [n for _, n in gold],
                },
                "context": {
                    "title": [p.title for p in shown],
                    "sentences": [list(p.sentences) for p in shown],
                },
            }
        )
    rng.shuffle(rows)
    folder /= "hotpotqa/hotpot_qa"
    table(folder / "distractor/train-*-of-00002", rows[:68])
    table(folder / "distractor/validation-*-of-00001", rows[68:])
    splits = {s: f"distractor/{s}-*" for s in ("train", "validation")}
    card(folder, {"distractor": splits})


def musique(folder: Path, country: Country) -> None:
    """huggingface.co/datasets/dgslibisey/MuSiQue: no config, two files."""
    rng, page = random.Random("musique"), country.by_title
    rows = []
    for number, work in enumerate(country.works):
        author, town = page[work.author.name], page[work.setting.name]
        titles = {work.name, author.title, town.title}
        others = [p for p in country.pages if p.title not in titles]
        two = number % 2
        gold = [page[work.name], author if two else town]
        shown = rng.sample(gold + rng.sample(others, 4), 6)
        ask = f"What river flows past the town where {work.name} is set?"
        if two:
            ask = f"In what year did the author of {work.name} die?"
        rows.append(
            {
                "id": f"2hop__{number}_{number + 1000}",
                "paragraphs": [
                    {
                        "idx": i,
                        "title": p.title,
                        "paragraph_text": p.text,
                        "is_supporting": p in gold,
                    }
                    for i, p in enumerate(shown)
                ],
                "question": ask,
                "question_decomposition": [],
                "answer": str(work.author.died) if two else work.setting.river,
                "answer_aliases": [] if two else [f"the {work.setting.river}"],
                "answerable": True,
            }
        )
    folder /= "dgslibisey/MuSiQue"
    json_lines(folder / "musique_ans_v1.0_train.jsonl", rows[:32])
    json_lines(folder / "musique_ans_v1.0_dev.jsonl", rows[32:])


def popqa(folder: Path, country: Country) -> None:
    """huggingface.co/datasets/akariasai/PopQA: test.tsv, lists as strings of JSON."""
    rows = []
    for number, fact in enumerate(country.facts()):
        if fact.relation not in ("author", "occupation", "place of birth"):
            continue
        own = country.by_title[fact.page.title].subject
        if isinstance(own, Person) and number % 2:
            continue
        rows.append(
            {
                "id": 4_000_000 + number,
                "subj": fact.page.title,
                "prop": fact.relation,
                "obj": fact.object,
                "subj_id": number,
                "prop_id": 50 if isinstance(own, Work) else 106,
                "obj_id": number + 1,
                "s_aliases": "[]",
                "o_aliases": "[]",
                "s_uri": f"http://www.wikidata.org/entity/Q{number}",
                "o_uri": f"http://www.wikidata.org/entity/Q{number + 1}",
                "s_wiki_title": fact.page.title,
                "o_wiki_title": fact.object,
                "s_pop": 100 + number,
                "o_pop": 200 + number,
                "question": fact.question,
                "possible_answers": json.dumps([fact.object]),
            }
        )
    csv_file(folder / "akariasai/PopQA/test.tsv", rows, delimiter="\t")


def squad_v2(folder: Path, country: Country) -> None:
    """huggingface.co/datasets/rajpurkar/squad_v2: eight towns, two questions each, of
    which the second can't be answered from its paragraph."""
    rows = []
    for town in country.towns[12:]:
        page = country.by_title[town.name]
        answer = str(town.founded)
        asked = (f"When was {town.name} founded?", f"Who was the mayor of {town.name}?")
        spans = ([answer], [page.text.index(answer)]), ([], [])
        for number, (question, (texts, starts)) in enumerate(
            zip(asked, spans, strict=True)
        ):
            rows.append(
                {
                    "id": f"{town.name.lower()}{number}",
                    "title": town.name,
                    "context": page.text,
                    "question": question,
                    "answers": {"text": texts, "answer_start": starts},
                }
            )
    folder /= "rajpurkar/squad_v2"
    table(folder / "squad_v2/train-*-of-00001", rows[:8])
    table(folder / "squad_v2/validation-*-of-00001", rows[8:])
    splits = {s: f"squad_v2/{s}-*" for s in ("train", "validation")}
    card(folder, {"squad_v2": splits})


def wikipedia_2018(folder: Path, country: Country) -> None:
    """huggingface.co/datasets/PeterJinGo/wiki-18-corpus: a passage a line."""
    rows = [
        {"id": str(number), "contents": f'"{page.title}"\n{page.text}'}
        for number, page in enumerate(country.pages)
    ]
    json_lines(folder / "PeterJinGo/wiki-18-corpus/wiki-18.jsonl.gz", rows)


def write(folder: Path, country: Country) -> None:
    for make in (crag, nq_open, hotpotqa, musique, popqa, squad_v2, wikipedia_2018):
        make(folder, country)
