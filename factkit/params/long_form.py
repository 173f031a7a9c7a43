"""What the papers on long answers share: requests, evidence, verifier."""

from typing import ClassVar, Literal

from pydantic import Field

from factkit.params.stages import PolicyParams


class RequestParams(PolicyParams):
    """Requests that are answered at length, their evidence, and who verifies."""

    data_notebook: ClassVar[str]  # writes the requests and their evidence
    splits: ClassVar[tuple[str, ...]] = ("train", "dev", "test")
    verifier: Literal["world", "leads", "judge"]
    prompt_template: str

    requests: str  # each paper says which it knows
    requests_path: str = ""
    train_requests: int = Field(ge=8)
    dev_requests: int = Field(ge=8)
    test_requests: int = Field(ge=8)
    split_seed: int = Field(0, ge=0)  # of requests and questions, but in the fact world
    drawn_responses: int = Field(ge=2)
    drawn_temperature: float = Field(gt=0)

    search_url: str = ""
    pages: int = Field(ge=1)
    least_pages: int = Field(ge=1)
    claim_chunks: int = Field(ge=1)
    claim_chunk_tokens: int = Field(ge=8)
    test_chunks: int = Field(ge=1)
