"""What Veri-R1's notebooks ask of judges, engine, disk and retrievers."""

from collections import Counter

from factkit import Check
from factkit.run.arms import Arm
from factkit.run.needs import Needs, Work


class VeriNeeds(Needs):
    """Trajectories: turns of the policy, and what is found between them."""

    # the last turn, whose prompt is the longest
    call_kinds = {"turn": ("verify_claim_online", 512, 3, 500 + 3 * 768)}

    def tokens(self) -> tuple[int, int, int]:
        p = self.p
        written = p.max_completion_length * (p.max_searches + 1)
        return p.max_prompt_length, p.longest - p.max_prompt_length, written

    def data(self) -> Work:
        turns = self.p.sft_trajectories * (self.p.max_searches + 1)
        return Work(Counter(turn=turns))

    def evaluation(self, arm: Arm | None) -> Work:
        p = self.p
        n = p.test_claims * len(p.eval_sets.split()) * self.is_new(arm)
        if arm:
            kept = arm.configure(p).kept_policies
            chosen_from = kept if kept != p.kept_policies else 0
            n += p.dev_claims * (chosen_from + 1)
        return Work(Counter(), n)

    @property
    def corpora_gb(self) -> float:
        return 75.0  # FEVEROUS, FEVER and HoVer unpacked

    def services(self) -> list[Check]:
        from factkit.data import search

        return search.checks(self.p)
