"""The rehearsal's web answers the kit's own client; its proxy helps a small judge."""

import json
import re
from importlib import resources

import judge_proxy
import pytest
import web as rehearsal
from country import Country
from fastapi.testclient import TestClient
from httpcore import SyncBackend
from web_server import answering

from factkit.data import web
from factkit.data.examples import Example
from factkit.papers.reason.evaluate import Steps
from factkit.papers.reason.requests import parse_new_prompt
from factkit.papers.rlfh.feedback import Ratings
from factkit.run import connections
from factkit.run.params import ParamError
from factkit.verify.claims import Claims
from factkit.verify.judge import Grade

COUNTRY = Country()


@pytest.fixture
def outside(monkeypatch, tmp_path):
    """The web, served, with the environment that the kit's client needs."""
    own = rehearsal.Web(COUNTRY, tmp_path / "asked.jsonl")
    with rehearsal.serve(own) as url:
        monkeypatch.setenv(web.SEARCH_KEY, rehearsal.KEY)
        connect, own_port = SyncBackend.connect_tcp, int(url.rpartition(":")[2])

        def connect_tcp(self, host, port, **options):  # as tests/site has it
            if host.startswith(rehearsal.NETWORK):
                host, port = "127.0.0.1", own_port
            return connect(self, host, port, **options)

        monkeypatch.setattr(SyncBackend, "connect_tcp", connect_tcp)
        monkeypatch.setattr(web, "DELAY_S", 0.0)
        yield own, url


def examples(places=(30, 70, 110)):
    """Whose reference answers are what these pages say."""
    return [
        Example(id=page.title, question="?", answers=[page.text], entity=page.title)
        for page in (COUNTRY.pages[place] for place in places)
    ]


def test_the_kits_client_searches_and_reads_the_pages(outside, tmp_path):
    own, url = outside
    asked = examples()
    hard = examples([rehearsal.FORBIDDEN, rehearsal.PICTURE])
    folder = tmp_path / "cache"
    evidence, counts = web.run_online([*asked, *hard], f"{url}/search", folder, 6, 3)
    for example in asked:
        page = COUNTRY.by_title[example.id]
        (document,) = [d for d in evidence[example.id] if d.title == page.title]
        assert all(sentence in document.text for sentence in page.sentences)
        assert len(evidence[example.id]) >= 4
    assert counts["kept"] == len([*asked, *hard])
    assert counts["page: robots.txt"] and counts["page: without text"]
    log = (tmp_path / "asked.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line) for line in log] == own.asked
    assert [row["search"] for row in own.asked if "search" in row].count(
        asked[0].answers[0]
    ) == 1
    assert any(row.get("page", "").endswith("/robots.txt") for row in own.asked)


def test_a_wrong_key_is_refused(outside, tmp_path, monkeypatch):
    _, url = outside
    monkeypatch.setenv(web.SEARCH_KEY, "another")
    with pytest.raises(ParamError, match="refuses the search key"):
        web.run_online(examples(), f"{url}/search", tmp_path / "cache", 4, 3)


def test_every_page_has_a_public_address_of_its_own():
    own = rehearsal.Web(COUNTRY)
    assert len(own.pages) == len(COUNTRY.pages)
    assert all(connections.is_public(host) for host in own.pages)


# ---- the judge's proxy


def prompts():
    folder = resources.files("factkit.prompts")
    return {f.name: f.read_text("utf-8") for f in folder.iterdir() if "txt" in f.name}


def body(prompt):
    return {"model": "judge", "messages": [{"role": "user", "content": prompt}]}


def test_the_templates_that_ask_for_tags_get_a_regex_and_no_other():
    bound = {
        name: judge_proxy.with_form(body(text)).get("structured_outputs")
        for name, text in prompts().items()
    }
    tags = {"synthetic_prompt.txt"}
    assert {name for name, form in bound.items() if form} == tags
    assert {form["regex"] for form in bound.values() if form} == set(
        judge_proxy.FORMS.values()
    )
    asked = body(prompts()["synthetic_prompt.txt"]) | {"response_format": {}}
    assert judge_proxy.with_form(asked) == asked


@pytest.mark.parametrize("form", [Grade, Steps, Claims, Ratings])
def test_a_schema_stays_the_forms_and_its_texts_end(form):
    schema = {"name": "answer", "schema": form.model_json_schema(), "strict": True}
    format_ = {"type": "json_schema", "json_schema": schema}
    listed = 'Statements: ["1. A \\"town\\".", "2. It is old."]'
    sent = judge_proxy.with_form(body(listed) | {"response_format": format_})
    made = sent["response_format"]["json_schema"]["schema"]
    assert made["required"] == form.model_json_schema()["required"]
    text = json.dumps(made)
    assert text.count('"pattern"') == text.count('"type": "string"')
    assert text.count('"maxItems"') == text.count('"type": "array"')
    if form is Ratings:
        assert made["properties"]["ratings"]["minItems"] == 2
    again = judge_proxy.with_form(body(listed) | {"response_format": format_})
    assert sent == again and sent["temperature"] == 1


def test_what_the_regexes_allow_is_what_the_kit_reads():
    (new,) = judge_proxy.FORMS.values()
    words = "Which of these old towns has the best known market days"
    reply = f"<new_prompt>{words}?</new_prompt>"
    assert re.fullmatch(new, reply) and parse_new_prompt(reply) == f"{words}?"


def test_claims_are_parts_of_their_sentence():
    for sentence, number in (
        ("Zara is a poet from Orvania and lived there.", 3),
        ("?", 0),
    ):
        asked = f"Sentence: {json.dumps(sentence)}\nAfter: []"
        form = {"json_schema": {"schema": Claims.model_json_schema()}}
        sent = judge_proxy.with_form(body(asked) | {"response_format": form})
        listed = sent["response_format"]["json_schema"]["schema"]["properties"][
            "claims"
        ]
        assert (listed["minItems"], listed["maxItems"]) == (min(1, number), number)
        assert number == 0 or all(text in sentence for text in listed["items"]["enum"])


def test_the_proxy_passes_on_what_it_does_not_change():
    def echo(path, headers, content):
        told = json.dumps([path, json.loads(content)])
        return 418, told, {"Content-Type": "application/json"}

    with answering(echo) as url, TestClient(judge_proxy.app(url)) as client:
        for path in ("completions", "chat/completions"):
            sent = body("x")
            reply = client.post(f"/v1/{path}", json=sent)
            assert reply.status_code == 418
            assert reply.json() == [f"/v1/{path}", sent]
        sent = body(prompts()["synthetic_prompt.txt"])
        _, passed = client.post("/v1/chat/completions", json=sent).json()
        assert passed["structured_outputs"]["regex"].startswith("<new_prompt>")
