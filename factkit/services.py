"""What the endpoints, keys and files of a profile say, before a GPU is paid for."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit import UserError, assets
from factkit.models import Sampling
from factkit.params import ROOT
from factkit.search import SET, TOKEN_VARIABLE, entry_of
from factkit.serving import environment_token
from factkit.verify.judge import SOME
from factkit.web import KEY_VARIABLE

if TYPE_CHECKING:
    from factkit.llm import LLM

GPQA = "Idavidrein/gpqa"
Check = tuple[str, str, bool, str]  # what, found, whether that is fine, else the remedy
TIMEOUT_S = 10.0
SAMPLE = ("What is the capital of France?", ["Paris"], "It is Paris.")  # to be graded


class ServiceError(UserError):
    """What a run will ask is not there; the message names each remedy."""


def preflight(p: Any) -> None:
    """Ask judges, retriever and search key of a run under a judge, before the hours
    after which they are first used. Raises ServiceError if one of them is no use."""
    if p.verifier == "judge":
        wrong = [check for check in needed(p, strict=False) if not check[2]]
        if wrong:
            lines = (f"{what}: {found}; {remedy}" for what, found, _, remedy in wrong)
            raise ServiceError("\n".join(lines))


def examine(p: Any) -> list[Check]:
    """A check of each service, gated repository and file that the parameters name."""
    checks = needed(p)
    if p.verifier == "judge":
        others = [other.split("@") for other in getattr(p, "second_judges", ())]
        checks += [judge(p, model, url) for model, url in others]
    if p.rollouts == "vllm_server":
        checks.append(health("rollout server", p.vllm_server_url))
    if getattr(p, "reward_url", ""):
        checks.append(health("reward service", p.reward_url))
    sets = f"{getattr(p, 'test_sets', '')} {getattr(p, 'utility_benchmarks', '')}"
    checks += repository(p.policy, "model")
    return checks + (repository(GPQA, "dataset") if "gpqa" in sets else [])


def needed(p: Any, strict: bool = True) -> list[Check]:
    """Checks of what a paper's notebooks ask from the first one on."""
    checks = []
    if p.verifier == "judge":
        judges = [(p.judge_model, p.judge_url)]
        if getattr(p, "relevance_url", ""):
            judges.append((p.relevance_model, p.relevance_url))
        checks += [judge(p, model, url, strict) for model, url in judges if url]
    search_url = getattr(p, "search_url", "")
    if search_url and hasattr(p, "claims_path"):
        sets = p.eval_sets.split() if SET in search_url else [""]
        urls = {name: search_url.replace(SET, name) for name in sets}
        checks += [retriever(f"retriever {name}", url) for name, url in urls.items()]
    elif search_url:
        key = "set" if os.environ.get(KEY_VARIABLE, "").strip() else "missing"
        remedy = f"export {KEY_VARIABLE}=… (or search_url empty, with evidence at hand)"
        checks.append((f"key of {search_url}", key, key == "set", remedy))
    if getattr(p, "wikipedia_path", "") and not search_url:
        file = ROOT / p.wikipedia_path
        remedy = "fetch it by hand (params/README.md), or name a search_url"
        found = "there" if file.is_file() else "missing"
        checks.append((f"wikipedia_path {file}", found, file.is_file(), remedy))
    if getattr(p, "claims_path", ""):
        folder = ROOT / p.claims_path
        number = sum(path.is_file() for path in folder.rglob("*"))
        remedy = "python -m factkit fetch veri"
        checks.append((f"claims_path {folder}", f"{number} files", number > 0, remedy))
    return checks


def retriever(what: str, url: str) -> Check:
    """Whether a retriever finds an entry, as a rollout would ask it."""
    import httpx

    token = environment_token(TOKEN_VARIABLE)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    asked = {"queries": ["What is the capital of France?"], "topk": 1}
    remedy = "python -m factkit serve-search … there (params/README.md)"
    try:
        reply = httpx.post(url, json=asked, headers=headers, timeout=TIMEOUT_S)
        (entry,) = reply.raise_for_status().json()["result"][0]
    except httpx.HTTPStatusError as error:
        return (what, f"{url}: HTTP {error.response.status_code}", False, remedy)
    except (httpx.HTTPError, ValueError, KeyError, TypeError, IndexError) as error:
        return (what, f"{url}: {type(error).__name__}", False, remedy)
    return (what, f"{url} finds {entry_of(entry).id}", True, remedy)


