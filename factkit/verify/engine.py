"""The verification engine of a run: what rewards and evaluation ask about responses.

Claims of all responses are extracted at once, verified at once, equal ones once. Two
engines of one interface: exact (`verify.exact`), and by evidence with a judge.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from factkit import assets, runs
from factkit.datasets.examples import read_examples
from factkit.evaluate.long_form import Search, search_words
from factkit.reason.params import ReasonParams
from factkit.retrieval.evidence import EvidenceCache, query_of, read_evidence
from factkit.rlfh.params import RlfhParams
from factkit.verify import annotators, claims, exact, support, whole_response
from factkit.verify.claims import Claim, Extractor, Support
from factkit.verify.feedback import Annotator
from factkit.verify.preference import Preference
from factkit.verify.response import answers
from factkit.verify.support import ClaimVerifier, support_of
from factkit.verify.verifier import judge_llm
from factkit.verify.whole_response import ResponseJudge
from factkit.world import facts as worlds

if TYPE_CHECKING:
    from factkit.params.long_form import RequestParams
    from factkit.rar.params import RarParams

REFERENCES = "references.json"  # prompt id → the reference policy's own answer

Supports = list[list[Support | None] | None]


class Engine(Protocol):
    """What a reward is made of. ids: of the prompts; all lists have a value a response,
    None where the model that was asked failed."""

    def no_contradiction(
        self, ids: Sequence[str], prompts: Sequence[str], responses: Sequence[str]
    ) -> list[float | None]:
        """1.0 if nothing contradicts the evidence, else 0.0 (Binary RAR Eq. 5)."""

    def rating(
        self, ids: Sequence[str], prompts: Sequence[str], responses: Sequence[str]
    ) -> list[float | None]:
        """Factuality by the evidence, 0–10 (Binary RAR §6.2)."""

    def quality(
        self, ids: Sequence[str], prompts: Sequence[str], responses: Sequence[str]
    ) -> list[float | None]:
        """Quality without evidence, 0–10 (Binary RAR §4.3)."""

    def supports(
        self, ids: Sequence[str], prompts: Sequence[str], responses: Sequence[str]
    ) -> Supports:
        """Of each claim of each response: supported, contradicted, inconclusive."""

    @property
    def reader(self) -> tuple[Extractor, Search, ClaimVerifier]:
        """How long answers are evaluated: by claims, and evidence of their own."""


class ReasonEngine(Protocol):
    """What Learning to Reason's reward and evaluation are made of; as in `Engine`."""

    def supports(
        self, ids: Sequence[str], prompts: Sequence[str], responses: Sequence[str]
    ) -> Supports:
        """Of each claim of each answer: supported, contradicted, inconclusive."""

    def preferred(
        self, ids: Sequence[str], prompts: Sequence[str], responses: Sequence[str]
    ) -> list[float | None]:
        """1.0 if preferred to the reference policy's answer, else 0.0 (Eq. 2)."""

    def relevance(
        self, ids: Sequence[str], prompts: Sequence[str], responses: Sequence[str]
    ) -> list[float | None]:
        """How relevant an answer is, by the stand-in for a judge, higher is better."""

    @property
    def reader(self) -> tuple[Extractor, Search, ClaimVerifier]:
        """As in `Engine`."""


def engine(p: "RarParams | ReasonParams | RlfhParams") -> Engine:
    """The engine that `p.verifier` names, for the requests of the paper's data."""
    data = runs.run_folder(p.data_notebook, p)
    examples = {
        e.id: e for name in p.splits for e in read_examples(data / f"{name}.jsonl")[0]
    }
    references = _references(data)
    if p.verifier != "judge":
        return exact.ExactEngine(facts_of(p), examples, references)
    from transformers import AutoTokenizer

    evidence = read_evidence(data / "evidence.jsonl")
    tokenizer = AutoTokenizer.from_pretrained(assets.policy_path(p.policy))
    by_claims = {
        "pieces": EvidenceCache(evidence, tokenizer, p.claim_chunk_tokens),
        "search": search_words(evidence),
        "claim_chunks": p.claim_chunks,
    }
    if isinstance(p, ReasonParams):
        return PreferenceEngine(**_reader(p), **by_claims, prefer=_preference(p))
    if isinstance(p, RlfhParams):
        return ClaimEngine(**_reader(p), **by_claims)
    return EvidenceEngine(
        **_reader(p),
        **by_claims,
        **_whole_judges(p),
        whole=EvidenceCache(evidence, tokenizer, p.whole_chunk_tokens),
        whole_chunks=p.whole_chunks,
        with_prompt=p.query_with_prompt,
    )


def facts_of(p: "RarParams | ReasonParams | RlfhParams") -> exact.Reader:
    """The facts that `p.verifier` holds a response against: the world's, the leads'."""
    if p.verifier == "leads":
        from factkit.leads import facts, reader

        return reader.LeadReader(facts.load())
    made = worlds.build_world(people=p.world_people, seed=p.world_seed)
    return exact.WorldReader(made)


