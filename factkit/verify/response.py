r"""Long responses: reasoning, boxed answer (TruthRL Tables 9, 10) and sentences.

A response is `<think>reasoning</think>` and an answer, in `\boxed{}` or, in Learning to
Reason for Factuality, in `<answer></answer>`. Reasoning that is never closed has no
answer. If the chat template opened the reasoning and it was cut off, no tag is left, so
that it is read as an answer.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

OPEN, CLOSE, BOX = "<think>", "</think>", "\\boxed{"
ANSWER, END_OF_ANSWER = "<answer>", "</answer>"
TAGS = (OPEN, CLOSE, ANSWER, END_OF_ANSWER)
FORM = re.compile(r"\s*<think>(.*)</think>\s*<answer>(.*)</answer>\s*", re.DOTALL)
STATED = re.compile(r"\((0(?:\.\d+)?|1(?:\.0+)?)\)\Z")
CONFIDENCES = tuple(f"{tenths / 10:.1f}" for tenths in range(11))
SHELL = re.compile(r"\\(?:text|mathrm)\{")


def extract_boxed(text: str) -> str | None:
    r"""Extract the content of the last `\boxed{}` after the reasoning, or None.

    Braces may be nested. A box that is never closed ends with its line. A `\text{}` or
    `\mathrm{}` around the whole content is removed.
    """
    head, content = split_box(_extract_answer_part(text))
    if not head.endswith(BOX):
        return None
    shell = SHELL.match(content := content.strip())
    if shell:
        inner, after = _split_group(content[shell.end() :])
        content = content if after else inner.strip()
    return content


def split_box(text: str) -> tuple[str, str]:
    r"""Split a response into the text through its last `\boxed{`, and the content of
    that box; without a box, into the whole response and ""."""
    head, box, rest = text.rpartition(BOX)
    return (head + box, _split_group(rest)[0]) if box else (text, "")


def extract_reasoning(text: str) -> str:
    """Extract the text from the first `<think>` to the last `</think>`, "" without one.

    Reasoning without `</think>` lasts to the end. Without `<think>`, which a chat
    template may write, it begins at the start.
    """
    before, _, after = text.rpartition(CLOSE)
    thought = text if OPEN in after else before
    return (thought.partition(OPEN)[2] if OPEN in thought else thought).strip()


def extract_answer(text: str, boxed_required: bool) -> str:
    """Extract the answer after the reasoning, or with `boxed_required` the content of
    its box; "" if there is none."""
    if boxed_required:
        return extract_boxed(text) or ""
    return _extract_answer_part(text).strip()


def split_confidence(text: str) -> tuple[str, float | None]:
    """Split "Paris (0.7)" into the response and the confidence at its end, in [0, 1];
    None if it does not end with one."""
    text = text.rstrip()
    match = STATED.search(text)
    if not match:
        return text, None
    return text[: match.start()].rstrip(), float(match[1])


def state_confidence(text: str, confidence: float) -> str:
    """A response with its confidence at the end, to one decimal."""
    return f"{text} ({confidence:.1f})"


def extract_answers(responses: Iterable[str]) -> list[str]:
    """Extract what each response says after its reasoning; "" if that never ends."""
    return [extract_answer(text, boxed_required=False) for text in responses]


@dataclass(frozen=True)
class ResponseParts:
    """The two parts of a well-formed response, without outer white space."""

    reasoning: str
    answer: str


def split_response(response: str) -> ResponseParts | None:
    """Split `<think> y_cot </think> <answer> y_ans </answer>` into y_cot and y_ans
    (Learning to Reason §3.1.1); either may be empty.

    None if malformed: each tag must occur once, in this order, with only white space
    around and between the parts (ours: the paper does not say how strict it is).
    """
    match = FORM.fullmatch(response)
    if not match or any(response.count(tag) != 1 for tag in TAGS):
        return None
    return ResponseParts(match[1].strip(), match[2].strip())


def format_response(reasoning: str, answer: str) -> str:
    """Format the two parts as a well-formed response."""
    return f"<think> {reasoning} </think> <answer> {answer} </answer>"


def _extract_answer_part(text: str) -> str:
    """Extract the text after the reasoning, within `<answer>` if there is one."""
    after = text.rpartition(CLOSE)[2]
    if OPEN in after:
        return ""
    _, tag, content = after.partition(ANSWER)
    return (content if tag else after).partition(END_OF_ANSWER)[0]


def _split_group(text: str) -> tuple[str, str]:
    """Split at the brace that closes the text; without one, take the first line."""
    depth = 1
    for brace in re.finditer(r"[{}]", text):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return text[: brace.start()], text[brace.end() :]
    return text.partition("\n")[0], ""


# ---- sentences

FENCE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[^\n]*$|\Z)", re.M | re.S)
MARKER = re.compile(r"\A[ \t]*(?:(?:#{1,6}|[-*+•>]|\d{1,3}[.)])[ \t]+)*")
# Punctuation that may end a sentence, and the next word. Possessive quantifiers and the
# lookbehind keep the search linear.
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
INSIDE = frozenset("cf e.g i.e v viz vs".split())  # never at a sentence's end
INITIALS = re.compile(r"(?:[^\W\d_]\.-?)*(?:[^\W\d_]\.-?[^\W\d_]|[^\W\d_a-z])")
STARTERS = frozenset(  # they begin a sentence even after an abbreviation
    """A Although An And As At Being But By Did Do Does During For From He Her His How
    However I If In It Its Many More Most No On One Other She Since So Some That The
    Their There These They This Those Though To Under Unlike Was We What When Where
    While Who Why With You""".split()
)


def split_sentences(text: str) -> list[str]:
    """Split a text in Markdown into sentences: exact substrings, in order.

    A line is a paragraph, unless it begins in lower case and so continues the line
    before. A sentence ends at ".", "!" or "?" if the next word is not in lower case. An
    English abbreviation or an initial ends one only before a word that usually begins a
    sentence. Marks of lists, headings and quotes, fenced code, and pieces without
    letters are left out.
    """
    pieces = []
    text = FENCE.sub(lambda m: "\n" * len(m[0]), text)
    for block in re.split(r"\n(?![ \t]*[a-z])", text):
        paragraph = MARKER.sub("", block, count=1).strip()
        bounds = [0, *_find_ends(paragraph), len(paragraph)]
        pieces += [paragraph[a:b].strip() for a, b in pairwise(bounds)]
    return [piece for piece in pieces if re.search(r"[^\W\d_]", piece)]


def _find_ends(paragraph: str) -> Iterator[int]:
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
