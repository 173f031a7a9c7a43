"""Calls to language models: nothing raised, nothing lost, nothing paid for twice."""

import asyncio
import json
import os
import random
import signal
import threading
import time

import pytest
from fake_endpoint import HANG, TRICKLE, answer, echo, prompt_of, refuse, serve

from factkit.policy.decoding import Sampling
from factkit.run import connections, serving
from factkit.run.params import ParamError
from factkit.verify.calls import run_all
from factkit.verify.judge import Choice
from factkit.verify.llm import LLM, Endpoint, Limits, Reply, Request, cache_key

QUICK = Limits(timeout_s=5, attempts=3)


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """The client waits for no more than a moment before a retry."""
    monkeypatch.setattr(serving, "MAX_WAIT_S", 0.01)


def ask(prompt, **fields):
    return Request(({"role": "user", "content": prompt},), **fields)


def asks(n, **fields):
    return [ask(f"p{i}", **fields) for i in range(n)]


def client(server, cache=None, limits=QUICK):
    return LLM(Endpoint(server.url, "judge"), cache, limits)


def reply_to(behave, limits=QUICK, **fields):
    """The reply to a request of a server that behaves so, and its calls."""
    with serve(behave if callable(behave) else lambda body, attempt: behave) as server:
        [reply] = client(server, limits=limits).run([ask("p", **fields)])
    return reply, len(server.bodies)


# Requests


def test_a_request_has_the_judge_s_own_fields_headers_and_room_to_think(tmp_path):
    """All of which decide its answer: a header may route to another model."""
    off = {"chat_template_kwargs": {"enable_thinking": False}}
    request = ask("p", sampling=Sampling(32))
    with serve(echo) as server:
        for own in ({}, {"extra": off}, {"extra": off, "thinking_tokens": 1_000}):
            for gateway in ("a", "b"):
                headers = {"X-Gateway": gateway}
                endpoint = Endpoint(server.url, "j", headers=headers, **own)
                LLM(endpoint, tmp_path, QUICK).run([request])
    plain, quiet, thinks = server.bodies[::2]
    assert quiet == plain | off
    assert thinks == quiet | {"max_tokens": 1_032}
    assert [seen["x-gateway"] for seen in server.headers] == ["a", "b"] * 3


# Failures


def bad_day(body, attempt):
    """20 % of the calls meet 429 or 500, some with Retry-After, and 5 % hang."""
    dice = random.Random(f"{prompt_of(body)} {attempt}")
    luck = dice.random()
    if luck < 0.05:
        return HANG
    if luck < 0.10:
        return refuse(429, Retry_After="0.1")
    if luck < 0.25:
        return refuse(dice.choice((429, 500)))
    return echo(body, attempt)


def test_of_a_bad_server_every_request_has_its_own_text_or_an_error(tmp_path):
    """300 calls; a rerun asks only for what failed."""
    requests, limits = asks(300), Limits(concurrency=16, timeout_s=2, attempts=4)
    with serve(bad_day) as server:
        llm = client(server, tmp_path, limits)
        replies = llm.run(requests)
        calls = len(server.bodies)
        client(server, tmp_path, limits).run(requests)
    failed = {f"p{i}" for i, reply in enumerate(replies) if reply.text is None}
    for i, reply in enumerate(replies):
        assert reply.error if f"p{i}" in failed else reply.text == f"echo p{i}"
    assert len(failed) < 15
    # a call may time out before it reaches a busy machine's server
    assert 300 < calls <= llm.totals.calls <= 4 * 300
    assert 8 < server.most_at_once <= 16
    assert set(server.prompts()[calls:]) == failed


def test_a_passing_failure_is_asked_again_and_a_lasting_one_is_not():
    for status in (408, 409, 429, 500, 503):
        passing = lambda b, n, s=status: refuse(s) if n < 2 else echo(b, n)  # noqa: E731
        assert reply_to(passing) == (Reply("echo p", "", 10, 5), 3)
        reply, calls = reply_to(refuse(status))
        assert (f"HTTP {status}" in reply.error, calls) == (True, QUICK.attempts)
    for status in (400, 401, 403, 404, 422):
        reply, calls = reply_to(refuse(status, "because"))
        assert (reply.text, calls) == (None, 1)
        assert f"HTTP {status}" in reply.error and "because" in reply.error


