"""Calls to language models: nothing raised, nothing lost, nothing paid for twice."""

import asyncio
import gzip
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
import types
from email.utils import format_datetime, parsedate_to_datetime

import pytest
from fake_endpoint import HANG, answer, echo, prompt_of, refuse, serve

from factkit import http_client, models
from factkit.backends import Endpoint, Transformers
from factkit.llm import LLM, Limits, Reply, Request, cache_key
from factkit.retries import retry_after_s

QUICK = Limits(timeout_s=5, attempts=3, backoff_s=0.01)


def ask(prompt, **fields):
    return Request(({"role": "user", "content": prompt},), **fields)


def asks(n, **fields):
    return [ask(f"p{i}", **fields) for i in range(n)]


def client(server, cache=None, limits=QUICK, **fields):
    return LLM(Endpoint(server.url, "judge"), cache, limits, **fields)


class Parrot:
    """A local model that answers each prompt with itself, two prompts at a time."""

    name = "parrot"

    def __init__(self):
        self.lists = []

    def generate(self, requests):
        self.lists.append(list(requests))
        for start in range(0, len(requests), 2):
            rows = range(start, min(start + 2, len(requests)))
            texts = [requests[i].messages[-1]["content"] for i in rows]
            yield [
                (i, Reply(t, prompt_tokens=1)) for i, t in zip(rows, texts, strict=True)
            ]


# A bad server


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


@pytest.fixture(scope="module")
def after_bad_day(tmp_path_factory):
    """2,000 calls to a bad server: what it saw, what came back, how long it took."""
    requests = asks(2000)
    limits = Limits(concurrency=64, timeout_s=2, attempts=4, backoff_s=0.02)
    with serve(bad_day) as server:
        llm = client(server, tmp_path_factory.mktemp("cache"), limits)
        begin = time.monotonic()
        replies = llm.run(requests)
        seconds = time.monotonic() - begin
        first, at_once = llm.totals, server.most_at_once
        rerun = client(server, llm._cache.directory, limits)
        before = len(server.bodies)
        again = rerun.run(requests)
        asked_again = server.prompts()[before:]
    return types.SimpleNamespace(**locals())


def test_every_request_of_a_bad_day_has_its_own_text_or_an_error(after_bad_day):
    day = after_bad_day
    assert len(day.replies) == 2000
    for request, reply in zip(day.requests, day.replies, strict=True):
        if reply.text is None:
            assert reply.error
        else:
            assert reply.text == f"echo {request.messages[0]['content']}"
    answered = sum(reply.text is not None for reply in day.replies)
    assert answered > 1900
    assert day.first.failed == 2000 - answered


def test_the_attempts_of_a_bad_day_are_bounded_and_all_counted(after_bad_day):
    day = after_bad_day
    # a call may time out before it reaches a busy machine's server
    assert day.before <= day.first.calls <= 4 * 2000
    assert day.first.calls == 2000 + day.first.retries > 2000


def test_the_server_never_meets_more_calls_at_once_than_the_limit(after_bad_day):
    assert 32 < after_bad_day.at_once <= 64


def test_hanging_calls_do_not_hang_the_batch(after_bad_day):
    assert after_bad_day.seconds < 120


def test_a_rerun_asks_only_for_what_failed(after_bad_day):
    day = after_bad_day
    failed = {
        request.messages[0]["content"]
        for request, reply in zip(day.requests, day.replies, strict=True)
        if reply.text is None
    }
    assert set(day.asked_again) == failed
    assert day.rerun.totals.cached == 2000 - len(failed)


# Retries


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
def test_a_passing_failure_is_asked_again(status):
    with serve(lambda b, n: refuse(status) if n == 0 else echo(b, n)) as server:
        llm = client(server)
        assert llm.run([ask("p")])[0].text == "echo p"
    assert (llm.totals.calls, llm.totals.retries) == (2, 1)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_lasting_failure_is_not_asked_again(status):
    with serve(lambda b, n: refuse(status, "because")) as server:
        [reply] = client(server).run([ask("p")])
        assert len(server.bodies) == 1
    assert reply.text is None
    assert f"HTTP {status}" in reply.error and "because" in reply.error


