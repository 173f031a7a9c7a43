"""What doctor says of a profile's services: each answers, or the remedy is named."""

import json
from contextlib import contextmanager

import httpx
import pytest
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import GatedRepoError
from web_server import answering

from factkit import UserError
from factkit.gpu import doctor, services
from factkit.run import params

NOWHERE = "http://127.0.0.1:9"
GRADE = json.dumps({"explanation": "the same city", "score": 1})


@contextmanager
def server(reply=GRADE, models=("org/judge",), city="Alex"):
    """Its address: a judge that replies so, and searches."""

    def answer(path, headers, body):
        listed = [{"id": name, "max_model_len": 8192} for name in models]
        bounded = b"Alexandria" in body
        told = json.dumps({"name": city}) if bounded else reply
        own = {"role": "assistant", "content": told}
        choice = {"index": 0, "message": own, "finish_reason": "stop"}
        named = {"id": "x", "object": "chat.completion", "created": 0, "model": "m"}
        name = path.split("/")[1]
        found = [{"id": f"A page of {name}", "contents": "Its text"}]
        made = {"data": listed, "choices": [choice], "result": [found]}
        if name == "scifact":
            made["result"] = [[]]
        return 200, json.dumps(named | made), {"Content-Type": "application/json"}

    with answering(answer) as url:
        yield url


def judged(url, **values):
    named = {"verifier": "judge", "judge_model": "org/judge", "judge_url": f"{url}/v1"}
    return params.load("rar", "h100_lora", named | values)


def test_a_judge_is_asked_for_its_models_and_for_a_plain_verdict():
    with server() as url:
        (what, told, fine, _), *_ = services.needed(judged(url))
    assert (what, fine) == ("judge org/judge", True)
    assert "8,192 tokens: graded a plain case right" in told


def test_a_policy_of_pickles_is_told_before_anything_is_drawn_from_it(tmp_path):
    (tmp_path / "config.json").touch()
    (tmp_path / "pytorch_model.bin").touch()
    p = params.load("rlfh", "tiny", {"policy": str(tmp_path)})
    with pytest.raises(UserError, match="no safetensors"):
        services.preflight(p)
    (tmp_path / "model.safetensors").touch()
    services.preflight(p)


def test_what_is_wrong_with_a_judge_is_told_with_the_remedy():
    thinking = "<think> Paris is the capital, so"
    wrong = json.dumps({"explanation": "", "score": 0})
    for reply, models, *words in (
        (
            thinking,
            ("org/judge",),
            "no verdict: 1 × not one JSON object",
            "judge_extra",
        ),
        (wrong, ("org/judge",), "graded a plain case wrong", "of no use"),
        (GRADE, ("org/other",), "serves org/other", "judge_model"),
    ):
        with server(reply, models) as url:
            (_, told, fine, remedy), *_ = services.needed(judged(url))
        assert not fine and words[0] in told and words[1] in remedy
    (_, told, fine, remedy), *_ = services.needed(judged(NOWHERE))
    assert not fine and "ConnectError" in told and "vllm serve org/judge" in remedy


def test_a_key_that_the_list_of_models_refuses_is_told_as_such():
    with answering(lambda *_: (401, "{}", {})) as url:
        (_, told, fine, remedy), *_ = services.needed(judged(url))
    assert not fine and "HTTP 401" in told and "OPENAI_API_KEY" in remedy


def test_a_refused_key_is_told_as_such():
    def answer(path, headers, body):
        if path.endswith("models"):
            return 200, json.dumps({"data": [{"id": "org/judge"}]}), {}
        error = json.dumps({"error": {"message": "Incorrect API key", "type": "x"}})
        return 401, error, {"Content-Type": "application/json"}

    with answering(answer) as url:
        (_, told, fine, remedy), *_ = services.needed(judged(url))
    assert not fine and "HTTP 401" in told and "Incorrect API key" in told
    assert "OPENAI_API_KEY" in remedy