def test_a_reply_whose_bytes_trickle_is_given_up_within_the_timeout():
    reply, calls = reply_to(TRICKLE, Limits(timeout_s=1, attempts=2))
    assert (reply, calls) == (Reply(None, "no answer within 1 s"), 2)


def test_a_refused_key_stops_the_remaining_calls():
    for status in (401, 403):
        with serve(lambda b, n, s=status: refuse(s, "bad key")) as server:
            replies = client(server, limits=Limits(concurrency=2)).run(asks(50))
            assert len(server.bodies) <= 3
        assert len(replies) == 50
        assert all(r.text is None and f"HTTP {status}" in r.error for r in replies)


# What counts as an answer


def test_an_answer_without_text_is_a_failure():
    for bad in (
        *(answer(""), answer(None), answer(" \n")),
        (200, {"choices": None}, {}),
        (200, "<html>welcome</html>", {}),
        (200, "{broken", {"Content-Type": "application/json"}),
    ):
        reply, _ = reply_to(bad)
        assert reply.text is None and reply.error


def test_a_text_that_the_model_did_not_end_is_not_finished(tmp_path):
    for reason in ("length", "MAX_TOKENS", "content_filter", "tool_calls", "new"):
        with serve(lambda b, n, r=reason: answer(" It is tr", r)) as server:
            llm = client(server, cache=tmp_path)
            for _ in range(2):  # from the cache, too
                [reply] = llm.run([ask("p")])
                assert reply.text == " It is tr"
                assert reply.finish_reason == reason and not reply.finished


def test_normal_ends_are_finished_however_a_server_spells_them():
    for reason in (None, "", "stop", "STOP", "eos", "eos_token", "end_turn", "EndTurn"):
        assert reply_to(answer("It is true", reason))[0].finished, reason
    for reason in ("stop_sequence", "Stop-Sequence", "COMPLETE", "FINISH_REASON_STOP"):
        assert Reply("It is true", finish_reason=reason).finished, reason
    assert not Reply(None, "timeout").finished


def test_the_call_carries_model_messages_sampling_and_schema():
    sampling = Sampling(7, temperature=0.5, top_p=0.9)
    schema = {"type": "object", "properties": {"label": {"type": "string"}}}
    with serve() as server:
        client(server).run([ask("p", sampling=sampling, schema=schema)])
    [body] = server.bodies
    form = body.pop("response_format")
    assert (form["type"], form["json_schema"]["schema"]) == ("json_schema", schema)
    assert body == {
        "model": "judge",
        "messages": [{"role": "user", "content": "p"}],
        "max_tokens": 7,
        "temperature": 0.5,
        "top_p": 0.9,
    }


def test_a_key_that_no_header_can_carry_is_refused_and_never_shown():
    with pytest.raises(ValueError, match="API key") as refused:
        Endpoint("http://127.0.0.1:9/v1", "judge", key="se\ncret")
    assert "cret" not in str(refused.value)


def test_a_server_that_refuses_schemas_is_asked_without_from_then_on():
    def behave(body, attempt):
        error = refuse(400, "unknown field: response_format")
        return error if "response_format" in body else echo(body, attempt)

    with serve(behave) as server, pytest.warns(UserWarning, match="without a schema"):
        llm = client(server, limits=Limits(attempts=1, concurrency=1))
        replies = llm.run(asks(3, schema={"type": "object"}))
    assert [r.text for r in replies] == ["echo p0", "echo p1", "echo p2"]
    assert server.prompts() == ["p0", "p0", "p0", "p1", "p2"]
    reply, calls = reply_to(refuse(400, "prompt too long"), schema={"type": "object"})
    assert (reply.text, calls) == (None, 1)


def test_a_server_that_refuses_a_schemas_bounds_is_asked_without_them():
    schema = Choice.model_json_schema()

    def behave(body, attempt):
        error = refuse(400, "Invalid schema: 'maxLength' is not permitted.")
        return error if "maxLength" in json.dumps(body) else echo(body, attempt)

    with serve(behave) as server, pytest.warns(UserWarning, match="without the bounds"):
        llm = client(server, limits=Limits(attempts=1, concurrency=1))
        llm.run(asks(2, schema=schema))
    assert server.prompts() == ["p0", "p0", "p1"]
    asked = server.bodies[-1]["response_format"]["json_schema"]["schema"]
    assert list(asked["properties"]) == list(schema["properties"])
    assert asked["properties"]["reason"] == {"type": "string"}
    assert asked["properties"]["label"] == schema["properties"]["label"]


