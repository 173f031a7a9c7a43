"""Parameters of questions and of requests for long answers, which papers share."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import model_validator

from factkit.run.params import fields
from factkit.run.params.own import OwnDataParams
from factkit.run.params.stages import PolicyParams

EVAL_SETS = ("crag", "nq_open", "hotpotqa", "musique", "popqa")  # data.sources


class QuestionParams(OwnDataParams, PolicyParams):
    """Questions, their prompts, probing and evidence."""

    rows_of: ClassVar[tuple[str, str]] = ("questions", "questions_path")

    verifier: Literal["rules", "exact", "judge"] = "rules"
    other_judges: fields.Judges = ""
    answer_format: Literal["plain", "boxed"]
    prompting_template: fields.Template
    abstaining_template: fields.Template
    majority_samples: fields.Few

    questions: Literal[
        "world", "leads", "own", "crag", "nq_open", "hotpotqa", "musique"
    ]
    questions_path: fields.DataFile = ""
    eval_sets: Annotated[fields.Text, fields.require_names(*EVAL_SETS)] = ""
    train_questions: fields.Size
    dev_questions: fields.Size
    test_questions: fields.Size
    comparison_questions: fields.Count = 150
    # relations whose share of right samples lies between these are used
    least_known: fields.Share = 0.0
    most_known: fields.Share = 1.0
    split_seed: fields.Seed = 0
    probe_samples: fields.Samples
    probe_temperature: fields.Temperature = 1.0
    known_share: fields.Share = 0.0  # TruthRL §3.1: any right sample

    retriever: Literal["", "bm25", "e5"] = ""
    encoder: fields.Model = "intfloat/e5-base-v2"
    wikipedia_path: fields.DataFile = ""
    retrieved_chunks: fields.Few = 3
    chunk_tokens: fields.ChunkTokens = 128
    withheld_evidence: fields.Share = 0.0  # of the questions of each relation

    @model_validator(mode="after")
    def _questions_can_be_asked(self) -> Self:
        if self.withheld_evidence and not (
            self.retriever and self.retrieved_chunks == 1
        ):
            raise ValueError(
                f"withheld_evidence={self.withheld_evidence} needs a retriever and "
                "retrieved_chunks=1"
            )
        if self.least_known > self.most_known:
            raise ValueError(
                f"least_known={self.least_known} is above most_known={self.most_known}"
            )
        if self.has_own_data and bool(self.retriever) != bool(self.documents_path):
            raise ValueError(
                f"retriever={self.retriever!r}, documents_path={self.documents_path!r}"
                ": with questions=own give both, or neither for questions alone"
            )
        return self

    @property
    def second_judges(self) -> list[str]:
        """Further verifiers of the same answers (TruthRL Table 5)."""
        if self.verifier == "judge":
            return self.other_judges.split()
        return [name for name in ("exact", "contains") if name != self.verifier]


class RequestParams(OwnDataParams, PolicyParams):
    """Requests for long answers, their evidence and verifier."""

    rows_of: ClassVar[tuple[str, str]] = ("requests", "requests_path")

    verifier: Literal["world", "leads", "judge"]

    requests: fields.Name  # each paper says which it knows
    requests_path: fields.DataPath = ""
    train_requests: fields.Size
    dev_requests: fields.Size
    test_requests: fields.Size
    split_seed: fields.Seed = 0  # of requests and questions, but in the fact world
    drawn_responses: fields.Samples
    drawn_temperature: fields.Temperature

    search_url: fields.Url = ""
    pages: fields.Few = 10  # Binary RAR App. C, VeriScore
    least_pages: fields.Few
    claim_chunks: fields.Few
    claim_chunk_tokens: fields.ChunkTokens
    test_chunks: fields.Few

    @model_validator(mode="after")
    def _evidence_can_be_had(self) -> Self:
        if self.least_pages > self.pages:
            raise ValueError(f"least_pages={self.least_pages} is above pages")
        if self.verifier != "judge" and self.verifier != self.requests:
            raise ValueError(
                f"verifier={self.verifier} can't verify requests={self.requests}: set "
                "verifier=judge, judge_model and judge_url"
            )
        if self.has_own_data and bool(self.documents_path) == bool(self.search_url):
            raise ValueError(
                "requests=own needs documents_path or search_url, what the judge holds "
                "the answers against: give one, and leave the other empty"
            )
        return self
