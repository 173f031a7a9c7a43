"""Checks of a run's judge, keys and files before a GPU is paid for."""

import contextlib
import os
from pathlib import Path
from typing import Any

import httpx

from factkit import Check, require
from factkit.answers.verifier import has_judge, judge_llm
from factkit.data import assets
from factkit.facts.source import open_source
from factkit.policy.decoding import Sampling
from factkit.run import connections
from factkit.run.arms import list_arms
from factkit.run.params import ROOT
from factkit.run.params.data import RequestParams
from factkit.run.params.own import OWN
from factkit.run.params.stages import SEARCH_KEY, SweepParams
from factkit.verify import failures
from factkit.verify.llm import LLM, Request
from factkit.verify.replies import NON_BLANK

TIMEOUT_S = 10.0
SAMPLE = ("What is the capital of France?", ["Paris"], "It is Paris.")  # to be graded


def preflight(p: Any) -> None:
    """Check all services of a run before it starts. Raises UserError if one fails."""
    require(needed(p, strict=False))


def needed(p: Any, strict: bool = True) -> list[Check]:
    """Checks of the services, weights and files that all notebooks of a paper need."""
    checks = []
    if p.has_own_data:
        checks += open_source(OWN, p).checks(p)
    if has_judge(p):
        model = getattr(p, "relevance_model", "") or p.judge_model
        url = getattr(p, "relevance_url", "") or p.judge_url
        judges = dict.fromkeys([(p.judge_model, p.judge_url), (model, url)])
        checks += [judge(p, model, url, strict) for model, url in judges if url]
    search_url, file = getattr(p, "search_url", ""), getattr(p, "wikipedia_path", "")
    if search_url and isinstance(p, RequestParams):  # of the web
        key = "set" if os.environ.get(SEARCH_KEY, "").strip() else "missing"
        remedy = f"export {SEARCH_KEY}=… (or search_url empty, with evidence at hand)"
        checks.append((f"key of {search_url}", key, key == "set", remedy))
    arms = list_arms(p) if isinstance(p, SweepParams) else []
    policies = [p.policy, *(arm.configure(p).policy for arm in arms)]
    checks += [check for name in dict.fromkeys(policies) for check in weights(name)]
    if file and not search_url:
        path = ROOT / file
        remedy = "fetch it by hand (params/README.md), or name a search_url"
        found = "there" if path.is_file() else "missing"
        checks.append((f"wikipedia_path {path}", found, path.is_file(), remedy))
    return checks


def weights(name: str) -> list[Check]:
    """Whether a model's weights are safetensors; no check if its files are unknown."""
    from huggingface_hub import HfApi, constants

    copy, files = Path(assets.of_hub(name)), []
    if copy.is_dir():
        files = [path.name for path in copy.iterdir()]
    elif name.count("/") == 1 and not constants.is_offline_mode():
        with contextlib.suppress(Exception):  # whatever a cut line makes of it
            siblings = HfApi().model_info(name, timeout=TIMEOUT_S).siblings or ()
            files = [sibling.rfilename for sibling in siblings]
    fine = any(file.endswith(".safetensors") for file in files)
    found = "safetensors" if fine else "has no safetensors"
    remedy = "no pickles are loaded: save it once by save_pretrained, name that folder"
    return [(f"weights of {name}", found, fine, remedy)] if files else []


def judge(p: Any, model: str, url: str, strict: bool = True) -> Check:
    """Whether an endpoint serves this judge and returns verdicts, without the cache and
    with the run's own limits on tokens. strict: also whether it grades a plain case
    right and, served by vLLM, keeps the length limits of the JSON schema.
    """
    from factkit.verify import judge as asked

    what, llm = f"judge {model}", judge_llm(p, model, url, cached=False)
    key = llm.endpoint.key or "none"
    headers = {**llm.endpoint.headers, "Authorization": f"Bearer {key}"}
    key_remedy = f"export the key that the endpoint takes as {p.judge_key}"
    try:
        with connections.create_client(url, TIMEOUT_S, headers=headers) as http:
            listed = http.get(f"{url.rstrip('/')}/models")
        if listed.status_code in (401, 403):
            return (what, f"{url}: HTTP {listed.status_code}", False, key_remedy)
        served = {m["id"]: m.get("max_model_len") for m in listed.json()["data"]}
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        serve = f"vllm serve {model} --host 127.0.0.1 --api-key …"
        remedy = f"{serve}, or another judge_url"
        return (what, f"{url}: {type(error).__name__}", False, remedy)
    if model not in served:
        found = f"{url} serves {', '.join(served) or 'nothing'}"
        return (what, found, False, "serve it by this name, or name it in judge_model")
    failures.RECENT_FAILURES.clear()
    (grade,) = asked.grade_responses(llm, "judge_outcome", [SAMPLE])
    room = f", {served[model]:,} tokens" if served[model] else ""
    if grade is None:
        remedy = "give judge_thinking_tokens, or turn thinking off by judge_extra"
        if failures.RECENT_FAILURES[-1].cause in ("HTTP 401", "HTTP 403"):
            remedy = key_remedy
        failure = f"{url}{room}: no verdict{failures.describe_failures()}"
        return (what, failure, False, remedy)
    if strict and room and not _limits_text(llm):
        remedy = "serve it with --structured-outputs-config.backend guidance"
        return (what, f"{url}{room}: its text has no bounds", False, remedy)
    words, fine = "right" if grade else "wrong", bool(grade) or not strict
    remedy = "a judge that calls 'It is Paris' wrong is of no use"
    return (what, f"{url}{room}: graded a plain case {words}", fine, remedy)


def _limits_text(llm: LLM) -> bool:
    """Whether a server stops a text after `maxLength` characters."""
    schema = {"type": "string", "pattern": NON_BLANK, "maxLength": 4}
    form: dict[str, Any] = {"type": "object", "properties": {"name": schema}}
    form |= {"required": ["name"], "additionalProperties": False}
    asked = {"role": "user", "content": 'Reply with this alone: {"name": "Alexandria"}'}
    (reply,) = llm.run([Request((asked,), sampling=Sampling(32), schema=form)])
    return "Alexan" not in (reply.text or "Alexan")
