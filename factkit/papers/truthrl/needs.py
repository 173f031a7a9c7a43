"""What TruthRL's notebooks ask of judges, engine and disk."""

from collections import Counter

from factkit.run.arms import Arm
from factkit.run.needs import Needs, Work

WIKIPEDIA_GB = 51.0  # of 2018, with E5's index


class TruthRLNeeds(Needs):
    """Needs of short answers: probing, majorities, further sets and judges."""

    def tokens(self) -> tuple[int, int, int]:
        prompt, response, written = super().tokens()
        if self.p.retriever:
            prompt += self.p.retrieved_chunks * self.p.chunk_tokens
        return prompt, response, written

    def data(self) -> Work:
        probed = self.p.train_questions * self.p.probe_samples
        return Work(Counter(outcome=probed), probed)

    def evaluation(self, arm: Arm | None) -> Work:
        p = self.p
        sets = p.test_questions * (1 + len(p.eval_sets.split()))
        sets += p.comparison_questions
        second = not arm and p.abstaining_template != p.prompting_template
        n = sets * (self.is_new(arm) + second)
        if arm and arm.iterations:
            n += p.test_questions * getattr(p, arm.iterations)
        voted = p.test_questions * p.majority_samples if arm else 0
        calls = Counter(outcome=n + voted, reasoning=n)
        for judge in p.second_judges if arm else ():
            calls[f"outcome {judge.partition('@')[0]}"] = p.test_questions
        return Work(calls, n + voted)

    @property
    def corpora_gb(self) -> float:
        return WIKIPEDIA_GB if self.p.retriever else 0.0