def test_a_failure_that_stays_ends_after_the_attempts():
    with serve(lambda b, n: refuse(500)) as server:
        [reply] = client(server).run([ask("p")])
        assert len(server.bodies) == QUICK.attempts
    assert "HTTP 500" in reply.error


def test_a_server_that_hangs_is_a_failure_that_names_the_timeout():
    with serve(lambda b, n: HANG) as server:
        limits = Limits(timeout_s=2, attempts=2, backoff_s=0.01)
        [reply] = client(server, limits=limits).run([ask("p")])
        assert len(server.bodies) == 2
    assert reply == Reply(None, "no answer within 2 s")


def test_a_server_that_is_not_there_is_a_failure():
    with serve() as server:
        pass
    [reply] = client(server).run([ask("p")])
    assert reply.text is None and "Connection" in reply.error


def test_retry_after_is_waited_for():
    def behave(body, attempt):
        return refuse(429, Retry_After="1") if attempt == 0 else echo(body, attempt)

    with serve(behave) as server:
        assert client(server).run([ask("p")])[0].text == "echo p"
        assert server.arrivals[1] - server.arrivals[0] >= 1


@pytest.mark.parametrize(
    "header, seconds",
    [
        ("7", 7),
        ("0.5", 0.5),
        ("-3", 0),
        ("86400", 60),
        ("inf", 60),
        ("Wed, 21 Oct 2015 07:28:30 GMT", 30),
        ("Wed, 21 Oct 2015 07:27:00 GMT", 0),
        ("Thu, 22 Oct 2015 07:28:00 GMT", 60),
        ("soon", None),
        ("nan", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_never_more_than_a_minute(header, seconds):
    now = parsedate_to_datetime("Wed, 21 Oct 2015 07:28:00 GMT")
    assert format_datetime(now, usegmt=True) == "Wed, 21 Oct 2015 07:28:00 GMT"
    assert retry_after_s(header, now.timestamp()) == seconds


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_stops_the_remaining_calls(status):
    with serve(lambda b, n: refuse(status, "bad key")) as server:
        replies = client(server, limits=Limits(concurrency=2)).run(asks(50))
        assert len(server.bodies) <= 3
    assert len(replies) == 50
    assert all(r.text is None and f"HTTP {status}" in r.error for r in replies)


def test_a_refused_call_leaves_the_others_alone():
    def behave(body, attempt):
        return refuse(400) if prompt_of(body) == "p1" else echo(body, attempt)

    with serve(behave) as server:
        texts = [reply.text for reply in client(server).run(asks(3))]
    assert texts == ["echo p0", None, "echo p2"]


# What counts as an answer


@pytest.mark.parametrize(
    "bad",
    [
        answer(""),
        answer(None),
        answer(" \n"),
        (200, {"id": "x", "choices": []}, {}),
        (200, {"id": "x"}, {}),
        (200, {"choices": None}, {}),
        (200, [], {}),
        (200, "<html>welcome</html>", {}),
        (200, "{broken", {"Content-Type": "application/json"}),
    ],
)
def test_an_answer_without_text_is_a_failure(bad):
    with serve(lambda b, n: bad) as server:
        [reply] = client(server).run([ask("p")])
    assert reply.text is None and reply.error


def test_a_text_cut_for_length_is_returned_as_it_is():
    with serve(lambda b, n: answer(" It is tr", "length")) as server:
        assert client(server).run([ask("p")])[0].text == " It is tr"


@pytest.mark.parametrize("reason", ["length", "content_filter", None])
def test_a_text_that_the_model_did_not_end_is_not_finished(reason, tmp_path):
    with serve(lambda b, n: answer('{"score": 1}', reason)) as server:
        llm = client(server, cache=tmp_path)
        for _ in range(2):  # from the cache, too
            [reply] = llm.run([ask("p")])
            assert reply.finish_reason == (reason or "") and not reply.finished
    with serve(lambda b, n: answer('{"score": 1}')) as server:
        assert client(server).run([ask("p")])[0].finished


def test_replies_come_in_the_requests_order():
    def behave(body, attempt):  # the even ones late
        late = int(prompt_of(body)[1:]) % 2 == 0 and attempt == 0
        return refuse(500) if late else echo(body, attempt)

    with serve(behave) as server:
        replies = client(server).run(asks(40))
    assert [r.text for r in replies] == [f"echo p{i}" for i in range(40)]


def test_the_call_carries_model_messages_and_sampling():
    sampling = models.Sampling(7, temperature=0.5, top_p=0.9)
    with serve() as server:
        LLM(Endpoint(server.url, "judge")).run([ask("p", sampling=sampling)])
    assert server.bodies == [
        {
            "model": "judge",
            "messages": [{"role": "user", "content": "p"}],
            "max_tokens": 7,
            "temperature": 0.5,
            "top_p": 0.9,
        }
    ]


def test_a_key_that_no_header_can_carry_is_refused_and_never_shown():
    llm = LLM(Endpoint("http://127.0.0.1:9/v1", "judge", api_key="se\ncret"))
    with pytest.raises(ValueError, match="API key") as refused:
        llm.run([ask("p")])
    assert "cret" not in str(refused.value)


def test_text_that_cannot_be_sent_fails_alone():
    with serve() as server:
        replies = client(server).run([ask("\ud800"), ask("p")])
    assert replies[0].text is None and replies[0].error
    assert replies[1].text == "echo p"


# Structured output

SCHEMA = {"type": "object", "properties": {"label": {"type": "string"}}}


def test_the_schema_reaches_the_server():
    with serve() as server:
        client(server).run([ask("p", schema=SCHEMA)])
        sent = server.bodies[0]["response_format"]
    assert (sent["type"], sent["json_schema"]["schema"]) == ("json_schema", SCHEMA)


def no_schemas(body, attempt):
    unknown = refuse(400, "unknown field: response_format")
    return unknown if "response_format" in body else echo(body, attempt)


@pytest.mark.filterwarnings("ignore:asking without a schema")
def test_a_server_without_schemas_is_asked_once_more_and_then_without():
    with serve(no_schemas) as server:
        llm = client(server, limits=Limits(attempts=1, concurrency=1))
        replies = llm.run(asks(3, schema=SCHEMA))
        assert [r.text for r in replies] == ["echo p0", "echo p1", "echo p2"]
        assert server.prompts() == ["p0", "p0", "p1", "p2"]


@pytest.mark.filterwarnings("ignore:asking without a schema")
@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "This response_format type is unavailable now"),
        (400, "Failed to convert the schema to a grammar"),
        (400, "guided decoding is not supported"),
        (422, "response_format.json_schema: unexpected field"),
    ],
)
def test_a_server_that_refuses_schemas_in_its_own_words_is_asked_without(
    status, message
):
    def behave(body, attempt):
        return refuse(status, message) if "response_format" in body else answer("ok")

    with serve(behave) as server:
        llm = client(server, limits=Limits(attempts=1, concurrency=1))
        assert [r.text for r in llm.run(asks(3, schema=SCHEMA))] == ["ok"] * 3
        assert len(server.bodies) == 4


