"""Rewards that a language model judges: how much of a limit on calls they use.

The VeriScore package is PyPI's, in `.venv-veriscore`, which the first run makes. Where
that can't be, the other rewards are measured alone.
"""

import functools
import io
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from endpoint import endpoint, totals
from measuring import ROUNDS, Figures, run_in_turn, stopwatch

if TYPE_CHECKING:
    from factkit.papers.rar.rewards import EvidenceEngine
    from factkit.papers.reason.rewards import PreferenceEngine
    from factkit.verify.llm import LLM

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".venv-veriscore"
CONSTRAINTS = ROOT / "factkit" / "locks" / "cpu.txt"
REQUIREMENTS = """VeriScore==2.0.3 spacy==3.8.18 anthropic==2.12.0 tiktoken==0.14.0
openai regex requests tqdm""".split()  # the last four are pinned by the kit's lock

RESPONSES, CONCURRENCY, LATENCY_S = 64, 64, 0.5
CHUNKS = 4  # of evidence for a claim

TITLE = "Rewards that a language model judges"
TEXT = f"""\
{RESPONSES} Wikipedia leads as responses, and an endpoint that takes {LATENCY_S} s per
call, so that {CONCURRENCY} simultaneous calls are {CONCURRENCY / LATENCY_S:.0f} per
second at most. *Share of the limit* is how much of that a reward reaches. The VeriScore
package makes one call after the other, which would be a share of 1/{CONCURRENCY}; here
it runs in {CONCURRENCY} threads with a scorer each. Both ways judge the same responses,
and the package gets the kit's instructions and evidence in place of its own, which are
longer. Not measured: a real endpoint under load, the web, and the reward service's
HTTP."""

PACKAGE, KIT = f"package, {CONCURRENCY} threads", "kit"
VERISCORE, OTHERS = "VeriScore", "other rewards"
BASELINES = {VERISCORE: PACKAGE, OTHERS: "Binary RAR"}

Columns = Sequence[list[str]]  # ids, prompts, responses


def measure(quick: bool) -> Iterator[pd.DataFrame]:
    """A table per task, one row per run. quick: one round of 4 responses at 0.05 s per
    call."""
    responses, latency_s = (4, 0.05) if quick else (RESPONSES, LATENCY_S)
    rounds = 1 if quick else ROUNDS
    batch = Batch(responses)
    with endpoint(latency_s) as url:

        def count(way: Callable[[str], Figures]) -> Figures:
            totals(url)
            figures = way(url)
            calls, characters = totals(url).values()
            limit = CONCURRENCY / latency_s * figures["seconds"]
            return {
                "share of the limit": calls / limit,
                "calls per response": calls / responses,
                "characters per call": characters / calls,
                **figures,
            }

        def run(task: str, ways: dict[str, Callable[[str], Figures]]) -> pd.DataFrame:
            counted = {way: functools.partial(count, f) for way, f in ways.items()}
            return run_in_turn(task, counted, rounds)

        veriscore = functools.partial(batch.time_rar, "veriscore")
        others = {
            "Binary RAR": functools.partial(batch.time_rar, "binary_rar"),
            "Learning to Reason, precision": functools.partial(
                batch.time_reason, "fact"
            ),
            "Learning to Reason, precision and relevance": functools.partial(
                batch.time_reason, "fact_relevance"
            ),
        }
        for way in (veriscore, *others.values()):
            way(url)  # imports
        yield run(OTHERS, others)
        if installed():
            package = functools.partial(time_package, batch)
            yield run(VERISCORE, {PACKAGE: package, KIT: veriscore})
        else:
            print("skipped: the VeriScore package can't be installed here")


# ---- the kit


