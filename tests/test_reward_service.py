"""The reward service: the rewards of a run in process, and what it refuses."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from factkit import (
    http_client,
    params,
    reward_client,
    reward_service,
    runs,
    serving,
)
from factkit.datasets import world_prompts as wp
from factkit.datasets.examples import DataError, write_examples
from factkit.params.files import ROOT, ParamError
from factkit.reward_client import RewardServiceError, remote
from factkit.reward_service import Limits, Service
from factkit.rewards import reason
from factkit.verify.engine import REFERENCES
from factkit.verify.exact import ExactEngine, WorldReader
from factkit.verify.response import TAGS, written
from factkit.world import facts as w

SIZE = {"world_people": 30}
P = params.load("reason", "tiny", SIZE)
WORLD = w.build_world(people=30, seed=P.world_seed)
KINDS = (wp.OPEN, wp.COUNTED, wp.MAY_ABSTAIN)
EXAMPLES = [e for kind in KINDS for e in wp.requests(WORLD, WORLD.people[:4], kind)]
BY_ID = {e.id: e for e in EXAMPLES}
REFERENCE = {e.id: e.answers[0][: 40 * (i % 3)] for i, e in enumerate(EXAMPLES)}
ENGINE = ExactEngine(WorldReader(WORLD), BY_ID, REFERENCE)
ABOUT = {"paper": "reason", "profile": "tiny", "variant": ""}
SECRET = "zq7secret"
TEXTS = [
    "",
    " \n",
    "no tags",
    "<think>a</think>",
    "<think></think><answer></answer>",
    "<think>x</think> <answer>y</answer> z",
    "<think>ä ½ 漢字 🦜 \u202e rtl</think>\n<answer>naïve – “quotes”</answer>",
    '<think>"], "arm": "fact"}</think><answer>\\u0000 \x00 \x1b[31m \\ {} %s</answer>',
    "<think>half a character \ud800</think><answer>\udfff</answer>",
    "<think>a</think><answer><script>alert(1)</script>'; DROP TABLE</answer>",
    written("long", "word " * 20_000),
]


def stating(example, n):
    """A well-formed response that states n of a person's facts, and a false one."""
    facts = WORLD.facts_of(example.entity)
    said = [w.statement(fact) for fact in facts[:n]]
    wrong = next(o for o in w.OBJECTS[facts[-1].relation] if o != facts[-1].object)
    said.append(w.statement(w.Fact(example.entity, facts[-1].relation, wrong)))
    return written(f"I know {n} facts", " ".join(said))


def columns(examples, responses):
    """What `scored` takes, beside arm and engine."""
    return [e.id for e in examples], [e.question for e in examples], list(responses)


ROWS = columns(
    [EXAMPLES[i % len(EXAMPLES)] for i in range(len(TEXTS))] + EXAMPLES,
    TEXTS + [stating(e, i % 4) for i, e in enumerate(EXAMPLES)],
)
ONE = columns(EXAMPLES[:1], [stating(EXAMPLES[0], 2)])


def bound(host, port, token):
    return serving.bound(host, port, token, reward_service.TOKEN_VARIABLE)


@contextmanager
def serving_engine(engine=ENGINE, token="", listening=None, **limits):
    """The real server in a thread; its URL."""
    service = Service(engine, BY_ID, Limits(**limits))
    listening = listening or bound("127.0.0.1", 0, token)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    web = reward_service.web(service, ABOUT, token)
    server = serving.server(web, service.limits.drain_s)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        until(lambda: server.started)
        yield url
    finally:
        server.should_exit = True
        thread.join()


