"""Miniature sets of prompts that are answered at length, and what RAR's and RLFH's
tables want beside them: WildHallucinations, FActScore's Wikipedia of April 2023.

Each function writes one set into the hub's folder and names the page that describes it.
"""

import random
from pathlib import Path

from country import COUNTRY, Country, Page, Person, Town, Work
from files import (
    archive,
    card,
    csv_file,
    database,
    json_file,
    json_lines,
    lines,
    table,
    text_file,
)

AUTHORS = "google-deepmind/long-form-factuality"  # of LongFact, on GitHub
COMMIT = "9d27158d198ced0a9d8271a80147cae580614601"
ENTITIES = "third_party/factscore/labeled_data/prompt_entities.txt"
CANARY = "invented rows for a rehearsal"
# the separator of a page's passages in FActScore's database (factscore/retrieval.py)
SEPARATOR = "####SPECIAL####SEPARATOR####"
REPLY_CHARS = 260  # of a chat's reply: WildChat's short ones are dropped
CHATS, FAVA_PROMPTS = 160, 144  # FAVA's: more than the paper takes, so that it chooses


def longfact_files(country: Country) -> dict[str, bytes]:
    """LongFact's files by their path in its authors' repository."""
    books, towns, people = country.works, country.towns, country.people
    objects = {
        "history": [f"What happened to the town of {t.name} over time?" for t in towns],
        "celebrities": [f"Who was {p.name}, and why remember them?" for p in people],
        "movies": [f"What can you tell me about the {w.kind} {w.name}?" for w in books],
    }
    concepts = {
        "history": [f"How did {t.goods} shape the trade of {t.name}?" for t in towns],
        "geography": [f"What does the {t.river} mean to {t.name}?" for t in towns],
        "music": [f"Which themes does {w.name} share with songs?" for w in books],
    }
    folders = {
        "longfact-objects_gpt4_01-12-2024_noduplicates/longfact-objects": objects,
        "longfact-concepts_gpt4_01-10-2024_noduplicates/longfact-concepts": concepts,
    }
    return {
        f"longfact/{folder}_{topic}.jsonl": lines(
            {"prompt": prompt, "canary": CANARY} for prompt in prompts[:10]
        )
        for folder, topics in folders.items()
        for topic, prompts in topics.items()
    }


def long_form_factuality(folder: Path, country: Country) -> None:
    """github.com/google-deepmind/long-form-factuality: LongFact as GitHub's archive and
    unpacked; FActScore's names. The last twelve people are biography's."""
    names = "".join(f"{p.name}\n" for p in country.people[-12:]).encode()
    contents = longfact_files(country) | {ENTITIES: names}
    top = f"long-form-factuality-{COMMIT}"
    packed = folder / f"github.com/{AUTHORS}/archive/{COMMIT}.zip"
    archive(packed, {f"{top}/{name}": text for name, text in contents.items()})
    raw = folder / f"raw.githubusercontent.com/{AUTHORS}/{COMMIT}"
    for name, content in contents.items():
        text_file(raw / name, content.decode())


def fava(folder: Path, country: Country) -> None:
    """huggingface.co/datasets/fava-uw/fava-data: annotations.json, a passage a row; the
    first ten prompts were answered by two models."""
    prompts = [f"Explain the history and the plot of {w.name}." for w in country.works]
    prompts += [f"Tell me what is known of {p.name}'s life." for p in country.people]
    prompts += [f"Describe {t.name}, its river and trade." for t in country.towns]
    pages = [p.text for p in country.pages]
    rows = [
        {"prompt": prompt, "output": text, "annotated": text, "model": "chatgpt"}
        for prompt, text in zip(prompts, pages, strict=True)
    ][:FAVA_PROMPTS]
    rows += [row | {"model": "llama2-chat-70B"} for row in rows[:10]]
    json_file(folder / "fava-uw/fava-data/annotations.json", rows)


def alpaca_farm(folder: Path, country: Country) -> None:
    """huggingface.co/datasets/tatsu-lab/alpaca_farm: alpaca_farm_evaluation.json."""
    rows = [
        {
            "instruction": "Summarise what this note says, and add what you know."
            if i % 4 == 0
            else f"Write a short guide for visitors to {page.title}.",
            "input": page.sentences[0] if i % 4 == 0 else "",
            "output": page.text,
            "generator": "text_davinci_003",
            "dataset": ("helpful_base", "koala", "oasst", "selfinstruct")[i % 4],
            "datasplit": "eval",
        }
        for i, page in enumerate(country.pages[-24:])
    ]
    json_file(folder / "tatsu-lab/alpaca_farm/alpaca_farm_evaluation.json", rows)


def factory(folder: Path, country: Country) -> None:
    """huggingface.co/datasets/facebook/FACTORY: one config whose splits are files in
    two folders, and the third one has other columns."""
    rows = [
        {"question": f"What led {p.name} to write, and who read {w.name}?"}
        for p, w in zip(country.people[:30], country.works[:30], strict=True)
    ]
    checks = [
        {"model": "a model", "claim": page.sentences[0], "label": "factual"}
        for page in country.pages[:6]
    ]
    folder /= "facebook/FACTORY"
    paths = {
        "all": "prompts/all_prompts.jsonl",
        "hard": "prompts/hard_prompts.jsonl",
        "fact_checking": "fact_checking/human_annotations.jsonl",
    }
    for split, part in (("all", rows), ("hard", rows[:16]), ("fact_checking", checks)):
        json_lines(folder / paths[split], part)
    card(folder, {"default": paths})