def annotator(p: "RlfhParams", by: "exact.ExactEngine | ClaimEngine") -> Annotator:
    """Who gives RLFH's feedback, on the answers without reasoning: the exact one of the
    fact world or the leads, or a language model in steps or in a single pass, with the
    evidence of `by`."""
    annotate = _annotator(p, by)
    return lambda ids, prompts, responses: annotate(ids, prompts, answers(responses))


def _annotator(p: "RlfhParams", by: "exact.ExactEngine | ClaimEngine") -> Annotator:
    if isinstance(by, exact.ExactEngine):
        return exact.annotator(by.facts, by.examples)

    def evidence_of(prompt_id: str, text: str) -> list[str]:
        hits = by.pieces.search(prompt_id, text, by.claim_chunks)
        return [hit.chunk.text for hit in hits]

    llm = judge_llm(p, p.judge_model, p.judge_url)
    if p.annotation == "single_pass":
        return annotators.single_pass_annotator(llm, evidence_of)
    return annotators.llm_annotator(llm, evidence_of)


def _references(data: Path) -> dict[str, str]:
    path = data / REFERENCES
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _reader(p: "RequestParams") -> dict[str, Any]:
    """Who extracts claims, and who verifies them."""
    llm = judge_llm(p, p.judge_model, p.judge_url)
    return {
        "extract": claims.llm_extractor(llm),
        "verify": support.llm_claim_verifier(llm),
    }


def _whole_judges(p: "RarParams") -> dict[str, ResponseJudge]:
    """Who finds contradictions in a whole response, rates it, and judges quality."""
    llm = judge_llm(p, p.judge_model, p.judge_url)
    return {
        "contradiction": whole_response.contradictions(llm),
        "rate": whole_response.ratings(llm),
        "judge": whole_response.quality(llm),
    }


def _preference(p: "ReasonParams") -> Preference:
    """The judge prefers.

    It writes y_ref itself (App. G), so that it is the base policy, where
    p.relevance_model names it.
    """
    model = p.relevance_model or p.judge_model
    url = p.relevance_url or p.judge_url
    judge = whole_response.preferences(judge_llm(p, model, url))

    def prefer(ids, prompts, answers) -> list[float | None]:
        rows = [(q, a, ()) for q, a in zip(prompts, answers, strict=True)]
        return [verdict.value for verdict in judge(rows)]

    return prefer


@dataclass(frozen=True, kw_only=True)
class ClaimEngine:
    """Claims read by models, with evidence from each prompt's cached documents.

    pieces: the cache that claims are held against, of 256-token chunks in Binary RAR;
    search: what evaluation holds them against.
    """

    extract: Extractor
    verify: ClaimVerifier
    pieces: EvidenceCache
    search: Search
    claim_chunks: int = 4

    def supports(self, ids, prompts, responses) -> Supports:
        def evidence_of(i: int, claim: Claim) -> list[str]:
            hits = self.pieces.search(ids[i], claim.text, self.claim_chunks)
            return [hit.chunk.text for hit in hits]

        return support_of(self.extract(prompts, responses), evidence_of, self.verify)

    @property
    def reader(self) -> tuple[Extractor, Search, ClaimVerifier]:
        return self.extract, self.search, self.verify


@dataclass(frozen=True, kw_only=True)
class PreferenceEngine(ClaimEngine):
    """Learning to Reason's: claims, and preference to the reference policy's answer."""

    prefer: Preference

    def preferred(self, ids, prompts, responses) -> list[float | None]:
        return self.prefer(ids, prompts, responses)

    def relevance(self, ids, prompts, responses) -> list[float | None]:
        return [None] * len(responses)  # a judge compares, it gives no number


@dataclass(frozen=True, kw_only=True)
class EvidenceEngine(ClaimEngine):
    """Binary RAR's: claims, and whole responses held against evidence.

    whole: the cache that a whole response is held against, of 512-token chunks in the
    paper; with_prompt: whether a response is searched for together with its prompt.
    """

    contradiction: ResponseJudge
    rate: ResponseJudge
    judge: ResponseJudge
    whole: EvidenceCache
    whole_chunks: int = 8
    with_prompt: bool = True

    def no_contradiction(self, ids, prompts, responses) -> list[float | None]:
        rows = self._with_evidence(ids, prompts, responses)
        return [verdict.value for verdict in self.contradiction(rows)]

    def rating(self, ids, prompts, responses) -> list[float | None]:
        rows = self._with_evidence(ids, prompts, responses)
        return [verdict.value for verdict in self.rate(rows)]

    def quality(self, ids, prompts, responses) -> list[float | None]:
        rows = [(p, r, ()) for p, r in zip(prompts, responses, strict=True)]
        return [verdict.value for verdict in self.judge(rows)]

    def _with_evidence(self, ids, prompts, responses) -> list[tuple]:
        """Rows of prompt, response and the texts of C(x, y), best first."""
        return [
            (prompt, response, [hit.chunk.text for hit in hits])
            for i, prompt, response in zip(ids, prompts, responses, strict=True)
            for hits in [
                self.whole.search(
                    i, query_of(prompt, response, self.with_prompt), self.whole_chunks
                )
            ]
        ]