def health(what: str, url: str) -> Check:
    """Whether a service answers at its /health."""
    import httpx

    where = f"{url.rstrip('/')}/health"
    try:
        status = httpx.get(where, timeout=TIMEOUT_S).status_code
    except httpx.HTTPError as error:
        return (what, f"{where}: {type(error).__name__}", False, "start it there")
    return (what, f"{where}: HTTP {status}", status == 200, "see to it there")


def repository(name: str, kind: str) -> list[Check]:
    """Whether the hub gives this machine a repository; nothing for a folder's name."""
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError

    what = f"{kind} {name}"
    if name.count("/") != 1 or Path(assets.policy_path(name)).is_dir():
        return []
    if constants.is_offline_mode():
        return [(what, "not asked: HF_HUB_OFFLINE is set", True, "")]
    try:
        HfApi().auth_check(name, repo_type=kind)
    except HfHubHTTPError as error:
        remedy = f"accept the terms of {name} on huggingface.co, then: hf auth login"
        return [(what, type(error).__name__, False, remedy)]
    except Exception as error:  # whatever a proxy or a cut line makes of it
        return [(what, type(error).__name__, False, "see to the network")]
    return [(what, "the hub gives it", True, "")]


def judge(p: Any, model: str, url: str, strict: bool = True) -> Check:
    """Whether an endpoint serves a judge by its name and gives verdicts; strict: grades
    a plain case right, and keeps bounds on its text where a vLLM serves it, too.

    The call has the parameters' own fields and limits and comes from no cache, so that
    a judge that thinks away its reply is told here.
    """
    import httpx

    from factkit.verify import judge as asked
    from factkit.verify.verifier import judge_llm

    what, llm = f"judge {model}", judge_llm(p, model, url, cached=False)
    headers = llm.headers | {"Authorization": f"Bearer {llm.key}"}
    try:
        listed = httpx.get(
            f"{url.rstrip('/')}/models", headers=headers, timeout=TIMEOUT_S
        )
        served = {m["id"]: m.get("max_model_len") for m in listed.json()["data"]}
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        found = f"{url}: {type(error).__name__}"
        return (
            what,
            found,
            False,
            f"vllm serve {model} --port …, or another judge_url",
        )
    if model not in served:
        found = f"{url} serves {', '.join(served) or 'nothing'}"
        return (what, found, False, "serve it by this name, or name it in judge_model")
    (grade,) = asked.graded(llm, "judge_outcome", [SAMPLE])
    room = f", {served[model]:,} tokens" if served[model] else ""
    if grade is None:
        remedy = "give judge_thinking_tokens, or turn thinking off by judge_extra"
        return (what, f"{url}{room}: no verdict in its reply", False, remedy)
    if strict and room and not _bounded(llm):
        remedy = "serve it with --structured-outputs-config.backend guidance"
        return (what, f"{url}{room}: its text has no bounds", False, remedy)
    words, fine = "right" if grade else "wrong", bool(grade) or not strict
    remedy = "a judge that calls 'It is Paris' wrong is of no use"
    return (what, f"{url}{room}: graded a plain case {words}", fine, remedy)


def _bounded(llm: "LLM") -> bool:
    """Whether a server ends a text of four characters after four."""
    from factkit.llm import Request

    schema = {"type": "string", "pattern": SOME, "maxLength": 4}
    form = {"type": "object", "properties": {"name": schema}, "required": ["name"]}
    form["additionalProperties"] = False
    asked = {"role": "user", "content": 'Reply with this alone: {"name": "Alexandria"}'}
    (reply,) = llm.run([Request((asked,), sampling=Sampling(32), schema=form)])
    return "Alexan" not in (reply.text or "Alexan")