def test_who_prefers_is_asked_by_the_model_and_at_the_place_that_it_falls_back_to():
    both = {"verifier": "judge", "judge_model": "j", "judge_url": f"{NOWHERE}/j"}
    for more, asked in (
        ({}, ["j"]),
        ({"relevance_model": "r"}, ["j", "r"]),
        ({"relevance_url": f"{NOWHERE}/r"}, ["j", "j"]),
    ):
        checks = services.needed(params.load("reason", "tiny", both | more))
        assert [what.split()[-1] for what, *_ in checks] == asked, checks


def test_services_keys_and_files_of_a_profile_are_looked_at(monkeypatch, tmp_path):
    monkeypatch.delenv("FACTKIT_SEARCH_KEY", raising=False)
    with server() as url:
        p = params.load("reason", "h100_full")
        checks = {what: fine for what, _, fine, _ in doctor.examine_services(p)}
        assert not checks["key of https://google.serper.dev/search"]
        monkeypatch.setenv("FACTKIT_SEARCH_KEY", "k")
        (tmp_path / "a.parquet").touch()
        values = {"claims_path": str(tmp_path), "search_url": f"{url}/{{set}}/retrieve"}
        told = of_veri(**values)
        retrieved = {k.split()[1]: v for k, v in told.items() if "retriever" in k}
        assert retrieved["hover"] == (
            f"{url}/hover/retrieve finds A page of hover",
            True,
        )
        bad = {name for name, (_, fine) in retrieved.items() if not fine}
        assert bad == {"scifact"} and len(retrieved) == 5
        assert told[f"claims_path {tmp_path}"] == ("1 files", True)
    told = of_veri(search_url=f"{NOWHERE}/r")
    found, fine = told["retriever "]
    assert found.startswith(f"{NOWHERE}/r: ConnectError") and not fine
    assert [fine for what, (_, fine) in told.items() if "_path" in what] == [False]


def test_rlfh_s_wikipedia_is_looked_for_where_no_search_takes_its_place(tmp_path):
    (tmp_path / "wiki.db").touch()
    for name, search, fine in (
        ("wiki.db", "", [True]),
        ("other.db", "", [False]),
        ("other.db", "https://google.serper.dev/search", []),
    ):
        file = tmp_path / name
        values = {"wikipedia_path": str(file), "search_url": search}
        p = params.load("rlfh", "h100_full", values | {"judge_url": NOWHERE})
        checks = {what: ok for what, _, ok, _ in services.needed(p)}
        assert [v for k, v in checks.items() if k == f"wikipedia_path {file}"] == fine


def of_veri(**values):
    p = params.load("veri", "h100_lora", values)
    return {what: (told, fine) for what, told, fine, _ in doctor.examine_services(p)}


def test_a_judge_whose_text_has_no_bounds_is_told_how_to_be_served():
    with server(city="Alexandria") as url:
        (_, told, fine, remedy), *_ = services.needed(judged(url))
    assert not fine and "no bounds" in told and "backend guidance" in remedy


def test_a_run_without_judge_or_key_stops_before_it_begins(monkeypatch):
    monkeypatch.setenv("FACTKIT_SEARCH_KEY", "k")
    with server(json.dumps({"explanation": "", "score": 0})) as url:
        services.preflight(judged(url))  # a bad judge is a matter of taste here
        monkeypatch.delenv("FACTKIT_SEARCH_KEY")
        with pytest.raises(UserError, match="^key of .*export FACTKIT"):
            services.preflight(judged(url))
    with pytest.raises(UserError, match="judge org/judge: .*ConnectError"):
        services.preflight(judged(NOWHERE))
    services.preflight(params.load("rar", "tiny"))


def test_a_repository_that_the_hub_keeps_back_is_told_with_the_remedy(monkeypatch):
    def keep_back(self, name, repo_type):
        if name == doctor.GPQA:
            response = httpx.Response(403, request=httpx.Request("GET", "https://hub"))
            raise GatedRepoError("terms", response=response)

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(HfApi, "auth_check", keep_back)
    ((_, found, fine, remedy),) = doctor.repository(doctor.GPQA, "dataset")
    assert (found, fine) == ("GatedRepoError", False) and "hf auth login" in remedy
    ((what, _, fine, _),) = doctor.repository("Qwen/Qwen3-8B", "model")
    assert (what, fine) == ("model Qwen/Qwen3-8B", True)
    assert doctor.repository("tiny-world", "model") == []