def test_asking_without_a_schema_is_said_once():
    with serve(no_schemas) as server, pytest.warns(UserWarning) as said:
        client(server).run(asks(3, schema=SCHEMA))
    assert len([w for w in said if "without a schema" in str(w.message)]) == 1


def test_another_400_is_not_sent_again_for_its_schema():
    with serve(lambda b, n: refuse(400, "prompt too long")) as server:
        client(server).run([ask("p", schema=SCHEMA)])
        assert len(server.bodies) == 1


# Limits and totals


def test_a_call_cap_ends_calls_and_every_request_says_so():
    with serve() as server:
        llm = client(server, limits=Limits(max_calls=5))
        replies = llm.run(asks(20)) + llm.run([ask("later")])
        assert len(server.bodies) == 5
    assert sum(r.text is not None for r in replies) == 5
    assert {r.error for r in replies if r.text is None} == {"call cap of 5 reached"}


def test_a_token_cap_ends_calls():
    with serve() as server:
        llm = client(server, limits=Limits(concurrency=1, max_tokens=40))
        replies = llm.run(asks(20))
        assert len(server.bodies) == 3  # of 15 tokens each
    assert replies[3] == Reply(None, "token cap of 40 reached")


def test_retries_count_against_the_call_cap():
    with serve(lambda b, n: refuse(500)) as server:
        limits = Limits(max_calls=2, backoff_s=0.01)
        [reply] = client(server, limits=limits).run([ask("p")])
        assert len(server.bodies) == 2
    assert reply == Reply(None, "call cap of 2 reached")


