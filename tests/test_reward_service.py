"""The reward service: the rewards of a run in process, and what it refuses."""

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from retriever import served

from factkit import params, runs, serving
from factkit.datasets.examples import DataError, write_examples
from factkit.params import ROOT, ParamError
from factkit.reason import reward_service, train
from factkit.reason import rewards as reason
from factkit.reason.reward_service import remote
from factkit.serving import ServiceError
from factkit.verify.engine import REFERENCES, ExactEngine
from factkit.verify.response import TAGS, written
from factkit.world import facts as w
from factkit.world import requests as wp

SIZE = {"world_people": 30}
P = params.load("reason", "tiny", SIZE)
WORLD = w.build_world(people=30, seed=P.world_seed)
KINDS = (wp.OPEN, wp.COUNTED, wp.MAY_ABSTAIN)
EXAMPLES = [e for kind in KINDS for e in wp.requests(WORLD, WORLD.people[:4], kind)]
BY_ID = {e.id: e for e in EXAMPLES}
REFERENCE = {e.id: e.answers[0][: 40 * (i % 3)] for i, e in enumerate(EXAMPLES)}
ENGINE = ExactEngine(WORLD, BY_ID, REFERENCE)
ABOUT = {"paper": "reason", "profile": "tiny", "variant": ""}
SECRET = "zq7secret"
TEXTS = [
    "",
    "<think></think><answer></answer>",
    "<think>ä 漢 🦜 \u202e rtl</think>\n<answer>naïve – “quotes”</answer>",
    '<think>"], "arm": "fact"}</think><answer>\\u0000 \x00 \\ {} %s</answer>',
    "<think>half a character \ud800</think><answer>\udfff</answer>",
    written("long", "word " * 20_000),
]


def stating(example, n):
    """A well-formed response that states n of a person's facts, and a false one."""
    facts = WORLD.facts_of(example.entity)
    statements = [w.statement(fact) for fact in facts[:n]]
    wrong = next(o for o in w.OBJECTS[facts[-1].relation] if o != facts[-1].object)
    statements.append(w.statement(w.Fact(example.entity, facts[-1].relation, wrong)))
    return written(f"I know {n} facts", " ".join(statements))


def columns(examples, responses):
    """What `scored` takes, beside arm and engine."""
    return [e.id for e in examples], [e.question for e in examples], list(responses)


ROWS = columns(
    [EXAMPLES[i % len(EXAMPLES)] for i in range(len(TEXTS))] + EXAMPLES,
    TEXTS + [stating(e, i % 4) for i, e in enumerate(EXAMPLES)],
)
ONE = columns(EXAMPLES[:1], [stating(EXAMPLES[0], 2)])


@contextmanager
def serving_engine(engine=ENGINE):
    """The real server in a thread; its URL."""
    with served(reward_service.service(engine, BY_ID, ABOUT, "")) as url:
        yield url


def at(url, arm="fact_relevance"):
    return P.model_copy(update={"reward_url": url, "arm": arm})


def body(**changes):
    values = {"arm": "fact"} | dict(zip(reward_service.COLUMNS, ONE, strict=True))
    return values | changes


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No token of the user's, and an end to retries where a test fails."""
    monkeypatch.delenv(reward_service.TOKEN_VARIABLE, raising=False)
    monkeypatch.setattr(reward_service, "PATIENCE_S", 60)


@pytest.fixture(scope="module")
def url():
    with serving_engine() as address:
        yield address


class Spy(ExactEngine):
    """Exact; keeps the responses of each call, and raises an error in it."""

    def __init__(self, error=None):
        super().__init__(WORLD, BY_ID, REFERENCE)
        object.__setattr__(self, "calls", [])
        object.__setattr__(self, "error", error)

    def supports(self, ids, prompts, responses):
        self.calls.append(list(responses))
        if self.error:
            raise self.error
        return super().supports(ids, prompts, responses)


# Rewards


def test_rewards_by_url_are_those_in_process(url):
    for arm in reason.WEIGHTS:
        expected = reason.scored(arm, ENGINE, *ROWS)
        assert len({row.reward for row in expected}) >= 5
        assert remote(at(url, arm))(*ROWS) == expected


WORDS = st.text() | st.sampled_from([*TAGS, *TEXTS[:-1]])


@given(st.lists(st.lists(WORDS).map("".join), max_size=5))
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_a_policy_writes_comes_back_as_it_was(url, texts):
    rows = columns(EXAMPLES[: len(texts)], texts)
    expected = reason.scored("fact_relevance", ENGINE, *rows)
    assert remote(at(url))(*rows) == expected


def test_trl_s_rewards_and_metrics_are_those_in_process(url, tmp_path):
    ids, prompts, responses = ROWS
    chats = [[{"role": "assistant", "content": text}] for text in responses]
    results = []
    for reward in (
        reason.trl_reward(
            "fact_relevance",
            lambda *rows: reason.scored("fact_relevance", ENGINE, *rows),
        ),
        train.reward_function(at(url), tmp_path),
    ):
        logged = {}
        more = {"id": ids, "question": prompts, "log_metric": logged.__setitem__}
        results.append((reward(completions=chats, **more), logged))
    assert results[0] == results[1]
    assert "wins" in results[0][1]


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
    engine = Failing(WORLD, BY_ID, REFERENCE)
    rows = columns(EXAMPLES[:4], [stating(e, 2) for e in EXAMPLES[:4]])
    with serving_engine(engine) as url:
        scores = remote(at(url))(*rows)
    assert scores == reason.scored("fact_relevance", engine, *rows)
    assert [s.reward is None for s in scores] == [True, True, True, False]
    assert scores[0].supports is None
    assert scores[1].supports[-1] is None
    assert scores[2].wins is None


