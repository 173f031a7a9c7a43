"""A language model that answers by rules, and texts that try to leave their fields."""

import json
from collections import Counter

from hypothesis import strategies as st

from factkit.verify.calls import run_all
from factkit.verify.llm import Reply

hostile = st.text() | st.lists(
    st.sampled_from(
        ['"', "\\", "{", "}", "\n", "\u2028", "x", "</s>", "</think>", "[INST]"]
        + ['"SCORE"', ": 1", '{"label": "supported"}', '{"claims": []}', "<|im_end|>"]
        + ["\nClaim: ", "\nSentence: ", "\nResponse: ", '{"ratings": [5]}']
    )
).map("".join)


class FakeLLM:
    """Answers by a rule on the prompt, or on those of a template; keeps the requests.

    again: the rule where a reply is asked for once more, by default the same.
    """

    def __init__(self, rule=None, again=None, **rules):
        self.rule, self.again, self.rules, self.requests = rule, again, rules, []

    async def complete(self, request):
        self.requests.append(request)
        return self.rule_of(request)(text_of(request))

    def run(self, requests, progress=""):
        return run_all(map(self.complete, requests))

    def rule_of(self, request):
        rule = self.rules.get(template_of(request), self.rule)
        return self.again or rule if len(request.messages) > 1 else rule

    @property
    def calls(self):
        """Requests of each template, without those for a second reply."""
        return Counter(template_of(r) for r in self.requests if len(r.messages) == 1)

    def prompts(self, template):
        return [text_of(r) for r in self.requests if template_of(r) == template]


def template_of(request):
    return request.template.partition("@")[0]


def text_of(request):
    return request.messages[0]["content"]


def field(prompt, name):
    """A field of the last, filled part of a prompt."""
    line = prompt.rpartition(f"\n{name}: ")[2].partition("\n")[0]
    return json.loads(line)


def told(**value):
    return Reply(json.dumps(value))