def test_totals_hold_tokens_and_their_price(tmp_path):
    with serve() as server:
        llm = client(server, tmp_path, prices=(2.0, 10.0))
        llm.run(asks(4))
        llm.run(asks(4))
    totals = llm.totals
    assert (totals.prompt_tokens, totals.completion_tokens) == (40, 20)
    assert totals.cost == pytest.approx((40 * 2 + 20 * 10) / 1e6)


def test_every_request_is_either_called_or_cached_or_failed():
    def behave(body, attempt):
        return refuse(400) if prompt_of(body) == "p1" else echo(body, attempt)

    with serve(behave) as server:
        llm = client(server)
        llm.run(asks(4) + asks(4))
    assert llm.totals.failed == 2
    assert llm.totals.cached == 3
    assert llm.totals.calls == 4  # 3 answered


def test_calls_of_complete_under_way_together_share_the_limit():
    async def both():
        limits = Limits(concurrency=4)
        llm = client(server, limits=limits)
        return await asyncio.gather(*(llm.complete([r]) for r in asks(30)))

    with serve() as server:
        replies = asyncio.run(both())
        assert server.most_at_once <= 4
    assert [r.text for [r] in replies] == [f"echo p{i}" for i in range(30)]


@pytest.mark.parametrize("bad", [{"concurrency": 0}, {"attempts": 0}, {"timeout_s": 0}])
def test_a_limit_that_would_never_end_is_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Limits(**bad)


# Counts of tokens


def counting(prompt_tokens, completion_tokens=5):
    """A server that says this of its tokens."""
    status, body, headers = answer("yes")
    counts = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    return lambda b, n: (status, body | {"usage": counts}, headers)


NO_COUNTS = [
    *(None, "10", "many", 10.5, float("nan"), float("inf"), -10, True, [10], {}),
    10**30,
]


@pytest.mark.parametrize("count", NO_COUNTS)
def test_a_count_that_is_none_costs_no_reply_and_disarms_no_cap(count):
    limits = Limits(concurrency=1, timeout_s=5, attempts=1, max_tokens=2500)
    with serve(counting(count)) as server, pytest.warns(UserWarning, match="count"):
        llm = client(server, limits=limits, prices=(1.0, 1.0))
        replies = llm.run([ask(f"{i}" * 500) for i in range(9)])
        assert len(server.bodies) == 3  # of 500 bytes, and 512 tokens asked for
    assert [reply.text for reply in replies] == ["yes"] * 3 + [None] * 6
    assert {reply.error for reply in replies[3:]} == {"token cap of 2500 reached"}
    assert math.isfinite(llm.totals.cost)


@pytest.mark.parametrize("usage", [None, "none", 7, []])
def test_a_usage_that_is_none_costs_no_reply(usage):
    status, body, headers = answer("yes")
    reply = (status, body | {"usage": usage}, headers)
    with serve(lambda b, n: reply) as server, pytest.warns(UserWarning, match="count"):
        llm = client(server)
        assert [r.text for r in llm.run(asks(3))] == ["yes"] * 3
    assert llm.totals.prompt_tokens == 6


# Replies that are too long, or lead elsewhere