def until(true):
    """Wait for it; a minute and a half at most, however busy the machine."""
    for _ in range(9000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it never came true")


def at(url, arm="fact_relevance"):
    return P.model_copy(update={"reward_url": url, "arm": arm})


def post(url, rows=ONE, arm="fact", **headers):
    body = {"arm": arm} | dict(zip(reward_service.COLUMNS, rows, strict=True))
    content = json.dumps(body)
    return httpx.post(f"{url}/rewards", content=content, headers=headers, timeout=90)


def health(url):
    return httpx.get(f"{url}/health").json()


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No token of the user's, and an end to retries where a test fails."""
    monkeypatch.delenv(reward_service.TOKEN_VARIABLE, raising=False)
    monkeypatch.setattr(reward_client, "PATIENCE_S", 60)


@pytest.fixture(scope="module")
def url():
    with serving_engine() as found:
        yield found


@pytest.fixture(scope="module")
def ask(url):
    return remote(at(url))


@pytest.fixture
def impatient(monkeypatch):
    """A request is tried once."""
    monkeypatch.setattr(reward_client, "PATIENCE_S", 0)


@pytest.fixture
def retried(monkeypatch):
    """The seconds that the client waits before each retry, as they are set."""
    waits = []
    monkeypatch.setattr(
        reward_client, "_warn", lambda state: waits.append(state.upcoming_sleep)
    )
    return waits


class Spy(ExactEngine):
    """Exact; keeps the responses of each call, and lets a test hold or fail it."""

    def __init__(self, before=lambda call: None):
        super().__init__(WorldReader(WORLD), BY_ID, REFERENCE)
        object.__setattr__(self, "calls", [])
        object.__setattr__(self, "before", before)

    def supports(self, ids, prompts, responses):
        self.calls.append(list(responses))
        self.before(len(self.calls))
        return super().supports(ids, prompts, responses)


# Rewards


@pytest.mark.parametrize("arm", reason.WEIGHTS)
def test_rewards_by_url_are_those_in_process(url, arm):
    expected = reason.scored(arm, ENGINE, *ROWS)
    assert len({of.reward for of in expected}) >= 5
    assert remote(at(url, arm))(*ROWS) == expected


WORDS = st.text() | st.sampled_from([*TAGS, *TEXTS[:-1]])


@given(st.lists(st.lists(WORDS).map("".join), max_size=5))
@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_a_policy_writes_comes_back_as_it_was(ask, texts):
    rows = columns(EXAMPLES[: len(texts)], texts)
    assert ask(*rows) == reason.scored("fact_relevance", ENGINE, *rows)


def test_trl_s_rewards_and_metrics_are_those_in_process(url):
    ids, prompts, responses = ROWS
    chats = [[{"role": "assistant", "content": text}] for text in responses]
    found = []
    for score in (
        lambda *rows: reason.scored("fact_relevance", ENGINE, *rows),
        remote(at(url)),
    ):
        logged = {}
        reward = reason.trl_reward("fact_relevance", score)
        asked = {"id": ids, "question": prompts, "log_metric": logged.__setitem__}
        found.append((reward(completions=chats, **asked), logged))
    assert found[0] == found[1]
    assert "wins" in found[0][1]


def test_a_run_with_a_reward_url_asks_there(url, tmp_path):
    reward = reason.reward_function(at(url), tmp_path)
    ids, prompts, responses = ROWS
    expected = [of.reward for of in reason.scored("fact_relevance", ENGINE, *ROWS)]
    assert reward(completions=responses, id=ids, question=prompts) == expected


class Failing(ExactEngine):
    """A verifier that fails on the first answer and on a claim of the second one, and
    a judge that fails on the third."""

    def supports(self, *rows):
        first, second, *others = super().supports(*rows)
        return [None, [*second, None], *others]

    def preferred(self, *rows):
        first, second, third, *others = super().preferred(*rows)
        return [first, second, None, *others]


def test_a_failure_of_the_verifier_or_the_judge_stays_none():
    engine = Failing(WorldReader(WORLD), BY_ID, REFERENCE)
    rows = columns(EXAMPLES[:4], [stating(e, 2) for e in EXAMPLES[:4]])
    with serving_engine(engine) as url:
        found = remote(at(url))(*rows)
    assert found == reason.scored("fact_relevance", engine, *rows)
    assert [of.reward is None for of in found] == [True, True, True, False]
    assert found[0].supports is None
    assert found[1].supports[-1] is None
    assert found[2].wins is None


def test_without_responses_nobody_is_asked(impatient):
    assert remote(at("http://127.0.0.1:9"))([], [], []) == []


def test_a_batch_beyond_the_service_s_limits_goes_in_pieces_in_order():
    many = [EXAMPLES[i % len(EXAMPLES)] for i in range(2 * Limits.responses + 76)]
    rows = columns(many, [stating(e, i % 4) for i, e in enumerate(many)])
    engine = Spy()
    with serving_engine(engine) as url:
        assert remote(at(url))(*rows) == reason.scored("fact_relevance", ENGINE, *rows)
    assert [len(said) for said in engine.calls] == [512, 512, 76]


def test_long_responses_go_in_requests_of_few_bytes():
    half = "é" * (Limits.body_bytes // 12)  # as JSON, half of what a body may be
    said = [written(thought, "") for thought in (half, half, "short")]
    rows = columns(EXAMPLES[:3], said)
    engine = Spy()
    with serving_engine(engine) as url:
        assert [of.reward for of in remote(at(url))(*rows)] == [0.0] * 3
    assert len(engine.calls) == 2


# What is refused


def test_health_says_what_is_served(url):
    expected = ABOUT | {"arms": list(reason.WEIGHTS), "busy": 0, "queued": 0}
    until(lambda: health(url) == expected)


@pytest.fixture(scope="module")
def strict():
    engine = Spy()
    with serving_engine(engine, responses=8) as found:
        yield found, engine


def body(**changes):
    values = {"arm": "fact"} | dict(zip(reward_service.COLUMNS, ONE, strict=True))
    return json.dumps(values | changes)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (SECRET, "not JSON"),
        ("[" * 100_000, "not JSON"),
        (b"\xff\xfe" + SECRET.encode(), "not JSON"),
        (json.dumps([SECRET]), "arm: must be one of fact, fact_detail"),
        (body(arm=SECRET), "arm: must be one of fact, fact_detail"),
        (body(arm=["fact"]), "arm: must be one of fact, fact_detail"),
        (body(ids=None), "ids: must be a list of strings"),
        (body(ids=SECRET), "ids: must be a list of strings"),
        (body(prompts=[[SECRET]]), "prompts: must be a list of strings"),
        (body(responses=[1]), "responses: must be a list of strings"),
        (body(responses=[SECRET] * 2), "of one length, not [1, 1, 2]"),
        (body(ids=[SECRET * 30] * 9, prompts=[""] * 9, responses=[""] * 9), "most 8"),
        (body(ids=["who?"], responses=[SECRET]), "ids: 'who?' is not in"),
    ],
)
def test_a_bad_request_is_refused_without_being_echoed(strict, content, said):
    url, engine = strict
    found = httpx.post(f"{url}/rewards", content=content)
    assert found.status_code == 422
    assert said in found.json()["detail"]
    assert SECRET not in found.text
    assert engine.calls == []


