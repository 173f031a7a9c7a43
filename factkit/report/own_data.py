"""What `python -m factkit check` says of a user's own data."""

from collections.abc import Iterator
from typing import Any

from factkit import require
from factkit.data.splits import split_prompts
from factkit.facts.own import checks
from factkit.facts.policy import base_policy
from factkit.policy.policy import Policy
from factkit.run.arms import get_paper

PROMPTS = 2


def describe(p: Any) -> Iterator[str]:
    """Lines: rows and documents kept and dropped, then two prompts of training rows as
    the policy reads them. Raises UserError where the data can't be used."""
    checked = checks.own_data(p)
    for what, found, fine, _ in checked:
        yield f"{'ok ' if fine else 'NO '} {what}: {found}"
    require(checked)
    sizes = checks.split_sizes(p)
    train = split_prompts(checks.load(p)[0], sizes, getattr(p, "split_seed", 0))
    examples = next(iter(train.values()))[:PROMPTS]
    policy = Policy(path=base_policy(p), template=p.prompt_template, chat=p.chat)
    data = get_paper(p).find_module("data")
    if data:
        examples = data.as_read(examples, p, policy.tokenizer)
    for number, prompt in enumerate(policy.format_prompts(examples), start=1):
        tokens = len(policy.tokenizer(prompt)["input_ids"])
        yield f"\nprompt {number}, {tokens} tokens:\n{prompt}"
