r"""Reading a long response: reasoning, boxed answer (TruthRL Tables 9, 10), sentences.

A response is `<think>reasoning</think>` and then an answer in `\boxed{}`. What stands
after the last `</think>` is the answer part. Reasoning that is never closed has no
answer part: the answer was not reached. Learning to Reason for Factuality has its
answer in `<answer></answer>`; these tags, where there are any, are no part of it.
One case can't be told from an answer: reasoning that the chat template opened and that
was cut off before its end has no tag at all.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

OPEN, CLOSE, BOX = "<think>", "</think>", "\\boxed{"
ANSWER, END_OF_ANSWER = "<answer>", "</answer>"
TAGS = (OPEN, CLOSE, ANSWER, END_OF_ANSWER)
FORM = re.compile(r"\s*<think>(.*)</think>\s*<answer>(.*)</answer>\s*", re.DOTALL)
SHELL = re.compile(r"\\(?:text|mathrm)\{")


def boxed(text: str) -> str | None:
    r"""The content of the last `\boxed{}` of the answer part, None without one.

    Braces may nest; a box that is never closed ends with its line. A `\text{}` or
    `\mathrm{}` around all of the content is taken off, as is space at either end.
    """
    head, content = split_box(_answer_part(text))
    if not head.endswith(BOX):
        return None
    shell = SHELL.match(content := content.strip())
    if shell:
        inner, after = _group(content[shell.end() :])
        content = content if after else inner.strip()
    return content


def split_box(text: str) -> tuple[str, str]:
    r"""A response up to and with the last `\boxed{`, and the box's content; without a
    box the whole response, and ""."""
    head, box, rest = text.rpartition(BOX)
    return (head + box, _group(rest)[0]) if box else (text, "")


def reasoning(text: str) -> str:
    """What stands between the first `<think>` and the last `</think>`, "" without.

    A `<think>` that is never closed opens reasoning that lasts to the end. A chat
    template that writes `<think>` itself leaves only the `</think>` in the response:
    then all that comes before it is reasoning.
    """
    before, _, after = text.rpartition(CLOSE)
    thought = text if OPEN in after else before
    return (thought.partition(OPEN)[2] if OPEN in thought else thought).strip()


def final_answer(text: str, boxed_required: bool) -> str:
    """The answer that a response gives, "" if it gives none.

    boxed_required: only a box's content counts. Otherwise all of the answer part does.
    """
    return boxed(text) or "" if boxed_required else _answer_part(text).strip()


def answers(responses: Iterable[str]) -> list[str]:
    """What each response says after its reasoning; "" if that never ends."""
    return [final_answer(text, boxed_required=False) for text in responses]


@dataclass(frozen=True)
class Reasoned:
    """The two parts of a well-formed response, without space at their ends."""

    reasoning: str
    answer: str


def parts(response: str) -> Reasoned | None:
    """y_cot and y_ans of `<think> y_cot </think> <answer> y_ans </answer>` (Learning to
    Reason §3.1.1).

    None if the response is malformed: unless each tag occurs once, in this order, with
    only space before, between and after the two parts (ours: the paper does not say how
    strict it is). A part may be empty.
    """
    match = FORM.fullmatch(response)
    if not match or any(response.count(tag) != 1 for tag in TAGS):
        return None
    return Reasoned(match[1].strip(), match[2].strip())


def written(reasoning: str, answer: str) -> str:
    """A well-formed response of the two parts."""
    return f"<think> {reasoning} </think> <answer> {answer} </answer>"


def _answer_part(text: str) -> str:
    """What follows the reasoning: all of a text without any, "" if it never ends.

    Of that, what the first `<answer>` holds, if there is one; a tag may be missing.
    """
    after = text.rpartition(CLOSE)[2]
    if OPEN in after:
        return ""
    _, tag, held = after.partition(ANSWER)
    return (held if tag else after).partition(END_OF_ANSWER)[0]


def _group(text: str) -> tuple[str, str]:
    """The text up to the brace that closes it, and what follows that brace; without
    such a brace the first line, and nothing."""
    depth = 1
    for brace in re.finditer(r"[{}]", text):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return text[: brace.start()], text[brace.end() :]
    return text.partition("\n")[0], ""


# ---- sentences

FENCE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[^\n]*$|\Z)", re.M | re.S)
MARKER = re.compile(r"[ \t]*(?:(?:#{1,6}|[-*+•>]|\d{1,3}[.)])[ \t]+)*")
# Punctuation that may end a sentence, and the word after it. Possessive quantifiers and
# the lookbehind keep the search linear in the text.
STOP = re.compile(
    r"""(?<![.!?…])([.!?…]++["'”’)\]]*+)\s++(?=[^\w\s]{0,3}([^\W_][\w.]*+))"""
    r"|[。！？؟۔।]++[」』”’）]*+"
)
ABBREVIATIONS = frozenset(
    """adm al approx apr aug ave brig bros c ca capt cmdr co col corp dec dept dr ed eds
    esp est feb fig figs fl fr ft gen gov hon inc jan jr jul jun lit lt ltd maj mar
    messrs mr mrs ms mt no nos nov oct op ph.d pl pop pp prof pron pvt rep rev rom sen
    sens sep sept sgt spp sr st subsp supt trans transl var vol vols""".split()
)
INSIDE = frozenset("cf e.g i.e v viz vs".split())  # no sentence ends in these
INITIALS = re.compile(r"(?:[^\W\d_]\.-?)*(?:[^\W\d_]\.-?[^\W\d_]|[^\W\d_a-z])")
STARTERS = frozenset(  # they begin a sentence even after an abbreviation
    """A Although An And As At Being But By Did Do Does During For From He Her His How
    However I If In It Its Many More Most No On One Other She Since So Some That The
    Their There These They This Those Though To Under Unlike Was We What When Where
    While Who Why With You""".split()
)


def sentences(text: str) -> list[str]:
    """The sentences of a text in Markdown, each an exact substring, in order.

    A line is a paragraph of its own, unless it begins in lower case and so goes on from
    the line before. A sentence ends at ".", "!" or "?" where the next word is not in
    lower case, but not after an English abbreviation or an initial, unless a word
    follows that usually begins a sentence. Left out: the marks of lists, headings and
    quotes, fenced code, and what holds no letter.
    """
    pieces = []
    text = FENCE.sub(lambda m: "\n" * len(m[0]), text)
    for block in re.split(r"\n(?![ \t]*[a-z])", text):
        paragraph = block[MARKER.match(block).end() :].strip()
        bounds = [0, *_sentence_ends(paragraph), len(paragraph)]
        pieces += [paragraph[a:b].strip() for a, b in pairwise(bounds)]
    return [piece for piece in pieces if re.search(r"[^\W\d_]", piece)]


def _sentence_ends(paragraph: str) -> Iterator[int]:
    for stop in STOP.finditer(paragraph):
        marks, following = stop.groups(default="")
        if following[:1].islower():
            continue
        if marks == ".":
            before = paragraph[max(0, stop.start() - 20) : stop.start()]
            word = re.split(r"[\s(\[“\"]", before)[-1]
            abbreviated = word.lower() in ABBREVIATIONS or INITIALS.fullmatch(word)
            if word in INSIDE or abbreviated and following not in STARTERS:
                continue
        yield stop.end()