def test_a_body_beyond_the_limit_is_refused_with_or_without_its_length():
    with serving_engine(body_bytes=1000) as url:
        for content in (b" " * 1001, iter([b" " * 600] * 2)):
            found = httpx.post(f"{url}/rewards", content=content)
            assert (found.status_code, "1000 bytes" in found.text) == (413, True)
        assert post(url, columns(EXAMPLES[:1], [""])).status_code == 200


@pytest.mark.parametrize(
    ("arm", "rows", "limits", "said"),
    [
        ("base", ONE, {}, "HTTP 422: arm: must be one of"),
        ("fact", (["who?"], ["?"], [""]), {}, "HTTP 422: ids: 'who?'"),
        ("fact", ONE, {"body_bytes": 10}, "HTTP 413: more than 10 bytes"),
    ],
)
def test_the_client_s_error_names_url_status_and_reason(arm, rows, limits, said):
    with serving_engine(**limits) as url, pytest.raises(RewardServiceError) as error:
        remote(at(url, arm))(*rows)
    assert f"{url}/rewards" in str(error.value)
    assert said in str(error.value)


def test_an_engine_that_breaks_is_named_without_what_it_was_asked(capfd, retried):
    def breaks(call):
        raise KeyError(SECRET)

    engine = Spy(breaks)
    with serving_engine(engine) as url, pytest.raises(RewardServiceError) as error:
        remote(at(url))(*ONE)
    said = "".join(capfd.readouterr())
    for text in (said, str(error.value)):
        assert "KeyError" in text
        assert SECRET not in text
        assert "Traceback" not in text
    assert (len(engine.calls), retried) == (1, [])


