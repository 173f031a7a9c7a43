"""Claims and facts that people labelled, to measure verifiers and extractors by (02).

Files as their authors publish them; a user brings them, the kit has none.
"""

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from factkit.datasets import rows
from factkit.verify.outcome import Support

# name → its file in a folder of benchmarks
SETS = {
    # Schuster et al. 2019: one sentence of evidence each, none inconclusive
    "FEVER-Symmetric": "fever_symmetric/fever_symmetric_dev.jsonl",
    # Veri-R1 App. C: entries of FEVEROUS and EX-FEVER, gold ones among others
    "Veri-R1, offline": "veri_r1/test_offline.parquet",
    # Wang et al. 2023: claims of ChatGPT's, passages of a web search, one a row
    "Factcheck-Bench": "factcheck_bench/subtask3_claim_evidence_stance.jsonl",
    # Kamoi et al. 2023: of Wikipedia, and a long page that they cite; none contradicted
    "WiCE": "wice/claim_test.jsonl",
}
# claims of FEVER (Thorne et al. 2018) on pages of the leads, without evidence
FEVER = "fever/fever_covered_by_vital_leads_half.jsonl"
LABELS = {
    Support.SUPPORTED: "SUPPORTS SUPPORT supported completely-support",
    Support.CONTRADICTED: "REFUTES REFUTE refute",
    Support.INCONCLUSIVE: "NOT_ENOUGH_INFO partially_supported not_supported "
    "partially-support irrelevant",
}
SUPPORT_OF = {name: kind for kind, names in LABELS.items() for name in names.split()}
TOKENISED = {
    **{"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]"},
    **{"``": '"', "''": '"', "--": "–"},
}


@dataclass(frozen=True)
class Judged:
    """A claim, its evidence texts, and what people say that these say of it.

    Partial support is inconclusive.
    """

    claim: str
    evidence: tuple[str, ...]
    support: Support


def judged(
    path: Path, search: Callable[[str], Sequence[str]] | None = None
) -> list[Judged]:
    """The rows of a file of `SETS`: JSON lines, or Veri-R1's parquet.

    search: finds the evidence of a claim, in place of the file's. Raises KeyError on an
    unknown label.
    """
    table = []
    for row in rows.of_file(path):
        claim = plain(row.get("claim") or row["question"])
        if "prompt" in row:
            texts = _entries(row["prompt"][0]["content"])
            label = row["golden_answers"]["label"]
        else:
            texts = search(claim) if search else row["evidence"]
            label = row.get("label") or row["stance"]
        evidence = [texts] if isinstance(texts, str) else texts
        support = SUPPORT_OF[label.replace(" ", "_")]
        table.append(Judged(claim, tuple(map(plain, evidence)), support))
    return table


def _entries(prompt: str) -> list[str]:
    """The entries in an offline prompt, each with its title, without wiki markup."""
    shown = prompt.rpartition("<information>")[2].partition("</information>")[0]
    entries = re.findall(r"^\[\[(.+?)\]\]: (.*?)(?=^\[\[|\Z)", shown, re.M | re.S)
    texts = [f"{re.sub(r'_sentence_.*', '', title)}: {text}" for title, text in entries]
    links = re.compile(r"\[\[(?:[^\]|]*\|)?([^\]]*)\]\]")
    return [links.sub(r"\1", text).strip() for text in texts]


def plain(text: str) -> str:
    """FEVER's tokenised text as it is usually written."""
    for token, written in TOKENISED.items():
        text = text.replace(token, written)
    text = re.sub(r"([(\[]) ", r"\1", html.unescape(text))
    return re.sub(r" (?=[.,;:)\]'’])", "", text).strip()


@dataclass(frozen=True)
class Annotated:
    """A response to a prompt, and the facts in it as people wrote them down."""

    prompt: str
    response: str
    facts: list[str]


# with atomic facts by people: biographies (Min et al. 2023), knowledge questions (Chern
# et al. 2023)
FACTS = ("factscore/InstructGPT.jsonl", "factool/knowledge_qa.jsonl")


def annotated(path: Path) -> list[Annotated]:
    """The responses of a file of `FACTS` that have facts: refusals have none."""
    table = []
    for row in rows.of_file(path):
        if "claims" in row:
            own = row["prompt"], row["response"], [c["claim"] for c in row["claims"]]
        else:
            facts = [s["human-atomic-facts"] or () for s in row["annotations"] or ()]
            own = row["input"], row["output"], [f["text"] for of in facts for f in of]
        table.append(Annotated(*own))
    return [row for row in table if row.facts]
