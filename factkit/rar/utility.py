"""Utility without a judge, for the small profiles, and when its loss stops a training.

Two measures that a small model moves: perplexity on held-out text, and prompts whose
form a program can check, in the spirit of IFEval. Binary RAR measures ten benchmarks
(§4.1); `factkit.rar.suites` runs public ones by lm-eval, where a profile names
them.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from factkit.verify.response import answers

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MOST_DROP = 0.10  # of any benchmark, relative to before training (App. C)
LOWER_IS_BETTER = frozenset({"perplexity"})
ROUNDING = 1e-9  # a drop of exactly 10 % is not more than 10 %

Check = Callable[[str], bool]


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


def matches(pattern: str) -> Check:
    """All of it, stripped, is matched by a regular expression."""
    return lambda said: re.fullmatch(pattern, said.strip(), re.DOTALL) is not None


def counts(pattern: str, n: int, more: bool = False) -> Check:
    """A regular expression occurs n times, or also more often; ^ and $ are a line's."""
    compiled = re.compile(pattern, re.MULTILINE)

    def check(said: str) -> bool:
        found = len(compiled.findall(said.strip()))
        return found == n or more and found > n

    return check


def words(least: int, most: int | None = None) -> str:
    """The pattern of so many words, both ends included."""
    return rf"\S+(?:\s+\S+){{{least - 1},{'' if most is None else most - 1}}}"


def sentences(n: int) -> Check:
    """Exactly n sentences: ends . ! ? before a space or the end."""
    end = r"[.!?]+[\"')\]]*(?=\s|$)"
    return matches(rf"(?:(?:(?!{end}).)*{end}){{{n}}}")


def items(n: int, mark: str = r"[-*•]|\d+[.)]") -> Check:
    """Exactly n list items: lines that begin with a mark (a regular expression)."""
    return counts(rf"^\s*(?:{mark})\s+\S", n)


def is_json(said: str) -> bool:
    """Is a JSON object, in a fenced block or not."""
    inside = re.fullmatch(r"```(?:json)?\s*(.*?)\s*```", said.strip(), re.DOTALL)
    try:
        return isinstance(json.loads(inside[1] if inside else said), dict)
    except ValueError:
        return False


# fmt: off
_FORMS: tuple[tuple[str, Check], ...] = (
    ("Answer in one word: what colour is the sky on a clear day?",
     matches(words(1, 1))),
    ("Answer in one word: which animal says meow?", matches(words(1, 1))),
    ("Answer with yes or no only: is water wet?", matches(r"(?i)(yes|no)\.?")),
    ("Answer with a number only: how many days are in a week?",
     matches(r"\d+\.?")),
    ("Reply with the word hello and nothing else.", matches(r"(?i)hello[.!]?")),
    ("Describe a cat in at most ten words.", matches(words(1, 10))),
    ("What is bread? Use no more than fifteen words.", matches(words(1, 15))),
    ("Write about the sea in at least fifty words.", matches(words(50))),
    ("Describe your favourite season in 20 to 40 words.", matches(words(20, 40))),
    ("Write exactly one sentence about rain.", sentences(1)),
    ("Write exactly two sentences about dogs.", sentences(2)),
    ("Explain what a library is in exactly two sentences.", sentences(2)),
    ("Write exactly three sentences about winter.", sentences(3)),
    ("List exactly three fruits as bullet points.", items(3)),
    ("Name four kinds of transport, as a numbered list.", items(4, r"\d+[.)]")),
    ("List exactly five animals, one a line, each after a hyphen.",
     items(5, "-")),
    ("Give me two tips for better sleep as bullet points.", items(2)),
    ("Write a poem about the moon with exactly four lines.", counts(r"^.*\S", 4)),
    ("Name three colours, one a line, and write nothing else.",
     counts(r"^.*\S", 3)),
    ("Write two paragraphs about trees, with an empty line between them.",
     counts(r"\n\s*\n", 1)),
    ("Write in all capital letters: describe a lion in one sentence.",
     str.isupper),
    ("Answer in capital letters only: what is snow?", str.isupper),
    ("Write in lower case letters only: what is the sun?", str.islower),
    ("Without any capital letter, say what you can do with an apple.",
     str.islower),
    ("Begin your answer with the word Certainly. What is a clock?",
     matches("Certainly.*")),
    ("Start your reply with \"In short\" and explain what a bicycle is.",
     matches("In short.*")),
    ("Tell me about horses. End with the words \"That is all.\"",
     matches(r".*That is all\.")),
    ("Explain what tea is. Finish your answer with a question mark.",
     matches(r".*\?")),
    ("Say something nice and end with three exclamation marks.",
     matches(".*!!!")),
    ("Put your whole answer in double quotation marks: what is honey?",
     matches(r"\"[^\"]+\"")),
    ("Write a sentence about a garden that uses the word \"lantern\".",
     matches(r"(?i).*\blantern\b.*")),
    ("Write about a market. Use the words \"copper\" and \"umbrella\".",
     matches(r"(?i)(?=.*\bcopper\b).*\bumbrella\b.*")),
    ("Write about the wind and use the word \"quiet\" at least three times.",
     counts(r"(?i)\bquiet\b", 3, more=True)),
    ("Describe a house without using a comma.", matches("[^,]*")),
    ("Tell me about fire. Do not use the word \"hot\".",
     matches(rf"(?i)(?!.*\bhot\b){words(5)}")),
    ("Describe a river without using the letter z.",
     matches(rf"(?i)(?!.*z){words(5)}")),
    ("Explain what a map is. Your answer must have a title in <<double angle "
     "brackets>>.", matches(".*<<[^<>]+>>.*")),
    ("Give the capital of France as JSON with the key \"capital\".", is_json),
    ("Write today's greeting with a postscript that begins with P.S.",
     matches(r".*P\. ?S\..*")),
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
