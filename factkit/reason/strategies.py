"""Which meta-reasoning strategies a reasoning uses (Learning to Reason §5.2, Fig 4,
App. H): told by a language model, or by rules without any.

The two name strategies alike where they mean the same, but count differently: a model
reads what the reasoning does, a rule how it is worded. Compare arms by one of them.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import field_validator

from factkit.verify import judge
from factkit.verify.replies import Form, read, whole
from factkit.verify.sentences import sentences

if TYPE_CHECKING:
    from factkit.llm import LLM, Reply
    from factkit.verify.exact import Reader

HELPFULNESS = range(11)
REPLY_TOKENS = 1536  # of an annotation: some ten steps


# A language model


def normalised(name: str) -> str:
    """A strategy's name in lower case, its words joined by "_": Self-verification,
    "self verification" and self_verification are one. "" if it has no word."""
    return "_".join(re.findall(r"[^\W_]+", name.lower()))


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
        return list(dict.fromkeys(plain))


class Steps(Form):
    """The form of an annotator's reply."""

    steps: list[Step]
    helpfulness: whole(HELPFULNESS)


@dataclass(frozen=True)
class Annotation:
    """What an annotator says of one reasoning.

    steps: (what was done, its strategies by their normalised names), in order;
    helpfulness: 0–10. The paper's annotator gave 9 nearly always (App. H).
    """

    steps: tuple[tuple[str, tuple[str, ...]], ...]
    helpfulness: int

    @property
    def strategies(self) -> list[str]:
        """Each strategy once, in the order of first use."""
        return list(dict.fromkeys(name for _, names in self.steps for name in names))


def annotate(
    llm: "LLM",
    rows: Sequence[tuple[str, str, str]],
    template: str = "annotate_strategies",
) -> list[Annotation | None]:
    """The annotation of each reasoning, one request a row, all in one batch; None where
    it failed.

    rows: (question, reasoning, answer). The paper shows Llama-3.1-70B-Instruct question
    and response (Fig 10). Nothing is cut.
    """
    fields = [
        {"question": question, "reasoning": reasoning, "answer": answer}
        for question, reasoning, answer in rows
    ]
    replies = judge.ask(llm, template, fields, Steps, REPLY_TOKENS, "annotating")
    return list(map(annotation, replies))


def annotation(reply: "Reply") -> Annotation | None:
    """The annotation that a reply ends with, None without exactly one."""
    read_steps = read(reply, Steps)
    if read_steps is None:
        return None
    steps = tuple((s.step.strip(), tuple(s.strategies)) for s in read_steps.steps)
    return Annotation(steps, read_steps.helpfulness)


# Rules, for texts with straight apostrophes

START = r"(?:^[ \t]*|[.?!…][ \t]+)"  # of a sentence
WILL = (
    r"\b(?:let me|let's|let us|i'll|i will|i should|i must|i can|i need to|i have to"
    r"|i'm going to|i am going to|i want to)(?: (?!not\b|never\b)\w+){0,3}?"
)
WONT = (
    r"(?:\bi (?:won't|will not|shouldn't|should not|don't|do not)"
    r"|\b(?:i'll|let me|better|best|rather|and) not|\bwithout)"
)
SAY = r"(?:mention|includ|nam|stat|specify|list|claim|giv|add)(?:e|ing)?\b"


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE | re.MULTILINE)