def test_a_prompt_without_evidence_is_named():
    def lacks(call):
        raise DataError(f"no evidence for prompt {EXAMPLES[0].id!r}")

    with serving_engine(Spy(lacks)) as url:
        found = post(url)
    assert found.status_code == 422
    assert f"no evidence for prompt {EXAMPLES[0].id!r}" in found.json()["detail"]


def sent(url, content, length):
    """A connection that has sent a body, or the start of it."""
    port = int(url.rsplit(":", 1)[1])
    connection = socket.create_connection(("127.0.0.1", port))
    head = f"POST /rewards HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
    connection.sendall(f"{head}{content}".encode())
    return connection


def test_a_body_that_does_not_come_is_not_waited_for():
    with serving_engine(waiting=0, body_s=0.2) as url:
        with sent(url, '{"arm": ', 100) as connection:
            assert b" 408 " in connection.recv(1000)
        assert post(url).status_code == 200


def test_a_client_that_hangs_up_leaves_its_place(capfd):
    with serving_engine(waiting=0) as url:
        with sent(url, '{"arm": ', 100):
            until(lambda: health(url)["queued"] == 1)
            assert post(url).status_code == 503
        until(lambda: health(url)["queued"] == 0)
        assert post(url).status_code == 200
    assert "Traceback" not in "".join(capfd.readouterr())


# Too many requests, and a service that is away


@contextmanager
def serving_held(last=999, **limits):
    """A service whose engine waits until it may go on, in its calls up to the last."""
    go = threading.Event()
    engine = Spy(lambda call: call > last or go.wait(90))
    with serving_engine(engine, **limits) as url:
        try:
            yield url, engine, go
        finally:
            go.set()


def test_beyond_those_waiting_a_request_is_sent_away_and_comes_back(retried):
    expected = reason.scored("fact_relevance", ENGINE, *ONE)
    with (
        ThreadPoolExecutor(3) as pool,
        serving_held(waiting=1, retry_after_s=2) as (url, _, go),
    ):
        taken = [pool.submit(remote(at(url)), *ONE) for _ in range(2)]
        until(lambda: (health(url)["busy"], health(url)["queued"]) == (1, 1))
        refused = post(url)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "2")
        late = pool.submit(remote(at(url)), *ONE)
        until(lambda: retried)
        assert 2 <= retried[0] <= 3
        go.set()
        assert [future.result() for future in [*taken, late]] == [expected] * 3


def test_requests_are_scored_as_many_at_once_as_allowed():
    with (
        ThreadPoolExecutor(5) as pool,
        serving_held(at_once=3) as (url, engine, go),
    ):
        replies = [pool.submit(post, url) for _ in range(5)]
        until(lambda: (health(url)["busy"], health(url)["queued"]) == (3, 2))
        assert len(engine.calls) == 3
        go.set()
        assert {future.result().status_code for future in replies} == {200}


def test_a_request_whose_client_went_away_is_not_scored():
    with ThreadPoolExecutor(1) as pool, serving_held() as (url, engine, go):
        first = pool.submit(post, url)
        until(lambda: health(url)["busy"])
        with sent(url, body(), len(body())):
            until(lambda: health(url)["queued"])
        assert health(url)["queued"] == 1  # by now it has seen that the client left
        go.set()
        assert first.result().status_code == post(url).status_code == 200
    assert len(engine.calls) == 2


def test_a_call_that_takes_too_long_is_made_again(monkeypatch, retried):
    monkeypatch.setattr(reward_client, "CALL_S", 1.0)
    with serving_held(last=1, at_once=4) as (url, _, go):
        found = remote(at(url))(*ONE)
        go.set()
    assert found == reason.scored("fact_relevance", ENGINE, *ONE)
    assert retried


def test_training_waits_for_a_service_that_is_not_up_yet(retried):
    listening = bound("127.0.0.1", 0, "")
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(remote(at(url)), *ONE)
        until(lambda: retried)
        with serving_engine(listening=listening):
            found = early.result()
    assert found == reason.scored("fact_relevance", ENGINE, *ONE)


