"""Run the VeriScore package on stored responses. Its own environment runs this file.

Called in a working folder with inputs.json: `rows` in the package's format, the
prompts' instructions, the evidence, and the number of threads. Prints the seconds.

The package comes without its prompts, a web search, spaCy's model and GPT-4's
vocabulary. Their places take the kit's instructions, the kit's evidence, spaCy's rules
for sentences and a vocabulary of bytes. It scores one response after the other; several
threads have a scorer each, with its own cache.
"""

import argparse
import itertools
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import spacy
import tiktoken
from veriscore import veriscore
from veriscore.search_API import SearchAPI


def escape(text: str) -> str:
    """A text as a template of `str.format` without fields."""
    return text.replace("{", "{{").replace("}", "}}")


def write_prompts(instructions: dict[str, str]) -> None:
    """Write the files that the package reads beneath the working folder."""
    for folder in ("prompt", "data/demos"):
        Path(folder).mkdir(parents=True)
    extraction = (
        escape(instructions["extraction"]) + "\n{snippet}\nSentence: {sentence}"
    )
    Path("prompt/extraction_qa_template.txt").write_text(extraction, "utf-8")
    verification = escape(instructions["verification"])
    Path("prompt/verification_instruction_trinary.txt").write_text(
        verification, "utf-8"
    )
    Path("data/demos/few_shot_examples.jsonl").touch()


def replace_missing_parts(evidence: list[list[str]]) -> None:
    """Put stand-ins for what the package does not bring. evidence: the texts that
    searches find, in turn."""
    results = itertools.cycle(
        {"organic": [{"title": "", "snippet": t, "link": ""} for t in texts]}
        for texts in evidence
    )
    SearchAPI.get_search_res = lambda self, query: next(results)
    rules = spacy.blank("en")
    rules.add_pipe("sentencizer")
    spacy.load = lambda name: rules
    ranks = {bytes([i]): i for i in range(256)}
    vocabulary = tiktoken.Encoding(
        "bytes", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={}
    )
    tiktoken.encoding_for_model = lambda name: vocabulary
    # get_veriscore reads these from the namespace of its command line
    veriscore.args = argparse.Namespace(output_dir="data", search_res_num=10)


def main() -> None:
    """Score the rows and print a dict of seconds as JSON."""
    inputs = json.loads(Path("inputs.json").read_text("utf-8"))
    write_prompts(inputs["instructions"])
    replace_missing_parts(inputs["evidence"])
    threads = min(inputs["threads"], len(inputs["rows"]))
    shares = [inputs["rows"][i::threads] for i in range(threads)]
    scorers = [
        veriscore.VeriScorer("gpt", "gpt", cache_dir=f"cache/{i}", output_dir="data")
        for i in range(threads)
    ]

    def score(i: int) -> None:
        scorers[i].get_veriscore(shares[i], f"{i}")

    wall, cpu = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(score, range(threads)))
    seconds = time.perf_counter() - wall
    print()
    print(json.dumps({"seconds": seconds, "CPU seconds": time.process_time() - cpu}))


if __name__ == "__main__":
    main()
