"""Responses drawn from the policy and judged, and the rows that are learnt from them.

Short answers are verified (TruthRL §3.1), long ones scored (Binary RAR §4.3, Learning
to Reason §2.2 and §2.3).
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import TypeAdapter

from factkit import prompts
from factkit.data.examples import DataError, Example
from factkit.policy import models
from factkit.policy.vllm_engine import VllmEngine
from factkit.run.failures import writing
from factkit.run.files import write_atomically
from factkit.run.progress import progress_bar
from factkit.verify.outcome import Outcome
from factkit.verify.response import answers

if TYPE_CHECKING:
    from factkit.answers.verifier import Verifier
    from factkit.run.params.stages import PolicyParams, RequestParams

PART, VLLM_PART = 32, 16_384  # questions, and samples of vLLM's, between two writes
SEEDS = 1_000_003  # between the seeds of two runs, for their parts

# (ids, prompts, whole responses) → scores of their answers; None: the verifier failed
Score = Callable[[Sequence[str], Sequence[str], Sequence[str]], Sequence[float | None]]
Pair = tuple[str, str] | None  # the better and the worse response


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
        return next((text for text, _ in Counter(self.of(kind)).most_common(1)), None)


@dataclass(frozen=True)
class Drawn:
    """The responses to one request, and their scores (None: the verifier failed)."""

    id: str
    responses: list[str]
    scores: list[float | None]

    @property
    def ranked(self) -> list[tuple[float, str]]:
        """Scores with responses, the best first, on a tie the one drawn first."""
        pairs = zip(self.scores, self.responses, strict=True)
        known = [(score, text) for score, text in pairs if score is not None]
        return sorted(known, key=lambda pair: -pair[0])


Row = TypeVar("Row", Probe, Drawn)


# ---- drawing


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
) -> list[Probe]:
    """k samples a question, verified; resumable from `path` by parts."""
    asked = models.asked(examples, template, tokenizer, chat)
    judge = partial(verified, verify=verify)
    how = model, tokenizer, sampling, k, seed
    return _in_parts(Probe, examples, asked, how, path, judge)


def verified(
    examples: Sequence[Example], samples: Sequence[list[str]], verify: "Verifier"
) -> list[Probe]:
    """Each question's samples with their outcomes, verified in one batch."""
    columns = lambda e, text: (text, e.answers, e.question)  # noqa: E731
    return _judged(Probe, examples, samples, verify, columns)


def draw(
    model,
    tokenizer,
    examples: Sequence[Example],
    p: "RequestParams",
    score: Score,
    path: Path,
    template: str = "",
) -> list[Drawn]:
    """`p.drawn_responses` a request, scored; resumable from `path` by parts.

    template: how requests are put, by default `p.prompt_template`.
    """
    sampling = models.sampling_of(p, p.drawn_temperature)
    asked = models.asked(examples, template or p.prompt_template, tokenizer, p.chat)
    columns = lambda e, text: (e.id, e.question, text)  # noqa: E731
    judge = partial(_judged, Drawn, judge=score, columns=columns)
    how = model, tokenizer, sampling, p.drawn_responses, p.seed
    return _in_parts(Drawn, examples, asked, how, path, judge)


def _judged(
    kind: type[Row],
    examples: Sequence[Example],
    texts: Sequence[list[str]],
    judge: Callable[..., Sequence],
    columns: Callable[[Example, str], tuple],
) -> list[Row]:
    """A `kind` an example: its texts with what is said of them, all in one batch."""
    pairs = list(zip(examples, texts, strict=True))
    rows = [columns(example, text) for example, own in pairs for text in own]
    verdicts = iter(judge(*map(list, zip(*rows, strict=True))))
    return [kind(e.id, own, [next(verdicts) for _ in own]) for e, own in pairs]


# ---- files


