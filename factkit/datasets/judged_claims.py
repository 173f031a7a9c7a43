"""Claims with evidence that people labelled, to measure verifiers by.

Files as their authors publish them; a user brings them, the kit has none.
"""

import html
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

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
# claims of FEVER (Thorne et al. 2018) on pages of the leads, without evidence
FEVER = "fever/fever_covered_by_vital_leads_half.jsonl"
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


def read(
    path: Path, search: Callable[[str], Sequence[str]] | None = None
) -> list[Judged]:
    """The rows of a file of `SETS`: JSON lines, or Veri-R1's parquet.

    search: finds the evidence of a claim, in place of the file's.
    """
    if path.suffix == ".parquet":
        import pandas as pd

        rows = pd.read_parquet(path)[["question", "prompt", "golden_answers"]]
        return [
            _judged(claim, entries(prompt[0]["content"]), gold["label"])
            for claim, prompt, gold in rows.itertuples(index=False)
        ]
    found = []
    for row in map(json.loads, path.read_text("utf-8").splitlines()):
        claim = plain(row["claim"])
        texts = search(claim) if search else row["evidence"]
        evidence = [texts] if isinstance(texts, str) else texts
        found.append(_judged(claim, evidence, row.get("label") or row["stance"]))
    return found


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
