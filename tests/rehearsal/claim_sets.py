"""Miniature files of Veri-R1: its published claims, the five sets' own files, and the
four corpora that hold their evidence.

All lie in one folder, as `claims_path` wants them. Sources: github.com/H0key-22/Veri-R1
(example/), fever.ai (FEVER, FEVEROUS), github.com/dependentsign/EX-FEVER,
github.com/allenai/scifact, hover-nlp.github.io.
"""

import html
import json
import random
from collections.abc import Iterable
from pathlib import Path

from country import Country, Fact
from files import csv_file, database, json_file, json_lines, table

LABELS = ("SUPPORT", "REFUTE", "NOT ENOUGH INFO")
FEVER_LABELS = dict(zip(LABELS, ("SUPPORTS", "REFUTES", LABELS[2]), strict=True))
FIRST_ABSTRACT = 4000
TEST_PAGES, TRAINING_CLAIMS, TEST_CLAIMS = 12, 240, 6
REPEATED = 3  # rows of the published training file that are there twice


class Claim:
    """A claim about a fact: true, with another object, or of what no page says."""

    def __init__(self, number: int, fact: Fact, label: str, country: Country) -> None:
        rng = random.Random(f"claim {number} {fact.statement} {label}")
        self.number, self.fact, self.label = number, fact, label
        self.abstract = FIRST_ABSTRACT + country.pages.index(fact.page)
        self.text = fact.statement
        if label == "REFUTE":
            self.text = fact.false(country.other(fact, rng))
        elif label == "NOT ENOUGH INFO":
            self.text = (
                f"{fact.page.title} is mentioned in {rng.randrange(3, 9)} songs."
            )

    @property
    def title(self) -> str:
        return self.fact.page.title

    def sentence(self, title: str = "") -> str:
        return f"{title or self.title}_sentence_{self.fact.sentence}"


def claims(country: Country, facts: Iterable[Fact], n: int) -> list[Claim]:
    """n claims, the labels in turn."""
    facts = list(facts)
    return [
        Claim(i, facts[i % len(facts)], LABELS[i % len(LABELS)], country)
        for i in range(n)
    ]


def by_page(country: Country) -> tuple[list[Fact], dict[str, list[Fact]]]:
    """Facts of the pages to train on, and set → facts of its own pages to test on."""
    pages = random.Random("claims").sample(country.pages, len(country.pages))
    names = ("feverous", "exfever", "fever", "scifact", "hover")
    starts = dict(zip(names, range(0, 5 * TEST_PAGES, TEST_PAGES), strict=True))
    rank = {page.title: i for i, page in enumerate(pages)}
    facts = sorted(country.facts(), key=lambda f: (f.sentence, rank[f.page.title]))
    tests = {
        name: [f for f in facts if start <= rank[f.page.title] < start + TEST_PAGES]
        for name, start in starts.items()
    }
    return [f for f in facts if rank[f.page.title] >= 5 * TEST_PAGES], tests


# ---- the published files


