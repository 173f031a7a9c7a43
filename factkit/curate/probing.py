"""Knowledge-boundary probing (TruthRL §3.1) and the SFT targets made from it."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit import models, prompts
from factkit.assets import write_atomically
from factkit.datasets.examples import Example
from factkit.runs import progress_bar
from factkit.verify.outcome import Outcome

if TYPE_CHECKING:
    from factkit.truthrl.arms import QuestionParams
    from factkit.verify.verifier import Verifier

ABSTENTION = "I don't know"


@dataclass(frozen=True)
class Probe:
    """What k samples of the policy say of one question; None: the judge failed."""

    id: str
    samples: list[str]
    outcomes: list[Outcome | None]

    @property
    def share(self) -> float:
        """The share of correct samples among those judged, in [0, 1] (0 of none)."""
        judged = [o for o in self.outcomes if o is not None]
        return judged.count(Outcome.CORRECT) / max(len(judged), 1)

    def of(self, kind: Outcome) -> list[str]:
        """The samples with this outcome, in the order they were drawn."""
        pairs = zip(self.samples, self.outcomes, strict=True)
        return [sample for sample, outcome in pairs if outcome is kind]

    def most_frequent(self, kind: Outcome) -> str | None:
        """The commonest sample with this outcome (the first on a tie), if any."""
        commonest = Counter(self.of(kind)).most_common(1)
        return commonest[0][0] if commonest else None


def probe(
    model,
    tokenizer,
    examples: Sequence[Example],
    template: str,
    sampling: models.Sampling,
    k: int,
    path: Path,
    verify: "Verifier",
    chat: bool = False,
    seed: int = 0,
    part: int = 32,
) -> list[Probe]:
    """k samples a question, verified; resumable from `path` in parts of 32 questions.

    Each part is seeded by its position, so that a probing killed and gone on with
    equals one that ran through. vLLM takes all that is left as one part.
    """
    asked = models.asked(examples, template, tokenizer, chat)

    def rows(start: int, end: int) -> list[Probe]:
        answers = models.sample(
            *(model, tokenizer, asked[start:end], sampling),
            n=k,
            seed=seed * 1_000_003 + start,
        )
        return verified(examples[start:end], answers, verify)

    part = part if sampling.vllm is None else len(examples)
    return in_parts(len(examples), part, path, read_probes, rows, "question")


def verified(
    examples: Sequence[Example], answers: Sequence[list[str]], verify: "Verifier"
) -> list[Probe]:
    """Each question's samples with their outcomes, verified in one batch."""
    rows = [
        (sample, example.answers, example.question)
        for example, samples in zip(examples, answers, strict=True)
        for sample in samples
    ]
    outcomes = iter(verify(*map(list, zip(*rows, strict=True))))
    return [
        Probe(example.id, samples, [next(outcomes) for _ in samples])
        for example, samples in zip(examples, answers, strict=True)
    ]


