"""A judge that real vLLM serves."""

import json

from factkit.policy.decoding import Sampling
from factkit.verify import claims, judge, llm

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
    judge = llm.LLM(llm.Endpoint(endpoint, "judge"), tmp_path)
    replies = judge.run(requests())
    assert [reply.error for reply in replies] == [""] * len(ANSWERS)
    for reply in replies:
        assert json.loads(reply.text)["verdict"] in VERDICTS
        assert reply.prompt_tokens > 0 and reply.completion_tokens > 0
    assert judge.totals.calls == len(ANSWERS)
    again = judge.run(requests())
    assert again == replies
    assert judge.totals.calls == len(ANSWERS)


def test_a_served_judge_ends_within_its_tokens_and_may_quote(endpoint):
    llm_judge = llm.LLM(llm.Endpoint(endpoint, "judge"))
    row = {"prompt": "Which song is it?", "response_a": 'It is "Yesterday".'}
    rows = [row | {"response_b": f"It is song number {i}."} for i in range(8)]
    asked = "compare_responses", rows, judge.Choice, judge.REPLY_TOKENS
    assert all(judge.ask_all(llm_judge, *asked))
    # all of a text, not its first letter; what does not end would fill 200 tokens
    schema = claims.Claims.model_json_schema()
    schema["properties"]["claims"]["minItems"] = 2
    told = "Write down three facts about Paris, the capital of France. "
    told += 'Reply with JSON: {"claims": ["...", "...", "..."]}'
    asked = {"role": "user", "content": told}
    request = llm.Request((asked,), sampling=Sampling(200), schema=schema)
    (reply,) = llm_judge.run([request])
    assert reply.finished
    assert max(map(len, json.loads(reply.text)["claims"])) > 1, reply