RULES = {
    # "let me recall", "what I know about it", "I remember"
    "recall": _any(
        rf"{WILL} (?:recall|recollect|remember)(?:ing)?\b",
        r"\bi (?:recall|recollect|remember)\b",
        r"\bwhat i know\b|\bfrom memory\b",
    ),
    # "let me double-check", "I'll verify", "Checking the date", "is that right?"
    "self_verification": _any(
        rf"{WILL} (?:check|verify|confirm|make sure)(?:ing)?\b",
        rf"{START}(?:checking|verifying|confirming)\b",
        r"\b(?:double|cross)[- ]?check",
        r"\bis (?:that|this|it) (?:right|correct)\?|\bdid i get\b",
    ),
    # "perhaps", "I'm not sure", "it might be", "I think it was"
    "doubt": _any(
        r"\b(?:perhaps|maybe|probably|possibly|presumably|might|unsure|uncertain)\b",
        r"\b(?:not|isn't) (?:\w+ ){0,2}?(?:sure|certain)\b",
        r"\bi (?:think|believe|guess)\b",
        r"\bi (?:can't|cannot|don't|do not) (?:recall|remember|know)\b",
    ),
    # "Wait, was it …", "Actually, …", "No, that was …", "on second thought"
    "backtracking": _any(
        rf"(?:{START}|\b(?:but|oh|hmm),? )(?:wait(?=\s*[,.!?:;…—–-])|wait wait\b"
        r"|hold on\b|scratch that\b|actually\b|no(?=\s*[,—–]))",
        rf"{WILL} (?:reconsider|rethink|correct (?:that|this|myself))\b",
        r"\bon second thoughts?\b",
    ),
    # "leave it out", "I won't mention it", "better avoid the date"
    "leaving_out": _any(
        r"\b(?:leave|leaving) (?:\w+ ){0,3}?out\b",
        rf"{WONT} {SAY}",
        r"\b(?:i'll|should|must|better|need to|let me) (?:\w+ )?(?:omit|skip|avoid)\b",
        r"\b(?:errors?|mistakes?|details?) to avoid\b",
    ),
    # "I'll start with", "let me outline", "ready to draft"
    "planning": _any(
        rf"{WILL} (?:start|begin|outline|structure|organi[sz]e|plan|cover|draft)\b",
        r"\bmy plan\b|\bready to (?:draft|write|answer)\b",
    ),
    # "the user asks about", "the question is", "I'm asked"
    "restating_the_question": _any(
        r"\bthe user (?:is asking|asks|asked|wants|needs|would like)\b",
        r"\bthe (?:question|request|prompt) (?:is|asks|wants)\b",
        r"\bi(?:'m| am| was) (?:being )?asked\b",
    ),
    # "let me break it down", "one by one", "the question has two parts"
    "decomposition": _any(
        rf"{WILL} (?:break|split|divide)\b",
        r"\bone (?:by one|at a time)\b|\bstep by step\b",
        r"\b(?:question|request|answer) has (?:two|three|four|several) parts\b",
    ),
    # "to sum up", "in short", "putting it all together", "Overall, …"
    "summarising": _any(
        r"\b(?:in summary|in short|in conclusion|to conclude)\b",
        r"\bsum(?:ming)? (?:it |this )?up\b|\b(?:to|let me) summari[sz]e\b",
        r"\b(?:putting|pulling|bringing) (?:\w+ ){0,2}?together\b",
        rf"\bassembling (?:all|everything)\b|{START}overall,",
    ),
    # "is defined as", "known as", "refers to", "stands for"
    "definition": _any(
        r"\b(?:defined|known|referred to) as\b|\brefers to\b|\bstands for\b",
        rf"{WILL} define\b|\b(?:by|the) definition\b",
    ),
    # "compared with", "unlike", "whereas", "on the other hand"
    "comparison": _any(
        r"\bcompar(?:ed|ing) (?:to|with)\b|\bin comparison\b|\b(?:in|by) contrast\b",
        r"\b(?:unlike|whereas|on the other hand)\b",
        r"\b(?:differs? from|different from|similar to)\b",
    ),
    # "for example", "such as"
    "example": _any(
        r"\bfor (?:example|instance)\b|\bsuch as\b|\ban example\b|\be\.g\."
    ),
    # "First, …", "Next, …", "Lastly, …" at the start of a sentence
    "ordering": _any(
        rf"{START}(?:first|firstly|second|secondly|third|thirdly|next|then|last),",
        rf"{START}(?:first (?:of all|let|i)|finally|lastly)\b",
    ),
}
STRUCTURE = ("left_out", "added", "repeated")
HEDGES = frozenset("perhaps maybe probably possibly presumably".split())


def words(sentence: str) -> Hashable:
    """A sentence as its words in order, without hedges, letter case and punctuation."""
    every = re.findall(r"\w+", sentence.lower())
    return tuple(word for word in every if word not in HEDGES)


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
    """The strategies of RULES that the reasoning is worded by, and of STRUCTURE those
    that its sentences and the answer's show, each once, in that order.

    left_out: the answer lacks a sentence of the reasoning; added: the reasoning lacks a
    sentence of the answer; repeated: one of the two has a sentence twice. key: what
    makes two sentences one, by default their words without hedges.

    What this can't see: a strategy without its words (a silent correction, doubt by
    tone), whether words do what they say ("let me check" checks nothing by itself),
    whether they are the subject's ("unlike other bridges", "known as", "such as" and
    "perhaps" come in plain articles, too), languages other than English, and sense:
    two wordings are two sentences unless `key` knows better, so that free prose, which
    never repeats itself word for word, is nearly always left_out and added. Structure
    tells something where reasoning and answer are rows of plain statements.
    """
    plain = reasoning.replace("’", "'")
    worded = [name for name, rule in RULES.items() if rule.search(plain)]
    thought, told = ([key(s) for s in sentences(text)] for text in (reasoning, answer))
    shown = {
        "left_out": not set(thought) <= set(told),
        "added": not set(told) <= set(thought),
        "repeated": any(len(set(keys)) < len(keys) for keys in (thought, told)),
    }
    return worded + [name for name in STRUCTURE if shown[name]]


def shares(
    tags: Sequence[Collection[str] | None], top: int | None = None
) -> dict[str, float]:
    """The share of responses with each strategy, the most frequent first (Fig 4).

    tags: of each response, from `tag` or `Annotation.strategies`; None, where the
    annotator failed, is left out of the shares. top: how many, by default all. Equals
    go by name.
    """
    known = [set(of) for of in tags if of is not None]
    counted = Counter(name for of in known for name in of)
    ordered = sorted(counted, key=lambda name: (-counted[name], name))
    return {name: counted[name] / len(known) for name in ordered[:top]}
