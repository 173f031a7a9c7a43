"""From rewards of statements to rewards of tokens (RLFH §3.2.1).

A statement's characters are mapped to its sentence by the longest common subsequence,
the sentence to the response by the longest common substring; the reward goes on the
token that holds the last matched character. The paper leaves open, and is decided here:
- ties, by `last_in_sentence` and `start_in_response`;
- a statement's closing full stop, which would match the sentence's own and draw every
  reward to the sentence's end: it is left out, unless the statement is nothing else;
- a last character outside the part of the sentence that the response has: it moves to
  the nearest one inside, so that no reward is lost where the response was cut off.

Positions are of characters (code points) and tokens, counted from 0.
"""

import os
from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Offsets = Sequence[tuple[int, int]]  # of each token: first character, one past the last

CLOSING = ".!?…。！？ \t\n"  # at a statement's end


class Match(NamedTuple):
    """A common substring: where it begins in both, and its characters."""

    in_sentence: int
    in_response: int
    length: int


# Statement → sentence → response


def last_in_sentence(statement: str, sentence: str) -> int | None:
    """Where in the sentence a longest common subsequence ends; None without one.

    Of all that are longest, the one that ends first: where a word is repeated, a
    statement ends with the words that complete it, not with the last to look alike.
    Bit-parallel: after each character of the statement, bit j of `flat` is 0 where the
    longest common subsequence with sentence[:j + 1] is longer than with sentence[:j].
    """
    places: dict[str, int] = {}
    for j, character in enumerate(sentence):
        places[character] = places.get(character, 0) | 1 << j
    flat = whole = (1 << len(sentence)) - 1
    for character in statement:
        found = flat & places.get(character, 0)
        flat = (flat + found | flat - found) & whole
    rises = flat ^ whole
    return rises.bit_length() - 1 if rises else None


def start_in_response(sentence: str, response: str, after: int = 0) -> Match | None:
    """The longest common substring; None if no character is common.

    after: where the previous sentence's match ends. Of all that are longest, the first
    in the response that begins there or later, else the first of all: sentences that
    the response repeats are matched in order. Of its places in the sentence, the first.
    """
    size = len(sentence)
    length = size if sentence in response else 0
    for i in range(size):
        while i + length < size and sentence[i : i + length + 1] in response:
            length += 1
    if not length:
        return None

    def first(start: int) -> tuple[int, int] | None:
        parts = ((sentence[i : i + length], i) for i in range(size - length + 1))
        found = ((response.find(part, start), i) for part, i in parts)
        return min(((j, i) for j, i in found if j >= 0), default=None)

    j, i = first(after) or first(0)
    return Match(i, j, length)


def last_in_response(statement: str | None, sentence: str, match: Match) -> int:
    """Where a statement ends in the response; the sentence itself if it is None.

    match: the sentence's. A statement that shares no character with its sentence ends
    where the sentence does. An end outside the match moves to the match's nearest one.
    """
    last = None
    if statement is not None:
        last = last_in_sentence(statement.rstrip(CLOSING) or statement, sentence)
    i, j, length = match
    last = len(sentence) - 1 if last is None else last
    return j + min(max(last - i, 0), length - 1)


# Response → tokens


def token_of(char: int, offsets: Offsets) -> int | None:
    """The token that holds a character: the last one, where several share it.

    offsets: as a fast tokenizer's `return_offsets_mapping` has them; tokens without a
    character (special ones) hold nothing. A character between tokens, such as white
    space, is the token's before it, or the first token's. None if none has characters.
    """
    held = None
    for token, (start, end) in enumerate(offsets):
        if start < end and (held is None or start <= char):
            held = token
    return held


def offsets_of(
    completion_ids: Sequence[int], tokenizer: "PreTrainedTokenizerBase"
) -> tuple[str, list[tuple[int, int]]]:
    """A completion's text and the characters of each of its T tokens.

    From the tokens as sampled, since encoding the text anew may give others. The text
    is what `tokenizer.decode` gives without special tokens, nothing stripped. Starts
    never decrease, the last end is the text's; special tokens have an empty span where
    they stand. Tokens that share a character of several bytes all span it if the
    tokenizer is byte-level, in O(T); with others, in O(T²), only the last one does.
    """
    ids = [int(i) for i in completion_ids]
    text = tokenizer.decode(ids, skip_special_tokens=True)
    joined, spans = _byte_spans(_bytes_of(ids, tokenizer))
    return text, spans if joined == text else _prefix_spans(ids, tokenizer, text)


