"""What a judge reads and writes about a long answer."""

from dataclasses import dataclass

from factkit.params.stages import RequestParams
from factkit.verify import claims

# Assumptions, ours: nothing here was measured by us
SENTENCE_TOKENS = 30  # of a sentence, and of a claim
JUDGE_TOKENS = 500  # a call's instructions (1,400 to 2,300 characters) and its reply


@dataclass(frozen=True)
class LongAnswer:
    """A request's tokens, and its answer's claims; source: where their number is from.

    Two claims a sentence (ours).
    """

    request_tokens: int
    claims: int
    source: str

    @property
    def sentences(self) -> int:
        return self.claims // 2

    @property
    def tokens(self) -> int:
        """Tokens of the answer."""
        return self.sentences * SENTENCE_TOKENS

    @property
    def asked_tokens(self) -> int:
        """Tokens of a call that shows the request and no answer."""
        return JUDGE_TOKENS + self.request_tokens

    @property
    def veriscore_calls(self) -> int:
        """Calls for VeriScore: each sentence is read, each claim held."""
        return self.sentences + self.claims

    def veriscore_tokens(self, p: RequestParams) -> int:
        """Tokens of these calls: each sentence is read with the request and those
        around it, and each claim with claim_chunks."""
        around = (claims.BEFORE + 1 + claims.AFTER) * SENTENCE_TOKENS
        evidence = p.claim_chunks * p.claim_chunk_tokens
        held = JUDGE_TOKENS + SENTENCE_TOKENS + evidence
        return self.sentences * (self.asked_tokens + around) + self.claims * held