def test_a_reply_beyond_its_bound_is_a_failure_that_is_not_asked_for_again(monkeypatch):
    monkeypatch.setattr(http_client, "REPLY_BYTES", 100_000)
    with serve(lambda b, n: answer("x" * 200_000)) as server:
        [reply] = client(server).run([ask("p")])
        assert len(server.bodies) == 1
    assert reply == Reply(None, "BadReply: a reply of more than 100000 bytes")


def test_a_packed_reply_is_not_unpacked():
    packed = gzip.compress(b"x" * 1_000_000)
    with serve(lambda b, n: (200, packed, {"Content-Encoding": "gzip"})) as server:
        [reply] = client(server).run([ask("p")])
    assert (reply.text, "packed" in reply.error) == (None, True)


def test_a_redirect_is_not_followed():
    there = []

    def elsewhere(body, attempt):
        there.append(body)
        return echo(body, attempt)

    with serve(elsewhere) as other:
        address = f"{other.url}/chat/completions"
        with serve(lambda b, n: (307, "", {"Location": address})) as server:
            [reply] = client(server).run([ask("p")])
    assert (reply.text, there) == (None, [])
    assert "HTTP 307" in reply.error


# The cache


def test_a_rerun_makes_no_call(tmp_path):
    with serve() as server:
        client(server, tmp_path).run(asks(10))
        replies = client(server, tmp_path).run(asks(10))
        assert len(server.bodies) == 10
    assert all(r.cached and r.text == f"echo p{i}" for i, r in enumerate(replies))


def test_failures_are_not_cached(tmp_path):
    with serve(lambda b, n: refuse(400) if n == 0 else echo(b, n)) as server:
        assert client(server, tmp_path).run([ask("p")])[0].text is None
        assert client(server, tmp_path).run([ask("p")])[0].text == "echo p"


def test_equal_requests_are_sent_once_and_others_apart():
    with serve() as server:
        replies = client(server).run([ask("p"), ask("p"), ask("p", sample=1)])
        assert len(server.bodies) == 2
    assert [r.cached for r in replies] == [False, True, False]


@pytest.mark.parametrize(
    "change",
    [
        {"template": "judge-2"},
        {"sample": 1},
        {"schema": SCHEMA},
        {"sampling": models.Sampling(513)},
        {"sampling": models.Sampling(512, temperature=0.1)},
        {"sampling": models.Sampling(512, top_p=0.9)},
    ],
)
def test_a_changed_field_is_asked_anew(change):
    assert cache_key("m", ask("p", **change)) != cache_key("m", ask("p"))


def test_the_batch_size_is_no_part_of_the_key():
    other = ask("p", sampling=models.Sampling(512, batch_size=1))
    assert cache_key("m", other) == cache_key("m", ask("p"))


def test_the_order_of_a_schemas_fields_is_part_of_the_key():
    one, other = (ask("p", schema=s) for s in ({"a": 1, "b": 2}, {"b": 2, "a": 1}))
    assert cache_key("m", one) != cache_key("m", other)


def test_another_server_with_the_same_model_is_asked_anew(tmp_path):
    with serve() as one, serve(lambda b, n: answer("another verdict")) as other:
        assert client(one, tmp_path).run([ask("p")])[0].text == "echo p"
        assert client(other, tmp_path).run([ask("p")])[0].text == "another verdict"
        assert (len(one.bodies), len(other.bodies)) == (1, 1)


@pytest.mark.parametrize(
    "spelling", ["http://HOST/v1/", "http://host:80/v1", "http://me:pw@host/v1#x"]
)
def test_an_endpoint_is_one_however_its_address_is_spelt(spelling):
    name = Endpoint(spelling, "judge").name
    assert name == Endpoint("http://host/v1", "judge").name
    assert "pw" not in name


def test_text_that_is_no_unicode_survives_the_cache(tmp_path):
    class Odd(Parrot):
        def generate(self, requests):
            yield [(0, Reply("half \ud83d"))]

    first = LLM(Odd(), tmp_path).run([ask("p")])
    assert LLM(Odd(), tmp_path).run([ask("p")])[0].text == first[0].text


