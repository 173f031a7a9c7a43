"""What a paper's runs ask of GPUs, judges, disks and services, from its parameters.

`gpu.bill`, `gpu.memory` and `gpu.doctor` reckon with it. A paper whose prompts, data or
tests differ from the defaults has a class of its own in papers/<paper>/needs.py. All
counts are upper bounds: every prompt, full responses.
"""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from factkit.run.arms import Arm
    from factkit.run.failures import Check


class Work(NamedTuple):
    """What a notebook asks for.

    calls: kind of judge call (of another judge than p.judge_model, "kind model") →
    number. responses: drawn from the policy by the notebook's engine; rollouts: drawn
    during training. benchmarks: (problems, tokens of a prompt, tokens of a response) of
    each benchmark. passes: rows × FLOP per weight and token (forward 2, backward 4,
    recomputing 2) of all `updates`.
    """

    calls: Counter
    responses: int = 0
    benchmarks: tuple[tuple[int, int, int], ...] = ()
    rollouts: int = 0
    passes: int = 0
    updates: int = 0


class Needs:
    """Defaults: short prompts, no judge and no data beside the training.

    prompt_tokens: tokens of a prompt without references. claims: claims per response,
    which are verified one by one. call_kinds: kinds of judge call beside those of
    `gpu.bill.CALLS`, in its form.
    """

    prompt_tokens: ClassVar[int] = 200
    claims: ClassVar[int] = 0
    call_kinds: ClassVar[Mapping[str, tuple]] = {}

    def __init__(self, p: Any) -> None:
        self.p = p

    def tokens(self) -> tuple[int, int, int]:
        """Tokens of a prompt, of a full response, and of the part of the response that
        the policy writes."""
        response = self.p.response_tokens
        return self.prompt_tokens, response, response

    def data(self) -> Work:
        """The data notebook, without the tests of the untrained policy."""
        return Work(Counter())

    def evaluation(self, arm: "Arm | None") -> Work:
        """The tests of an arm's policy; None: of the untrained one, in the data
        notebook, whose answers and verdicts the arms reuse."""
        return Work(Counter())

    def is_new(self, arm: "Arm | None") -> bool:
        """Whether the policy's answers are not those of the data notebook."""
        return not arm or arm.changes_policy(self.p)

    @property
    def corpora_gb(self) -> float:
        """GB of corpora and indexes to download."""
        return 0.0

    @property
    def web_searches(self) -> int:
        """Searches of a paid web service."""
        return 0

    def services(self) -> "list[Check]":
        """Checks of the services that only this paper uses."""
        return []


class RequestNeeds(Needs):
    """Of papers with long responses, whose claims are extracted and verified.

    sets: test sets of p.test_requests each. The data notebook draws responses, and one
    reference per request, by which evidence is searched for.
    """

    sets: ClassVar[int] = 1

    @property
    def requests(self) -> int:
        """Requests to which responses are drawn."""
        return self.p.train_requests + getattr(self.p, "sft_requests", 0)

    def claim_calls(self, responses: int, kind: str) -> Counter:
        """One call for each sentence that is read (two claims each; ours) and for each
        claim that is verified."""
        n = responses * self.claims
        return Counter({"extract": n // 2, kind: n})

    def data(self) -> Work:
        drawn = self.requests * self.p.drawn_responses
        references = self.requests + self.p.dev_requests
        return Work(self.claim_calls(drawn, "verify"), drawn + references)

    @property
    def web_searches(self) -> int:
        p = self.p
        tests = p.test_requests * self.sets
        return (self.requests + p.dev_requests + tests) if p.search_url else 0