def _in_parts(
    kind: type[Row],
    examples: Sequence[Example],
    asked: Sequence[str],
    how: tuple,
    path: Path,
    judge: Callable[[Sequence[Example], list[list[str]]], list[Row]],
) -> list[Row]:
    """A row of a kind an example, a part of them at a time, appended to a file.

    how: model, tokenizer, sampling, samples a prompt, seed. It goes on where it was
    killed; of a part that was cut off, nothing is kept. Each part is seeded by its
    position, so that what was killed equals what ran through. Where the judge failed,
    what was drawn is kept and judged again.
    """
    model, tokenizer, sampling, k, seed = how
    size = max(VLLM_PART // k, 1) if isinstance(model, VllmEngine) else PART
    n, done = len(examples), _read(path, kind) if path.exists() else []
    if len(done) < n:
        done = done[: len(done) // size * size]
    kept = enumerate(vars(row).values() for row in done)
    failed = {i: texts for i, (_, texts, verdicts) in kept if None in verdicts}
    if failed:
        again = judge([examples[i] for i in failed], list(failed.values()))
        again = dict(zip(failed, again, strict=True))
        done = [again.get(i, row) for i, row in enumerate(done)]
    if len(done) < n or failed:
        write_atomically(path, "".join(map(_line, done)))
    with progress_bar(n, path.stem, "prompt", done=len(done)) as bar:
        for start in range(len(done), n, size):
            part, own = slice(start, start + size), SEEDS * seed + start
            prompts = model, tokenizer, asked[part], sampling
            made = judge(examples[part], models.sample(*prompts, n=k, seed=own))
            with writing(path), path.open("a", encoding="utf-8") as file:
                file.writelines(map(_line, made))
            done += made
            bar.update(len(made))
    return done


def _line(row: Probe | Drawn) -> str:
    return json.dumps(asdict(row), ensure_ascii=False) + "\n"


def _read(path: Path, kind: type[Row]) -> list[Row]:
    """The rows kept in a file, without a last line that was cut off."""
    parse, raw = TypeAdapter(kind).validate_json, path.read_bytes()
    # lines of the bytes: splitlines() of a str would split responses, too
    return [parse(line) for line in raw[: raw.rfind(b"\n") + 1].splitlines()]


def read_probes(path: Path) -> list[Probe]:
    """The probes kept in a file."""
    return _read(path, Probe)


def read_drawn(path: Path) -> list[Drawn]:
    """The drawn responses kept in a file."""
    return _read(path, Drawn)


# ---- rows for TRL's trainers


def turn(example: Example, p: "PolicyParams") -> str | list[dict[str, str]]:
    """The prompt of an example under `p.prompt_template`, as text or a chat's turn."""
    text = prompts.ask(prompts.template(p.prompt_template), example)
    return [{"role": "user", "content": text}] if p.chat else text


def asked_rows(examples: Sequence[Example], p: "PolicyParams") -> list[dict]:
    """Rows for RL on requests: the prompt, and what identifies it to the reward."""
    return [
        {"prompt": turn(e, p), "id": e.id, "question": e.question} for e in examples
    ]


def _reply(target: str, p: "PolicyParams") -> str | list[dict[str, str]]:
    """A response; plain text starts with the space before it."""
    return [{"role": "assistant", "content": target}] if p.chat else f" {target}"


def row(example: Example, target: str, p: "PolicyParams") -> dict:
    """A row for SFT: prompt and completion."""
    return {"prompt": turn(example, p), "completion": _reply(target, p)}


def pair(example: Example, chosen: str, rejected: str, p: "PolicyParams") -> dict:
    """A row for DPO: a prompt, and which of two responses is the better one."""
    replies = {"chosen": _reply(chosen, p), "rejected": _reply(rejected, p)}
    return {"prompt": turn(example, p), **replies}


def required(rows: list[dict], p: "PolicyParams") -> list[dict]:
    """The rows; raises DataError if drawing left none for the arm."""
    if not rows:
        raise DataError(
            f"arm={p.arm}: no prompt has the responses that a row needs; ask for more "
            "prompts, or draw more responses of each"
        )
    return rows


def best_rows(
    examples: Sequence[Example], drawn: Sequence[Drawn], p: "RequestParams"
) -> list[dict]:
    """SFT's rows: each request with its most factual response.

    A request none of whose responses has a score above 0 gives none (ours: its best
    response would teach an error, or to say nothing).
    """
    return [
        row(example, best.ranked[0][1], p)
        for example, best in zip(examples, drawn, strict=True)
        if best.ranked and best.ranked[0][0] > 0
    ]


def gap_pairs(
    examples: Sequence[Example],
    drawn: Sequence[Drawn],
    p: "RequestParams",
    length_difference: float = math.inf,
) -> list[dict]:
    """DPO's rows of each request's `widest_pair`; one without a pair gives none.

    With a length_difference Binary RAR's pairs (§4.3: 10 %). Without, FACT's, as RLFH
    compares with them (§4.1): the best and the worst, whatever their lengths.
    """
    return _rows(examples, [widest_pair(row, length_difference) for row in drawn], p)


def margin_pairs(
    examples: Sequence[Example], drawn: Sequence[Drawn], p: "RequestParams"
) -> list[dict]:
    """Learning to Reason's pairs for DPO: the `margin_pair` of each request that has
    one, by τ_m = `p.least_margin` and τ_l = `p.length_difference`."""
    limits = p.least_margin, p.length_difference
    return _rows(examples, [margin_pair(row, *limits) for row in drawn], p)


def _rows(
    examples: Sequence[Example], pairs: Sequence[Pair], p: "RequestParams"
) -> list[dict]:
    own = zip(examples, pairs, strict=True)
    return [pair(example, *texts, p) for example, texts in own if texts]


def widest_pair(drawn: Drawn, length_difference: float) -> Pair:
    """(better, worse) of one request's responses: the two furthest apart in score whose
    lengths differ by less than `length_difference`; None if no two do.

    Length in words of the answers, without reasoning, the difference relative to the
    longer one. On a tie the pair whose better response is best.
    """

    def near(better: int, worse: int) -> bool:
        longer = max(better, worse, 1)
        return abs(better - worse) / longer < length_difference

    return _widest(drawn, near, 0.0)


def margin_pair(drawn: Drawn, least_margin: float, length_difference: float) -> Pair:
    """(better, worse) of one request's responses: the two with the widest margin in
    precision, if it is above the least and |1 − l_c / l_r| ≤ τ_l, the length difference
    (§2.3); None if no two are. l_c, l_r: lengths of the better and the worse one, and
    ties, as in `widest_pair`.
    """

    def near(better: int, worse: int) -> bool:
        # not by their quotient: |1 - 11/10| is above 0.1 in floats
        return worse > 0 and abs(worse - better) <= length_difference * worse

    return _widest(drawn, near, least_margin)


def _widest(
    drawn: Drawn, near: Callable[[int, int], bool], least_margin: float
) -> Pair:
    """The pair with the widest margin above the least, of those of near lengths."""
    texts = [text for _, text in drawn.ranked]
    lengths = [len(answer.split()) for answer in answers(texts)]
    sized = zip(drawn.ranked, lengths, strict=True)
    gaps = [
        (high - low, high, better, worse)
        for ((high, better), n), ((low, worse), m) in combinations(sized, 2)
        if high - low > least_margin
        and not math.isclose(high - low, least_margin)  # 0.8 - 0.7 is 0.1 and a bit
        and near(n, m)
    ]
    widest = max(gaps, key=lambda gap: gap[:2], default=None)
    return widest and widest[2:]