# Limits and totals


def test_a_call_cap_ends_calls_and_every_request_says_so():
    with serve() as server:
        llm = client(server, limits=Limits(max_calls=5))
        replies = llm.run(asks(20)) + llm.run([ask("later")])
        assert len(server.bodies) == 5
    assert sum(r.text is not None for r in replies) == 5
    assert {r.error for r in replies if r.text is None} == {"call cap of 5 reached"}
    # retries count against it
    reply, calls = reply_to(refuse(500), Limits(max_calls=2))
    assert (reply, calls) == (Reply(None, "call cap of 2 reached"), 2)


def test_all_judges_of_a_process_are_under_one_limit_and_keep_their_connections():
    with serve() as server:
        first, second = (client(server, limits=Limits(concurrency=4)) for _ in "ab")
        work = [llm.complete(r) for llm in (first, second) for r in asks(20)]
        assert [r.text for r in run_all(work)] == [f"echo p{i}" for i in range(20)] * 2
        assert server.most_at_once == 4
        first.run(asks(20))
        assert len(server.connections) == 4


# The cache


def test_a_rerun_makes_no_call_and_equal_requests_one(tmp_path):
    with serve() as server:
        first = client(server, tmp_path)
        first.run([*asks(4), *asks(4), ask("p0", sample=1)])
        replies = client(server, tmp_path).run(asks(4))
        assert len(server.bodies) == 5
    assert [r.text for r in replies] == [f"echo p{i}" for i in range(4)]
    totals = first.totals
    assert (totals.calls, totals.prompt_tokens, totals.completion_tokens) == (5, 50, 25)


# Loops


def test_run_works_inside_a_running_loop_and_an_interrupt_ends_its_calls():
    async def cell():
        return client(server).run([ask("p")])

    with serve() as server:
        assert asyncio.run(cell())[0].text == "echo p"
    with serve(lambda b, n: HANG) as server:
        loop = asyncio.new_event_loop()  # asyncio.run would take the signal
        threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
        begin = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(cell())
        assert time.monotonic() - begin < QUICK.timeout_s
        loop.close()


# Proxies, and caches that hold something else


def test_a_judge_on_this_machine_is_asked_without_the_environments_proxy(monkeypatch):
    for name in ("http_proxy", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "socks5://127.0.0.1:9")
    with serve(echo) as server:
        (reply,) = client(server).run([ask("p")])
    assert reply.text == "echo p"


@pytest.mark.parametrize("row", [{"answer": 1}, [1], "text", {"text": 5}])
def test_a_cached_row_that_is_no_reply_is_named_and_asked_for_again(row, tmp_path):
    with serve(echo) as server:
        llm = client(server, tmp_path)
        key = cache_key(llm.endpoint.identity, ask("p"))
        llm._cache.set(key, row)
        with pytest.warns(UserWarning, match=f"row {key} is not a reply"):
            (reply,) = llm.run([ask("p")])
        assert reply.text == "echo p"
        assert llm.run([ask("p")]) == [reply] and len(server.bodies) == 1


def test_a_key_that_the_server_repeats_is_not_told():
    def repeat(body, attempt):
        return refuse(401, "no such key: sk-Zq7 of facts")

    with serve(repeat) as server:
        headers = {"X-Team": "facts"}
        endpoint = Endpoint(server.url, "judge", key="sk-Zq7", headers=headers)
        (reply,) = LLM(endpoint, None, QUICK).run([ask("p")])
    assert "HTTP 401" in reply.error and "sk-Zq7" not in reply.error
    assert "facts" not in reply.error


def test_the_environments_proxy_is_found_for_https_to_other_machines(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    find = connections.find_proxy
    assert find("https://judge.example/v1") is None
    monkeypatch.setenv("https_proxy", "proxy.example:8080")
    assert find("https://judge.example/v1") == "http://proxy.example:8080"
    assert find("http://127.0.0.1:8001/v1") is None
    monkeypatch.setenv("no_proxy", "judge.example")
    assert find("https://judge.example/v1") is None
    monkeypatch.setenv("https_proxy", "socks5://proxy.example:1080")
    with pytest.raises(ParamError, match="not for HTTP"):
        find("https://other.example/v1")
