"""Utility without a judge, for the small profiles, and when its loss stops a training.

Three measures that a small model moves: best-guess accuracy (short questions,
abstention counts as wrong), perplexity on held-out text, and prompts whose form a
program can check, in the spirit of IFEval. Binary RAR measures ten benchmarks (§4.1);
`factkit.evaluate.suites` runs public ones by lm-eval, where a profile names them.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from factkit.verify.outcome import Outcome
from factkit.verify.response import answers

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MOST_DROP = 0.10  # of any benchmark, relative to before training (App. C)
LOWER_IS_BETTER = frozenset({"perplexity"})
ROUNDING = 1e-9  # a drop of exactly 10 % is not more than 10 %

Check = Callable[[str], bool]


# ---- best guess


def best_guess_accuracy(outcomes: Sequence[Outcome | None]) -> float:
    """The share of questions answered rightly where abstaining is not allowed (§4.1).

    An abstention counts as wrong; a None (the judge failed) is left out, to be reported
    by `short_form.judge_failures`. Raises ValueError without outcomes.
    """
    judged = [o for o in outcomes if o is not None]
    if not judged:
        raise ValueError("no outcomes to score")
    return judged.count(Outcome.CORRECT) / len(judged)


# ---- perplexity


def perplexity(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    texts: Sequence[str],
    batch_size: int = 16,
    max_tokens: int = 512,
) -> float:
    """exp of the mean negative log-likelihood a token, over all texts' tokens.

    Each text is read alone, its first `max_tokens` tokens; a token counts if another
    stands before it. Raises ValueError if no text has two tokens.
    """
    import torch

    ids = tokenizer(list(texts), truncation=True, max_length=max_tokens)["input_ids"]
    ids = sorted((row for row in ids if len(row) > 1), key=len)
    if not ids:
        raise ValueError("no text of at least two tokens to measure perplexity on")
    total, tokens = 0.0, 0
    for start in range(0, len(ids), batch_size):
        batch = ids[start : start + batch_size]
        longest = len(batch[-1])
        # padded on the right: under causal attention no token sees the padding
        padded = torch.tensor([row + [row[-1]] * (longest - len(row)) for row in batch])
        lengths = torch.tensor([len(row) for row in batch])
        padded, lengths = padded.to(model.device), lengths.to(model.device)
        with torch.inference_mode():
            logits = model(input_ids=padded).logits[:, :-1].float()  # (B, T-1, V)
        logp = logits.log_softmax(-1).gather(-1, padded[:, 1:, None])[..., 0]
        counted = torch.arange(1, longest, device=model.device) < lengths[:, None]
        total -= logp[counted].double().sum().item()
        tokens += int(counted.sum())
    return math.exp(total / tokens)


# ---- form


@dataclass(frozen=True)
class FormPrompt:
    """A prompt that asks for a form, and the check of that form."""

    id: str
    prompt: str
    check: Check


def keeps_form(prompts: Sequence[FormPrompt], responses: Sequence[str]) -> list[bool]:
    """Whether each response has the form asked for, reasoning left out; an empty one
    has none."""
    rows = zip(prompts, answers(responses), strict=True)
    return [bool(said) and form.check(said) for form, said in rows]


def words_between(least: int, most: int) -> Check:
    """As many words, both ends included."""
    return lambda said: least <= len(said.split()) <= most


def sentences(n: int) -> Check:
    """Exactly n sentences: ends . ! ? before a space or the end."""
    end = re.compile(r"[.!?]+[\"')\]]*(?=\s|$)")
    return lambda said: (
        len(end.split(said)) == n + 1 and not end.split(said)[-1].strip()
    )


def lines(n: int) -> Check:
    """Exactly n lines that are not empty."""
    return lambda said: sum(bool(line.strip()) for line in said.splitlines()) == n


def items(n: int, mark: str = r"[-*•]|\d+[.)]") -> Check:
    """Exactly n list items: lines that begin with a mark (a regular expression)."""
    item = re.compile(rf"^\s*(?:{mark})\s+\S", re.MULTILINE)
    return lambda said: len(item.findall(said)) == n


def paragraphs(n: int) -> Check:
    """Exactly n paragraphs, with an empty line between them."""
    return lambda said: len(re.split(r"\n\s*\n", said.strip())) == n


def starts_with(text: str) -> Check:
    """Begins with the text, in its letter case."""
    return lambda said: said.strip().startswith(text)


def ends_with(text: str) -> Check:
    """Ends with the text, in its letter case."""
    return lambda said: said.strip().endswith(text)


def uses(word: str, times: int = 1) -> Check:
    """Holds a whole word at least so many times, in any letter case."""
    whole = re.compile(rf"\b{re.escape(word)}\b", re.IGNORECASE)
    return lambda said: len(whole.findall(said)) >= times


def avoids(text: str) -> Check:
    """Does not hold the text, in any letter case."""
    return lambda said: text.casefold() not in said.casefold()


def matches(pattern: str) -> Check:
    """All of it, stripped, is matched by a regular expression."""
    return lambda said: re.fullmatch(pattern, said.strip(), re.DOTALL) is not None


def upper_case(said: str) -> bool:
    """Has letters, all of them capitals."""
    return said.isupper()


def lower_case(said: str) -> bool:
    """Has letters, none of them a capital."""
    return said.islower()


def is_json(said: str) -> bool:
    """Is a JSON object, in a fenced block or not."""
    import json

    inside = re.fullmatch(r"```(?:json)?\s*(.*?)\s*```", said.strip(), re.DOTALL)
    try:
        return isinstance(json.loads(inside[1] if inside else said), dict)
    except ValueError:
        return False


def every(*checks: Check) -> Check:
    """All of the checks."""
    return lambda said: all(check(said) for check in checks)


# fmt: off
_FORMS: tuple[tuple[str, Check], ...] = (
    ("Answer in one word: what colour is the sky on a clear day?",
     words_between(1, 1)),
    ("Answer in one word: which animal says meow?", words_between(1, 1)),
    ("Answer with yes or no only: is water wet?", matches(r"(?i)(yes|no)\.?")),
    ("Answer with a number only: how many days are in a week?",
     matches(r"\d+\.?")),
    ("Reply with the word hello and nothing else.", matches(r"(?i)hello[.!]?")),
    ("Describe a cat in at most ten words.", words_between(1, 10)),
    ("What is bread? Use no more than fifteen words.", words_between(1, 15)),
    ("Write about the sea in at least fifty words.", words_between(50, 10_000)),
    ("Describe your favourite season in 20 to 40 words.", words_between(20, 40)),
    ("Write exactly one sentence about rain.", sentences(1)),
    ("Write exactly two sentences about dogs.", sentences(2)),
    ("Explain what a library is in exactly two sentences.", sentences(2)),
    ("Write exactly three sentences about winter.", sentences(3)),
    ("List exactly three fruits as bullet points.", items(3)),
    ("Name four kinds of transport, as a numbered list.", items(4, r"\d+[.)]")),
    ("List exactly five animals, one a line, each after a hyphen.",
     items(5, "-")),
    ("Give me two tips for better sleep as bullet points.", items(2)),
    ("Write a poem about the moon with exactly four lines.", lines(4)),
    ("Name three colours, one a line, and write nothing else.", lines(3)),
    ("Write two paragraphs about trees, with an empty line between them.",
     paragraphs(2)),
    ("Write in all capital letters: describe a lion in one sentence.",
     upper_case),
    ("Answer in capital letters only: what is snow?", upper_case),
    ("Write in lower case letters only: what is the sun?", lower_case),
    ("Without any capital letter, say what you can do with an apple.",
     lower_case),
    ("Begin your answer with the word Certainly. What is a clock?",
     starts_with("Certainly")),
    ("Start your reply with \"In short\" and explain what a bicycle is.",
     starts_with("In short")),
    ("Tell me about horses. End with the words \"That is all.\"",
     ends_with("That is all.")),
    ("Explain what tea is. Finish your answer with a question mark.",
     ends_with("?")),
    ("Say something nice and end with three exclamation marks.",
     ends_with("!!!")),
    ("Put your whole answer in double quotation marks: what is honey?",
     matches(r"\"[^\"]+\"")),
    ("Write a sentence about a garden that uses the word \"lantern\".",
     uses("lantern")),
    ("Write about a market. Use the words \"copper\" and \"umbrella\".",
     every(uses("copper"), uses("umbrella"))),
    ("Write about the wind and use the word \"quiet\" at least three times.",
     uses("quiet", 3)),
    ("Describe a house without using a comma.", avoids(",")),
    ("Tell me about fire. Do not use the word \"hot\".",
     every(words_between(5, 10_000), lambda said: not uses("hot")(said))),
    ("Describe a river without using the letter z.",
     every(words_between(5, 10_000), avoids("z"))),
    ("Explain what a map is. Your answer must have a title in <<double angle "
     "brackets>>.", lambda said: re.search(r"<<[^<>]+>>", said) is not None),
    ("Give the capital of France as JSON with the key \"capital\".", is_json),
    ("Write today's greeting with a postscript that begins with P.S.",
     lambda said: re.search(r"P\. ?S\.", said) is not None),
    ("Name a vegetable and a spice, separated by a semicolon, and nothing else.",
     matches(r"[^;\n]+;[^;\n]+")),
    ("Write three words, each beginning with the letter b.",
     matches(r"(?i)b\w*\W+b\w*\W+b\w*\W*")),
    ("Count from one to five in digits, separated by spaces, and nothing else.",
     matches(r"1 2 3 4 5\.?")),
)
# fmt: on
FORM_PROMPTS = tuple(
    FormPrompt(f"form-{i:02}", prompt, check)
    for i, (prompt, check) in enumerate(_FORMS, start=1)
)


# ---- loss of utility


def utility_drop(
    before: Mapping[str, float], after: Mapping[str, float]
) -> dict[str, float]:
    """How much each benchmark got worse, relative to `before`; negative if better.

    (before − after) / before, and (after − before) / before for those of
    `LOWER_IS_BETTER`. A benchmark that was at 0 before has nothing to lose: 0.
    Raises ValueError on a benchmark that `after` lacks, and on a value that is not
    finite or below 0.
    """
    missing = sorted(before.keys() - after.keys())
    if missing:
        raise ValueError(
            f"{', '.join(missing)}: measured before training but not after"
        )
    for name in before:
        for value in (before[name], after[name]):
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name}={value}; it must be finite and at least 0")
    drops = {}
    for name, old in before.items():
        worse = after[name] - old if name in LOWER_IS_BETTER else old - after[name]
        drops[name] = worse / old if old else 0.0
    return drops


def stops(
    before: Mapping[str, float], after: Mapping[str, float], most: float = MOST_DROP
) -> list[str]:
    """The benchmarks that fell by more than `most`; training stops if there are any.

    Binary RAR App. C; its 10 % are read as relative to the value before training.
    """
    drops = utility_drop(before, after)
    return [name for name, drop in drops.items() if drop > most + ROUNDING]