def factbench(folder: Path, country: Country) -> None:
    """huggingface.co/datasets/launch/FactBench: config "version 1.0", three tiers."""
    folder /= "launch/FactBench"
    for tier, part in enumerate((country.works[:16], country.works[16:24]), start=1):
        rows = [
            {
                "user_prompts": f"Compare {w.name} with books on {w.setting.name}.",
                "topic_description": "Books and their settings",
                "hallucination_score": 0.5,
            }
            for w in part
        ]
        csv_file(folder / f"tier_{tier}.csv", rows)
    csv_file(folder / "tier_3.csv", rows[:4])
    card(folder, {"version 1.0": {f"tier_{n}": f"tier_{n}.csv" for n in (1, 2, 3)}})


def wildchat(folder: Path, country: Country) -> None:
    """huggingface.co/datasets/allenai/WildChat-1M: 14 parquet files, streamed.

    Besides chats that are kept: other languages, toxic and redacted ones, a prompt too
    short, a reply too short, and a repeated prompt.
    """
    rng = random.Random("wildchat")
    pages = rng.sample(country.pages, len(country.pages))
    prompts = [(_everyday(page, i), page) for i, page in enumerate(pages)]
    prompts += [(f"give me three facts on {p.title} for a quiz pls", p) for p in pages]
    rows = [
        _chat(i, prompt, _reply(page, country, rng))
        for i, (prompt, page) in enumerate(prompts[:CHATS])
    ]
    _, page = prompts[0]
    reply = _reply(page, country, rng)
    others = [
        {"language": "German"},
        {"toxic": True},
        {"redacted": True},
        {"conversation": _turns("hi", reply)},
        {"conversation": _turns("When was the last flood there?", "No idea.")},
        {"conversation": _turns(prompts[1][0], reply)},
    ]
    for i, change in enumerate(others, start=len(rows)):
        rows.append(
            _chat(i, f"and what about {page.title}, number {i}?", reply) | change
        )
    folder /= "allenai/WildChat-1M"
    table(folder / "data/train-*-of-00014", rows)
    card(folder, {"default": {"train": "data/train-*"}})


def _everyday(page: Page, i: int) -> str:
    match page.subject:
        case Town():
            asks = "we go to {} in june, what is there to know about the place?"
        case Person():
            asks = "school report on {}: when and where born, what did they write?"
        case Work():
            asks = "my book club reads {} next. who wrote it, when, where is it set?"
    return f"{('hey, ', 'hi! ', '')[i % 3]}{asks.format(page.title)}"


def _reply(page: Page, country: Country, rng: random.Random) -> str:
    """The page's text, and others' until it is long enough to be kept."""
    text = page.text
    while len(text) < REPLY_CHARS:
        text += " " + rng.choice(country.pages).text
    return text


def _turns(prompt: str, reply: str) -> list[dict]:
    return [
        {
            "content": content,
            "role": role,
            "language": "English",
            "toxic": False,
            "redacted": False,
            "turn_identifier": number,
        }
        for number, (role, content) in enumerate(
            (("user", prompt), ("assistant", reply))
        )
    ]


def _chat(number: int, prompt: str, reply: str) -> dict:
    return {
        "conversation_hash": f"{number:032x}",
        "model": "gpt-4-0314",
        "timestamp": "2024-01-01 00:00:00+00:00",
        "conversation": _turns(prompt, reply),
        "turn": 1,
        "language": "English",
        "toxic": False,
        "redacted": False,
        "country": COUNTRY,
    }


def wild_hallucinations(folder: Path, country: Country) -> None:
    """huggingface.co/datasets/wentingzhao/WildHallucinations: entities, the text of web
    pages about them, four parquet files."""
    rows = [
        {
            "entity": page.title,
            "perplexity": 10.0 + i,
            "info": [
                {"status_code": 200, "text": other.text, "url": f"http://{n}.example/"}
                for n, other in enumerate([page, *country.pages[i : i + 3]])
            ],
            "category": type(page.subject).__name__.lower(),
        }
        for i, page in enumerate(country.pages[64:96])
    ]
    folder /= "wentingzhao/WildHallucinations"
    table(folder / "data/train-*-of-00004", rows)
    card(folder, {"default": {"train": "data/train-*"}})


def wikipedia_2023(folder: Path, country: Country) -> None:
    """github.com/shmsw25/FActScore, factscore/retrieval.py: enwiki-20230401.db, whose
    passages as RoBERTa's tokenizer decodes them, joined by a separator."""
    rows = [
        (
            page.title,
            SEPARATOR.join(
                f"<s>{' '.join(part)}</s>"
                for part in (page.sentences[:2], page.sentences[2:])
            ),
        )
        for page in country.pages
    ]
    create = "CREATE TABLE documents (title PRIMARY KEY, text)"
    database(folder / "factscore/enwiki-20230401.db", create, rows)


def write(folder: Path, country: Country) -> None:
    sets = (long_form_factuality, fava, alpaca_farm, factory, factbench, wildchat)
    for make in (*sets, wild_hallucinations, wikipedia_2023):
        make(folder, country)
