"""The verification engine of a run: what rewards and evaluation ask about responses.

Claims of all responses are extracted at once, verified at once, equal ones once. Two
engines of one interface: exact (`verify.exact`), and by evidence with a judge; what one
paper alone asks for is in an engine of its own.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from factkit import assets, runs
from factkit.datasets.examples import read_examples
from factkit.evaluate.long_form import Search, search_words
from factkit.retrieval.evidence import EvidenceCache, read_evidence
from factkit.verify import claims, exact, support
from factkit.verify.claims import Claim, Extractor
from factkit.verify.support import ClaimVerifier, Supports, support_of
from factkit.verify.verifier import judge_llm
from factkit.world import facts as worlds

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from factkit.corpus import Document
    from factkit.params.stages import RequestParams

REFERENCES = "references.json"  # prompt id → the reference policy's own answer


@dataclass(frozen=True, kw_only=True)
class ClaimEngine:
    """Claims read by models, with evidence from each prompt's cached documents.

    ids of its methods: of the prompts; all lists have a value a response, None where
    the model that was asked failed. pieces: the cache that claims are held against, of
    256-token chunks in Binary RAR; search: what evaluation holds them against.
    """

    extract: Extractor
    verify: ClaimVerifier
    pieces: EvidenceCache
    search: Search
    claim_chunks: int = 4

    def supports(self, ids, prompts, responses) -> Supports:
        """Of each claim of each response: supported, contradicted, inconclusive."""

        def evidence_of(i: int, claim: Claim) -> list[str]:
            return self.evidence_of(ids[i], claim.text)

        return support_of(self.extract(prompts, responses), evidence_of, self.verify)

    def evidence_of(self, prompt_id: str, text: str) -> list[str]:
        """The chunks that a text is held against, best first."""
        hits = self.pieces.search(prompt_id, text, self.claim_chunks)
        return [hit.chunk.text for hit in hits]

    @property
    def reader(self) -> tuple[Extractor, Search, ClaimVerifier]:
        """How long answers are evaluated: by claims, and evidence of their own."""
        return self.extract, self.search, self.verify


def engine_of(p: "RequestParams") -> exact.ExactEngine | ClaimEngine:
    """The engine that `p.verifier` names (world, leads, judge), of claims alone."""
    if p.verifier != "judge":
        return exact_engine(p)
    return ClaimEngine(**claim_parts(p, *stored_evidence(p)))


def exact_engine(p: "RequestParams") -> exact.ExactEngine:
    """Exact verification of the requests of the paper's data."""
    data = runs.run_folder(p.data_notebook, p)
    rows = [e for name in p.splits for e in read_examples(data / f"{name}.jsonl")]
    stored = data / REFERENCES
    references = json.loads(stored.read_text("utf-8")) if stored.exists() else {}
    return exact.ExactEngine(facts_of(p), {e.id: e for e in rows}, references)


def facts_of(p: "RequestParams") -> exact.Reader:
    """The facts that `p.verifier` holds a response against: the world's, the leads'."""
    if p.verifier == "leads":
        from factkit.leads import facts, reader

        return reader.LeadReader(facts.load())
    made = worlds.build_world(people=p.world_people, seed=p.world_seed)
    return exact.WorldReader(made)


def stored_evidence(
    p: "RequestParams",
) -> "tuple[dict[str, list[Document]], PreTrainedTokenizerBase]":
    """The evidence that the data notebook stored, and what counts its tokens."""
    from transformers import AutoTokenizer

    data = runs.run_folder(p.data_notebook, p)
    tokenizer = AutoTokenizer.from_pretrained(assets.policy_path(p.policy))
    return read_evidence(data / "evidence.jsonl"), tokenizer


def claim_parts(
    p: "RequestParams",
    evidence: "Mapping[str, Sequence[Document]]",
    tokenizer: "PreTrainedTokenizerBase",
) -> dict[str, Any]:
    """The fields of `ClaimEngine` by the judge of p."""
    llm = judge_llm(p, p.judge_model, p.judge_url)
    return {
        "extract": claims.llm_extractor(llm),
        "verify": support.llm_claim_verifier(llm),
        "pieces": EvidenceCache(evidence, tokenizer, p.claim_chunk_tokens),
        "search": search_words(evidence),
        "claim_chunks": p.claim_chunks,
    }