def test_a_service_that_stays_away_is_named_with_the_command_for_it(impatient):
    with bound("127.0.0.1", 0, "") as nobody:
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(RewardServiceError) as error:
            remote(at(url))(*ONE)
    for part in (f"{url}/rewards", "ConnectError", "factkit serve-rewards reason"):
        assert part in str(error.value)


def test_the_first_retry_is_told(url, monkeypatch):
    answers = iter([httpx.Response(503, headers={"Retry-After": "0"}), None])

    def answer(request):
        request.read()
        return next(answers) or httpx.post(request.url, content=request.content)

    client = httpx.Client(transport=httpx.MockTransport(answer))
    rows = list(zip(*ONE, strict=True))
    with pytest.warns(UserWarning, match="HTTP 503.*trying again"):
        found = reward_client._ask(client, httpx.URL(f"{url}/rewards"), "fact", rows)
    assert found == reason.scored("fact", ENGINE, *ONE)


@pytest.mark.parametrize(
    "reply",
    [
        *(None, 3, "text", [], {}, [3], [{}], [{"reward": 1.0}] * 2),
        *([dict(reasoning="", answer="", supports=["so so"], wins=None, reward=1.0)],),
    ],
)
def test_a_reply_that_is_no_rewards_is_refused(reply):
    answer = httpx.MockTransport(lambda request: httpx.Response(200, json=reply))
    client, rows = httpx.Client(transport=answer), list(zip(*ONE, strict=True))
    with pytest.raises(RewardServiceError, match="http://there/rewards.*no 1 rewards"):
        reward_client._ask(client, httpx.URL("http://there/rewards"), "fact", rows)


def row(**changes):
    """A well-formed response's row of a reply."""
    values = dict(reward=1.0, reasoning="a", answer="b", supports=[], wins=None)
    return values | changes


def replying(content):
    """What the client makes of a reply; content: its body."""
    answer = httpx.MockTransport(lambda request: httpx.Response(200, content=content))
    client, rows = httpx.Client(transport=answer), list(zip(*ONE, strict=True))
    return reward_client._ask(client, httpx.URL("http://there/rewards"), "fact", rows)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_a_reward_that_is_no_finite_number_does_not_come_in(number):
    body = json.dumps([row(reward=0)]).replace('"reward": 0', f'"reward": {number}')
    assert replying(body.replace(number, "2.5"))[0].reward == 2.5
    with pytest.raises(RewardServiceError, match=f"there.*{number} is no finite numb"):
        replying(body)


@pytest.mark.parametrize(
    "change",
    [
        *(dict(reward=r) for r in ("1", True, [1.0], 10**400)),
        *(dict(reasoning=5), dict(answer=["b"]), dict(wins=1), dict(wins="yes")),
    ],
)
def test_a_field_of_another_type_does_not_come_in(change):
    with pytest.raises(RewardServiceError, match="no 1 rewards"):
        replying(json.dumps([row(**change)]))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_verifier_s_reward_that_is_no_finite_number_does_not_go_out(
    value, monkeypatch
):
    odd = reason.Scored(value, None, None, None)
    monkeypatch.setattr(reward_service, "scored", lambda *_: [odd])
    with serving_engine() as url, pytest.raises(RewardServiceError) as error:
        remote(at(url))(*ONE)
    assert "HTTP 500: the verifier gave a reward that is no finite" in str(error.value)


@pytest.mark.parametrize(
    ("content", "headers", "said"),
    [
        (b"[" + b" " * 200_000 + b"]", {}, "more than 100000 bytes"),
        (b"[]", {"Content-Encoding": "gzip"}, "a packed reply"),
    ],
)
def test_a_reply_that_is_too_long_or_packed_is_not_read(
    content, headers, said, monkeypatch, retried
):
    class Parts(httpx.SyncByteStream):
        def __iter__(self):
            return iter([content])

    def answer(request):
        return httpx.Response(200, headers=headers, stream=Parts())

    transport, client = httpx.MockTransport(answer), httpx.Client
    monkeypatch.setattr(httpx, "Client", lambda **o: client(transport=transport, **o))
    monkeypatch.setattr(http_client, "REPLY_BYTES", 100_000)
    with pytest.raises(RewardServiceError, match=f"http://there/rewards.*{said}"):
        remote(at("http://there"))(*ONE)
    assert retried == []


