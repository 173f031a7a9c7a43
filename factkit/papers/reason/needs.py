"""What Learning to Reason's notebooks ask of judges and engine."""

from factkit.run.arms import Arm
from factkit.run.needs import RequestNeeds, Work

CALLS = 1.5  # of the writing model per prompt wanted: some are dropped
# prompts that the paper evaluates on, of sets of which it takes a part (App. A)
PART = {"longfact_objects": 250, "fava": 141, "alpaca_fact": 241}


class ReasonNeeds(RequestNeeds):
    """Requests that a model writes; comparisons with the base policy's answers."""

    prompt_tokens = 250
    claims = 46  # after training (Table 2)
    sets = 6
    call_kinds = {
        "write": ("synthetic_prompt", 250, 0, 1500),
        "relevance": ("judge_relevance", 860, 1, 250),
        "strategies": ("annotate_strategies", 600, 1, 250),
    }

    def data(self) -> Work:
        work = super().data()
        written = round(CALLS * (self.requests + self.p.dev_requests))
        work.calls["write"] = written
        return work

    def evaluation(self, arm: Arm | None) -> Work:
        p, new = self.p, self.is_new(arm)
        sizes = [PART.get(name, p.test_requests) for name in p.eval_sets.split()]
        test = sum(min(size, p.test_requests) for size in sizes)
        judged = p.dev_requests * bool(arm) + test * new
        calls = self.claim_calls(judged, "verify_test")
        calls["compare"] = 2 * judged  # in both orders
        calls["strategies"] = test * (new and bool(arm))
        return Work(calls, judged * new)
