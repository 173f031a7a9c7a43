"""RLFH's token mapping against plain dynamic programmes, side by side.

Run with `python tests/benchmarks/bench_token_mapping.py`. Responses of about 500 tokens
and 20 sentences, made of the corpus's running text, with a statement a sentence; the
two take turns response by response. As a splitter gives the sentences, they are in the
response as they are; as a language model gives them, a few characters differ.
"""

import random
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from unittest.mock import patch

from transformers import AutoTokenizer

from factkit import assets
from factkit.corpus import load_leads
from factkit.rewards import token_mapping
from factkit.rewards.token_mapping import Match, offsets_of, spread

RESPONSES, SENTENCES, WORDS, ALTERED = 9, 20, 18, 0.02
CALLS = 5  # of what takes milliseconds, for each response


def seconds(action: Callable, calls: int = 1) -> tuple[float, object]:
    """Median wall-clock seconds of a call, and what it returned."""
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        found = action()
        times.append(time.perf_counter() - start)
    return median(times), found


def sentences(words: list[str], rng: random.Random) -> list[str]:
    """Runs of words from anywhere in the text."""
    starts = rng.sample(range(len(words) - WORDS), SENTENCES)
    return [" ".join(words[i : i + WORDS]) + "." for i in starts]


def statement(sentence: str, rng: random.Random) -> str:
    """Two thirds of a sentence's words, after a subject that it doesn't have."""
    words = sentence.rstrip(".").split()
    kept = sorted(rng.sample(range(1, len(words)), 2 * len(words) // 3))
    return " ".join(["Turing", *(words[i] for i in kept)]) + "."


def altered(sentence: str, rng: random.Random) -> str:
    """A sentence with some characters replaced."""
    return "".join("~" if rng.random() < ALTERED else c for c in sentence)


def plainly(rewards: list, response: str, offsets: list) -> object:
    """`spread` by the plain dynamic programmes that the tests have."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import plain_mapping as plain

    def start(*of: object) -> Match | None:
        found = plain.start_in_response(*of)
        return found and Match(*found)

    both = {"last_in_sentence": plain.last_in_sentence, "start_in_response": start}
    with patch.multiple(token_mapping, **both):
        return spread(rewards, response, offsets)


def main() -> None:
    """Print medians in milliseconds a response, and their ratio."""
    path = assets.policy_path("smollm2-135m-instruct")
    tokenizer = AutoTokenizer.from_pretrained(path)
    rng = random.Random(0)
    words = " ".join(lead.text for lead in load_leads()[:2000]).split()
    times = {"offsets": [], "split": ([], []), "extracted": ([], [])}
    tokens, characters = [], []
    for _ in range(RESPONSES):
        said = sentences(words, rng)
        ids = tokenizer(" ".join(said))["input_ids"]
        took, (response, offsets) = seconds(partial(offsets_of, ids, tokenizer), CALLS)
        times["offsets"].append(took)
        tokens.append(len(ids)), characters.append(len(response))
        seen = {"split": said, "extracted": [altered(s, rng) for s in said]}
        for kind, found in seen.items():
            rewards = [(s, [(statement(s, rng), 1.0), (None, 0.5)]) for s in found]
            fast, dense = seconds(partial(spread, rewards, response, offsets), CALLS)
            slow, same = seconds(partial(plainly, rewards, response, offsets))
            assert dense.tolist() == same.tolist(), "the two differ"
            times[kind][0].append(fast), times[kind][1].append(slow)
    print(
        f"{median(tokens):.0f} tokens, {median(characters):.0f} characters, "
        f"{SENTENCES} statements; medians of {RESPONSES} responses"
    )
    print(f"offsets of the tokens {1e3 * median(times['offsets']):17.2f} ms")
    for kind in ("split", "extracted"):
        fast, slow = (1e3 * median(of) for of in times[kind])
        print(
            f"sentences {kind:10} fast {fast:9.2f} ms, plain {slow:8.0f} ms, "
            f"ratio {slow / fast:6.0f} x"
        )


if __name__ == "__main__":
    main()