def in_parts(
    n: int,
    part: int,
    path: Path,
    read: Callable[[Path], list],
    rows: Callable[[int, int], list],
    unit: str,
) -> list:
    """n rows made and appended to a file part by part; goes on where it was killed.

    read: the dataclasses kept in the file. rows: those from a start to an end. Of a
    part that was cut off, nothing is kept.
    """
    done = read(path) if path.exists() else []
    if len(done) < n:
        done = done[: len(done) // part * part]
        write_atomically(path, "".join(map(_line, done)))
    bar = progress_bar(n, path.stem, unit=unit)
    bar.update(len(done))
    for start in range(len(done), n, part):
        made = rows(start, start + part)
        with path.open("a", encoding="utf-8") as f:
            f.writelines(map(_line, made))
        done += made
        bar.update(len(made))
    bar.close()
    return done


def _line(row: Any) -> str:
    return json.dumps(asdict(row), ensure_ascii=False) + "\n"


def read_lines(path: Path) -> list[dict]:
    """The rows kept in a file, without a last line that was cut off."""
    raw = path.read_bytes()  # splitlines() of a str would split responses, too
    return [json.loads(line) for line in raw[: raw.rfind(b"\n") + 1].splitlines()]


def read_probes(path: Path) -> list[Probe]:
    """The probes kept in a file, without a last line that was cut off."""
    kinds = {None: None} | {o.value: o for o in Outcome}
    return [
        Probe(row["id"], row["samples"], [kinds[o] for o in row["outcomes"]])
        for row in read_lines(path)
    ]


def out_of_knowledge(probe: Probe, known_share: float) -> bool:
    """Whether a question lies outside the policy's knowledge (TruthRL §3.1).

    The paper: no sample of 256 is correct (`known_share` 0). A threshold on the share
    keeps luck from passing for knowledge where few answers are possible. If the judge
    failed on every sample, nothing says so: False.
    """
    if not any(probe.outcomes):
        return False
    return probe.share == 0 or probe.share < known_share


def response(
    answer: str, example: Example, p: "QuestionParams", reasoning: str = ""
) -> str:
    """An answer in the format that `p.answer_format` asks for.

    boxed: with the reasoning of the example, if it has any, where none is given.
    """
    if p.answer_format == "plain":
        return answer
    return prompts.reasoned(reasoning or example.meta.get("reasoning", ""), answer)


def abstention(example: Example, p: "QuestionParams") -> str:
    """ "I don't know" in the format that `p.answer_format` asks for."""
    return response(ABSTENTION, example, p, f"{ABSTENTION}.")


def sft_rows(examples: Sequence[Example], p: "QuestionParams") -> list[dict]:
    """SFT on the reference answers: rows of prompt and completion (TruthRL §2.2)."""
    return [row(e, response(e.answers[0], e, p), p) for e in examples]


def r_tuning_rows(
    examples: Sequence[Example], probes: Sequence[Probe], p: "QuestionParams"
) -> list[dict]:
    """R-Tuning: "I don't know" where out of knowledge, else the reference (§3.1)."""
    by_id = {probe.id: probe for probe in probes}
    rows = []
    for example in examples:
        target = response(example.answers[0], example, p)
        if out_of_knowledge(by_id[example.id], p.known_share):
            target = abstention(example, p)
        rows.append(row(example, target, p))
    return rows


def rft_rows(
    examples: Sequence[Example],
    probes: Sequence[Probe],
    traces: Sequence[Probe],
    p: "QuestionParams",
) -> list[dict]:
    """RFT: a trace of the policy's own that abstains where out of knowledge, else one
    that is correct (§3.1).

    traces: samples drawn for this (64 at temperature 0.6 in Appendix C). The commonest
    trace of its kind is taken; a question without one has no row.
    """
    by_id = {probe.id: probe for probe in probes}
    rows = []
    for example, drawn in zip(examples, traces, strict=True):
        unknown = out_of_knowledge(by_id[example.id], p.known_share)
        kind = Outcome.ABSTAIN if unknown else Outcome.CORRECT
        trace = drawn.most_frequent(kind)
        if trace:
            rows.append(row(example, trace, p))
    return rows


def row(example: Example, target: str, p: "QuestionParams") -> dict:
    """A row for SFT: prompt and completion, as text or as the turns of a chat."""
    return {"prompt": turn(example, p), "completion": reply(target, p)}


def pair(example: Example, chosen: str, rejected: str, p: "QuestionParams") -> dict:
    """A row for DPO: a prompt, and which of two responses is the better one."""
    return {
        "prompt": turn(example, p),
        "chosen": reply(chosen, p),
        "rejected": reply(rejected, p),
    }


def turn(example: Example, p: "QuestionParams") -> str | list[dict[str, str]]:
    """The prompt of an example under `p.prompt_template`, for TRL's trainers."""
    text = prompts.ask(prompts.template(p.prompt_template), example)
    return [{"role": "user", "content": text}] if p.chat else text


def reply(target: str, p: "QuestionParams") -> str | list[dict[str, str]]:
    """A response for TRL's trainers; plain text starts with the space before it."""
    return [{"role": "assistant", "content": target}] if p.chat else f" {target}"


def prompt_rows(
    examples: Sequence[Example], probes: Sequence[Probe], p: "QuestionParams"
) -> list[dict]:
    """Rows for GRPO: the prompt and what the reward needs to judge a completion."""
    by_id = {probe.id: probe for probe in probes}
    return [
        {
            "prompt": turn(e, p),
            "id": e.id,
            "answers": e.answers,
            "question": e.question,
            "out_of_knowledge": out_of_knowledge(by_id[e.id], p.known_share),
        }
        for e in examples
    ]
