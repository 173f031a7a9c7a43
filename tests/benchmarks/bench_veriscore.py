"""The kit's VeriScore reward against the VeriScore package, and against binary_rar.

Speed: responses a second of `rewards_of("veriscore", …)` and of the package's pipeline
(`VeriScorer.get_veriscore`). Both read Wikipedia leads and ask one fake endpoint, which
takes `LATENCY_S` a call and finds two claims in a sentence. They take turns with
empty caches; medians count, without imports and the making of the evidence. The package
asks one thing at a time and gets `SAMPLE` responses: more would slow it down further.

The package is PyPI's, in `.venv-veriscore` (made at the first run; where that can't be,
the benchmark skips), with stand-ins for what does not come with it: filler as long as
its repository's prompts, five stored snippets for the web, spaCy's rules for sentences,
and a vocabulary of bytes for GPT-4's, which it counts with.

Cost: calls and tokens a response of binary_rar and of veriscore, by `LLM.totals`; the
fake endpoint counts with the tokenizer of SmolLM2.
"""

import argparse
import io
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the package's environment runs this file too, without the kit
    from factkit.papers.rar.rewards import EvidenceEngine

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".venv-veriscore"
CONSTRAINTS = ROOT / "factkit" / "locks" / "cpu.txt"
REQUIREMENTS = """VeriScore==2.0.3 spacy==3.8.18 anthropic==2.12.0 tiktoken==0.14.0
openai regex requests tqdm""".split()  # the last four are pinned by the kit's lock

RESPONSES, CONCURRENCY, LATENCY_S, ROUNDS = 128, 64, 0.5, 3
SAMPLE = 8  # responses that the package gets in each round
# characters of the package's prompts: to extract, to verify, of a demonstration of that
EXTRACTION_CHARS, INSTRUCTION_CHARS, DEMONSTRATION_CHARS = 12_732, 1_465, 3_085
DEMONSTRATIONS = 9

Row = dict[str, str]  # a response in the package's format


# ---- the fake endpoint, in a process of its own


