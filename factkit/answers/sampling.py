"""Responses sampled from a policy and scored.

Short answers probe what the policy knows (TruthRL §3.1); long ones are scored for best-
of-n and preference data (Binary RAR §4.3, Learning to Reason §2.2 and §2.3).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from factkit.answers.stage import Stage
from factkit.data.examples import Example
from factkit.policy.decoding import Sampling
from factkit.policy.policy import Policy
from factkit.run.params.data import RequestParams
from factkit.verify.outcome import Outcome

if TYPE_CHECKING:
    from factkit.answers.verifier import Verifier

SEEDS = 1_000_003  # between the seeds of two runs, for their parts

# (ids, prompts, whole responses) → scores of their answers; None: the verifier failed
Score = Callable[[Sequence[str], Sequence[str], Sequence[str]], Sequence[float | None]]


@dataclass(frozen=True)
class Draws:
    """How to sample: n responses per prompt, under a template ("": the policy's)."""

    sampling: Sampling
    n: int
    seed: int = 0
    template: str = ""

    @classmethod
    def of(cls, policy: Policy, p: RequestParams, template: str = "") -> Self:
        """How a run samples responses to requests."""
        sampling = policy.sampling(p.drawn_temperature)
        return cls(sampling, p.drawn_responses, p.seed, template)


@dataclass(frozen=True)
class Probe:
    """Samples of the policy for one question; outcome None: the judge failed."""

    id: str
    samples: list[str]
    outcomes: list[Outcome | None] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        """The share of correct samples among those judged, in [0, 1] (0 of none)."""
        judged = [o for o in self.outcomes if o is not None]
        return judged.count(Outcome.CORRECT) / max(len(judged), 1)

    def samples_with(self, outcome: Outcome) -> list[str]:
        """The samples with this outcome, in the order in which they were sampled."""
        pairs = zip(self.samples, self.outcomes, strict=True)
        return [sample for sample, o in pairs if o is outcome]

    def most_frequent(self, outcome: Outcome) -> str | None:
        """The commonest sample with this outcome (the first on a tie), if any."""
        counts = Counter(self.samples_with(outcome))
        return next((text for text, _ in counts.most_common(1)), None)


@dataclass(frozen=True)
class ScoredSamples:
    """Responses to one request with scores; score None: the verifier failed."""

    id: str
    responses: list[str]
    scores: list[float | None] = field(default_factory=list)

    @property
    def ranked(self) -> list[tuple[float, str]]:
        """(score, response), the best first; on a tie the one sampled first."""
        pairs = zip(self.scores, self.responses, strict=True)
        scored = [(score, text) for score, text in pairs if score is not None]
        return sorted(scored, key=lambda pair: -pair[0])


Row = TypeVar("Row", Probe, ScoredSamples)


def probe_knowledge(
    policy: Policy,
    examples: Sequence[Example],
    draws: Draws,
    verify: "Verifier",
    path: Path,
) -> list[Probe]:
    """Sample and verify answers to each question; resumable from `path` by parts."""
    by_id = {e.id: e for e in examples}

    def score(probes: list[Probe]) -> list[Probe]:
        asked = [by_id[probe.id] for probe in probes]
        return verify_samples(asked, [probe.samples for probe in probes], verify)

    stage = Stage(path, Probe, score, lambda probe: None not in probe.outcomes)
    return _sample(stage, policy, examples, draws)


def verify_samples(
    examples: Sequence[Example], samples: Sequence[list[str]], verify: "Verifier"
) -> list[Probe]:
    """Verify the samples of all questions in one batch."""
    pairs = list(zip(examples, samples, strict=True))
    rows = [(text, e.answers, e.question) for e, texts in pairs for text in texts]
    outcomes = iter(verify(*map(list, zip(*rows, strict=True))))
    return [Probe(e.id, texts, [*islice(outcomes, len(texts))]) for e, texts in pairs]


def sample_and_score(
    policy: Policy, examples: Sequence[Example], draws: Draws, score: Score, path: Path
) -> list[ScoredSamples]:
    """Sample and score responses to each request; resumable from `path` by parts."""
    questions = {e.id: e.question for e in examples}

    def score_rows(rows: list[ScoredSamples]) -> list[ScoredSamples]:
        columns = [(r.id, questions[r.id], text) for r in rows for text in r.responses]
        scores = iter(score(*map(list, zip(*columns, strict=True))))
        return [replace(r, scores=[*islice(scores, len(r.responses))]) for r in rows]

    stage = Stage(path, ScoredSamples, score_rows, lambda row: None not in row.scores)
    return _sample(stage, policy, examples, draws)


def sample(
    policy: Policy, examples: Sequence[Example], draws: Draws, path: Path
) -> list[ScoredSamples]:
    """Sample responses to each request, unscored; resumable from `path` by parts."""
    stage = Stage(path, ScoredSamples, list, lambda row: True)
    return _sample(stage, policy, examples, draws)


def _sample(
    stage: Stage[Row], policy: Policy, examples: Sequence[Example], draws: Draws
) -> list[Row]:
    """Each part is seeded by its position, so that a resumed run equals a whole one."""

    def compute(start: int, stop: int) -> list[Row]:
        part = examples[start:stop]
        prompts = policy.format_prompts(part, draws.template)
        seed = SEEDS * draws.seed + start
        texts = policy.generate(prompts, draws.sampling, n=draws.n, seed=seed)
        return [stage.kind(e.id, own) for e, own in zip(part, texts, strict=True)]

    return stage.run(len(examples), policy.part_size(draws.n), compute)