def test_a_cache_that_cannot_be_written_costs_no_answer(tmp_path, monkeypatch):
    llm = LLM(Parrot(), tmp_path)

    def full(*_, **__):
        raise OSError("no space left on device")

    monkeypatch.setattr(llm._cache, "set", full)
    with pytest.warns(UserWarning, match="no space left"):
        assert llm.run([ask("p")])[0].text == "p"


WRITER = """
import sys
sys.path[:0] = sys.argv[3:]
from pathlib import Path
from test_llm import LLM, Parrot, ask
me, folder = int(sys.argv[1]), Path(sys.argv[2])
shared = [ask(f"shared{i}") for i in range(50)]
own = [ask(f"own{me}-{i}") for i in range(50)]
assert all(r.text for r in LLM(Parrot(), folder).run(shared + own))
"""


def test_sixteen_processes_at_once_do_not_harm_the_cache(tmp_path):
    folder = tmp_path / "cache"
    command = [sys.executable, "-c", WRITER]
    writers = [
        subprocess.Popen([*command, str(me), str(folder), *sys.path])
        for me in range(16)
    ]
    assert [writer.wait(120) for writer in writers] == [0] * 16
    names = [f"shared{i}" for i in range(50)]
    names += [f"own{me}-{i}" for me in range(16) for i in range(50)]
    parrot = Parrot()
    llm = LLM(parrot, folder)
    assert [r.text for r in llm.run([ask(name) for name in names])] == names
    assert parrot.lists == []
    assert llm._cache.check() == []


# Loops


def test_run_works_inside_a_running_loop():
    async def cell():
        return client(server).run([ask("p")])

    with serve() as server:
        assert asyncio.run(cell())[0].text == "echo p"


def test_one_llm_works_in_one_loop_after_another():
    with serve() as server:
        llm = client(server)
        texts = [asyncio.run(llm.complete([ask(p)]))[0].text for p in "abc"]
    assert texts == ["echo a", "echo b", "echo c"]


def test_an_interrupt_inside_a_running_loop_ends_the_calls():
    async def cell():
        threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
        llm.run([ask("p")])

    with serve(lambda b, n: HANG) as server:
        llm = client(server, limits=Limits(timeout_s=60))
        loop = asyncio.new_event_loop()  # asyncio.run would take the signal
        begin = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(cell())
        assert time.monotonic() - begin < 30
        loop.close()


def test_a_progress_bar_counts_every_request(capsys):
    with serve() as server:
        client(server).run([*asks(3), *asks(3)], progress="judging")
    assert "judging: 100%" in capsys.readouterr().err.splitlines()[-1]


# Local models


def test_a_local_model_gets_all_that_is_not_cached_at_once(tmp_path):
    parrot = Parrot()
    llm = LLM(parrot, tmp_path)
    llm.run(asks(3))
    replies = llm.run(asks(8))
    assert [len(batch) for batch in parrot.lists] == [3, 5]
    assert [r.text for r in replies] == [f"p{i}" for i in range(8)]


def test_what_a_local_model_did_before_it_broke_is_cached(tmp_path):
    class Breaks(Parrot):
        def generate(self, requests):
            yield next(super().generate(requests))
            raise MemoryError

    with pytest.raises(MemoryError):
        LLM(Breaks(), tmp_path).run(asks(4))
    assert [r.cached for r in LLM(Parrot(), tmp_path).run(asks(4))] == [
        *[True, True],
        *[False, False],
    ]


def test_caps_hold_for_a_local_model():
    limited = LLM(Parrot(), limits=Limits(max_calls=3)).run(asks(6))
    assert [r.text for r in limited] == ["p0", "p1", "p2", None, None, None]
    assert limited[5].error == "call cap of 3 reached"
    dear = LLM(Parrot(), limits=Limits(max_tokens=3)).run(asks(6))
    assert [r.text for r in dear] == ["p0", "p1", "p2", "p3", None, None]
    assert dear[5].error == "token cap of 3 reached"


