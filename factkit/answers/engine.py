"""Verification engines of long answers, which rewards and evaluation ask.

Two engines have one interface. `ExactEngine` needs no model: a `FactReader` reads
sentences into statements and knows which are true, so no verdict is None. `ClaimEngine`
asks models for the claims of all responses, and whether evidence supports them. A paper
adds to it what it alone asks.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from factkit.answers.long_form import Search, search_words
from factkit.answers.verifier import Texts, facts_of, has_judge, judge_llm
from factkit.data import assets
from factkit.data.corpus import Document
from factkit.data.evidence import EvidenceCache, read_evidence
from factkit.data.examples import DataError, Example, read_examples
from factkit.facts.source import FactReader
from factkit.run import runs
from factkit.run.params.data import RequestParams
from factkit.run.params.stages import PolicyParams
from factkit.verify import claims, judge
from factkit.verify.claims import (
    Claim,
    ClaimVerifier,
    Extractor,
    Supports,
    check_response,
    merge_claims,
)
from factkit.verify.outcome import Support

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

REFERENCES = "references.json"  # prompt id → the reference policy's answer
Scores = list[float | None]


@dataclass(frozen=True, kw_only=True)
class ClaimEngine:
    """Models extract claims and verify them with evidence from each prompt's documents.

    Each method takes the id of a prompt, the prompt and a response, and returns None
    where a model failed. pieces: the evidence of rewards, in Binary RAR in chunks of
    256 tokens; search: the evidence of evaluation.
    """

    extract: Extractor
    verify: ClaimVerifier
    pieces: EvidenceCache
    search: Search
    claim_chunks: int = 4

    def values(
        self, methods: Iterable[str], ids: Texts, prompts: Texts, responses: Texts
    ) -> dict[str, list[Any]]:
        """Method → its value for each response, all asked for at the same time."""
        methods = list(methods)
        rows = list(zip(ids, prompts, responses, strict=True))
        work = [getattr(self, name)(*row) for row in rows for name in methods]
        values = judge.run_all(work, "judging")
        return {name: values[k :: len(methods)] for k, name in enumerate(methods)}

    async def supports(self, prompt_id: str, prompt: str, response: str) -> Supports:
        """The support of each claim."""
        evidence_of = partial(self.evidence_of, prompt_id)
        _, supports = await check_response(
            prompt, response, self.extract, evidence_of, self.verify
        )
        return supports

    def evidence_of(self, prompt_id: str, text: str) -> list[str]:
        """The chunks that a text is verified with, best first."""
        hits = self.pieces.search(prompt_id, text, self.claim_chunks)
        return [hit.chunk.text for hit in hits]

    @property
    def reader(self) -> tuple[Extractor, Search, ClaimVerifier]:
        """What `long_form.evaluate` takes: extractor, search, verifier."""
        return self.extract, self.search, self.verify


@dataclass(frozen=True)
class ExactEngine:
    """The engine of all papers on long answers where the facts are known.

    examples: prompt id → the prompt. references: prompt id → the reference policy's
    answer.
    """

    facts: FactReader
    examples: Mapping[str, Example]
    references: Mapping[str, str] = field(default_factory=dict)

    def values(
        self, methods: Iterable[str], ids: Texts, prompts: Texts, responses: Texts
    ) -> dict[str, list[Any]]:
        """Method → its value for each response."""
        rows = list(zip(ids, prompts, responses, strict=True))
        return {name: [getattr(self, name)(*row) for row in rows] for name in methods}

    def supports(self, prompt_id: str, prompt: str, response: str) -> list[Support]:
        """The support of each claim."""
        claims = self.claims(prompt_id, response)
        return [Support(self.facts.verify(claim.text)) for claim in claims]

    def no_contradiction(self, *row: str) -> float:
        """1.0 if no claim is contradicted, else 0.0 (Binary RAR Eq. 5)."""
        return float(Support.CONTRADICTED not in self.supports(*row))

    def rating(self, *row: str) -> float:
        """The `rating` of the claims' support."""
        return rating(self.supports(*row))

    def quality(self, prompt_id: str, prompt: str, response: str) -> float:
        """How well a request is answered, 0–10, true or not: the relevance times the
        share of the subject's relations (or of the wanted number) that it states.

        Stands for an LM judge, which likes detail and keeping to the point, and does
        not know what is true. A short answer gets 10 if it is of the asked kind.
        """
        example = self.examples[prompt_id]
        if example.relation:
            claims = self.claims(prompt_id, response)
            facts = [f[0] for f in (self.facts.parse(c.text) for c in claims) if f]
            kinds = [(fact.subject, fact.relation) for fact in facts]
            return 10.0 * ((example.entity, example.relation) in kinds)
        relevance, relations = self._relations(example, response)
        known = {f.relation for f in self.facts.facts_of(example.entity)}
        wanted = example.meta.get("wanted") or len(known)
        detail = min(len(relations) / wanted, 1.0) if relations else 0.0
        return float(round(10 * detail * relevance))

    def relevance(self, prompt_id: str, prompt: str, response: str) -> float:
        """The share of a response's sentences that state something about its subject,
        true or not; halved if their number is not the wanted one."""
        return self._relations(self.examples[prompt_id], response)[0]

    def preferred(self, prompt_id: str, prompt: str, response: str) -> float:
        """1.0 if a response is relevant, no less than the reference policy's, else 0.0
        (Learning to Reason Eq. 2). Truth does not count, as for the judge."""
        if prompt_id not in self.references:
            raise DataError(
                f"prompt {prompt_id!r}: no answer of the reference policy to compare "
                "with; run 30_reason_data again"
            )
        ours = self.relevance(prompt_id, prompt, response)
        theirs = self.relevance(prompt_id, prompt, self.references[prompt_id])
        return float(0 < ours >= theirs)

    @property
    def reader(self) -> tuple[Extractor, Search, ClaimVerifier]:
        """What `long_form.evaluate` takes; evidence is not needed."""
        subjects = {e.question: e.entity for e in self.examples.values()}

        async def extract(prompt: str, response: str) -> list[Claim]:
            return self._read(response, subjects.get(prompt, ""))

        async def verify(claim: str, evidence: Texts) -> Support:
            return Support(self.facts.verify(claim))

        return extract, lambda prompt_id, query, k: [], verify

    def claims(self, prompt_id: str, response: str) -> list[Claim]:
        """The statements of a response, each wording once; that of a short answer
        follows from its question."""
        example = self.examples[prompt_id]
        if example.relation:
            short = response.strip().removesuffix(".")
            statement = self.facts.answer(example.entity, example.relation, short)
            if statement:
                return [Claim(statement, response.strip())]
        return self._read(response, example.entity)

    def _read(self, response: str, about: str) -> list[Claim]:
        sentences = self.facts.sentences(response, about)
        listed = [(s, self.facts.statements(s, about)) for s in sentences]
        return merge_claims(listed) or []

    def _relations(self, example: Example, response: str) -> tuple[float, set[str]]:
        """A response's relevance, and the relations of its subject that it states: one
        per sentence, that of the first fact."""
        sentences = self.facts.sentences(response, example.entity)
        relations = []
        for sentence in sentences:
            statements = self.facts.statements(sentence, example.entity)
            fact = next(filter(None, map(self.facts.parse, statements)), None)
            if fact and fact[0].subject == example.entity:
                relations.append(fact[0].relation)
        wanted = example.meta.get("wanted")
        weight = 1.0 if wanted in (None, len(sentences)) else 0.5
        return weight * len(relations) / max(len(sentences), 1), set(relations)


