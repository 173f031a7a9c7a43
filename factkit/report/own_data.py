"""What `python -m factkit check` says of a user's own data."""

from collections.abc import Iterator
from typing import Any

from factkit import require
from factkit.facts.own.source import open_source, split_sizes
from factkit.facts.policy import base_policy
from factkit.policy.policy import Policy
from factkit.run.arms import get_paper

PROMPTS = 2


def describe(p: Any) -> Iterator[str]:
    """Lines: rows and documents kept and dropped, answers that are too long, then two
    prompts of training rows as the policy reads them. Raises UserError where the data
    can't be used."""
    checked = (source := open_source(p)).checks(p)
    for what, found, fine, _ in checked:
        yield f"{'ok ' if fine else 'NO '} {what}: {found}"
    require(checked)
    examples = next(iter(source.split_rows(split_sizes(p)).values()))[:PROMPTS]
    policy = Policy(path=base_policy(p), template=p.prompt_template, chat=p.chat)
    if p.rows_of[0] == "questions":
        rows, most = source.loaded[0], p.max_completion_length
        n = sum(all(count_tokens(a, policy) > most for a in e.answers) for e in rows)
        note = "; raise max_completion_length, or these can't be answered" if n else ""
        yield f"{'NO ' if n else 'ok '} answers of more than {most} tokens: {n}{note}"
    data = get_paper(p).find_module("data")
    write = (
        data.training_prompts if data else lambda _, rows, by: by.format_prompts(rows)
    )
    for number, prompt in enumerate(write(p, examples, policy), start=1):
        yield f"\nprompt {number}, {count_tokens(prompt, policy)} tokens:\n{prompt}"


def count_tokens(text: str, policy: Policy) -> int:
    """The tokens of a text."""
    return len(policy.tokenizer(text)["input_ids"])
