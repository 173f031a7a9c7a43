"""A policy without weights, for tests of what is done with its samples."""

from factkit.policy.policy import Policy


class FakePolicy(Policy):
    """Its texts come from a function with the arguments of `Policy.generate`."""

    generate_tokens = complete = perplexity = None

    def __init__(self, generate, **fields):
        super().__init__(**{"template": "short_form"} | fields)
        self.generate = generate
