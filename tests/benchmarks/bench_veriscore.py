"""The kit's VeriScore reward against the VeriScore package, and against binary_rar.

Speed: responses a second of `rewards_of("veriscore", …)` on language models, and of the
package's own pipeline (`VeriScorer.get_veriscore`: extraction, search, verification).
Both read Wikipedia leads and ask one fake endpoint, which takes `LATENCY_S` a call and
finds `CLAIMS` claims in a sentence; half a second is what a large model takes at best.
They take turns; medians count. Both begin with
empty caches on disk. Not timed: imports, the start of the package, making the evidence.

The package asks one thing at a time and writes its whole cache anew after each call,
so that its rate falls with the number of responses: it gets the first `SAMPLE` of them.
Equal calls a response make the ratio at most `CONCURRENCY` × (1 + the package's own
time a call / `LATENCY_S`); the kit falls short of it by its own CPU time a call.

The package is what PyPI has, in `.venv-veriscore` (made at the first run; where that
can't be, the benchmark skips). Instead of what does not come with it, it has
- for its prompt templates and demonstrations, filler as long as those of its
  repository: 12,732 characters to extract, 29,902 to verify;
- for the web, five stored snippets, found at once;
- for `en_core_web_sm`, which spaCy's makers don't put on PyPI, spaCy's rules for
  sentences: faster;
- for GPT-4's vocabulary, which tiktoken downloads, one of bytes, for its own count.

Cost: calls a response of binary_rar and of veriscore, by `LLM.totals`.
"""

import argparse
import io
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the package's environment runs this file too, without the kit
    from factkit.llm import Totals
    from factkit.rar.rewards import EvidenceEngine

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".venv-veriscore"
CONSTRAINTS = ROOT / "factkit" / "locks" / "cpu.txt"
REQUIREMENTS = """VeriScore==2.0.3 spacy==3.8.18 anthropic==2.12.0 tiktoken==0.14.0
openai regex requests tqdm""".split()  # the last four are pinned by the kit's lock

RESPONSES, CONCURRENCY, LATENCY_S, CLAIMS, ROUNDS = 128, 64, 0.5, 2, 3
SAMPLE = 8  # responses that the package gets in each round
EXTRACTION_CHARS, INSTRUCTION_CHARS = 12_732, 1_465
DEMONSTRATIONS = [2999, 3481, 3153, 3329, 2682, 3235, 3258, 3380, 2245]  # characters

Row = dict[str, str]  # a response in the package's format


# ---- the fake endpoint, in a process of its own


def claims_of(sentence: str) -> list[str]:
    """A sentence cut into `CLAIMS` runs of words, as equal as can be."""
    words = sentence.split()
    cuts = [round(i * len(words) / CLAIMS) for i in range(CLAIMS + 1)]
    parts = [words[a:b] for a, b in zip(cuts, cuts[1:], strict=False)]
    return [" ".join(part) for part in parts if part]


def reply(body: dict) -> str:
    """What the endpoint answers: to the kit by its schema, to the package as text."""
    system, asked = body["messages"][0]["content"], body["messages"][-1]["content"]
    sentence = asked.rpartition("Sentence: ")[2].partition("\n")[0]
    if form := body.get("response_format"):
        fields = form["json_schema"]["schema"]["properties"]
        if "claims" in fields:
            return json.dumps({"claims": claims_of(json.loads(sentence))})
        if "label" in fields:
            return json.dumps({"label": "supported"})
        return json.dumps({"REASONING": "no contradiction found", "SCORE": 1})
    if "[[A]]" in asked:
        return "The response says more than mine.\n<answer>[[A]]</answer>"
    if "extract" in system:
        return "\n".join(f"- {claim}" for claim in claims_of(sentence))
    return "###Supported.###"