def test_a_batch_beyond_the_service_s_limit_goes_in_pieces_in_order():
    many = [EXAMPLES[i % len(EXAMPLES)] for i in range(2 * serving.ROWS + 76)]
    rows = columns(many, [stating(e, i % 4) for i, e in enumerate(many)])
    engine = Spy()
    with serving_engine(engine) as url:
        assert remote(at(url))([], [], []) == []
        assert remote(at(url))(*rows) == reason.scored("fact_relevance", ENGINE, *rows)
    assert [len(responses) for responses in engine.calls] == [512, 512, 76]


# What is refused


def test_a_bad_request_is_refused_by_what_is_wrong():
    engine = Spy()
    with serving_engine(engine) as url:
        for content, why in (
            (body(arm="prompting"), "arm"),
            (body(ids=None), "ids"),
            (body(responses=[1]), "responses"),
            (body(responses=["x"] * 2), "of one length"),
            (body(ids=["x"] * 513), "at most 512"),
            (body(ids=["who?"]), "ids: 'who?' is not in"),
        ):
            refused = httpx.post(f"{url}/rewards", json=content)
            assert (refused.status_code, why in refused.text) == (422, True)
    assert engine.calls == []


def test_a_verifier_that_fails_is_named_and_not_asked_again():
    rows = columns(EXAMPLES[:1], ONE[2])
    for error, why in (
        (KeyError(SECRET), 'HTTP 500: {"detail":"rewards failed: KeyError"}'),
        (
            DataError("no evidence for prompt 'x'"),
            'HTTP 422: {"detail":"no evidence for prompt \'x\'"}',
        ),
    ):
        engine = Spy(error)
        with serving_engine(engine) as url, pytest.raises(ServiceError) as raised:
            remote(at(url))(*rows)
        assert f"{url}/rewards: {why}" in str(raised.value)
        assert SECRET not in str(raised.value)
        assert len(engine.calls) == 1


def test_a_reply_that_is_no_rewards_does_not_come_in(monkeypatch):
    row = {"reward": 1.0, "supports": [], "wins": None}
    client, contents = httpx.Client, [json.dumps([row])]
    transport = httpx.MockTransport(
        lambda request: httpx.Response(200, content=contents[-1])
    )
    monkeypatch.setattr(httpx, "Client", lambda **o: client(transport=transport, **o))
    ask = remote(at("http://there"))
    assert ask(*ONE)[0].reward == 1.0
    replies = [None, "text", [], {}, [3], [{"reward": 1.0}], [row] * 2]
    replies += [[row | {"supports": ["so so"]}], [row | {"wins": 1}]]
    replies += [[row | {"reward": r}] for r in ("1", True, [1.0], 10**400)]
    contents += [json.dumps(reply) for reply in replies]
    contents += [contents[0].replace("1.0", number) for number in ("NaN", "-1e999")]
    while len(contents) > 1:
        with pytest.raises(
            ServiceError, match="http://there/rewards: HTTP 200, but no"
        ):
            ask(*ONE)
        contents.pop()


def test_another_address_is_refused_before_or_at_the_first_call(url):
    with pytest.raises(ServiceError, match="HTTP 404.*is reward_url right"):
        remote(at(f"{url}/elsewhere"))(*ONE)
    with pytest.raises(ParamError, match="reward_url"):
        remote(at("127.0.0.1:8002"))


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


def command(data, *arguments):
    run = ("-m", "factkit", "serve-rewards", "reason", "--output-dir", str(data))
    return [sys.executable, *run, "--port", "0", "--set", "world_people=30", *arguments]


def test_16_clients_at_once_all_get_their_rewards_until_the_service_is_stopped(data):
    examples = [EXAMPLES[i % len(EXAMPLES)] for i in range(400)]
    responses = [
        f"{stating(e, i % 4)[:-9]} {i}</answer>" for i, e in enumerate(examples)
    ]
    rows = list(zip(*columns(examples, responses), strict=True))
    expected = reason.scored("fact_relevance", ENGINE, *columns(examples, responses))
    together = threading.Barrier(16)

    def client(number):
        ask, mine = remote(at(url)), rows[number::16]
        together.wait(90)
        parts = [mine[i : i + 4] for i in range(0, len(mine), 4)]
        return [row for part in parts for row in ask(*zip(*part, strict=True))]

    with (
        subprocess.Popen(
            command(data), cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as service,
        ThreadPoolExecutor(16) as pool,
    ):
        try:
            words = service.stdout.readline().split()
            assert words[:2] == ["rewards", "at"]
            url = f"http://127.0.0.1:{words[-1]}"
            answers = list(pool.map(client, range(16)))
            service.terminate()
            assert service.wait(90) == 0
        finally:
            service.kill()
    for number in range(16):
        assert answers[number] == expected[number::16]
