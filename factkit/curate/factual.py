"""The filter for requests that ask for facts which can be checked (Binary RAR §4.2)."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from factkit.datasets.examples import MAX_QUESTION_CHARS, Example
from factkit.datasets.loading import Loaded
from factkit.verify import judge
from factkit.verify.replies import Form, read, word

if TYPE_CHECKING:
    from factkit.llm import LLM

REPLY_TOKENS = 128


class Factual(Form):
    """The form of the filter's reply."""

    reason: str = ""
    label: word("yes", "no")


def keep_factual(
    llm: "LLM", examples: Sequence[Example], template: str = "filter_factual"
) -> Loaded:
    """The prompts that ask for facts which can be checked, by an LLM (App. D).

    Returns them and how many were kept, not factual, or failed: where the LLM gave no
    readable answer the prompt is dropped, too, but counted as failed.
    """
    fields = [
        {"prompt": e.question, "response": "".join(e.answers[:1])[:MAX_QUESTION_CHARS]}
        for e in examples
    ]
    replies = judge.ask(llm, template, fields, Factual, REPLY_TOKENS, "filtering")
    verdicts = [read(reply, Factual) for reply in replies]
    labels = [None if verdict is None else verdict.label for verdict in verdicts]
    fates = {"yes": "kept", "no": "not factual", None: "failed"}
    counts = Counter({fate: 0 for fate in fates.values()})
    counts.update(fates[label] for label in labels)
    kept = [e for e, label in zip(examples, labels, strict=True) if label == "yes"]
    return kept, counts
