"""The two vLLM backends with a real model: served, and in process."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from factkit import backends, llm
from factkit.models import Sampling

VERDICTS = ["correct", "incorrect", "abstain"]
SCHEMA = {
    "type": "object",
    "properties": {"verdict": {"enum": VERDICTS}},
    "required": ["verdict"],
    "additionalProperties": False,
}
ANSWERS = ["Paris", "London", "I don't know", "The capital is Paris."]


def requests(schema=SCHEMA) -> list[llm.Request]:
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
            schema=schema,
        )
        for answer in ANSWERS
    ]


def assert_judged(replies) -> None:
    assert [reply.error for reply in replies] == [""] * len(ANSWERS)
    for reply in replies:
        assert json.loads(reply.text)["verdict"] in VERDICTS
        assert reply.prompt_tokens > 0 and reply.completion_tokens > 0


@pytest.fixture(scope="module")
def endpoint(smollm, tmp_path_factory):
    """The address of a `vllm serve` of SmolLM2."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    log = tmp_path_factory.mktemp("serve") / "log"
    command = [
        # what `vllm serve` runs; its command looks for a package named vllm
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *(
            "--model",
            smollm,
            "--served-model-name",
            "judge",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ),
        *("--dtype", "bfloat16", "--max-model-len", "1024", "--enforce-eager"),
    ]
    with log.open("w") as f:
        server = subprocess.Popen(command, stdout=f, stderr=f, env=os.environ)
    try:
        _wait_for(f"http://127.0.0.1:{port}/health", server, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait(60)


def _wait_for(url: str, server: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(1)
    pytest.fail(f"vllm serve did not come up:\n{log.read_text()[-3000:]}")


def test_a_served_judge_answers_in_the_schema_and_from_the_cache(endpoint, tmp_path):
    judge = llm.LLM(backends.Endpoint(endpoint, "judge"), cache=tmp_path)
    assert_judged(judge.run(requests()))
    assert judge.totals.calls == len(ANSWERS)
    again = judge.run(requests())
    assert all(reply.cached for reply in again)
    assert judge.totals.calls == len(ANSWERS)


def test_without_a_schema_the_judge_is_free(endpoint):
    judge = llm.LLM(backends.Endpoint(endpoint, "judge"))
    replies = judge.run(requests(schema=None))
    assert all(reply.text for reply in replies)


def test_the_engine_in_process_answers_in_the_schema(smollm):
    engine = backends.VLLM(
        smollm, dtype="bfloat16", max_model_len=1024, enforce_eager=True
    )
    judge = llm.LLM(engine)
    assert_judged(judge.run(requests()))
    greedy = [reply.text for reply in judge.run(requests())]
    assert greedy == [reply.text for reply in judge.run(requests())]
