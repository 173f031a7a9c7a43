"""Which meta-reasoning strategies a reasoning uses (Learning to Reason §5.2, Fig 4,
App. H): told by a language model, or by rules without any.

The two name strategies alike where they mean the same, but count differently: a model
reads what the reasoning does, a rule how it is worded. Compare arms by one of them.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import TYPE_CHECKING

from pydantic import field_validator

from factkit.verify import judge
from factkit.verify.judge import Form, read, whole
from factkit.verify.response import sentences

if TYPE_CHECKING:
    from factkit.llm import LLM, Reply
    from factkit.verify.engine import Reader


# A language model


class Step(Form):
    """What a reasoning did, and by which strategies."""

    step: str
    strategies: list[str]

    @field_validator("strategies")
    @classmethod
    def _normalised(cls, names: list[str]) -> list[str]:
        plain = [normalised(name) for name in names]
        if not all(plain):
            raise ValueError("a strategy has no name")
        return plain


class Steps(Form):
    """The form of an annotator's reply. helpfulness: the paper's annotator gave 9
    nearly always (App. H)."""

    steps: list[Step]
    helpfulness: whole(range(11))


def normalised(name: str) -> str:
    """A strategy's name in lower case, its words joined by "_": Self-verification,
    "self verification" and self_verification are one. "" if it has no word."""
    return "_".join(re.findall(r"[^\W_]+", name.lower()))


def annotate(
    llm: "LLM", rows: Sequence[tuple[str, str, str]]
) -> list[list[str] | None]:
    """The strategies of each reasoning by an annotator, each once, in the order of
    first use; None where it failed. One request a row, all in one batch.

    rows: (question, reasoning, answer). The paper shows Llama-3.1-70B-Instruct question
    and response (Fig 10). Nothing is cut.
    """
    names = ("question", "reasoning", "answer")
    fields = [dict(zip(names, row, strict=True)) for row in rows]
    template, tokens = "annotate_strategies", 1536  # some ten steps
    replies = judge.ask(llm, template, fields, Steps, tokens, "annotating")
    return list(map(annotated, replies))


def annotated(reply: "Reply") -> list[str] | None:
    """The strategies in the annotation that a reply ends with, None without one."""
    annotation = read(reply, Steps)
    if annotation is None:
        return None
    used = [name for step in annotation.steps for name in step.strategies]
    return list(dict.fromkeys(used))


# Rules, for texts with straight apostrophes. Where no judge is asked, policies reason
# in rows of plain statements, which hardly show another strategy than doubt.

WILL = (
    r"\b(?:let me|let's|i'll|i will|i should|i need to)(?: (?!not\b|never\b)\w+){0,3}?"
)
RULES = {
    "recall": rf"{WILL} (?:recall|remember)\b|\bi (?:recall|remember)\b",
    "self_verification": rf"{WILL} (?:check|verify|confirm|make sure)\b"
    r"|\bdouble[- ]?check|\bis (?:that|this|it) (?:right|correct)\?",
    "doubt": r"\b(?:perhaps|maybe|probably|possibly|presumably)\b"
    r"|\b(?:might|unsure|uncertain)\b"
    r"|\b(?:not|isn't) (?:\w+ ){0,2}?(?:sure|certain)\b"
    r"|\bi (?:think|believe|guess)\b"
    r"|\bi (?:can't|cannot|don't|do not) (?:recall|remember|know)\b",
    "backtracking": r"\bbut wait,|\bon second thoughts?\b"
    rf"|{WILL} (?:reconsider|rethink)\b",
    "leaving_out": r"\b(?:leave|leaving) (?:\w+ ){0,3}?out\b"
    r"|\bi (?:won't|will not|shouldn't) (?:mention|include|name|state)\b",
}
HEDGES = frozenset("perhaps maybe probably possibly presumably".split())


def words(sentence: str) -> Hashable:
    """A sentence as its words in order, without hedges, letter case and punctuation."""
    found = re.findall(r"\w+", sentence.lower())
    return tuple(word for word in found if word not in HEDGES)


def stated(reader: "Reader", about: str) -> Callable[[str], Hashable]:
    """The key of `tag` where the facts are known: those that a sentence states of the
    subject `about`, in whichever wording, hedged or not; of a sentence that states
    none, its words."""

    def key(sentence: str) -> Hashable:
        parsed = map(reader.parse, reader.statements(sentence, about))
        return tuple(fact for fact, _ in filter(None, parsed)) or words(sentence)

    return key


def tag(
    reasoning: str, answer: str, key: Callable[[str], Hashable] = words
) -> list[str]:
    """The strategies of RULES that the reasoning is worded by, and those that its
    sentences and the answer's show, each once, in that order.

    left_out: the answer lacks a sentence of the reasoning; added: the reasoning lacks a
    sentence of the answer; repeated: one of the two has a sentence twice. key: what
    makes two sentences one, by default their words without hedges.

    What this can't see: a strategy without its words (a silent correction, doubt by
    tone), whether words do what they say ("let me check" checks nothing by itself),
    languages other than English, and sense: two wordings are two sentences unless `key`
    knows better, so that free prose is nearly always left_out and added.
    """
    plain, flags = reasoning.replace("’", "'"), re.IGNORECASE
    worded = [name for name, rule in RULES.items() if re.search(rule, plain, flags)]
    thought, told = ([key(s) for s in sentences(text)] for text in (reasoning, answer))
    shown = {
        "left_out": not set(thought) <= set(told),
        "added": not set(told) <= set(thought),
        "repeated": any(len(set(keys)) < len(keys) for keys in (thought, told)),
    }
    return worded + [name for name, is_shown in shown.items() if is_shown]


def shares(tags: Sequence[Collection[str] | None]) -> dict[str, float]:
    """The share of responses with each strategy, the most frequent first, equals by
    name (Fig 4).

    tags: of each response, from `tag` or `annotate`; None, where the annotator failed,
    is left out.
    """
    known = [set(names) for names in tags if names is not None]
    counted = Counter(name for names in known for name in names)
    ordered = sorted(counted, key=lambda name: (-counted[name], name))
    return {name: counted[name] / len(known) for name in ordered}