def test_another_server_is_told_from_the_service(url):
    with pytest.raises(RewardServiceError, match="HTTP 404"):
        remote(at(f"{url}/elsewhere"))(*ONE)


@pytest.mark.parametrize(
    "wrong",
    [
        *("127.0.0.1:8002", "ftp://host", "http://", "host", "http://host:port"),
        f"http://me:{SECRET}@host:8002",
    ],
)
def test_a_bad_url_is_refused_before_training(wrong):
    with pytest.raises(ParamError, match="reward_url") as error:
        remote(at(wrong))
    assert SECRET not in str(error.value)


# The token


@pytest.mark.parametrize("wrong", ["other", f"{SECRET}x", SECRET[:-1], "ö"])
def test_without_the_token_nothing_is_scored(wrong, monkeypatch, retried):
    engine = Spy()
    with serving_engine(engine, token=SECRET) as url:
        for header in (f"Bearer {wrong}", f"Basic {SECRET}", SECRET, "Bearer", ""):
            found = post(url, authorization=header.encode("latin-1"))
            assert found.status_code == 401
            assert SECRET not in found.text
        if wrong.isascii():
            monkeypatch.setenv(reward_service.TOKEN_VARIABLE, wrong)
            with pytest.raises(RewardServiceError, match="HTTP 401.*FACTKIT_REWARD"):
                remote(at(url))(*ONE)
        assert health(url)["busy"] == 0
    assert (engine.calls, retried) == ([], [])


def test_with_the_token_rewards_are_given(monkeypatch):
    monkeypatch.setenv(reward_service.TOKEN_VARIABLE, f" {SECRET}\n")
    with serving_engine(token=SECRET) as url:
        found = remote(at(url))(*ROWS)
    assert found == reason.scored("fact_relevance", ENGINE, *ROWS)


@pytest.mark.parametrize("bad", [f"{SECRET}\n{SECRET}", f"{SECRET}ö"])
def test_a_token_that_no_header_holds_is_refused_unspoken(bad, monkeypatch):
    monkeypatch.setenv(reward_service.TOKEN_VARIABLE, bad)
    for ask in (lambda: remote(at("http://x")), lambda: reward_service.serve(P, "", 0)):
        with pytest.raises(ParamError, match="line break or is not ASCII") as error:
            ask()
        assert SECRET not in str(error.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_beyond_loopback_the_service_does_not_start_without_a_token(host):
    with pytest.raises(ParamError, match=f"{host}.*{reward_service.TOKEN_VARIABLE}"):
        reward_service.serve(P, host, 0)


def test_with_a_token_any_address_is_bound():
    with bound("0.0.0.0", 0, SECRET) as found:
        assert found.getsockname()[0] == "0.0.0.0"


def test_an_address_that_cannot_be_had_is_named():
    with bound("127.0.0.1", 0, "") as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ParamError, match=f"--port {port}: .*in use"):
            reward_service.serve(P, "127.0.0.1", port)


# The process


@pytest.fixture
def data(tmp_path):
    """Where runs are written, with the paper's data."""
    p = params.load("reason", "tiny", SIZE | {"output_dir": str(tmp_path)})
    folder = runs.run_folder(p.data_notebook, p)
    for split in p.splits:
        write_examples(folder / f"{split}.jsonl", EXAMPLES)
    (folder / REFERENCES).write_text(json.dumps(REFERENCE), encoding="utf-8")
    return tmp_path


@contextmanager
def process(*command):
    """A service in a process of its own; it and its URL."""
    with subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        try:
            words = started.stdout.readline().split()
            assert words[:2] == ["rewards", "at"], started.stderr.read()
            yield started, f"http://127.0.0.1:{words[-1]}"
        finally:
            started.kill()


