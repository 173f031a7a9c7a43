"""What RLFH's notebooks ask of judges, engine and disk."""

from factkit.run.arms import Arm
from factkit.run.needs import RequestNeeds, Work


class RlfhNeeds(RequestNeeds):
    """Statements that are verified and rated, in training and in FactScore."""

    prompt_tokens = 100
    claims = 22  # before training (Table 1)
    call_kinds = {"rate": ("rate_informativeness", 70, 1, 800)}

    def data(self) -> Work:
        work = super().data()
        work.calls["rate"] = self.requests * self.p.drawn_responses
        return work

    def evaluation(self, arm: Arm | None) -> Work:
        p, new = self.p, self.is_new(arm)
        test = p.test_requests + 191 + 183  # SQuAD and biographies (Table 1)
        judged = p.dev_requests * bool(arm) + test * new
        calls = self.claim_calls(judged, "verify_test")
        calls += self.claim_calls(judged, "verify")
        calls["rate"] = judged
        return Work(calls, judged * new)

    @property
    def corpora_gb(self) -> float:
        # the database of Wikipedia, and the index of its passages (a guess: as much)
        return 40.0
