"""Claims with evidence that people labelled, to measure verifiers by.

Files as their authors publish them; a user brings them, the kit has none.
"""

import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from factkit.retrieval import Index
from factkit.verify.claims import Support

# name → its file in a folder of benchmarks
SETS = {
    # one sentence of evidence each, none inconclusive (Schuster et al. 2019)
    "FEVER-Symmetric": "fever_symmetric/fever_symmetric_dev.jsonl",
    # entries of FEVEROUS and EX-FEVER, gold ones among others (Veri-R1 App. C)
    "Veri-R1, offline": "veri_r1/test_offline.parquet",
    # claims of ChatGPT's, passages of a web search, one a row (Wang et al. 2023)
    "Factcheck-Bench": "factcheck_bench/subtask3_claim_evidence_stance.jsonl",
    # sentences of Wikipedia and a page that they cite, about 130 sentences long; none
    # contradicted (Kamoi et al. 2023)
    "WiCE": "wice/claim_test.jsonl",
}
FEVER = "fever/fever_covered_by_vital_leads_half.jsonl"  # claims without evidence
LABELS = {
    Support.SUPPORTED: "SUPPORTS SUPPORT supported completely-support",
    Support.CONTRADICTED: "REFUTES REFUTE refute",
    Support.INCONCLUSIVE: "NOT_ENOUGH_INFO partially_supported not_supported "
    "partially-support irrelevant",
}
SUPPORT_OF = {label: support for support, of in LABELS.items() for label in of.split()}
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


def read(path: Path) -> list[Judged]:
    """The rows of a file of `SETS`: JSON lines, or Veri-R1's parquet."""
    if path.suffix == ".parquet":
        import pandas as pd

        rows = pd.read_parquet(path)[["question", "prompt", "golden_answers"]]
        return [
            _judged(claim, entries(prompt[0]["content"]), gold["label"])
            for claim, prompt, gold in rows.itertuples(index=False)
        ]
    return [
        _judged(row["claim"], evidence, row.get("label") or row["stance"])
        for row in _rows(path)
        for given in [row["evidence"]]
        for evidence in [[given] if isinstance(given, str) else given]
    ]


def fever(path: Path, index: Index, k: int) -> list[Judged]:
    """FEVER's claims (Thorne et al. 2018), each with the k best chunks of an index.

    Whether these contain what the label rests on is part of what is measured.
    """
    return [
        _judged(claim, [h.chunk.text for h in index.search(claim, k)], row["label"])
        for row in _rows(path)
        for claim in [plain(row["claim"])]
    ]


def entries(prompt: str) -> list[str]:
    """The entries in an offline prompt, each with its title, without wiki markup."""
    shown = prompt.rpartition("<information>")[2].partition("</information>")[0]
    found = re.findall(r"^\[\[(.+?)\]\]: (.*?)(?=^\[\[|\Z)", shown, re.M | re.S)
    texts = [f"{re.sub(r'_sentence_.*', '', title)}: {text}" for title, text in found]
    links = re.compile(r"\[\[(?:[^\]|]*\|)?([^\]]*)\]\]")
    return [links.sub(r"\1", text).strip() for text in texts]


def plain(text: str) -> str:
    """FEVER's tokenised text as it is usually written."""
    for token, written in TOKENISED.items():
        text = text.replace(token, written)
    text = re.sub(r"([(\[]) ", r"\1", html.unescape(text))
    return re.sub(r" (?=[.,;:)\]'’])", "", text).strip()


def _judged(claim: str, evidence: Sequence[str], label: str) -> Judged:
    support = SUPPORT_OF.get(label.replace(" ", "_"))
    if support is None:
        raise ValueError(f"label {label!r}; there are {', '.join(SUPPORT_OF)}")
    return Judged(plain(claim), tuple(map(plain, evidence)), support)


def _rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