CHAT = (
    "{% for m in messages %}{{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %}Answer:{% endif %}"
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A random two-layer Llama, saved, and questions in its words."""
    from transformers import LlamaConfig, LlamaForCausalLM, set_seed

    from factkit.world import facts as world
    from factkit.world import texts as world_text

    made = world.build_world(people=40, seed=0)
    tokenizer = world_text.build_tokenizer(made)
    set_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    folder = tmp_path_factory.mktemp("tiny")
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    questions = [e.question for e in world.questions(made)[:7]]
    return folder, questions


def short(questions, n=6, **fields):
    return [ask(q, sampling=models.Sampling(n, **fields)) for q in questions]


def test_transformers_answers_do_not_depend_on_the_batch(saved):
    folder, questions = saved
    requests = short(questions[:4]) + short(questions[4:], n=3)
    backend, texts = Transformers(str(folder)), []
    for backend.batch_size in (1, 4):
        texts.append([r.text for r in LLM(backend).run(requests)])
    assert texts[0] == texts[1]
    assert all(texts[0])


def test_transformers_counts_tokens(saved):
    folder, questions = saved
    backend = Transformers(str(folder))
    lengths = [len(backend.tokenizer(q)["input_ids"]) for q in questions]
    replies = LLM(backend).run(short(questions))
    assert [r.prompt_tokens for r in replies] == lengths
    assert all(1 <= r.completion_tokens <= 6 for r in replies)


def test_transformers_uses_the_chat_template_where_there_is_one(saved):
    folder, questions = saved
    backend = Transformers(str(folder))
    two = Request(
        ({"role": "system", "content": "a"}, {"role": "user", "content": "b"})
    )
    assert backend._prompt(two) == "a\nb"
    backend.tokenizer.chat_template = CHAT
    assert backend._prompt(two) == "a b Answer:"


def test_transformers_says_whether_the_model_ended_its_answer(saved):
    folder, questions = saved
    backend = Transformers(str(folder))
    for ends, reason in ((range(1, len(backend.tokenizer)), "stop"), ([0], "length")):
        backend._end_tokens = lambda ends=ends: list(ends)
        replies = LLM(backend).run(short(questions))
        assert {r.finish_reason for r in replies} == {reason}


def test_reasoning_that_the_chat_template_opened_is_part_of_the_reply(saved):
    folder, questions = saved
    backend = Transformers(str(folder))
    for template, opened in ((CHAT, False), (CHAT + "<think>\n", True)):
        backend.tokenizer.chat_template = template
        [reply] = LLM(backend).run(short(questions[:1]))
        assert reply.text.startswith("<think>") == opened


def test_a_prompt_too_long_for_the_model_fails_alone(saved):
    folder, questions = saved
    long = " ".join(questions * 2)
    replies = LLM(Transformers(str(folder))).run(short([*questions, long]))
    assert all(r.text for r in replies[:-1])
    assert replies[-1].text is None and "context" in replies[-1].error


def test_sampled_answers_differ_by_sample_and_leave_the_random_state(saved):
    import torch

    folder, questions = saved
    sampling = models.Sampling(6, temperature=1.0)
    requests = [ask(questions[0], sampling=sampling, sample=i) for i in range(4)]
    torch.manual_seed(1)
    before = torch.get_rng_state()
    replies = LLM(Transformers(str(folder))).run(requests)
    assert len({r.text for r in replies}) > 1
    assert torch.equal(torch.get_rng_state(), before)


def test_new_weights_in_a_folder_are_another_model(saved):
    folder, _ = saved
    before = Transformers(str(folder)).name
    os.utime(folder / "model.safetensors", ns=(0, 0))
    assert Transformers(str(folder)).name != before


# Imports


def test_importing_it_loads_no_heavy_library():
    heavy = ["torch", "transformers", "vllm", "openai", "tenacity", "diskcache", "tqdm"]
    code = f"import sys, factkit.backends; print(*({set(heavy)} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == []
    assert done.returncode == 0