class Batch:
    """Leads as responses to "Tell me about …", each with 10 leads as its evidence."""

    def __init__(self, responses: int) -> None:
        from transformers import AutoTokenizer

        from factkit.data import assets
        from factkit.data.bm25 import CorpusIndex
        from factkit.data.corpus import Chunk, load_leads
        from factkit.data.evidence import build_offline
        from factkit.data.examples import Example

        leads = load_leads()
        self.examples = [
            Example(
                id=lead.id,
                question=f"Tell me about {lead.title}.",
                answers=[lead.text],
                entity=lead.id,
            )
            for lead in random.Random(0).sample(leads, responses)
        ]
        index = CorpusIndex(Chunk(f"{d.id}#0", d.id, d.text, 0) for d in leads)
        documents = {lead.id: lead for lead in leads}
        self.evidence, _ = build_offline(self.examples, index, documents, 10, 3)
        path = assets.policy_path("smollm2-135m-instruct")
        self.tokenizer = AutoTokenizer.from_pretrained(path)

    @property
    def columns(self) -> Columns:
        rows = [(e.id, e.question, e.answers[0]) for e in self.examples]
        return list(map(list, zip(*rows, strict=True)))

    def engines(self, llm) -> tuple["EvidenceEngine", "PreferenceEngine"]:
        """The engines of Binary RAR and Learning to Reason, with the papers' sizes."""
        from factkit.answers.long_form import search_words
        from factkit.data.evidence import EvidenceCache
        from factkit.papers.rar.rewards import EvidenceEngine
        from factkit.papers.reason.rewards import PreferenceEngine
        from factkit.verify import claims

        shared = {
            "extract": functools.partial(claims.extract_claims, llm),
            "verify": functools.partial(claims.label_text, llm),
            "pieces": EvidenceCache(self.evidence, self.tokenizer, 256),
            "search": search_words(self.evidence),
            "claim_chunks": CHUNKS,
            "llm": llm,
        }
        whole = EvidenceCache(self.evidence, self.tokenizer, 512)
        return EvidenceEngine(**shared, whole=whole), PreferenceEngine(**shared)

    def time_rar(self, arm: str, url: str) -> Figures:
        """Score the responses by an arm of Binary RAR.

        Raises RuntimeError if a reward is not 1, as the endpoint makes them.
        """
        from factkit.papers.rar.rewards import rewards_by_arm

        with client(url) as llm:
            engine, _ = self.engines(llm)
            with stopwatch() as figures:
                rewards = rewards_by_arm([arm], engine, *self.columns)[arm]
        if rewards != [1.0] * len(rewards):
            raise RuntimeError("a call failed")
        return figures

    def time_reason(self, arm: str, url: str) -> Figures:
        """Score the responses, behind as much reasoning, by an arm of Learning to
        Reason. Raises RuntimeError if a reward is missing."""
        from factkit.papers.reason.rewards import rewards_by_arm
        from factkit.verify.response import format_response

        ids, prompts, answers = self.columns
        responses = [format_response(answer, answer) for answer in answers]
        with client(url) as llm:
            _, engine = self.engines(llm)
            with stopwatch() as figures:
                scores = rewards_by_arm([arm], engine, ids, prompts, responses)[arm]
        if None in scores:
            raise RuntimeError("a call failed")
        return figures


@contextmanager
def client(url: str) -> Iterator["LLM"]:
    """The kit's client with an empty cache, and nothing printed."""
    from factkit.verify.llm import LLM, Endpoint, Limits

    with tempfile.TemporaryDirectory() as cache, redirect_stderr(io.StringIO()):
        yield LLM(Endpoint(url, "fake"), Path(cache), Limits(CONCURRENCY))


# ---- the package


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


def instructions() -> dict[str, str]:
    """The kit's prompts to extract and to verify, with nothing in their fields."""
    from factkit import prompts

    extraction = prompts.fill(
        prompts.template("extract_claims"),
        question="",
        before="",
        sentence="",
        after="",
    )
    verification = prompts.fill(prompts.template("verify_claim"), evidence="", claim="")
    return {"extraction": extraction, "verification": verification}


def time_package(batch: Batch, url: str) -> Figures:
    """Score the responses by the package in `CONCURRENCY` threads.

    Raises RuntimeError unless it found all claims of all responses supported.
    """
    engine, _ = batch.engines(None)
    ids, prompts, responses = batch.columns
    inputs = {
        "threads": CONCURRENCY,
        "instructions": instructions(),
        "evidence": list(map(engine.evidence_of, ids, responses)),
        "rows": [
            {"question": q, "response": r, "model": "leads", "prompt_source": "leads"}
            for q, r in zip(prompts, responses, strict=True)
        ],
    }
    script = Path(__file__).with_name("veriscore_package.py")
    command = [ENVIRONMENT / "bin" / "python", script]
    keys = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY_PERSONAL": "none"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "inputs.json").write_text(json.dumps(inputs), "utf-8")
        with stopwatch() as figures:
            done = subprocess.run(
                command,
                cwd=folder,
                check=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | keys,
            )
        outputs = (folder / "data" / "model_output").glob("*.jsonl")
        texts = [path.read_text("utf-8") for path in outputs]
    lines = [line for text in texts for line in text.splitlines()]
    results = [json.loads(line)["claim_verification_result"] for line in lines]
    verdicts = {claim["verification_result"] for row in results for claim in row}
    if len(results) != len(ids) or verdicts != {"supported"}:
        raise RuntimeError(f"{len(results)} responses were verified: {verdicts}")
    return figures | json.loads(done.stdout.splitlines()[-1])