def reply(body: dict) -> str:
    """What the endpoint answers: to the kit by its schema, to the package as text."""
    system, asked = body["messages"][0]["content"], body["messages"][-1]["content"]
    words = asked.rpartition("Sentence: ")[2].partition("\n")[0].strip('"').split()
    halves = words[: len(words) // 2], words[len(words) // 2 :]
    claims = [" ".join(half) for half in halves if half]
    if form := body.get("response_format"):
        fields = form["json_schema"]["schema"]["properties"]
        if "claims" in fields:
            return json.dumps({"claims": claims})
        if "answer" in fields:
            return json.dumps({"answer": "", "reason": "more", "label": "a"})
        if "label" in fields:
            return json.dumps({"label": "supported"})
        return json.dumps({"REASONING": "no contradiction found", "SCORE": 1})
    if "extract" in system:
        return "\n".join(f"- {claim}" for claim in claims)
    return "###Supported.###"


def serve(latency_s: float, tokenizer: str) -> None:
    """Serve on a free port and print its URL. tokenizer: file to count with, or ""."""
    import asyncio

    from aiohttp import web
    from tokenizers import Tokenizer

    loaded = Tokenizer.from_file(tokenizer) if tokenizer else None

    def count(*texts: str) -> int:
        return sum(len(loaded.encode(text).ids) for text in texts) if loaded else 0

    async def handle(request: web.Request) -> web.Response:
        arrived = time.perf_counter()
        body = await request.json()
        text = reply(body)
        asked, said = count(*(m["content"] for m in body["messages"])), count(text)
        usage = {"prompt_tokens": asked, "completion_tokens": said}
        usage["total_tokens"] = asked + said
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        done = {"id": "x", "object": "chat.completion", "created": 0, "model": "fake"}
        await asyncio.sleep(latency_s - (time.perf_counter() - arrived))
        return web.json_response({**done, "choices": [choice], "usage": usage})

    app = web.Application(client_max_size=2**24)
    app.router.add_post("/v1/chat/completions", handle)
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/v1", flush=True)
    web.run_app(app, sock=listening, backlog=1024, access_log=None, print=None)


@contextmanager
def endpoint(latency_s: float, tokenizer: str = "") -> Iterator[str]:
    """The URL of a running fake endpoint."""
    command = [sys.executable, __file__, "serve", str(latency_s), tokenizer]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield server.stdout.readline().strip()
    finally:
        server.kill()
        server.wait()


# ---- the package, in its environment


def installed() -> bool:
    """Make `.venv-veriscore` if it isn't there; False if that can't be done."""
    done = ENVIRONMENT / "done"
    if done.exists():
        return True
    print("== Set-up: .venv-veriscore with the VeriScore package (1 min, 400 MB) ==")
    pip = [ENVIRONMENT / "bin" / "python", "-m", "pip", "install", "--quiet"]
    pip += ["--only-binary", ":all:", "--constraint", CONSTRAINTS, *REQUIREMENTS]
    for command in ([sys.executable, "-m", "venv", ENVIRONMENT], pip):
        if subprocess.run(command).returncode:
            return False
    (ENVIRONMENT / ".gitignore").write_text("*\n", "utf-8")
    done.touch()
    return True


def filler(characters: int) -> str:
    return ("some words " * (characters // 11 + 1))[:characters]


def write_prompts() -> None:
    """Stand-ins for the files that the package reads beneath the working folder."""
    for folder in ("prompt", "data/demos"):
        Path(folder).mkdir(parents=True)
    extraction = filler(EXTRACTION_CHARS) + "\n{snippet}\nSentence: {sentence}\n"
    Path("prompt/extraction_qa_template.txt").write_text(extraction, "utf-8")
    verification = filler(INSTRUCTION_CHARS) + "\n{}\n{}\n{}" * DEMONSTRATIONS
    Path("prompt/verification_instruction_trinary.txt").write_text(
        verification, "utf-8"
    )
    shown = {"claim": filler(75), "human_label": "support"}
    shown["search_result"] = filler(DEMONSTRATION_CHARS)
    lines = (json.dumps(shown) + "\n") * DEMONSTRATIONS
    Path("data/demos/few_shot_examples.jsonl").write_text(lines, "utf-8")


def drive_package(rows: Sequence[Row]) -> float:
    """Seconds of the package's pipeline for the rows, in an empty working folder."""
    import spacy
    import tiktoken
    from veriscore import veriscore
    from veriscore.search_API import SearchAPI

    snippets = [
        {"title": r["question"], "snippet": r["response"][:200], "link": "https://a.b"}
        for r in rows[:5]
    ]
    SearchAPI.get_search_res = lambda self, query: {"organic": snippets}
    rules = spacy.blank("en")
    rules.add_pipe("sentencizer")
    spacy.load = lambda name: rules
    ranks = {bytes([i]): i for i in range(256)}
    of_bytes = tiktoken.Encoding(
        "bytes", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={}
    )
    tiktoken.encoding_for_model = lambda name: of_bytes
    write_prompts()
    # get_veriscore takes these from the namespace of its command line
    veriscore.args = argparse.Namespace(output_dir="data", search_res_num=5)
    scorer = veriscore.VeriScorer("gpt", "gpt", output_dir="data")
    start = time.perf_counter()
    scorer.get_veriscore(rows, "leads")
    return time.perf_counter() - start


def time_package(rows: Sequence[Row], url: str) -> tuple[float, int]:
    """Seconds of the package, and the calls that it made.

    Raises AssertionError if it did not find every claim supported.
    """
    keys = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY_PERSONAL": "none"}
    command = [ENVIRONMENT / "bin" / "python", Path(__file__).resolve(), "package"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "rows.json").write_text(json.dumps(rows), "utf-8")
        subprocess.run(
            command, cwd=folder, check=True, capture_output=True, env=os.environ | keys
        )
        verified = (folder / "data/model_output/verification_leads_3.jsonl").read_text(
            "utf-8"
        )
        claims = [
            json.loads(line)["claim_verification_result"]
            for line in verified.splitlines()
        ]
        assert len(claims) == len(rows) and all(claims)
        verdicts = {claim["verification_result"] for row in claims for claim in row}
        assert verdicts == {"supported"}
        caches = (folder / "data/cache/gpt").glob("*.json")
        calls = sum(len(json.loads(cache.read_text("utf-8"))) for cache in caches)
        return float((folder / "seconds").read_text("utf-8")), calls


# ---- the kit


class Batch:
    """Leads as responses to "Tell me about …", each with 10 leads as its evidence.

    leads_each: how many make a response; the first is what the prompt asks about.
    """

    def __init__(self, responses: int = RESPONSES, leads_each: int = 1) -> None:
        from factkit.data.bm25 import CorpusIndex
        from factkit.data.corpus import Chunk, load_leads
        from factkit.data.evidence import build_offline
        from factkit.data.examples import Example

        leads = load_leads()
        drawn = iter(random.Random(0).sample(leads, responses * leads_each))
        self.examples = [
            Example(
                id=of[0].id,
                question=f"Tell me about {of[0].title}.",
                answers=[" ".join(lead.text for lead in of)],
                entity=of[0].id,
            )
            for of in zip(*[drawn] * leads_each, strict=True)
        ]
        index = CorpusIndex(Chunk(f"{d.id}#0", d.id, d.text, 0) for d in leads)
        documents = {lead.id: lead for lead in leads}
        self.evidence, _ = build_offline(self.examples, index, documents, 10, 3)

    @property
    def rows(self) -> list[Row]:
        """The batch in the package's format."""
        source = {"model": "leads", "prompt_source": "leads"}
        return [
            {"question": e.question, "response": e.answers[0]} | source
            for e in self.examples
        ]

    def run(
        self, arm: str, url: str, n: int, concurrency: int = CONCURRENCY
    ) -> tuple[float, float, SimpleNamespace]:
        """Seconds, CPU seconds and calls of the arm's reward of the first n responses.

        Raises AssertionError as `score`.
        """
        from factkit.verify.llm import LLM, Endpoint, Limits

        with tempfile.TemporaryDirectory() as cache, redirect_stderr(io.StringIO()):
            limits = Limits(concurrency)
            llm = LLM(Endpoint(url, "fake"), Path(cache), limits)
            engine = self.engine(llm)
            rows = [(e.id, e.question, e.answers[0]) for e in self.examples[:n]]
            columns = map(list, zip(*rows, strict=True))
            wall, cpu = time.perf_counter(), time.process_time()
            self.score(arm, engine, *columns)
            took = time.perf_counter() - wall, time.process_time() - cpu
        return *took, llm.totals

    def score(self, arm: str, engine: "EvidenceEngine", *rows: Sequence[str]) -> None:
        """Score ids, prompts and responses by an arm of Binary RAR.

        Raises AssertionError if a reward is not 1, as the endpoint makes them.
        """
        from factkit.papers.rar.rewards import rewards_by_arm

        rewards = rewards_by_arm([arm], engine, *rows)[arm]
        assert rewards == [1.0] * len(rewards), "a call failed"

    def engine(self, llm) -> "EvidenceEngine":
        """The engine of a run with a judge, with the paper's sizes."""
        from transformers import AutoTokenizer

        from factkit.answers.long_form import search_words
        from factkit.data import assets
        from factkit.data.evidence import EvidenceCache
        from factkit.papers.rar.rewards import EvidenceEngine
        from factkit.verify import claims

        path = assets.policy_path("smollm2-135m-instruct")
        tokenizer = AutoTokenizer.from_pretrained(path)
        return EvidenceEngine(
            extract=partial(claims.extract_claims, llm),
            verify=partial(claims.label_texts, llm),
            llm=llm,
            whole=EvidenceCache(self.evidence, tokenizer, 512),
            pieces=EvidenceCache(self.evidence, tokenizer, 256),
            search=search_words(self.evidence),
        )


# ---- the comparisons


def speed(batch: Batch) -> None:
    """Print responses a second of both, by the median round, and their ratio."""
    kit, package = [], []
    with endpoint(LATENCY_S) as url:
        batch.run("veriscore", url, 2)  # imports
        for _ in range(ROUNDS):
            wall, cpu, totals = batch.run("veriscore", url, RESPONSES)
            kit.append(RESPONSES / wall)
            print(f"    kit {totals.calls} calls in {wall:.1f} s, {cpu:.1f} s of CPU")
            seconds, calls = time_package(batch.rows[:SAMPLE], url)
            package.append(SAMPLE / seconds)
            print(f"    package {calls} calls in {seconds:.1f} s")
    ours, theirs = statistics.median(kit), statistics.median(package)
    print(f"{1e3 * LATENCY_S:.0f} ms a call; the kit's concurrency is {CONCURRENCY}")
    print(f"kit     {ours:6.2f} responses/s, {RESPONSES}")
    print(f"package {theirs:6.2f} responses/s, {SAMPLE}: ratio {ours / theirs:.0f} x")


def cost(batch: Batch) -> None:
    """Print calls and tokens a response of two arms, and the ratios."""
    from factkit.data import assets

    path = Path(assets.policy_path("smollm2-135m-instruct"))
    totals = []
    with endpoint(0.0, str(path / "tokenizer.json")) as url:
        for arm in ("binary_rar", "veriscore"):
            done = batch.run(arm, url, RESPONSES)[-1]
            totals.append((done.calls, done.prompt_tokens + done.completion_tokens))
            calls, tokens = (total / RESPONSES for total in totals[-1])
            print(f"{arm:10} {calls:.1f} calls, {tokens:.0f} tokens a response")
    calls, tokens = (v / r for r, v in zip(*totals, strict=True))
    print(f"ratio      {calls:.1f} x calls, {tokens:.1f} x tokens")


def main() -> None:
    """Compare cost, then speed where the package can be had."""
    batch = Batch()
    cost(batch)
    if installed():
        speed(batch)
    else:
        print("skipped: the VeriScore package can't be installed here")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", latency_s, tokenizer]:
            serve(float(latency_s), tokenizer)
        case ["package"]:
            taken = drive_package(json.loads(Path("rows.json").read_text("utf-8")))
            Path("seconds").write_text(str(taken), "utf-8")
        case _:
            main()