def cli(data, *arguments):
    run = ("-m", "factkit", "serve-rewards", "reason", "--output-dir", str(data))
    return *run, "--port", "0", "--set", "world_people=30", *arguments


HELD = """
import functools, sys, time
from pathlib import Path
from factkit import params, reward_service
from factkit.verify import preference

folder, drain_s = Path(sys.argv[1]), int(sys.argv[2])
p = params.load("reason", "tiny", {"world_people": 30, "output_dir": str(folder)})
exact = preference.engine_of(p)

class Held:
    def supports(self, *rows):
        (folder / "started").touch()
        while not (folder / "go").exists():
            time.sleep(0.01)
        return exact.supports(*rows)

    def preferred(self, *rows):
        return exact.preferred(*rows)

preference.engine_of = lambda p: Held()
reward_service.Limits = functools.partial(reward_service.Limits, drain_s=drain_s)
reward_service.serve(p, "127.0.0.1", 0)
"""


def closed(url):
    try:
        httpx.get(f"{url}/health")
    except httpx.TransportError:
        return True
    return False


@pytest.mark.parametrize("ended_by", [signal.SIGTERM, signal.SIGINT])
def test_a_service_that_ends_answers_what_is_under_way(data, ended_by):
    with process("-c", HELD, str(data), "90") as (service, url):
        until(lambda: not closed(url))
        with ThreadPoolExecutor(2) as pool:
            # one is scored, the other one waits for its turn
            replies = [pool.submit(remote(at(url)), *ONE) for _ in range(2)]
            until((data / "started").exists)
            until(lambda: health(url)["queued"])
            service.send_signal(ended_by)
            until(lambda: closed(url))
            (data / "go").touch()
            found = [reply.result() for reply in replies]
        assert service.wait(90) == 0
        assert service.stderr.read() == ""
    assert found == [reason.scored("fact_relevance", ENGINE, *ONE)] * 2


def test_a_verifier_that_hangs_does_not_keep_the_service_from_ending(data):
    with process("-c", HELD, str(data), "1") as (service, url):
        until(lambda: not closed(url))
        with ThreadPoolExecutor(1) as pool:
            reply = pool.submit(post, url)
            until((data / "started").exists)
            service.terminate()
            assert service.wait(90) == 0
            assert service.stderr.read() == ""
            assert reply.result().status_code == 503
            assert "Retry-After" in reply.result().headers


def memory_mb(pid):
    with open(f"/proc/{pid}/status") as f:
        (kb,) = [line.split()[1] for line in f if line.startswith("VmRSS")]
    return int(kb) / 1024


def test_64_clients_at_once_all_get_their_rewards_in_bounded_memory(data):
    some = [EXAMPLES[i % len(EXAMPLES)] for i in range(2000)]
    responses = [f"{stating(e, i % 4)[:-9]} {i}</answer>" for i, e in enumerate(some)]
    rows = list(zip(*columns(some, responses), strict=True))
    expected = reason.scored("fact_relevance", ENGINE, *columns(some, responses))
    assert len(set(responses)) == 2000
    together = threading.Barrier(64)

    def client(number):
        ask, mine = remote(at(url)), rows[number::64]
        together.wait(90)
        parts = [mine[i : i + 4] for i in range(0, len(mine), 4)]
        return [of for part in parts for of in ask(*zip(*part, strict=True))]

    with process(*cli(data)) as (service, url), ThreadPoolExecutor(64) as pool:
        until(lambda: not closed(url))
        remote(at(url))(*ROWS)
        before = memory_mb(service.pid)
        found = list(pool.map(client, range(64)))
        grown = memory_mb(service.pid) - before
        service.terminate()
        assert service.wait(90) == 0
    for number in range(64):
        assert found[number] == expected[number::64]
    assert grown < 100


def test_from_the_command_line_a_mistake_exits_with_2(data):
    for extra, said in (
        (["--host", "0.0.0.0"], reward_service.TOKEN_VARIABLE),
        (["--output-dir", str(data / "nowhere")], "no such data file"),
    ):
        command = [sys.executable, *cli(data, *extra)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert (done.returncode, "Traceback" in done.stderr) == (2, False)
        assert said in done.stderr
