"""Knowledge-boundary probing (TruthRL §3.1) and the SFT targets made from it."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from factkit import models, prompts
from factkit.datasets.examples import Example
from factkit.runs import progress_bar
from factkit.verify.outcome import Outcome, outcome

ABSTENTION = "I don't know"


@dataclass(frozen=True)
class Probe:
    """What k samples of the policy say of one question."""

    id: str
    samples: list[str]
    correct: list[bool]

    @property
    def share(self) -> float:
        """The share of correct samples, in [0, 1]."""
        return sum(self.correct) / len(self.correct)

    def own_answer(self) -> str:
        """The policy's most frequent correct sample (the first one on a tie)."""
        right = [s for s, ok in zip(self.samples, self.correct, strict=True) if ok]
        return Counter(right).most_common(1)[0][0]


def probe(
    model,
    tokenizer,
    examples: Sequence[Example],
    template: str,
    sampling: models.Sampling,
    k: int,
    path: Path,
    seed: int = 0,
    part: int = 32,
) -> list[Probe]:
    """k samples a question, verified; resumable from `path` in parts of 32 questions.

    Each part is seeded by its position, so that a probing killed and gone on with
    equals one that ran through.
    """
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    done = [Probe(**json.loads(line)) for line in lines]
    text = prompts.template(template)
    bar = progress_bar(len(examples), "probing", unit="question")
    bar.update(len(done))
    for start in range(len(done), len(examples), part):
        batch = examples[start : start + part]
        asked = [prompts.fill(text, question=e.question) for e in batch]
        answers = models.sample(
            model, tokenizer, asked, sampling, n=k, seed=seed * 1_000_003 + start
        )
        rows = [
            Probe(e.id, samples, [_right(s, e) for s in samples])
            for e, samples in zip(batch, answers, strict=True)
        ]
        with path.open("a", encoding="utf-8") as f:
            f.writelines(json.dumps(asdict(r), ensure_ascii=False) + "\n" for r in rows)
        done += rows
        bar.update(len(batch))
    bar.close()
    return done


def _right(sample: str, example: Example) -> bool:
    found = outcome(sample, example.answers, example.question)
    return found is Outcome.CORRECT


def out_of_knowledge(probe: Probe, known_share: float) -> bool:
    """Whether a question lies outside the policy's knowledge (TruthRL §3.1).

    The paper: no sample of 256 is correct (`known_share` 0). A threshold on the share
    keeps luck from passing for knowledge where few answers are possible.
    """
    return probe.share == 0 or probe.share < known_share


def sft_rows(examples: Sequence[Example], template: str) -> list[dict[str, str]]:
    """SFT on the reference answers: rows of prompt and completion (TruthRL §2.2)."""
    return [_row(e, e.answers[0], template) for e in examples]


def r_tuning_rows(
    examples: Sequence[Example],
    probes: Sequence[Probe],
    template: str,
    known_share: float,
) -> list[dict[str, str]]:
    """R-Tuning: "I don't know" where out of knowledge, else the policy's own answer.

    The paper keeps the reference answer for known questions; the policy's own correct
    wording moves a small model less (ours).
    """
    by_id = {probe.id: probe for probe in probes}
    rows = []
    for example in examples:
        found = by_id[example.id]
        unknown = out_of_knowledge(found, known_share)
        target = ABSTENTION if unknown else found.own_answer()
        rows.append(_row(example, target, template))
    return rows


def _row(example: Example, target: str, template: str) -> dict[str, str]:
    """A row for TRL: the completion starts with the space that follows "Answer:"."""
    prompt = prompts.fill(prompts.template(template), question=example.question)
    return {"prompt": prompt, "completion": f" {target}"}


def prompt_rows(examples: Sequence[Example], template: str) -> list[dict]:
    """Rows for GRPO: the prompt and what the reward needs to judge a completion."""
    text = prompts.template(template)
    return [
        {
            "prompt": prompts.fill(text, question=e.question),
            "answers": e.answers,
            "question": e.question,
        }
        for e in examples
    ]