def _bytes_of(ids: list[int], tokenizer: "PreTrainedTokenizerBase") -> list[bytes]:
    """Each token's bytes if the tokenizer is byte-level; none of special tokens."""
    known = tokenizer.added_tokens_decoder
    special = {i for i, token in known.items() if token.special}
    tokens = tokenizer.convert_ids_to_tokens(ids)
    bytes_of = _byte_alphabet()
    found = []
    for i, token in zip(ids, tokens, strict=True):
        if token is None or i in special:
            found.append(b"")
        elif bytes_of.keys() >= set(token):
            found.append(bytes(bytes_of[character] for character in token))
        else:
            found.append(token.encode())
    return found


@cache
def _byte_alphabet() -> dict[str, int]:
    """Character → byte. A byte that is no visible Latin-1 character is written as one
    from U+0100 on, in order."""
    from tokenizers.pre_tokenizers import ByteLevel

    letters = sorted(ByteLevel.alphabet())
    visible = [ord(letter) for letter in letters if letter < "\u0100"]
    others = [byte for byte in range(256) if byte not in visible]
    return dict(zip(letters, visible + others, strict=True))


def _byte_spans(pieces: Sequence[bytes]) -> tuple[str, list[tuple[int, int]]]:
    """The text of UTF-8 in pieces, broken parts as U+FFFD, and each piece's span."""
    raw = rest = b"".join(pieces)
    widths = []  # bytes of each character
    while rest:
        try:
            good, broken = rest.decode(), 0
        except UnicodeDecodeError as error:
            good, broken = rest[: error.start].decode(), error.end - error.start
        widths += [len(character.encode()) for character in good]
        widths += [broken] if broken else []
        rest = raw[sum(widths) :]
    ends, end, spans = list(accumulate(widths)), 0, []
    for piece in pieces:
        start, end = end, end + len(piece)
        first = bisect_right(ends, start)
        spans.append((first, bisect_right(ends, end - 1) + 1 if piece else first))
    return raw.decode(errors="replace"), spans


def _prefix_spans(
    ids: list[int], tokenizer: "PreTrainedTokenizerBase", text: str
) -> list[tuple[int, int]]:
    """Spans by decoding each prefix: a token ends where the text's is still the same,
    which leaves out the U+FFFD of a character that a later token completes."""
    spans, end = [], 0
    for k in range(1, len(ids) + 1):
        prefix = tokenizer.decode(ids[:k], skip_special_tokens=True)
        same = os.path.commonprefix([prefix, text]) if prefix != text else text
        start, end = end, max(end, len(same))
        spans.append((start, end))
    return spans


def spread(
    rewards: Sequence[tuple[str, Sequence[tuple[str | None, float]]]],
    response: str,
    offsets: Offsets,
) -> np.ndarray:
    """Each token's reward, (T,): the sum of what lands on it.

    rewards: of each sentence in order, what it is paid for: (statement, r_truth), and
    (None, r_info) for the sentence itself, whose token is that of its last character.
    response, offsets: of T tokens, as `offsets_of` gives them. A sentence that has
    nothing but white space in common with the response pays nothing. Raises ValueError
    if all offsets are empty and the response is not.
    """
    dense, after = np.zeros(len(offsets)), 0
    for sentence, paid in rewards:
        sentence = sentence.strip()
        match = start_in_response(sentence, response, after)
        end = match.in_response + match.length if match else 0
        if match is None or response[match.in_response : end].isspace():
            continue
        after = end
        for statement, reward in paid:
            token = token_of(last_in_response(statement, sentence, match), offsets)
            if token is None:
                raise ValueError(f"{len(offsets)} tokens, but none has characters")
            dense[token] += reward
    return dense