def rating(supports: Sequence[Support]) -> float:
    """The rating of a response with claims of these supports, by the guide of Fig. 10.

    | the guide, 0–10 | claims | rating |
    |---|---|---|
    | 0–2 multiple clear contradictions | n ≥ 2 contradicted | max(4 − n, 0) |
    | 3–4 one clear contradiction | one, something else not supported | 3 |
    | | one, all others supported | 4 |
    | 5 uncertain | none contradicted, more than half inconclusive | 5 |
    | 6–7 mostly accurate, minor concerns | several inconclusive, at most half | 6 |
    | | one inconclusive, at most half | 7 |
    | 8–10 all stated facts are accurate, however few | all supported, or none | 10 |

    Within a range of the guide, the number is ours.
    """
    wrong, open_ = map(supports.count, (Support.CONTRADICTED, Support.INCONCLUSIVE))
    if wrong > 1:
        return float(max(4 - wrong, 0))
    if wrong:
        return 3.0 if open_ else 4.0
    if 2 * open_ > len(supports):
        return 5.0
    return {0: 10.0, 1: 7.0}.get(open_, 6.0)


# ---- the engine of a run


def engine_of(p: RequestParams) -> ExactEngine | ClaimEngine:
    """The engine of `p`: the exact one, or where a judge verifies a `ClaimEngine`."""
    return ClaimEngine(**claim_fields(p)[0]) if has_judge(p) else exact_engine(p)


def exact_engine(p: PolicyParams) -> ExactEngine:
    """The exact engine of the requests that the paper's data notebook stored."""
    data = runs.run_folder(p.data_notebook, p)
    rows = [e for name in p.splits for e in read_examples(data / f"{name}.jsonl")]
    stored = data / REFERENCES
    references = json.loads(stored.read_text("utf-8")) if stored.exists() else {}
    return ExactEngine(facts_of(p), {e.id: e for e in rows}, references)


def claim_fields(
    p: RequestParams,
) -> "tuple[dict[str, Any], dict[str, list[Document]], PreTrainedTokenizerBase]":
    """The fields of `ClaimEngine` by the judge of `p`; the evidence that the data
    notebook stored, and the policy's tokenizer."""
    from transformers import AutoTokenizer

    llm = judge_llm(p, p.judge_model, p.judge_url)
    tokenizer = AutoTokenizer.from_pretrained(assets.policy_path(p.policy))
    evidence = read_evidence(runs.run_folder(p.data_notebook, p) / "evidence.jsonl")
    fields = {
        "extract": partial(claims.extract_claims, llm),
        "verify": partial(claims.label_text, llm),
        "pieces": EvidenceCache(evidence, tokenizer, p.claim_chunk_tokens),
        "search": search_words(evidence),
        "claim_chunks": p.claim_chunks,
    }
    return fields, evidence, tokenizer
