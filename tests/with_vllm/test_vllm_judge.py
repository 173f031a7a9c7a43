"""A judge that real vLLM serves."""

import json

from factkit import llm
from factkit.models import Sampling

VERDICTS = ["correct", "incorrect", "abstain"]
SCHEMA = {
    "type": "object",
    "properties": {"verdict": {"enum": VERDICTS}},
    "required": ["verdict"],
    "additionalProperties": False,
}
ANSWERS = ["Paris", "London", "I don't know", "The capital is Paris."]


def requests() -> list[llm.Request]:
    """Questions to a judge. A model of 135M judges badly; the form is what counts."""
    return [
        llm.Request(
            messages=(
                {
                    "role": "user",
                    "content": "Question: What is the capital of France?\n"
                    f"Reference: Paris\nAnswer: {answer}\n"
                    "Is the answer correct, incorrect or an abstention? Reply in JSON.",
                },
            ),
            sampling=Sampling(32),
            schema=SCHEMA,
        )
        for answer in ANSWERS
    ]


def test_a_served_judge_answers_in_the_schema_and_from_the_cache(endpoint, tmp_path):
    judge = llm.LLM(endpoint, "judge", cache=tmp_path)
    replies = judge.run(requests())
    assert [reply.error for reply in replies] == [""] * len(ANSWERS)
    for reply in replies:
        assert json.loads(reply.text)["verdict"] in VERDICTS
        assert reply.prompt_tokens > 0 and reply.completion_tokens > 0
    assert judge.totals.calls == len(ANSWERS)
    again = judge.run(requests())
    assert all(reply.cached for reply in again)
    assert judge.totals.calls == len(ANSWERS)
