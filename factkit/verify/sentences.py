"""The sentences of a response, split by pysbd, from a text in Markdown."""

import re
from functools import cache
from typing import Any

FENCE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[^\n]*$|\Z)", re.M | re.S)
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # newlines, and what pysbd stumbles over
MARKER = re.compile(r"[ \t]*(?:(?:#{1,6}|[-*+•>]|\d{1,3}[.)])[ \t]+)*")


def sentences(text: str) -> list[str]:
    """The sentences of a text in Markdown, each an exact substring, in order.

    A line is a paragraph of its own, unless it begins in lower case and so goes on from
    the line before. Left out: the marks of lists, headings and quotes, fenced code, and
    what holds no letter.
    """
    kept = []
    text = FENCE.sub(lambda m: "\n" * len(m[0]), text)
    for block in re.split(r"\n(?![ \t]*[a-z])", text):
        paragraph = block[MARKER.match(block).end() :].strip()
        flat, at = CONTROL.sub(" ", paragraph), 0
        for segment in _segmenter().segment(flat):
            begin = flat.find(segment.strip(), at)
            if begin < 0:  # the library changed the text: keep the rest as it is
                break
            at = begin + len(segment.strip())
            kept.append(paragraph[begin:at])
        kept.append(paragraph[at:].strip())
    return [sentence for sentence in kept if re.search(r"[^\W\d_]", sentence)]


@cache
def _segmenter() -> Any:
    import pysbd

    return pysbd.Segmenter(language="en", clean=False)
