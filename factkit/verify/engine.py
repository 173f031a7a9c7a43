"""The verification engine of a run: what rewards and evaluation ask about responses.

Claims of all responses are extracted at once, verified at once, equal ones once. Two
engines of one interface: exact in the fact world, and by evidence with models.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from factkit import assets, runs
from factkit import world as worlds
from factkit.datasets.examples import Example, read_examples
from factkit.evaluate.long_form import Search, search_words
from factkit.evidence import EvidenceCache, query_of, read_evidence
from factkit.params import ReasonParams, RlfhParams
from factkit.verify import (
    annotators,
    claims,
    feedback,
    preference,
    support,
    whole_response,
)
from factkit.verify.claims import Claim, Extractor, Support
from factkit.verify.feedback import Annotator
from factkit.verify.preference import Preference, Relevance
from factkit.verify.replies import Verdict
from factkit.verify.response import answers
from factkit.verify.support import ClaimVerifier, support_of
from factkit.verify.verifier import judge_llm
from factkit.verify.whole_response import ResponseJudge

if TYPE_CHECKING:
    from factkit.params import RarParams, RequestParams
    from factkit.world import World

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
    if p.verifier == "world":
        made = worlds.build_world(people=p.world_people, seed=p.world_seed)
        return WorldEngine(made, examples, references)
    from transformers import AutoTokenizer

    evidence = read_evidence(data / "evidence.jsonl")
    tokenizer = AutoTokenizer.from_pretrained(assets.policy_path(p.policy))
    by_claims = {
        "pieces": EvidenceCache(evidence, tokenizer, p.claim_chunk_tokens),
        "search": search_words(evidence),
        "claim_chunks": p.claim_chunks,
    }
    if isinstance(p, ReasonParams):
        return PreferenceEngine(
            **_reader(p), **by_claims, **_preference(p, examples, references)
        )
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


def annotator(p: "RlfhParams", by: "WorldEngine | ClaimEngine") -> Annotator:
    """Who gives RLFH's feedback, on the answers without reasoning: the exact one of the
    fact world, the kit's own models, or a language model in steps or in a single pass,
    with the evidence of `by`."""
    annotate = _annotator(p, by)
    return lambda ids, prompts, responses: annotate(ids, prompts, answers(responses))


def _annotator(p: "RlfhParams", by: "WorldEngine | ClaimEngine") -> Annotator:
    if isinstance(by, WorldEngine):
        return feedback.world_annotator(by.world, by.examples)

    def evidence_of(prompt_id: str, text: str) -> list[str]:
        hits = by.pieces.search(prompt_id, text, by.claim_chunks)
        return [hit.chunk.text for hit in hits]

    if p.verifier == "embedded":
        return annotators.embedded_annotator(by.verify, evidence_of)
    llm = judge_llm(p, p.judge_model, p.judge_url)
    if p.annotation == "single_pass":
        return annotators.single_pass_annotator(llm, evidence_of)
    return annotators.llm_annotator(llm, evidence_of)


def _references(data: Path) -> dict[str, str]:
    path = data / REFERENCES
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _reader(p: "RequestParams") -> dict[str, Any]:
    """Who extracts claims, and who verifies them."""
    if p.verifier == "embedded":
        from factkit.verify.embedded import embedded_verifier

        model = embedded_verifier()
        verify = support.embedded_claim_verifier(model.probabilities)
        return {"extract": claims.embedded_claims, "verify": verify}
    llm = judge_llm(p, p.judge_model, p.judge_url)
    return {
        "extract": claims.llm_extractor(llm),
        "verify": support.llm_claim_verifier(llm),
    }


def _whole_judges(p: "RarParams") -> dict[str, ResponseJudge]:
    """Who finds contradictions in a whole response, rates it, and judges quality."""
    if p.verifier == "embedded":
        reader = _reader(p)
        whole = whole_response.claim_contradictions(reader["extract"], reader["verify"])
        return {"contradiction": whole, "rate": _nobody, "judge": _nobody}
    llm = judge_llm(p, p.judge_model, p.judge_url)
    return {
        "contradiction": whole_response.contradictions(llm),
        "rate": whole_response.ratings(llm),
        "judge": whole_response.quality(llm),
    }


def _preference(
    p: "ReasonParams", examples: Mapping[str, Example], references: Mapping[str, str]
) -> dict[str, Any]:
    """Who prefers: a judge, or the stand-in that knows embeddings alone.

    The judge writes y_ref itself (App. G), so that it is the base policy, where
    p.relevance_model names it.
    """
    if p.verifier == "judge":
        model = p.relevance_model or p.judge_model
        url = p.relevance_url or p.judge_url
        judge = whole_response.preferences(judge_llm(p, model, url))

        def prefer(ids, prompts, answers) -> list[float | None]:
            rows = [(q, a, ()) for q, a in zip(prompts, answers, strict=True)]
            return [verdict.value for verdict in judge(rows)]

        return {"prefer": prefer}
    from factkit.dense import Encoder

    encoder = Encoder(assets.embedder_path())
    stand_in = preference.embedding_relevance(examples, encoder.passages)
    prefer = preference.at_least_as(stand_in, references)
    return {"prefer": prefer, "stand_in": stand_in}


def _nobody(rows: Sequence) -> list[Verdict]:
    """In place of a judge that there is none of."""
    return [Verdict(None, "no judge of quality without an endpoint") for _ in rows]


@dataclass(frozen=True)
class WorldEngine:
    """Exact, in the fact world.

    examples: prompt id → the prompt; references: → the reference policy's answer.
    """

    world: "World"
    examples: Mapping[str, Example]
    references: Mapping[str, str] = field(default_factory=dict)

    def no_contradiction(self, ids, prompts, responses) -> list[float | None]:
        found = self.supports(ids, prompts, responses)
        return [float(Support.CONTRADICTED not in of) for of in found]

    def rating(self, ids, prompts, responses) -> list[float | None]:
        """`whole_response.rating` of the claims' supports."""
        return list(map(whole_response.rating, self.supports(ids, prompts, responses)))

    def quality(self, ids, prompts, responses) -> list[float | None]:
        """`world.quality`; a short answer is worth 10 if it is of the asked kind."""
        return [
            self._quality(self.examples[i], response)
            for i, response in zip(ids, responses, strict=True)
        ]

    def relevance(self, ids, prompts, responses) -> list[float | None]:
        """`world.relevance`: whether an answer keeps to what it was asked."""
        asked = [self.examples[i] for i in ids]
        return [
            worlds.relevance(self.world, e.entity, response, e.meta.get("wanted"))
            for e, response in zip(asked, responses, strict=True)
        ]

    def preferred(self, ids, prompts, responses) -> list[float | None]:
        prefer = preference.at_least_as(self.relevance, self.references)
        return prefer(ids, prompts, responses)

    def supports(self, ids, prompts, responses) -> Supports:
        return [
            [Support(worlds.verify(self.world, c.text)) for c in self.claims(i, r)]
            for i, r in zip(ids, responses, strict=True)
        ]

    @property
    def reader(self) -> tuple[Extractor, Search, ClaimVerifier]:
        return (
            claims.world_claims(self.world),
            lambda prompt_id, query, k: [],
            support.world_claim_verifier(self.world),
        )

    def claims(self, prompt_id: str, response: str) -> list[Claim]:
        """The facts that a response states, in each wording once; a short answer
        with its question."""
        example = self.examples[prompt_id]
        stated = {
            text: sentence
            for sentence in worlds.sentences(response)
            for text in worlds.statements(self.world, sentence)
        }
        if example.relation:
            answer = response.strip().removesuffix(".")
            fact = worlds.Fact(example.entity, example.relation, answer)
            stated[worlds.statement(fact)] = response.strip()
        return [
            Claim(text, sentence)
            for text, sentence in stated.items()
            if worlds.parse(self.world, text)
        ]

    def _quality(self, example: Example, response: str) -> float:
        if example.relation:
            claims = self.claims(example.id, response)
            facts = [worlds.parse(self.world, claim.text)[0] for claim in claims]
            asked = (example.entity, example.relation)
            return 10.0 * (asked in [(f.subject, f.relation) for f in facts])
        wanted = example.meta.get("wanted")
        return worlds.quality(self.world, example.entity, response, wanted)


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
    """Learning to Reason's: claims, and preference to the reference policy's answer.

    stand_in: where no judge prefers, what tells how relevant an answer is.
    """

    prefer: Preference
    stand_in: Relevance | None = None

    def preferred(self, ids, prompts, responses) -> list[float | None]:
        return self.prefer(ids, prompts, responses)

    def relevance(self, ids, prompts, responses) -> list[float | None]:
        if self.stand_in is None:
            return [None] * len(responses)
        return self.stand_in(ids, prompts, responses)


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