def published(folder: Path, country: Country) -> None:
    """Veri-R1's parquet files, as their repository has them."""
    training, tests = by_page(country)
    rows = [
        _published(claim, ("feverous", "exfever")[i // len(LABELS) % 2])
        for i, claim in enumerate(claims(country, training, TRAINING_CLAIMS))
    ]
    table(folder / "example/train/train_online.parquet", rows + rows[:REPEATED])
    for name, facts in tests.items():
        rows = [_published(c, name) for c in claims(country, facts, TEST_CLAIMS)]
        table(folder / "example" / "evaluation" / f"{name}.parquet", rows)


def _published(claim: Claim, name: str) -> dict:
    label, evidence = claim.label, [claim.sentence()]
    if name == "exfever":
        evidence = [claim.title]
    elif name == "fever":
        evidence = [claim.sentence(claim.title.replace(" ", "_"))]
        label = FEVER_LABELS[label]
    elif name == "scifact":
        evidence = [claim.sentence(f"doc_id={claim.abstract}")]
    elif name == "hover":
        evidence = [claim.sentence(html.escape(claim.title))]
        label = "SUPPORTED" if label == "SUPPORT" else "NOT_SUPPORTED"
    if name in ("fever", "scifact") and label == "NOT ENOUGH INFO":
        evidence = []
    own_ids = {"exfever": f"exfever_{claim.number}", "scifact": claim.number}
    return {
        "id": own_ids.get(name, str(claim.number)),
        "question": claim.text,
        "golden_answers": {"label": label, "evidence": evidence},
        "data_source": name,
    }


# ---- the sets' own files, which the published ones were made from


def own_files(folder: Path, country: Country) -> None:
    """The files that the kit reads where the published ones are missing."""
    training, tests = by_page(country)
    write = {
        "feverous": _feverous,
        "exfever": _exfever,
        "fever": _fever,
        "scifact": _scifact,
        "hover": _hover,
    }
    for name, make in write.items():
        make(folder, claims(country, training, 96), claims(country, tests[name], 24))


def _feverous(folder: Path, training: list[Claim], test: list[Claim]) -> None:
    """The first row is empty, and some evidence is a cell of a table."""
    empty = {"id": "", "claim": "", "label": "", "evidence": [{"content": []}]}
    for part, rows in (("train", training), ("dev", test)):
        made = [
            {
                "id": c.number,
                "claim": c.text,
                "label": FEVER_LABELS[c.label],
                "evidence": [
                    {"content": [c.sentence()], "context": {}},
                    {"content": [f"{c.title}_cell_0_1_1"], "context": {}},
                ],
                "challenge": "Other",
                "annotator_operations": [],
            }
            for c in rows
        ]
        json_lines(folder / f"feverous_{part}_challenges.jsonl", [empty, *made])


def _exfever(folder: Path, training: list[Claim], test: list[Claim]) -> None:
    for part, rows in (("train", training), ("dev", test)):
        made = [
            {
                "claim": f"{c.text} (EX-FEVER {part} {c.number})",
                "explanation": c.fact.statement,
                "label": c.label,
                "golden entity": str([c.title.replace(" ", "_")]),
                "mention": "[]",
                "result entity": "",
                "discard number": "",
            }
            for c in rows
        ]
        csv_file(folder / f"exfever_{part}.csv", made)


def _fever(folder: Path, training: list[Claim], test: list[Claim]) -> None:
    for name, rows in (("train.jsonl", training), ("paper_dev.jsonl", test)):
        made = []
        for c in rows:
            known = c.label != "NOT ENOUGH INFO"
            where = (
                (c.title.replace(" ", "_"), c.fact.sentence) if known else (None,) * 2
            )
            made.append(
                {
                    "id": c.number,
                    "verifiable": "VERIFIABLE" if known else "NOT VERIFIABLE",
                    "label": FEVER_LABELS[c.label],
                    "claim": c.text,
                    "evidence": [[[c.number, c.number if known else None, *where]]],
                }
            )
        json_lines(folder / name, made)


def _scifact(folder: Path, training: list[Claim], test: list[Claim]) -> None:
    for part, rows in (("train", training), ("dev", test)):
        made = []
        for c in rows:
            label = {"SUPPORT": "SUPPORT", "REFUTE": "CONTRADICT"}.get(c.label)
            gold = [{"sentences": [c.fact.sentence], "label": label}]
            made.append(
                {
                    "id": c.number,
                    "claim": c.text,
                    "evidence": {str(c.abstract): gold} if label else {},
                    "cited_doc_ids": [c.abstract],
                }
            )
        json_lines(folder / f"claims_{part}.jsonl", made)


def _hover(folder: Path, training: list[Claim], test: list[Claim]) -> None:
    """Claims of two hops, and one of three, which is left out."""
    for part, rows in (("train", training), ("dev", test)):
        made = [
            {
                "uid": f"{c.number:08}-{part}",
                "claim": c.text,
                "supporting_facts": [[html.escape(c.title), c.fact.sentence]],
                "label": "SUPPORTED" if c.label == "SUPPORT" else "NOT_SUPPORTED",
                "num_hops": 3 if c.number == 0 else 2,
                "hpqa_id": f"{c.number:024x}",
            }
            for c in rows
        ]
        json_file(folder / f"hover_{part}_release_v1.1.json", made)


# ---- the corpora


def corpora(folder: Path, country: Country) -> None:
    """Each of the four holds every page, in its own format."""
    pages = country.pages
    rows = []
    for page in pages:
        names = {f"sentence_{i}": text for i, text in enumerate(page.sentences)}
        linked = page.sentences[0].replace(" river ", " [[River|river]] ")
        data = {"title": page.title, "order": list(names)} | names
        rows.append((page.title, json.dumps(data | {"sentence_0": linked})))
    create = "CREATE TABLE wiki (id PRIMARY KEY, data json)"
    database(folder / "feverous_wikiv1.db", create, rows)

    rows = [(html.escape(page.title), page.text) for page in pages]
    create = "CREATE TABLE documents (id PRIMARY KEY, text)"
    database(folder / "wiki_wo_links.db", create, rows)

    empty = {"id": "", "text": "", "lines": ""}
    rows = [
        {
            "id": page.title.replace(" ", "_"),
            "text": page.text,
            "lines": "\n".join(
                f"{i}\t{text}\t{page.title}\t{page.title}"
                for i, text in enumerate(page.sentences)
            ),
        }
        for page in pages
    ]
    for number, part in enumerate((rows[::2], rows[1::2]), start=1):
        json_lines(folder / f"wiki-pages/wiki-{number:03}.jsonl", [empty, *part])

    rows = [
        {
            "doc_id": FIRST_ABSTRACT + number,
            "title": f"A note on {page.title}",
            "abstract": list(page.sentences),
            "structured": False,
        }
        for number, page in enumerate(pages)
    ]
    json_lines(folder / "corpus.jsonl", rows)


def write(folder: Path, country: Country) -> None:
    """All files of `claims_path`."""
    published(folder, country)
    own_files(folder, country)
    corpora(folder, country)
