"""The wordings of requests about the embedded sources' facts."""

COUNTS = {1: "one fact", 2: "two facts", 3: "three facts"}
COUNTED_REQUEST = "Tell me {count} about {s}."
MAY_ABSTAIN_REQUEST = "{question} You may say that you don't know."


def count_request(name: str, n: int) -> str:
    """The request for n facts about a subject; n is in `COUNTS`."""
    return COUNTED_REQUEST.format(count=COUNTS[n], s=name)
