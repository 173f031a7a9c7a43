"""The servers beside a rehearsal, on the ports that the profiles ship.

A judge (`vllm serve` of the small policy, behind judge_proxy.py), the web with its
search, and what a profile names more: a retriever, further judges. All end with the
process that started them.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import web
from hub import MODELS, VERI

from factkit.papers.veri import fetch
from factkit.run import child, machine, sweeps
from factkit.run.params import ROOT
from factkit.run.params.stages import SEARCH_KEY

HERE = Path(__file__).parent
WEB, ENGINE = 8009, 8101  # ports of our own
WIKIPEDIA_2023 = "factscore/enwiki-20230401.db"
PATIENCE_S = 900.0  # on a machine that is busy
VLLM = (
    *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
    *("--host", "127.0.0.1", "--dtype", machine.dtype("bfloat16"), "--enforce-eager"),
    "--no-enable-chunked-prefill",  # as tests/site says of engines
)


def environment(folder: Path) -> dict[str, str]:
    """What the notebooks, the servers and what they start are given."""
    shims = [str(HERE.parent / "site"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return sweeps.environment(jobs=2) | {
        "PYTHONPATH": os.pathsep.join(filter(None, shims)),
        "FACTKIT_HUB": str(folder / "hub"),
        "FACTKIT_CACHE": str(folder / "cache"),
        "HF_HOME": str(folder / "huggingface"),
        SEARCH_KEY: web.KEY,
        "REHEARSAL_WEB": str(WEB),
        "DS_ACCELERATOR": "cpu",
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # one process an engine: half the start
        "TQDM_DISABLE": "1",
    }


def addresses(paper: str, folder: Path) -> dict[str, str]:
    """The parameters that say where on this machine things are: no sizes."""
    match paper:
        case "truthrl":
            return {}
        case "rlfh":
            return {"wikipedia_path": str(folder / "hub" / WIKIPEDIA_2023)}
        case "veri":
            return {"claims_path": str(folder / "hub" / VERI)}
    return {"search_url": f"http://127.0.0.1:{WEB}/search"}


def commands(p: Any, folder: Path) -> dict[str, tuple[int, list[str]]]:
    """Server → its port and command line, in the order of their start."""
    python = sys.executable
    judges = {p.judge_model: p.judge_url}
    judges |= dict(j.split("@") for j in getattr(p, "second_judges", ()))
    if getattr(p, "relevance_url", ""):
        judges[p.relevance_model] = p.relevance_url
    made, engine = {}, f"http://127.0.0.1:{ENGINE}"
    for port in sorted({_port(url) for url in judges.values()}):
        proxy = [python, str(HERE / "judge_proxy.py"), str(port), engine]
        made[f"judge-{port}"] = (port, proxy)
    search_url = getattr(p, "search_url", "")
    if hasattr(p, "claims_path"):
        port, serve = _port(search_url), [python, "-m", "factkit", "serve-search"]
        indexes = str(folder / "hub" / VERI / fetch.INDEXES)
        made["retriever"] = (port, [*serve, indexes, "--port", str(port)])
    elif search_url:
        log = str(folder / "logs" / "asked.jsonl")
        made["web"] = (WEB, [python, str(HERE / "web.py"), str(WEB), log])
    return made


def engine(folder: Path) -> dict[str, tuple[int, list[str]]]:
    """The one server behind all judges, by whichever name it is asked."""
    model = ("--model", str(folder / "hub" / next(iter(MODELS))))
    names = ("--served-model-name", *MODELS, "--max-model-len", "4096")
    # where JSON allows a space, a small judge writes them without end
    how = '{"backend": "guidance", "disable_any_whitespace": true}'
    bound = ("--structured-outputs-config", how)
    return {"engine": (ENGINE, [*VLLM, *model, *names, *bound, "--port", str(ENGINE)])}


@contextmanager
def running(named: Mapping[str, tuple[int, list[str]]], folder: Path) -> Iterator[None]:
    """Start servers, wait until they answer, end them; logs in folder/logs.

    One that answers already is taken as it is, and left.
    """
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    with ExitStack() as started:
        for name, (port, command) in named.items():
            if _answers(port):
                continue
            log = started.enter_context(
                (logs / f"{name}.log").open("w", encoding="utf-8")
            )
            server = subprocess.Popen(
                child.command(*command),
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment(folder),
                cwd=ROOT,
            )
            started.callback(_end, server)
            _await(name, port, server, logs)
        yield


def _await(name: str, port: int, server: subprocess.Popen, logs: Path) -> None:
    start = time.monotonic()
    while time.monotonic() < start + PATIENCE_S and server.poll() is None:
        if _answers(port):
            print(f"{name}: port {port}, {time.monotonic() - start:.0f} s", flush=True)
            return
        time.sleep(1)
    raise RuntimeError(f"{name} does not answer: see {logs / name}.log")


def _answers(port: int) -> bool:
    url = f"http://127.0.0.1:{port}/health"
    try:
        return httpx.get(url, timeout=60, trust_env=False).status_code < 500
    except httpx.HTTPError:
        return False


def _end(server: subprocess.Popen) -> None:
    server.terminate()
    server.wait(60)


def _port(url: str) -> int:
    return urlsplit(url).port
