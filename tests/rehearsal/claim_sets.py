"""Miniature files of Veri-R1: its published claims, and the four corpora that hold
their evidence.

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
from files import database, json_lines, table

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
    corpora(folder, country)