def serve(latency_s: float) -> None:
    """Serve on a free port and print its URL."""
    import asyncio

    from aiohttp import web

    async def handle(request: web.Request) -> web.Response:
        arrived = time.perf_counter()
        body = await request.json()
        message = {"role": "assistant", "content": reply(body)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        done = {"id": "x", "object": "chat.completion", "created": 0, "model": "fake"}
        usage = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 0)
        await asyncio.sleep(latency_s - (time.perf_counter() - arrived))
        return web.json_response({**done, "choices": [choice], "usage": usage})

    async def run() -> None:
        app = web.Application(client_max_size=2**24)
        app.router.add_post("/v1/chat/completions", handle)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        print(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", flush=True)
        await asyncio.Event().wait()

    asyncio.run(run())


@contextmanager
def endpoint(latency_s: float) -> Iterator[str]:
    """The URL of a running fake endpoint."""
    command = [sys.executable, __file__, "serve", str(latency_s)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().strip()
        if not url:
            raise RuntimeError("the fake endpoint did not start")
        yield url
    finally:
        server.terminate()
        server.wait()


# ---- the package, in its environment


def installed() -> bool:
    """Make `.venv-veriscore` if it isn't there; False if that can't be done."""
    done = ENVIRONMENT / "done"
    if done.exists():
        return True
    python = str(ENVIRONMENT / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
    pip += ["--constraint", str(CONSTRAINTS), *REQUIREMENTS]
    print("== Set-up: .venv-veriscore with the VeriScore package (1 min, 400 MB) ==")
    ENVIRONMENT.mkdir(exist_ok=True)
    (ENVIRONMENT / ".gitignore").write_text("*\n")
    for command in ([sys.executable, "-m", "venv", str(ENVIRONMENT)], pip):
        made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode:
            print(made.stderr.strip()[-500:])
            return False
    done.touch()
    return True


def filler(rows: Sequence[Row], characters: int) -> str:
    """Running text of a length, without the braces that a template would fill."""
    text = " ".join(row["response"] for row in rows).replace("{", "(").replace("}", ")")
    return (text * (characters // len(text) + 1))[:characters]


def write_prompts(rows: Sequence[Row]) -> None:
    """Stand-ins for the files that the package reads beneath the working folder."""
    for folder in ("prompt", "data/demos"):
        Path(folder).mkdir(parents=True)
    end = "\n{snippet}\nSentence: {sentence}\n"
    extraction = filler(rows, EXTRACTION_CHARS - len(end)) + end
    Path("prompt/extraction_qa_template.txt").write_text(extraction)
    places = "\n{}\n{}\n{}" * len(DEMONSTRATIONS)
    verification = filler(rows, INSTRUCTION_CHARS - len(places)) + places
    Path("prompt/verification_instruction_trinary.txt").write_text(verification)
    row = {"claim": filler(rows, 75), "human_label": "support"}
    shown = [row | {"search_result": filler(rows, n)} for n in DEMONSTRATIONS]
    lines = "".join(json.dumps(row) + "\n" for row in shown)
    Path("data/demos/few_shot_examples.jsonl").write_text(lines)


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
    of_bytes = tiktoken.Encoding(
        "bytes",
        pat_str=r"\S+|\s+",
        mergeable_ranks={bytes([i]): i for i in range(256)},
        special_tokens={},
    )
    tiktoken.encoding_for_model = lambda name: of_bytes
    write_prompts(rows)
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
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "rows.json").write_text(json.dumps(rows))
        subprocess.run(
            [ENVIRONMENT / "bin" / "python", Path(__file__).resolve(), "package"],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=(folder / "stderr").open("w"),
            env=os.environ | keys,
        )
        verified = (folder / "data/model_output/verification_leads_3.jsonl").read_text()
        for line in verified.splitlines():
            found = json.loads(line)["claim_verification_result"]
            assert found and all(c["verification_result"] == "supported" for c in found)
        assert len(verified.splitlines()) == len(rows)
        caches = (folder / "data/cache/gpt").glob("*.json")
        calls = sum(len(json.loads(cache.read_text())) for cache in caches)
        return float((folder / "seconds").read_text()), calls


# ---- the kit


class Batch:
    """Leads as responses to "Tell me about …", each with 10 leads as its evidence.

    leads_each: how many make a response; the first is what the prompt asks about.
    """

    def __init__(self, responses: int = RESPONSES, leads_each: int = 1) -> None:
        from factkit.corpus import load_leads
        from factkit.datasets.examples import Example
        from factkit.retrieval.bm25 import CorpusIndex
        from factkit.retrieval.chunks import Chunk
        from factkit.retrieval.evidence import build_offline

        leads = load_leads()
        drawn = iter(random.Random(0).sample(leads, responses * leads_each))
        examples = [
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
        self.evidence, _ = build_offline(examples, index, documents)
        self.ids = [e.id for e in examples]
        self.prompts = [e.question for e in examples]
        self.responses = [e.answers[0] for e in examples]

    @property
    def rows(self) -> list[Row]:
        """The batch in the package's format."""
        of = {"model": "leads", "prompt_source": "leads"}
        pairs = zip(self.prompts, self.responses, strict=True)
        return [{"question": q, "response": r} | of for q, r in pairs]

    def run(
        self, arm: str, url: str, n: int, concurrency: int = CONCURRENCY
    ) -> tuple[float, float, "Totals"]:
        """Seconds, CPU seconds and calls of the arm's reward of the first n responses.

        Raises AssertionError as `score`.
        """
        from factkit.llm import LLM, Endpoint, Limits

        with tempfile.TemporaryDirectory() as cache, redirect_stderr(io.StringIO()):
            endpoint = Endpoint(url, "fake", api_key="none")
            llm = LLM(endpoint, Path(cache), Limits(concurrency))
            engine = self.engine(llm)
            some = [of[:n] for of in (self.ids, self.prompts, self.responses)]
            wall, cpu = time.perf_counter(), time.process_time()
            self.score(arm, engine, *some)
            took = time.perf_counter() - wall, time.process_time() - cpu
        return *took, llm.totals

    def score(self, arm: str, engine: "EvidenceEngine", *rows: Sequence[str]) -> None:
        """Score ids, prompts and responses by an arm of Binary RAR.

        Raises AssertionError if a reward is not 1, as the endpoint makes them.
        """
        from factkit.rar.rewards import rewards_of

        rewards = rewards_of(arm, engine, *rows)
        assert rewards == [1.0] * len(rewards), "a call failed"

    def engine(self, llm) -> "EvidenceEngine":
        """The engine of a run with a judge, with the paper's sizes."""
        from transformers import AutoTokenizer

        from factkit import assets
        from factkit.evaluate.long_form import search_words
        from factkit.rar.rewards import EvidenceEngine
        from factkit.retrieval.evidence import EvidenceCache
        from factkit.verify import claims, support

        path = assets.policy_path("smollm2-135m-instruct")
        tokenizer = AutoTokenizer.from_pretrained(path)
        return EvidenceEngine(
            extract=claims.llm_extractor(llm),
            verify=support.llm_claim_verifier(llm),
            llm=llm,
            whole=EvidenceCache(self.evidence, tokenizer, 512),
            pieces=EvidenceCache(self.evidence, tokenizer, 256),
            search=search_words(self.evidence),
        )


# ---- the comparisons


def speed(batch: Batch) -> None:
    """Print the medians of responses a second of both, and their ratio."""
    print(f"{1e3 * LATENCY_S:.0f} ms a call; the kit's concurrency is {CONCURRENCY}")
    kit, package = [], []
    with endpoint(LATENCY_S) as url:
        batch.run("veriscore", url, 2)  # imports
        for _ in range(ROUNDS):
            wall, cpu, totals = batch.run("veriscore", url, RESPONSES)
            kit.append(RESPONSES / wall)
            print(f"    kit {totals.calls} calls in {wall:.1f} s, {cpu:.1f} s of CPU")
            package.append(package_rate(batch.rows[:SAMPLE], url))
    ours, theirs = statistics.median(kit), statistics.median(package)
    print(f"kit     {ours:6.2f} responses/s, {RESPONSES}")
    print(f"package {theirs:6.2f} responses/s, {SAMPLE}: ratio {ours / theirs:.0f} x")


def package_rate(rows: Sequence[Row], url: str) -> float:
    """Responses a second of the package; prints its calls."""
    seconds, calls = time_package(rows, url)
    print(f"   package {calls} calls in {seconds:.1f} s")
    return len(rows) / seconds


def cost(batch: Batch) -> None:
    """Print calls a response of two arms, and their ratio."""
    calls = {}
    with endpoint(0.0) as url:
        for arm in ("binary_rar", "veriscore"):
            calls[arm] = batch.run(arm, url, RESPONSES)[2].calls / RESPONSES
            print(f"{arm:10} {calls[arm]:.1f} calls a response")
    print(f"ratio      {calls['veriscore'] / calls['binary_rar']:.1f} x calls")


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
        case ["serve", latency_s]:
            serve(float(latency_s))
        case ["package"]:
            taken = drive_package(json.loads(Path("rows.json").read_text()))
            Path("seconds").write_text(str(taken))
        case _:
            main()
